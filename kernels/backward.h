// The backward operations: rows for dx, and sums over rows for dweight.
#ifndef FUSEDNORM_KERNELS_BACKWARD_H_
#define FUSEDNORM_KERNELS_BACKWARD_H_

#include <cstdint>

#include "fusednorm/options.h"
#include "fusednorm/status.h"
#include "kernels/plan.h"
#include "kernels/targets.h"

namespace fusednorm {
namespace internal {

// `run` computes dx of its rows, where wanted, and adds each row's dy * xh to
// rows.sums, where not null: f32, or f64 where the tensors are, as many as the
// width rounded up to a multiple of 64.
struct BackwardKernel {
  RowKernel run;
  // The order of the sums: 0 as in a row; else, in each 2 * lanes of them, the
  // even elements come before the odd ones.
  int64_t lanes;
};

BackwardKernel SelectReferenceBackward(const Plan& plan);
BackwardKernel SelectBackward(Target target, const Plan& plan);

Status RunBackward(Target target, const Plan& plan, const Geometry& geometry,
                   const Options& options);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_BACKWARD_H_

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

// The sums of dweight: `run` adds each row's dy * xh to those of a block of
// rows, `add` those of a block to the totals.
struct BackwardKernel {
  // Computes dx of its rows, where wanted, and adds to rows.sums, where not
  // null: f32, or f64 where the tensors are, as many as the width rounded up to
  // a multiple of 64, in an order of its own.
  RowKernel run;
  // Adds such sums to totals, in the order of a row.
  void (*add)(const void* sums, int64_t count, double* totals);
  // Stores the totals as a row of dweight, each rounded once; with accumulate
  // what the row held is added before.
  void (*store)(const Plan& plan, const double* totals, char* row);
};

BackwardKernel SelectReferenceBackward(const Plan& plan);

void StoreDWeightByReference(const Plan& plan, const double* totals, char* row);

// One row, for a vector kernel: where rstd is not finite the zeros past the end
// of a row would not stay zeros. In the kernel's sums even elements come before
// odd ones in each 2 * lanes; with 0 lanes they are in order.
void BackwardRowByReference(const Plan& plan, const Rows& rows, int64_t index,
                            int64_t lanes);

BackwardKernel SelectBackward(Target target, const Plan& plan);

Status RunBackward(Target target, Plan* plan, const Geometry& geometry,
                   const Options& options);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_BACKWARD_H_

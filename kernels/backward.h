// The backward operations: rows for dx, and sums over rows for dweight.
#ifndef FUSEDNORM_KERNELS_BACKWARD_H_
#define FUSEDNORM_KERNELS_BACKWARD_H_

#include "fusednorm/options.h"
#include "fusednorm/status.h"
#include "kernels/plan.h"
#include "kernels/targets.h"

namespace fusednorm {
namespace internal {

Status RunBackward(Target target, const Plan& plan, const Geometry& geometry,
                   const Options& options);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_BACKWARD_H_

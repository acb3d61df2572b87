// From a checked call to its vector row kernel: one selector per operation, in
// kernels/<op>.cc. Null where a target leaves the plan to the reference.
#ifndef FUSEDNORM_KERNELS_SELECT_H_
#define FUSEDNORM_KERNELS_SELECT_H_

#include "kernels/plan.h"
#include "kernels/targets.h"

namespace fusednorm {
namespace internal {

RowKernel SelectRmsNorm(Target target, const Plan& plan);
RowKernel SelectAddRmsNorm(Target target, const Plan& plan);
RowKernel SelectRmsNormAdd(Target target, const Plan& plan);
RowKernel SelectRmsNormAddRmsNorm(Target target, const Plan& plan);
RowKernel SelectRowStatistic(Target target, const Plan& plan);
RowKernel SelectRmsNormWithRstd(Target target, const Plan& plan);

// What the target namespaces of an operation export.
using Selector = RowKernel (*)(const Plan& plan);

inline RowKernel RunSelector(const Selector (&selectors)[kTargets],
                             Target target, const Plan& plan) {
  const Selector selector = selectors[static_cast<int>(target)];
  return selector != nullptr ? selector(plan) : nullptr;
}

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_SELECT_H_

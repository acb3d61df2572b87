// From a checked call to its row kernel.
#ifndef FUSEDNORM_KERNELS_SELECT_H_
#define FUSEDNORM_KERNELS_SELECT_H_

#include "fusednorm/options.h"
#include "fusednorm/status.h"
#include "kernels/check.h"
#include "kernels/plan.h"
#include "kernels/targets.h"

namespace fusednorm {
namespace internal {

// One per operation, in kernels/<op>.cc; null where the target leaves the plan
// to the reference.
RowKernel SelectRmsNorm(Target target, const Plan& plan);
RowKernel SelectAddRmsNorm(Target target, const Plan& plan);

// What an operation's target namespaces export.
using Selector = RowKernel (*)(const Plan& plan);

inline RowKernel RunSelector(const Selector (&selectors)[kTargets],
                             Target target, const Plan& plan) {
  const Selector selector = selectors[static_cast<int>(target)];
  return selector != nullptr ? selector(plan) : nullptr;
}

RowKernel Select(Target target, const Plan& plan);

// Checks, selects and runs one call: what every public function comes to.
enum class Backend { kCurrentTarget, kReference };
Status Run(Op op, Backend backend, const Arguments& arguments,
           const Options& options) noexcept;

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_SELECT_H_

// The library's own table of targets.
#ifndef FUSEDNORM_KERNELS_TARGETS_H_
#define FUSEDNORM_KERNELS_TARGETS_H_

#include "fusednorm/status.h"
#include "fusednorm/targets.h"

namespace fusednorm {
namespace internal {

// Best first, so that the smallest value that the machine can run is its best.
enum class Target { kAvx512, kAvx2, kNeon, kScalar };
constexpr int kTargets = 4;

// The target in use, or a refusal while FUSEDNORM_TARGET names none.
Status CurrentTarget(Target* target);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_TARGETS_H_

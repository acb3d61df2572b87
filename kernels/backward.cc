#include "kernels/backward.h"

#include "kernels/error.h"

namespace fusednorm {
namespace internal {

Status RunBackward(Target, const Plan&, const Geometry&, const Options&) {
  return Error(StatusCode::kUnsupported, "backward");
}

}  // namespace internal
}  // namespace fusednorm

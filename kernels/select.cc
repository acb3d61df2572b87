#include "kernels/select.h"

#include "kernels/reference.h"

namespace fusednorm {
namespace internal {

RowKernel Select(Target target, const Plan& plan) {
  RowKernel kernel = nullptr;
  if (target != Target::kScalar && plan.dtype[kX] != DType::kF64) {
    switch (plan.op) {
      case Op::kRmsNorm:
        kernel = SelectRmsNorm(target, plan);
        break;
      case Op::kAddRmsNorm:
        kernel = SelectAddRmsNorm(target, plan);
        break;
    }
  }
  return kernel != nullptr ? kernel : SelectReference(plan);
}

}  // namespace internal
}  // namespace fusednorm

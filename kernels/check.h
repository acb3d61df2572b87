// From the caller's tensors and options to a Plan and a Geometry, or a refusal
// that names the argument.
#ifndef FUSEDNORM_KERNELS_CHECK_H_
#define FUSEDNORM_KERNELS_CHECK_H_

#include <initializer_list>

#include "fusednorm/options.h"
#include "fusednorm/status.h"
#include "fusednorm/tensor.h"
#include "kernels/plan.h"

namespace fusednorm {
namespace internal {

// A tensor as a public function passes it on; null: left out. Outputs are
// ConstTensor here too, so that one table describes all.
struct Argument {
  Operand operand;
  const ConstTensor* view;
};

struct Arguments {
  Arguments(std::initializer_list<Argument> given) {
    FillOperands<const ConstTensor*>(nullptr, tensor);
    for (const Argument& argument : given) {
      tensor[argument.operand] = argument.view;
    }
  }

  const ConstTensor* tensor[kOperands];
};

// `per_row`: the values per row of operations that are about nothing else.
Status Check(Op op, const Arguments& arguments, const void* per_row,
             const Options& options, Plan* plan, Geometry* geometry);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_CHECK_H_

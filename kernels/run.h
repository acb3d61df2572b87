// What every public function comes to: check, select, run.
#ifndef FUSEDNORM_KERNELS_RUN_H_
#define FUSEDNORM_KERNELS_RUN_H_

#include <initializer_list>

#include "fusednorm/options.h"
#include "fusednorm/status.h"
#include "fusednorm/tensor.h"
#include "kernels/plan.h"

namespace fusednorm {
namespace internal {

enum class Backend { kCurrentTarget, kReference };

// A tensor as a public function passes it on; null: left out.
struct Argument {
  Operand operand;
  const ConstTensor* view;
};

// `per_row`: the values per row of operations that are about nothing else.
Status Run(Op op, Backend backend, std::initializer_list<Argument> arguments,
           const Options& options, const void* per_row = nullptr);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_RUN_H_

// From the caller's tensors and options to a Plan and a Geometry, or a refusal
// that names the argument.
#ifndef FUSEDNORM_KERNELS_CHECK_H_
#define FUSEDNORM_KERNELS_CHECK_H_

#include <optional>

#include "fusednorm/options.h"
#include "fusednorm/status.h"
#include "fusednorm/tensor.h"
#include "kernels/plan.h"

namespace fusednorm {
namespace internal {

// The caller's views; null where an optional one is left out. Outputs are
// ConstTensor here too, so that one table describes all.
struct Arguments {
  Arguments() { FillOperands<const ConstTensor*>(nullptr, tensor); }

  const ConstTensor* tensor[kOperands];
  // Operations about values per row: rstd, or sums of squares.
  const void* per_row = nullptr;
  std::optional<ConstTensor> per_row_view;  // Made by Check.
};

Status Check(Op op, Arguments* arguments, const Options& options, Plan* plan,
             Geometry* geometry);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_CHECK_H_

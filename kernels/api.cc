// The public C++ functions: each lists its tensors and runs.
#include <cstdint>

#include "fusednorm/fusednorm.h"
#include "fusednorm/reference.h"
#include "kernels/check.h"
#include "kernels/parallel.h"
#include "kernels/reference.h"
#include "kernels/select.h"
#include "kernels/targets.h"

namespace fusednorm {
namespace internal {
namespace {

const ConstTensor* Optional(const ConstTensor& tensor) {
  return tensor.rank == 0 && tensor.data == nullptr ? nullptr : &tensor;
}

// A Tensor as a row of Arguments.
struct Output {
  explicit Output(const Tensor& tensor) : view(tensor) {}
  const ConstTensor view;
};

}  // namespace

Status Run(Op op, Backend backend, const Arguments& arguments,
           const Options& options) noexcept {
  Target target = Target::kScalar;
  if (backend == Backend::kCurrentTarget) {
    const Status status = CurrentTarget(&target);
    if (!status.ok()) return status;
  }
  Plan plan;
  Geometry geometry;
  const Status status = Check(op, arguments, options, &plan, &geometry);
  if (!status.ok() || geometry.rows == 0) return status;
  RunRows(plan, geometry, Select(target, plan), options);
  return {};
}

namespace {

Status RmsNorm(Backend backend, const ConstTensor& x, const ConstTensor& weight,
               const Tensor& out, const Options& options) {
  const Output out_view(out);
  Arguments arguments;
  arguments.tensor[kX] = &x;
  arguments.tensor[kWeight] = Optional(weight);
  arguments.tensor[kOut] = &out_view.view;
  return Run(Op::kRmsNorm, backend, arguments, options);
}

Status AddRmsNorm(Backend backend, const ConstTensor& x,
                  const ConstTensor& residual, const ConstTensor& weight,
                  const Tensor& out, const Tensor& residual_out,
                  const Options& options) {
  const Output out_view(out);
  const Output residual_out_view(residual_out);
  Arguments arguments;
  arguments.tensor[kX] = &x;
  arguments.tensor[kResidual] = &residual;
  arguments.tensor[kWeight] = Optional(weight);
  arguments.tensor[kOut] = &out_view.view;
  arguments.tensor[kResidualOut] = Optional(residual_out_view.view);
  return Run(Op::kAddRmsNorm, backend, arguments, options);
}

}  // namespace
}  // namespace internal

Status RmsNorm(const ConstTensor& x, const ConstTensor& weight,
               const Tensor& out, const Options& options) noexcept {
  return internal::RmsNorm(internal::Backend::kCurrentTarget, x, weight, out,
                           options);
}

Status AddRmsNorm(const ConstTensor& x, const ConstTensor& residual,
                  const ConstTensor& weight, const Tensor& out,
                  const Tensor& residual_out, const Options& options) noexcept {
  return internal::AddRmsNorm(internal::Backend::kCurrentTarget, x, residual,
                              weight, out, residual_out, options);
}

namespace reference {

Status RmsNorm(const ConstTensor& x, const ConstTensor& weight,
               const Tensor& out, const Options& options) noexcept {
  return internal::RmsNorm(internal::Backend::kReference, x, weight, out,
                           options);
}

Status AddRmsNorm(const ConstTensor& x, const ConstTensor& residual,
                  const ConstTensor& weight, const Tensor& out,
                  const Tensor& residual_out, const Options& options) noexcept {
  return internal::AddRmsNorm(internal::Backend::kReference, x, residual,
                              weight, out, residual_out, options);
}

}  // namespace reference
}  // namespace fusednorm

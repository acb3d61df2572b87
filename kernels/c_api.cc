// The C ABI on top of the C++ functions' common path.
#include "fusednorm/c.h"

#include <cstddef>
#include <cstring>

#include "fusednorm/targets.h"
#include "kernels/error.h"
#include "kernels/select.h"

namespace {

using fusednorm::ConstTensor;
using fusednorm::DType;
using fusednorm::Options;
using fusednorm::Status;
using fusednorm::StatusCode;
using fusednorm::internal::Arguments;
using fusednorm::internal::Backend;
using fusednorm::internal::Error;
using fusednorm::internal::Op;
using fusednorm::internal::Operand;

fusednorm_status Code(const Status& status) {
  return static_cast<fusednorm_status>(status.code());
}

// The C struct as a view, or null.
class View {
 public:
  explicit View(const fusednorm_tensor* tensor) : given_(tensor != nullptr) {
    if (!given_) return;
    view_.data = tensor->data;
    view_.dtype = static_cast<DType>(tensor->dtype);
    view_.rank = tensor->rank;
    for (int axis = 0; axis < ConstTensor::kMaxRank; ++axis) {
      view_.shape[axis] = tensor->shape[axis];
      view_.strides[axis] = tensor->strides[axis];
    }
  }
  const ConstTensor* get() const { return given_ ? &view_ : nullptr; }

 private:
  bool given_;
  ConstTensor view_;
};

// What the caller's struct lacks, because it was compiled against an older
// header, keeps its default.
Status ReadOptions(const fusednorm_options* given, Options* options) {
  fusednorm_options all;
  fusednorm_options_init(&all);
  if (given != nullptr) {
    const size_t size = given->struct_size;
    if (size < offsetof(fusednorm_options, eps) || size > sizeof(all)) {
      return Error(StatusCode::kInvalidArgument,
                   "options.struct_size is %zu; fusednorm_options_init sets it",
                   size);
    }
    std::memcpy(&all, given, size);
  }
  options->eps = all.eps;
  options->weight_offset = all.weight_offset;
  options->residual_scale = all.residual_scale;
  options->rounding = static_cast<fusednorm::Rounding>(all.rounding);
  options->sum = static_cast<fusednorm::Sum>(all.sum);
  options->nontemporal = static_cast<fusednorm::Nontemporal>(all.nontemporal);
  options->accumulate = all.accumulate != 0;
  options->num_threads = all.num_threads;
  options->rstd = all.rstd;
  options->scale = all.scale;
  options->parallel_for = all.parallel_for;
  options->parallel_context = all.parallel_context;
  return {};
}

fusednorm_status Run(Op op, Backend backend, const Arguments& arguments,
                     const fusednorm_options* options) {
  Options read;
  const Status status = ReadOptions(options, &read);
  if (!status.ok()) return Code(status);
  return Code(fusednorm::internal::Run(op, backend, arguments, read));
}

fusednorm_status RmsNorm(Backend backend, const fusednorm_tensor* x,
                         const fusednorm_tensor* weight,
                         const fusednorm_tensor* out,
                         const fusednorm_options* options) {
  const View views[] = {View(x), View(weight), View(out)};
  Arguments arguments;
  arguments.tensor[Operand::kX] = views[0].get();
  arguments.tensor[Operand::kWeight] = views[1].get();
  arguments.tensor[Operand::kOut] = views[2].get();
  return Run(Op::kRmsNorm, backend, arguments, options);
}

fusednorm_status AddRmsNorm(Backend backend, const fusednorm_tensor* x,
                            const fusednorm_tensor* residual,
                            const fusednorm_tensor* weight,
                            const fusednorm_tensor* out,
                            const fusednorm_tensor* residual_out,
                            const fusednorm_options* options) {
  const View views[] = {View(x), View(residual), View(weight), View(out),
                        View(residual_out)};
  Arguments arguments;
  arguments.tensor[Operand::kX] = views[0].get();
  arguments.tensor[Operand::kResidual] = views[1].get();
  arguments.tensor[Operand::kWeight] = views[2].get();
  arguments.tensor[Operand::kOut] = views[3].get();
  arguments.tensor[Operand::kResidualOut] = views[4].get();
  return Run(Op::kAddRmsNorm, backend, arguments, options);
}

fusednorm_status RmsNormF32(Backend backend, const float* x,
                            const float* weight, float* out, int64_t rows,
                            int64_t width, float eps) {
  const ConstTensor x_view(x, DType::kF32, {rows, width});
  const ConstTensor weight_view(weight, DType::kF32, {width});
  const ConstTensor out_view(out, DType::kF32, {rows, width});
  Arguments arguments;
  arguments.tensor[Operand::kX] = &x_view;
  if (weight != nullptr) arguments.tensor[Operand::kWeight] = &weight_view;
  arguments.tensor[Operand::kOut] = &out_view;
  Options options;
  options.eps = eps;
  return Code(
      fusednorm::internal::Run(Op::kRmsNorm, backend, arguments, options));
}

}  // namespace

extern "C" {

void fusednorm_options_init(fusednorm_options* options) {
  if (options == nullptr) return;
  const Options defaults;
  *options = {};
  options->struct_size = sizeof(*options);
  options->eps = defaults.eps;
  options->weight_offset = defaults.weight_offset;
  options->residual_scale = defaults.residual_scale;
}

fusednorm_status fusednorm_rms_norm(const fusednorm_tensor* x,
                                    const fusednorm_tensor* weight,
                                    const fusednorm_tensor* out,
                                    const fusednorm_options* options) {
  return RmsNorm(Backend::kCurrentTarget, x, weight, out, options);
}

fusednorm_status fusednorm_add_rms_norm(const fusednorm_tensor* x,
                                        const fusednorm_tensor* residual,
                                        const fusednorm_tensor* weight,
                                        const fusednorm_tensor* out,
                                        const fusednorm_tensor* residual_out,
                                        const fusednorm_options* options) {
  return AddRmsNorm(Backend::kCurrentTarget, x, residual, weight, out,
                    residual_out, options);
}

fusednorm_status fusednorm_rms_norm_f32(const float* x, const float* weight,
                                        float* out, int64_t rows, int64_t width,
                                        float eps) {
  return RmsNormF32(Backend::kCurrentTarget, x, weight, out, rows, width, eps);
}

fusednorm_status fusednorm_reference_rms_norm(
    const fusednorm_tensor* x, const fusednorm_tensor* weight,
    const fusednorm_tensor* out, const fusednorm_options* options) {
  return RmsNorm(Backend::kReference, x, weight, out, options);
}

fusednorm_status fusednorm_reference_add_rms_norm(
    const fusednorm_tensor* x, const fusednorm_tensor* residual,
    const fusednorm_tensor* weight, const fusednorm_tensor* out,
    const fusednorm_tensor* residual_out, const fusednorm_options* options) {
  return AddRmsNorm(Backend::kReference, x, residual, weight, out, residual_out,
                    options);
}

fusednorm_status fusednorm_reference_rms_norm_f32(const float* x,
                                                  const float* weight,
                                                  float* out, int64_t rows,
                                                  int64_t width, float eps) {
  return RmsNormF32(Backend::kReference, x, weight, out, rows, width, eps);
}

const char* fusednorm_last_error(void) {
  return fusednorm::internal::LastError();
}

const char* fusednorm_version(void) { return FUSEDNORM_VERSION; }

const char* fusednorm_target(void) { return fusednorm::TargetName(); }

const char* fusednorm_targets(void) { return fusednorm::TargetNames(); }

fusednorm_status fusednorm_set_target(const char* name) {
  return Code(fusednorm::SetTarget(name));
}

}  // extern "C"

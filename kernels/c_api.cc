// The C ABI on top of the C++ functions' common path.
#include <cstddef>
#include <cstring>

#include "fusednorm/c.h"
#include "fusednorm/fusednorm.h"
#include "kernels/error.h"
#include "kernels/run.h"

namespace {

using fusednorm::ConstTensor;
using fusednorm::DType;
using fusednorm::Options;
using fusednorm::Status;
using fusednorm::StatusCode;
using fusednorm::internal::Argument;
using fusednorm::internal::Arguments;
using fusednorm::internal::Backend;
using fusednorm::internal::Error;
using fusednorm::internal::Op;
using fusednorm::internal::Operand;

fusednorm_status Code(const Status& status) {
  return static_cast<fusednorm_status>(status.code());
}

// The caller's tensor for the C++ functions; null: left out.
struct View {
  View(const fusednorm_tensor* tensor) : given(tensor != nullptr) {
    if (!given) return;
    view.data = tensor->data;
    view.dtype = static_cast<DType>(tensor->dtype);
    view.rank = tensor->rank;
    for (int axis = 0; axis < ConstTensor::kMaxRank; ++axis) {
      view.shape[axis] = tensor->shape[axis];
      view.strides[axis] = tensor->strides[axis];
    }
  }
  bool given;
  ConstTensor view;
};

// Of a View that lives as long as the call of Run.
Argument Pass(Operand operand, const View& view) {
  return {operand, view.given ? &view.view : nullptr};
}

// What the caller's struct lacks, because it was compiled against an older
// header, keeps its default.
Status ReadOptions(const fusednorm_options* given, Options* options) {
  fusednorm_options completed;
  const fusednorm_options* all = given;
  if (given == nullptr || given->struct_size != sizeof(completed)) {
    fusednorm_options_init(&completed);
    all = &completed;
    if (given != nullptr) {
      size_t size = given->struct_size;
      if (size < offsetof(fusednorm_options, eps) || size > sizeof(completed)) {
        return Error(
            StatusCode::kInvalidArgument,
            "options.struct_size is %zu; fusednorm_options_init sets it", size);
      }
      // Whole fields: of 4 bytes up to the first pointer, then of 8.
      size -= size % (size < offsetof(fusednorm_options, rstd) ? 4 : 8);
      std::memcpy(&completed, given, size);
    }
  }
  options->eps = all->eps;
  options->weight_offset = all->weight_offset;
  options->residual_scale = all->residual_scale;
  options->rounding = static_cast<fusednorm::Rounding>(all->rounding);
  options->sum = static_cast<fusednorm::Sum>(all->sum);
  options->nontemporal = static_cast<fusednorm::Nontemporal>(all->nontemporal);
  options->accumulate = all->accumulate != 0;
  options->num_threads = all->num_threads;
  options->rstd = all->rstd;
  options->scale = all->scale;
  options->parallel_for = all->parallel_for;
  options->parallel_context = all->parallel_context;
  return {};
}

fusednorm_status Run(Op op, Backend backend, const Arguments& arguments,
                     const fusednorm_options* options,
                     const void* per_row = nullptr) {
  Options read;
  const Status status = ReadOptions(options, &read);
  if (!status.ok()) return Code(status);
  return Code(fusednorm::internal::Run(op, backend, arguments, read, per_row));
}

fusednorm_status RmsNormF32(Backend backend, const float* x,
                            const float* weight, float* out, int64_t rows,
                            int64_t width, float eps) {
  const ConstTensor rows_view(x, DType::kF32, {rows, width});
  ConstTensor out_view = rows_view;
  out_view.data = out;
  const ConstTensor weight_view(weight, DType::kF32, {width});
  Options options;
  options.eps = eps;
  return Code(fusednorm::internal::Run(
      Op::kRmsNorm, backend,
      {{Operand::kX, &rows_view},
       {Operand::kWeight, weight != nullptr ? &weight_view : nullptr},
       {Operand::kOut, &out_view}},
      options));
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

// Defines an operation and its reference: the same call but for the backend.
#define FUSEDNORM_DEFINE(name, op, parameters, ...)           \
  fusednorm_status fusednorm_##name parameters {              \
    return Run(Op::op, Backend::kCurrentTarget, __VA_ARGS__); \
  }                                                           \
  fusednorm_status fusednorm_reference_##name parameters {    \
    return Run(Op::op, Backend::kReference, __VA_ARGS__);     \
  }

FUSEDNORM_DEFINE(rms_norm, kRmsNorm,
                 (const fusednorm_tensor* x, const fusednorm_tensor* weight,
                  const fusednorm_tensor* out,
                  const fusednorm_options* options),
                 {Pass(Operand::kX, x), Pass(Operand::kWeight, weight),
                  Pass(Operand::kOut, out)},
                 options)

FUSEDNORM_DEFINE(add_rms_norm, kAddRmsNorm,
                 (const fusednorm_tensor* x, const fusednorm_tensor* residual,
                  const fusednorm_tensor* weight, const fusednorm_tensor* out,
                  const fusednorm_tensor* residual_out,
                  const fusednorm_options* options),
                 {Pass(Operand::kX, x), Pass(Operand::kResidual, residual),
                  Pass(Operand::kWeight, weight), Pass(Operand::kOut, out),
                  Pass(Operand::kResidualOut, residual_out)},
                 options)

FUSEDNORM_DEFINE(rms_norm_add, kRmsNormAdd,
                 (const fusednorm_tensor* x, const fusednorm_tensor* residual,
                  const fusednorm_tensor* weight, const fusednorm_tensor* out,
                  const fusednorm_options* options),
                 {Pass(Operand::kX, x), Pass(Operand::kResidual, residual),
                  Pass(Operand::kWeight, weight), Pass(Operand::kOut, out)},
                 options)

FUSEDNORM_DEFINE(
    rms_norm_add_rms_norm, kRmsNormAddRmsNorm,
    (const fusednorm_tensor* x, const fusednorm_tensor* residual,
     const fusednorm_tensor* weight_post, const fusednorm_tensor* weight_pre,
     const fusednorm_tensor* out, const fusednorm_tensor* residual_out,
     const fusednorm_options* options),
    {Pass(Operand::kX, x), Pass(Operand::kResidual, residual),
     Pass(Operand::kWeight, weight_post), Pass(Operand::kWeightPre, weight_pre),
     Pass(Operand::kOut, out), Pass(Operand::kResidualOut, residual_out)},
    options)

FUSEDNORM_DEFINE(row_rstd, kRowRstd,
                 (const fusednorm_tensor* x, float* rstd,
                  const fusednorm_options* options),
                 {Pass(Operand::kX, x)}, options, rstd)

FUSEDNORM_DEFINE(row_sum_squares, kRowSumSquares,
                 (const fusednorm_tensor* x, double* sum_squares,
                  const fusednorm_options* options),
                 {Pass(Operand::kX, x)}, options, sum_squares)

FUSEDNORM_DEFINE(rms_norm_with_rstd, kRmsNormWithRstd,
                 (const fusednorm_tensor* x, const float* rstd,
                  const fusednorm_tensor* weight, const fusednorm_tensor* out,
                  const fusednorm_options* options),
                 {Pass(Operand::kX, x), Pass(Operand::kWeight, weight),
                  Pass(Operand::kOut, out)},
                 options, rstd)

FUSEDNORM_DEFINE(rms_norm_backward, kRmsNormBackward,
                 (const fusednorm_tensor* x, const fusednorm_tensor* weight,
                  const fusednorm_tensor* dy, const fusednorm_tensor* dx,
                  const fusednorm_tensor* dweight,
                  const fusednorm_options* options),
                 {Pass(Operand::kX, x), Pass(Operand::kWeight, weight),
                  Pass(Operand::kDy, dy), Pass(Operand::kOut, dx),
                  Pass(Operand::kDWeight, dweight)},
                 options)

FUSEDNORM_DEFINE(add_rms_norm_backward, kAddRmsNormBackward,
                 (const fusednorm_tensor* h, const fusednorm_tensor* weight,
                  const fusednorm_tensor* dy,
                  const fusednorm_tensor* d_residual_out,
                  const fusednorm_tensor* dh, const fusednorm_tensor* dweight,
                  const fusednorm_options* options),
                 {Pass(Operand::kX, h), Pass(Operand::kWeight, weight),
                  Pass(Operand::kDy, dy),
                  Pass(Operand::kResidual, d_residual_out),
                  Pass(Operand::kOut, dh), Pass(Operand::kDWeight, dweight)},
                 options)

#undef FUSEDNORM_DEFINE

fusednorm_status fusednorm_rms_norm_f32(const float* x, const float* weight,
                                        float* out, int64_t rows, int64_t width,
                                        float eps) {
  return RmsNormF32(Backend::kCurrentTarget, x, weight, out, rows, width, eps);
}

fusednorm_status fusednorm_reference_rms_norm_f32(const float* x,
                                                  const float* weight,
                                                  float* out, int64_t rows,
                                                  int64_t width, float eps) {
  return RmsNormF32(Backend::kReference, x, weight, out, rows, width, eps);
}

float fusednorm_rstd_from_sum_squares(double sum_squares, int64_t width,
                                      float eps) {
  return fusednorm::RstdFromSumSquares(sum_squares, width, eps);
}

float fusednorm_reference_rstd_from_sum_squares(double sum_squares,
                                                int64_t width, float eps) {
  return fusednorm::RstdFromSumSquares(sum_squares, width, eps);
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

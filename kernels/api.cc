// The public C++ functions and their twins in `reference`.
#include "fusednorm/fusednorm.h"
#include "fusednorm/reference.h"
#include "kernels/fp_environment.h"
#include "kernels/reduction.h"
#include "kernels/run.h"
#include "kernels/scalar.h"

namespace fusednorm {

using internal::Argument;
using internal::Backend;
using internal::Op;

namespace {

// The arguments point to the caller's views, or to temporaries that live as
// long as the call of Run: to copy a view that was just written would wait for
// its parts.
Argument Required(internal::Operand operand, const ConstTensor& tensor) {
  return {operand, &tensor};
}

// A default-constructed view is one left out.
Argument Optional(internal::Operand operand, const ConstTensor& tensor) {
  return {operand,
          tensor.rank != 0 || tensor.data != nullptr ? &tensor : nullptr};
}

}  // namespace

// Defines an operation and its reference: the same call but for the backend.
#define FUSEDNORM_DEFINE(op, parameters, ...)                    \
  Status op parameters noexcept {                                \
    return Run(Op::k##op, Backend::kCurrentTarget, __VA_ARGS__); \
  }                                                              \
  namespace reference {                                          \
  Status op parameters noexcept {                                \
    return Run(Op::k##op, Backend::kReference, __VA_ARGS__);     \
  }                                                              \
  }

FUSEDNORM_DEFINE(RmsNorm,
                 (const ConstTensor& x, const ConstTensor& weight,
                  const Tensor& out, const Options& options),
                 {Required(internal::kX, x),
                  Optional(internal::kWeight, weight),
                  Required(internal::kOut, out)},
                 options)

FUSEDNORM_DEFINE(AddRmsNorm,
                 (const ConstTensor& x, const ConstTensor& residual,
                  const ConstTensor& weight, const Tensor& out,
                  const Tensor& residual_out, const Options& options),
                 {Required(internal::kX, x),
                  Required(internal::kResidual, residual),
                  Optional(internal::kWeight, weight),
                  Required(internal::kOut, out),
                  Optional(internal::kResidualOut, residual_out)},
                 options)

FUSEDNORM_DEFINE(
    RmsNormAdd,
    (const ConstTensor& x, const ConstTensor& residual,
     const ConstTensor& weight, const Tensor& out, const Options& options),
    {Required(internal::kX, x), Required(internal::kResidual, residual),
     Optional(internal::kWeight, weight), Required(internal::kOut, out)},
    options)

FUSEDNORM_DEFINE(
    RmsNormAddRmsNorm,
    (const ConstTensor& x, const ConstTensor& residual,
     const ConstTensor& weight_post, const ConstTensor& weight_pre,
     const Tensor& out, const Tensor& residual_out, const Options& options),
    {Required(internal::kX, x), Required(internal::kResidual, residual),
     Optional(internal::kWeight, weight_post),
     Optional(internal::kWeightPre, weight_pre), Required(internal::kOut, out),
     Required(internal::kResidualOut, residual_out)},
    options)

FUSEDNORM_DEFINE(RowRstd,
                 (const ConstTensor& x, float* rstd, const Options& options),
                 {Required(internal::kX, x)}, options, rstd)

FUSEDNORM_DEFINE(RowSumSquares,
                 (const ConstTensor& x, double* sum_squares,
                  const Options& options),
                 {Required(internal::kX, x)}, options, sum_squares)

FUSEDNORM_DEFINE(RmsNormWithRstd,
                 (const ConstTensor& x, const float* rstd,
                  const ConstTensor& weight, const Tensor& out,
                  const Options& options),
                 {Required(internal::kX, x),
                  Optional(internal::kWeight, weight),
                  Required(internal::kOut, out)},
                 options, rstd)

FUSEDNORM_DEFINE(RmsNormBackward,
                 (const ConstTensor& x, const ConstTensor& weight,
                  const ConstTensor& dy, const Tensor& dx,
                  const Tensor& dweight, const Options& options),
                 {Required(internal::kX, x),
                  Optional(internal::kWeight, weight),
                  Required(internal::kDy, dy), Optional(internal::kOut, dx),
                  Optional(internal::kDWeight, dweight)},
                 options)

FUSEDNORM_DEFINE(
    AddRmsNormBackward,
    (const ConstTensor& h, const ConstTensor& weight, const ConstTensor& dy,
     const ConstTensor& d_residual_out, const Tensor& dh, const Tensor& dweight,
     const Options& options),
    {Required(internal::kX, h), Optional(internal::kWeight, weight),
     Required(internal::kDy, dy), Optional(internal::kResidual, d_residual_out),
     Optional(internal::kOut, dh), Optional(internal::kDWeight, dweight)},
    options)

#undef FUSEDNORM_DEFINE

float RstdFromSumSquares(double sum_squares, int64_t width,
                         float eps) noexcept {
  const internal::ScopedFpEnvironment environment;
  const internal::Statistic statistic =
      internal::StatisticFromSum(sum_squares, static_cast<float>(width), eps);
  if (statistic.ordinary) return statistic.rstd;
  return static_cast<float>(internal::WideRstd(sum_squares, width, eps));
}

}  // namespace fusednorm

// RmsNorm: the vector row kernels.
#include "kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/reference.h"
#include "kernels/select.h"
#if FUSEDNORM_HAVE_TARGET
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

// The rows of one call; Middle rounds the normalised value before the weight.
template <class X, class Middle, class Out, class Weight>
HWY_INLINE void RmsNormRows(const Plan& plan, const Rows& rows, X x,
                            Middle middle, Out out, const Weight& weight,
                            const float* gains) {
  const float width = static_cast<float>(plan.width);
  for (int64_t index = 0; index < rows.count; ++index) {
    const RowData row(rows, index, gains);
    const double sum = SumSquares<X::kEvenOdd>(
        plan, row, /*stored=*/kRstd,
        [&](const RowData& r, size_t i)
            FUSEDNORM_LAMBDA { return x.Load(r.data[kX], i); });
    const Statistic statistic = StatisticFromSum(sum, width, plan.eps);
    if (HWY_UNLIKELY(!statistic.ordinary)) {
      ExceptionalRow(plan, rows, index);
      continue;
    }
    if (plan.has[kRstd]) {
      *reinterpret_cast<float*>(row.data[kRstd]) = statistic.rstd;
    }
    const VF rstd = hn::Set(DF(), statistic.rstd);
    ForEachPair(plan, row, [&](const RowData& r, size_t i) FUSEDNORM_LAMBDA {
      const Pair v = middle.Round(Mul(x.Load(r.data[kX], i), rstd));
      out.Store(weight.Apply(v, r, i), r.data[kOut], i);
    });
  }
}

// x and out of one dtype. Middle: F32, which rounds nothing, for kOnce.
template <class X, class Middle>
struct RmsNormOperation {
  using Codec = X;
  template <class Weight>
  static HWY_INLINE void Run(const Plan& plan, const Rows& rows,
                             const Weight& weight, const float* gains) {
    RmsNormRows(plan, rows, X(), Middle(), X(), weight, gains);
  }
};

// Any dtypes.
void RmsNormMixed(const Plan& plan, const Rows& rows) {
  const AnyDType x(plan.dtype[kX]);
  const AnyDType out(plan.dtype[kOut]);
  const AnyDType middle(
      plan.rounding == Rounding::kBeforeWeight ? plan.dtype[kX] : DType::kF32);
  if (plan.has[kWeight]) {
    const Gain<AnyDType> weight(AnyDType(plan.dtype[kWeight]),
                                plan.weight_offset);
    RmsNormRows(plan, rows, x, middle, out, weight, nullptr);
  } else {
    RmsNormRows(plan, rows, x, middle, out, NoWeight(), nullptr);
  }
}

template <class X>
RowKernel SelectByRounding(const Plan& plan) {
  if (plan.rounding == Rounding::kBeforeWeight) {
    return SelectByWeight<RmsNormOperation<X, X>>(plan);
  }
  return SelectByWeight<RmsNormOperation<X, F32>>(plan);
}

RowKernel SelectUniform(const Plan& plan) {
  if (plan.dtype[kOut] != plan.dtype[kX]) return nullptr;
  switch (plan.dtype[kX]) {
    case DType::kF32:
      return SelectByWeight<RmsNormOperation<F32, F32>>(plan);
    case DType::kBF16:
      return SelectByRounding<BF16>(plan);
    case DType::kF16:
      return SelectByRounding<F16>(plan);
    default:
      return nullptr;
  }
}

RowKernel SelectRmsNormKernel(const Plan& plan) {
  const RowKernel uniform = SelectUniform(plan);
  return uniform != nullptr ? uniform : &RmsNormMixed;
}

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_HAVE_TARGET

#if HWY_ONCE
namespace fusednorm {
namespace internal {

RowKernel SelectRmsNorm(Target target, const Plan& plan) {
  static constexpr Selector kSelectors[kTargets] =
      FUSEDNORM_TARGET_TABLE(SelectRmsNormKernel);
  return RunSelector(kSelectors, target, plan);
}

}  // namespace internal
}  // namespace fusednorm
#endif  // HWY_ONCE

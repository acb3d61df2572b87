// RmsNormWithRstd: the vector row kernel, the output pass of RmsNorm alone.
#include "kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm_with_rstd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/select.h"
#if FUSEDNORM_HAVE_TARGET
#include "kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

template <class T>
void RunRmsNormWithRstd(const Plan& plan, const Rows& rows) {
  const T x(plan.dtype[kX]);
  const AnyDType middle(MiddleDType(plan, kX));
  const T out(plan.dtype[kOut]);
  const Gain<AnyDType> weight(AnyDType(plan.dtype[kWeight]),
                              plan.weight_offset);
  const bool has_weight = plan.has[kWeight];
  for (int64_t index = 0; index < rows.count; ++index) {
    const VF rstd =
        hn::Set(DF(), *reinterpret_cast<const float*>(rows.Row(kRstd, index)));
    ForEachPair(plan, rows, index,
                [&](const RowData& row, size_t i) FUSEDNORM_LAMBDA {
                  Pair y = middle.Round(Mul(x.Load(row.data[kX], i), rstd));
                  if (has_weight) y = weight.Apply(y, weight.Load(row, i));
                  out.Store(y, row.data[kOut], i);
                });
  }
}

RowKernel SelectRmsNormWithRstdKernel(const Plan&) {
  return &RunRmsNormWithRstd<AnyDType>;
}

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_HAVE_TARGET

#if HWY_ONCE
namespace fusednorm {
namespace internal {

RowKernel SelectRmsNormWithRstd(Target target, const Plan& plan) {
  static constexpr Selector kSelectors[kTargets] =
      FUSEDNORM_TARGET_TABLE(SelectRmsNormWithRstdKernel);
  return RunSelector(kSelectors, target, plan);
}

}  // namespace internal
}  // namespace fusednorm
#endif  // HWY_ONCE

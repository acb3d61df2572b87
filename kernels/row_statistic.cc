// RowRstd and RowSumSquares: the statistic pass alone.
#include "kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_statistic.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/select.h"
#if FUSEDNORM_HAVE_TARGET
#include "kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

template <class X>
void RunRowStatistic(const Plan& plan, const Rows& rows) {
  const SquareInput<X> input(plan);
  const float width = static_cast<float>(plan.width);
  const bool sums = plan.op == Op::kRowSumSquares;
  for (int64_t index = 0; index < rows.count; ++index) {
    const double sum = SumRow(plan, rows, index, input);
    const Statistic statistic =
        StatisticFromSum(sum, width, sums ? 0.0f : plan.eps);
    if (HWY_UNLIKELY(!statistic.ordinary)) {
      ExceptionalRow(plan, rows, index, /*sum_is_stored=*/false);
    } else if (sums) {
      *reinterpret_cast<double*>(rows.Row(kSums, index)) = sum;
    } else {
      *reinterpret_cast<float*>(rows.Row(kRstd, index)) = statistic.rstd;
    }
  }
}

RowKernel SelectRowStatisticKernel(const Plan& plan) {
  switch (plan.dtype[kX]) {
    case DType::kBF16:
      return &RunRowStatistic<BF16>;
    case DType::kF16:
      return &RunRowStatistic<F16>;
    default:
      return &RunRowStatistic<F32>;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_HAVE_TARGET

#if HWY_ONCE
namespace fusednorm {
namespace internal {

RowKernel SelectRowStatistic(Target target, const Plan& plan) {
  static constexpr Selector kSelectors[kTargets] =
      FUSEDNORM_TARGET_TABLE(SelectRowStatisticKernel);
  return RunSelector(kSelectors, target, plan);
}

}  // namespace internal
}  // namespace fusednorm
#endif  // HWY_ONCE

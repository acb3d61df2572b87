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
  const bool wants_sum = plan.op == Op::kRowSumSquares;
  const float eps = wants_sum ? 0.0f : plan.eps;
  const auto store = [&](int64_t index, double sum, Statistic statistic) {
    if (HWY_UNLIKELY(!statistic.ordinary)) {
      ExceptionalRow(plan, rows, index, /*sum_is_stored=*/false);
    } else if (wants_sum) {
      *reinterpret_cast<double*>(rows.Row(kSums, index)) = sum;
    } else {
      *reinterpret_cast<float*>(rows.Row(kRstd, index)) = statistic.rstd;
    }
  };
  int64_t index = 0;
  for (; plan.width <= kChunk && index + kGroup <= rows.count;
       index += kGroup) {
    alignas(16) float sum[kGroup];
    alignas(16) float rstd[kGroup];
    const V4 sums = SumRows<false>(plan, rows, index, input, 0);
    hn::Store(sums, D4(), sum);
    const bool ordinary = GroupStatistic(sums, width, eps, rstd);
    for (int g = 0; g < kGroup; ++g) {
      store(index + g, static_cast<double>(sum[g]), {rstd[g], ordinary});
    }
  }
  for (; index < rows.count; ++index) {
    const double sum = SumRow(plan, rows, index, input);
    store(index, sum, StatisticFromSum(sum, width, eps));
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

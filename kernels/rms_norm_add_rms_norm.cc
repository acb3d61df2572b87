// RmsNormAddRmsNorm: the vector row kernels.
#include "kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm_add_rms_norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/select.h"
#if FUSEDNORM_HAVE_TARGET
#include "kernels/add_rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

// h = norm(x; post) + residual in f32, for the row that was prepared. Branch
// rounds the post norm's output as an operation of its own would; F32 rounds
// nothing.
template <class T, class Middle, class Branch, class Weight>
class BranchSum {
 public:
  static constexpr bool kPrepares = true;  // By a statistic of x.

  explicit BranchSum(const Plan& plan)
      : plan_(plan),
        input_(plan),
        stream_(plan.dtype[kResidual]),
        middle_(MiddleDType(plan, kX)),
        branch_(plan.sum == Sum::kRounded ? plan.dtype[kX] : DType::kF32),
        weight_(plan) {}

  HWY_INLINE bool Prepare(const Rows& rows, int64_t index) {
    const double sum = SumRow(plan_, rows, index, input_);
    const Statistic statistic =
        StatisticFromSum(sum, static_cast<float>(plan_.width), plan_.eps);
    rstd_ = hn::Set(DF(), statistic.rstd);
    return statistic.ordinary;
  }
  HWY_INLINE Pair Load(const RowData& row, size_t i) const {
    const Pair v = middle_.Round(Mul(input_.Load(row, i), rstd_));
    const Pair y = branch_.Round(weight_.Apply(v, weight_.Load(row, i)));
    return Add(y, stream_.Load(row.data[kResidual], i));
  }

 private:
  const Plan& plan_;
  SquareInput<T> input_;
  T stream_;
  Middle middle_;
  Branch branch_;
  Weight weight_;
  VF rstd_;
};

template <Sum kSum, class T, class Middle, class Codec>
void Run(const Plan& plan, const Rows& rows) {
  using Branch = typename std::conditional<kSum == Sum::kRounded, T, F32>::type;
  using Source = BranchSum<T, Middle, Branch, OptionalGain<Codec, kWeight>>;
  using Weight = OptionalGain<Codec, kWeightPre>;
  using Kernel = SumAndNormKernel<kSum, T, Middle, Weight, Source>;
  NormaliseRows(plan, rows, Kernel(plan, Weight(plan)));
}

// Uniform dtypes as models have them, with kRounded.
template <class T, class Middle>
RowKernel SelectByWeights(const Plan& plan) {
  const auto both_are = [&](DType dtype) {
    return (!plan.has[kWeight] || plan.dtype[kWeight] == dtype) &&
           (!plan.has[kWeightPre] || plan.dtype[kWeightPre] == dtype);
  };
  if (both_are(plan.dtype[kX])) return &Run<Sum::kRounded, T, Middle, T>;
  if (both_are(DType::kF32)) {
    return &Run<Sum::kRounded, T, Middle, typename T::F32Beside>;
  }
  return nullptr;
}

template <class T>
RowKernel SelectByRounding(const Plan& plan) {
  if (plan.rounding == Rounding::kBeforeWeight) {
    return SelectByWeights<T, T>(plan);
  }
  return SelectByWeights<T, F32>(plan);
}

RowKernel SelectUniform(const Plan& plan) {
  if (plan.dtype[kResidual] != plan.dtype[kX] ||
      plan.dtype[kOut] != plan.dtype[kX]) {
    return nullptr;
  }
  if (plan.sum != Sum::kRounded) return nullptr;
  if (plan.dtype[kX] == DType::kF32) return SelectByWeights<F32, F32>(plan);
  return plan.dtype[kX] == DType::kBF16 ? SelectByRounding<BF16>(plan)
                                        : SelectByRounding<F16>(plan);
}

RowKernel SelectRmsNormAddRmsNormKernel(const Plan& plan) {
  const RowKernel uniform = SelectUniform(plan);
  if (uniform != nullptr) return uniform;
  switch (plan.sum) {
    case Sum::kRounded:
      return &Run<Sum::kRounded, AnyDType, AnyDType, AnyDType>;
    case Sum::kExact:
      return &Run<Sum::kExact, AnyDType, AnyDType, AnyDType>;
    case Sum::kExactStatistic:
      return &Run<Sum::kExactStatistic, AnyDType, AnyDType, AnyDType>;
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_HAVE_TARGET

#if HWY_ONCE
namespace fusednorm {
namespace internal {

RowKernel SelectRmsNormAddRmsNorm(Target target, const Plan& plan) {
  static constexpr Selector kSelectors[kTargets] =
      FUSEDNORM_TARGET_TABLE(SelectRmsNormAddRmsNormKernel);
  return RunSelector(kSelectors, target, plan);
}

}  // namespace internal
}  // namespace fusednorm
#endif  // HWY_ONCE

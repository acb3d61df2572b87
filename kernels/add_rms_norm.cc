// AddRmsNorm: the vector row kernels.
#include "kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/add_rms_norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/select.h"
#if FUSEDNORM_HAVE_TARGET
#include "kernels/add_rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

// h = x + residual_scale * residual in f32. A scale of 1 is exact in the fused
// multiply-add, so one operation serves both.
template <class T>
class ResidualSum {
 public:
  static constexpr bool kPrepares = false;

  explicit ResidualSum(const Plan& plan)
      : x_(plan.dtype[kX]),
        stream_(plan.dtype[kResidual]),
        scale_(hn::Set(DF(), plan.residual_scale)) {}

  HWY_INLINE bool Prepare(const Rows&, int64_t) const { return true; }
  HWY_INLINE Pair Load(const RowData& row, size_t i) const {
    return MulAdd(scale_, stream_.Load(row.data[kResidual], i),
                  x_.Load(row.data[kX], i));
  }

 private:
  T x_;
  T stream_;
  VF scale_;
};

template <Sum kSum>
struct AddRmsNormFamily {
  static constexpr bool kF32 = kSum == Sum::kRounded;  // See FillPlan.
  // No model has both.
  static constexpr bool kBeforeWeight = kSum != Sum::kExactStatistic;

  template <class T, class Middle>
  struct Operation {
    using Codec = T;
    template <class Weight>
    using Kernel = SumAndNormKernel<kSum, T, Middle, Weight, ResidualSum<T>>;
  };
};

RowKernel SelectAddRmsNormKernel(const Plan& plan) {
  if (plan.sum == Sum::kRounded) {
    return SelectNorm<AddRmsNormFamily<Sum::kRounded>>(plan);
  }
  if (plan.sum == Sum::kExact) {
    return SelectNorm<AddRmsNormFamily<Sum::kExact>>(plan);
  }
  return SelectNorm<AddRmsNormFamily<Sum::kExactStatistic>>(plan);
}

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_HAVE_TARGET

#if HWY_ONCE
namespace fusednorm {
namespace internal {

RowKernel SelectAddRmsNorm(Target target, const Plan& plan) {
  static constexpr Selector kSelectors[kTargets] =
      FUSEDNORM_TARGET_TABLE(SelectAddRmsNormKernel);
  return RunSelector(kSelectors, target, plan);
}

}  // namespace internal
}  // namespace fusednorm
#endif  // HWY_ONCE

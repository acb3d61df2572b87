// RmsNormAdd: the vector row kernels.
#include "kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm_add.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/select.h"
#if FUSEDNORM_HAVE_TARGET
#include "kernels/rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

// y + residual_scale * residual. With kRounded y is rounded first, as an
// operation of its own would; a codec whose dtype is not known until now does
// the other modes too.
template <class T>
class ResidualAdded {
 public:
  static constexpr int kTogether = kTogetherOfSeveral;
  static constexpr Fused kFused = kFusedByRow;
  static constexpr int64_t kAlone = kNeverAlone;

  explicit ResidualAdded(const Plan& plan)
      : branch_(plan.sum == Sum::kRounded ? plan.dtype[kX] : DType::kF32),
        stream_(plan.dtype[kResidual]),
        scale_(hn::Set(DF(), plan.residual_scale)) {}

  HWY_INLINE Pair operator()(Pair y, const RowData& row, size_t i) const {
    return MulAdd(scale_, stream_.Load(row.data[kResidual], i),
                  branch_.Round(y));
  }
  template <bool kFar>
  HWY_INLINE void Fetch(const RowData& ahead, size_t i) const {
    FetchElements<T::kSize, 2 * kLanes, kFar>(ahead.data[kResidual], i);
  }

 private:
  T branch_;
  T stream_;
  VF scale_;
};

RowKernel SelectRmsNormAddKernel(const Plan& plan) {
  using Family = RmsNormFamily<ResidualAdded>;
  // As models have it.
  if (plan.sum == Sum::kRounded) return SelectNorm<Family>(plan);
  return &RunMixed<Family::Operation<AnyDType, AnyDType>>;
}

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_HAVE_TARGET

#if HWY_ONCE
namespace fusednorm {
namespace internal {

RowKernel SelectRmsNormAdd(Target target, const Plan& plan) {
  static constexpr Selector kSelectors[kTargets] =
      FUSEDNORM_TARGET_TABLE(SelectRmsNormAddKernel);
  return RunSelector(kSelectors, target, plan);
}

}  // namespace internal
}  // namespace fusednorm
#endif  // HWY_ONCE

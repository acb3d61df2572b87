// out = norm(x), to which something may be added.
#if defined(FUSEDNORM_KERNELS_RMS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSEDNORM_KERNELS_RMS_NORM_INL_H_
#undef FUSEDNORM_KERNELS_RMS_NORM_INL_H_
#else
#define FUSEDNORM_KERNELS_RMS_NORM_INL_H_
#endif

#include "kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

template <class T>
struct NothingAdded {
  static constexpr int kTogether = kGroup;
  static constexpr Fused kFused = Fused::kInTurn;
  static constexpr int64_t kAlone = T::kSize == 4 ? 1024 : kNeverAlone;

  explicit NothingAdded(const Plan&) {}
  HWY_INLINE Pair operator()(Pair y, const RowData&, size_t) const { return y; }
  template <bool kFar>
  HWY_INLINE void Fetch(const RowData&, size_t) const {}
};

// `Added` makes the output of y: added(y, row, i).
template <class T, class Middle, class Weight, class Added,
          bool kRstdIsGiven_ = false>
class RmsNormKernel {
 public:
  static constexpr bool kRstdIsGiven = kRstdIsGiven_;
  using Codec = T;
  static constexpr bool kGroups = GroupsPay<T>();
  static constexpr int kTogether = Added::kTogether;
  static constexpr int64_t kAlone = kRstdIsGiven ? kNeverAlone : Added::kAlone;
  static constexpr bool kPrepares = false;
  static constexpr Fused kFused = UnlessNoWeight<Weight>(Added::kFused);
  static constexpr bool kSumFetchesX = false;
  using Input = SquareInput<T>;

  RmsNormKernel(const Plan& plan, const Weight& weight)
      : input_(plan),
        middle_(MiddleDType(plan, kX)),
        weight_(weight),
        added_(plan),
        out_(plan, T(plan.dtype[kOut])) {}

  HWY_INLINE bool Prepare(const Rows&, int64_t) const { return true; }
  const Input& input() const { return input_; }
  HWY_INLINE Pair Gain(const RowData& row, size_t i) const {
    return weight_.Load(row, i);
  }
  HWY_INLINE Pair Output(const RowData& row, size_t i, VF rstd,
                         Pair gain) const {
    const Pair v = middle_.Round(Mul(input_.Load(row, i), rstd));
    return added_(weight_.Apply(v, gain), row, i);
  }
  template <bool kFar>
  HWY_INLINE void Store(Pair output, const RowData& row, size_t i) const {
    out_.template Store<kFar>(output, row, i);
  }
  template <bool kFar>
  HWY_INLINE void Fetch(const RowData& ahead, size_t i) const {
    FetchElements<T::kSize, 2 * kLanes, kFar>(ahead.data[kX], i);
    added_.template Fetch<kFar>(ahead, i);
  }

 private:
  Input input_;
  Middle middle_;
  Weight weight_;
  Added added_;
  OutStore<T> out_;
};

template <template <class T> class Added, bool kRstdIsGiven = false>
struct RmsNormFamily {
  static constexpr bool kF32 = true;
  static constexpr bool kBeforeWeight = true;

  template <class T, class Middle>
  struct Operation {
    using Codec = T;
    template <class Weight>
    using Kernel = RmsNormKernel<T, Middle, Weight, Added<T>, kRstdIsGiven>;
  };
};

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_KERNELS_RMS_NORM_INL_H_

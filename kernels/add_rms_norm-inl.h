// residual_out = h, out = norm(h), for an h that is a sum.
#if defined(FUSEDNORM_KERNELS_ADD_RMS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSEDNORM_KERNELS_ADD_RMS_NORM_INL_H_
#undef FUSEDNORM_KERNELS_ADD_RMS_NORM_INL_H_
#else
#define FUSEDNORM_KERNELS_ADD_RMS_NORM_INL_H_
#endif

#include "kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

// h for the statistic, and for the output. `Source` makes it in f32:
// source.Load(row, i).
//
// kRounded stores residual_out in the statistic pass and reads it again; the
// other modes compute h again and store it in the output pass, when its inputs
// are done with. Neither needs scratch memory.
template <bool kRounded, class T, class Source>
class SumInput {
 public:
  static constexpr bool kEvenOdd = T::kEvenOdd;
  static constexpr int64_t kSize = T::kSize;
  static constexpr Operand kStored = kRounded ? kResidualOut : kOperands;

  explicit SumInput(const Plan& plan)
      : source_(plan), stream_(plan.dtype[kResidualOut]) {}

  HWY_INLINE bool Prepare(const Rows& rows, int64_t index) {
    return source_.Prepare(rows, index);
  }

  HWY_INLINE void Add(Lanes& lanes, size_t p, const RowData& row,
                      size_t i) const {
    const Pair h = source_.Load(row, i);
    lanes.AddSquare(p, kRounded ? StoreSum(h, row, i) : h);
  }

  // What is normalised.
  template <Sum kSum>
  HWY_INLINE Pair LoadAgain(const RowData& row, size_t i) const {
    return Choose(
        kRounded && row.data[kResidualOut] != nullptr,
        [&]() FUSEDNORM_LAMBDA {
          return stream_.Load(row.data[kResidualOut], i);
        },
        [&]() FUSEDNORM_LAMBDA {
          const Pair h = source_.Load(row, i);
          const Pair rounded = StoreSum(h, row, i);
          return kSum == Sum::kExact ? h : rounded;
        });
  }

 private:
  // The sum as the stream holds it, stored where residual_out is wanted.
  HWY_INLINE Pair StoreSum(Pair h, const RowData& row, size_t i) const {
    return Choose(
        row.data[kResidualOut] == nullptr,
        [&]() FUSEDNORM_LAMBDA { return stream_.Round(h); },
        [&]() FUSEDNORM_LAMBDA {
          return stream_.StoreRounded(h, row.data[kResidualOut], i);
        });
  }

  Source source_;
  T stream_;
};

template <Sum kSum, class T, class Middle, class Weight, class Source>
class SumAndNormKernel {
 public:
  using Codec = T;
  static constexpr bool kRstdIsGiven = false;
  static constexpr bool kGroups = GroupsPay<T>();
  static constexpr int kTogether = kGroup;
  static constexpr int64_t kAlone = kNeverAlone;
  static constexpr bool kPrepares = Source::kPrepares;
  static constexpr Fused kFused = kSum == Sum::kRounded
                                      ? UnlessNoWeight<Weight>(kFusedByRow)
                                      : Fused::kNever;
  static constexpr bool kSumFetchesX = true;
  using Input = SumInput<kSum == Sum::kRounded, T, Source>;

  SumAndNormKernel(const Plan& plan, const Weight& weight)
      : input_(plan),
        middle_(MiddleDType(plan, kResidualOut)),
        weight_(weight),
        out_(plan, T(plan.dtype[kOut])) {}

  HWY_INLINE bool Prepare(const Rows& rows, int64_t index) {
    return input_.Prepare(rows, index);
  }
  const Input& input() const { return input_; }
  HWY_INLINE Pair Gain(const RowData& row, size_t i) const {
    return weight_.Load(row, i);
  }
  HWY_INLINE Pair Output(const RowData& row, size_t i, VF rstd,
                         Pair gain) const {
    const Pair u = input_.template LoadAgain<kSum>(row, i);
    const Pair v = middle_.Round(Mul(u, rstd));
    return weight_.Apply(v, gain);
  }
  template <bool kFar>
  HWY_INLINE void Store(Pair output, const RowData& row, size_t i) const {
    out_.template Store<kFar>(output, row, i);
  }
  template <bool kFar>
  HWY_INLINE void Fetch(const RowData& ahead, size_t i) const {
    FetchElements<T::kSize, 2 * kLanes, kFar>(ahead.data[kResidual], i);
  }

 private:
  Input input_;
  Middle middle_;
  Weight weight_;
  OutStore<T> out_;
};

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_KERNELS_ADD_RMS_NORM_INL_H_

// AddRmsNorm: the vector row kernels.
#include "kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/add_rms_norm.cc"
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

// h = x + residual_scale * residual in f32. A scale of 1 is exact in the fused
// multiply-add, so one operation serves both.
template <class X, class Stream>
class ExactSum {
 public:
  ExactSum(const Plan& plan, X x, Stream stream)
      : x_(x), stream_(stream), scale_(hn::Set(DF(), plan.residual_scale)) {}

  HWY_INLINE Pair Load(const RowData& row, size_t i) const {
    return MulAdd(scale_, stream_.Load(row.data[kResidual], i),
                  x_.Load(row.data[kX], i));
  }

 private:
  X x_;
  Stream stream_;
  VF scale_;
};

// The sum as the stream holds it, stored where residual_out is wanted.
template <class Stream>
HWY_INLINE Pair StoreSum(Stream stream, Pair h, const RowData& row, size_t i) {
  if (row.data[kResidualOut] == nullptr) return stream.Round(h);
  return stream.StoreRounded(h, row.data[kResidualOut], i);
}

// The rows of one call. kRounded stores residual_out in the statistic pass and
// reads it again; the other modes compute h again and store it in the output
// pass, when its inputs are done with.
template <Sum kSum, class X, class Stream, class Middle, class Out,
          class Weight>
HWY_INLINE void AddRmsNormRows(const Plan& plan, const Rows& rows, X x,
                               Stream stream, Middle middle, Out out,
                               const Weight& weight, const float* gains) {
  const float width = static_cast<float>(plan.width);
  const ExactSum<X, Stream> exact(plan, x, stream);
  for (int64_t index = 0; index < rows.count; ++index) {
    const RowData row(rows, index, gains);
    const double sum = SumSquares<X::kEvenOdd>(
        plan, row, /*stored=*/kSum == Sum::kRounded ? kResidualOut : kRstd,
        [&](const RowData& r, size_t i) FUSEDNORM_LAMBDA {
          const Pair h = exact.Load(r, i);
          return kSum == Sum::kRounded ? StoreSum(stream, h, r, i) : h;
        });
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
      Pair u;
      if (kSum == Sum::kRounded && r.data[kResidualOut] != nullptr) {
        u = stream.Load(r.data[kResidualOut], i);
      } else {
        const Pair h = exact.Load(r, i);
        u = StoreSum(stream, h, r, i);
        if (kSum == Sum::kExact) u = h;
      }
      const Pair v = middle.Round(Mul(u, rstd));
      out.Store(weight.Apply(v, r, i), r.data[kOut], i);
    });
  }
}

// x, stream and out of one dtype. Middle: F32, which rounds nothing, for kOnce.
template <Sum kSum, class T, class Middle>
struct AddRmsNormOperation {
  using Codec = T;
  template <class Weight>
  static HWY_INLINE void Run(const Plan& plan, const Rows& rows,
                             const Weight& weight, const float* gains) {
    AddRmsNormRows<kSum>(plan, rows, T(), T(), Middle(), T(), weight, gains);
  }
};

// Any dtypes.
template <Sum kSum>
void AddRmsNormMixed(const Plan& plan, const Rows& rows) {
  const AnyDType x(plan.dtype[kX]);
  const AnyDType stream(plan.dtype[kResidualOut]);
  const AnyDType out(plan.dtype[kOut]);
  const AnyDType middle(plan.rounding == Rounding::kBeforeWeight
                            ? plan.dtype[kResidualOut]
                            : DType::kF32);
  if (plan.has[kWeight]) {
    const Gain<AnyDType> weight(AnyDType(plan.dtype[kWeight]),
                                plan.weight_offset);
    AddRmsNormRows<kSum>(plan, rows, x, stream, middle, out, weight, nullptr);
  } else {
    AddRmsNormRows<kSum>(plan, rows, x, stream, middle, out, NoWeight(),
                         nullptr);
  }
}

template <Sum kSum, class T>
RowKernel SelectByRounding(const Plan& plan) {
  if (plan.rounding == Rounding::kBeforeWeight) {
    return SelectByWeight<AddRmsNormOperation<kSum, T, T>>(plan);
  }
  return SelectByWeight<AddRmsNormOperation<kSum, T, F32>>(plan);
}

template <Sum kSum>
RowKernel SelectBySum(const Plan& plan) {
  RowKernel uniform = nullptr;
  if (plan.dtype[kResidual] == plan.dtype[kX] &&
      plan.dtype[kOut] == plan.dtype[kX]) {
    switch (plan.dtype[kX]) {
      case DType::kF32:  // An f32 stream rounds nothing: the modes are one.
        uniform =
            SelectByWeight<AddRmsNormOperation<Sum::kRounded, F32, F32>>(plan);
        break;
      case DType::kBF16:
        uniform = SelectByRounding<kSum, BF16>(plan);
        break;
      case DType::kF16:
        uniform = SelectByRounding<kSum, F16>(plan);
        break;
      default:
        break;
    }
  }
  return uniform != nullptr ? uniform : &AddRmsNormMixed<kSum>;
}

RowKernel SelectAddRmsNormKernel(const Plan& plan) {
  switch (plan.sum) {
    case Sum::kRounded:
      return SelectBySum<Sum::kRounded>(plan);
    case Sum::kExact:
      return SelectBySum<Sum::kExact>(plan);
    case Sum::kExactStatistic:
      return SelectBySum<Sum::kExactStatistic>(plan);
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

RowKernel SelectAddRmsNorm(Target target, const Plan& plan) {
  static constexpr Selector kSelectors[kTargets] =
      FUSEDNORM_TARGET_TABLE(SelectAddRmsNormKernel);
  return RunSelector(kSelectors, target, plan);
}

}  // namespace internal
}  // namespace fusednorm
#endif  // HWY_ONCE

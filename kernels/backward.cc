// RmsNormBackward and AddRmsNormBackward: the vector row kernels.
#include <cmath>

#include "kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/backward.h"
#include "kernels/targets.h"
#if FUSEDNORM_HAVE_TARGET
#include "kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

// The terms of sum(a * xh): a = g * dy, xh = x * r.
template <class T, class Weight>
class ProductInput {
 public:
  static constexpr bool kEvenOdd = T::kEvenOdd;
  static constexpr Operand kStored = kOperands;

  explicit ProductInput(const Plan& plan)
      : x_(plan.dtype[kX]), dy_(plan.dtype[kDy]), weight_(plan) {}

  void SetRstd(float rstd) { rstd_ = hn::Set(DF(), rstd); }

  HWY_INLINE Pair Dy(const RowData& row, size_t i) const {
    return dy_.Load(row.data[kDy], i);
  }
  HWY_INLINE Pair A(Pair dy, const RowData& row, size_t i) const {
    return weight_.Apply(dy, weight_.Load(row, i));
  }
  HWY_INLINE Pair Xh(const RowData& row, size_t i) const {
    return Mul(x_.Load(row.data[kX], i), rstd_);
  }
  HWY_INLINE void Add(Lanes& lanes, size_t p, const RowData& row,
                      size_t i) const {
    lanes.AddProduct(p, A(Dy(row, i), row, i), Xh(row, i));
  }

 private:
  T x_;
  T dy_;
  Weight weight_;
  VF rstd_;
};

// rstd of a row, given or computed.
template <class T>
HWY_INLINE float Rstd(const Plan& plan, const Rows& rows, int64_t index) {
  if (plan.has[kRstd]) {
    return *reinterpret_cast<const float*>(rows.Row(kRstd, index));
  }
  const double sum = SumRow(plan, rows, index, SquareInput<T>(plan));
  const Statistic statistic =
      StatisticFromSum(sum, static_cast<float>(plan.width), plan.eps);
  if (HWY_LIKELY(statistic.ordinary)) return statistic.rstd;
  return ReferenceRstd(plan, rows, index);
}

// The order of sums: see BackwardKernel.
template <class T>
constexpr int64_t kOrder = T::kEvenOdd ? static_cast<int64_t>(kLanes) : 0;

// T is the codec of x, dy, d_residual_out and dx, W that of the weight.
template <class T, class W>
void RunBackwardRows(const Plan& plan, const Rows& rows) {
  const DF df;
  ProductInput<T, OptionalGain<W, kWeight>> input(plan);
  const T stream(plan.dtype[kResidual]);
  const T out(plan.dtype[kOut]);
  const bool has_stream = plan.has[kResidual];
  const bool has_out = plan.has[kOut];
  for (int64_t index = 0; index < rows.count; ++index) {
    const float rstd = Rstd<T>(plan, rows, index);
    if (HWY_UNLIKELY(!std::isfinite(rstd))) {
      BackwardRowByReference(plan, rows, index, kOrder<T>);
      continue;
    }
    input.SetRstd(rstd);
    const float product = static_cast<float>(SumRow(plan, rows, index, input));
    const VF c = hn::Set(df, product / static_cast<float>(plan.width));
    const VF r = hn::Set(df, rstd);
    ForEachPair(plan, rows, index, [&](const RowData& data, size_t i) FUSEDNORM_LAMBDA {
      const Pair dy = input.Dy(data, i);
      const Pair xh = input.Xh(data, i);
      if (data.sums != nullptr) {
        float* sums = data.sums + i;
        const Pair sum = {hn::LoadU(df, sums), hn::LoadU(df, sums + kLanes)};
        hn::StoreU(hn::MulAdd(dy.a, xh.a, sum.a), df, sums);
        hn::StoreU(hn::MulAdd(dy.b, xh.b, sum.b), df, sums + kLanes);
      }
      if (!has_out) return;
      Pair dx = Mul(Sub(input.A(dy, data, i), Mul(xh, c)), r);
      if (has_stream) dx = Add(stream.Load(data.data[kResidual], i), dx);
      out.Store(dx, data.data[kOut], i);
    });
  }
}

template <class T>
RowKernel SelectByWeightCodec(const Plan& plan) {
  if (!plan.has[kWeight] || plan.dtype[kWeight] == plan.dtype[kX]) {
    return &RunBackwardRows<T, T>;
  }
  if (plan.dtype[kWeight] == DType::kF32) {
    return &RunBackwardRows<T, typename T::F32Beside>;
  }
  return nullptr;
}

BackwardKernel SelectBackwardKernel(const Plan& plan) {
  const DType dtype = plan.dtype[kX];
  bool uniform = true;
  for (Operand k : {kDy, kResidual, kOut}) {
    if (plan.has[k] && plan.dtype[k] != dtype) uniform = false;
  }
  RowKernel run = nullptr;
  if (uniform && dtype == DType::kF32) run = SelectByWeightCodec<F32>(plan);
  if (uniform && dtype == DType::kBF16) run = SelectByWeightCodec<BF16>(plan);
  if (uniform && dtype == DType::kF16) run = SelectByWeightCodec<F16>(plan);
  if (run == nullptr) return {&RunBackwardRows<AnyDType, AnyDType>, 0};
  return {run, dtype == DType::kBF16 ? kOrder<BF16> : 0};
}

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_HAVE_TARGET

#if HWY_ONCE
namespace fusednorm {
namespace internal {

BackwardKernel SelectBackward(Target target, const Plan& plan) {
  using BackwardSelector = BackwardKernel (*)(const Plan&);
  static constexpr BackwardSelector kSelectors[kTargets] =
      FUSEDNORM_TARGET_TABLE(SelectBackwardKernel);
  return kSelectors[static_cast<int>(target)](plan);
}

}  // namespace internal
}  // namespace fusednorm
#endif  // HWY_ONCE

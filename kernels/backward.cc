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
  static constexpr int64_t kSize = T::kSize;
  static constexpr Operand kStored = kOperands;

  explicit ProductInput(const Plan& plan)
      : x_(plan.dtype[kX]), dy_(plan.dtype[kDy]), weight_(plan) {}

  void SetRstd(float rstd) { rstd_ = hn::Set(DF(), rstd); }

  HWY_INLINE Pair X(const RowData& row, size_t i) const {
    return x_.Load(row.data[kX], i);
  }
  HWY_INLINE Pair Dy(const RowData& row, size_t i) const {
    return dy_.Load(row.data[kDy], i);
  }
  HWY_INLINE Pair Gain(const RowData& row, size_t i) const {
    return weight_.Load(row, i);
  }
  HWY_INLINE void Add(Lanes& lanes, size_t p, const RowData& row,
                      size_t i) const {
    const Pair a = Mul(Dy(row, i), Gain(row, i));
    lanes.AddProduct(p, a, Mul(X(row, i), rstd_));
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

// What of a row its output pass needs.
struct RowFactors {
  VF r;  // rstd
  VF c;  // mean(a * xh)
};

// T is the codec of x, dy, d_residual_out and dx, W that of the weight.
template <bool kFar, class T, class W>
class BackwardRows {
 public:
  BackwardRows(const Plan& plan, const Rows& rows)
      : plan_(plan),
        rows_(rows),
        input_(plan),
        stream_(plan.dtype[kResidual]),
        out_(plan, T(plan.dtype[kOut])),
        has_sums_(rows.sums != nullptr),
        has_stream_(plan.has[kResidual]),
        has_out_(plan.has[kOut]) {}

  void Run() {
    int64_t index = 0;
    if constexpr (GroupsPay<T>()) {
      if (rows_.stride[kWeight] == 0) {
        index = RunGroups();
      }
    }
    for (; index < rows_.count; ++index) RunRow(index);
  }

 private:
  // False: rstd is not finite.
  HWY_INLINE bool MakeFactors(int64_t index, RowFactors* factors) {
    const float rstd = Rstd<T>(plan_, rows_, index);
    factors->r = hn::Set(DF(), rstd);
    factors->c = factors->r;
    if (HWY_UNLIKELY(!std::isfinite(rstd))) return false;
    if (!has_out_) return true;  // And c is not needed.
    input_.SetRstd(rstd);
    const float product =
        static_cast<float>(SumRow<kFar>(plan_, rows_, index, input_, kGroup));
    factors->c = hn::Set(DF(), product / static_cast<float>(plan_.width));
    return true;
  }

  HWY_INLINE Pair LoadSums(const RowData& row, size_t i) const {
    if (!has_sums_) return {hn::Zero(DF()), hn::Zero(DF())};
    return F32().Load(reinterpret_cast<const char*>(row.sums), i);
  }
  HWY_INLINE void StoreSums(Pair sums, const RowData& row, size_t i) const {
    if (has_sums_) F32().Store(sums, reinterpret_cast<char*>(row.sums), i);
  }

  // dx of the Pair at i, and its term of dweight.
  template <bool kStream>
  HWY_INLINE void Output(const RowData& row, size_t i,
                         const RowFactors& factors, Pair gain,
                         Pair* sums) const {
    const Pair dy = input_.Dy(row, i);
    const Pair xh = Mul(input_.X(row, i), factors.r);
    sums->a = hn::MulAdd(dy.a, xh.a, sums->a);
    sums->b = hn::MulAdd(dy.b, xh.b, sums->b);
    if (!has_out_) return;
    Pair dx = Mul(Sub(Mul(dy, gain), Mul(xh, factors.c)), factors.r);
    if (has_stream_) dx = Add(stream_.Load(row.data[kResidual], i), dx);
    out_.template Store<kStream>(dx, row, i);
  }

  void RunRow(int64_t index) {
    RowFactors factors;
    if (HWY_UNLIKELY(!MakeFactors(index, &factors))) {
      return BackwardRowByReference(plan_, rows_, index, kOrder<T>);
    }
    ForEachPair(plan_, rows_, index,
                [&](const RowData& row, size_t i) FUSEDNORM_LAMBDA {
                  Pair sums = LoadSums(row, i);
                  Output<false>(row, i, factors, input_.Gain(row, i), &sums);
                  StoreSums(sums, row, i);
                });
  }

  // As many whole groups as there are; returns the rows that are done. Each
  // gain and each sum is loaded once for a group.
  int64_t RunGroups() {
    const int64_t end = rows_.count - rows_.count % kGroup;
    for (int64_t index = 0; index < end; index += kGroup) {
      RowFactors factors[kGroup];
      bool finite = true;
      for (int g = 0; g < kGroup; ++g) {
        finite = MakeFactors(index + g, &factors[g]) && finite;
      }
      if (HWY_LIKELY(finite)) {
        OutputGroup(index, factors);
      } else {
        for (int g = 0; g < kGroup; ++g) RunRow(index + g);
      }
    }
    if (kFar && plan_.stream) hwy::FlushStream();
    return end;
  }

  // Far from the cache the rest of the next group is fetched meanwhile.
  HWY_INLINE void OutputGroup(int64_t index,
                              const RowFactors (&factors_in)[kGroup]) {
    RowFactors factors[kGroup];
    RowData row[kGroup];
    RowData fetched[kGroup];
    FUSEDNORM_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      factors[g] = factors_in[g];
      row[g] = g == 0 ? RowData(rows_, index) : row[g - 1].Further(rows_, 1);
      fetched[g] = row[g].Further(rows_, kGroup);
    }
    const size_t width = static_cast<size_t>(plan_.width);
    const size_t whole = width - width % kStep;
    for (size_t i = 0; i < whole; i += 2 * kLanes) {
      const Pair gain = input_.Gain(row[0], i);
      Pair sums = LoadSums(row[0], i);
      FUSEDNORM_UNROLL
      for (int g = 0; g < kGroup; ++g) {
        Output<kFar>(row[g], i, factors[g], gain, &sums);
        if (kFar) {
          if (!has_out_)
            FetchElements<T::kSize, 2 * kLanes>(fetched[g].data[kX], i);
          FetchElements<T::kSize, 2 * kLanes>(fetched[g].data[kDy], i);
          if (has_stream_)
            FetchElements<T::kSize, 2 * kLanes>(fetched[g].data[kResidual], i);
        }
      }
      StoreSums(sums, row[0], i);
    }
    if (HWY_LIKELY(whole == width)) return;
    for (int g = 0; g < kGroup; ++g) {
      const Tail tail(plan_, rows_, index + g, whole);
      for (size_t i = 0; i < kStep; i += 2 * kLanes) {
        Pair sums = LoadSums(tail.row(), i);
        Output<false>(tail.row(), i, factors[g], input_.Gain(tail.row(), i),
                      &sums);
        StoreSums(sums, tail.row(), i);
      }
      tail.CopyBack(kOut);
    }
  }

  const Plan& plan_;
  const Rows& rows_;
  ProductInput<T, OptionalGain<W, kWeight>> input_;
  T stream_;
  OutStore<T> out_;
  bool has_sums_;
  bool has_stream_;
  bool has_out_;
};

template <class T, class W>
void RunBackwardRows(const Plan& plan, const Rows& rows) {
  if constexpr (GroupsPay<T>()) {
    if (plan.far) return BackwardRows<true, T, W>(plan, rows).Run();
  }
  BackwardRows<false, T, W>(plan, rows).Run();
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

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
#include "kernels/dweight-inl.h"
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

  HWY_INLINE Pair Gain(const RowData& row, size_t i) const {
    return weight_.Load(row, i);
  }
  HWY_INLINE void AddProduct(Lanes& lanes, size_t p, const RowData& row,
                             size_t i, Pair gain, VF rstd) const {
    const Pair a = Mul(dy_.Load(row.data[kDy], i), gain);
    lanes.AddProduct(p, a, Mul(x_.Load(row.data[kX], i), rstd));
  }
  HWY_INLINE void Add(Lanes& lanes, size_t p, const RowData& row,
                      size_t i) const {
    AddProduct(lanes, p, row, i, Gain(row, i), rstd_);
  }

 private:
  T x_;
  T dy_;
  Weight weight_;
  VF rstd_;
};

// x of so many rows of the next group is fetched by the sums of products, that
// of the others in the output pass, so that memory has work in both: 0.91 to
// 0.97 of the time in DRAM of all fetched by the sums (Emerald Rapids).
constexpr int kFetchedBySums = kGroup / 2;

// The sums of products of a group in turn, each gain loaded once: 0.9 to 0.95
// of the time of one row after the other in DRAM, 0.83 to 0.93 for heads of 128
// (Emerald Rapids). Rows are whole steps, of at most a chunk. What is `ahead`
// is fetched; near the cache that is the group itself, which costs 1 to 3 %,
// and is half the code.
template <class T, class Weight>
HWY_NOINLINE V4 SumProductsInTurn(const Plan& plan, const Rows& rows,
                                  int64_t index, int64_t ahead,
                                  const float (&rstd)[kGroup],
                                  const ProductInput<T, Weight>& input_in) {
  const ProductInput<T, Weight> input = input_in;  // See RowData.
  const GroupData group(rows, index, ahead);
  VF r[kGroup];
  FUSEDNORM_UNROLL
  for (int g = 0; g < kGroup; ++g) r[g] = hn::Set(DF(), rstd[g]);
  const auto add = [&](Lanes& lanes, int g, size_t p,
                       size_t i) FUSEDNORM_LAMBDA {
    const Pair gain = input.Gain(group.row[0], i);
    input.AddProduct(lanes, p, group.row[g], i, gain, r[g]);
  };
  const auto fetch = [&](size_t i) FUSEDNORM_LAMBDA {
    FUSEDNORM_UNROLL
    for (int g = 0; g < kFetchedBySums; ++g) {
      FetchElements<T::kSize, kStep>(group.fetched[g].data[kX], i);
    }
  };
  return SumRowsInTurn<T::kEvenOdd>(static_cast<size_t>(plan.width), add,
                                    fetch);
}

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

// Of the sums' order: see BackwardRowByReference.
template <class T>
constexpr int64_t kSumLanes = T::kEvenOdd ? static_cast<int64_t>(kLanes) : 0;

// What of a row its output pass needs.
struct RowFactors {
  HWY_INLINE RowFactors() {}  // See Pair.
  HWY_INLINE RowFactors(float rstd, float product, int64_t width)
      : r(hn::Set(DF(), rstd)),
        c(hn::Set(DF(), product / static_cast<float>(width))) {}
  VF r;  // rstd
  VF c;  // mean(a * xh)
};

// The output pass: dx, and the terms of dweight. T is the codec of x, dy,
// d_residual_out and dx, W that of the weight.
template <class T, class W>
class BackwardOutput {
 public:
  static constexpr int64_t kSize = T::kSize;

  BackwardOutput(const Plan& plan, const Rows& rows)
      : x_(plan.dtype[kX]),
        dy_(plan.dtype[kDy]),
        stream_(plan.dtype[kResidual]),
        weight_(plan),
        out_(plan, T(plan.dtype[kOut])),
        has_sums_(rows.sums != nullptr),
        has_stream_(plan.has[kResidual]),
        has_out_(plan.has[kOut]) {}

  HWY_INLINE Pair Gain(const RowData& row, size_t i) const {
    return weight_.Load(row, i);
  }
  HWY_INLINE Pair LoadSums(const RowData& row, size_t i) const {
    return Choose(
        has_sums_,
        [&]() FUSEDNORM_LAMBDA {
          return F32().Load(reinterpret_cast<const char*>(row.sums), i);
        },
        [&]()
            FUSEDNORM_LAMBDA { return Pair(hn::Zero(DF()), hn::Zero(DF())); });
  }
  HWY_INLINE void StoreSums(Pair sums, const RowData& row, size_t i) const {
    if (has_sums_) F32().Store(sums, reinterpret_cast<char*>(row.sums), i);
  }
  // dx, where it is wanted.
  HWY_INLINE Pair Output(const RowData& row, size_t i,
                         const RowFactors& factors, Pair gain,
                         Pair* sums) const {
    const Pair dy = dy_.Load(row.data[kDy], i);
    const Pair xh = Mul(x_.Load(row.data[kX], i), factors.r);
    sums->a = hn::MulAdd(dy.a, xh.a, sums->a);
    sums->b = hn::MulAdd(dy.b, xh.b, sums->b);
    if (!has_out_) return dy;
    const Pair dx = Mul(Sub(Mul(dy, gain), Mul(xh, factors.c)), factors.r);
    if (!has_stream_) return dx;
    return Add(stream_.Load(row.data[kResidual], i), dx);
  }
  template <bool kFar>
  HWY_INLINE void Store(Pair dx, const RowData& row, size_t i) const {
    if (has_out_) out_.template Store<kFar>(dx, row, i);
  }
  // What the sums of products do not fetch of row g of a group.
  HWY_INLINE void Fetch(const RowData& row, int g, size_t i) const {
    FetchElements<T::kSize, 2 * kLanes>(row.data[kDy], i);
    if (g >= kFetchedBySums || !has_out_) {
      FetchElements<T::kSize, 2 * kLanes>(row.data[kX], i);
    }
    if (has_stream_)
      FetchElements<T::kSize, 2 * kLanes>(row.data[kResidual], i);
  }

 private:
  T x_;
  T dy_;
  T stream_;
  OptionalGain<W, kWeight> weight_;
  OutStore<T> out_;
  bool has_sums_;
  bool has_stream_;
  bool has_out_;
};

// Loads and fetches come before stores, as in norms.

// The first `count` elements of a row, a multiple of two Pairs. Far from the
// cache another row, the one `g` of a group, is fetched meanwhile.
template <bool kFar, class Kernel>
HWY_INLINE void OutputRow(const RowData& row, const RowData& fetched, int g,
                          size_t count, const RowFactors& factors,
                          const Kernel& output) {
  constexpr size_t kAtOnce = 2;
  static_assert(kPairs % kAtOnce == 0, "");
  for (size_t i = 0; i < count; i += kAtOnce * 2 * kLanes) {
    Pair dx[kAtOnce];
    Pair sums[kAtOnce];
    FUSEDNORM_UNROLL
    for (size_t p = 0; p < kAtOnce; ++p) {
      const size_t k = i + p * 2 * kLanes;
      sums[p] = output.LoadSums(row, k);
      dx[p] = output.Output(row, k, factors, output.Gain(row, k), &sums[p]);
      if (kFar) output.Fetch(fetched, g, k);
    }
    FUSEDNORM_UNROLL
    for (size_t p = 0; p < kAtOnce; ++p) {
      output.template Store<kFar>(dx[p], row, i + p * 2 * kLanes);
    }
    FUSEDNORM_UNROLL
    for (size_t p = 0; p < kAtOnce; ++p) {
      output.StoreSums(sums[p], row, i + p * 2 * kLanes);
    }
  }
}

// See OutputTail of norms.
template <class Kernel>
HWY_NOINLINE void BackwardTail(const Plan& plan, const Rows& rows,
                               int64_t index, const RowFactors& factors,
                               const Kernel& output) {
  const size_t width = static_cast<size_t>(plan.width);
  const Tail tail(plan, rows, index, width - width % kStep);
  OutputRow<false>(tail.row(), tail.row(), 0, kStep, factors, output);
  tail.CopyBack(kOut);
}

template <class Kernel>
HWY_NOINLINE void BackwardRow(const Plan& plan, const Rows& rows, int64_t index,
                              const RowFactors& factors_in,
                              const Kernel& output_in) {
  const RowFactors factors = factors_in;  // See RowData.
  const Kernel output = output_in;
  const size_t width = static_cast<size_t>(plan.width);
  const size_t whole = width - width % kStep;
  const RowData row(rows, index);
  OutputRow<false>(row, row, 0, whole, factors, output);
  if (HWY_UNLIKELY(whole < width)) {
    BackwardTail(plan, rows, index, factors_in, output_in);
  }
}

// Each gain and each sum is loaded once for kTogether rows.
template <bool kFar, class Kernel>
HWY_INLINE void OutputInTurn(const GroupData& group, size_t count,
                             const RowFactors (&factors)[kGroup],
                             const Kernel& output) {
  constexpr int kTogether = kTogetherOfSeveral;
  FUSEDNORM_UNROLL
  for (int first = 0; first < kGroup; first += kTogether) {
    for (size_t i = 0; i < count; i += 2 * kLanes) {
      const Pair gain = output.Gain(group.row[0], i);
      Pair sums = output.LoadSums(group.row[0], i);
      Pair dx[kTogether];
      FUSEDNORM_UNROLL
      for (int t = 0; t < kTogether; ++t) {
        const int g = first + t;
        dx[t] = output.Output(group.row[g], i, factors[g], gain, &sums);
        if (kFar) output.Fetch(group.fetched[g], g, i);
      }
      FUSEDNORM_UNROLL
      for (int t = 0; t < kTogether; ++t) {
        output.template Store<kFar>(dx[t], group.row[first + t], i);
      }
      output.StoreSums(sums, group.row[0], i);
    }
  }
}

// Far from the cache the next group is fetched meanwhile. On AVX2 a Pair of 16
// bits is half a line: stores past the cache go to one row after the other
// there, so that each line is filled at once: 0.53 to 0.67 of the time (Zen 3;
// 0.94 to 1.02 on Zen 4, which has AVX-512).
template <bool kFar, class Kernel>
HWY_NOINLINE void BackwardGroup(const Plan& plan, const Rows& rows,
                                int64_t index,
                                const RowFactors (&factors_in)[kGroup],
                                const Kernel& output_in) {
  constexpr bool kHalfLines = kLanes == 8 && Kernel::kSize == 2;
  const Kernel output = output_in;
  const GroupData group(rows, index, /*ahead=*/kGroup);
  RowFactors factors[kGroup];
  FUSEDNORM_UNROLL
  for (int g = 0; g < kGroup; ++g) factors[g] = factors_in[g];
  const size_t width = static_cast<size_t>(plan.width);
  const size_t whole = width - width % kStep;
  if (kFar && kHalfLines && plan.stream) {
    for (int g = 0; g < kGroup; ++g) {
      OutputRow<kFar>(group.row[g], group.fetched[g], g, whole, factors[g],
                      output);
    }
  } else {
    OutputInTurn<kFar>(group, whole, factors, output);
  }
  if (HWY_LIKELY(whole == width)) return;
  for (int g = 0; g < kGroup; ++g) {
    BackwardTail(plan, rows, index + g, factors_in[g], output_in);
  }
}

template <bool kFar, class T, class W>
class BackwardRows {
 public:
  BackwardRows(const Plan& plan, const Rows& rows)
      : plan_(plan), rows_(rows), input_(plan), output_(plan, rows) {}

  void Run() {
    int64_t index = 0;
    if (GroupsPay<T>() && rows_.stride[kWeight] == 0) {
      const int64_t end = rows_.count - rows_.count % kGroup;
      for (; index < end; index += kGroup) RunGroup(index);
    }
    for (; index < rows_.count; ++index) RunRow(index);
    if (kFar && plan_.stream) hwy::FlushStream();
  }

 private:
  void RunRow(int64_t index) {
    const float rstd = Rstd<T>(plan_, rows_, index);
    if (HWY_UNLIKELY(!std::isfinite(rstd))) {
      return BackwardRowByReference(plan_, rows_, index, kSumLanes<T>);
    }
    const float product = plan_.has[kOut] ? SumProducts(index, rstd, 0) : 0;
    const RowFactors factors(rstd, product, plan_.width);
    BackwardRow(plan_, rows_, index, factors, output_);
  }

  void RunGroup(int64_t index) {
    float rstd[kGroup];
    bool finite = true;
    for (int g = 0; g < kGroup; ++g) {
      rstd[g] = Rstd<T>(plan_, rows_, index + g);
      finite = std::isfinite(rstd[g]) && finite;
    }
    if (HWY_UNLIKELY(!finite)) {
      for (int g = 0; g < kGroup; ++g) RunRow(index + g);
      return;
    }
    alignas(16) float product[kGroup] = {};  // Not needed for dweight alone.
    if (plan_.has[kOut]) SumProductsOfGroup(index, rstd, product);
    RowFactors factors[kGroup];
    for (int g = 0; g < kGroup; ++g) {
      factors[g] = RowFactors(rstd[g], product[g], plan_.width);
    }
    BackwardGroup<kFar>(plan_, rows_, index, factors, output_);
  }

  // sum(a * xh) of a row; x of the row `ahead` of it is fetched meanwhile.
  float SumProducts(int64_t index, float rstd, int64_t ahead) {
    input_.SetRstd(rstd);
    return static_cast<float>(SumRow<true>(plan_, rows_, index, input_, ahead));
  }

  void SumProductsOfGroup(int64_t index, const float (&rstd)[kGroup],
                          float (&product)[kGroup]) {
    if constexpr (kPairs == 2) {  // See SumRowsInTurn.
      if (plan_.width <= kChunk && plan_.width % kStep == 0) {
        return hn::Store(SumProductsInTurn(plan_, rows_, index,
                                           kFar ? kGroup : 0, rstd, input_),
                         D4(), product);
      }
    }
    for (int g = 0; g < kGroup; ++g) {
      const int64_t ahead = kFar && g < kFetchedBySums ? kGroup : 0;
      product[g] = SumProducts(index + g, rstd[g], ahead);
    }
  }

  const Plan& plan_;
  const Rows& rows_;
  ProductInput<T, OptionalGain<W, kWeight>> input_;
  BackwardOutput<T, W> output_;
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
  const bool even_odd = run != nullptr && dtype == DType::kBF16;
  if (run == nullptr) run = &RunBackwardRows<AnyDType, AnyDType>;
  return {run, even_odd ? &AddSums<true> : &AddSums<false>,
          SelectStoreDWeight(plan)};
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

// The walk over the rows of a norm: statistic pass, output pass, and several
// rows at a time where that pays. What is summed and what is stored is the
// operation's: a Kernel.
//
// A Kernel has
//   Codec            of the vectors
//   kRstdIsGiven     there is no statistic pass: no more than Gain, Output and
//                    Fetch are asked for
//   kGroups          whether it is built for several rows at a time as well
//   kPrepares        whether there is something to prepare
//   Prepare(rows, index)  for each row before its sum; false: exceptional
//   Input, input()   of the sum of squares
//   Gain(row, i)     the factor, shared by the rows of a group
//   kTogether        rows of a group whose outputs are made together
//   kAlone           near the cache rows from this width on are taken alone;
//                    see IsFar as well
//   Output(row, i, rstd, gain)   the Pair of `out` at i
//   Store<kFar>(output, row, i)  stores it
//   kFused           see Fused
//   kSumFetchesX     x of rows further on is fetched in the statistic pass
//   Fetch<kFar>(row, i)  what is fetched in the output pass
#if defined(FUSEDNORM_KERNELS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSEDNORM_KERNELS_NORM_INL_H_
#undef FUSEDNORM_KERNELS_NORM_INL_H_
#else
#define FUSEDNORM_KERNELS_NORM_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernels/reference.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

// How the outputs of rows far from the cache share a loop with the sums of the
// next: all rows of a group in turn, where few inputs would leave few pages
// open, one by one, or not at all, where it gains too little for its code:
// without a weight, and with several inputs on AVX2 (0.96 to 1.0 of the time).
enum class Fused { kNever, kByRow, kInTurn };

// The weight as the factor of the normalised value.

struct NoWeight {
  HWY_INLINE Pair Load(const RowData&, size_t) const {
    return {hn::Set(DF(), 1.0f), hn::Set(DF(), 1.0f)};
  }
  HWY_INLINE Pair Apply(Pair v, Pair) const { return v; }
};

template <class Weight>
constexpr Fused UnlessNoWeight(Fused fused) {
  return std::is_same<Weight, NoWeight>::value ? Fused::kNever : fused;
}

// With several inputs.
constexpr Fused kFusedByRow = kLanes == 16 ? Fused::kByRow : Fused::kNever;

// g = weight_offset + weight. An offset of 0 is not added: it would make a
// weight of -0 another, and the addition is a tenth of a bf16 row.
template <class Codec, Operand kOperand = kWeight>
class Gain {
 public:
  Gain(Codec codec, float offset)
      : codec_(codec),
        has_offset_(Opaque(offset != 0)),
        offset_(hn::Set(DF(), offset)) {}

  HWY_INLINE Pair Load(const RowData& row, size_t i) const {
    const Pair weight = codec_.Load(row.data[kOperand], i);
    const Pair gain = Choose(
        has_offset_, [&]() FUSEDNORM_LAMBDA { return Add(weight, offset_); },
        [&]() FUSEDNORM_LAMBDA { return weight; });
    // Only f32 weights can hold the NaN payloads that harm a bf16 output.
    return std::is_same<Codec, F32EvenOdd>::value ? CanonicalNaN(gain) : gain;
  }
  HWY_INLINE Pair Apply(Pair v, Pair gain) const { return Mul(v, gain); }

 private:
  Codec codec_;
  bool has_offset_;
  VF offset_;
};

// A weight whose presence is known at run time.
template <class Codec, Operand kOperand>
class OptionalGain {
 public:
  explicit OptionalGain(const Plan& plan)
      : present_(plan.has[kOperand]),
        gain_(Codec(plan.dtype[kOperand]), plan.weight_offset) {}

  HWY_INLINE Pair Load(const RowData& row, size_t i) const {
    return Choose(
        present_, [&]() FUSEDNORM_LAMBDA { return gain_.Load(row, i); },
        [&]() FUSEDNORM_LAMBDA { return NoWeight().Load(row, i); });
  }
  HWY_INLINE Pair Apply(Pair v, Pair gain) const { return Mul(v, gain); }

 private:
  bool present_;
  Gain<Codec, kOperand> gain_;
};

// Stores to `out`: past the cache where `stream`, which asks for aligned rows.
template <class Codec>
class OutStore {
 public:
  OutStore(const Plan& plan, Codec codec)
      : codec_(codec), stream_(plan.stream) {}

  template <bool kFar>
  HWY_INLINE void Store(Pair v, const RowData& row, size_t i) const {
    if constexpr (kFar) {
      if (stream_) return codec_.Stream(v, row.data[kOut], i);
    }
    codec_.Store(v, row.data[kOut], i);
  }

 private:
  Codec codec_;
  bool stream_;
};

// The output of what is less than a step, at the end of a row. A function of
// its own: it is no part of a hot loop, but would be a third of the code.
template <class Kernel>
HWY_NOINLINE void OutputTail(const Plan& plan, const Rows& rows, int64_t index,
                             float rstd, const Kernel& kernel) {
  const size_t width = static_cast<size_t>(plan.width);
  const Tail tail(plan, rows, index, width - width % kStep);
  const VF r = hn::Set(DF(), rstd);
  FUSEDNORM_NO_UNROLL
  for (size_t i = 0; i < kStep; i += 2 * kLanes) {
    const RowData& row = tail.row();
    const Pair output = kernel.Output(row, i, r, kernel.Gain(row, i));
    kernel.template Store<false>(output, row, i);
  }
  tail.CopyBack(kOut);
  tail.CopyBack(kResidualOut);
}

// Outputs come in steps whose loads and fetches are first and whose stores are
// last. A load waits for earlier stores whose address ends in the same 12 bits,
// as rows and buffers do that are whole pages apart, and a fetch for those past
// the cache: with fetches between the stores and the sum of the next row behind
// them, bf16 took 1.2 to 1.7 times as long in DRAM, f16 1.3 to 2.2, and f32
// 0.97 to 1.3 (Zen 4).

// The output of a step of a row. If `fetches`, another is fetched. loads() are
// those of others, before the stores.
template <bool kFar, class Kernel, class Loads>
HWY_INLINE void OutputStep(const RowData& row, const RowData& fetched,
                           bool fetches, size_t i, VF rstd,
                           const Kernel& kernel, const Loads& loads) {
  // Two at once: more, where vectors are short, would not stay in registers
  // beside the lanes of a sum (1.04 to 1.08 of the time for f32 on AVX2).
  constexpr size_t kAtOnce = 2;
  static_assert(kPairs % kAtOnce == 0, "");
  FUSEDNORM_UNROLL
  for (size_t first = 0; first < kPairs; first += kAtOnce) {
    Pair output[kAtOnce];
    FUSEDNORM_UNROLL
    for (size_t p = 0; p < kAtOnce; ++p) {
      const size_t k = i + (first + p) * 2 * kLanes;
      output[p] = kernel.Output(row, k, rstd, kernel.Gain(row, k));
      if (fetches) kernel.template Fetch<kFar>(fetched, k);
    }
    if (first == 0) loads();
    FUSEDNORM_UNROLL
    for (size_t p = 0; p < kAtOnce; ++p) {
      const size_t k = i + (first + p) * 2 * kLanes;
      kernel.template Store<kFar>(output[p], row, k);
    }
  }
}

// Near the cache the outputs of rows from this many bytes on begin at the end:
// what the sum has read last is still in the first level (0.95 of the time for
// f32 at 1x16384, 0.97 at 1x8192 on Emerald Rapids; shorter rows lose up to
// 4 %).
constexpr int64_t kBackwardsBytes = 32 * 1024;

// The output pass of one row, that at `index`.
template <bool kFar, class Kernel>
HWY_INLINE void OutputRow(const Plan& plan, const Rows& rows, int64_t index,
                          const RowData& row, const RowData& fetched,
                          float rstd, const Kernel& kernel) {
  const size_t width = static_cast<size_t>(plan.width);
  const VF r = hn::Set(DF(), rstd);
  const size_t whole = width - width % kStep;
  const bool backwards =
      !kFar && plan.width * Kernel::Codec::kSize >= kBackwardsBytes;
  size_t i = backwards ? whole - kStep : 0;
  const size_t step = backwards ? 0 - size_t{kStep} : kStep;
  for (size_t left = whole; left > 0; left -= kStep, i += step) {
    OutputStep<kFar>(row, fetched, /*fetches=*/kFar, i, r, kernel,
                     []() FUSEDNORM_LAMBDA {});
  }
  if (HWY_UNLIKELY(whole < width)) {
    const Kernel copy = kernel;  // See RowData.
    OutputTail(plan, rows, index, rstd, copy);
  }
}

// One row at a time.
template <class Kernel>
HWY_INLINE void NormaliseRow(const Plan& plan, const Rows& rows, int64_t index,
                             Kernel& kernel) {
  constexpr bool kStores = Kernel::Input::kStored != kOperands;
  if (HWY_UNLIKELY(!kernel.Prepare(rows, index))) {
    return ExceptionalRow(plan, rows, index, /*sum_is_stored=*/false);
  }
  // Sums that need preparation are long code, built once: the row then fetches
  // itself, which is nothing beside them.
  const double sum =
      SumRow<Kernel::kPrepares>(plan, rows, index, kernel.input());
  const Statistic statistic =
      StatisticFromSum(sum, static_cast<float>(plan.width), plan.eps);
  if (HWY_UNLIKELY(!statistic.ordinary)) {
    return ExceptionalRow(plan, rows, index, kStores);
  }
  if (plan.has[kRstd]) {
    *reinterpret_cast<float*>(rows.Row(kRstd, index)) = statistic.rstd;
  }
  const RowData row(rows, index);
  OutputRow<false>(plan, rows, index, row, row, statistic.rstd, kernel);
}

// Groups of rows: their statistics are made together in one vector.

// The statistic of reduction.h for a group; false if one is not ordinary.
HWY_INLINE bool GroupStatistic(V4 sums, float width, float eps, float* rstd) {
  const D4 d;
  const V4 m = hn::Add(hn::Div(sums, hn::Set(d, width)), hn::Set(d, eps));
  hn::Store(hn::Div(hn::Set(d, 1.0f), hn::Sqrt(m)), d, rstd);
  const float least = eps >= 0x1p-60f ? 0.0f : width * 0x1p-100f;
  return hn::AllTrue(d, hn::And(hn::Le(m, hn::Set(d, 3.402823466e38f)),
                                hn::Ge(sums, hn::Set(d, least))));
}

// The sums of a group. Bit g of `summed`: row g was exceptional before its sum,
// which then is NaN, if it is not set.
template <bool kFar, class Kernel>
HWY_INLINE V4 SumGroup(const Plan& plan, const Rows& rows, int64_t index,
                       int64_t ahead, Kernel& kernel, unsigned* summed) {
  // See OutputInTurn.
  constexpr bool kFetches =
      Kernel::kSumFetchesX && (kFar || Kernel::Codec::kSize == 2);
  *summed = (1u << kGroup) - 1;
  if constexpr (Kernel::kPrepares) {
    alignas(16) float sums[kGroup];
    for (int g = 0; g < kGroup; ++g) {
      if (HWY_LIKELY(kernel.Prepare(rows, index + g))) {
        sums[g] = static_cast<float>(SumRow<true>(
            plan, rows, index + g, kernel.input(), kFetches ? ahead : 0));
      } else {
        sums[g] = std::numeric_limits<float>::quiet_NaN();
        *summed &= ~(1u << g);
      }
    }
    return hn::Load(D4(), sums);
  } else {
    return SumRows<kFetches>(plan, rows, index, kernel.input(), ahead);
  }
}

// kTogether where an output takes several rows of input: the lines of four of
// each, whole pages apart, are more than a set of the first cache holds.
// Vectors of a whole line need it but once.
constexpr int kTogetherOfSeveral = kLanes < 16 ? kGroup / 2 : kGroup;

// kAlone is for f32 where x is all that is read: the caches bound such rows,
// and x of a single one is still in the first of them when its output is made
// (0.8 to 0.9 of a group's time for widths of 1024 to 4096 on Skylake; 1.0 on
// Zen 4, and 1.15 if they are new to the cache). With a residual it gains
// nothing, or loses 7 % on AVX2.
constexpr int64_t kNeverAlone = std::numeric_limits<int64_t>::max();

// One Pair of the outputs of kTogether rows, from row `first` of a group on.
template <bool kFar, class Kernel>
HWY_INLINE void OutputTurn(const GroupData& group, int first, size_t i,
                           const VF (&rstd)[kGroup], const Kernel& kernel) {
  constexpr int kTogether = Kernel::kTogether;
  const Pair gain = kernel.Gain(group.row[0], i);
  Pair output[kTogether];
  FUSEDNORM_UNROLL
  for (int t = 0; t < kTogether; ++t) {
    const int g = first + t;
    output[t] = kernel.Output(group.row[g], i, rstd[g], gain);
    kernel.template Fetch<kFar>(group.fetched[g], i);
  }
  FUSEDNORM_UNROLL
  for (int t = 0; t < kTogether; ++t) {
    const int g = first + t;
    kernel.template Store<kFar>(output[t], group.row[g], i);
  }
}

// The outputs of the group at `index` in turn: each gain is loaded once for
// kTogether rows, and several pages are open. Near the cache, where 16 bits
// have this, rows are fetched as well: they may be new to it, and then take
// 0.75 to 0.95 of the time. If they are in the second level they take 0.85
// to 1.04; rows of f32, which the caches bound, would take 1.1 to 1.2 (Emerald
// Rapids).
template <bool kFar, class Kernel>
HWY_INLINE void OutputInTurn(const Plan& plan, const Rows& rows, int64_t index,
                             const float* rstd, int64_t ahead,
                             const Kernel& kernel) {
  const size_t width = static_cast<size_t>(plan.width);
  const GroupData group(rows, index, ahead);
  VF r[kGroup];
  FUSEDNORM_UNROLL
  for (int g = 0; g < kGroup; ++g) r[g] = hn::Set(DF(), rstd[g]);
  const size_t whole = width - width % kStep;
  FUSEDNORM_UNROLL
  for (int first = 0; first < kGroup; first += Kernel::kTogether) {
    for (size_t i = 0; i < whole; i += 2 * kLanes) {
      OutputTurn<kFar>(group, first, i, r, kernel);
    }
  }
  if (HWY_UNLIKELY(whole < width)) {
    const Kernel copy = kernel;  // See RowData.
    FUSEDNORM_NO_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      OutputTail(plan, rows, index + g, rstd[g], copy);
    }
  }
}

// Shorter rows are summed faster by groups than fused with outputs.
constexpr int64_t kLongRow = 256;

// Whether stores past the cache go to four rows in turn: four pages are open
// then, as in memcpy, which pays where rows are long (0.86 of the time for bf16
// at 16384x4096 on Emerald Rapids, 0.92 for f32 on Skylake) and a vector is a
// line. Elsewhere one row after the other: 0.75 of the time for f32 at
// 131072x128 (Skylake), 0.64 on AVX2 at 16384x4096 (Zen 3; 1.17 on Zen 4, which
// has AVX-512). So does bf16 where the lines of these and the next four rows,
// whole pages apart, crowd each other out of the first cache: 0.74 to 0.84
// (Zen 4). It would cost f32 1.1, f16 up to 1.1.
template <class Codec>
HWY_INLINE bool FarRowsInTurn(const Plan& plan) {
  constexpr bool kWholeLines = kLanes * sizeof(float) == kLine;
  if (Codec::kEvenOdd && plan.few_ways) return false;
  return kWholeLines && plan.stream && plan.width >= kLongRow;
}

// The outputs of the group at `index`. In cache 16 bits go in turn, because
// gains cost.
template <bool kFar, class Kernel>
HWY_INLINE void OutputGroup(const Plan& plan, const Rows& rows, int64_t index,
                            const float* rstd, int64_t ahead,
                            const Kernel& kernel) {
  constexpr bool kIsF32 = Kernel::Codec::kSize == 4;
  // Those that are fused have this for a last group alone.
  constexpr bool kApart = Kernel::kFused == Fused::kNever;
  const bool far_in_turn = (Kernel::kRstdIsGiven || (kApart && kIsF32)) &&
                           FarRowsInTurn<typename Kernel::Codec>(plan);
  if (kFar ? far_in_turn : !kIsF32) {
    return OutputInTurn<kFar>(plan, rows, index, rstd, ahead, kernel);
  }
  RowData row(rows, index);
  RowData fetched = row.Further(rows, ahead);
  for (int g = 0; g < kGroup; ++g) {
    OutputRow<kFar>(plan, rows, index + g, row, fetched, rstd[g], kernel);
    row = row.Further(rows, 1);
    fetched = fetched.Further(rows, 1);
  }
}

// The outputs of the group at `index` and, in one loop with them, the sums of
// the next: while sums are made by themselves, from lines that were fetched,
// the way to memory idles. 0.75 to 0.93 of the time in DRAM (Emerald Rapids).
// Rows are whole steps, of at most a chunk.

template <class Kernel>
HWY_INLINE V4 OutputAndSumInTurn(const Plan& plan, const Rows& rows,
                                 int64_t index, const float* rstd,
                                 int64_t ahead, const Kernel& kernel_in) {
  static_assert(Kernel::kTogether == kGroup && !Kernel::kSumFetchesX, "");
  const Kernel kernel = kernel_in;  // See RowData.
  const size_t width = static_cast<size_t>(plan.width);
  const GroupData group(rows, index, ahead);
  const GroupData next(rows, index + kGroup, 0);
  VF r[kGroup];
  FUSEDNORM_UNROLL
  for (int g = 0; g < kGroup; ++g) r[g] = hn::Set(DF(), rstd[g]);
  const auto output = [&](size_t i) FUSEDNORM_LAMBDA {
    FUSEDNORM_UNROLL
    for (size_t p = 0; p < kPairs; ++p) {
      OutputTurn<true>(group, 0, i + p * 2 * kLanes, r, kernel);
    }
  };
  const auto add =
      [&](Lanes& lanes, int g, size_t p, size_t i)
          FUSEDNORM_LAMBDA { kernel.input().Add(lanes, p, next.row[g], i); };
  return SumRowsInTurn<Kernel::Input::kEvenOdd>(width, add, output);
}

// Row by row. `summed`: see SumGroup. With `ahead` 0 nothing is fetched.
template <class Kernel>
HWY_INLINE V4 OutputAndSumRows(const Plan& plan, const Rows& rows,
                               int64_t index, const float* rstd, int64_t ahead,
                               Kernel& kernel, unsigned* summed) {
  constexpr Operand kStored = Kernel::Input::kStored;
  const size_t width = static_cast<size_t>(plan.width);
  const bool fetches = ahead != 0;
  *summed = (1u << kGroup) - 1;
  V4 block[kGroup];
  for (int g = 0; g < kGroup; ++g) {
    const RowData row(rows, index + g);
    const RowData fetched(rows, index + g + ahead);
    const int64_t next = index + kGroup + g;
    if (HWY_UNLIKELY(!kernel.Prepare(rows, next))) {
      OutputRow<true>(plan, rows, index + g, row, fetched, rstd[g], kernel);
      block[g] = hn::Set(D4(), std::numeric_limits<float>::quiet_NaN());
      *summed &= ~(1u << g);
      continue;
    }
    if constexpr (kStored != kOperands) {  // Fuses saw to it.
      if (row.data[kStored] == nullptr) __builtin_unreachable();
    }
    const Kernel copy = kernel;
    const VF r = hn::Set(DF(), rstd[g]);
    const auto output = [&](size_t i, const auto& add) FUSEDNORM_LAMBDA {
      OutputStep<true>(row, fetched, fetches, i, r, copy, add);
      if (Kernel::kSumFetchesX && fetches) {
        FetchElements<Kernel::Codec::kSize, kStep>(fetched.data[kX], i);
      }
    };
    block[g] = SumChunk<true>(plan, rows, next, 0, width, copy.input(), output);
  }
  return FoldBlocks(block[0], block[1], block[2], block[3]);
}

// Whether rows of the plan are of the kind that is fused.
template <class Kernel>
HWY_INLINE bool Fuses(const Plan& plan) {
  constexpr Operand kStored = Kernel::Input::kStored;
  if constexpr (kStored != kOperands) {
    if (!plan.has[kStored]) return false;
  }
  return Kernel::kFused != Fused::kNever && plan.width >= kLongRow &&
         plan.width % kStep == 0;
}

template <class Kernel>
HWY_INLINE V4 OutputAndSumGroup(const Plan& plan, const Rows& rows,
                                int64_t index, const float* rstd, int64_t ahead,
                                Kernel& kernel, unsigned* summed) {
  if constexpr (Kernel::kFused == Fused::kInTurn) {
    if (FarRowsInTurn<typename Kernel::Codec>(plan)) {
      return OutputAndSumInTurn(plan, rows, index, rstd, ahead, kernel);
    }
  }
  return OutputAndSumRows(plan, rows, index, rstd, ahead, kernel, summed);
}

// How far ahead rows are fetched: past the next group, whose statistic is made
// first, and further where rows are short. By elements, which take as long in
// 16 bits as in 32: half as many cost f32 heads in DRAM 1.1 to 1.25 times,
// twice as many bf16 ones 1.07.
constexpr int64_t kFetchElements = 4096;

// Rows of f32 that share a loop with the next are fetched from memory alone:
// from the third cache they take 0.91 to 0.97 of the time as they are, and 0.91
// to 1.06 if they are not there after all (Emerald Rapids; 0.93 to 1.03 and
// 1.15 to 1.37 on Zen 4).
template <class Kernel>
HWY_INLINE int64_t FetchDistance(const Plan& plan, bool fuses) {
  if (Kernel::Codec::kSize == 4 && fuses && !plan.memory) return 0;
  return kGroup * std::max<int64_t>(2, kFetchElements / (kGroup * plan.width));
}

// From a group at `index` to what is fetched beside it: behind the last group
// there is nothing to fetch but this one.
HWY_INLINE int64_t Reach(int64_t index, int64_t ahead, int64_t end) {
  return index + ahead < end ? ahead : 0;
}

// As many whole groups as there are; returns the rows that are done. The
// statistic of a group is made before the output of the one before, whose work
// hides its latency.
template <bool kFar, class Kernel>
HWY_INLINE int64_t NormaliseGroups(const Plan& plan, const Rows& rows,
                                   Kernel& kernel) {
  constexpr bool kStores = Kernel::Input::kStored != kOperands;
  const int64_t end = rows.count - rows.count % kGroup;
  const float width = static_cast<float>(plan.width);
  const bool fuses = kFar && Fuses<Kernel>(plan);
  const int64_t ahead = FetchDistance<Kernel>(plan, fuses);
  // From the group whose sums are made.
  const int64_t sum_ahead = std::max<int64_t>(ahead - kGroup, 0);
  unsigned summed;
  V4 sums =
      SumGroup<kFar>(plan, rows, 0, Reach(0, sum_ahead, end), kernel, &summed);
  for (int64_t index = 0; index < end; index += kGroup) {
    alignas(16) float rstd[kGroup];
    const bool ordinary = GroupStatistic(sums, width, plan.eps, rstd);
    const unsigned stored = kStores ? summed : 0;
    if (ordinary && plan.has[kRstd]) {
      FUSEDNORM_NO_UNROLL
      for (int g = 0; g < kGroup; ++g) {
        *reinterpret_cast<float*>(rows.Row(kRstd, index + g)) = rstd[g];
      }
    }
    const bool last = index + kGroup == end;
    const int64_t reach = Reach(index, ahead, end);
    if constexpr (kFar && Kernel::kFused != Fused::kNever) {
      if (fuses && ordinary && !last) {
        sums =
            OutputAndSumGroup(plan, rows, index, rstd, reach, kernel, &summed);
        continue;
      }
    }
    if (!last) {
      const int64_t next = index + kGroup;
      sums = SumGroup<kFar>(plan, rows, next, Reach(next, sum_ahead, end),
                            kernel, &summed);
    }
    if (HWY_UNLIKELY(!ordinary)) {
      FUSEDNORM_NO_UNROLL
      for (int g = 0; g < kGroup; ++g) {
        ExceptionalRow(plan, rows, index + g, (stored >> g & 1) != 0);
      }
      continue;
    }
    OutputGroup<kFar>(plan, rows, index, rstd, reach, kernel);
  }
  if (kFar && plan.stream) hwy::FlushStream();
  return end;
}

// rstd of a row as the caller gives it. NaN is made one whose payload no
// rounding carries into the sign.
HWY_INLINE float GivenRstd(const Rows& rows, int64_t index) {
  const float rstd = *reinterpret_cast<const float*>(rows.Row(kRstd, index));
  return rstd == rstd ? rstd : std::numeric_limits<float>::quiet_NaN();
}

// The same where rstd is given: output passes alone.
template <bool kFar, class Kernel>
HWY_INLINE int64_t OutputGroups(const Plan& plan, const Rows& rows,
                                const Kernel& kernel) {
  const int64_t end = rows.count - rows.count % kGroup;
  for (int64_t index = 0; index < end; index += kGroup) {
    float rstd[kGroup];
    for (int g = 0; g < kGroup; ++g) rstd[g] = GivenRstd(rows, index + g);
    OutputGroup<kFar>(plan, rows, index, rstd, Reach(index, kGroup, end),
                      kernel);
  }
  if (kFar && plan.stream) hwy::FlushStream();
  return end;
}

// f32 that is all a call reads is near in the third cache as well: 0.92 to 0.96
// of the time, and 1.02 to 1.06 if it is not there after all (Emerald Rapids;
// 0.8, and 1.2 to 1.4, on Zen 4).
template <class Kernel>
HWY_INLINE bool IsFar(const Plan& plan) {
  return Kernel::kAlone != kNeverAlone ? plan.memory : plan.far;
}

template <class Kernel>
HWY_INLINE void NormaliseRows(const Plan& plan, const Rows& rows,
                              Kernel kernel) {
  int64_t index = 0;
  if constexpr (Kernel::kGroups) {
    const bool far = IsFar<Kernel>(plan);
    const bool pays = far || plan.width < Kernel::kAlone;
    if (pays && rows.count >= kGroup && plan.width <= kChunk &&
        rows.stride[kWeight] == 0 && rows.stride[kWeightPre] == 0) {
      if constexpr (Kernel::kRstdIsGiven) {
        index = far ? OutputGroups<true>(plan, rows, kernel)
                    : OutputGroups<false>(plan, rows, kernel);
      } else {
        index = far ? NormaliseGroups<true>(plan, rows, kernel)
                    : NormaliseGroups<false>(plan, rows, kernel);
      }
    }
  }
  for (; index < rows.count; ++index) {
    if constexpr (Kernel::kRstdIsGiven) {
      const RowData row(rows, index);
      OutputRow<false>(plan, rows, index, row, row, GivenRstd(rows, index),
                       kernel);
    } else {
      NormaliseRow(plan, rows, index, kernel);
    }
  }
}

// An operation is a class with
//   Codec, that of its vectors
//   template <class Weight> using Kernel, constructed from (plan, weight)
// Below are its row kernels by kind of weight.

template <class Operation, class Weight>
HWY_INLINE void RunOperation(const Plan& plan, const Rows& rows,
                             const Weight& weight) {
  using Kernel = typename Operation::template Kernel<Weight>;
  NormaliseRows(plan, rows, Kernel(plan, weight));
}

template <class Operation>
void RunWithoutWeight(const Plan& plan, const Rows& rows) {
  RunOperation<Operation>(plan, rows, NoWeight());
}

template <class Operation, class Codec>
void RunWithWeight(const Plan& plan, const Rows& rows) {
  RunOperation<Operation>(
      plan, rows, Gain<Codec>(Codec(plan.dtype[kWeight]), plan.weight_offset));
}

// The kernel for a weight of the vectors' dtype, of f32, or none; null for
// other dtypes.
template <class Operation>
RowKernel SelectByWeight(const Plan& plan) {
  using Codec = typename Operation::Codec;
  if (!plan.has[kWeight]) return &RunWithoutWeight<Operation>;
  if (plan.dtype[kWeight] == plan.dtype[kX]) {
    return &RunWithWeight<Operation, Codec>;
  }
  if (plan.dtype[kWeight] == DType::kF32) {
    return &RunWithWeight<Operation, typename Codec::F32Beside>;
  }
  return nullptr;
}

// Any dtypes: an operation in AnyDType.
template <class Operation>
void RunMixed(const Plan& plan, const Rows& rows) {
  if (plan.has[kWeight]) {
    const Gain<AnyDType> weight(AnyDType(plan.dtype[kWeight]),
                                plan.weight_offset);
    RunOperation<Operation>(plan, rows, weight);
  } else {
    RunOperation<Operation>(plan, rows, NoWeight());
  }
}

// A family of operations is a class with
//   template <class T, class Middle> using Operation = ...;
// in T for all vectors, or AnyDType. Middle rounds the normalised value before
// the weight; F32 rounds nothing.
//   kF32, kBeforeWeight  whether it has kernels of its own for f32 alone, and
//                        for that rounding; else those for any dtype do

template <class Family, class T>
RowKernel SelectMiddle(const Plan& plan) {
  if (plan.rounding == Rounding::kOnce) {
    return SelectByWeight<typename Family::template Operation<T, F32>>(plan);
  }
  if constexpr (Family::kBeforeWeight) {
    return SelectByWeight<typename Family::template Operation<T, T>>(plan);
  }
  return nullptr;
}

template <class Family>
RowKernel SelectUniform(const Plan& plan) {
  switch (plan.dtype[kX]) {
    case DType::kBF16:
      return SelectMiddle<Family, BF16>(plan);
    case DType::kF16:
      return SelectMiddle<Family, F16>(plan);
    default:
      if constexpr (Family::kF32) {  // Which has nothing to round to.
        return SelectByWeight<typename Family::template Operation<F32, F32>>(
            plan);
      }
      return nullptr;
  }
}

template <class Family>
RowKernel SelectNorm(const Plan& plan) {
  bool uniform = true;
  for (Operand k : {kResidual, kOut}) {
    if (plan.has[k] && plan.dtype[k] != plan.dtype[kX]) uniform = false;
  }
  const RowKernel kernel = uniform ? SelectUniform<Family>(plan) : nullptr;
  if (kernel != nullptr) return kernel;
  return &RunMixed<typename Family::template Operation<AnyDType, AnyDType>>;
}

// The dtype to which Middle rounds.
HWY_INLINE DType MiddleDType(const Plan& plan, Operand vector) {
  return plan.rounding == Rounding::kBeforeWeight ? plan.dtype[vector]
                                                  : DType::kF32;
}

// Whether several rows at a time are worth their code.
template <class Codec>
constexpr bool GroupsPay() {
  return !std::is_same<Codec, AnyDType>::value;
}

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_KERNELS_NORM_INL_H_

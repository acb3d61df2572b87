// The walk over the rows of a norm: statistic pass, output pass, and several
// rows at a time where that pays. What is summed and what is stored is the
// operation's: a Kernel.
//
// A Kernel has
//   Codec            of the vectors
//   kGroups          whether it is built for several rows at a time as well
//   Prepare(row)     once for each row, before its passes; false: exceptional
//   Input, input()   of the sum of squares
//   Gain(row, i)     the factor, shared by the rows of a group
//   Output(row, i, rstd, gain, far)  computes and stores the Pair at i
//   Prefetch(ahead, i)  fetches the inputs of a row
#if defined(FUSEDNORM_KERNELS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSEDNORM_KERNELS_NORM_INL_H_
#undef FUSEDNORM_KERNELS_NORM_INL_H_
#else
#define FUSEDNORM_KERNELS_NORM_INL_H_
#endif

#include "kernels/reference.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

// The weight as the factor of the normalised value.

struct NoWeight {
  HWY_INLINE Pair Load(const RowData&, size_t) const {
    return {hn::Set(DF(), 1.0f), hn::Set(DF(), 1.0f)};
  }
  HWY_INLINE Pair Apply(Pair v, Pair) const { return v; }
};

// g = weight_offset + weight. An offset of 0 is added as -0, which leaves every
// weight as it is, a weight of -0 included.
template <class Codec, Operand kOperand = kWeight>
class Gain {
 public:
  Gain(Codec codec, float offset)
      : codec_(codec), offset_(hn::Set(DF(), offset == 0 ? -0.0f : offset)) {}

  HWY_INLINE Pair Load(const RowData& row, size_t i) const {
    const Pair gain = Add(codec_.Load(row.data[kOperand], i), offset_);
    // Only f32 weights can hold the NaN payloads that harm a bf16 output.
    return std::is_same<Codec, F32EvenOdd>::value ? CanonicalNaN(gain) : gain;
  }
  HWY_INLINE Pair Apply(Pair v, Pair gain) const { return Mul(v, gain); }

 private:
  Codec codec_;
  VF offset_;
};

// Gains that were computed once for all rows, in the order of Pairs.
struct WidenedGain {
  HWY_INLINE Pair Load(const RowData& row, size_t i) const {
    const DF df;
    const float* p = row.columns + i;
    return {hn::Load(df, p), hn::Load(df, p + kLanes)};
  }
  HWY_INLINE Pair Apply(Pair v, Pair gain) const { return Mul(v, gain); }
};

// A weight whose presence is known at run time.
template <class Codec, Operand kOperand>
class OptionalGain {
 public:
  explicit OptionalGain(const Plan& plan)
      : present_(plan.has[kOperand]),
        gain_(Codec(plan.dtype[kOperand]), plan.weight_offset) {}

  HWY_INLINE Pair Load(const RowData& row, size_t i) const {
    return present_ ? gain_.Load(row, i) : NoWeight().Load(row, i);
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

  HWY_INLINE void operator()(Pair v, const RowData& row, size_t i,
                             bool far) const {
    if constexpr (!std::is_same<Codec, AnyDType>::value) {
      if (far && stream_) return codec_.Stream(v, row.data[kOut], i);
    }
    codec_.Store(v, row.data[kOut], i);
  }

 private:
  Codec codec_;
  bool stream_;
};

// One row at a time.
template <class Kernel>
HWY_INLINE void NormaliseRow(const Plan& plan, const Rows& rows,
                             const RowData& row, int64_t index,
                             Kernel& kernel) {
  constexpr bool kStores = Kernel::Input::kStored != kOperands;
  if (HWY_UNLIKELY(!kernel.Prepare(row))) {
    return ExceptionalRow(plan, rows, index, /*sum_is_stored=*/false);
  }
  const double sum = SumRow(plan, row, kernel.input());
  const Statistic statistic =
      StatisticFromSum(sum, static_cast<float>(plan.width), plan.eps);
  if (HWY_UNLIKELY(!statistic.ordinary)) {
    return ExceptionalRow(plan, rows, index, kStores);
  }
  if (plan.has[kRstd]) {
    *reinterpret_cast<float*>(row.data[kRstd]) = statistic.rstd;
  }
  const VF rstd = hn::Set(DF(), statistic.rstd);
  ForEachPair(plan, row, [&](const RowData& r, size_t i) FUSEDNORM_LAMBDA {
    kernel.Output(r, i, rstd, kernel.Gain(r, i), /*far=*/false);
  });
}

// Rows of a group: their statistics are made together in one vector, and their
// outputs in turn, which loads each gain once and, far from the cache, keeps
// four pages open.
constexpr int kGroup = 4;

// statistic of reduction.h for four rows; false if one is not ordinary.
HWY_INLINE bool GroupStatistic(const Plan& plan, V4 sums, float* rstd) {
  const D4 d;
  const float width = static_cast<float>(plan.width);
  const V4 m = hn::Add(hn::Div(sums, hn::Set(d, width)), hn::Set(d, plan.eps));
  hn::Store(hn::Div(hn::Set(d, 1.0f), hn::Sqrt(m)), d, rstd);
  const float least = plan.eps >= 0x1p-60f ? 0.0f : width * 0x1p-100f;
  return hn::AllTrue(d, hn::And(hn::Le(m, hn::Set(d, 3.402823466e38f)),
                                hn::Ge(sums, hn::Set(d, least))));
}

// False, with nothing but what the statistic pass stores written, if a row is
// exceptional. Far from the cache the next group is fetched while this one is
// written.
template <class Kernel>
HWY_INLINE bool NormaliseGroup(const Plan& plan, const Rows& rows,
                               const RowData (&row)[kGroup], bool far,
                               const Kernel& kernel) {
  const size_t width = static_cast<size_t>(plan.width);
  alignas(16) float rstd[kGroup];
  const V4 sums = SumRows(plan, row, kernel.input());
  if (HWY_UNLIKELY(!GroupStatistic(plan, sums, rstd))) return false;
  VF r[kGroup];
  FUSEDNORM_UNROLL
  for (int g = 0; g < kGroup; ++g) {
    r[g] = hn::Set(DF(), rstd[g]);
    if (plan.has[kRstd]) {
      *reinterpret_cast<float*>(row[g].data[kRstd]) = rstd[g];
    }
  }
  // A copy that no call sees: the compiler knows that no store changes it.
  RowData local[kGroup];
  RowData ahead[kGroup];  // The next group.
  FUSEDNORM_UNROLL
  for (int g = 0; g < kGroup; ++g) {
    local[g] = ahead[g] = row[g];
    for (int n = 0; n < kGroup; ++n) ahead[g].Advance(rows);
  }
  const size_t whole = width - width % kStep;
  for (size_t i = 0; i < whole; i += 2 * kLanes) {
    const Pair gain = kernel.Gain(local[0], i);
    FUSEDNORM_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      kernel.Output(local[g], i, r[g], gain, far);
      if (far) kernel.Prefetch(ahead[g], i);
    }
  }
  if (HWY_UNLIKELY(whole < width)) {
    for (int g = 0; g < kGroup; ++g) {
      const Tail tail(plan, row[g], whole);
      for (size_t i = 0; i < kStep; i += 2 * kLanes) {
        kernel.Output(tail.row(), i, r[g], kernel.Gain(tail.row(), i),
                      /*far=*/false);
      }
      tail.CopyBack(kOut);
      tail.CopyBack(kResidualOut);
    }
  }
  return true;
}

// As many whole groups as there are; returns the rows that are done.
template <class Kernel>
HWY_INLINE int64_t NormaliseGroups(const Plan& plan, const Rows& rows,
                                   float* gains, const Kernel& kernel) {
  constexpr bool kStores = Kernel::Input::kStored != kOperands;
  const bool far = plan.far;
  RowData row[kGroup];
  row[0] = RowData(rows, gains);
  int64_t index = 0;
  for (; index + kGroup <= rows.count; index += kGroup) {
    for (int g = 1; g < kGroup; ++g) {
      row[g] = row[g - 1];
      row[g].Advance(rows);
    }
    if (HWY_UNLIKELY(!NormaliseGroup(plan, rows, row, far, kernel))) {
      for (int g = 0; g < kGroup; ++g) {
        ExceptionalRow(plan, rows, index + g, kStores);
      }
    }
    row[0] = row[kGroup - 1];
    row[0].Advance(rows);
  }
  if (far && plan.stream) hwy::FlushStream();
  return index;
}

// A group of rows and their outputs have to stay in the first cache between
// the passes; the value is half of a common 32 KiB.
constexpr int64_t kMaxNearGroupBytes = 16 * 1024;

template <class Kernel>
HWY_INLINE void NormaliseRows(const Plan& plan, const Rows& rows, float* gains,
                              Kernel kernel) {
  int64_t index = 0;
  if constexpr (Kernel::kGroups) {
    const int64_t group_bytes = kGroup * plan.width * Kernel::Codec::kSize;
    if (plan.width <= kChunk && rows.stride[kWeight] == 0 &&
        (plan.far || group_bytes <= kMaxNearGroupBytes)) {
      index = NormaliseGroups(plan, rows, gains, kernel);
    }
  }
  RowData row(rows, gains);
  for (int64_t skipped = 0; skipped < index; ++skipped) row.Advance(rows);
  for (; index < rows.count; ++index, row.Advance(rows)) {
    NormaliseRow(plan, rows, row, index, kernel);
  }
}

// An operation is a class with
//   Codec, that of its vectors
//   template <class Weight> using Kernel, constructed from (plan, weight)
// Below are its row kernels by kind of weight.

template <class Operation, class Weight>
HWY_INLINE void RunOperation(const Plan& plan, const Rows& rows,
                             const Weight& weight, float* gains) {
  using Kernel = typename Operation::template Kernel<Weight>;
  NormaliseRows(plan, rows, gains, Kernel(plan, weight));
}

// Stack for widened gains, half of the 32 KiB that a call may use: the frames
// below it take up to 14 KiB.
constexpr int64_t kMaxWidened = 4096;
// Widening reads and writes a row once; from here on that is small change.
constexpr int64_t kMinRowsToWiden = 8;

template <class Operation>
HWY_NOINLINE void RunWidened(const Plan& plan, const Rows& rows, float* gains) {
  RunOperation<Operation>(plan, rows, WidenedGain(), gains);
}

template <class Operation, class Weight>
HWY_NOINLINE void WidenAndRun(const Plan& plan, const Rows& rows,
                              const Weight& weight) {
  alignas(64) float gains[kMaxWidened];
  Plan weight_only = {};
  weight_only.width = plan.width;
  if (plan.has[kWeight]) weight_only.operands[weight_only.count++] = kWeight;
  weight_only.dtype[kWeight] = plan.dtype[kWeight];
  const RowData row(rows, gains);
  ForEachPair(weight_only, row,
              [&](const RowData& r, size_t i) FUSEDNORM_LAMBDA {
                const DF df;
                const Pair g = weight.Load(r, i);
                float* p = r.columns + i;
                hn::Store(g.a, df, p);
                hn::Store(g.b, df, p + kLanes);
              });
  RunWidened<Operation>(plan, rows, gains);
}

template <class Operation, class Weight>
HWY_INLINE void WidenOrRun(const Plan& plan, const Rows& rows,
                           const Weight& weight) {
  if (Operation::Codec::kSize == 2 && rows.stride[kWeight] == 0 &&
      rows.count >= kMinRowsToWiden && plan.width <= kMaxWidened) {
    WidenAndRun<Operation>(plan, rows, weight);
  } else {
    RunOperation<Operation>(plan, rows, weight, nullptr);
  }
}

template <class Operation>
void RunWithoutWeight(const Plan& plan, const Rows& rows) {
  WidenOrRun<Operation>(plan, rows, NoWeight());
}

template <class Operation, class Codec>
void RunWithWeight(const Plan& plan, const Rows& rows) {
  WidenOrRun<Operation>(
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
    RunOperation<Operation>(plan, rows, weight, nullptr);
  } else {
    RunOperation<Operation>(plan, rows, NoWeight(), nullptr);
  }
}

// The kernel of a family of operations, a class with
//   template <class T, class Middle> using Operation = ...;
// in T for all vectors, or AnyDType. Middle rounds the normalised value before
// the weight; F32 rounds nothing.
template <class Family>
RowKernel SelectNorm(const Plan& plan) {
  const bool before = plan.rounding == Rounding::kBeforeWeight;
  bool uniform = true;
  for (Operand k : {kResidual, kOut}) {
    if (plan.has[k] && plan.dtype[k] != plan.dtype[kX]) uniform = false;
  }
  RowKernel kernel = nullptr;
  if (uniform && plan.dtype[kX] == DType::kF32) {
    kernel =
        SelectByWeight<typename Family::template Operation<F32, F32>>(plan);
  } else if (uniform && plan.dtype[kX] == DType::kBF16) {
    kernel =
        before
            ? SelectByWeight<typename Family::template Operation<BF16, BF16>>(
                  plan)
            : SelectByWeight<typename Family::template Operation<BF16, F32>>(
                  plan);
  } else if (uniform && plan.dtype[kX] == DType::kF16) {
    kernel =
        before ? SelectByWeight<typename Family::template Operation<F16, F16>>(
                     plan)
               : SelectByWeight<typename Family::template Operation<F16, F32>>(
                     plan);
  }
  if (kernel != nullptr) return kernel;
  return &RunMixed<typename Family::template Operation<AnyDType, AnyDType>>;
}

// The dtype to which Middle rounds.
HWY_INLINE DType MiddleDType(const Plan& plan, Operand vector) {
  return plan.rounding == Rounding::kBeforeWeight ? plan.dtype[vector]
                                                  : DType::kF32;
}

// Whether several rows at a time are worth their code: f32, or 16 bits with
// widened gains.
template <class Codec, class Weight>
constexpr bool GroupsPay() {
  return Codec::kSize == 4 || std::is_same<Weight, WidenedGain>::value;
}

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_KERNELS_NORM_INL_H_

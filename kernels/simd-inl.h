// Rows as vectors of f32: load, store and rounding of each dtype, the sum of
// squares in its fixed order, and the walk over a row.
//
// The unit is a Pair, two f32 vectors that hold 2N consecutive elements. In
// which order is the codec's choice: one after the other, or even and odd
// elements apart, which saves bf16 every shuffle. The sum allows both.
#if defined(FUSEDNORM_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSEDNORM_KERNELS_SIMD_INL_H_
#undef FUSEDNORM_KERNELS_SIMD_INL_H_
#else
#define FUSEDNORM_KERNELS_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/highway.h"
#include "kernels/plan.h"
#include "kernels/reduction.h"

// Loops over vectors in arrays must unroll completely, or the arrays live in
// memory.
#undef FUSEDNORM_UNROLL
#undef FUSEDNORM_NO_UNROLL
#if HWY_COMPILER_CLANG
#define FUSEDNORM_UNROLL _Pragma("clang loop unroll(full)")
#define FUSEDNORM_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define FUSEDNORM_UNROLL _Pragma("GCC unroll 16")
#define FUSEDNORM_NO_UNROLL _Pragma("GCC unroll 1")
#endif

// Passes' bodies: part of the loop, compiled for the loop's target.
#undef FUSEDNORM_LAMBDA
#define FUSEDNORM_LAMBDA HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::Repartition<uint32_t, DF>;
using DU16 = hn::Repartition<uint16_t, DF>;
using DHalf16 = hn::Rebind<uint16_t, DF>;  // As many lanes as DF.
using D4 = hn::FixedTag<float, 4>;         // One 128-bit block.
using VF = hn::Vec<DF>;
using V4 = hn::Vec<D4>;
using VU = hn::Vec<DU>;
using VU16 = hn::Vec<DU16>;

constexpr size_t kLanes = hn::MaxLanes(DF());
constexpr size_t kPairs = kStep / (2 * kLanes);  // In a step of the sum.

// The constructors that a compiler adds would lack the target's attributes.
struct Pair {
  HWY_INLINE Pair() {}
  HWY_INLINE Pair(VF a_in, VF b_in) : a(a_in), b(b_in) {}
  VF a, b;
};

// then() or otherwise(). Branches that end in a Pair go through memory in GCC;
// its vectors do not.
template <class Then, class Otherwise>
HWY_INLINE Pair Choose(bool condition, const Then& then,
                       const Otherwise& otherwise) {
  VF a, b;
  if (condition) {
    const Pair v = then();
    a = v.a;
    b = v.b;
  } else {
    const Pair v = otherwise();
    a = v.a;
    b = v.b;
  }
  return {a, b};
}

HWY_INLINE Pair Mul(Pair x, Pair y) {
  return {hn::Mul(x.a, y.a), hn::Mul(x.b, y.b)};
}
HWY_INLINE Pair Mul(Pair x, VF y) { return {hn::Mul(x.a, y), hn::Mul(x.b, y)}; }
HWY_INLINE Pair Add(Pair x, VF y) { return {hn::Add(x.a, y), hn::Add(x.b, y)}; }
HWY_INLINE Pair Add(Pair x, Pair y) {
  return {hn::Add(x.a, y.a), hn::Add(x.b, y.b)};
}
HWY_INLINE Pair Sub(Pair x, Pair y) {
  return {hn::Sub(x.a, y.a), hn::Sub(x.b, y.b)};
}
HWY_INLINE Pair MulAdd(VF x, Pair y, Pair z) {
  return {hn::MulAdd(x, y.a, z.a), hn::MulAdd(x, y.b, z.b)};
}

// NaN payloads that end in zeros pass the integer rounding to bf16 unharmed;
// others could carry into the sign. This gives every NaN such a payload.
HWY_INLINE VF CanonicalNaN(VF v) {
  const DF df;
  const VF nan = hn::BitCast(df, hn::Set(DU(), 0x7FC00000u));
  return hn::IfThenElse(hn::Eq(v, v), v, nan);
}
HWY_INLINE Pair CanonicalNaN(Pair v) {
  return {CanonicalNaN(v.a), CanonicalNaN(v.b)};
}

// The nearest bf16 value, ties to even, for any v but a NaN that is not
// canonical.
HWY_INLINE VF RoundToBF16(VF v) {
  const DU du;
  const VU bits = hn::BitCast(du, v);
  const VU half = hn::Set(du, 0x7FFFu);
#if HWY_TARGET == HWY_AVX3
  const auto odd = hn::TestBit(bits, hn::Set(du, 0x10000u));
  const VU below = hn::Add(bits, half);
  const VU up = hn::IfThenElse(odd, hn::Add(below, hn::Set(du, 1)), below);
#else
  const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const VU up = hn::Add(hn::Add(bits, half), odd);
#endif
  return hn::BitCast(DF(), hn::And(up, hn::Set(du, 0xFFFF0000u)));
}

// Codecs: a dtype in memory as Pairs. Load and Store take the row and an index
// of elements; StoreRounded also returns what it stored; Round is the value
// that the dtype would hold; Stream bypasses the cache, to aligned addresses.

struct F32EvenOdd;

struct F32 {
  explicit F32(DType = DType::kF32) {}

  static constexpr int64_t kSize = 4;
  static constexpr bool kEvenOdd = false;
  using F32Beside = F32;  // How an f32 tensor is read beside this one.

  HWY_INLINE Pair Load(const char* row, size_t i) const {
    const DF df;
    const float* p = reinterpret_cast<const float*>(row) + i;
    return {hn::LoadU(df, p), hn::LoadU(df, p + kLanes)};
  }
  HWY_INLINE void Store(Pair v, char* row, size_t i) const {
    const DF df;
    float* p = reinterpret_cast<float*>(row) + i;
    hn::StoreU(v.a, df, p);
    hn::StoreU(v.b, df, p + kLanes);
  }
  HWY_INLINE void Stream(Pair v, char* row, size_t i) const {
    const DF df;
    float* p = reinterpret_cast<float*>(row) + i;
    hn::Stream(v.a, df, p);
    hn::Stream(v.b, df, p + kLanes);
  }
  HWY_INLINE Pair StoreRounded(Pair v, char* row, size_t i) const {
    Store(v, row, i);
    return v;
  }
  HWY_INLINE Pair Round(Pair v) const { return v; }
};

// f32 beside bf16: even and odd elements apart.
struct F32EvenOdd {
  explicit F32EvenOdd(DType) {}

  HWY_INLINE Pair Load(const char* row, size_t i) const {
    Pair v;
    hn::LoadInterleaved2(DF(), reinterpret_cast<const float*>(row) + i, v.a,
                         v.b);
    return v;
  }
};

// A constant that GCC cannot see through. What it knows it makes again in each
// branch of a loop, from a general register at two operations: 1.1 to 1.3 times
// the time of a bf16 addition on AVX-512.
template <class V>
HWY_INLINE V Opaque(V v) {
#if HWY_TARGET == HWY_AVX3
  asm("" : "+v"(v.raw));
#endif
  return v;
}

// A condition that GCC made into a bool: it would compare the floats again in
// each turn of a loop, 3 to 5 % of a single bf16 row.
HWY_INLINE bool Opaque(bool condition) {
  asm("" : "+r"(condition));
  return condition;
}

// Even elements are the low halves of 32-bit words, odd ones the high halves.
class BF16 {
 public:
  HWY_INLINE explicit BF16(DType = DType::kBF16)
      : one_(Opaque(hn::Set(DU16(), 1))),
        half_(Opaque(hn::Set(DU16(), 0x8000))) {}

  static constexpr int64_t kSize = 2;
  static constexpr bool kEvenOdd = true;
  using F32Beside = F32EvenOdd;

  HWY_INLINE Pair Load(const char* row, size_t i) const {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(row) + i;
    return Widen(hn::LoadU(DU16(), p));
  }
  HWY_INLINE void Store(Pair v, char* row, size_t i) const {
    hn::StoreU(Pack(v), DU16(), reinterpret_cast<uint16_t*>(row) + i);
  }
  HWY_INLINE void Stream(Pair v, char* row, size_t i) const {
    hn::Stream(Pack(v), DU16(), reinterpret_cast<uint16_t*>(row) + i);
  }
  // What was packed is widened again: cheaper than to round twice.
  HWY_INLINE Pair StoreRounded(Pair v, char* row, size_t i) const {
    const VU16 packed = Pack(v);
    hn::StoreU(packed, DU16(), reinterpret_cast<uint16_t*>(row) + i);
    return Widen(packed);
  }
  // In 32-bit lanes: one operation less than to pack and to widen.
  HWY_INLINE Pair Round(Pair v) const {
    return {RoundToBF16(v.a), RoundToBF16(v.b)};
  }

 private:
  static HWY_INLINE Pair Widen(VU16 packed) {
    const DF df;
    const DU du;
    const VU words = hn::BitCast(du, packed);
    const VU high = hn::And(words, hn::Set(du, 0xFFFF0000u));
    return {hn::BitCast(df, hn::ShiftLeft<16>(words)), hn::BitCast(df, high)};
  }

  // Round to nearest even on packed 16-bit words. With H the upper and W the
  // lower halves, H goes up where W > 0x8000, or W = 0x8000 and H is odd: where
  // (W | odd) > 0x8000.
  HWY_INLINE VU16 Pack(Pair v) const {
    const DU du;
    const DU16 du16;
    const VU even = hn::BitCast(du, v.a);
    const VU odd = hn::BitCast(du, v.b);
    const VU16 high = hn::OddEven(hn::BitCast(du16, odd),
                                  hn::BitCast(du16, hn::ShiftRight<16>(even)));
    const VU16 low = hn::OddEven(hn::BitCast(du16, hn::ShiftLeft<16>(odd)),
                                 hn::BitCast(du16, even));
    const VU16 sticky = hn::Or(low, hn::And(high, one_));
#if HWY_TARGET == HWY_AVX3
    // A comparison and a masked addition: 7 operations in all, with ternary
    // logic, instead of 8.
    const auto up = hn::Gt(sticky, half_);
    return hn::IfThenElse(up, hn::Add(high, one_), high);
#else
    // AVX2 compares no unsigned words. The rounding average with 0x7FFE is
    // (sticky + 0x7FFF) >> 1: its top bit is the carry.
    const VU16 carry =
        hn::ShiftRight<15>(hn::AverageRound(sticky, hn::Set(du16, 0x7FFE)));
    return hn::Add(high, carry);
#endif
  }

  VU16 one_;
  VU16 half_;
};

// Conversion by the machine, which keeps NaN and subnormals.
struct F16 {
  explicit F16(DType = DType::kF16) {}

  static constexpr int64_t kSize = 2;
  static constexpr bool kEvenOdd = false;
  using F32Beside = F32;
  using DHalf = hn::Rebind<hwy::float16_t, DF>;
  using VHalf = hn::Vec<DHalf>;

  HWY_INLINE Pair Load(const char* row, size_t i) const {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(row) + i;
    return {Widen(LoadHalf(p)), Widen(LoadHalf(p + kLanes))};
  }
  HWY_INLINE void Store(Pair v, char* row, size_t i) const {
    StoreRounded(v, row, i);
  }
  HWY_INLINE void Stream(Pair v, char* row, size_t i) const {
    uint16_t* p = reinterpret_cast<uint16_t*>(row) + i;
    const DHalf16 d;
    hn::Stream(hn::BitCast(d, hn::DemoteTo(DHalf(), v.a)), d, p);
    hn::Stream(hn::BitCast(d, hn::DemoteTo(DHalf(), v.b)), d, p + kLanes);
  }
  HWY_INLINE Pair StoreRounded(Pair v, char* row, size_t i) const {
    uint16_t* p = reinterpret_cast<uint16_t*>(row) + i;
    const VHalf a = hn::DemoteTo(DHalf(), v.a);
    const VHalf b = hn::DemoteTo(DHalf(), v.b);
    hn::StoreU(hn::BitCast(DHalf16(), a), DHalf16(), p);
    hn::StoreU(hn::BitCast(DHalf16(), b), DHalf16(), p + kLanes);
    return {Widen(a), Widen(b)};
  }
  HWY_INLINE Pair Round(Pair v) const {
    return {Widen(hn::DemoteTo(DHalf(), v.a)),
            Widen(hn::DemoteTo(DHalf(), v.b))};
  }

 private:
  static HWY_INLINE VHalf LoadHalf(const uint16_t* p) {
    return hn::BitCast(DHalf(), hn::LoadU(DHalf16(), p));
  }
  static HWY_INLINE VF Widen(VHalf half) { return hn::PromoteTo(DF(), half); }
};

// bf16 in order, one vector after the other, and safe for any NaN: for rows of
// mixed dtypes.
struct BF16InOrder {
  HWY_INLINE Pair Load(const char* row, size_t i) const {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(row) + i;
    return {LoadVector(p), LoadVector(p + kLanes)};
  }
  HWY_INLINE Pair StoreRounded(Pair v, char* row, size_t i) const {
    uint16_t* p = reinterpret_cast<uint16_t*>(row) + i;
    v = Round(v);
    StoreVector(v.a, p);
    StoreVector(v.b, p + kLanes);
    return v;
  }
  HWY_INLINE Pair Round(Pair v) const { return {Round(v.a), Round(v.b)}; }

 private:
  static HWY_INLINE VF LoadVector(const uint16_t* p) {
    const DU du;
    const VU words = hn::PromoteTo(du, hn::LoadU(DHalf16(), p));
    return hn::BitCast(DF(), hn::ShiftLeft<16>(words));
  }
  static HWY_INLINE void StoreVector(VF rounded, uint16_t* p) {
    const VU words = hn::ShiftRight<16>(hn::BitCast(DU(), rounded));
    hn::StoreU(hn::TruncateTo(DHalf16(), words), DHalf16(), p);
  }
  static HWY_INLINE VF Round(VF v) { return RoundToBF16(CanonicalNaN(v)); }
};

// Any dtype, known at run time: one predictable branch for each Pair.
class AnyDType {
 public:
  static constexpr int64_t kSize = 0;  // Not known.
  static constexpr bool kEvenOdd = false;

  explicit AnyDType(DType dtype) : dtype_(dtype) {}

  HWY_INLINE Pair Load(const char* row, size_t i) const {
    return Pick([&](auto codec)
                    FUSEDNORM_LAMBDA { return codec.Load(row, i); });
  }
  HWY_INLINE void Store(Pair v, char* row, size_t i) const {
    StoreRounded(v, row, i);
  }
  HWY_INLINE Pair StoreRounded(Pair v, char* row, size_t i) const {
    return Pick([&](auto codec)
                    FUSEDNORM_LAMBDA { return codec.StoreRounded(v, row, i); });
  }
  HWY_INLINE Pair Round(Pair v) const {
    return Pick([&](auto codec) FUSEDNORM_LAMBDA { return codec.Round(v); });
  }

 private:
  template <class Use>
  HWY_INLINE Pair Pick(const Use& use) const {
    return Choose(
        dtype_ == DType::kF32, [&]() FUSEDNORM_LAMBDA { return use(F32()); },
        [&]() FUSEDNORM_LAMBDA {
          return Choose(
              dtype_ == DType::kF16,
              [&]() FUSEDNORM_LAMBDA { return use(F16()); },
              [&]() FUSEDNORM_LAMBDA { return use(BF16InOrder()); });
        });
  }

  DType dtype_;
};

// Where the tensors of one row are, and the sums of dweight. It is made where
// it is used and given to inlined functions alone: then the compiler keeps in
// registers what is used, drops the rest, and knows that no store changes it.
struct RowData {
  HWY_INLINE RowData() {}
  HWY_INLINE RowData(const Rows& rows, int64_t index)
      : sums(static_cast<float*>(rows.sums)) {
    FUSEDNORM_UNROLL
    for (int k = 0; k < kOperands; ++k) {
      data[k] = rows.Row(static_cast<Operand>(k), index);
    }
  }
  // `count` rows further.
  HWY_INLINE RowData Further(const Rows& rows, int64_t count) const {
    RowData row;
    row.sums = sums;
    FUSEDNORM_UNROLL
    for (int k = 0; k < kOperands; ++k) {
      row.data[k] = data[k] + rows.stride[k] * count;
    }
    return row;
  }
  char* data[kOperands];
  float* sums;
};

// The rows of a group from `index` on, and those `ahead` of them.
struct GroupData {
  HWY_INLINE GroupData(const Rows& rows, int64_t index, int64_t ahead) {
    FUSEDNORM_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      row[g] = g == 0 ? RowData(rows, index) : row[g - 1].Further(rows, 1);
      fetched[g] = row[g].Further(rows, ahead);
    }
  }
  RowData row[kGroup];
  RowData fetched[kGroup];
};

constexpr size_t kLine = 64;

// Fetches kCount elements from element i of a row on, one line at a time. Into
// the second level far from the cache, where the first is full of the rows at
// work.
template <int64_t kSize, size_t kCount, bool kFar = true>
HWY_INLINE void FetchElements(const char* row, size_t i) {
  constexpr size_t kBytes = kCount * static_cast<size_t>(kSize);
  const size_t offset = i * static_cast<size_t>(kSize);
  if (kBytes < kLine && offset % kLine >= kBytes) return;  // Fetched already.
  for (size_t line = 0; line < kBytes; line += kLine) {
    __builtin_prefetch(row + offset + line, /*write=*/0,
                       /*locality=*/kFar ? 2 : 3);
  }
}

// A step past the end of a row is made on a copy of its last elements, zero
// padded, so that nothing outside the row is touched.

class Tail {
 public:
  HWY_NOINLINE Tail(const Plan& plan, const Rows& rows, int64_t index,
                    size_t begin) {
    const RowData row(rows, index);
    const size_t count = static_cast<size_t>(plan.width) - begin;
    copy_.sums = row.sums != nullptr ? row.sums + begin : nullptr;
    for (int k = 0; k < kRowOperands; ++k) copy_.data[k] = nullptr;
    for (int n = 0; n < plan.count; ++n) {
      const Operand k = plan.operands[n];
      if (k >= kRowOperands) continue;
      const size_t size = static_cast<size_t>(SizeOf(plan.dtype[k]));
      bytes_[k] = count * size;
      origin_.data[k] = row.data[k] + begin * size;
      copy_.data[k] = reinterpret_cast<char*>(buffer_[k]);
      std::memset(buffer_[k], 0, sizeof(buffer_[k]));
      std::memcpy(buffer_[k], origin_.data[k], bytes_[k]);
    }
  }

  const RowData& row() const { return copy_; }

  HWY_NOINLINE void CopyBack(Operand operand) const {
    if (copy_.data[operand] == nullptr) return;
    std::memcpy(origin_.data[operand], buffer_[operand], bytes_[operand]);
  }

 private:
  alignas(64) float buffer_[kRowOperands][kStep];
  RowData copy_;
  RowData origin_;
  size_t bytes_[kRowOperands];
};

// The last distances, 2 and 1.
HWY_INLINE float FoldBlock(V4 v) {
  v = hn::Add(v, hn::Shuffle1032(v));
  v = hn::Add(v, hn::Shuffle2301(v));
  return hn::GetLane(v);
}

// The same of four rows: lane i is the sum of row i.
HWY_INLINE V4 FoldBlocks(V4 r0, V4 r1, V4 r2, V4 r3) {
  const D4 d;
  const V4 r01 =
      hn::Add(hn::ConcatLowerLower(d, r1, r0), hn::ConcatUpperUpper(d, r1, r0));
  const V4 r23 =
      hn::Add(hn::ConcatLowerLower(d, r3, r2), hn::ConcatUpperUpper(d, r3, r2));
  return hn::Add(hn::ConcatEven(d, r23, r01), hn::ConcatOdd(d, r23, r01));
}

// The 64 lanes of the sum.
class Lanes {
 public:
  HWY_INLINE Lanes() {
    FUSEDNORM_UNROLL
    for (size_t p = 0; p < kPairs; ++p) {
      lanes_[p] = {hn::Zero(DF()), hn::Zero(DF())};
    }
  }

  // Lanes of pair p of a step: += u * v.
  HWY_INLINE void AddProduct(size_t p, Pair u, Pair v) {
    lanes_[p] = {hn::MulAdd(u.a, v.a, lanes_[p].a),
                 hn::MulAdd(u.b, v.b, lanes_[p].b)};
  }
  HWY_INLINE void AddSquare(size_t p, Pair u) { AddProduct(p, u, u); }

  HWY_INLINE void AddLanes(const Lanes& other) {
    FUSEDNORM_UNROLL
    for (size_t p = 0; p < kPairs; ++p) {
      lanes_[p] = {hn::Add(lanes_[p].a, other.lanes_[p].a),
                   hn::Add(lanes_[p].b, other.lanes_[p].b)};
    }
  }

  // The lanes folded at distances 32, 16, 8 and 4: what is left are the lanes
  // 0 to 3 in order. Pairs lie 2N apart; within the last one the vectors are N
  // apart, or, split into even and odd elements, 1 apart.
  template <bool kEvenOdd>
  HWY_INLINE V4 FoldToBlock() {
    FUSEDNORM_UNROLL
    for (size_t half = kPairs / 2; half > 0; half /= 2) {
      FUSEDNORM_UNROLL
      for (size_t p = 0; p < half; ++p) {
        lanes_[p] = {hn::Add(lanes_[p].a, lanes_[p + half].a),
                     hn::Add(lanes_[p].b, lanes_[p + half].b)};
      }
    }
    const DF df;
    const Pair pair = lanes_[0];
    if constexpr (kEvenOdd) {
      V4 even = FoldVector(df, pair.a);
      V4 odd = FoldVector(df, pair.b);
      even = hn::Add(even, hn::Shuffle1032(even));
      odd = hn::Add(odd, hn::Shuffle1032(odd));
      return hn::InterleaveLower(D4(), even, odd);
    } else {
      return FoldVector(df, hn::Add(pair.a, pair.b));
    }
  }

  // The whole sums of four rows: lane i is that of row i.
  template <bool kEvenOdd>
  static HWY_INLINE V4 FoldFour(Lanes (&rows)[kGroup]) {
    if constexpr (kEvenOdd && kPairs == 2) {
      return FoldFourEvenOdd(rows);
    } else {
      return FoldBlocks(rows[0].template FoldToBlock<kEvenOdd>(),
                        rows[1].template FoldToBlock<kEvenOdd>(),
                        rows[2].template FoldToBlock<kEvenOdd>(),
                        rows[3].template FoldToBlock<kEvenOdd>());
    }
  }

 private:
  // Even and odd elements in vectors of four blocks: one fold of full vectors
  // instead of four.
  static HWY_INLINE V4 FoldFourEvenOdd(const Lanes (&rows)[kGroup]) {
    VF even[kGroup];
    VF odd[kGroup];
    FUSEDNORM_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      even[g] = hn::Add(rows[g].lanes_[0].a, rows[g].lanes_[1].a);
      odd[g] = hn::Add(rows[g].lanes_[0].b, rows[g].lanes_[1].b);
    }
    const VF sums = hn::Add(FoldVectors(even), FoldVectors(odd));
    const DF d;
    alignas(64) constexpr int32_t kRows[16] = {0, 8, 4, 12};
    return LowestBlock(
        d, hn::TableLookupLanes(sums, hn::SetTableIndices(d, kRows)));
  }

  // Four vectors, each folded to one lane: the first lanes of the blocks are
  // those of v[0], v[2], v[1], v[3].
  static HWY_INLINE VF FoldVectors(const VF (&v)[kGroup]) {
    const DF d;
    const VF v01 = hn::Add(hn::ConcatLowerLower(d, v[1], v[0]),
                           hn::ConcatUpperUpper(d, v[1], v[0]));
    const VF v23 = hn::Add(hn::ConcatLowerLower(d, v[3], v[2]),
                           hn::ConcatUpperUpper(d, v[3], v[2]));
    VF sum = hn::Add(hn::OddEvenBlocks(v23, v01),
                     hn::SwapAdjacentBlocks(hn::OddEvenBlocks(v01, v23)));
    sum = hn::Add(sum, hn::Shuffle1032(sum));
    return hn::Add(sum, hn::Shuffle2301(sum));
  }

  template <class D>
  static HWY_INLINE V4 LowestBlock(D d, hn::Vec<D> v) {
    (void)d;
    if constexpr (hn::MaxLanes(D()) > 4) {
      const hn::Half<D> dh;
      return LowestBlock(dh, hn::LowerHalf(dh, v));
    } else {
      return v;
    }
  }

  // Halves of a vector onto each other, down to one block.
  template <class D>
  static HWY_INLINE V4 FoldVector(D d, hn::Vec<D> v) {
    (void)d;
    if constexpr (hn::MaxLanes(D()) > 4) {
      const hn::Half<D> dh;
      return FoldVector(dh,
                        hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
    } else {
      return v;
    }
  }

  Pair lanes_[kPairs];
};

// The sums below are functions of their own, shared by all operations that have
// the same input: a class with
//   kEvenOdd, kStored  (the operand that it stores, or kOperands)
//   Add(lanes, p, row, i)  adds the term of the Pair at element i, pair p of a
//                          step, and may store it too

// A step of a row.
template <class Input>
HWY_INLINE void AddStep(const Input& input, Lanes& lanes, const RowData& row,
                        size_t i) {
  FUSEDNORM_UNROLL
  for (size_t p = 0; p < kPairs; ++p) {
    input.Add(lanes, p, row, i + p * 2 * kLanes);
  }
}

// Whoever sums may do something else meanwhile.

// One chunk of a row, down to the last block of lanes. beside(i, add) at each
// whole step calls add(), which adds it. kFused: `beside` is work of its own,
// and the row is whole steps.
template <bool kFused, class Input, class Beside>
HWY_INLINE V4 SumChunk(const Plan& plan, const Rows& rows, int64_t index,
                       size_t begin, size_t end, const Input& input,
                       const Beside& beside) {
  const RowData row(rows, index);
  Lanes top;
  size_t block = begin;
  if constexpr (!kFused && kPairs == 2 && Input::kSize != 0) {
    // A block is four chains of fma here, too few to keep a core busy: with two
    // blocks side by side the statistic of a row in cache takes 0.82 to 0.86 of
    // the time (Skylake). Zen 4, with half the multipliers, gains nothing, and
    // calls whose rows are new to the cache take 1.15 to 1.25 times as long. Of
    // no use where each vector is a branch.
    for (; block + 2 * kBlock <= end; block += 2 * kBlock) {
      Lanes acc[2];
      for (size_t i = block; i < block + kBlock; i += kStep) {
        FUSEDNORM_UNROLL
        for (size_t b = 0; b < 2; ++b) {
          const size_t k = i + b * kBlock;
          beside(k, [&]() FUSEDNORM_LAMBDA { AddStep(input, acc[b], row, k); });
        }
      }
      top.AddLanes(acc[0]);
      top.AddLanes(acc[1]);
    }
  }
  for (; block < end; block += kBlock) {
    const size_t block_end = HWY_MIN(block + kBlock, end);
    Lanes acc;
    size_t i = block;
    for (; i + kStep <= block_end; i += kStep) {
      beside(i, [&]() FUSEDNORM_LAMBDA { AddStep(input, acc, row, i); });
    }
    if (!kFused && HWY_UNLIKELY(i < block_end)) {
      const Tail tail(plan, rows, index, i);
      AddStep(input, acc, tail.row(), 0);
      if (Input::kStored != kOperands) tail.CopyBack(Input::kStored);
    }
    top.AddLanes(acc);
  }
  return top.template FoldToBlock<Input::kEvenOdd>();
}

// The whole sum of one row. kFetches: x of the row that is `ahead` rows further
// is fetched meanwhile.
template <bool kFetches = false, class Input>
HWY_NOINLINE double SumRow(const Plan& plan, const Rows& rows, int64_t index,
                           const Input& input_in, int64_t ahead = 0) {
  const Input input = input_in;  // As RowData.
  const size_t width = static_cast<size_t>(plan.width);
  const char* fetched = rows.Row(kX, index + ahead);
  const auto fetch = [&](size_t i, const auto& add) FUSEDNORM_LAMBDA {
    if (kFetches) FetchElements<Input::kSize, kStep>(fetched, i);
    add();
  };
  double sum = 0;
  for (size_t chunk = 0; chunk < width; chunk += kChunk) {
    const size_t end = HWY_MIN(chunk + kChunk, width);
    sum += static_cast<double>(FoldBlock(
        SumChunk<false>(plan, rows, index, chunk, end, input, fetch)));
  }
  return sum;
}

// The sums of four rows in turn: for whole steps, rows of at most a chunk, and
// registers that hold 4 * 64 lanes. add(lanes, g, p, i) adds the term of row g,
// as Input::Add; beside(i) comes after each step.
template <bool kEvenOdd, class Add, class Beside>
HWY_INLINE V4 SumRowsInTurn(size_t width, const Add& add,
                            const Beside& beside) {
  Lanes top[kGroup];
  for (size_t block = 0; block < width; block += kBlock) {
    const size_t end = HWY_MIN(block + kBlock, width);
    Lanes acc[kGroup];
    for (size_t i = block; i < end; i += kStep) {
      FUSEDNORM_UNROLL
      for (int g = 0; g < kGroup; ++g) {
        FUSEDNORM_UNROLL
        for (size_t p = 0; p < kPairs; ++p) {
          add(acc[g], g, p, i + p * 2 * kLanes);
        }
      }
      beside(i);
    }
    FUSEDNORM_UNROLL
    for (int g = 0; g < kGroup; ++g) top[g].AddLanes(acc[g]);
  }
  return Lanes::FoldFour<kEvenOdd>(top);
}

// The sums of four rows of at most a chunk.
template <bool kFetches, class Input>
HWY_NOINLINE V4 SumRows(const Plan& plan, const Rows& rows, int64_t index,
                        const Input& input_in, int64_t ahead) {
  const Input input = input_in;
  const size_t width = static_cast<size_t>(plan.width);
  if (kPairs == 2 && width <= kBlock && width % kStep == 0) {
    // Registers hold the lanes of all four until they are folded at once. One
    // row after the other: those that are new to the cache take 0.7 to 0.95 of
    // the time of four in turn, others 0.96 to 1.02, bf16 heads of 128 up to
    // 1.05 (Zen 4). Sums of squares are never -0: adding the one block to +0
    // would change nothing.
    const GroupData group(rows, index, ahead);
    Lanes acc[kGroup];
    FUSEDNORM_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      for (size_t i = 0; i < width; i += kStep) {
        if (kFetches) {
          FetchElements<Input::kSize, kStep>(group.fetched[g].data[kX], i);
        }
        AddStep(input, acc[g], group.row[g], i);
      }
    }
    return Lanes::FoldFour<Input::kEvenOdd>(acc);
  }
  V4 block[kGroup];
  for (int g = 0; g < kGroup; ++g) {
    const char* fetched = rows.Row(kX, index + g + ahead);
    const auto fetch = [&](size_t i, const auto& add) FUSEDNORM_LAMBDA {
      if (kFetches) FetchElements<Input::kSize, kStep>(fetched, i);
      add();
    };
    block[g] = SumChunk<false>(plan, rows, index + g, 0, width, input, fetch);
  }
  return FoldBlocks(block[0], block[1], block[2], block[3]);
}

// x as it is, squared.
template <class T>
class SquareInput {
 public:
  static constexpr bool kEvenOdd = T::kEvenOdd;
  static constexpr int64_t kSize = T::kSize;
  static constexpr Operand kStored = kOperands;

  explicit SquareInput(const Plan& plan) : x_(plan.dtype[kX]) {}

  HWY_INLINE Pair Load(const RowData& row, size_t i) const {
    return x_.Load(row.data[kX], i);
  }
  HWY_INLINE void Add(Lanes& lanes, size_t p, const RowData& row,
                      size_t i) const {
    lanes.AddSquare(p, Load(row, i));
  }

 private:
  T x_;
};

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_KERNELS_SIMD_INL_H_

// dweight from the sums of a BackwardKernel.
#if defined(FUSEDNORM_KERNELS_DWEIGHT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSEDNORM_KERNELS_DWEIGHT_INL_H_
#undef FUSEDNORM_KERNELS_DWEIGHT_INL_H_
#else
#define FUSEDNORM_KERNELS_DWEIGHT_INL_H_
#endif

#include "kernels/backward.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace internal {
namespace HWY_NAMESPACE {

using D64 = hn::ScalableTag<double>;
using DU64 = hn::RebindToUnsigned<D64>;
using DHalf32 = hn::Rebind<float, D64>;  // As many lanes as D64.
using V64 = hn::Vec<D64>;

template <bool kEvenOdd>
void AddSums(const void* sums, int64_t count, double* totals) {
  const D64 d64;
  const float* from = static_cast<const float*>(sums);
  const float* const end = from + count;
  for (; from < end; from += 2 * kLanes, totals += 2 * kLanes) {
    alignas(64) float in_order[2 * kLanes];
    const float* pair = from;
    if constexpr (kEvenOdd) {
      const DF df;
      hn::StoreInterleaved2(hn::LoadU(df, from), hn::LoadU(df, from + kLanes),
                            df, in_order);
      pair = in_order;
    }
    FUSEDNORM_UNROLL
    for (size_t k = 0; k < 2 * kLanes; k += kLanes / 2) {
      const auto sum = hn::PromoteTo(d64, hn::LoadU(DHalf32(), pair + k));
      const auto total = hn::Add(hn::LoadU(d64, totals + k), sum);
      hn::StoreU(total, d64, totals + k);
    }
  }
}

// As in the reference: f64 to f32 such that a second rounding, to 16 bits, is
// the only one.
HWY_INLINE hn::Vec<DHalf32> RoundToOdd(V64 v) {
  const D64 d64;
  const DU64 du64;
  const hn::RebindToUnsigned<DHalf32> du32;
  const auto nearest = hn::DemoteTo(DHalf32(), v);
  const V64 back = hn::PromoteTo(d64, nearest);
  const auto away = hn::RebindMask(du64, hn::Gt(hn::Abs(back), hn::Abs(v)));
  const auto inexact = hn::RebindMask(du64, hn::Ne(back, v));
  const auto one = hn::Set(du64, 1);
  auto bits = hn::PromoteTo(du64, hn::BitCast(du32, nearest));
  bits = hn::Sub(bits, hn::IfThenElseZero(away, one));
  bits = hn::Or(bits, hn::IfThenElseZero(inexact, one));
  return hn::BitCast(DHalf32(), hn::TruncateTo(du32, bits));
}

// A vector of gradients from their totals and what dweight held.
HWY_INLINE VF Gradients(const double* totals, VF held) {
  const D64 d64;
  const DHalf32 half;
  const V64 lower = hn::PromoteTo(d64, hn::LowerHalf(half, held));
  const V64 upper = hn::PromoteTo(d64, hn::UpperHalf(half, held));
  return hn::Combine(
      DF(), RoundToOdd(hn::Add(hn::LoadU(d64, totals + kLanes / 2), upper)),
      RoundToOdd(hn::Add(hn::LoadU(d64, totals), lower)));
}

// A Pair of gradients in T, of 16 bits and in order. Totals are never -0, so
// that to add 0 leaves them as they are.
template <class T>
HWY_INLINE void StoreGradients(bool accumulate, const double* totals,
                               char* to) {
  const T codec;
  Pair v(hn::Zero(DF()), hn::Zero(DF()));
  if (accumulate) v = codec.Load(to, 0);
  v.a = Gradients(totals, v.a);
  v.b = Gradients(totals + kLanes, v.b);
  codec.StoreRounded(v, to, 0);
}

template <class T>
void StoreDWeight(const Plan& plan, const double* totals, char* row) {
  constexpr size_t kPair = 2 * kLanes;
  constexpr size_t kBytes = kPair * sizeof(uint16_t);
  size_t left = static_cast<size_t>(plan.width);
  for (; left >= kPair; left -= kPair, totals += kPair, row += kBytes) {
    StoreGradients<T>(plan.accumulate, totals, row);
  }
  if (left == 0) return;
  uint16_t tail[kPair] = {};
  std::memcpy(tail, row, left * sizeof(uint16_t));
  StoreGradients<T>(plan.accumulate, totals, reinterpret_cast<char*>(tail));
  std::memcpy(row, tail, left * sizeof(uint16_t));
}

// The other dtypes are plain loops.
inline auto SelectStoreDWeight(const Plan& plan) {
  switch (plan.dtype[kDWeight]) {
    case DType::kBF16:
      return &StoreDWeight<BF16InOrder>;
    case DType::kF16:
      return &StoreDWeight<F16>;
    default:
      return &StoreDWeightByReference;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace internal
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();

#endif  // FUSEDNORM_KERNELS_DWEIGHT_INL_H_

#include "bench/roofline.h"

#include <algorithm>
#include <chrono>

#include "kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/roofline.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#if FUSEDNORM_HAVE_TARGET
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fusednorm {
namespace bench {
namespace HWY_NAMESPACE {

// Each pass leaves out what is less than a few vectors at the end.

namespace hn = hwy::HWY_NAMESPACE;
namespace kernels = internal::HWY_NAMESPACE;
using Bytes = hn::ScalableTag<uint8_t>;

template <bool kStream>
HWY_INLINE void Put(hn::Vec<Bytes> v, uint8_t* to) {
  if (kStream) {
    hn::Stream(v, Bytes(), to);
  } else {
    hn::Store(v, Bytes(), to);
  }
}

// Four vectors of each input in turn; out is their bits in one.
template <int kReads, bool kStream>
void Merge(const uint8_t* x, uint8_t* second, uint8_t* out, size_t bytes) {
  const Bytes d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kTurn = 4;
  for (size_t i = 0; i + kTurn * lanes <= bytes; i += kTurn * lanes) {
    hn::Vec<Bytes> v[kTurn];
    FUSEDNORM_UNROLL
    for (size_t k = 0; k < kTurn; ++k) v[k] = hn::LoadU(d, x + i + k * lanes);
    if (kReads > 1) {
      FUSEDNORM_UNROLL
      for (size_t k = 0; k < kTurn; ++k) {
        v[k] = hn::Xor(v[k], hn::LoadU(d, second + i + k * lanes));
      }
    }
    FUSEDNORM_UNROLL
    for (size_t k = 0; k < kTurn; ++k) {
      uint8_t* to = out + i + k * lanes;
      if (kReads > 2) v[k] = hn::Xor(v[k], hn::Load(d, to));
      Put<kStream>(v[k], to);
    }
  }
  if (kStream) hwy::FlushStream();
}

// out = second, then second = x.
template <bool kStream>
void Add(const uint8_t* x, uint8_t* second, uint8_t* out, size_t bytes) {
  const Bytes d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i + 2 * lanes <= bytes; i += 2 * lanes) {
    const auto x0 = hn::LoadU(d, x + i);
    const auto x1 = hn::LoadU(d, x + i + lanes);
    const auto h0 = hn::LoadU(d, second + i);
    const auto h1 = hn::LoadU(d, second + i + lanes);
    hn::Store(x0, d, second + i);
    hn::Store(x1, d, second + i + lanes);
    Put<kStream>(h0, out + i);
    Put<kStream>(h1, out + i + lanes);
  }
  if (kStream) hwy::FlushStream();
}

// second and out are written as they are.
template <bool kStream>
void Rewrite(const uint8_t*, uint8_t* second, uint8_t* out, size_t bytes) {
  const Bytes d;
  const size_t lanes = hn::Lanes(d);
  uint8_t nothing = 0;
  asm volatile("" : "+r"(nothing));  // Or the compiler would drop the stores.
  const auto zero = hn::Set(d, nothing);
  for (size_t i = 0; i + 2 * lanes <= bytes; i += 2 * lanes) {
    const auto x0 = hn::Or(zero, hn::Load(d, out + i));
    const auto x1 = hn::Or(zero, hn::Load(d, out + i + lanes));
    const auto h0 = hn::Or(zero, hn::LoadU(d, second + i));
    const auto h1 = hn::Or(zero, hn::LoadU(d, second + i + lanes));
    hn::Store(h0, d, second + i);
    hn::Store(h1, d, second + i + lanes);
    Put<kStream>(x0, out + i);
    Put<kStream>(x1, out + i + lanes);
  }
  if (kStream) hwy::FlushStream();
}

void Read(const uint8_t* x, size_t bytes) {
  const Bytes d;
  const size_t lanes = hn::Lanes(d);
  auto v0 = hn::Zero(d);
  auto v1 = v0;
  for (size_t i = 0; i + 2 * lanes <= bytes; i += 2 * lanes) {
    v0 = hn::Xor(v0, hn::LoadU(d, x + i));
    v1 = hn::Xor(v1, hn::LoadU(d, x + i + lanes));
  }
  HWY_ALIGN uint8_t sink[64];
  hn::Store(hn::Xor(v0, v1), d, sink);
  asm volatile("" : : "r"(sink) : "memory");
}

// With the kernels' own load, rounding and store: what fusing saves is then
// the pass over memory alone.
template <class Codec>
void AddRows(const uint8_t* x, uint8_t* sum, size_t bytes) {
  const Codec codec;
  const char* from = reinterpret_cast<const char*>(x);
  char* to = reinterpret_cast<char*>(sum);
  constexpr size_t kUnit = 2 * kernels::kLanes;
  for (size_t i = 0; i < bytes / Codec::kSize; i += kUnit) {
    const kernels::Pair a = codec.Load(from, i);
    const kernels::Pair b = codec.Load(to, i);
    codec.Store({hn::Add(a.a, b.a), hn::Add(a.b, b.b)}, to, i);
  }
}

void AddTo(DType dtype, const uint8_t* x, uint8_t* sum, size_t bytes) {
  if (dtype == DType::kF32) AddRows<kernels::F32>(x, sum, bytes);
  if (dtype == DType::kBF16) AddRows<kernels::BF16>(x, sum, bytes);
  if (dtype == DType::kF16) AddRows<kernels::F16>(x, sum, bytes);
}

const Roofline* ThisTarget() {
  static const Roofline roofline = {{{Merge<1, false>, Merge<1, true>},
                                     {Add<false>, Add<true>},
                                     {Merge<2, false>, Merge<2, true>},
                                     {Merge<3, false>, Merge<3, true>},
                                     {Rewrite<false>, Rewrite<true>}},
                                    AddTo,
                                    Read};
  return &roofline;
}

}  // namespace HWY_NAMESPACE
}  // namespace bench
}  // namespace fusednorm
HWY_AFTER_NAMESPACE();
#endif  // FUSEDNORM_HAVE_TARGET

#if HWY_ONCE
namespace fusednorm {
namespace bench {

const Roofline* RooflineOf(const std::string& target) {
  using Getter = const Roofline* (*)();
  constexpr Getter kTable[] = FUSEDNORM_TARGET_TABLE(ThisTarget);
  constexpr const char* kNames[] = {"avx512", "avx2", "neon"};
  for (size_t t = 0; t < 3; ++t) {
    if (target == kNames[t] && kTable[t] != nullptr) return kTable[t]();
  }
  return nullptr;
}

double ClockGHz() {
  using Clock = std::chrono::steady_clock;
  constexpr int kAdditions = 1 << 15;
  double best = 0;
  for (int trial = 0; trial < 5; ++trial) {
    uint64_t sum = 0;
    uint64_t one = 1;
    const auto start = Clock::now();
#pragma GCC unroll 16
    for (int i = 0; i < kAdditions; ++i) {
      // Two registers: some cores fold additions of a constant.
      sum += one;
      asm volatile("" : "+r"(sum), "+r"(one));
    }
    const std::chrono::duration<double> seconds = Clock::now() - start;
    best = std::max(best, kAdditions / seconds.count());
  }
  return best * 1e-9;
}

}  // namespace bench
}  // namespace fusednorm
#endif  // HWY_ONCE

#include "bench/roofline.h"

#include <algorithm>
#include <chrono>
#include <cstring>

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

template <bool kStream>
void Copy(const uint8_t* HWY_RESTRICT x, uint8_t* HWY_RESTRICT out,
          size_t bytes) {
  const Bytes d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    const auto v0 = hn::LoadU(d, x + i);
    const auto v1 = hn::LoadU(d, x + i + lanes);
    const auto v2 = hn::LoadU(d, x + i + 2 * lanes);
    const auto v3 = hn::LoadU(d, x + i + 3 * lanes);
    Put<kStream>(v0, out + i);
    Put<kStream>(v1, out + i + lanes);
    Put<kStream>(v2, out + i + 2 * lanes);
    Put<kStream>(v3, out + i + 3 * lanes);
  }
  std::memcpy(out + i, x + i, bytes - i);
  if (kStream) hwy::FlushStream();
}

template <bool kStream>
void CopyAdd(const uint8_t* HWY_RESTRICT x, uint8_t* HWY_RESTRICT residual,
             uint8_t* HWY_RESTRICT out, size_t bytes) {
  const Bytes d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + 2 * lanes <= bytes; i += 2 * lanes) {
    const auto x0 = hn::LoadU(d, x + i);
    const auto x1 = hn::LoadU(d, x + i + lanes);
    const auto h0 = hn::LoadU(d, residual + i);
    const auto h1 = hn::LoadU(d, residual + i + lanes);
    hn::Store(x0, d, residual + i);
    hn::Store(x1, d, residual + i + lanes);
    Put<kStream>(h0, out + i);
    Put<kStream>(h1, out + i + lanes);
  }
  std::memcpy(out + i, residual + i, bytes - i);
  std::memcpy(residual + i, x + i, bytes - i);
  if (kStream) hwy::FlushStream();
}

// With the kernels' own load, rounding and store: what fusing saves is then
// the pass over memory alone.
template <class Codec>
void AddRows(const uint8_t* x, uint8_t* residual, size_t bytes) {
  const Codec codec;
  const char* from = reinterpret_cast<const char*>(x);
  char* to = reinterpret_cast<char*>(residual);
  constexpr size_t kUnit = 2 * kernels::kLanes;
  for (size_t i = 0; i < bytes / Codec::kSize; i += kUnit) {
    const kernels::Pair a = codec.Load(from, i);
    const kernels::Pair b = codec.Load(to, i);
    codec.Store({hn::Add(a.a, b.a), hn::Add(a.b, b.b)}, to, i);
  }
}

void Add(DType dtype, const uint8_t* x, uint8_t* residual, size_t bytes) {
  if (dtype == DType::kF32) AddRows<kernels::F32>(x, residual, bytes);
  if (dtype == DType::kBF16) AddRows<kernels::BF16>(x, residual, bytes);
  if (dtype == DType::kF16) AddRows<kernels::F16>(x, residual, bytes);
}

const Roofline* ThisTarget() {
  static const Roofline roofline = {Copy<false>, Copy<true>, CopyAdd<false>,
                                    CopyAdd<true>, Add};
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

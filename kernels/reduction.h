// The order of the sum of squares: the one definition, for every target.
//
// Index i of a row belongs to lane i % 64. Lanes add up by fma over a block,
// blocks are added lane by lane over a chunk, the 64 lanes are folded at
// distances 32, 16, 8, 4, 2, 1, and chunks are added in f64:
//
//   sum = 0 (f64)
//   for each chunk of 16384 elements:
//     top[0..64) = 0
//     for each block of 1024 elements:
//       acc[0..64) = 0
//       for each i in it:  acc[i % 64] = fma(u[i], u[i], acc[i % 64])
//       top[j] += acc[j]
//     for d in 32, 16, 8, 4, 2, 1:  top[j] += top[j + d]   for j < d
//     sum += top[0]
//
// Only distances decide who is added to whom, so 16, 8, 4 or 1 lanes, and
// vectors of even and odd elements, give the same bits. An index past the row
// counts as +0. The blocks keep the error of a constant row of 16384 at 4 units
// of 2^-24 where plain lanes reach 29.
#ifndef FUSEDNORM_KERNELS_REDUCTION_H_
#define FUSEDNORM_KERNELS_REDUCTION_H_

#include <cmath>
#include <cstdint>

#ifdef __FAST_MATH__
#error "fusednorm promises exact bits: build it without -ffast-math"
#endif

namespace fusednorm {
namespace internal {

constexpr int64_t kStep = 64;
constexpr int64_t kBlock = 1024;
constexpr int64_t kChunk = 16384;

struct Statistic {
  float rstd;
  // Otherwise the sum left the range where f32 keeps its accuracy (squares
  // overflow from |u| = 1.8e19 and vanish near 1e-23), or is not finite, and
  // the row is redone in f64.
  bool ordinary;
};

// `sum` is tested after its rounding to f32: 65536 squares of 1.3e17 overflow
// only there.
inline Statistic StatisticFromSum(double sum, float width, float eps) {
  const float s = static_cast<float>(sum);
  const float m = s / width + eps;
  const bool finite = std::fabs(m) <= 3.402823466e38f;  // False for NaN.
  const bool large = s >= width * 0x1p-100f || eps >= 0x1p-60f;
  return {1.0f / std::sqrt(m), finite && large};
}

// The same of a sum that is wanted for itself, whatever is added to it later.
inline bool SumIsOrdinary(double sum, float width) {
  return StatisticFromSum(sum, width, 0).ordinary;
}

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_REDUCTION_H_

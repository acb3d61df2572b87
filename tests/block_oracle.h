// The promised arithmetic of one row, written for the tests alone and as
// plainly as possible; it shares no code with the library.
#ifndef FUSEDNORM_TESTS_BLOCK_ORACLE_H_
#define FUSEDNORM_TESTS_BLOCK_ORACLE_H_

#include <cmath>
#include <vector>

#include "random_layout.h"
#include "test_support.h"

namespace fusednorm {
namespace test {

// F is the arithmetic: float, or double where all tensors are f64.
template <typename F>
using RowOf = std::vector<F>;

template <typename F>
RowOf<F> ReadRow(const Buffer& buffer, int64_t r) {
  RowOf<F> row;
  for (int64_t i = 0; i < buffer.width(); ++i) {
    row.push_back(static_cast<F>(buffer.value(r, i)));
  }
  return row;
}

// The sum of a_j * b_j in its fixed order: 64 lanes by fma, blocks of 1024,
// chunks of 16384 in f64.
template <typename F>
double SumOfProducts(const RowOf<F>& a, const RowOf<F>& b) {
  const size_t n = a.size();
  double sum = 0;
  for (size_t chunk = 0; chunk < n; chunk += 16384) {
    F top[64] = {};
    for (size_t block = chunk; block < chunk + 16384; block += 1024) {
      F acc[64] = {};
      for (size_t i = block; i < block + 1024 && i < n; ++i) {
        acc[i % 64] = std::fma(a[i], b[i], acc[i % 64]);
      }
      for (size_t j = 0; j < 64; ++j) top[j] = top[j] + acc[j];
    }
    for (size_t distance = 32; distance >= 1; distance /= 2) {
      for (size_t j = 0; j < distance; ++j) top[j] = top[j] + top[j + distance];
    }
    sum = sum + top[0];
  }
  return sum;
}

inline double SumFromLeftToRight(const RowOf<float>& u) {
  double sum = 0;
  for (double value : u) sum = sum + value * value;
  return sum;
}

inline bool SumIsOrdinary(double sum_f64, size_t width, float eps) {
  const float n = static_cast<float>(width);
  const float sum = static_cast<float>(sum_f64);
  float mean = sum / n;
  mean = mean + eps;
  return std::isfinite(mean) && (sum >= n * 0x1p-100f || eps >= 0x1p-60f);
}

// 1 / rms. Rows whose squares leave f32 have the wide one.
struct Rstd {
  bool exceptional;
  float narrow;
  double wide;

  float Times(float u) const {
    return exceptional ? static_cast<float>(u * wide) : u * narrow;
  }
};

inline Rstd WideRstdOf(double sum, size_t width, float eps) {
  const double root = std::sqrt(sum / static_cast<double>(width) + double{eps});
  const double wide = sum == 0 && eps == 0 ? 0 : 1 / root;
  return {true, static_cast<float>(wide), wide};
}

inline Rstd NarrowRstdOf(double sum, size_t width, float eps) {
  float mean = static_cast<float>(sum) / static_cast<float>(width);
  mean = mean + eps;
  return {false, 1.0f / std::sqrt(mean), 0};
}

inline Rstd RstdOf(const RowOf<float>& u, float eps) {
  const double sum = SumOfProducts(u, u);
  if (SumIsOrdinary(sum, u.size(), eps)) {
    return NarrowRstdOf(sum, u.size(), eps);
  }
  return WideRstdOf(SumFromLeftToRight(u), u.size(), eps);
}

// f64 is plain; only a zero row is one with eps = 0 too.
inline double RstdOf(const RowOf<double>& u, float eps) {
  const double mean =
      SumOfProducts(u, u) / static_cast<double>(u.size()) + double{eps};
  return mean == 0 ? 0 : 1 / std::sqrt(mean);
}

template <typename F>
F Round(DType dtype, F value) {
  return static_cast<F>(RoundTo(dtype, value));
}

// The gains of row `r` of a tensor of this shape; ones without a weight.
template <typename F>
RowOf<F> GainsOf(const Buffer& weight, const Numbers& shape, int64_t r,
                 float offset) {
  if (weight.empty()) return RowOf<F>(static_cast<size_t>(shape.back()), F{1});
  RowOf<F> gains = ReadRow<F>(weight, WeightRow(weight, shape, r));
  for (F& gain : gains) {
    if (offset != 0) gain = static_cast<F>(offset) + gain;
  }
  return gains;
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_BLOCK_ORACLE_H_

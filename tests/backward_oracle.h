// The promised gradients, written for the tests alone and as plainly as
// possible; it shares no code with the library.
#ifndef FUSEDNORM_TESTS_BACKWARD_ORACLE_H_
#define FUSEDNORM_TESTS_BACKWARD_ORACLE_H_

#include <algorithm>
#include <cmath>
#include <vector>

#include "backward_call.h"
#include "block_oracle.h"
#include "random_layout.h"

namespace fusednorm {
namespace test {

// What one row contributes: dx before its rounding, and the factors of dweight.
template <typename F>
struct RowGradient {
  RowOf<F> dx, dy, xh;
};

inline float NarrowRstd(const RowOf<float>& x, float eps) {
  return RstdOf(x, eps).narrow;
}
inline double NarrowRstd(const RowOf<double>& x, float eps) {
  return RstdOf(x, eps);
}

template <typename F>
RowGradient<F> GradientOfRow(const BackwardCall& call, int64_t r) {
  const Options& options = call.options;
  const RowOf<F> x = ReadRow<F>(call.x, r), dy = ReadRow<F>(call.dy, r);
  const F rstd = call.rstd.empty()
                     ? static_cast<F>(NarrowRstd(x, options.eps))
                     : static_cast<F>(call.rstd[static_cast<size_t>(r)]);
  const RowOf<F> g =
      GainsOf<F>(call.weight, call.x.layout().shape, r, options.weight_offset);
  RowOf<F> a, xh, dx;
  for (size_t j = 0; j < x.size(); ++j) {
    a.push_back(g[j] * dy[j]);
    xh.push_back(x[j] * rstd);
  }
  const F product = static_cast<F>(SumOfProducts(a, xh));
  const F c = product / static_cast<F>(x.size());
  for (size_t j = 0; j < x.size(); ++j) {
    const F projection = xh[j] * c;
    const F difference = a[j] - projection;
    dx.push_back(difference * rstd);
  }
  if (!call.d_residual_out.empty()) {
    const RowOf<F> stream = ReadRow<F>(call.d_residual_out, r);
    for (size_t j = 0; j < x.size(); ++j) dx[j] = stream[j] + dx[j];
  }
  return {dx, dy, xh};
}

// The sum of dy * xh over these rows, in order: slabs by the number of rows
// alone, blocks of 32 rows by fma, blocks and then slabs in f64.
template <typename F>
std::vector<double> SumOverRows(const std::vector<const RowGradient<F>*>& rows,
                                size_t width) {
  const size_t count = rows.size();
  const size_t rows_per_slab = 32 * ((count + 2047) / 2048);
  std::vector<double> total(width, 0);
  for (size_t j = 0; j < width; ++j) {
    for (size_t slab = 0; slab < count; slab += rows_per_slab) {
      const size_t slab_end = std::min(slab + rows_per_slab, count);
      double of_slab = 0;
      for (size_t block = slab; block < slab_end; block += 32) {
        F of_block = 0;
        for (size_t r = block; r < std::min(block + 32, slab_end); ++r) {
          of_block = std::fma(rows[r]->dy[j], rows[r]->xh[j], of_block);
        }
        of_slab = of_slab + static_cast<double>(of_block);
      }
      total[j] = total[j] + of_slab;
    }
  }
  return total;
}

template <typename F>
Gradients GradientOracleIn(const BackwardCall& call) {
  Gradients results{call.dx, call.dweight};
  const Numbers& shape = call.x.layout().shape;
  std::vector<RowGradient<F>> rows;
  for (int64_t r = 0; r < call.x.rows(); ++r) {
    rows.push_back(GradientOfRow<F>(call, r));
    if (call.dx.empty()) continue;
    for (size_t j = 0; j < rows.back().dx.size(); ++j) {
      results.dx.set_value(r, static_cast<int64_t>(j), rows.back().dx[j]);
    }
  }
  if (call.dweight.empty()) return results;
  for (int64_t k = 0; k < call.dweight.rows(); ++k) {
    std::vector<const RowGradient<F>*> sharing;
    for (int64_t r = 0; r < call.x.rows(); ++r) {
      if (WeightRow(call.dweight, shape, r) == k) {
        sharing.push_back(&rows[static_cast<size_t>(r)]);
      }
    }
    const size_t width = static_cast<size_t>(shape.back());
    const std::vector<double> sum = SumOverRows<F>(sharing, width);
    for (size_t j = 0; j < width; ++j) {
      const int64_t column = static_cast<int64_t>(j);
      const double old = call.dweight.value(k, column);
      results.dweight.set_value(
          k, column, call.options.accumulate ? sum[j] + old : sum[j]);
    }
  }
  return results;
}

inline Gradients GradientOracle(const BackwardCall& call) {
  return call.x.dtype() == DType::kF64 ? GradientOracleIn<double>(call)
                                       : GradientOracleIn<float>(call);
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_BACKWARD_ORACLE_H_

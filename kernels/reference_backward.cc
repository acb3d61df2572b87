// The backward row kernel in plain C++.
#include "kernels/backward.h"
#include "kernels/convert.h"
#include "kernels/reference.h"
#include "kernels/scalar.h"

namespace fusednorm {
namespace internal {
namespace {

float Rstd(const Plan& plan, const Row<float>& row) {
  if (plan.has[kRstd]) return *row.PerRow<float>(kRstd);
  return Norm<float>(plan, [&](int64_t i) { return row.Get(kX, i); }).rstd();
}
double Rstd(const Plan& plan, const Row<double>& row) {
  return Norm<double>(plan, [&](int64_t i) { return row.Get(kX, i); }).rstd();
}

// Where element i of a row is in a vector kernel's sums. A division would take
// longer than all else that is done for a gradient, but lanes are a power of 2.
int64_t SumPosition(int64_t i, int64_t lanes) {
  if (lanes == 0) return i;
  const int64_t in_pair = i & (2 * lanes - 1);
  return i - in_pair + (in_pair & 1) * lanes + in_pair / 2;
}

//   xh = x * r;  a = g * dy;  c = sum(a * xh) / n;  dx = (a - xh * c) * r
template <typename F>
void BackwardRow(const Plan& plan, const Row<F>& row, F* sums, int64_t lanes) {
  const F r = Rstd(plan, row);
  const auto xh = [&](int64_t i) { return row.Get(kX, i) * r; };
  const auto a = [&](int64_t i) {
    const F dy = row.Get(kDy, i);
    return plan.has[kWeight] ? row.Gain(kWeight, i) * dy : dy;
  };
  const F product = static_cast<F>(SumProducts<F>(plan.width, a, xh));
  const F c = product / static_cast<F>(plan.width);
  // dx may lie on x, dy or d_residual_out: all of an element is read first.
  for (int64_t i = 0; i < plan.width; ++i) {
    const F xh_i = xh(i);
    if (sums != nullptr) {
      F& sum = sums[SumPosition(i, lanes)];
      sum = std::fma(row.Get(kDy, i), xh_i, sum);
    }
    if (!plan.has[kOut]) continue;
    const F t = xh_i * c;
    F dx = (a(i) - t) * r;
    if (plan.has[kResidual]) dx = row.Get(kResidual, i) + dx;
    row.Put(kOut, i, dx);
  }
}

template <typename F>
void BackwardRows(const Plan& plan, const Rows& rows) {
  for (int64_t index = 0; index < rows.count; ++index) {
    BackwardRow(plan, Row<F>(plan, rows, index), static_cast<F*>(rows.sums), 0);
  }
}

template <typename F>
void AddSums(const void* sums, int64_t count, double* totals) {
  const F* from = static_cast<const F*>(sums);
  for (int64_t i = 0; i < count; ++i) {
    totals[i] += static_cast<double>(from[i]);
  }
}

// f64 to f32 such that a second rounding, to 16 bits, is the only one: what is
// cut off is kept in the last bit (rounding to odd).
float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  // Towards zero; from Inf to the largest.
  const bool away = std::fabs(back) > std::fabs(value);
  const bool inexact = back < value || back > value;  // Not NaN.
  const uint32_t bits = BitsFromF32(nearest) - (away ? 1u : 0u);
  return F32FromBits(bits | (inexact ? 1u : 0u));
}

// Gradients as they lie in dweight.
struct GradientF64 {
  using Type = double;
  static double Load(double v) { return v; }
  static double Round(double v) { return v; }
};
struct GradientF32 {
  using Type = float;
  static double Load(float v) { return v; }
  static float Round(double v) { return static_cast<float>(v); }
};
struct GradientBF16 {
  using Type = uint16_t;
  static double Load(uint16_t v) { return F32FromBF16(v); }
  static uint16_t Round(double v) { return BF16FromF32(RoundToOdd(v)); }
};
struct GradientF16 {
  using Type = uint16_t;
  static double Load(uint16_t v) { return F32FromF16(v); }
  static uint16_t Round(double v) { return F16FromF32(RoundToOdd(v)); }
};

template <class Gradient>
void StoreGradients(const Plan& plan, const double* totals, char* row) {
  auto* to = reinterpret_cast<typename Gradient::Type*>(row);
  for (int64_t i = 0; i < plan.width; ++i) {
    double value = totals[i];
    if (plan.accumulate) value += Gradient::Load(to[i]);
    to[i] = Gradient::Round(value);
  }
}

template <typename F>
BackwardKernel Kernel() {
  return {&BackwardRows<F>, &AddSums<F>, &StoreDWeightByReference};
}

}  // namespace

void StoreDWeightByReference(const Plan& plan, const double* totals,
                             char* row) {
  switch (plan.dtype[kDWeight]) {
    case DType::kF64:
      return StoreGradients<GradientF64>(plan, totals, row);
    case DType::kF32:
      return StoreGradients<GradientF32>(plan, totals, row);
    case DType::kBF16:
      return StoreGradients<GradientBF16>(plan, totals, row);
    default:
      return StoreGradients<GradientF16>(plan, totals, row);
  }
}

BackwardKernel SelectReferenceBackward(const Plan& plan) {
  return plan.dtype[kX] == DType::kF64 ? Kernel<double>() : Kernel<float>();
}

void BackwardRowByReference(const Plan& plan, const Rows& rows, int64_t index,
                            int64_t lanes) {
  BackwardRow(plan, Row<float>(plan, rows, index),
              static_cast<float*>(rows.sums), lanes);
}

float ReferenceRstd(const Plan& plan, const Rows& rows, int64_t index) {
  return Rstd(plan, Row<float>(plan, rows, index));
}

}  // namespace internal
}  // namespace fusednorm

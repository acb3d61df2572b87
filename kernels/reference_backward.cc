// The backward row kernel in plain C++.
#include "kernels/backward.h"
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

template <typename F>
BackwardKernel Kernel() {
  return {&BackwardRows<F>, &AddSums<F>};
}

}  // namespace

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

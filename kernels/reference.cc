// The forward operations in plain C++, one element after the other. Read this
// first: every other row kernel computes the same bits, faster.
#include "kernels/reference.h"

#include "kernels/scalar.h"

namespace fusednorm {
namespace internal {
namespace {

void StoreRstd(const Plan& plan, const Row<float>& row,
               const Norm<float>& norm) {
  if (plan.has[kRstd]) *row.PerRow<float>(kRstd) = norm.rstd();
}
void StoreRstd(const Plan&, const Row<double>&, const Norm<double>&) {}

// out = norm(x)
template <typename F>
void RmsNormRow(const Plan& plan, const Row<F>& row) {
  const auto x = [&](int64_t i) { return row.Get(kX, i); };
  const Norm<F> norm(plan, x);
  StoreRstd(plan, row, norm);
  for (int64_t i = 0; i < plan.width; ++i) {
    row.Put(kOut, i, row.Normalise(norm, x(i), plan.dtype[kX], kWeight, i));
  }
}

// residual_out = h;  out = norm(h), where `exact` is h before any rounding.
// With kRounded residual_out is stored first and read from then on, since it
// may lie on x or residual; the other modes store it last, when its inputs are
// done with.
template <typename F, class Exact>
void StoreSumAndNorm(const Plan& plan, const Row<F>& row, Exact exact,
                     Operand weight, bool sum_is_stored) {
  const DType stream = plan.dtype[kResidualOut];
  const bool store_first = plan.sum == Sum::kRounded && plan.has[kResidualOut];
  if (store_first && !sum_is_stored) {
    for (int64_t i = 0; i < plan.width; ++i) row.Put(kResidualOut, i, exact(i));
  }
  const auto rounded = [&](int64_t i) {
    if (store_first) return row.Get(kResidualOut, i);
    return RoundTo(stream, exact(i));
  };
  const Norm<F> norm(plan, [&](int64_t i) {
    return plan.sum == Sum::kRounded ? rounded(i) : exact(i);
  });
  StoreRstd(plan, row, norm);
  for (int64_t i = 0; i < plan.width; ++i) {
    const F h = plan.sum == Sum::kExact ? exact(i) : rounded(i);
    const F y = row.Normalise(norm, h, stream, weight, i);
    if (plan.has[kResidualOut]) row.Put(kResidualOut, i, h);
    row.Put(kOut, i, y);
  }
}

// h = x + residual_scale * residual;  residual_out = h;  out = norm(h)
template <typename F>
void AddRmsNormRow(const Plan& plan, const Row<F>& row, bool sum_is_stored) {
  const auto h = [&](int64_t i) { return row.AddResidual(row.Get(kX, i), i); };
  StoreSumAndNorm(plan, row, h, kWeight, sum_is_stored);
}

// The branch of a block after its norm: with kRounded the bits of an operation
// of its own, whose output has x's dtype.
template <typename F>
F PostNorm(const Plan& plan, const Row<F>& row, const Norm<F>& norm,
           int64_t i) {
  const DType x = plan.dtype[kX];
  const F y = row.Normalise(norm, row.Get(kX, i), x, kWeight, i);
  return plan.sum == Sum::kRounded ? RoundTo(x, y) : y;
}

// out = norm(x) + residual_scale * residual
template <typename F>
void RmsNormAddRow(const Plan& plan, const Row<F>& row) {
  const Norm<F> norm(plan, [&](int64_t i) { return row.Get(kX, i); });
  StoreRstd(plan, row, norm);
  for (int64_t i = 0; i < plan.width; ++i) {
    row.Put(kOut, i, row.AddResidual(PostNorm(plan, row, norm, i), i));
  }
}

// h = norm(x; post) + residual;  residual_out = h;  out = norm(h; pre)
template <typename F>
void RmsNormAddRmsNormRow(const Plan& plan, const Row<F>& row,
                          bool sum_is_stored) {
  // Of no use, and x perhaps gone, once the sum is stored.
  const Norm<F> post(plan, [&](int64_t i) { return row.Get(kX, i); });
  const auto h = [&](int64_t i) {
    return row.AddResidual(PostNorm(plan, row, post, i), i);
  };
  StoreSumAndNorm(plan, row, h, kWeightPre, sum_is_stored);
}

void RowRstdRow(const Plan& plan, const Row<float>& row) {
  const Norm<float> norm(plan, [&](int64_t i) { return row.Get(kX, i); });
  *row.PerRow<float>(kRstd) = norm.rstd();
}
void RowRstdRow(const Plan&, const Row<double>&) {}  // Refused.

double SumSquaresOf(const Plan& plan, const Row<float>& row) {
  const auto x = [&](int64_t i) { return row.Get(kX, i); };
  const double sum = SumSquares<float>(plan.width, x);
  if (SumIsOrdinary(sum, static_cast<float>(plan.width))) return sum;
  return SumSquaresWide(plan.width, x);
}
double SumSquaresOf(const Plan& plan, const Row<double>& row) {
  return SumSquares<double>(plan.width,
                            [&](int64_t i) { return row.Get(kX, i); });
}

// v = x * rstd for an rstd that is given
void RmsNormWithRstdRow(const Plan& plan, const Row<float>& row) {
  const Norm<float> norm(*row.PerRow<float>(kRstd));
  for (int64_t i = 0; i < plan.width; ++i) {
    row.Put(kOut, i,
            row.Normalise(norm, row.Get(kX, i), plan.dtype[kX], kWeight, i));
  }
}
void RmsNormWithRstdRow(const Plan&, const Row<double>&) {}  // Refused.

template <typename F>
void ReferenceRow(const Plan& plan, const Rows& rows, int64_t index,
                  bool sum_is_stored) {
  const Row<F> row(plan, rows, index);
  switch (plan.op) {
    case Op::kRmsNorm:
      return RmsNormRow(plan, row);
    case Op::kAddRmsNorm:
      return AddRmsNormRow(plan, row, sum_is_stored);
    case Op::kRmsNormAdd:
      return RmsNormAddRow(plan, row);
    case Op::kRmsNormAddRmsNorm:
      return RmsNormAddRmsNormRow(plan, row, sum_is_stored);
    case Op::kRowRstd:
      return RowRstdRow(plan, row);
    case Op::kRowSumSquares:
      *row.template PerRow<double>(kSums) = SumSquaresOf(plan, row);
      return;
    case Op::kRmsNormWithRstd:
      return RmsNormWithRstdRow(plan, row);
    case Op::kRmsNormBackward:
    case Op::kAddRmsNormBackward:
      return;  // Not forward operations.
  }
}

template <typename F>
void ReferenceRows(const Plan& plan, const Rows& rows) {
  for (int64_t index = 0; index < rows.count; ++index) {
    ReferenceRow<F>(plan, rows, index, /*sum_is_stored=*/false);
  }
}

}  // namespace

RowKernel SelectReference(const Plan& plan) {
  return plan.dtype[kX] == DType::kF64 ? &ReferenceRows<double>
                                       : &ReferenceRows<float>;
}

void ExceptionalRow(const Plan& plan, const Rows& rows, int64_t index,
                    bool sum_is_stored) {
  ReferenceRow<float>(plan, rows, index, sum_is_stored);
}

}  // namespace internal
}  // namespace fusednorm

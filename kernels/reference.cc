// The operations in plain C++, one element after the other. Read this first:
// every other row kernel computes the same bits, faster.
#include "kernels/reference.h"

#include <algorithm>
#include <cmath>

#include "kernels/convert.h"
#include "kernels/reduction.h"

namespace fusednorm {
namespace internal {
namespace {

// F is the arithmetic: float, or double where the tensors are f64.
template <typename F>
F Load(DType dtype, const char* row, int64_t i) {
  switch (dtype) {
    case DType::kBF16:
      return F32FromBF16(reinterpret_cast<const uint16_t*>(row)[i]);
    case DType::kF16:
      return F32FromF16(reinterpret_cast<const uint16_t*>(row)[i]);
    default:
      return reinterpret_cast<const F*>(row)[i];
  }
}

template <typename F>
void Store(DType dtype, char* row, int64_t i, F value) {
  switch (dtype) {
    case DType::kBF16:
      reinterpret_cast<uint16_t*>(row)[i] =
          BF16FromF32(static_cast<float>(value));
      break;
    case DType::kF16:
      reinterpret_cast<uint16_t*>(row)[i] =
          F16FromF32(static_cast<float>(value));
      break;
    default:
      reinterpret_cast<F*>(row)[i] = value;
  }
}

template <typename F>
F RoundTo(DType dtype, F value) {
  switch (dtype) {
    case DType::kBF16:
      return F32FromBF16(BF16FromF32(static_cast<float>(value)));
    case DType::kF16:
      return F32FromF16(F16FromF32(static_cast<float>(value)));
    default:
      return value;
  }
}

// The elements of one row, by the names of the formulas.
template <typename F>
class Row {
 public:
  Row(const Plan& plan, const Rows& rows, int64_t row) : plan_(plan) {
    for (int k = 0; k < kOperands; ++k) {
      data_[k] = rows.Row(static_cast<Operand>(k), row);
    }
  }

  // x + residual_scale * residual, before any rounding to the stream's dtype.
  F ExactSum(int64_t i) const {
    return std::fma(static_cast<F>(plan_.residual_scale), Get(kResidual, i),
                    Get(kX, i));
  }

  // With kRounded residual_out is stored first and read from then on, since it
  // may lie on x or residual.
  void StoreRoundedSum() const {
    for (int64_t i = 0; i < plan_.width; ++i) {
      Put(kResidualOut, i, ExactSum(i));
    }
  }

  F RoundedSum(int64_t i) const {
    if (plan_.sum == Sum::kRounded && plan_.has[kResidualOut]) {
      return Get(kResidualOut, i);
    }
    return RoundTo(VectorDType(), ExactSum(i));
  }

  // The vector of which the statistic is taken ...
  F StatisticInput(int64_t i) const {
    if (plan_.op == Op::kRmsNorm) return Get(kX, i);
    return plan_.sum == Sum::kRounded ? RoundedSum(i) : ExactSum(i);
  }

  // ... and the one that is normalised.
  F OutputInput(int64_t i) const {
    if (plan_.op == Op::kRmsNorm) return Get(kX, i);
    return plan_.sum == Sum::kExact ? ExactSum(i) : RoundedSum(i);
  }

  // The last pass: v(u) is the normalised value before any weight. Both inputs
  // of an element are read before either output is stored.
  template <class Normalise>
  void StoreOutputs(Normalise v) const {
    const bool store_sum = plan_.op == Op::kAddRmsNorm &&
                           plan_.sum != Sum::kRounded &&
                           plan_.has[kResidualOut];
    for (int64_t i = 0; i < plan_.width; ++i) {
      F y = v(OutputInput(i));
      if (plan_.rounding == Rounding::kBeforeWeight) {
        y = RoundTo(VectorDType(), y);
      }
      if (plan_.has[kWeight]) y = y * Gain(i);
      if (store_sum) Put(kResidualOut, i, ExactSum(i));
      Put(kOut, i, y);
    }
  }

  void StoreRstd(float rstd) const {
    if (plan_.has[kRstd]) *reinterpret_cast<float*>(data_[kRstd]) = rstd;
  }

 private:
  F Get(Operand k, int64_t i) const {
    return Load<F>(plan_.dtype[k], data_[k], i);
  }
  void Put(Operand k, int64_t i, F value) const {
    Store<F>(plan_.dtype[k], data_[k], i, value);
  }

  // An offset of 0 is not added: a weight of -0 keeps its sign.
  F Gain(int64_t i) const {
    const F weight = Get(kWeight, i);
    if (plan_.weight_offset == 0) return weight;
    return static_cast<F>(plan_.weight_offset) + weight;
  }

  // The dtype of the vector that is normalised.
  DType VectorDType() const {
    return plan_.dtype[plan_.op == Op::kRmsNorm ? kX : kResidualOut];
  }

  const Plan& plan_;
  char* data_[kOperands];
};

// reduction.h states the order.
template <typename F>
double SumSquares(const Row<F>& row, int64_t width) {
  double sum = 0;
  for (int64_t chunk = 0; chunk < width; chunk += kChunk) {
    F top[kStep] = {};
    const int64_t chunk_end = std::min(chunk + kChunk, width);
    for (int64_t block = chunk; block < chunk_end; block += kBlock) {
      F acc[kStep] = {};
      const int64_t block_end = std::min(block + kBlock, chunk_end);
      for (int64_t i = block; i < block_end; ++i) {
        const F u = row.StatisticInput(i);
        acc[i % kStep] = std::fma(u, u, acc[i % kStep]);
      }
      for (int64_t j = 0; j < kStep; ++j) top[j] = top[j] + acc[j];
    }
    for (int64_t d = kStep / 2; d > 0; d /= 2) {
      for (int64_t j = 0; j < d; ++j) top[j] = top[j] + top[j + d];
    }
    sum = sum + static_cast<double>(top[0]);
  }
  return sum;
}

void FinishRow(const Plan& plan, const Rows& rows, int64_t index,
               const Row<float>& row) {
  const Statistic statistic = StatisticFromSum(
      SumSquares(row, plan.width), static_cast<float>(plan.width), plan.eps);
  if (!statistic.ordinary) return ExceptionalRow(plan, rows, index);
  row.StoreRstd(statistic.rstd);
  row.StoreOutputs([&](float u) { return u * statistic.rstd; });
}

// f64 is plain IEEE, but a zero row gives zeros with eps = 0 too.
void FinishRow(const Plan& plan, const Rows&, int64_t, const Row<double>& row) {
  const double m =
      SumSquares(row, plan.width) / static_cast<double>(plan.width) +
      static_cast<double>(plan.eps);
  const double rstd = 1 / std::sqrt(m);
  row.StoreOutputs([&](double u) { return m == 0 && u == 0 ? u : u * rstd; });
}

template <typename F>
void ReferenceRows(const Plan& plan, const Rows& rows) {
  const bool store_sum_first = plan.op == Op::kAddRmsNorm &&
                               plan.sum == Sum::kRounded &&
                               plan.has[kResidualOut];
  for (int64_t index = 0; index < rows.count; ++index) {
    const Row<F> row(plan, rows, index);
    if (store_sum_first) row.StoreRoundedSum();
    FinishRow(plan, rows, index, row);
  }
}

}  // namespace

RowKernel SelectReference(const Plan& plan) {
  return plan.dtype[kX] == DType::kF64 ? &ReferenceRows<double>
                                       : &ReferenceRows<float>;
}

void ExceptionalRow(const Plan& plan, const Rows& rows, int64_t index) {
  const Row<float> row(plan, rows, index);
  double sum = 0;
  for (int64_t i = 0; i < plan.width; ++i) {
    const double u = row.StatisticInput(i);
    sum = sum + u * u;
  }
  const double m =
      sum / static_cast<double>(plan.width) + static_cast<double>(plan.eps);
  const double rstd = m == 0 ? 0 : 1 / std::sqrt(m);
  row.StoreRstd(static_cast<float>(rstd));
  row.StoreOutputs([&](float u) {
    return static_cast<float>(static_cast<double>(u) * rstd);
  });
}

}  // namespace internal
}  // namespace fusednorm

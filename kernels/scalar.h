// Elements, rounding and the statistic in plain C++, for the reference.
#ifndef FUSEDNORM_KERNELS_SCALAR_H_
#define FUSEDNORM_KERNELS_SCALAR_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/convert.h"
#include "kernels/plan.h"
#include "kernels/reduction.h"

namespace fusednorm {
namespace internal {

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

// The sum of a(i) * b(i) in the order that reduction.h states.
template <typename F, class A, class B>
double SumProducts(int64_t width, A a, B b) {
  double sum = 0;
  for (int64_t chunk = 0; chunk < width; chunk += kChunk) {
    F top[kStep] = {};
    const int64_t chunk_end = std::min(chunk + kChunk, width);
    for (int64_t block = chunk; block < chunk_end; block += kBlock) {
      F acc[kStep] = {};
      const int64_t block_end = std::min(block + kBlock, chunk_end);
      for (int64_t i = block; i < block_end; ++i) {
        acc[i % kStep] = std::fma(a(i), b(i), acc[i % kStep]);
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

template <typename F, class U>
double SumSquares(int64_t width, U u) {
  return SumProducts<F>(width, u, u);
}

// The sum of squares in f64, left to right.
template <class U>
double SumSquaresWide(int64_t width, U u) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double wide = u(i);
    sum = sum + wide * wide;
  }
  return sum;
}

inline double WideRstd(double sum, int64_t width, float eps) {
  const double m = sum / static_cast<double>(width) + static_cast<double>(eps);
  return m == 0 ? 0 : 1 / std::sqrt(m);
}

// The statistic of one row, and the normalised value v made from it.
template <typename F>
class Norm;

template <>
class Norm<float> {
 public:
  explicit Norm(float rstd) : rstd_(rstd) {}

  template <class U>
  Norm(const Plan& plan, U u) {
    const Statistic statistic =
        StatisticFromSum(SumSquares<float>(plan.width, u),
                         static_cast<float>(plan.width), plan.eps);
    rstd_ = statistic.rstd;
    if (!statistic.ordinary) {
      exceptional_ = true;
      wide_rstd_ =
          WideRstd(SumSquaresWide(plan.width, u), plan.width, plan.eps);
      rstd_ = static_cast<float>(wide_rstd_);
    }
  }

  float rstd() const { return rstd_; }

  float operator()(float u) const {
    if (!exceptional_) return u * rstd_;
    return static_cast<float>(static_cast<double>(u) * wide_rstd_);
  }

 private:
  float rstd_;
  bool exceptional_ = false;
  double wide_rstd_ = 0;
};

// f64 is plain IEEE, but a zero row gives zeros with eps = 0 too.
template <>
class Norm<double> {
 public:
  template <class U>
  Norm(const Plan& plan, U u) {
    const double m =
        SumSquares<double>(plan.width, u) / static_cast<double>(plan.width) +
        static_cast<double>(plan.eps);
    zero_ = m == 0;
    rstd_ = 1 / std::sqrt(m);
  }

  double rstd() const { return zero_ ? 0 : rstd_; }

  double operator()(double u) const { return zero_ && u == 0 ? u : u * rstd_; }

 private:
  bool zero_;
  double rstd_;
};

// The elements of one row, by the names of the formulas.
template <typename F>
class Row {
 public:
  Row(const Plan& plan, const Rows& rows, int64_t index) : plan_(plan) {
    for (int k = 0; k < kOperands; ++k) {
      data_[k] = rows.Row(static_cast<Operand>(k), index);
    }
  }

  F Get(Operand k, int64_t i) const {
    return Load<F>(plan_.dtype[k], data_[k], i);
  }
  void Put(Operand k, int64_t i, F value) const {
    Store<F>(plan_.dtype[k], data_[k], i, value);
  }

  // Values per row.
  template <typename Value>
  Value* PerRow(Operand k) const {
    return reinterpret_cast<Value*>(data_[k]);
  }

  // An offset of 0 is not added: a weight of -0 keeps its sign.
  F Gain(Operand weight, int64_t i) const {
    const F w = Get(weight, i);
    if (plan_.weight_offset == 0) return w;
    return static_cast<F>(plan_.weight_offset) + w;
  }

  // y of an element u of a vector of the given dtype.
  F Normalise(const Norm<F>& norm, F u, DType vector, Operand weight,
              int64_t i) const {
    F y = norm(u);
    if (plan_.rounding == Rounding::kBeforeWeight) y = RoundTo(vector, y);
    if (plan_.has[weight]) y = y * Gain(weight, i);
    return y;
  }

  // y + residual_scale * residual, before it is rounded to a dtype.
  F AddResidual(F y, int64_t i) const {
    return std::fma(static_cast<F>(plan_.residual_scale), Get(kResidual, i), y);
  }

 private:
  const Plan& plan_;
  char* data_[kOperands];
};

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_SCALAR_H_

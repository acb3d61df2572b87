// The operands of one call with their views held apart, so that a test can bend
// one view after the other, in one loop over both operations.
#ifndef FUSEDNORM_TESTS_OPERANDS_H_
#define FUSEDNORM_TESTS_OPERANDS_H_

#include <ostream>
#include <string>
#include <vector>

#include "test_support.h"

namespace fusednorm {
namespace test {

enum class Op { kRmsNorm, kAddRmsNorm };
constexpr Op kOps[] = {Op::kRmsNorm, Op::kAddRmsNorm};

inline std::string Name(Op op) {
  return op == Op::kRmsNorm ? "RmsNorm" : "AddRmsNorm";
}

// What one call is given. RmsNorm takes no residual and no residual_out.
struct Views {
  Op op = Op::kRmsNorm;
  Tensor x, residual, weight, out, residual_out;
  Options options;

  Status Run(const Implementation& implementation) const {
    if (op == Op::kRmsNorm) {
      return implementation.rms_norm(x, weight, out, options);
    }
    return implementation.add_rms_norm(x, residual, weight, out, residual_out,
                                       options);
  }
};

// The dtypes of a call; the stream's is that of residual and residual_out.
struct DTypes {
  DType x, stream, weight, out;
};

inline DTypes Uniform(DType dtype) { return {dtype, dtype, dtype, dtype}; }

inline std::ostream& operator<<(std::ostream& stream, const DTypes& dtypes) {
  return stream << "x " << Name(dtypes.x) << ", stream " << Name(dtypes.stream)
                << ", weight " << Name(dtypes.weight) << ", out "
                << Name(dtypes.out);
}

// Every dtype alone, then mixes that engines run.
constexpr DTypes kUsualDTypes[] = {
    {DType::kF32, DType::kF32, DType::kF32, DType::kF32},
    {DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16},
    {DType::kF16, DType::kF16, DType::kF16, DType::kF16},
    {DType::kF64, DType::kF64, DType::kF64, DType::kF64},
    {DType::kBF16, DType::kBF16, DType::kF32, DType::kBF16},
    {DType::kF16, DType::kF16, DType::kF32, DType::kF16},
    {DType::kBF16, DType::kF32, DType::kBF16, DType::kBF16},
    {DType::kF32, DType::kBF16, DType::kF16, DType::kF16},
    {DType::kF16, DType::kF32, DType::kBF16, DType::kF32},
};

// The buffers of one call, all distinct.
struct Operands {
  Operands(Op op_in, const DTypes& dtypes, const Layout& layout)
      : op(op_in),
        x(dtypes.x, layout),
        residual(dtypes.stream, layout),
        weight(dtypes.weight, Packed({layout.shape.back()})),
        out(dtypes.out, layout),
        residual_out(dtypes.stream, layout),
        rstd(static_cast<size_t>(x.rows()), -1.0f) {}

  // All tensors that the operation takes; rstd except for f64, which has none.
  Views Make() {
    Views views;
    views.op = op;
    views.x = x;
    views.weight = weight;
    views.out = out;
    if (op == Op::kAddRmsNorm) {
      views.residual = residual;
      views.residual_out = residual_out;
    }
    if (x.dtype() != DType::kF64) views.options.rstd = rstd.data();
    return views;
  }

  void Fill(Random& random) {
    x.Fill(random, Data::kNormal);
    residual.Fill(random, Data::kNormal);
    weight.Fill(random, Data::kNormal);
  }

  // Rows of every kind. Kernels may take several rows at a time, and fall back
  // together: so the first four and those after the twelfth are plain.
  void FillMixed(Random& random) {
    FillMixed(random, &x);
    FillMixed(random, &residual);
    weight.Fill(random, Data::kNormal);
  }

  static void FillMixed(Random& random, Buffer* buffer) {
    for (int64_t r = 0; r < buffer->rows(); ++r) {
      const bool plain = r % 16 < 4 || r % 16 >= 12;
      const Data data = plain ? Data::kNormal : kAllData[(r + r / 16) % 8];
      FillRow(random, data, buffer->dtype(), buffer->row(r), buffer->width());
    }
  }

  Op op;
  Buffer x, residual, weight, out, residual_out;
  std::vector<float> rstd;
};

// The outputs are alike, bit for bit.
inline testing::AssertionResult SameOutputs(const Operands& expected,
                                            const Operands& actual) {
  testing::AssertionResult same = SameBits(expected.out, actual.out);
  if (!same) return testing::AssertionFailure() << "out: " << same.message();
  same = SameBits(expected.residual_out, actual.residual_out);
  if (!same) {
    return testing::AssertionFailure() << "residual_out: " << same.message();
  }
  same = SameBits(expected.rstd, actual.rstd);
  if (!same) return testing::AssertionFailure() << "rstd: " << same.message();
  return testing::AssertionSuccess();
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_OPERANDS_H_

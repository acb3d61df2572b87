// Post-norm and sandwich blocks, the split statistic and the gradients in f32,
// bf16 and f16 against the same formulas in f64, on the same input values. The
// worst errors are printed for each operation and dtype.
//
// An error is measured against the magnitude of the terms that make an element
// (|norm| + |residual|; r (|a| + |xh| mean|a xh|)): where terms cancel, no
// arithmetic in f32 keeps more. The bounds are the roundings on the way, at
// most so many units of 2^-24, and half an ulp of a 16-bit output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "backward_call.h"
#include "backward_oracle.h"
#include "block_call.h"
#include "block_oracle.h"
#include "random_layout.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

constexpr double kUnit = 0x1p-24;

// The largest relative error of a rounding to the dtype, above its subnormals.
double RoundingOf(DType dtype) {
  if (dtype == DType::kBF16) return 0x1p-8;
  return dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

// Worst errors by what was computed, in units of the dtype's rounding.
class Table {
 public:
  // False if the error exceeds `units` of 2^-24 and one rounding.
  bool Add(const std::string& what, DType dtype, double exact, double got,
           double terms, double units) {
    const double error = std::fabs(got - exact);
    const bool tiny = dtype == DType::kF16 && std::fabs(exact) < 0x1p-14;
    if (terms > 0 && !tiny) {
      double& worst = worst_[what + ", " + Name(dtype)];
      worst = std::max(worst, error / terms / RoundingOf(dtype));
    }
    const double rounding =
        dtype == DType::kF32 || dtype == DType::kF64 ? 0 : RoundingOf(dtype);
    const double subnormal = dtype == DType::kF16 ? 0x1p-25 : 0;
    return error <=
           terms * (units * kUnit + rounding * (1 + 0x1p-10)) + subnormal;
  }

  ~Table() {
    for (const auto& [what, worst] : worst_) {
      std::printf("%-42s worst error %.2f roundings of the dtype\n",
                  what.c_str(), worst);
    }
  }

 private:
  std::map<std::string, double> worst_;
};

struct Setting {
  double magnitude;
  float eps;
  float offset;
};
constexpr Setting kSettings[] = {
    {1, 1e-6f, 0}, {1, 1e-6f, 1}, {1e-3, 1e-5f, 0}, {50, 0, 1}};

Numbers Widths() {
  if (Subset()) return {1, 7, 64, 130};
  return {1, 2, 7, 64, 100, 1024, 2560, 16384};
}

Buffer Draw(Random& random, DType dtype, const Numbers& shape, double scale) {
  Buffer buffer(dtype, shape);
  for (int64_t r = 0; r < buffer.rows(); ++r) {
    for (int64_t i = 0; i < buffer.width(); ++i) {
      buffer.set_value(r, i, scale * random.Normal());
    }
  }
  return buffer;
}

// ----------------------------------------------------------------- forward

// One row by the formulas, with the terms of each element.
struct ExactRow {
  RowOf<double> value, terms;
};

ExactRow NormOf(const ExactRow& u, const Buffer& weight, const Options& o) {
  const double rstd = RstdOf(u.value, o.eps);
  const RowOf<double> gains = GainsOf<double>(
      weight, {static_cast<int64_t>(u.value.size())}, 0, o.weight_offset);
  ExactRow y;
  for (size_t j = 0; j < u.value.size(); ++j) {
    y.value.push_back(u.value[j] * rstd * gains[j]);
    y.terms.push_back(std::fabs(u.terms[j] * rstd * gains[j]));
  }
  return y;
}

ExactRow PlusRow(ExactRow y, const Buffer& residual, int64_t r) {
  for (size_t j = 0; j < y.value.size(); ++j) {
    const double value = residual.value(r, static_cast<int64_t>(j));
    y.value[j] += value;
    y.terms[j] += std::fabs(value);
  }
  return y;
}

bool AddRow(Table& table, const std::string& what, const ExactRow& exact,
            const Buffer& got, int64_t r, double units) {
  bool sound = true;
  for (size_t j = 0; j < exact.value.size(); ++j) {
    sound = table.Add(what, got.dtype(), exact.value[j],
                      got.value(r, static_cast<int64_t>(j)), exact.terms[j],
                      units) &&
            sound;
  }
  return sound;
}

// A norm is promised within 8 units of 2^-24; the sandwich has two in a row.
void CheckForward(Random& random, Table& table, DType dtype, int64_t width,
                  const Setting& setting) {
  constexpr int64_t kRows = 4;
  const Numbers shape = {kRows, width};
  BlockCall call;
  call.x = Draw(random, dtype, shape, setting.magnitude);
  call.residual = Draw(random, dtype, shape, 1);
  call.weight = Draw(random, dtype, {width}, 1);
  call.weight_pre = Draw(random, dtype, {width}, 1);
  call.out = Buffer(dtype, shape);
  call.options.eps = setting.eps;
  call.options.weight_offset = setting.offset;
  call.options.sum = Sum::kExact;  // One rounding.
  const BlockResults added = RunBlock(Reference(), call);
  call.op = BlockOp::kRowRstd;
  const BlockResults rstd = RunBlock(Reference(), call);
  call.op = BlockOp::kRowSumSquares;
  const BlockResults sums = RunBlock(Reference(), call);
  call.op = BlockOp::kRmsNormWithRstd;
  call.given_rstd = rstd.rstd;
  const BlockResults split = RunBlock(Reference(), call);
  call.op = BlockOp::kRmsNormAddRmsNorm;
  call.residual_out = call.out;
  const BlockResults sandwich = RunBlock(Reference(), call);

  for (int64_t r = 0; r < kRows; ++r) {
    const RowOf<double> x = ReadRow<double>(call.x, r);
    const ExactRow norm = NormOf({x, x}, call.weight, call.options);
    const ExactRow h = PlusRow(norm, call.residual, r);
    const ExactRow out = NormOf(h, call.weight_pre, call.options);
    EXPECT_TRUE(AddRow(table, "RmsNormAdd", h, added.out, r, 8));
    EXPECT_TRUE(AddRow(table, "RmsNormWithRstd", norm, split.out, r, 8));
    EXPECT_TRUE(AddRow(table, "RmsNormAddRmsNorm residual_out", h,
                       sandwich.residual_out, r, 8));
    EXPECT_TRUE(
        AddRow(table, "RmsNormAddRmsNorm out", out, sandwich.out, r, 16));
    const double exact = RstdOf(x, setting.eps), sum = SumOfProducts(x, x);
    const size_t row = static_cast<size_t>(r);
    EXPECT_TRUE(
        table.Add("RowRstd", DType::kF32, exact, rstd.rstd[row], exact, 6));
    EXPECT_TRUE(
        table.Add("RowSumSquares", DType::kF32, sum, sums.sums[row], sum, 8));
  }
}

TEST(BlockAccuracy, Forward) {
  Random random;
  Table table;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : Widths()) {
      for (const Setting& setting : kSettings) {
        CheckForward(random, table, dtype, width, setting);
        ASSERT_FALSE(HasFailure()) << Name(dtype) << " " << width;
      }
    }
  }
}

// ---------------------------------------------------------------- backward

// Of r, of xh with it, of c with both and with the sum of products (16 units of
// a block and its folding), of the subtraction, the product and the addition.
constexpr double kDxUnits = 48;
// 16 units of a block of 32 rows, and those of xh.
constexpr double kDWeightUnits = 24;

void CheckBackward(Random& random, Table& table, BackwardOp op, DType dtype,
                   int64_t width, const Setting& setting) {
  const int64_t rows = width > 1100 ? 5 : 70;
  const Numbers shape = {rows, width};
  const size_t n = static_cast<size_t>(width);
  BackwardCall call;
  call.op = op;
  call.x = Draw(random, dtype, shape, setting.magnitude);
  call.dy = Draw(random, dtype, shape, 1);
  call.weight = Draw(random, dtype, {width}, 1);
  if (op == BackwardOp::kAddRmsNorm) {
    call.d_residual_out = Draw(random, dtype, shape, 1);
  }
  call.dx = Buffer(dtype, shape);
  call.dweight = Buffer(DType::kF32, Numbers{width});
  call.options.eps = setting.eps;
  call.options.weight_offset = setting.offset;
  const Gradients got = RunBackward(Reference(), call);
  BackwardCall narrow = call;
  narrow.dweight = Buffer(dtype, Numbers{width});
  const Gradients in_dtype = RunBackward(Reference(), narrow);

  RowOf<double> dweight(n, 0), magnitude(n, 0);
  for (int64_t r = 0; r < rows; ++r) {
    const RowGradient<double> exact = GradientOfRow<double>(call, r);
    const double rstd = RstdOf(ReadRow<double>(call.x, r), setting.eps);
    const RowOf<double> g =
        GainsOf<double>(call.weight, shape, r, setting.offset);
    double mean = 0;
    for (size_t j = 0; j < n; ++j) {
      mean +=
          std::fabs(g[j] * exact.dy[j] * exact.xh[j]) / static_cast<double>(n);
    }
    for (size_t j = 0; j < n; ++j) {
      const int64_t column = static_cast<int64_t>(j);
      double terms = rstd * (std::fabs(g[j] * exact.dy[j]) +
                             std::fabs(exact.xh[j]) * mean);
      if (op == BackwardOp::kAddRmsNorm) {
        terms += std::fabs(call.d_residual_out.value(r, column));
      }
      EXPECT_TRUE(table.Add(Name(op) + " dx", dtype, exact.dx[j],
                            got.dx.value(r, column), terms, kDxUnits));
      dweight[j] += exact.dy[j] * exact.xh[j];
      magnitude[j] += std::fabs(exact.dy[j] * exact.xh[j]);
    }
  }
  for (size_t j = 0; j < n; ++j) {
    const int64_t column = static_cast<int64_t>(j);
    EXPECT_TRUE(table.Add(Name(op) + " dweight from " + Name(dtype),
                          DType::kF32, dweight[j], got.dweight.value(0, column),
                          magnitude[j], kDWeightUnits));
    EXPECT_TRUE(table.Add(Name(op) + " dweight", dtype, dweight[j],
                          in_dtype.dweight.value(0, column), magnitude[j],
                          kDWeightUnits));
  }
}

TEST(BlockAccuracy, Backward) {
  Random random;
  Table table;
  for (BackwardOp op : kBackwardOps) {
    for (DType dtype : kFloatDTypes) {
      for (int64_t width : Widths()) {
        for (const Setting& setting : kSettings) {
          CheckBackward(random, table, op, dtype, width, setting);
          ASSERT_FALSE(HasFailure()) << Name(dtype) << " " << width;
        }
      }
    }
  }
}

// A million rows: sums in f32 alone would be lost to the fifth digit, and those
// in 16 bits would stop at 256.
TEST(BlockAccuracy, DWeightOfAMillionRows) {
  Random random;
  const int64_t rows = Subset() ? 20000 : 1000000;
  constexpr int64_t kWidth = 2;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    BackwardCall call;
    call.x = Buffer(dtype, {rows, kWidth});
    call.dy = Buffer(dtype, {rows, kWidth});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < kWidth; ++i) {
        // Of one sign in the first column, where sums grow.
        const double sign = i % 2 == 0 ? 1 : (random.Chance(50) ? 1 : -1);
        call.x.set_value(r, i, sign * (0.5 + random.Unit()));
        call.dy.set_value(r, i, 0.5 + random.Unit());
      }
    }
    std::vector<long double> exact(kWidth, 0), magnitude(kWidth, 0);
    for (int64_t r = 0; r < rows; ++r) {
      const RowOf<double> x = ReadRow<double>(call.x, r);
      const double rstd = RstdOf(x, call.options.eps);
      for (size_t j = 0; j < kWidth; ++j) {
        const double term =
            call.dy.value(r, static_cast<int64_t>(j)) * x[j] * rstd;
        exact[j] += term;
        magnitude[j] += std::fabs(term);
      }
    }
    call.dweight = Buffer(DType::kF64, Numbers{kWidth});
    call.options.num_threads = 1;
    const Gradients alone = RunBackward(Reference(), call);
    for (size_t j = 0; j < kWidth; ++j) {
      const double error = std::fabs(static_cast<double>(
          alone.dweight.value(0, static_cast<int64_t>(j)) - exact[j]));
      const double terms = static_cast<double>(magnitude[j]);
      EXPECT_LE(error, terms * kDWeightUnits * kUnit);
      std::printf("dweight of %lld rows of %s: %.1e of the terms\n",
                  static_cast<long long>(rows), Name(dtype).c_str(),
                  error / terms);
    }
    for (int32_t threads : {1, 7}) {
      call.options.num_threads = threads;
      ASSERT_TRUE(ExpectSame(alone, call, {Targets().front()}));
    }
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

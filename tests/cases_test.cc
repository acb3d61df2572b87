// Faults that RMSNorm kernels are known for, each as a test of its kind: small
// inputs with values that were computed in f64 from the formulas, over dtypes,
// operations, positions in the row, and widths about the vector lengths. The
// range of the sum, eps, NaN and Inf; rounding_test.cc has the roundings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "fusednorm/c.h"
#include "known_rows.h"
#include "operands.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

// ------------------------------------------------ range of the sum of squares

// Squares that leave f16, from f16 data and from others.
TEST(Range, SquaresLeaveF16) {
  Values values(8192, -100.0), expected(8192, -0.4472135955);
  std::fill_n(values.begin(), 4096, 300.0);
  std::fill_n(expected.begin(), 4096, 1.3416407865);
  for (const DType dtype : kFloatDTypes) {
    ExpectNorm(dtype, values, expected, 1e-6f);
    ExpectNorm(dtype, Values(8192, 60000.0), Values(8192, 1.0), 1e-6f);
    Values one(8, 0.0), one_expected(8, 0.0);
    one[0] = 17984;
    one_expected[0] = 2.8284271247;
    ExpectNorm(dtype, one, one_expected, 1e-6f);
  }
  EXPECT_EQ(RoundTo(kF16, 1.3416407865), 1.341796875);
}

// A sum that 16 bits cannot count, and that f32 counts exactly.
TEST(Range, ConstantRowsAreOnes) {
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t width : {1, 2, 3, 63, 64, 65, 255, 1024, 5120, 65536}) {
      if (Subset() && width > 5120) break;
      for (const double value : {1.0, -2.0, 0.25}) {
        const double expected = value < 0 ? -1.0 : 1.0;
        ExpectNorm(dtype, Values(static_cast<size_t>(width), value),
                   Values(static_cast<size_t>(width), expected), 0);
        if (HasFailure()) return;
      }
    }
  }
}

// Squares that overflow f32 one by one, and those whose sum does.
TEST(Range, SquaresOverflowF32) {
  const Values pattern = {1e20, -1e20, 2e20, 0};
  const Values expected = {0.8164966, -0.8164966, 1.6329932, 0};
  for (const DType dtype : {kF32, kBF16}) {
    // bf16 holds other values, in almost the same ratio.
    Values rounded = pattern;
    double sum = 0;
    for (double& value : rounded) {
      value = RoundTo(dtype, value);
      sum += value * value;
    }
    for (const int64_t count : {1, 2, 4, 7, 16, 33, 1024}) {
      Values exact = rounded;
      for (size_t i = 0; i < exact.size(); ++i) {
        exact[i] /= std::sqrt(sum / 4);
        EXPECT_NEAR(exact[i], expected[i], 0.01);
      }
      ExpectNorm(dtype, Repeat(pattern, count), Repeat(exact, count), 1e-6f);
    }
  }
  for (const double largest : {3.4028234e38, -3.4028234e38}) {
    for (const int64_t width : {1, 16, 65, 1025}) {
      ExpectNorm(kF32, Values(static_cast<size_t>(width), largest),
                 Values(static_cast<size_t>(width), largest < 0 ? -1.0 : 1.0),
                 1e-6f);
    }
  }
}

// The sum in f64 is finite, its f32 value is not.
TEST(Range, SumOverflowsOnlyInF32) {
  ExpectNorm(kF32, Values(65536, 1.3e17), Values(65536, 1.0), 1e-6f);
  ExpectNorm(kBF16, Values(65536, 0x1.ccp56), Values(65536, 1.0), 1e-6f);
}

// Squares that vanish in f32, down to subnormal elements.
TEST(Range, SquaresVanish) {
  for (const int64_t count : {1, 4, 8, 16, 33, 500}) {
    for (const double tiny : {1e-23, 0x1p-100, 0x1p-126, 0x1p-133, 0x1p-149}) {
      for (const DType dtype : {kF32, kBF16}) {
        if (RoundTo(dtype, tiny) == 0) continue;
        ExpectNorm(dtype, Repeat({tiny, -tiny}, count), Repeat({1, -1}, count),
                   0);
      }
    }
    for (const double tiny : {0x1p-14, 0x1p-20, 0x1p-24}) {
      ExpectNorm(kF16, Repeat({tiny, -tiny}, count), Repeat({1, -1}, count), 0);
    }
  }
}

// ----------------------------------------------------------------------- eps

// eps is added to the mean square inside the root, as it is, for every dtype:
// not outside the root (0.99), no maximum (0.316), not rounded to the dtype,
// never replaced.
TEST(Eps, IsInsideTheRootAndUnrounded) {
  const struct {
    double x;
    float eps;
  } cases[] = {
      {1e-3, 1e-5f},  {1e-3, 1e-6f},      {1e-4, 1e-6f}, {0.05810546875, 1e-6f},
      {1e-4, 1e-12f}, {0.05, 0.0078125f}, {3, 5},        {-2, 1e-5f}};
  for (const auto& one : cases) {
    for (const DType dtype : kFloatDTypes) {
      const double x = RoundTo(dtype, one.x);
      const double eps = static_cast<double>(one.eps);
      const double expected = x / std::sqrt(x * x + eps);
      for (const int64_t width : {1, 5, 16, 64, 100}) {
        ExpectNorm(dtype, Values(static_cast<size_t>(width), one.x),
                   Values(static_cast<size_t>(width), expected), one.eps);
      }
      if (HasFailure()) return;
    }
  }
  // Known answers, so that the formula above is not its own judge.
  ExpectNorm(kF32, Values(8, 1e-3), Values(8, 0.3015113446), 1e-5f);
  ExpectNorm(kF32, Values(8, 1e-3), Values(8, 0.7071067812), 1e-6f);
  ExpectNorm(kF16, Values(8, 1e-4), Values(8, 0.09952007), 1e-6f);
  ExpectNorm(kBF16, Values(8, 0.05810546875), Values(8, 0.99985194), 1e-6f);
}

TEST(Eps, WidthOne) {
  ExpectNorm(kF32, {1e-3}, {0.30151134}, 1e-5f);
  ExpectNorm(kF32, {1e-7}, {3.16227766e-5}, 1e-5f);
  ExpectNorm(kF32, {0}, {0}, 1e-5f);
  ExpectNorm(kF32, {-5}, {-0.9999998}, 1e-5f);
}

// Each entry point that takes eps reacts to it.
TEST(Eps, EveryEntryPointReacts) {
  const float in[4] = {1e-3f, 1e-3f, -1e-3f, 1e-3f};
  const float zeros[4] = {};
  const ConstTensor x(in, kF32, {1, 4}), zero(zeros, kF32, {1, 4});
  const struct {
    float eps;
    double expected;
  } cases[] = {{1e-5f, 0.3015113446}, {1e-6f, 0.7071067812}};
  for (const auto& one : cases) {
    float out[4];
    const Tensor y(out, kF32, {1, 4});
    Options options;
    options.eps = one.eps;
    ForEachImplementation([&](const Implementation& implementation) {
      EXPECT_STATUS_OK(implementation.rms_norm(x, {}, y, options));
      EXPECT_TRUE(Near(kF32, one.expected, out[3]));
      EXPECT_STATUS_OK(
          implementation.add_rms_norm(x, zero, {}, y, {}, options));
      EXPECT_TRUE(Near(kF32, one.expected, out[3]));
      EXPECT_EQ(fusednorm_rms_norm_f32(in, nullptr, out, 1, 4, one.eps), 0);
      EXPECT_TRUE(Near(kF32, one.expected, out[3]));
    });
  }
  // The default is 1e-6 for every dtype.
  for (const DType dtype : kFloatDTypes) {
    const double value = RoundTo(dtype, 1e-3);
    ForEachWay(dtype, kF32, Values(16, 1e-3), {}, Options(),
               [&](const Buffer& out, const std::string& name) {
                 EXPECT_TRUE(Near(kF32, value / std::sqrt(value * value + 1e-6),
                                  out.value(0, 15)))
                     << name;
               });
  }
}

// A zero row is zeros for every eps, times its weight; and nothing of it is
// seen in its neighbours.
TEST(Eps, ZeroRows) {
  Random random;
  for (const DType dtype : {kF32, kBF16, kF16, DType::kF64}) {
    for (const int64_t width : {1, 10, 16, 33, 64, 200}) {
      for (const float eps : {0.0f, 1e-45f, 1e-12f, 1e-6f}) {
        for (const Op op : kOps) {
          Operands operands(op, Uniform(dtype), Packed({3, width}));
          operands.Fill(random);
          for (int64_t i = 0; i < width; ++i) {
            operands.x.set_value(1, i, i % 2 == 0 ? 0.0 : -0.0);
            operands.residual.set_value(1, i, 0.0);
          }
          operands.weight.set_value(0, 0, 1.0);
          ForEachImplementation([&](const Implementation& implementation) {
            Views views = operands.Make();
            views.options.eps = eps;
            EXPECT_STATUS_OK(views.Run(implementation));
            for (int64_t i = 0; i < width; ++i) {
              ASSERT_EQ(operands.out.value(1, i), 0) << Name(dtype);
              ASSERT_TRUE(std::isfinite(operands.out.value(0, i)));
            }
            EXPECT_NE(operands.out.value(0, 0), 0);
            EXPECT_NE(operands.out.value(2, 0), 0);
          });
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Eps, ZeroRowUnderAnInfiniteOrNanWeight) {
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t width : {3, 40, 130}) {
      Buffer weight(kF32, {width});
      weight.FillWith(Values(static_cast<size_t>(width), 1.0));
      weight.set_value(0, width - 1, kInfinity);
      weight.set_value(0, 1, std::nan(""));
      Options options;
      options.eps = 0;
      ForEachWay(dtype, dtype, Values(static_cast<size_t>(width), 0.0), weight,
                 options, [&](const Buffer& out, const std::string& name) {
                   EXPECT_EQ(out.value(0, 0), 0) << name;
                   EXPECT_TRUE(std::isnan(out.value(0, 1))) << name;
                   EXPECT_TRUE(std::isnan(out.value(0, width - 1))) << name;
                 });
    }
  }
}

// --------------------------------------------------------------- NaN and Inf

// A conversion that adds and shifts turns some NaN into -0 or Inf.
TEST(NanAndInf, EveryNanStaysOne) {
  for (const uint32_t pattern :
       {0x7F800001u, 0x7FFFFFFFu, 0xFFFFFFFFu, 0xFF800001u, 0x7FC00001u,
        0x7F80FFFFu, 0xFFFF8000u}) {
    for (const DType out_dtype : kFloatDTypes) {
      for (const int64_t width : {1, 7, 16, 33, 64, 70, 130}) {
        for (int64_t at = 0; at < width; at += 1 + at / 8) {
          // In the weight: there alone.
          Operands operands(Op::kAddRmsNorm, {kF32, out_dtype, kF32, out_dtype},
                            Packed({1, width}));
          const auto count = static_cast<size_t>(width);
          operands.x.FillWith(Values(count, 1.0));
          operands.residual.FillWith(Values(count, 0.0));
          operands.weight.FillWith(Values(count, 2.0));
          operands.weight.set_bits(0, at, pattern);
          ForEachImplementation([&](const Implementation& implementation) {
            Views views = operands.Make();
            views.options.eps = 0;
            for (const Op op : kOps) {
              views.op = op;
              EXPECT_STATUS_OK(views.Run(implementation));
              for (int64_t i = 0; i < width; ++i) {
                ASSERT_TRUE(i == at ? std::isnan(operands.out.value(0, i))
                                    : operands.out.value(0, i) == 2)
                    << Name(op) << " " << Name(out_dtype) << " width " << width
                    << " element " << i << " NaN at " << at;
              }
            }
          });
          // In x: in the sum there alone, in the output everywhere.
          operands.x.set_bits(0, at, pattern);
          ForEachImplementation([&](const Implementation& implementation) {
            Views views = operands.Make();
            views.op = Op::kAddRmsNorm;
            EXPECT_STATUS_OK(views.Run(implementation));
            for (int64_t i = 0; i < width; ++i) {
              ASSERT_TRUE(std::isnan(operands.out.value(0, i)));
              ASSERT_TRUE(i == at
                              ? std::isnan(operands.residual_out.value(0, i))
                              : operands.residual_out.value(0, i) == 1);
            }
            EXPECT_TRUE(std::isnan(operands.rstd[0]));
          });
          if (HasFailure()) return;
        }
      }
    }
  }
}

// One Inf gives NaN in its place and 0 elsewhere, one NaN a row of NaN; rows
// beside it have the bits of a run without it.
TEST(NanAndInf, StayInTheirRow) {
  Random random;
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t width : {1, 4, 16, 33, 64, 130, 4096}) {
      for (const Op op : kOps) {
        Operands clean(op, Uniform(dtype), Packed({3, width}));
        clean.Fill(random);
        const Operands blank = clean;
        ASSERT_STATUS_OK(clean.Make().Run(Reference()));
        for (const double special : {kInfinity, -kInfinity, std::nan("")}) {
          for (const bool in_residual : {false, true}) {
            if (in_residual && op == Op::kRmsNorm) continue;
            const int64_t at = random.Uniform(0, width - 1);
            ForEachImplementation([&](const Implementation& implementation) {
              Operands actual = blank;
              (in_residual ? actual.residual : actual.x)
                  .set_value(1, at, special);
              EXPECT_STATUS_OK(actual.Make().Run(implementation));
              for (int64_t i = 0; i < width; ++i) {
                const double got = actual.out.value(1, i);
                ASSERT_TRUE(std::isnan(special) || i == at ? std::isnan(got)
                                                           : got == 0)
                    << Name(op) << " " << Name(dtype) << " width " << width
                    << ": " << special << " at " << at << ", element " << i
                    << " is " << got;
              }
              for (const int64_t row : {0, 2}) {
                EXPECT_TRUE(SameRow(dtype, clean.out.row(row),
                                    actual.out.row(row), width));
                EXPECT_EQ(clean.rstd[static_cast<size_t>(row)],
                          actual.rstd[static_cast<size_t>(row)]);
              }
            });
          }
        }
        if (HasFailure()) return;
      }
    }
  }
}

// +Inf and -Inf meet in the sum: NaN, with no signal to anyone.
TEST(NanAndInf, InfinitiesThatCancel) {
  for (const DType dtype : kFloatDTypes) {
    Operands operands(Op::kAddRmsNorm, Uniform(dtype), Packed({1, 40}));
    operands.x.FillWith(Values(40, 1.0));
    operands.residual.FillWith(Values(40, 1.0));
    operands.x.set_value(0, 39, kInfinity);
    operands.residual.set_value(0, 39, -kInfinity);
    ForEachImplementation([&](const Implementation& implementation) {
      EXPECT_STATUS_OK(operands.Make().Run(implementation));
      EXPECT_EQ(operands.residual_out.value(0, 0), 2);
      EXPECT_TRUE(std::isnan(operands.residual_out.value(0, 39)));
      EXPECT_TRUE(std::isnan(operands.out.value(0, 0)));
    });
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

// Where values are rounded, and to which dtype: the normalised value before the
// weight, the gain, the sum. Values by hand, at every place in the row.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "known_rows.h"
#include "operands.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

// What the normalised value is rounded to before the weight is applied, by the
// dtype of the vector that is normalised; all four elements tell.
TEST(Rounding, BeforeTheWeightOrOnce) {
  const Values x = {-2, -2.5, 2, 2.5};
  const Values w = {3.015625, 2.03125, 2.109375, 3.09375};
  const Values before = {-2.65625, -2.234375, 1.859375, 3.40625};
  const Values once = {-2.671875, -2.25, 1.8671875, 3.421875};
  // The dtype of the vector, and whether that rounding is then to be seen.
  for (const DType x_dtype : {kF32, kBF16}) {
    for (const DType stream : {kF32, kBF16}) {
      for (const DType weight_dtype : {kF32, kBF16}) {
        for (int64_t count = 1; count <= 33; count += count < 5 ? 1 : 7) {
          const int64_t width = 4 * count;
          Operands operands(Op::kAddRmsNorm,
                            {x_dtype, stream, weight_dtype, kBF16},
                            Packed({1, width}));
          operands.x.FillWith(Repeat(x, count));
          operands.residual.FillWith(Values(static_cast<size_t>(width), 0.0));
          operands.weight.FillWith(Repeat(w, count));
          const auto expect = [&](const Values& expected) {
            for (int64_t i = 0; i < width; ++i) {
              ASSERT_EQ(operands.out.value(0, i),
                        expected[static_cast<size_t>(i % 4)])
                  << "x " << Name(x_dtype) << " stream " << Name(stream)
                  << " weight " << Name(weight_dtype) << " width " << width;
            }
          };
          ForEachImplementation([&](const Implementation& implementation) {
            Views views = operands.Make();
            for (const int sum : {0, 1, 2}) {
              views.options.sum = static_cast<Sum>(sum);
              views.op = Op::kAddRmsNorm;
              views.options.rounding = Rounding::kOnce;
              EXPECT_STATUS_OK(views.Run(implementation));
              expect(once);
              views.options.rounding = Rounding::kBeforeWeight;
              EXPECT_STATUS_OK(views.Run(implementation));
              expect(stream == kBF16 ? before : once);
            }
            views.op = Op::kRmsNorm;
            EXPECT_STATUS_OK(views.Run(implementation));
            expect(x_dtype == kBF16 ? before : once);
            views.options.rounding = Rounding::kOnce;
            EXPECT_STATUS_OK(views.Run(implementation));
            expect(once);
          });
          if (HasFailure()) return;
        }
      }
    }
  }
}

// f16 has more digits than bf16: a middle rounding in the wrong one of the two
// shows. v = 2 / sqrt(5.125) and so on, by hand.
TEST(Rounding, MiddleRoundingIsInTheVectorsDType) {
  const Values x = {-2, -2.5, 2, 2.5};
  const Values w = {3.015625, 2.03125, 2.109375, 3.09375};
  for (const DType vector : kFloatDTypes) {
    for (const DType out_dtype : kFloatDTypes) {
      Options options;
      options.rounding = Rounding::kBeforeWeight;
      for (const int64_t count : {1, 3, 16, 17}) {
        Buffer weight(kF32, {4 * count});
        weight.FillWith(Repeat(w, count));
        ForEachWay(vector, out_dtype, Repeat(x, count), weight, options,
                   [&](const Buffer& out, const std::string& name) {
                     for (int64_t i = 0; i < 4 * count; ++i) {
                       const auto k = static_cast<size_t>(i % 4);
                       const double v =
                           RoundTo(vector, x[k] / std::sqrt(5.125 + 1e-6));
                       ASSERT_TRUE(Near(out_dtype, v * w[k], out.value(0, i)))
                           << name << ", element " << i;
                     }
                   });
      }
    }
  }
}

// A single element of sqrt(width) has the normalised value sqrt(width) itself:
// with it every gain can be seen, at any place in the row.
void ExpectGain(DType x_dtype, DType weight_dtype, DType out_dtype,
                float offset, double weight_value, double gain) {
  for (const int64_t root : {3, 4, 8, 10}) {
    const int64_t width = root * root;
    for (int64_t at = 0; at < width; at += at < 20 && !Subset() ? 1 : 9) {
      Values values(static_cast<size_t>(width), 0.0);
      values[static_cast<size_t>(at)] = static_cast<double>(root);
      Buffer weight(weight_dtype, {width});
      weight.FillWith(Values(static_cast<size_t>(width), 1.0));
      weight.set_value(0, at, weight_value);
      Options options;
      options.eps = 0;
      options.weight_offset = offset;
      for (const Rounding rounding :
           {Rounding::kOnce, Rounding::kBeforeWeight}) {
        options.rounding = rounding;
        ForEachWay(x_dtype, out_dtype, values, weight, options,
                   [&](const Buffer& out, const std::string& name) {
                     const double expected =
                         RoundTo(out_dtype, static_cast<double>(root) * gain);
                     EXPECT_EQ(out.value(0, at), expected)
                         << name << ", element " << at;
                   });
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

// The offset is added to the weight in f32, not in the weight's dtype.
TEST(Rounding, OffsetIsAddedInF32) {
  EXPECT_EQ(RoundTo(kBF16, 3 * 16.8125), 50.5);  // A bf16 sum gives 50.25.
  for (const DType dtype : kFloatDTypes) {
    for (const DType out_dtype : kFloatDTypes) {
      ExpectGain(dtype, kBF16, out_dtype, 1, 15.8125, 16.8125);
      ExpectGain(dtype, kBF16, out_dtype, 1, 0.00390625, 1.00390625);
      ExpectGain(dtype, kF16, out_dtype, 1, 0x1p-11, 1 + 0x1p-11);
      ExpectGain(dtype, kBF16, out_dtype, -0.5f, 0.50390625, 0.00390625);
    }
  }
}

// An f32 weight is not rounded to the activations' dtype.
TEST(Rounding, F32WeightIsUsedAsItIs) {
  for (const DType dtype : kFloatDTypes) {
    for (const DType out_dtype : kFloatDTypes) {
      ExpectGain(dtype, kF32, out_dtype, 0, 1.00390625, 1.00390625);
      ExpectGain(dtype, kF32, out_dtype, 0, 1 + 0x1p-12, 1 + 0x1p-12);
    }
  }
  EXPECT_EQ(RoundTo(kBF16, 3.01171875), 3.015625);
}

// A weight of 0 gives zeros, unless there is an offset; one of -0 keeps its
// sign where there is none.
TEST(Rounding, ZeroWeights) {
  Values ones(66, 1.0);
  for (const DType dtype : kFloatDTypes) {
    Buffer weight(dtype, {66});
    weight.FillWith(Values(66, -0.0));
    Options options;
    options.eps = 0;
    ForEachWay(dtype, dtype, ones, weight, options,
               [&](const Buffer& out, const std::string& name) {
                 for (int64_t i = 0; i < 66; ++i) {
                   EXPECT_EQ(out.value(0, i), 0) << name;
                   EXPECT_TRUE(std::signbit(out.value(0, i))) << name;
                 }
               });
    options.weight_offset = 1;
    ForEachWay(dtype, dtype, ones, weight, options,
               [&](const Buffer& out, const std::string& name) {
                 EXPECT_EQ(out.value(0, 0), 1) << name;
                 EXPECT_EQ(out.value(0, 65), 1) << name;
               });
  }
}

// ------------------------------------------------------------------- the sum

// 256 + 1 is no bf16: which value of the sum the norm sees is seen at once.
TEST(TheSum, WhichValueTheNormSees) {
  const struct {
    Sum sum;
    double out[2];
  } cases[] = {
      {Sum::kRounded, {1.4140625, 0.005523681640625}},
      {Sum::kExact, {1.4140625, 0.0054931640625}},
      {Sum::kExactStatistic, {1.40625, 0.0054931640625}},
  };
  for (const auto& one : cases) {
    for (const int64_t count : {1, 2, 4, 5, 8, 16, 17, 32, 33, 65}) {
      Operands operands(Op::kAddRmsNorm, Uniform(kBF16),
                        Packed({1, 2 * count}));
      operands.x.FillWith(Repeat({256, 1}, count));
      operands.residual.FillWith(Repeat({1, 0}, count));
      operands.weight.FillWith(Repeat({1, 1}, count));
      ForEachImplementation([&](const Implementation& implementation) {
        for (const bool stored : {true, false}) {
          Views views = operands.Make();
          views.options.sum = one.sum;
          if (!stored) views.residual_out = Tensor();
          EXPECT_STATUS_OK(views.Run(implementation));
          for (int64_t i = 0; i < 2 * count; ++i) {
            ASSERT_EQ(operands.out.value(0, i), one.out[i % 2])
                << "sum " << static_cast<int>(one.sum) << " width " << 2 * count
                << " element " << i;
            ASSERT_EQ(operands.residual_out.value(0, i), i % 2 == 0 ? 256 : 1);
          }
        }
      });
    }
  }
}

// What is stored is rounded to nearest, ties to even, never cut off.
TEST(TheSum, IsStoredToNearestEven) {
  const struct {
    DType stream;
    double x, residual, stored;
  } cases[] = {
      {kBF16, 1, 0.0048828125, 1.0078125},
      {kBF16, 1, 0x1p-8, 1},
      {kBF16, 1, 3 * 0x1p-8, 1.015625},
      {kBF16, -1, -3 * 0x1p-8, -1.015625},
      {kBF16, 0.2691408770292272, 0, 0.26953125},
      {kBF16, 0x1.fep127, 0x1p119, kInfinity},
      {kF16, 1, 0x1p-11, 1},
      {kF16, 1, 3 * 0x1p-11, 1 + 0x1p-9},
      {kF16, 65504, 16, kInfinity},
      {kF16, 65504, 15, 65504},
      {kF16, 0x1p-24, 0x1p-24, 0x1p-23},
      {kF32, 1, 0x1p-24, 1},
      {kF32, 1, 3 * 0x1p-24, 1 + 0x1p-22},
  };
  for (const auto& one : cases) {
    for (const int64_t width : {1, 7, 16, 33, 64, 101}) {
      for (const int sum : {0, 1, 2}) {
        Operands operands(Op::kAddRmsNorm, {kF32, one.stream, kF32, kF32},
                          Packed({1, width}));
        const auto count = static_cast<size_t>(width);
        operands.x.FillWith(Values(count, one.x));
        operands.residual.FillWith(Values(count, one.residual));
        ASSERT_EQ(operands.residual.value(0, 0), one.residual);
        ForEachImplementation([&](const Implementation& implementation) {
          Views views = operands.Make();
          views.options.sum = static_cast<Sum>(sum);
          EXPECT_STATUS_OK(views.Run(implementation));
          for (int64_t i = 0; i < width; ++i) {
            ASSERT_EQ(operands.residual_out.value(0, i), one.stored)
                << one.x << " + " << one.residual << " in " << Name(one.stream);
          }
        });
      }
    }
  }
}

// A scale is fused: scale * residual is not rounded before it is added.
TEST(TheSum, ScaleIsFused) {
  const float scale = 1 + 0x1p-23f;
  for (const int64_t width : {1, 8, 37, 130}) {
    const auto count = static_cast<size_t>(width);
    Operands operands(Op::kAddRmsNorm, Uniform(kF32), Packed({1, width}));
    operands.x.FillWith(Values(count, -1 - 0x1p-22));
    operands.residual.FillWith(Values(count, 1 + 0x1p-23));
    ForEachImplementation([&](const Implementation& implementation) {
      Views views = operands.Make();
      views.options.residual_scale = scale;
      EXPECT_STATUS_OK(views.Run(implementation));
      for (int64_t i = 0; i < width; ++i) {
        ASSERT_EQ(operands.residual_out.value(0, i), 0x1p-46);
      }
    });
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

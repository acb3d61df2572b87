// The promised gradients once more, from backward_oracle.h: the reference has
// their bits, and so has every target where the order of dweight's sum is at
// stake.
#include <gtest/gtest.h>

#include <vector>

#include "backward_call.h"
#include "backward_draw.h"
#include "backward_oracle.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

Numbers Widths() {
  if (Subset()) return {1, 3, 65, 1025};
  return {1,  2,  3,   4,   8,   9,    15,   17,   33,   63,
          64, 65, 100, 130, 576, 1023, 1024, 1025, 4097, 16449};
}

Numbers Shape(Random& random, int64_t width) {
  switch (random.Uniform(0, 3)) {
    case 0:
      return {width};
    case 1:
      return {random.Uniform(1, 70), width};
    case 2:
      return {5, 3, width};
    default:
      return {2, 3, 4, width};
  }
}

class BackwardOracle : public testing::TestWithParam<BackwardOp> {};

TEST_P(BackwardOracle, ReferenceHasTheSpecifiedBits) {
  const std::vector<Implementation> reference = {Reference()};
  Random random;
  for (int64_t width : Widths()) {
    const int repeats = width > 1024 ? 4 : (Subset() ? 10 : 25);
    for (int repeat = 0; repeat < repeats; ++repeat) {
      const BackwardDTypes dtypes = random.Chance(10)
                                        ? Uniform(DType::kF64)
                                        : RandomBackwardDTypes(random);
      const Numbers shape =
          width > 1024 ? Numbers{4, width} : Shape(random, width);
      const BackwardCall call = DrawBackward(random, GetParam(), dtypes, shape);
      ASSERT_TRUE(ExpectSame(GradientOracle(call), call, reference));
    }
  }
}

// x, dy and a weight of ordinary values, dx and dweight wanted.
BackwardCall Ordinary(Random& random, BackwardOp op, DType dtype,
                      const Numbers& shape, const Numbers& weight_shape,
                      DType dweight) {
  BackwardCall call;
  call.op = op;
  call.x = Buffer(dtype, shape);
  call.dy = Buffer(dtype, shape);
  call.weight = Buffer(dtype, weight_shape);
  for (Buffer* input : {&call.x, &call.dy, &call.weight}) {
    input->Fill(random, Data::kNormal);
  }
  if (op == BackwardOp::kAddRmsNorm) {
    call.d_residual_out = call.dy;
    call.d_residual_out.Fill(random, Data::kNormal);
  }
  call.dx = Buffer(dtype, shape);
  call.dweight = Buffer(dweight, weight_shape);
  return call;
}

// About the blocks of 32 rows, and where slabs begin to grow.
TEST_P(BackwardOracle, BlocksAndSlabsOfRows) {
  const std::vector<Implementation> all = Implementations();
  Random random;
  for (int64_t rows : {1, 2, 31, 32, 33, 63, 64, 65, 257, 1000, 2016, 2047,
                       2048, 2049, 2080, 4096, 4097, 6145}) {
    // Of slabs with several blocks one is enough.
    if (Subset() && rows > 257 && rows != 2080) continue;
    for (DType dtype : kFloatDTypes) {
      for (DType dweight : {DType::kF32, DType::kF64, dtype}) {
        BackwardCall call =
            Ordinary(random, GetParam(), dtype, {rows, 5}, Numbers{5}, dweight);
        call.options.num_threads = random.Chance(50) ? 1 : 3;
        ASSERT_TRUE(ExpectSame(GradientOracle(call), call, all));
      }
    }
  }
}

// Rows that share a row of dweight are those of a tensor of their own, in
// whatever axes they lie.
TEST_P(BackwardOracle, WeightsWithLeadingAxes) {
  const std::vector<Implementation> all = Implementations();
  Random random;
  const Numbers shape = {Subset() ? 9 : 70, 3, 4, 7};
  for (const Numbers& weight_shape :
       {Numbers{7}, Numbers{1, 1, 1, 7}, Numbers{1, 3, 1, 7},
        Numbers{1, 1, 4, 7}, Numbers{shape[0], 1, 1, 7}, Numbers{1, 3, 4, 7},
        Numbers{shape[0], 3, 1, 7}, Numbers{shape[0], 1, 4, 7}, shape}) {
    for (DType dtype : kFloatDTypes) {
      BackwardCall call =
          Ordinary(random, GetParam(), dtype, shape, weight_shape, DType::kF64);
      call.options.num_threads = 2;
      ASSERT_TRUE(ExpectSame(GradientOracle(call), call, all));
      call.weight = Buffer();  // dweight may have any shape a weight may have.
      ASSERT_TRUE(ExpectSame(GradientOracle(call), call, all));
    }
  }
}

// Rows of +1 and eps 0 have xh = 1: dweight is the sum of dy, whose rows here
// hold one value each.
BackwardCall SumsOf(const std::vector<double>& dy, DType dweight) {
  constexpr int64_t kWidth = 37;
  const Numbers shape = {static_cast<int64_t>(dy.size()), kWidth};
  BackwardCall call;
  call.x = Buffer(DType::kF32, shape);
  call.x.FillWith(std::vector<double>(kWidth, 1.0));
  call.dy = Buffer(DType::kF32, shape);
  for (int64_t r = 0; r < shape[0]; ++r) {
    for (int64_t i = 0; i < kWidth; ++i) {
      call.dy.set_value(r, i, dy[static_cast<size_t>(r)]);
    }
  }
  if (dweight != DType::kF64) {
    call.weight = Buffer(dweight, Numbers{kWidth});
  }
  call.dweight = Buffer(dweight, Numbers{kWidth});
  call.options.eps = 0;
  return call;
}

void ExpectDWeight(const BackwardCall& call, double expected) {
  ForEachImplementation([&](const Implementation& implementation) {
    const Buffer dweight = RunBackward(implementation, call).dweight;
    for (int64_t i = 0; i < dweight.width(); ++i) {
      EXPECT_EQ(dweight.value(0, i), expected) << Name(dweight.dtype());
    }
  });
}

// A sum just above a tie of the 16-bit dtype, by less than f32 can hold. A
// rounding to f32 on the way would leave the tie, and that goes to even.
TEST(BackwardDWeight, IsRoundedOnce) {
  std::vector<double> dy(33, 0.0);
  dy[0] = 1;
  dy[32] = 0x1p-40;  // In the second block of rows.
  dy[1] = 0x1p-8;
  ExpectDWeight(SumsOf(dy, DType::kBF16), 1 + 0x1p-7);
  dy[1] = 0x1p-11;
  ExpectDWeight(SumsOf(dy, DType::kF16), 1 + 0x1p-10);
  dy[32] = -0x1p-40;
  ExpectDWeight(SumsOf(dy, DType::kF16), 1);
  dy[1] = 3 * 0x1p-8;
  ExpectDWeight(SumsOf(dy, DType::kBF16), 1 + 0x1p-7);
  // Subnormals of f16, overflow, and values that vanish.
  dy = std::vector<double>(33, 0.0);
  dy[0] = 3 * 0x1p-25;
  dy[32] = -0x1p-60;
  ExpectDWeight(SumsOf(dy, DType::kF16), 0x1p-24);
  dy[0] = 0x1p-25;
  ExpectDWeight(SumsOf(dy, DType::kF16), 0);
  dy[0] = -0x1p-25;
  ExpectDWeight(SumsOf(dy, DType::kF16), -0x1p-24);
  dy[0] = 65520;
  dy[32] = 0x1p-20;
  ExpectDWeight(SumsOf(dy, DType::kF16), INFINITY);
  dy[32] = -0x1p-20;
  ExpectDWeight(SumsOf(dy, DType::kF16), 65504);
}

// f32 blocks of 32 rows, f64 beyond: what one block loses, two keep.
TEST(BackwardDWeight, BlocksAreSummedInF32AndAddedInF64) {
  std::vector<double> dy(64, 0.0);
  dy[0] = 1;
  dy[1] = 0x1p-25;
  ExpectDWeight(SumsOf(dy, DType::kF64), 1);
  std::swap(dy[1], dy[32]);
  ExpectDWeight(SumsOf(dy, DType::kF64), 1 + 0x1p-25);
}

// The old value is added in f64, before the one rounding.
TEST(BackwardDWeight, AccumulatesInF64) {
  std::vector<double> dy(33, 0.0);
  dy[0] = 0x1p-24;
  dy[32] = 0x1p-50;
  BackwardCall call = SumsOf(dy, DType::kF32);
  call.dweight.FillWith(std::vector<double>(37, 1.0));
  ExpectDWeight(call, 0x1p-24);
  call.options.accumulate = true;
  ExpectDWeight(call, 1 + 0x1p-23);

  dy[0] = 0x1p-8;
  call = SumsOf(dy, DType::kBF16);
  call.dweight.FillWith(std::vector<double>(37, 1.0));
  call.options.accumulate = true;
  ExpectDWeight(call, 1 + 0x1p-7);
  call = SumsOf(dy, DType::kF64);
  call.dweight.FillWith(std::vector<double>(37, -1.0));
  call.options.accumulate = true;
  ExpectDWeight(call, -1 + 0x1p-8 + 0x1p-50);
}

// Options that belong to the forward operations change no bit.
TEST(BackwardOptions, RoundingSumAndScaleChangeNothing) {
  Random random;
  for (BackwardOp op : kBackwardOps) {
    BackwardCall call = Ordinary(random, op, DType::kBF16, {40, 100},
                                 Numbers{100}, DType::kF32);
    const Gradients expected = RunBackward(Reference(), call);
    for (int rounding : {0, 1}) {
      for (int sum : {0, 1, 2}) {
        for (int nontemporal : {0, 1, 2}) {
          call.options.rounding = static_cast<Rounding>(rounding);
          call.options.sum = static_cast<Sum>(sum);
          call.options.nontemporal = static_cast<Nontemporal>(nontemporal);
          call.options.residual_scale = rounding == 0 ? 1.0f : 0.5f;
          ASSERT_TRUE(ExpectSame(expected, call, Implementations()));
        }
      }
    }
    // These do.
    BackwardCall other = call;
    other.options.weight_offset = 1;
    EXPECT_FALSE(Same(expected, RunBackward(Reference(), other)));
    other = call;
    other.options.eps = 1;
    EXPECT_FALSE(Same(expected, RunBackward(Reference(), other)));
  }
}

INSTANTIATE_TEST_SUITE_P(Backward, BackwardOracle,
                         testing::ValuesIn(kBackwardOps),
                         [](const auto& op) { return Name(op.param); });

}  // namespace
}  // namespace test
}  // namespace fusednorm

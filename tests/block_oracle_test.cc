// The promised arithmetic of the post-norm and sandwich blocks and of the split
// statistic once more, from block_oracle.h: the reference has its bits, so a
// fault in what the library's kernels share cannot hide from the tests that
// compare targets with the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "block_call.h"
#include "block_oracle.h"
#include "random_layout.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

// One normalisation: `from` times the statistic of `statistic`, rounded to
// `middle` first if the options say so.
RowOf<float> NormOf(const Rstd& rstd, const RowOf<float>& from, DType middle,
                    const Buffer& weight, const Numbers& shape, int64_t r,
                    const Options& options) {
  const RowOf<float> gains =
      GainsOf<float>(weight, shape, r, options.weight_offset);
  RowOf<float> y;
  for (size_t j = 0; j < from.size(); ++j) {
    float v = rstd.Times(from[j]);
    if (options.rounding == Rounding::kBeforeWeight) v = Round(middle, v);
    y.push_back(weight.empty() ? v : v * gains[j]);
  }
  return y;
}

void WriteRow(const RowOf<float>& values, int64_t r, Buffer& to) {
  for (size_t j = 0; j < values.size(); ++j) {
    to.set_value(r, static_cast<int64_t>(j), values[j]);
  }
}

RowOf<float> Rounded(DType dtype, RowOf<float> values) {
  for (float& value : values) value = Round(dtype, value);
  return values;
}

// norm(x) + residual_scale * residual, in f32.
RowOf<float> BranchAndResidual(const BlockCall& call, int64_t r,
                               const Rstd& rstd) {
  const Options& options = call.options;
  const DType x = call.x.dtype();
  RowOf<float> y = NormOf(rstd, ReadRow<float>(call.x, r), x, call.weight,
                          call.x.layout().shape, r, options);
  // As an operation of its own would leave it.
  if (options.sum == Sum::kRounded) y = Rounded(x, y);
  const RowOf<float> residual = ReadRow<float>(call.residual, r);
  for (size_t j = 0; j < y.size(); ++j) {
    y[j] = options.residual_scale == 1
               ? y[j] + residual[j]
               : std::fma(options.residual_scale, residual[j], y[j]);
  }
  return y;
}

void SandwichRow(const BlockCall& call, int64_t r, const RowOf<float>& h,
                 BlockResults& results) {
  const DType stream = call.residual.dtype();
  const RowOf<float> stored = Rounded(stream, h);
  const Sum sum = call.options.sum;
  const Rstd rstd = RstdOf(sum == Sum::kRounded ? stored : h, call.options.eps);
  const RowOf<float> out =
      NormOf(rstd, sum == Sum::kExact ? h : stored, stream, call.weight_pre,
             call.x.layout().shape, r, call.options);
  WriteRow(h, r, results.residual_out);
  WriteRow(out, r, results.out);
}

double SumSquaresOf(const RowOf<float>& u) {
  const double sum = SumOfProducts(u, u);
  return SumIsOrdinary(sum, u.size(), 0) ? sum : SumFromLeftToRight(u);
}

BlockResults Oracle(const BlockCall& call) {
  BlockResults results{call.out, call.residual_out, {}, {}};
  for (int64_t r = 0; r < call.x.rows(); ++r) {
    const RowOf<float> x = ReadRow<float>(call.x, r);
    const Rstd rstd = RstdOf(x, call.options.eps);
    switch (call.op) {
      case BlockOp::kRmsNormAdd:
        WriteRow(BranchAndResidual(call, r, rstd), r, results.out);
        if (call.want_rstd) results.rstd.push_back(rstd.narrow);
        break;
      case BlockOp::kRmsNormAddRmsNorm:
        SandwichRow(call, r, BranchAndResidual(call, r, rstd), results);
        break;
      case BlockOp::kRowRstd:
        results.rstd.push_back(rstd.narrow);
        break;
      case BlockOp::kRowSumSquares:
        results.sums.push_back(SumSquaresOf(x));
        break;
      case BlockOp::kRmsNormWithRstd: {
        const Rstd given = {false, call.given_rstd[static_cast<size_t>(r)], 0};
        WriteRow(NormOf(given, x, call.x.dtype(), call.weight,
                        call.x.layout().shape, r, call.options),
                 r, results.out);
        break;
      }
    }
  }
  return results;
}

// A call with these dtypes and whatever else at random, weights with leading
// axes among it.
BlockCall Draw(Random& random, BlockOp op, DType x, DType stream, DType out,
               int64_t width) {
  using Floats = std::vector<float>;
  const Numbers shape =
      random.Chance(50) ? Numbers{8, width} : Numbers{2, 3, 2, width};
  const auto input = [&](DType dtype) {
    Buffer buffer(dtype, shape);
    buffer.FillMixed(random, static_cast<int>(random.Uniform(0, 7)));
    return buffer;
  };
  BlockCall call;
  call.op = op;
  call.x = input(x);
  call.weight = RandomWeight(random, RandomDType(random), shape);
  if (HasResidual(op)) call.residual = input(stream);
  if (HasOut(op)) call.out = Buffer(out, shape);
  if (op == BlockOp::kRmsNormAddRmsNorm) {
    call.weight_pre = RandomWeight(random, RandomDType(random), shape);
    call.residual_out = Buffer(stream, shape);
  }
  if (op == BlockOp::kRmsNormWithRstd) {
    for (int64_t r = 0; r < call.x.rows(); ++r) {
      call.given_rstd.push_back(
          random.Pick(Floats{0.25f, 1.7f, 0.0f, -3.1f, 1e-40f, 1e30f}));
    }
  }
  call.want_rstd = op == BlockOp::kRmsNormAdd;
  Options& options = call.options;
  options.eps =
      random.Pick(Floats{1e-6f, 0.0f, 1e-5f, 1e-19f, 0x1p-60f, 1e-12f});
  options.weight_offset = random.Pick(Floats{0.0f, 1.0f, -0.5f});
  if (op == BlockOp::kRmsNormAdd) {
    options.residual_scale = random.Pick(Floats{1.0f, 0.7f, -2.0f});
  }
  options.rounding = static_cast<Rounding>(random.Uniform(0, 1));
  options.sum = static_cast<Sum>(random.Uniform(0, 2));
  options.num_threads = 1;
  return call;
}

Numbers Widths() {
  if (Subset()) return {1, 3, 65, 1025};
  return {1,  2,  3,   4,   8,   9,    15,   17,   33,   63,
          64, 65, 100, 130, 576, 1023, 1024, 1025, 4097, 16449};
}

class BlockOracle : public testing::TestWithParam<BlockOp> {};

TEST_P(BlockOracle, ReferenceHasTheSpecifiedBits) {
  const std::vector<Implementation> reference = {Reference()};
  Random random;
  for (int64_t width : Widths()) {
    const int repeats = Subset() || width > 130 ? 1 : 4;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (DType x : kFloatDTypes) {
        for (DType stream : kFloatDTypes) {
          for (DType out : kFloatDTypes) {
            const BlockCall call =
                Draw(random, GetParam(), x, stream, out, width);
            ASSERT_TRUE(ExpectSame(Oracle(call), call, reference));
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Block, BlockOracle, testing::ValuesIn(kBlockOps),
                         [](const auto& op) { return Name(op.param); });

// Both sides of each limit that makes a row exceptional, for the row and for
// what the post norm makes of it.
TEST(Blocks, LimitsOfOrdinaryRows) {
  const std::vector<Implementation> all = Implementations();
  const float below = std::nextafter(0x1p-60f, 0.0f);
  for (BlockOp op : kBlockOps) {
    for (float eps : {0.0f, 1e-30f, below, 0x1p-60f, 1e-6f}) {
      for (double value :
           {0x1p-50, 0x1p-50 * (1 - 0x1p-23), 0x1p-51, 0x1p-75, 0x1p-149, 0.0,
            1.3e17, 7.2e16, 1.8446743e19, 0x1p64, 3e38}) {
        for (int64_t width : {1, 64, 100, 65536}) {
          if (Subset() && width > 100) continue;
          const std::vector<double> values(static_cast<size_t>(width), value);
          BlockCall call;
          call.op = op;
          call.x = Buffer(DType::kF32, {1, width});
          call.x.FillWith(values);
          if (HasResidual(op)) {
            call.residual = call.x;
            call.residual.FillWith(std::vector<double>(values.size(), -value));
          }
          if (HasOut(op)) call.out = Buffer(DType::kF32, {1, width});
          if (op == BlockOp::kRmsNormAddRmsNorm) {
            call.residual_out = Buffer(DType::kF32, {1, width});
          }
          call.given_rstd = {1.5f};
          call.options.eps = eps;
          call.options.num_threads = 1;
          ASSERT_TRUE(ExpectSame(Oracle(call), call, all));
        }
      }
    }
  }
}

// Each pair of choices differs in bits on ordinary data: no option is ignored.
// Of the sums, RmsNormAdd knows two.
TEST(Blocks, TheChoicesDiffer) {
  for (BlockOp op : {BlockOp::kRmsNormAdd, BlockOp::kRmsNormAddRmsNorm}) {
    Random random;
    BlockCall call;
    call.op = op;
    call.x = Buffer(DType::kBF16, {4, 300});
    call.residual = Buffer(DType::kF16, {4, 300});
    call.weight = Buffer(DType::kF32, Numbers{300});
    for (Buffer* input : {&call.x, &call.residual, &call.weight}) {
      input->Fill(random, Data::kNormal);
    }
    call.out = Buffer(DType::kF32, {4, 300});
    if (op == BlockOp::kRmsNormAddRmsNorm) {
      call.weight_pre = call.weight;
      call.residual_out = Buffer(DType::kF16, {4, 300});
    }
    std::vector<BlockResults> results;
    for (Rounding rounding : {Rounding::kOnce, Rounding::kBeforeWeight}) {
      for (Sum sum : {Sum::kRounded, Sum::kExact, Sum::kExactStatistic}) {
        for (float offset : {0.0f, 1.0f}) {
          call.options.rounding = rounding;
          call.options.sum = sum;
          call.options.weight_offset = offset;
          const BlockResults result = RunBlock(Reference(), call);
          EXPECT_TRUE(Same(Oracle(call), result));
          const bool add = op == BlockOp::kRmsNormAdd;
          if (add && sum == Sum::kExactStatistic) {
            // The statistic is that of x: nothing is left to differ.
            const size_t same = results.size() - (offset == 0 ? 2 : 1);
            EXPECT_TRUE(Same(results[same], result));
            continue;
          }
          results.push_back(result);
        }
      }
    }
    for (size_t i = 0; i < results.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        EXPECT_FALSE(Same(results[i], results[j])) << i << " " << j;
      }
    }
  }
}

// Values computed by hand: x = [3, 4] has r = sqrt(2) / 5 with eps = 0.
TEST(Blocks, KnownRows) {
  const double r = std::sqrt(2.0) / 5;
  ForEachImplementation([&](const Implementation& implementation) {
    BlockCall call;
    call.op = BlockOp::kRmsNormAdd;
    call.x = Buffer(DType::kF32, {1, 2});
    call.x.FillWith({3, 4});
    call.residual = Buffer(DType::kF32, {1, 2});
    call.residual.FillWith({10, -20});
    call.weight = Buffer(DType::kF32, Numbers{2});
    call.weight.FillWith({2, 0.5});
    call.out = Buffer(DType::kF32, {1, 2});
    call.options.eps = 0;
    BlockResults got = RunBlock(implementation, call);
    EXPECT_NEAR(got.out.value(0, 0), 6 * r + 10, 1e-5);
    EXPECT_NEAR(got.out.value(0, 1), 2 * r - 20, 1e-5);
    call.options.residual_scale = 0.5f;
    got = RunBlock(implementation, call);
    EXPECT_NEAR(got.out.value(0, 0), 6 * r + 5, 1e-5);
    EXPECT_NEAR(got.out.value(0, 1), 2 * r - 10, 1e-5);

    call.op = BlockOp::kRmsNormAddRmsNorm;
    call.options.residual_scale = 1;
    call.weight_pre = Buffer(DType::kF32, Numbers{2});
    call.weight_pre.FillWith({1, -1});
    call.residual_out = Buffer(DType::kF32, {1, 2});
    got = RunBlock(implementation, call);
    const double h0 = 6 * r + 10, h1 = 2 * r - 20;
    const double rms = std::sqrt((h0 * h0 + h1 * h1) / 2);
    EXPECT_NEAR(got.residual_out.value(0, 0), h0, 1e-5);
    EXPECT_NEAR(got.residual_out.value(0, 1), h1, 1e-5);
    EXPECT_NEAR(got.out.value(0, 0), h0 / rms, 1e-6);
    EXPECT_NEAR(got.out.value(0, 1), -h1 / rms, 1e-6);

    call.op = BlockOp::kRmsNormWithRstd;
    call.given_rstd = {0.25f};
    got = RunBlock(implementation, call);
    EXPECT_EQ(got.out.value(0, 0), 1.5);
    EXPECT_EQ(got.out.value(0, 1), 0.5);
    call.op = BlockOp::kRowSumSquares;
    EXPECT_EQ(RunBlock(implementation, call).sums[0], 25);
    call.op = BlockOp::kRowRstd;
    EXPECT_NEAR(RunBlock(implementation, call).rstd[0], r, 1e-7);
  });
}

// f64: the same order, all in f64.
TEST(Blocks, F64) {
  Random random;
  for (int64_t width : {1, 3, 64, 65, 1025, 2049, 16385}) {
    for (float offset : {0.0f, 1.0f}) {
      const DType f64 = DType::kF64;
      const Numbers shape = {3, width};
      Buffer x(f64, shape), residual(f64, shape), out(f64, shape);
      Buffer post(f64, Numbers{width}), pre(f64, Numbers{width});
      for (Buffer* input : {&x, &residual, &post, &pre}) {
        input->Fill(random, Data::kNormal);
      }
      Buffer residual_out = out, added = out, want = out, want_sum = out;
      Options options;
      options.weight_offset = offset;
      std::vector<double> sums(3);
      EXPECT_STATUS_OK(reference::RmsNormAddRmsNorm(x, residual, post, pre, out,
                                                    residual_out, options));
      EXPECT_STATUS_OK(
          reference::RmsNormAdd(x, residual, post, added, options));
      EXPECT_STATUS_OK(reference::RowSumSquares(x, sums.data()));
      for (int64_t r = 0; r < 3; ++r) {
        const RowOf<double> u = ReadRow<double>(x, r);
        const double rstd = RstdOf(u, options.eps);
        const RowOf<double> g = GainsOf<double>(post, shape, r, offset);
        const RowOf<double> g2 = GainsOf<double>(pre, shape, r, offset);
        RowOf<double> h = ReadRow<double>(residual, r);
        for (size_t j = 0; j < h.size(); ++j) h[j] = u[j] * rstd * g[j] + h[j];
        const double rstd2 = RstdOf(h, options.eps);
        for (size_t j = 0; j < h.size(); ++j) {
          want_sum.set_value(r, static_cast<int64_t>(j), h[j]);
          want.set_value(r, static_cast<int64_t>(j), h[j] * rstd2 * g2[j]);
        }
        EXPECT_EQ(sums[static_cast<size_t>(r)], SumOfProducts(u, u));
      }
      EXPECT_TRUE(SameBits(want, out)) << width;
      EXPECT_TRUE(SameBits(want_sum, residual_out)) << width;
      EXPECT_TRUE(SameBits(want_sum, added)) << width;
    }
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

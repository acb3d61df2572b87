// Every target has the reference's bits, in post-norm and sandwich blocks and
// with the split statistic: the grid of dtypes, widths, weights and options,
// all mixes of dtypes, aliases, numbers of rows, strides, threads. Rows of
// every kind stand side by side in x, in the residual, and so in their sum.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "block_call.h"
#include "random_layout.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

// About the vector lengths, the unrolling, blocks of 1024 and chunks of 16384.
Numbers AllWidths() {
  if (Subset()) return {1, 2, 7, 16, 31, 64, 65, 100, 130};
  Numbers widths;
  for (int64_t width = 1; width <= 34; ++width) widths.push_back(width);
  for (int64_t width :
       {47,  48,   49,   63,   64,   65,   66,   79,   80,   95,   96,
        97,  100,  112,  127,  128,  129,  130,  191,  255,  257,  533,
        576, 1023, 1024, 1025, 1037, 2048, 2112, 3584, 4097, 16385}) {
    widths.push_back(width);
  }
  return widths;
}

// For the loops that have many more options.
Numbers FewWidths() {
  if (Subset()) return {3, 33, 130};
  return {1, 9, 33, 100, 1025};
}

constexpr float kEps[] = {1e-6f, 0.0f, 1e-5f, 1e-12f, 1e-20f, 1.0f};

// Every combination of the options that the operation knows; eps takes turns.
std::vector<Options> AllOptions(BlockOp op) {
  std::vector<Options> all;
  for (Rounding rounding : {Rounding::kOnce, Rounding::kBeforeWeight}) {
    for (Sum sum : {Sum::kRounded, Sum::kExact, Sum::kExactStatistic}) {
      for (float scale : {1.0f, 0.7f}) {
        if (op != BlockOp::kRmsNormAdd && scale != 1.0f) continue;
        if (!HasResidual(op) && sum != Sum::kRounded) continue;
        for (float offset : {0.0f, 1.0f, -0.5f}) {
          Options options;
          options.eps = kEps[all.size() % 6];
          options.rounding = rounding;
          options.sum = sum;
          options.residual_scale = scale;
          options.weight_offset = offset;
          options.num_threads = 1;
          all.push_back(options);
        }
      }
    }
  }
  return all;
}

Buffer Weight(Random& random, DType dtype, int64_t width) {
  constexpr Data kinds[] = {Data::kNormal, Data::kNormal, Data::kBits,
                            Data::kTiny};
  Buffer weight(dtype, Numbers{width});
  weight.Fill(random, kinds[random.Uniform(0, 3)]);
  return weight;
}

// Statistics as they come, and those that no row has.
std::vector<float> GivenRstd(Random& random, int64_t rows) {
  // The last is a NaN that rounding to bf16 could carry into the sign.
  const std::vector<float> odd = {0.0f,     -0.0f,  -2.5f,
                                  1e30f,    1e-30f, 1e-42f,
                                  INFINITY, NAN,    std::nanf("0x3FFFFF")};
  std::vector<float> rstd;
  for (int64_t r = 0; r < rows; ++r) {
    rstd.push_back(random.Chance(60)
                       ? static_cast<float>(0.1 + 3 * random.Unit())
                       : random.Pick(odd));
  }
  return rstd;
}

struct DTypes {
  DType x, stream, out;
};

BlockCall MakeCall(Random& random, BlockOp op, const DTypes& dtypes,
                   const Layout& layout) {
  BlockCall call;
  call.op = op;
  call.x = Buffer(dtypes.x, layout);
  call.x.FillMixed(random, static_cast<int>(random.Uniform(0, 7)));
  if (HasResidual(op)) {
    call.residual = Buffer(dtypes.stream, layout);
    call.residual.FillMixed(random, static_cast<int>(random.Uniform(0, 7)));
  }
  if (HasOut(op)) call.out = Buffer(dtypes.out, layout);
  if (op == BlockOp::kRmsNormAddRmsNorm) {
    call.residual_out = Buffer(dtypes.stream, layout);
  }
  if (op == BlockOp::kRmsNormWithRstd) {
    call.given_rstd = GivenRstd(random, call.x.rows());
  }
  call.want_rstd = op == BlockOp::kRmsNormAdd && dtypes.x != DType::kF64;
  return call;
}

// Over all options; wide rows take every fifth, from a start that changes with
// the width. False: stop.
bool CompareOptions(BlockCall call) {
  const std::vector<Implementation> targets = Targets();
  const std::vector<Options> all = AllOptions(call.op);
  const size_t width = static_cast<size_t>(call.x.width());
  const size_t step = width > 130 ? 5 : 1;
  for (size_t i = width % step; i < all.size(); i += step) {
    call.options = all[i];
    if (!ExpectSame(RunBlock(Reference(), call), call, targets)) return false;
  }
  return true;
}

// None, of x's dtype, f32, and another one.
std::vector<Buffer> WeightKinds(Random& random, DType x, int64_t width) {
  const DType other = x == DType::kBF16 ? DType::kF16 : DType::kBF16;
  std::vector<Buffer> kinds = {Buffer(), Weight(random, x, width)};
  if (x == DType::kF64) return kinds;
  if (x != DType::kF32) kinds.push_back(Weight(random, DType::kF32, width));
  kinds.push_back(Weight(random, other, width));
  return kinds;
}

// All kinds; in the sandwich each with a second one drawn at random.
bool CompareWeights(Random& random, BlockCall call) {
  const std::vector<Buffer> kinds =
      WeightKinds(random, call.x.dtype(), call.x.width());
  for (const Buffer& weight : kinds) {
    call.weight = weight;
    if (call.op == BlockOp::kRmsNormAddRmsNorm) {
      call.weight_pre = random.Chance(40) ? weight : random.Pick(kinds);
    }
    if (!CompareOptions(call)) return false;
  }
  return true;
}

void RecordCount(int64_t before) {
  testing::Test::RecordProperty("bit_comparisons",
                                std::to_string(ComparisonCount() - before));
}

class BlockBits : public testing::TestWithParam<BlockOp> {};

TEST_P(BlockBits, EveryWidthWeightAndOption) {
  const int64_t before = ComparisonCount();
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : AllWidths()) {
      ASSERT_TRUE(CompareWeights(
          random, MakeCall(random, GetParam(), {dtype, dtype, dtype},
                           Packed({width > 1100 ? 4 : 8, width}))));
    }
  }
  RecordCount(before);
}

TEST_P(BlockBits, EveryMixOfDTypes) {
  const int64_t before = ComparisonCount();
  Random random;
  for (int64_t width : FewWidths()) {
    for (DType x : kFloatDTypes) {
      for (DType stream : kFloatDTypes) {
        for (DType out : kFloatDTypes) {
          const bool without = !HasResidual(GetParam()) && stream != x;
          if (without || (!HasOut(GetParam()) && out != x)) continue;
          ASSERT_TRUE(CompareWeights(
              random, MakeCall(random, GetParam(), {x, stream, out},
                               Packed({5, width}))));
        }
      }
    }
  }
  RecordCount(before);
}

// f64 is the scalar code's in every target, and rstd is not for it.
TEST_P(BlockBits, F64) {
  const BlockOp op = GetParam();
  if (op == BlockOp::kRowRstd || op == BlockOp::kRmsNormWithRstd) return;
  Random random;
  const DType f64 = DType::kF64;
  for (int64_t width : FewWidths()) {
    ASSERT_TRUE(CompareWeights(
        random, MakeCall(random, op, {f64, f64, f64}, Packed({16, width}))));
  }
}

// The bits of separate buffers, for every legal alias, sum and dtype. Rows that
// are redone after the first pass has stored are among them.
TEST_P(BlockBits, Aliases) {
  if (!HasOut(GetParam())) return;
  const std::vector<Implementation> all = Implementations();
  Random random;
  int64_t in_place = 0;
  for (int64_t width : FewWidths()) {
    for (DType x : kFloatDTypes) {
      for (DType stream : kFloatDTypes) {
        for (DType out : kFloatDTypes) {
          if (x != stream && x != out && stream != out) continue;
          BlockCall call = MakeCall(random, GetParam(), {x, stream, out},
                                    Padded({8, width}, random.Uniform(0, 3)));
          call.weight = Weight(random, DType::kF32, width);
          call.weight_pre = Weight(random, x, width);
          for (const Options& options : AllOptions(call.op)) {
            if (options.weight_offset != 1.0f) continue;
            call.options = options;
            const BlockResults separate = RunBlock(Reference(), call);
            for (const Alias& alias : LegalAliases(call)) {
              ASSERT_TRUE(ExpectSame(separate, call, all, alias));
              ++in_place;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(in_place, 0);
}

// x and residual may be one tensor, and an output may then lie on both.
TEST_P(BlockBits, XIsTheResidual) {
  if (!HasResidual(GetParam())) return;
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : FewWidths()) {
      BlockCall call = MakeCall(random, GetParam(), {dtype, dtype, dtype},
                                Packed({8, width}));
      call.residual = call.x;
      call.weight = Weight(random, dtype, width);
      call.options.sum = static_cast<Sum>(random.Uniform(0, 2));
      const BlockResults expected = RunBlock(Reference(), call);
      ForEachImplementation([&](const Implementation& implementation) {
        Buffer both = call.x, weight = call.weight, sum = call.residual_out;
        BlockViews views;
        views.op = call.op;
        views.x = views.residual = views.out = both;
        views.weight = weight;
        views.residual_out = sum;
        views.options = call.options;
        EXPECT_STATUS_OK(views.Run(implementation));
        EXPECT_TRUE(SameBits(expected.out, both)) << Name(call);
        EXPECT_TRUE(SameBits(expected.residual_out, sum)) << Name(call);
      });
      ASSERT_FALSE(HasFailure());
    }
  }
}

// Kernels take rows in groups: every number of rows, each row of a kind of its
// own, so that an exceptional row stands at every place of a group.
TEST_P(BlockBits, EveryNumberOfRows) {
  const std::vector<Implementation> targets = Targets();
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t rows = 1; rows <= 40; rows += Subset() ? 7 : 1) {
      for (int64_t width : {16, 100, 520, 576}) {
        BlockCall call = MakeCall(random, GetParam(), {dtype, dtype, dtype},
                                  Packed({rows, width}));
        call.x = RandomInput(random, dtype, call.x.layout());
        if (HasResidual(call.op)) {
          call.residual = RandomInput(random, dtype, call.residual.layout());
        }
        if (random.Chance(70)) call.weight = Weight(random, dtype, width);
        if (random.Chance(70)) call.weight_pre = call.weight;
        call.options = random.Pick(AllOptions(call.op));
        call.options.nontemporal =
            static_cast<Nontemporal>(random.Uniform(0, 2));
        ASSERT_TRUE(ExpectSame(RunBlock(Reference(), call), call, targets));
      }
    }
  }
}

// ------------------------------------------------------------------ random

Options RandomOptions(Random& random, BlockOp op) {
  using Floats = std::vector<float>;
  Options options;
  options.eps = random.Pick(
      Floats{1e-6f, 1e-5f, 0.0f, 1e-12f, 1e-19f, 1e-30f, 1e-41f, 0.5f, 1e30f});
  options.weight_offset =
      random.Pick(Floats{0.0f, 0.0f, 1.0f, -0.5f, 1e-3f, -1e30f, -0.0f});
  if (op == BlockOp::kRmsNormAdd) {
    options.residual_scale =
        random.Pick(Floats{1.0f, 1.0f, 0.7f, -2.0f, 0.0f, 1e-20f, 1e20f});
  }
  options.rounding = static_cast<Rounding>(random.Uniform(0, 1));
  options.sum = static_cast<Sum>(random.Uniform(0, 2));
  options.nontemporal = static_cast<Nontemporal>(random.Uniform(0, 2));
  options.num_threads = random.Pick(std::vector<int32_t>{1, 1, 1, 2, 7, 16});
  return options;
}

struct RandomCase {
  BlockCall call;
  Alias alias;
};

// Half of the cases have one layout for all, so that aliases are legal.
RandomCase Draw(Random& random, BlockOp op) {
  RandomCase drawn;
  BlockCall& call = drawn.call;
  const Numbers shape = RandomShape(random);
  const bool one_layout = random.Chance(50);
  const Layout common = RandomLayout(random, shape);
  const auto input = [&] {
    return one_layout ? common : RandomInputLayout(random, shape);
  };
  const auto output = [&] {
    return one_layout ? common : RandomLayout(random, shape);
  };
  const DType x = RandomDType(random);
  const bool uniform = random.Chance(40);
  const auto dtype = [&] { return uniform ? x : RandomDType(random); };

  call.op = op;
  call.x = RandomInput(random, x, input());
  call.weight = RandomWeight(random, dtype(), shape);
  if (HasResidual(op)) call.residual = RandomInput(random, dtype(), input());
  if (HasOut(op)) call.out = Buffer(dtype(), output());
  if (op == BlockOp::kRmsNormAddRmsNorm) {
    call.weight_pre = RandomWeight(random, dtype(), shape);
    call.residual_out = Buffer(call.residual.dtype(), output());
  }
  if (op == BlockOp::kRmsNormWithRstd) {
    call.given_rstd = GivenRstd(random, call.x.rows());
  }
  call.want_rstd = op == BlockOp::kRmsNormAdd && random.Chance(50);
  call.options = RandomOptions(random, op);
  if (one_layout) drawn.alias = random.Pick(LegalAliases(call));
  return drawn;
}

TEST_P(BlockBits, Random) {
  const int64_t before = ComparisonCount();
  const std::vector<Implementation> all = Implementations();
  fusednorm::test::Random random;
  for (int i = 0; i < (Subset() ? 200 : 1000); ++i) {
    const RandomCase drawn = Draw(random, GetParam());
    const BlockResults expected = RunBlock(Reference(), drawn.call);
    ASSERT_TRUE(ExpectSame(expected, drawn.call, all, drawn.alias))
        << "case " << i;
  }
  RecordCount(before);
}

// ----------------------------------------------------------------- threads

// A pool of the caller's: uneven pieces, last first, on threads of their own.
void UnevenParallelFor(void* context, int64_t count,
                       void (*body)(void* arg, int64_t begin, int64_t end),
                       void* arg) {
  std::vector<std::thread> threads;
  int64_t end = count;
  for (int64_t piece = 1; end > 0; piece += 2) {
    const int64_t begin = end > piece ? end - piece : 0;
    threads.emplace_back(body, arg, begin, end);
    end = begin;
  }
  for (std::thread& thread : threads) thread.join();
  ++*static_cast<int*>(context);
}

// Sizes below and above those for which threads are used.
TEST_P(BlockBits, ThreadsAndPools) {
  const std::vector<Implementation> all = Implementations();
  Random random;
  int pool_calls = 0;
  for (int64_t rows : {1, 5, 40, 257}) {
    for (int64_t width : Subset() ? Numbers{100} : Numbers{100, 1000, 3000}) {
      const DType dtype = kFloatDTypes[(rows + width / 100) % 3];
      BlockCall call = MakeCall(random, GetParam(), {dtype, dtype, dtype},
                                Packed({rows, width}));
      call.weight = Weight(random, dtype, width);
      call.weight_pre = Weight(random, dtype, width);
      call.options.num_threads = 1;
      const BlockResults expected = RunBlock(Reference(), call);
      for (int32_t threads : {1, 2, 7, 16, 0}) {
        call.options.num_threads = threads;
        call.options.parallel_for = nullptr;
        ASSERT_TRUE(ExpectSame(expected, call, all));
        call.options.parallel_for = &UnevenParallelFor;
        call.options.parallel_context = &pool_calls;
        ASSERT_TRUE(ExpectSame(expected, call, all));
      }
    }
  }
  EXPECT_TRUE(Subset() || pool_calls > 0);
}

INSTANTIATE_TEST_SUITE_P(Block, BlockBits, testing::ValuesIn(kBlockOps),
                         [](const auto& op) { return Name(op.param); });

// ---------------------------------------------------- one value, many ways

// rstd is the same value wherever it is handed out, and what the norm uses.
TEST(Statistic, RowRstdIsTheOptionsRstd) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : AllWidths()) {
      Buffer x(dtype, {16, width}), out(DType::kF32, {16, width});
      x.FillMixed(random);
      Buffer again = out;
      Options options;
      options.eps = kEps[random.Uniform(0, 5)];
      ForEachImplementation([&](const Implementation& implementation) {
        std::vector<float> rstd(16), alone(16);
        const bool reference = implementation.target.empty();
        options.rstd = alone.data();
        EXPECT_STATUS_OK(implementation.rms_norm(x, {}, out, options));
        options.rstd = nullptr;
        EXPECT_STATUS_OK((reference ? reference::RowRstd : RowRstd)(
            x, rstd.data(), options));
        EXPECT_TRUE(SameBits(alone, rstd)) << Name(dtype) << " " << width;
      });
      ASSERT_FALSE(HasFailure());
    }
  }
}

// The two halves of a norm make the whole, for every row that f32 can square.
TEST(Statistic, RmsNormIsRowRstdAndRmsNormWithRstd) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : AllWidths()) {
      Buffer x(dtype, {5, width}), weight = Weight(random, dtype, width);
      x.Fill(random, Data::kNormal);
      Buffer whole(dtype, {5, width}), halves(dtype, {5, width});
      for (Rounding rounding : {Rounding::kOnce, Rounding::kBeforeWeight}) {
        Options options;
        options.rounding = rounding;
        options.weight_offset = random.Chance(50) ? 1.0f : 0.0f;
        std::vector<float> rstd(5);
        EXPECT_STATUS_OK(RmsNorm(x, weight, whole, options));
        EXPECT_STATUS_OK(RowRstd(x, rstd.data(), options));
        EXPECT_STATUS_OK(
            RmsNormWithRstd(x, rstd.data(), weight, halves, options));
        ASSERT_TRUE(SameBits(whole, halves)) << Name(dtype) << " " << width;
      }
    }
  }
}

// The fused forms with kRounded have the bits of the separate operations.
TEST(Statistic, RoundedFormsAreTheSeparateOperations) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : AllWidths()) {
      const Layout layout = Packed({8, width});
      BlockCall call = MakeCall(random, BlockOp::kRmsNormAddRmsNorm,
                                {dtype, dtype, dtype}, layout);
      call.weight = Weight(random, dtype, width);
      call.weight_pre = Weight(random, DType::kF32, width);
      for (const Options& options : AllOptions(call.op)) {
        if (options.sum != Sum::kRounded) continue;
        call.options = options;
        Buffer branch(dtype, layout), sum(dtype, layout), out(dtype, layout);
        EXPECT_STATUS_OK(RmsNorm(call.x, call.weight, branch, options));
        EXPECT_STATUS_OK(AddRmsNorm(branch, call.residual, call.weight_pre, out,
                                    sum, options));
        const BlockResults fused = RunBlock(Reference(), call);
        ASSERT_TRUE(SameBits(out, fused.out)) << Name(call);
        ASSERT_TRUE(SameBits(sum, fused.residual_out)) << Name(call);
        Buffer post(dtype, layout);
        EXPECT_STATUS_OK(
            RmsNormAdd(call.x, call.residual, call.weight, post, options));
        ASSERT_TRUE(SameBits(sum, post)) << Name(call);
      }
    }
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

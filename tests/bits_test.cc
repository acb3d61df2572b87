// Every target has the reference's bits: the grid of dtypes, widths and
// options, the mixes of dtypes, aliases, batches and threads. The random part
// is in random_bits_test.cc.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "call.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

// 1..130, the hidden sizes, heads and latents of real models, and odd ones.
std::vector<int64_t> AllWidths() {
  if (Subset()) return {1, 2, 7, 16, 31, 64, 65, 100, 130, 576, 1037};
  std::vector<int64_t> widths;
  for (int64_t width = 1; width <= 130; ++width) widths.push_back(width);
  for (int64_t width :
       {256,  511,  512,   533,   576,   640,   769,   1024, 1025,
        1037, 1152, 1536,  2048,  2112,  2304,  2560,  2880, 3072,
        3584, 3840, 4095,  4096,  4097,  4608,  5120,  5376, 6144,
        7168, 8192, 12288, 16383, 16384, 16385, 20000, 65536}) {
    widths.push_back(width);
  }
  return widths;
}

// For the loops that have many more options: around the vector lengths, the
// blocks of 1024 and beyond one block.
std::vector<int64_t> FewWidths() {
  if (Subset()) return {3, 33, 130};
  return {1, 4, 9, 17, 33, 64, 100, 533, 1025, 3000};
}

constexpr float kEps[] = {1e-6f, 0.0f, 1e-5f, 1e-12f, 1e-20f, 1.0f};
constexpr Rounding kRoundings[] = {Rounding::kOnce, Rounding::kBeforeWeight};
constexpr Sum kSums[] = {Sum::kRounded, Sum::kExact, Sum::kExactStatistic};
constexpr float kOffsets[] = {0.0f, 1.0f, -0.5f};
constexpr float kScales[] = {1.0f, 0.7f};

// Every combination of the options, each with one of the eps. Without an
// addition sum and scale have nothing to say.
std::vector<Options> AllOptions(Random& random, bool is_add) {
  std::vector<Options> all;
  for (Rounding rounding : kRoundings) {
    for (Sum sum : kSums) {
      for (float scale : kScales) {
        if (!is_add && (sum != Sum::kRounded || scale != 1.0f)) continue;
        for (float offset : kOffsets) {
          Options options;
          options.eps = kEps[random.Uniform(0, 5)];
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
  Buffer weight(dtype, {width});
  weight.Fill(random, kinds[width % 4]);
  return weight;
}

// Inputs of every kind, the kinds of x and residual paired at random.
Call MakeCall(Random& random, DType x, DType residual, DType out,
              std::vector<int64_t> shape) {
  Call call;
  call.x = Buffer(x, shape);
  call.x.FillMixed(random, static_cast<int>(random.Uniform(0, 7)));
  call.residual = Buffer(residual, shape);
  call.residual.FillMixed(random, static_cast<int>(random.Uniform(0, 7)));
  call.out = Buffer(out, shape);
  call.residual_out = Buffer(residual, shape);
  call.want_rstd = true;
  return call;
}

Call WithoutResidual(Call call) {
  call.residual = Buffer();
  call.residual_out = Buffer();
  return call;
}

// Compares over all options, with and without residual_out. False: stop.
bool CompareOptions(Random& random, Call call) {
  const std::vector<Implementation> targets = Targets();
  const Buffer blank = call.residual_out;
  for (const Options& options : AllOptions(random, call.is_add())) {
    call.options = options;
    call.residual_out = blank;
    if (!ExpectSame(RunCall(Reference(), call), call, targets)) return false;
    if (!call.is_add()) continue;
    call.residual_out = Buffer();
    if (!ExpectSame(RunCall(Reference(), call), call, targets)) return false;
  }
  return true;
}

void RecordCount(int64_t before) {
  testing::Test::RecordProperty("bit_comparisons",
                                std::to_string(ComparisonCount() - before));
}

class UniformDType : public testing::TestWithParam<DType> {};

TEST_P(UniformDType, EveryWidthAndOption) {
  const int64_t before = ComparisonCount();
  const DType dtype = GetParam();
  Random random;
  for (int64_t width : AllWidths()) {
    const int64_t rows = width <= 130 ? 16 : width <= 8192 ? 8 : 4;
    Call call = MakeCall(random, dtype, dtype, dtype, {rows, width});
    for (const Buffer& weight : {Buffer(), Weight(random, dtype, width),
                                 Weight(random, DType::kF32, width)}) {
      call.weight = weight;
      ASSERT_TRUE(CompareOptions(random, call));
      ASSERT_TRUE(CompareOptions(random, WithoutResidual(call)));
    }
  }
  RecordCount(before);
}

// Far from the cache the outputs of a group share a loop with the sums of the
// next: each number of rows, ordinary ones alone or of every kind, so that
// exceptional ones stand at every place. In place nothing is stored past the
// cache.
TEST_P(UniformDType, FarFromTheCache) {
  const std::vector<Implementation> targets = Targets();
  const DType dtype = GetParam();
  Random random;
  for (int64_t rows = 8; rows <= 24; rows += Subset() ? 5 : 1) {
    for (int64_t width : {128, 256, 576, 1037, 1088, 2112}) {
      Call add = MakeCall(random, dtype, dtype, dtype, {rows, width});
      if (random.Chance(50)) {
        add.x.Fill(random, Data::kNormal);
        add.residual.Fill(random, Data::kNormal);
      }
      add.weight = Weight(random, dtype, width);
      for (Call call : {WithoutResidual(add), add}) {
        call.options = random.Pick(AllOptions(random, call.is_add()));
        call.options.nontemporal = Nontemporal::kAlways;
        for (bool residual_out : {true, false}) {
          if (!residual_out) call.residual_out = Buffer();
          const Results expected = RunCall(Reference(), call);
          ASSERT_TRUE(ExpectSame(expected, call, targets));
          ASSERT_TRUE(
              ExpectSame(expected, call, targets, {Over::kX, Over::kNothing}));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bits, UniformDType, testing::ValuesIn(kFloatDTypes),
                         [](const auto& dtype) { return Name(dtype.param); });

TEST(Bits, EveryMixOfDTypes) {
  const int64_t before = ComparisonCount();
  Random random;
  for (int64_t width : FewWidths()) {
    for (DType x : kFloatDTypes) {
      for (DType residual : kFloatDTypes) {
        for (DType out : kFloatDTypes) {
          Call call = MakeCall(random, x, residual, out, {8, width});
          ASSERT_TRUE(CompareOptions(random, call));
          for (DType weight : kFloatDTypes) {
            call.weight = Weight(random, weight, width);
            ASSERT_TRUE(CompareOptions(random, call));
            if (residual == x) {
              ASSERT_TRUE(CompareOptions(random, WithoutResidual(call)));
            }
          }
        }
      }
    }
  }
  RecordCount(before);
}

// f64 is the scalar code's in every target.
TEST(Bits, F64) {
  Random random;
  for (int64_t width : FewWidths()) {
    Call call =
        MakeCall(random, DType::kF64, DType::kF64, DType::kF64, {16, width});
    call.want_rstd = false;
    for (const Buffer& weight :
         {Buffer(), Weight(random, DType::kF64, width)}) {
      call.weight = weight;
      ASSERT_TRUE(CompareOptions(random, call));
      ASSERT_TRUE(CompareOptions(random, WithoutResidual(call)));
    }
  }
}

// The bits of separate buffers, for every legal alias, sum and dtype. Rows that
// are redone after the first pass has stored are among them.
TEST(Bits, Aliases) {
  const std::vector<Implementation> all = Implementations();
  Random random;
  for (int64_t width : FewWidths()) {
    for (DType x : kFloatDTypes) {
      for (DType residual : kFloatDTypes) {
        for (DType out : kFloatDTypes) {
          if (x != residual && x != out && residual != out) continue;
          Call call = MakeCall(random, x, residual, out, {8, width});
          call.weight = Weight(random, DType::kF32, width);
          for (const Options& options : AllOptions(random, true)) {
            if (options.weight_offset != 1.0f) continue;
            call.options = options;
            const Results separate = RunCall(Reference(), call);
            for (const Alias& alias : LegalAliases(call)) {
              ASSERT_TRUE(ExpectSame(separate, call, all, alias));
            }
          }
          call = WithoutResidual(call);
          const Results separate = RunCall(Reference(), call);
          for (const Alias& alias : LegalAliases(call)) {
            ASSERT_TRUE(ExpectSame(separate, call, all, alias));
          }
        }
      }
    }
  }
}

void CopyRow(const Buffer& from, int64_t from_row, Buffer& to, int64_t to_row) {
  for (int64_t i = 0; i < from.width(); ++i) {
    to.set_bits(to_row, i, from.bits(from_row, i));
  }
}

// The row `position` of the batch as a call of its own.
Call Alone(const Call& batch, int64_t position) {
  const int64_t width = batch.x.width();
  Call call = batch;
  call.x = Buffer(batch.x.dtype(), {width});
  CopyRow(batch.x, position, call.x, 0);
  call.out = Buffer(batch.out.dtype(), {width});
  if (batch.is_add()) {
    call.residual = Buffer(batch.residual.dtype(), {width});
    CopyRow(batch.residual, position, call.residual, 0);
    call.residual_out = Buffer(batch.residual_out.dtype(), {width});
  }
  return call;
}

void CompareBatchWithRows(const Implementation& implementation,
                          const Call& batch) {
  const Results together = RunCall(implementation, batch);
  const size_t width = static_cast<size_t>(batch.x.width());
  for (int64_t position : {0, 100, 254, 255, 256, 299}) {
    const Results alone = RunCall(implementation, Alone(batch, position));
    ASSERT_TRUE(SameRow(batch.out.dtype(), alone.out.row(0),
                        together.out.row(position),
                        static_cast<int64_t>(width)))
        << Name(batch) << " position " << position;
    ASSERT_TRUE(SameRow(DType::kF32, &alone.rstd[0],
                        &together.rstd[static_cast<size_t>(position)], 1));
    if (!batch.is_add()) continue;
    ASSERT_TRUE(SameRow(batch.residual_out.dtype(), alone.residual_out.row(0),
                        together.residual_out.row(position),
                        static_cast<int64_t>(width)))
        << Name(batch) << " position " << position;
  }
}

// A row's bits do not depend on its place in the batch or its neighbours.
TEST(Bits, RowAloneEqualsRowInBatch) {
  Random random;
  for (int64_t width : Subset() ? std::vector<int64_t>{64}
                                : std::vector<int64_t>{64, 1000, 4096}) {
    for (DType dtype : kFloatDTypes) {
      Call batch = MakeCall(random, dtype, dtype, dtype, {300, width});
      batch.weight = Weight(random, dtype, width);
      for (int32_t threads : {1, 4}) {
        batch.options.num_threads = threads;
        ForEachImplementation([&](const Implementation& implementation) {
          CompareBatchWithRows(implementation, batch);
          CompareBatchWithRows(implementation, WithoutResidual(batch));
        });
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

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
TEST(Bits, ThreadsAndPools) {
  const std::vector<Implementation> all = Implementations();
  Random random;
  int pool_calls = 0;
  for (int64_t rows : {1, 5, 40, 257}) {
    for (int64_t width : Subset() ? std::vector<int64_t>{100}
                                  : std::vector<int64_t>{100, 1000, 16385}) {
      const DType dtype = kFloatDTypes[(rows + width) % 3];
      Call call = MakeCall(random, dtype, dtype, dtype, {rows, width});
      call.weight = Weight(random, dtype, width);
      call.options.num_threads = 1;
      const Results expected = RunCall(Reference(), call);
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

}  // namespace
}  // namespace test
}  // namespace fusednorm

// Every target has the reference's gradients, bit for bit: the grid of dtypes,
// widths and weights, mixes of dtypes, dx on each of its inputs, strides and
// repeated rows, numbers of rows, threads and pools; rstd given or computed.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "backward_call.h"
#include "backward_draw.h"
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
       {47,  48,  49,   63,   64,   65,   66,   79,   80,   95,   96,
        97,  100, 112,  127,  128,  129,  130,  191,  255,  257,  533,
        576, 769, 1023, 1024, 1025, 1037, 2048, 3584, 4097, 16385}) {
    widths.push_back(width);
  }
  return widths;
}

Numbers FewWidths() {
  if (Subset()) return {3, 33, 130};
  return {1, 9, 33, 100, 1025};
}

// Inputs of every kind; the pairs of kinds change from call to call.
BackwardCall MakeCall(Random& random, BackwardOp op,
                      const BackwardDTypes& dtypes, const Layout& layout) {
  const auto input = [&](DType dtype) {
    Buffer buffer(dtype, layout);
    buffer.FillMixed(random, static_cast<int>(random.Uniform(0, 7)));
    return buffer;
  };
  BackwardCall call;
  call.op = op;
  call.x = input(dtypes.x);
  call.dy = input(dtypes.dy);
  if (op == BackwardOp::kAddRmsNorm) {
    call.d_residual_out = input(dtypes.d_residual_out);
  }
  call.dx = Buffer(dtypes.dx, layout);
  call.weight = Buffer(dtypes.weight, Numbers{call.x.width()});
  call.weight.Fill(random, random.Chance(80) ? Data::kNormal : Data::kBits);
  call.dweight = Buffer(DType::kF32, Numbers{call.x.width()});
  call.dweight.Fill(random, Data::kNormal);
  call.options.eps = random.Chance(50) ? 1e-6f : 0.0f;
  call.options.weight_offset = random.Chance(50) ? 0.0f : 1.0f;
  call.options.num_threads = 1;
  return call;
}

bool Compare(const BackwardCall& call, DxOver over = DxOver::kNothing) {
  return ExpectSame(RunBackward(Reference(), call), call, Targets(), over);
}

// dx and dweight, either alone, without a weight, without d_residual_out, with
// the old dweight, in each dtype that dweight may have.
bool CompareForms(const BackwardCall& call) {
  BackwardCall form = call;
  if (!Compare(form)) return false;
  form.options.accumulate = true;
  form.dweight = Buffer(DType::kF64, call.weight.layout());
  if (!Compare(form)) return false;
  form.dweight = Buffer(call.weight.dtype(), call.weight.layout());
  if (!Compare(form)) return false;
  form.dweight = Buffer();
  if (!Compare(form)) return false;
  form = call;
  form.dx = Buffer();
  if (!Compare(form)) return false;
  form = call;
  form.weight = Buffer();
  form.dweight = Buffer(DType::kF64, call.weight.layout());
  if (!Compare(form)) return false;
  if (call.d_residual_out.empty()) return true;
  form = call;
  form.d_residual_out = Buffer();
  return Compare(form);
}

void RecordCount(int64_t before) {
  testing::Test::RecordProperty("bit_comparisons",
                                std::to_string(ComparisonCount() - before));
}

class BackwardBits : public testing::TestWithParam<BackwardOp> {};

TEST_P(BackwardBits, EveryWidthWeightAndForm) {
  const int64_t before = ComparisonCount();
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : AllWidths()) {
      for (DType weight : kFloatDTypes) {
        BackwardDTypes dtypes = Uniform(dtype);
        dtypes.weight = weight;
        if (width > 1100 && weight != dtype) continue;
        ASSERT_TRUE(CompareForms(
            MakeCall(random, GetParam(), dtypes, Packed({8, width}))));
      }
    }
  }
  RecordCount(before);
}

TEST_P(BackwardBits, EveryMixOfDTypes) {
  const int64_t before = ComparisonCount();
  Random random;
  for (int64_t width : FewWidths()) {
    for (DType x : kFloatDTypes) {
      for (DType dy : kFloatDTypes) {
        for (DType dx : kFloatDTypes) {
          for (DType weight : kFloatDTypes) {
            const BackwardDTypes dtypes = {x, weight, dy, RandomDType(random),
                                           dx};
            ASSERT_TRUE(CompareForms(
                MakeCall(random, GetParam(), dtypes, Packed({5, width}))));
          }
        }
      }
    }
  }
  RecordCount(before);
}

// f64 is the scalar code's in every target.
TEST_P(BackwardBits, F64) {
  Random random;
  for (int64_t width : FewWidths()) {
    BackwardCall call =
        MakeCall(random, GetParam(), Uniform(DType::kF64), Packed({16, width}));
    call.dweight = Buffer(DType::kF64, Numbers{width});
    ASSERT_TRUE(CompareForms(call));
  }
}

// dx on each of its inputs: it has the bits of separate buffers, and so has
// dweight, which needs those inputs.
TEST_P(BackwardBits, Aliases) {
  const std::vector<Implementation> all = Implementations();
  Random random;
  int64_t in_place = 0;
  for (int64_t width : FewWidths()) {
    for (DType x : kFloatDTypes) {
      for (DType dy : kFloatDTypes) {
        for (DType stream : kFloatDTypes) {
          for (DType dx : {x, dy, stream}) {
            BackwardCall call = MakeCall(
                random, GetParam(), {x, RandomDType(random), dy, stream, dx},
                Padded({40, width}, random.Uniform(0, 3)));
            const Gradients separate = RunBackward(Reference(), call);
            for (DxOver over : LegalAliases(call)) {
              ASSERT_TRUE(ExpectSame(separate, call, all, over));
              if (over != DxOver::kNothing) ++in_place;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(in_place, 0);
}

// Inputs may be one tensor, and dx may lie on all of them.
TEST_P(BackwardBits, InputsThatAreOneTensor) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : FewWidths()) {
      BackwardCall call =
          MakeCall(random, GetParam(), Uniform(dtype), Packed({40, width}));
      call.dy = call.x;
      if (!call.d_residual_out.empty()) call.d_residual_out = call.x;
      const Gradients expected = RunBackward(Reference(), call);
      ForEachImplementation([&](const Implementation& implementation) {
        Buffer all = call.x, weight = call.weight, dweight = call.dweight;
        BackwardViews views;
        views.op = call.op;
        views.x = views.dy = views.dx = all;
        if (!call.d_residual_out.empty()) views.d_residual_out = all;
        views.weight = weight;
        views.dweight = dweight;
        views.options = call.options;
        EXPECT_STATUS_OK(views.Run(implementation));
        EXPECT_TRUE(SameBits(expected.dx, all)) << Name(call);
        EXPECT_TRUE(SameBits(expected.dweight, dweight)) << Name(call);
      });
      ASSERT_FALSE(HasFailure());
    }
  }
}

// rstd from the forward call has the bits of the one computed again.
TEST_P(BackwardBits, RstdOfTheForwardCall) {
  const std::vector<Implementation> all = Implementations();
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : AllWidths()) {
      BackwardCall call =
          MakeCall(random, GetParam(), Uniform(dtype), Packed({8, width}));
      const Gradients expected = RunBackward(Reference(), call);
      std::vector<float> rstd(8);
      Options options = call.options;
      options.rstd = rstd.data();
      Buffer out = call.dx;
      ASSERT_STATUS_OK(RmsNorm(call.x, call.weight, out, options));
      call.rstd = rstd;
      ASSERT_TRUE(ExpectSame(expected, call, all));
    }
  }
}

// dy as a sum's gradient has it: one value, or one row, for all rows.
TEST_P(BackwardBits, BroadcastDy) {
  const std::vector<Implementation> all = Implementations();
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : FewWidths()) {
      BackwardCall call =
          MakeCall(random, GetParam(), Uniform(dtype), Packed({5, 9, width}));
      Layout repeated = Packed({5, 9, width});
      repeated.strides[0] = 0;
      repeated.strides[1] = random.Chance(50) ? 0 : width;
      Buffer dy(dtype, repeated);
      dy.Fill(random, Data::kNormal);
      for (int64_t r = 0; r < 45; ++r) {
        for (int64_t i = 0; i < width; ++i) {
          call.dy.set_bits(r, i, dy.bits(r, i));
        }
      }
      const Gradients expected = RunBackward(Reference(), call);
      call.dy = dy;
      ASSERT_TRUE(ExpectSame(expected, call, all));
    }
  }
}

// Far from the cache the next group is fetched, and dx stored past it unless it
// is in place.
TEST_P(BackwardBits, FarFromTheCache) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t rows = 8; rows <= 16; rows += Subset() ? 5 : 1) {
      for (int64_t width : {128, 576, 1037, 1088, 2112}) {
        BackwardCall call =
            MakeCall(random, GetParam(), Uniform(dtype), Packed({rows, width}));
        if (random.Chance(50)) {
          call.x.Fill(random, Data::kNormal);
          call.dy.Fill(random, Data::kNormal);
        }
        call.options.nontemporal = Nontemporal::kAlways;
        ASSERT_TRUE(CompareForms(call));
        ASSERT_TRUE(Compare(call, DxOver::kX));
      }
    }
  }
}

TEST_P(BackwardBits, EveryNumberOfRows) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t rows = 1; rows <= 70; rows += Subset() ? 9 : 1) {
      for (int64_t width : {16, 100}) {
        BackwardCall call =
            MakeCall(random, GetParam(), Uniform(dtype), Packed({rows, width}));
        call.x = RandomInput(random, dtype, call.x.layout());
        call.dy = RandomInput(random, dtype, call.dy.layout());
        ASSERT_TRUE(Compare(call));
      }
    }
  }
}

// ------------------------------------------------------------------ random

struct RandomCase {
  BackwardCall call;
  DxOver over = DxOver::kNothing;
};

// Half of the cases have one layout for all, so that aliases are legal.
RandomCase Draw(Random& random, BackwardOp op) {
  RandomCase drawn;
  BackwardCall& call = drawn.call;
  const Numbers shape = RandomShape(random);
  const bool one_layout = random.Chance(50);
  const Layout common = RandomLayout(random, shape);
  const BackwardDTypes dtypes = RandomBackwardDTypes(random);
  const auto input = [&](DType dtype) {
    return RandomInput(random, dtype,
                       one_layout ? common : RandomInputLayout(random, shape));
  };
  call.op = op;
  call.x = input(dtypes.x);
  call.weight = RandomWeight(random, dtypes.weight, shape);
  call.dy = input(dtypes.dy);
  if (op == BackwardOp::kAddRmsNorm && random.Chance(70)) {
    call.d_residual_out = input(dtypes.d_residual_out);
  }
  DrawRest(random, shape, call);
  if (call.dweight.empty() || random.Chance(80)) {
    call.dx =
        Buffer(dtypes.dx, one_layout ? common : RandomLayout(random, shape));
  }
  call.options.num_threads =
      random.Pick(std::vector<int32_t>{1, 1, 1, 2, 7, 16});
  if (one_layout) drawn.over = random.Pick(LegalAliases(call));
  return drawn;
}

TEST_P(BackwardBits, Random) {
  const int64_t before = ComparisonCount();
  const std::vector<Implementation> all = Implementations();
  fusednorm::test::Random random;
  for (int i = 0; i < (Subset() ? 200 : 1000); ++i) {
    const RandomCase drawn = Draw(random, GetParam());
    const Gradients expected = RunBackward(Reference(), drawn.call);
    ASSERT_TRUE(ExpectSame(expected, drawn.call, all, drawn.over))
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

// One piece after the other, from the last to the first, in the caller.
void BackwardsFor(void* context, int64_t count,
                  void (*body)(void* arg, int64_t begin, int64_t end),
                  void* arg) {
  for (int64_t i = count; i > 0; --i) body(arg, i - 1, i);
  ++*static_cast<int*>(context);
}

// dweight has the same bits in every split, for sizes below and above those for
// which threads are used, and with more threads than rows.
TEST_P(BackwardBits, ThreadsAndPools) {
  const std::vector<Implementation> all = Implementations();
  Random random;
  int pool_calls = 0;
  for (int64_t rows : {1, 5, 257, 2500}) {
    for (int64_t width : Subset() ? Numbers{100} : Numbers{100, 1000}) {
      if (rows == 2500 && (width == 1000 || Subset())) continue;
      const DType dtype = kFloatDTypes[(rows + width / 100) % 3];
      BackwardCall call =
          MakeCall(random, GetParam(), Uniform(dtype), Packed({rows, width}));
      // Non-finite sums would hide an order.
      call.x.Fill(random, Data::kNormal);
      call.dy.Fill(random, Data::kNormal);
      call.dweight = Buffer(DType::kF64, Numbers{width});
      const Gradients expected = RunBackward(Reference(), call);
      for (int32_t threads : {1, 2, 7, 16, 0}) {
        call.options.num_threads = threads;
        call.options.parallel_context = &pool_calls;
        for (ParallelFor pool :
             {ParallelFor{nullptr}, &UnevenParallelFor, &BackwardsFor}) {
          call.options.parallel_for = pool;
          ASSERT_TRUE(ExpectSame(expected, call, all));
        }
      }
    }
  }
  EXPECT_TRUE(Subset() || pool_calls > 0);
}

// Also where each head has a weight of its own.
TEST_P(BackwardBits, ThreadsAndWeightsPerHead) {
  Random random;
  const Numbers shape = {Subset() ? 30 : 1500, 8, 64};
  BackwardCall call =
      MakeCall(random, GetParam(), Uniform(DType::kBF16), Packed(shape));
  call.x.Fill(random, Data::kNormal);
  call.dy.Fill(random, Data::kNormal);
  call.weight = Buffer(DType::kBF16, Numbers{1, 8, 64});
  call.weight.Fill(random, Data::kNormal);
  call.dweight = Buffer(DType::kF32, Numbers{1, 8, 64});
  const Gradients expected = RunBackward(Reference(), call);
  int pool_calls = 0;
  for (int32_t threads : {1, 2, 7, 16}) {
    call.options.num_threads = threads;
    call.options.parallel_context = &pool_calls;
    for (ParallelFor pool : {ParallelFor{nullptr}, &UnevenParallelFor}) {
      call.options.parallel_for = pool;
      ASSERT_TRUE(ExpectSame(expected, call, Implementations()));
    }
  }
  EXPECT_TRUE(Subset() || pool_calls > 0);
}

INSTANTIATE_TEST_SUITE_P(Backward, BackwardBits,
                         testing::ValuesIn(kBackwardOps),
                         [](const auto& op) { return Name(op.param); });

}  // namespace
}  // namespace test
}  // namespace fusednorm

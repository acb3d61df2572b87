// An output may be an input's alias: the results have the bits of separate
// buffers, and inputs that are no alias keep every byte. Rows of all kinds, so
// that the exceptional ones, which are read once more, are among them.
#include <gtest/gtest.h>

#include <vector>

#include "call.h"
#include "operands.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

// Plain rows, rows of every kind, and one more.
constexpr int64_t kRows = 13;

// Widths about the vector lengths and the unrolling, and past one block.
std::vector<int64_t> Widths() {
  if (Subset()) return {1, 17, 64, 131};
  return {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 131, 576, 1037};
}

// All combinations of x, stream and out; the weight's dtype takes turns.
std::vector<DTypes> AllDTypes() {
  std::vector<DTypes> all;
  int turn = 0;
  for (const DType x : kFloatDTypes) {
    for (const DType stream : kFloatDTypes) {
      for (const DType out : kFloatDTypes) {
        all.push_back({x, stream, kFloatDTypes[turn++ % 3], out});
      }
    }
  }
  all.push_back(Uniform(DType::kF64));
  return all;
}

Call MakeCall(Op op, const DTypes& dtypes, int64_t width, Random& random) {
  const Layout layout =
      Padded({kRows, width}, random.Chance(50) ? 0 : 5, random.Uniform(0, 15));
  Call call;
  call.x = Buffer(dtypes.x, layout);
  Operands::FillMixed(random, &call.x);
  if (op == Op::kAddRmsNorm) {
    call.residual = Buffer(dtypes.stream, layout);
    Operands::FillMixed(random, &call.residual);
    call.residual_out = Buffer(dtypes.stream, layout);
  }
  call.out = Buffer(dtypes.out, layout);
  if (random.Chance(80)) {
    call.weight = Buffer(dtypes.weight, {width});
    call.weight.Fill(random, Data::kNormal);
  }
  call.options.eps = random.Chance(50) ? 1e-6f : 0;
  call.options.weight_offset = random.Chance(50) ? 1.0f : 0;
  call.options.nontemporal = static_cast<Nontemporal>(random.Uniform(0, 2));
  call.options.residual_scale = random.Chance(50) ? 0.75f : 1;
  call.want_rstd = dtypes.x != DType::kF64;
  return call;
}

// The call under every legal alias against the reference without any.
void ExpectAllAliases(const Call& call, int* count) {
  const Results expected = RunCall(Reference(), call);
  for (const Alias& alias : LegalAliases(call)) {
    if (!ExpectSame(expected, call, Implementations(), alias)) return;
    ++*count;
  }
}

TEST(Alias, RmsNorm) {
  Random random;
  int count = 0;
  for (const DTypes& dtypes : AllDTypes()) {
    if (dtypes.x != dtypes.stream) continue;  // There is no stream.
    for (const int64_t width : Widths()) {
      Call call = MakeCall(Op::kRmsNorm, dtypes, width, random);
      for (const int rounding : {0, 1}) {
        call.options.rounding = static_cast<Rounding>(rounding);
        ExpectAllAliases(call, &count);
        if (HasFailure()) return;
      }
    }
  }
  // Each call alone, and over x where the dtypes agree.
  EXPECT_EQ(count, static_cast<int>(2 * (10 + 4) * Widths().size()));
}

TEST(Alias, AddRmsNorm) {
  Random random;
  int count = 0;
  for (const DTypes& dtypes : AllDTypes()) {
    for (const int64_t width : Widths()) {
      Call call = MakeCall(Op::kAddRmsNorm, dtypes, width, random);
      for (const int sum : {0, 1, 2}) {
        for (const int rounding : {0, 1}) {
          call.options.sum = static_cast<Sum>(sum);
          call.options.rounding = static_cast<Rounding>(rounding);
          ExpectAllAliases(call, &count);
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(count, static_cast<int>(6 * 28 * Widths().size()));
}

// out over an input while the sum is not wanted at all.
TEST(Alias, AddRmsNormWithoutResidualOut) {
  Random random;
  int count = 0;
  for (const DTypes& dtypes : AllDTypes()) {
    for (const int64_t width : Widths()) {
      Call call = MakeCall(Op::kAddRmsNorm, dtypes, width, random);
      call.residual_out = {};
      call.options.sum = static_cast<Sum>(random.Uniform(0, 2));
      call.options.rounding = static_cast<Rounding>(random.Uniform(0, 1));
      ExpectAllAliases(call, &count);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(count, static_cast<int>(28 * Widths().size()));
}

// x and residual may be one tensor, and an output may then lie on both.
TEST(Alias, InputsThatAreOneTensor) {
  Random random;
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (const int64_t width : Widths()) {
      for (const int sum : {0, 1, 2}) {
        Call call = MakeCall(Op::kAddRmsNorm, Uniform(dtype), width, random);
        call.residual = call.x;
        call.options.sum = static_cast<Sum>(sum);
        const Results expected = RunCall(Reference(), call);
        ForEachImplementation([&](const Implementation& implementation) {
          for (const bool over_out : {true, false}) {
            Buffer both = call.x;
            Results actual = {call.out, call.residual_out, {}};
            Options options = call.options;
            actual.rstd.resize(expected.rstd.size());
            if (call.want_rstd) options.rstd = actual.rstd.data();
            EXPECT_STATUS_OK(implementation.add_rms_norm(
                both, both, call.weight, over_out ? both : actual.out,
                over_out ? actual.residual_out : both, options));
            (over_out ? actual.out : actual.residual_out) = both;
            EXPECT_TRUE(Same(expected, actual)) << Name(call);
          }
        });
        if (HasFailure()) return;
      }
    }
  }
}

// Rows shared among threads: each thread writes over the rows that it reads.
TEST(Alias, ManyRows) {
  Random random;
  const int64_t rows = Subset() ? 140 : 700;
  for (const DType dtype : kFloatDTypes) {
    Call call;
    for (Buffer* buffer :
         {&call.x, &call.residual, &call.out, &call.residual_out}) {
      *buffer = Buffer(dtype, {rows, 515});
      buffer->FillMixed(random);
    }
    int count = 0;
    call.options.num_threads = 4;
    ExpectAllAliases(call, &count);
    EXPECT_EQ(count, 7);
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

// Every target has the reference's bits, on calls drawn at random: shapes,
// strides, broadcasts, weights per head, misaligned data, aliases, threads.
#include <gtest/gtest.h>

#include <vector>

#include "call.h"
#include "random_layout.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

Options RandomOptions(Random& random) {
  using Floats = std::vector<float>;
  Options options;
  options.eps = random.Pick(
      Floats{1e-6f, 1e-5f, 0.0f, 1e-12f, 1e-19f, 1e-30f, 1e-41f, 0.5f, 1e30f});
  options.weight_offset =
      random.Pick(Floats{0.0f, 0.0f, 1.0f, -0.5f, 1e-3f, -1e30f, -0.0f});
  options.residual_scale =
      random.Pick(Floats{1.0f, 1.0f, 0.7f, -2.0f, 0.0f, 1e-20f, 1e20f});
  options.rounding = static_cast<Rounding>(random.Uniform(0, 1));
  options.sum = static_cast<Sum>(random.Uniform(0, 2));
  options.nontemporal = static_cast<Nontemporal>(random.Uniform(0, 2));
  options.num_threads = random.Pick(std::vector<int32_t>{1, 1, 1, 2, 7, 16});
  return options;
}

struct RandomCase {
  Call call;
  Alias alias;
};

// Half of the cases have one layout for all, so that aliases are legal.
RandomCase Draw(Random& random) {
  RandomCase drawn;
  Call& call = drawn.call;
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

  call.x = RandomInput(random, x, input());
  call.weight = RandomWeight(random, dtype(), shape);
  call.out = Buffer(dtype(), output());
  if (random.Chance(65)) {
    call.residual = RandomInput(random, dtype(), input());
    if (random.Chance(70)) {
      call.residual_out = Buffer(call.residual.dtype(), output());
    }
  }
  call.options = RandomOptions(random);
  call.want_rstd = random.Chance(50);
  if (one_layout) drawn.alias = random.Pick(LegalAliases(call));
  return drawn;
}

TEST(RandomBits, TargetsEqualTheReference) {
  const int64_t before = ComparisonCount();
  const std::vector<Implementation> all = Implementations();
  const int cases = Subset() ? 600 : 20000;
  Random random;
  for (int i = 0; i < cases; ++i) {
    const RandomCase drawn = Draw(random);
    const Results expected = RunCall(Reference(), drawn.call);
    ASSERT_TRUE(ExpectSame(expected, drawn.call, all, drawn.alias))
        << "case " << i;
  }
  RecordProperty("cases", cases);
  RecordProperty("bit_comparisons", std::to_string(ComparisonCount() - before));
}

// x and residual may be one tensor, and an output may be that tensor too.
TEST(RandomBits, XIsTheResidual) {
  Random random;
  for (int i = 0; i < (Subset() ? 100 : 2000); ++i) {
    const DType dtype = RandomDType(random);
    const Numbers shape = RandomShape(random);
    const Layout layout = RandomLayout(random, shape);
    const Buffer x = RandomInput(random, dtype, layout);
    const Buffer weight = RandomWeight(random, RandomDType(random), shape);
    const Options options = RandomOptions(random);
    Call call;
    call.x = x;
    call.residual = x;
    call.weight = weight;
    call.out = Buffer(dtype, layout);
    call.residual_out = Buffer(dtype, layout);
    call.options = options;
    const Results expected = RunCall(Reference(), call);
    const bool out_over = random.Chance(50);
    ForEachImplementation([&](const Implementation& implementation) {
      Buffer both = x;
      Buffer other(dtype, layout);
      Buffer& out = out_over ? both : other;
      Buffer& residual_out = out_over ? other : both;
      EXPECT_STATUS_OK(implementation.add_rms_norm(both, both, weight, out,
                                                   residual_out, options));
      EXPECT_TRUE(SameBits(expected.out, out)) << Name(call);
      EXPECT_TRUE(SameBits(expected.residual_out, residual_out)) << Name(call);
    });
    ASSERT_FALSE(HasFailure()) << "case " << i;
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

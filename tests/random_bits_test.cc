// Every target has the reference's bits, on calls drawn at random: shapes,
// strides, broadcasts, weights per head, misaligned data, aliases, threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "call.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

using Numbers = std::vector<int64_t>;

int64_t RandomWidth(Random& random) {
  const int64_t kind = random.Uniform(0, 99);
  if (kind < 70) return random.Uniform(1, 140);
  if (kind < 97 || Subset()) return random.Uniform(141, 2200);
  return random.Uniform(2201, 20000);
}

// Rank 1 to 4 with up to 40 rows.
Numbers RandomShape(Random& random) {
  Numbers shape;
  int64_t rows_left = 40;
  for (int64_t axis = random.Uniform(0, 3); axis > 0; --axis) {
    shape.push_back(random.Uniform(1, std::min<int64_t>(rows_left, 9)));
    rows_left /= shape.back();
  }
  if (shape.size() == 1) shape[0] = random.Uniform(1, 40);
  shape.push_back(RandomWidth(random));
  return shape;
}

// The leading axes in any order in memory, with gaps; rows do not overlap.
Layout RandomLayout(Random& random, const Numbers& shape) {
  Layout layout = Packed(shape, random.Uniform(0, 15));
  Numbers axes;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    axes.insert(axes.begin() + random.Uniform(0, static_cast<int64_t>(axis)),
                static_cast<int64_t>(axis));
  }
  int64_t stride = shape.back();
  for (int64_t axis : axes) {
    stride += random.Chance(50) ? random.Uniform(0, 70) : 0;
    layout.strides[static_cast<size_t>(axis)] = stride;
    stride *= shape[static_cast<size_t>(axis)];
  }
  // An axis of size 1 has no say in strides.
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1 && random.Chance(50)) {
      layout.strides[axis] = random.Pick(Numbers{0, 3, int64_t{1} << 40});
    }
  }
  return layout;
}

// Rows of an input may repeat or overlap.
Layout RandomInputLayout(Random& random, const Numbers& shape) {
  Layout layout = RandomLayout(random, shape);
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    if (random.Chance(10)) layout.strides[axis] = random.Pick(Numbers{0, 1, 5});
  }
  return layout;
}

Buffer RandomInput(Random& random, DType dtype, const Layout& layout) {
  Buffer buffer(dtype, layout);
  for (int64_t r = 0; r < buffer.rows(); ++r) {
    const Data data =
        random.Chance(50) ? Data::kNormal : kAllData[random.Uniform(0, 7)];
    FillRow(random, data, dtype, buffer.row(r), buffer.width());
  }
  return buffer;
}

// None, one row, or rows shared along some of the leading axes.
Buffer RandomWeight(Random& random, DType dtype, const Numbers& shape) {
  if (random.Chance(15)) return Buffer();
  Numbers weight_shape = {shape.back()};
  if (random.Chance(40)) {
    weight_shape = shape;
    for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
      if (random.Chance(50)) weight_shape[axis] = 1;
    }
  }
  return RandomInput(random, dtype, RandomInputLayout(random, weight_shape));
}

DType RandomDType(Random& random) { return kFloatDTypes[random.Uniform(0, 2)]; }

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

// The reference against the exact formula, in long double, and the textbook
// values.
//
// The bounds are the promised ones: an f32 result lies within 4 units of 2^-23
// of the exact one, relatively, for widths up to 65536; a 16-bit result is such
// a number, rounded once (with kBeforeWeight once before and once behind the
// weight). Rounding is monotonic: a result of 16 bits lies between the rounded
// ends of the interval that the f32 bound allows, which is half an ulp of its
// own dtype and the effect of the bound, and no more.
//
// Where the 4 units go: v = u * r, g = offset + w and y = v * g round once each
// (half a unit at most, together 1.5), as do the addition of the fused form
// (0.5), mean, eps and root (about 1); the sum's own relative error is halved
// by the root, and the blocks of the summation keep it near 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "call.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

using Exact = long double;

// A row's name and its element i.
struct RowKind {
  std::string name;
  double (*element)(Random& random, int64_t i);
};

double Spread(Random& random, double from, double to) {
  const double value = std::exp2(from + (to - from) * random.Unit());
  return random.Chance(50) ? value : -value;
}

// The element is rounded to the dtype of the tensor.
const std::vector<RowKind>& RowKinds() {
  static const std::vector<RowKind> kinds = {
      {"ones", [](Random&, int64_t) { return 1.0; }},
      {"thirds", [](Random&, int64_t) { return 1.0 / 3; }},
      {"roots", [](Random&, int64_t) { return 1.41421356237; }},
      {"tenths", [](Random&, int64_t) { return 0.1; }},
      {"steps", [](Random&, int64_t i) { return i % 2 == 0 ? 300.0 : -100.0; }},
      {"normal", [](Random& random, int64_t) { return random.Normal(); }},
      {"positive", [](Random& random, int64_t) { return 1 + random.Unit(); }},
      {"wide", [](Random& random, int64_t) { return Spread(random, -30, 30); }},
      {"outlier",
       [](Random& random, int64_t i) {
         return i == 0 ? 3000.0 : 0.01 * random.Normal();
       }},
      // Squares that overflow f32, that are subnormal in it, and that vanish.
      {"huge", [](Random& random, int64_t) { return Spread(random, 60, 127); }},
      {"square subnormal",
       [](Random& random, int64_t) { return Spread(random, -74, -63); }},
      {"square limit",
       [](Random& random, int64_t) { return Spread(random, -54, -46); }},
      {"tiny",
       [](Random& random, int64_t) { return Spread(random, -120, -80); }},
      {"subnormal",
       [](Random& random, int64_t) { return Spread(random, -148, -126); }},
  };
  return kinds;
}

std::vector<int64_t> Widths() {
  if (Subset()) return {1, 3, 100, 1025};
  return {1,    2,    3,    64,   100,  576,   1024,  1025,
          2048, 4096, 4097, 7168, 8192, 16384, 16385, 65536};
}

// Sums of two elements stay finite in f16 too.
void FillRowKind(const RowKind& kind, Random& random, Buffer& buffer) {
  const double limit = buffer.dtype() == DType::kF16 ? 30000 : 1e38;
  for (int64_t i = 0; i < buffer.width(); ++i) {
    const double value = kind.element(random, i);
    buffer.set_value(0, i, std::max(-limit, std::min(limit, value)));
  }
}

// The vector that is normalised, exactly; the addition's own rounding to f32 is
// part of the error, that to the stream's dtype part of the formula.
std::vector<Exact> ExactInput(const Call& call, const Results& results) {
  std::vector<Exact> u;
  for (int64_t i = 0; i < call.x.width(); ++i) {
    if (!call.is_add()) {
      u.push_back(call.x.value(0, i));
    } else if (call.residual.dtype() != DType::kF32) {
      u.push_back(results.residual_out.value(0, i));
    } else {
      u.push_back(Exact{call.x.value(0, i)} + call.residual.value(0, i));
    }
  }
  return u;
}

Exact ExactRstd(const std::vector<Exact>& u, float eps) {
  Exact sum = 0;
  for (Exact value : u) sum += value * value;
  const Exact mean = sum / static_cast<Exact>(u.size()) + Exact{eps};
  return mean == 0 ? 0 : 1 / std::sqrt(mean);
}

Exact ExactGain(const Call& call, int64_t i) {
  if (call.weight.empty()) return 1;
  return Exact{call.options.weight_offset} + call.weight.value(0, i);
}

double Round(DType dtype, Exact value) {
  // No double rounding: f32 and 16-bit results are compared with a margin of
  // many ulps of double.
  return RoundTo(dtype, static_cast<double>(value));
}

constexpr Exact kBound = 4 * 0x1p-23L;

struct Interval {
  Exact low;
  Exact high;
};

Interval Around(Exact value) {
  const Exact margin = std::fabs(value) * kBound;
  return {value - margin, value + margin};
}

Interval Rounded(DType dtype, const Interval& interval) {
  return {Round(dtype, interval.low), Round(dtype, interval.high)};
}

// What out may be. An f32 result takes its last rounding from the bound.
Interval Allowed(const Call& call, Exact v, Exact g) {
  const DType middle = (call.is_add() ? call.residual : call.x).dtype();
  const DType out = call.out.dtype();
  Interval y = Around(v * g);
  if (call.options.rounding == Rounding::kBeforeWeight &&
      middle != DType::kF32) {
    const Interval rounded = Rounded(middle, Around(v));
    // g and y: half a unit of f32 each.
    const Exact low = rounded.low * g, high = rounded.high * g;
    y.low = std::min(low, high) - 0x1p-23L * std::fabs(low);
    y.high = std::max(low, high) + 0x1p-23L * std::fabs(high);
  }
  return out == DType::kF32 ? y : Rounded(out, y);
}

bool IsSubnormal(Exact value) {
  return value != 0 && std::fabs(value) < 0x1.01p-126L;
}

// The largest relative error of f32 outputs, in units of 2^-23.
double Check(const Implementation& implementation, const Call& call,
             const std::string& name) {
  const Results results = RunCall(implementation, call);
  const std::vector<Exact> u = ExactInput(call, results);
  const Exact rstd = ExactRstd(u, call.options.eps);
  Exact worst = 0;
  for (int64_t i = 0; i < call.x.width(); ++i) {
    const Exact v = u[static_cast<size_t>(i)] * rstd;
    const Exact g = ExactGain(call, i);
    if (IsSubnormal(v) || IsSubnormal(v * g)) continue;
    const Exact y = results.out.value(0, i);
    const Interval allowed = Allowed(call, v, g);
    if (y < allowed.low || y > allowed.high || std::isnan(y)) {
      ADD_FAILURE() << name << " element " << i << ": exact " << v * g
                    << ", got " << y << "\n"
                    << Name(call);
      return 0;
    }
    if (call.out.dtype() == DType::kF32 && y != v * g &&
        call.options.rounding == Rounding::kOnce) {
      worst = std::max(worst, std::fabs(y / (v * g) - 1) * 0x1p23L);
    }
  }
  return static_cast<double>(worst);
}

Buffer Weight(DType dtype, int64_t width, Random& random) {
  Buffer weight(dtype, {width});
  weight.Fill(random, Data::kNormal);
  return weight;
}

Call NormOf(const RowKind& kind, Random& random, DType dtype, int64_t width) {
  Call call;
  call.x = Buffer(dtype, {1, width});
  FillRowKind(kind, random, call.x);
  call.out = Buffer(dtype, {1, width});
  return call;
}

// The addition of the same kind of row; sums that cancel are among them.
Call AddOf(const RowKind& kind, Random& random, DType dtype, int64_t width) {
  Call call = NormOf(kind, random, dtype, width);
  call.residual = Buffer(dtype, {1, width});
  FillRowKind(kind, random, call.residual);
  call.residual_out = Buffer(dtype, {1, width});
  return call;
}

struct Choice {
  float eps;
  Rounding rounding;
  float weight_offset;
};
constexpr Choice kChoices[] = {{1e-6f, Rounding::kOnce, 0},
                               {1e-6f, Rounding::kBeforeWeight, 1},
                               {1e-5f, Rounding::kBeforeWeight, 0},
                               {0, Rounding::kOnce, 1},
                               {1e-18f, Rounding::kOnce, 0}};

double CheckOptions(const Implementation& implementation, Call call,
                    const std::string& name) {
  double worst = 0;
  for (const Choice& choice : kChoices) {
    call.options.eps = choice.eps;
    call.options.rounding = choice.rounding;
    call.options.weight_offset = call.weight.empty() ? 0 : choice.weight_offset;
    worst = std::max(worst, Check(implementation, call, name));
  }
  return worst;
}

class Accuracy : public testing::TestWithParam<DType> {};

TEST_P(Accuracy, ReferenceIsWithinTheBound) {
  Random random;
  double worst = 0;
  for (const RowKind& kind : RowKinds()) {
    for (int64_t width : Widths()) {
      for (Call call : {NormOf(kind, random, GetParam(), width),
                        AddOf(kind, random, GetParam(), width)}) {
        worst = std::max(worst, CheckOptions(Reference(), call, kind.name));
        call.weight = Weight(GetParam(), width, random);
        worst = std::max(worst, CheckOptions(Reference(), call, kind.name));
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  if (GetParam() != DType::kF32) return;
  std::printf("largest error of f32 outputs: %.2f units of 2^-23\n", worst);
  RecordProperty("largest_error_in_units", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(Reference, Accuracy, testing::ValuesIn(kFloatDTypes),
                         [](const auto& dtype) { return Name(dtype.param); });

// 16-bit inputs with f32 outputs, and f32 inputs with 16-bit outputs.
TEST(AccuracyOfMixes, ReferenceIsWithinTheBound) {
  Random random;
  for (const RowKind& kind : RowKinds()) {
    for (int64_t width : {1, 65, 576, 4097}) {
      for (DType x : kFloatDTypes) {
        for (DType out : kFloatDTypes) {
          Call call = AddOf(kind, random, x, width);
          call.out = Buffer(out, {1, width});
          call.weight = Weight(DType::kF32, width, random);
          CheckOptions(Reference(), call, kind.name);
          ASSERT_FALSE(HasFailure());
        }
      }
    }
  }
}

// f64 in the same order: the same 4 units, of 2^-52.
TEST(AccuracyOfF64, ReferenceIsWithinTheBound) {
  Random random;
  for (const RowKind& kind : RowKinds()) {
    for (int64_t width : Widths()) {
      Call call = NormOf(kind, random, DType::kF64, width);
      call.weight = Weight(DType::kF64, width, random);
      const Results results = RunCall(Reference(), call);
      std::vector<Exact> u;
      for (int64_t i = 0; i < width; ++i) u.push_back(call.x.value(0, i));
      const Exact rstd = ExactRstd(u, call.options.eps);
      for (int64_t i = 0; i < width; ++i) {
        const Exact want =
            u[static_cast<size_t>(i)] * rstd * call.weight.value(0, i);
        const Exact got = results.out.value(0, i);
        ASSERT_LE(std::fabs(got - want), 4 * 0x1p-52L * std::fabs(want))
            << kind.name << " width " << width << " element " << i;
      }
    }
  }
}

TEST(Textbook, ThreeFour) {
  ForEachImplementation([](const Implementation& implementation) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      Buffer x(dtype, {4}), weight(dtype, {4}), out(dtype, {4});
      x.FillWith({3, 4, 0, 0});
      weight.FillWith({1, 0.5, 2, 2});
      Options options;
      options.eps = 0;
      EXPECT_STATUS_OK(implementation.rms_norm(x, weight, out, options));
      // Three roundings of half an ulp each: rstd, v, y.
      const double bound = 1.5 * (dtype == DType::kF32 ? 0x1p-23 : 0x1p-52);
      EXPECT_NEAR(1.2, out.value(0, 0), 1.2 * bound);
      EXPECT_NEAR(0.8, out.value(0, 1), 0.8 * bound);
      EXPECT_EQ(0u, out.bits(0, 2));
      EXPECT_EQ(0u, out.bits(0, 3));
    }
  });
}

// eps makes a norm depend on the scale of its input, by about 1e-8 here.
TEST(Textbook, ScaleOfTheInputInF64) {
  ForEachImplementation([](const Implementation& implementation) {
    Buffer x(DType::kF64, {2}), twice(DType::kF64, {2});
    Buffer out(DType::kF64, {2}), out_twice(DType::kF64, {2});
    x.FillWith({3, 4});
    twice.FillWith({6, 8});
    Options options;
    options.eps = 1e-6f;
    EXPECT_STATUS_OK(implementation.rms_norm(x, Buffer(), out, options));
    EXPECT_STATUS_OK(
        implementation.rms_norm(twice, Buffer(), out_twice, options));
    EXPECT_NEAR(0.848528, out.value(0, 0), 5e-7);
    EXPECT_NEAR(1.131371, out.value(0, 1), 5e-7);
    // Differences of numbers near 1: some ulps, and that eps is an f32.
    const double bound = 4 * 0x1p-52 + 1e-16;
    EXPECT_NEAR(2.54558422e-08, out_twice.value(0, 0) - out.value(0, 0), bound);
    EXPECT_NEAR(3.39411230e-08, out_twice.value(0, 1) - out.value(0, 1), bound);
  });
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

// The promised arithmetic once more, written for this test alone and as plainly
// as possible; it shares no code with the library. The reference has its bits,
// so a fault in the library's shared headers cannot hide from the tests that
// compare targets with the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "call.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

using Row = std::vector<float>;

// The sum of squares in its fixed order, in Number's arithmetic: 64 lanes,
// blocks of 1024, chunks of 16384.
template <typename Number>
double SumOfSquares(const std::vector<Number>& u) {
  const size_t n = u.size();
  double sum = 0;
  for (size_t chunk = 0; chunk < n; chunk += 16384) {
    Number top[64] = {};
    for (size_t block = chunk; block < chunk + 16384; block += 1024) {
      Number acc[64] = {};
      for (size_t i = block; i < block + 1024; ++i) {
        const Number value = i < n ? u[i] : 0;
        acc[i % 64] = std::fma(value, value, acc[i % 64]);
      }
      for (size_t j = 0; j < 64; ++j) top[j] = top[j] + acc[j];
    }
    for (size_t distance = 32; distance >= 1; distance /= 2) {
      for (size_t j = 0; j < distance; ++j) top[j] = top[j] + top[j + distance];
    }
    sum = sum + top[0];
  }
  return sum;
}

// Rows whose squares leave f32 take the second way.
struct Rstd {
  bool exceptional;
  float narrow;
  double wide;

  float Times(float u) const {
    return exceptional ? static_cast<float>(u * wide) : u * narrow;
  }
};

Rstd RstdOf(const Row& u, float eps) {
  const float n = static_cast<float>(u.size());
  const float sum = static_cast<float>(SumOfSquares(u));
  float mean = sum / n;
  mean = mean + eps;
  if (std::isfinite(mean) && (sum >= n * 0x1p-100f || eps >= 0x1p-60f)) {
    return {false, 1.0f / std::sqrt(mean), 0};
  }
  double wide_sum = 0;
  for (double value : u) wide_sum = wide_sum + value * value;
  const double root =
      std::sqrt(wide_sum / static_cast<double>(u.size()) + double{eps});
  const double wide = wide_sum == 0 && eps == 0 ? 0 : 1 / root;
  return {true, static_cast<float>(wide), wide};
}

float Round(DType dtype, float value) {
  return static_cast<float>(RoundTo(dtype, value));
}

Row RowOf(const Buffer& buffer, int64_t r) {
  Row row;
  for (int64_t i = 0; i < buffer.width(); ++i) {
    row.push_back(static_cast<float>(buffer.value(r, i)));
  }
  return row;
}

// out = norm, where the statistic is that of `u`, and `from` is normalised.
// Weights are one row here.
void Normalise(const Call& call, int64_t r, const Row& u, const Row& from,
               Results& results) {
  const Options& options = call.options;
  const Rstd rstd = RstdOf(u, options.eps);
  const DType middle = (call.is_add() ? call.residual : call.x).dtype();
  for (size_t j = 0; j < from.size(); ++j) {
    const int64_t column = static_cast<int64_t>(j);
    float v = rstd.Times(from[j]);
    if (options.rounding == Rounding::kBeforeWeight) v = Round(middle, v);
    float y = v;
    if (!call.weight.empty()) {
      const float w = static_cast<float>(call.weight.value(0, column));
      const float g =
          options.weight_offset == 0 ? w : options.weight_offset + w;
      y = v * g;
    }
    results.out.set_value(r, column, y);
  }
  results.rstd.push_back(rstd.narrow);
}

Results Oracle(const Call& call) {
  Results results{call.out, call.residual_out, {}};
  const Options& options = call.options;
  for (int64_t r = 0; r < call.x.rows(); ++r) {
    const Row x = RowOf(call.x, r);
    if (!call.is_add()) {
      Normalise(call, r, x, x, results);
      continue;
    }
    const Row residual = RowOf(call.residual, r);
    Row h, stored;
    for (size_t j = 0; j < x.size(); ++j) {
      h.push_back(options.residual_scale == 1
                      ? x[j] + residual[j]
                      : std::fma(options.residual_scale, residual[j], x[j]));
      stored.push_back(Round(call.residual.dtype(), h[j]));
      if (call.residual_out.empty()) continue;
      results.residual_out.set_value(r, static_cast<int64_t>(j), h[j]);
    }
    Normalise(call, r, options.sum == Sum::kRounded ? stored : h,
              options.sum == Sum::kExact ? h : stored, results);
  }
  return results;
}

constexpr float kEps[] = {1e-6f, 0.0f, 1e-5f, 1e-19f, 0x1p-60f, 1e-12f};

Buffer RandomInput(Random& random, DType dtype, int64_t rows, int64_t width) {
  Buffer buffer(dtype, {rows, width});
  buffer.FillMixed(random, static_cast<int>(random.Uniform(0, 7)));
  return buffer;
}

// One call with these dtypes and whatever else at random.
Call Draw(Random& random, DType x, DType residual, DType out, int64_t width) {
  constexpr int64_t kRows = 8;
  Call call;
  call.x = RandomInput(random, x, kRows, width);
  call.out = Buffer(out, {kRows, width});
  call.want_rstd = true;
  if (random.Chance(75)) {
    call.residual = RandomInput(random, residual, kRows, width);
    call.residual_out = Buffer(residual, {kRows, width});
  }
  if (random.Chance(80)) {
    call.weight = Buffer(kFloatDTypes[random.Uniform(0, 2)], {width});
    call.weight.Fill(random, random.Chance(75) ? Data::kNormal : Data::kBits);
  }
  Options& options = call.options;
  options.eps = kEps[random.Uniform(0, 5)];
  options.weight_offset = random.Chance(50) ? 0.0f : 1.0f;
  options.residual_scale = random.Chance(60) ? 1.0f : 0.7f;
  options.rounding = static_cast<Rounding>(random.Uniform(0, 1));
  options.sum = static_cast<Sum>(random.Uniform(0, 2));
  options.num_threads = 1;
  return call;
}

std::vector<int64_t> Widths() {
  if (Subset()) return {1, 3, 65, 1025};
  return {1,    2,    3,    4,     8,     9,     15,   17,   33,
          63,   64,   65,   100,   130,   576,   1023, 1024, 1025,
          2049, 4097, 7168, 16384, 16385, 16449, 40000};
}

TEST(Oracle, ReferenceHasTheSpecifiedBits) {
  const std::vector<Implementation> reference = {Reference()};
  Random random;
  for (int64_t width : Widths()) {
    const int repeats = Subset() || width > 130 ? 1 : 20;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (DType x : kFloatDTypes) {
        for (DType residual : kFloatDTypes) {
          for (DType out : kFloatDTypes) {
            const Call call = Draw(random, x, residual, out, width);
            ASSERT_TRUE(ExpectSame(Oracle(call), call, reference));
          }
        }
      }
    }
  }
}

Call Constant(DType dtype, int64_t width, double value) {
  Call call;
  call.x = Buffer(dtype, {1, width});
  call.x.FillWith(std::vector<double>(static_cast<size_t>(width), value));
  call.out = Buffer(dtype, {1, width});
  call.want_rstd = true;
  call.options.num_threads = 1;
  return call;
}

// Both sides of each limit that makes a row exceptional. What is tested is the
// sum in f32: 65536 * (1.3e17)^2 is finite in f64 alone.
TEST(Oracle, LimitsOfOrdinaryRows) {
  const std::vector<Implementation> all = Implementations();
  const float below = std::nextafter(0x1p-60f, 0.0f);
  for (float eps : {0.0f, 1e-30f, below, 0x1p-60f, 1e-6f}) {
    for (double value :
         {0x1p-50, 0x1p-50 * (1 - 0x1p-23), 0x1p-51, 0x1p-75, 0x1p-149, 0.0,
          1.3e17, 7.2e16, 1.8446743e19, 0x1p64, 3e38}) {
      for (int64_t width : {1, 64, 100, 65536}) {
        Call call = Constant(DType::kF32, width, value);
        call.options.eps = eps;
        ASSERT_TRUE(ExpectSame(Oracle(call), call, all));
      }
    }
  }
}

TEST(Oracle, FinitenessIsThatOfTheSumInF32) {
  const Call call = Constant(DType::kF32, 65536, 1.3e17);
  for (const Implementation& implementation : Implementations()) {
    EXPECT_EQ(1.0, RunCall(implementation, call).out.value(0, 65535));
  }
}

// The middle rounding is to the dtype of the normalised vector, and the sum is
// that of the option: each pair of choices differs in bits on ordinary data.
TEST(Oracle, TheChoicesDiffer) {
  Random random;
  const DType f32 = DType::kF32, bf16 = DType::kBF16, f16 = DType::kF16;
  Call call;
  call.x = Buffer(bf16, {4, 300});
  call.x.Fill(random, Data::kNormal);
  call.residual = Buffer(f16, {4, 300});
  call.residual.Fill(random, Data::kNormal);
  call.weight = Buffer(f32, {300});
  call.weight.Fill(random, Data::kNormal);
  call.out = Buffer(f32, {4, 300});
  call.residual_out = Buffer(f16, {4, 300});
  call.want_rstd = true;
  std::vector<Results> results;
  for (Rounding rounding : {Rounding::kOnce, Rounding::kBeforeWeight}) {
    for (Sum sum : {Sum::kRounded, Sum::kExact, Sum::kExactStatistic}) {
      call.options.rounding = rounding;
      call.options.sum = sum;
      results.push_back(RunCall(Reference(), call));
      EXPECT_TRUE(Same(Oracle(call), results.back()));
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(Same(results[i], results[j])) << i << " " << j;
    }
  }
}

// f64: the same order, all in f64.
TEST(Oracle, F64) {
  Random random;
  for (int64_t width : {1, 3, 64, 65, 1025, 2049, 16385}) {
    for (float offset : {0.0f, 1.0f}) {
      Buffer x(DType::kF64, {3, width}), residual(DType::kF64, {3, width});
      Buffer weight(DType::kF64, {width}), out = x, residual_out = x;
      x.Fill(random, Data::kNormal);
      residual.Fill(random, Data::kNormal);
      weight.Fill(random, Data::kNormal);
      Options options;
      options.weight_offset = offset;
      EXPECT_STATUS_OK(reference::AddRmsNorm(x, residual, weight, out,
                                             residual_out, options));
      Buffer want = out, want_sum = residual_out;
      for (int64_t r = 0; r < 3; ++r) {
        std::vector<double> h;
        for (int64_t i = 0; i < width; ++i) {
          h.push_back(x.value(r, i) + residual.value(r, i));
          want_sum.set_value(r, i, h.back());
        }
        const double mean = SumOfSquares(h) / static_cast<double>(width);
        const double rstd = 1 / std::sqrt(mean + double{options.eps});
        for (int64_t i = 0; i < width; ++i) {
          const double w = weight.value(0, i);
          const double v = h[static_cast<size_t>(i)] * rstd;
          want.set_value(r, i, v * (offset == 0 ? w : offset + w));
        }
      }
      EXPECT_TRUE(SameBits(want, out)) << width;
      EXPECT_TRUE(SameBits(want_sum, residual_out)) << width;
    }
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

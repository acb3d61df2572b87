// A row in shards, as tensor parallelism has it: sums of squares of the shards
// add up in f64, and what is made of the total is the whole row's.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "random_layout.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

constexpr int64_t kChunk = 16384;
constexpr int64_t kRows = 3;

// Columns [begin, end) of a packed tensor, in place.
ConstTensor Slice(const Buffer& x, int64_t begin, int64_t end) {
  ConstTensor view = x;
  view.data = static_cast<const uint8_t*>(x.row(0)) + begin * SizeOf(x.dtype());
  view.shape[1] = end - begin;
  return view;
}

Tensor Slice(Buffer& x, int64_t begin, int64_t end) {
  Tensor view = x;
  view.data = static_cast<uint8_t*>(x.row(0)) + begin * SizeOf(x.dtype());
  view.shape[1] = end - begin;
  return view;
}

// The statistic by one implementation.
struct Statistic {
  bool reference;

  explicit Statistic(const Implementation& implementation)
      : reference(implementation.target.empty()) {}

  std::vector<double> Sums(const ConstTensor& x) const {
    std::vector<double> sums(kRows, -1);
    EXPECT_STATUS_OK((reference ? reference::RowSumSquares : RowSumSquares)(
        x, sums.data(), {}));
    return sums;
  }
  std::vector<float> Rstd(const ConstTensor& x, const Options& options) const {
    std::vector<float> rstd(kRows, -1);
    EXPECT_STATUS_OK(
        (reference ? reference::RowRstd : RowRstd)(x, rstd.data(), options));
    return rstd;
  }
};

// The sums of shards that begin at `cuts`, from left to right.
std::vector<double> TotalOfShards(const Statistic& statistic, const Buffer& x,
                                  Numbers cuts) {
  std::vector<double> total(kRows, 0);
  cuts.push_back(x.width());
  int64_t begin = 0;
  for (int64_t end : cuts) {
    if (end == begin) continue;
    const std::vector<double> sums = statistic.Sums(Slice(x, begin, end));
    for (size_t r = 0; r < total.size(); ++r) total[r] = total[r] + sums[r];
    begin = end;
  }
  return total;
}

double ExactSum(const Buffer& x, int64_t r) {
  long double sum = 0;
  for (int64_t i = 0; i < x.width(); ++i) {
    sum += static_cast<long double>(x.value(r, i)) * x.value(r, i);
  }
  return static_cast<double>(sum);
}

std::vector<float> RstdOfTotals(const std::vector<double>& totals,
                                int64_t width, float eps) {
  std::vector<float> rstd;
  for (double total : totals) {
    rstd.push_back(RstdFromSumSquares(total, width, eps));
  }
  return rstd;
}

// Cuts on multiples of 16384, be they few or many: the bits of the whole row.
// The sums of chunks are f32 values of one magnitude, so f64 adds them exactly.
TEST(Shards, CutsOnChunksHaveTheBitsOfTheWholeRow) {
  Random random;
  const int64_t width = 5 * kChunk + 1234;
  const std::vector<Numbers> all_cuts = {
      {},
      {kChunk},
      {3 * kChunk},
      {5 * kChunk},
      {2 * kChunk, 4 * kChunk},
      {kChunk, 2 * kChunk, 3 * kChunk, 4 * kChunk, 5 * kChunk}};
  for (DType dtype : kFloatDTypes) {
    Buffer x(dtype, {kRows, width});
    x.Fill(random, Data::kNormal);
    ForEachImplementation([&](const Implementation& implementation) {
      const Statistic statistic(implementation);
      const std::vector<double> whole = statistic.Sums(x);
      for (const Numbers& cuts : all_cuts) {
        const std::vector<double> total = TotalOfShards(statistic, x, cuts);
        for (size_t r = 0; r < kRows; ++r) {
          EXPECT_EQ(whole[r], total[r]) << Name(cuts);
        }
      }
    });
  }
}

// Elsewhere the total is as accurate, and rstd is within a unit.
TEST(Shards, AnyCutsAreAsAccurate) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : {7, 64, 4096, 14336, 40000}) {
      if (Subset() && width > 4096) break;
      Buffer x(dtype, {kRows, width});
      x.Fill(random, Data::kNormal);
      ForEachImplementation([&](const Implementation& implementation) {
        const Statistic statistic(implementation);
        const std::vector<float> whole = statistic.Rstd(x, {});
        for (int repeat = 0; repeat < 5; ++repeat) {
          Numbers cuts = {random.Uniform(1, width - 1),
                          random.Uniform(1, width - 1)};
          if (cuts[0] > cuts[1]) std::swap(cuts[0], cuts[1]);
          const std::vector<double> total = TotalOfShards(statistic, x, cuts);
          const std::vector<float> rstd = RstdOfTotals(total, width, 1e-6f);
          for (int64_t r = 0; r < kRows; ++r) {
            const size_t row = static_cast<size_t>(r);
            const double exact = ExactSum(x, r);
            EXPECT_NEAR(total[row], exact, exact * 4 * 0x1p-24) << Name(cuts);
            EXPECT_NEAR(rstd[row], whole[row], whole[row] * 2 * 0x1p-23);
          }
        }
      });
    }
  }
}

// From the sum of a whole row: the bits of RowRstd, for every kind of row.
TEST(Shards, RstdOfTheSumIsRowRstd) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : {1, 3, 64, 100, 1025, 20000}) {
      if (Subset() && width > 1025) break;
      for (Data data : kAllData) {
        Buffer x(dtype, {kRows, width});
        x.Fill(random, data);
        for (float eps : {0.0f, 1e-6f, 1e-19f, 1e-30f, 1.0f}) {
          Options options;
          options.eps = eps;
          ForEachImplementation([&](const Implementation& implementation) {
            const Statistic statistic(implementation);
            EXPECT_TRUE(SameBits(statistic.Rstd(x, options),
                                 RstdOfTotals(statistic.Sums(x), width, eps)))
                << Name(dtype) << " " << width << " eps " << eps << " data "
                << static_cast<int>(data);
          });
          ASSERT_FALSE(HasFailure());
        }
      }
    }
  }
}

// A whole layer in two shards: sums are added, each shard is normalised with
// the common rstd and its part of the weight, and the output is the whole row's
// to the bit.
TEST(Shards, NormalisedShardsAreTheWholeRow) {
  Random random;
  const int64_t width = 2 * kChunk, half = kChunk;
  for (DType dtype : kFloatDTypes) {
    for (Rounding rounding : {Rounding::kOnce, Rounding::kBeforeWeight}) {
      Buffer x(dtype, {kRows, width}), weight(dtype, Numbers{width});
      x.Fill(random, Data::kNormal);
      weight.Fill(random, Data::kNormal);
      Options options;
      options.rounding = rounding;
      options.weight_offset = 1;
      ForEachImplementation([&](const Implementation& implementation) {
        const Statistic statistic(implementation);
        Buffer whole(dtype, {kRows, width}), shards(dtype, {kRows, width});
        EXPECT_STATUS_OK(implementation.rms_norm(x, weight, whole, options));
        const std::vector<float> rstd = RstdOfTotals(
            TotalOfShards(statistic, x, {half}), width, options.eps);
        for (int64_t begin : {int64_t{0}, half}) {
          ConstTensor part = weight;
          part.data = static_cast<const uint8_t*>(weight.row(0)) +
                      begin * SizeOf(dtype);
          part.shape[0] = half;
          EXPECT_STATUS_OK((statistic.reference ? reference::RmsNormWithRstd
                                                : RmsNormWithRstd)(
              Slice(x, begin, begin + half), rstd.data(), part,
              Slice(shards, begin, begin + half), options));
        }
        EXPECT_TRUE(SameBits(whole, shards));
      });
    }
  }
}

// Values known by hand, and sums that no row has.
TEST(Shards, RstdFromSumSquaresValues) {
  EXPECT_EQ(RstdFromSumSquares(4, 4, 0), 1.0f);
  EXPECT_EQ(RstdFromSumSquares(100, 4, 0), 0.2f);
  EXPECT_EQ(RstdFromSumSquares(0, 4, 0), 0.0f);
  EXPECT_FLOAT_EQ(RstdFromSumSquares(0, 4, 1e-6f), 1e3f);
  EXPECT_FLOAT_EQ(RstdFromSumSquares(3e-6, 3, 1e-5f), 301.51134f);
  // Beyond what f32 holds, on both sides.
  EXPECT_FLOAT_EQ(RstdFromSumSquares(1e60, 1, 0), 1e-30f);
  EXPECT_FLOAT_EQ(RstdFromSumSquares(4e-60, 4, 0), 1e30f);
  EXPECT_EQ(RstdFromSumSquares(INFINITY, 8, 1e-6f), 0.0f);
  EXPECT_TRUE(std::isnan(RstdFromSumSquares(NAN, 8, 1e-6f)));
  // A width that f32 cannot hold is rounded, as in the row's own statistic.
  EXPECT_EQ(RstdFromSumSquares(16777217, 16777217, 0), 1.0f);
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

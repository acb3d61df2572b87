// Every bf16 and f16 pattern through every load and store: exact loads, stores
// to nearest even, NaN kept (quiet), overflow to Inf, subnormals kept.
//
// A row of +1 and -1 with eps 0 has rstd 1 exactly, so out is +-weight: with
// f32 weights any f32 value can be put on the converter of out, in any lane. A
// residual of -0 leaves x as it is, which does the same for residual_out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "call.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

constexpr DType kHalfDTypes[] = {DType::kBF16, DType::kF16};
constexpr Sum kSums[] = {Sum::kRounded, Sum::kExact, Sum::kExactStatistic};
constexpr uint64_t kNans[] = {0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001,
                              0x7FC00000};

using Bits = std::vector<uint64_t>;

uint64_t F32Bits(double value) { return FromDouble(DType::kF32, value); }

Buffer RowOf(DType dtype, const Bits& bits) {
  Buffer buffer(dtype, {static_cast<int64_t>(bits.size())});
  for (size_t i = 0; i < bits.size(); ++i) {
    buffer.set_bits(0, static_cast<int64_t>(i), bits[i]);
  }
  return buffer;
}

Buffer Constant(DType dtype, const std::vector<int64_t>& shape, double value) {
  Buffer buffer(dtype, shape);
  buffer.FillWith(
      std::vector<double>(static_cast<size_t>(shape.back()), value));
  return buffer;
}

double Sign(int64_t column) { return column % 3 == 1 ? -1.0 : 1.0; }

Buffer Signs(DType dtype, int64_t width) {
  Buffer buffer(dtype, {width});
  for (int64_t i = 0; i < width; ++i) buffer.set_value(0, i, Sign(i));
  return buffer;
}

bool IsQuiet(DType dtype, uint64_t bits) {
  const int quiet_bit = dtype == DType::kF32   ? 22
                        : dtype == DType::kF16 ? 9
                                               : 6;
  return ((bits >> quiet_bit) & 1) != 0;
}

// A row of `actual` holds value(i) rounded to its dtype, and quiet NaNs.
template <class Value>
void ExpectConverted(const Buffer& actual, Value value) {
  Buffer expected(actual.dtype(), {1, actual.width()});
  for (int64_t i = 0; i < actual.width(); ++i) {
    expected.set_value(0, i, value(i));
    const uint64_t bits = actual.bits(0, i);
    ASSERT_TRUE(!IsNan(actual.dtype(), bits) || IsQuiet(actual.dtype(), bits))
        << Name(actual.dtype()) << " element " << i << ": a signalling NaN";
  }
  ASSERT_TRUE(
      SameRow(actual.dtype(), expected.row(0), actual.row(0), actual.width()));
}

// All 65,536, and some again, so that the row ends within a vector.
Bits AllPatterns(uint64_t first) {
  Bits patterns;
  for (uint64_t i = 0; i < 65536 + 13; ++i) {
    patterns.push_back((first + i) & 0xFFFF);
  }
  return patterns;
}

// f32 bits of each value of `dtype`, of the midpoint above it (a tie), and of
// the f32 neighbours of that midpoint. The one above the largest finite value
// is the limit of overflow.
Bits ValuesAndTies(DType dtype) {
  Bits all;
  for (uint64_t sign : {0u, 0x8000u}) {
    for (uint64_t pattern = 0;; ++pattern) {
      const double value = ToDouble(dtype, pattern);
      if (std::isinf(value)) break;
      const double next = ToDouble(dtype, pattern + 1);
      const double gap = std::isinf(next) ? value - ToDouble(dtype, pattern - 1)
                                          : next - value;
      const uint64_t tie = F32Bits(value + gap / 2);
      for (uint64_t bits : {F32Bits(value), tie, tie - 1, tie + 1}) {
        all.push_back(bits | sign << 16);
      }
    }
  }
  return all;
}

// What a converter may meet, few enough to be put in every lane.
Bits Specials(DType dtype) {
  Bits all(std::begin(kNans), std::end(kNans));
  const double infinity = std::numeric_limits<double>::infinity();
  const double half = ToDouble(dtype, 1) / 2;  // Of the least subnormal.
  const double unit = 1 - ToDouble(dtype, FromDouble(dtype, 1.0) - 1);
  const double above = ToDouble(dtype, FromDouble(dtype, infinity) - 1);
  for (double value :
       {infinity, -infinity, 0.0, -0.0, half, -half, 3 * half, 1 + unit,
        1 + 3 * unit, -1 - unit, above, -above, above * (1 + unit / 2),
        above * (1 + unit / 4), 0x1p-149, 3.4028235e38}) {
    all.push_back(F32Bits(value));
  }
  return all;
}

// Loads ------------------------------------------------------------------

TEST(Conversion, LoadWeight) {
  ForEachImplementation([](const Implementation& implementation) {
    for (DType dtype : kHalfDTypes) {
      for (uint64_t first : {0u, 12345u}) {
        const Buffer weight = RowOf(dtype, AllPatterns(first));
        for (DType x_dtype : kFloatDTypes) {
          const Buffer x = Signs(x_dtype, weight.width());
          Buffer out(DType::kF32, {weight.width()});
          Options options;
          options.eps = 0;
          ASSERT_STATUS_OK(implementation.rms_norm(x, weight, out, options));
          ExpectConverted(
              out, [&](int64_t i) { return Sign(i) * weight.value(0, i); });
        }
      }
    }
  });
}

TEST(Conversion, LoadXOfTheSum) {
  ForEachImplementation([](const Implementation& implementation) {
    for (DType dtype : kHalfDTypes) {
      for (Sum sum : kSums) {
        const Buffer x = RowOf(dtype, AllPatterns(0));
        const Buffer residual = Constant(DType::kF32, {x.width()}, -0.0);
        Buffer out(dtype, {x.width()});
        Buffer residual_out(DType::kF32, {x.width()});
        Options options;
        options.sum = sum;
        ASSERT_STATUS_OK(implementation.add_rms_norm(x, residual, Buffer(), out,
                                                     residual_out, options));
        ExpectConverted(residual_out, [&](int64_t i) { return x.value(0, i); });
      }
    }
  });
}

// Through load and store of the stream and back.
TEST(Conversion, LoadResidual) {
  ForEachImplementation([](const Implementation& implementation) {
    for (DType dtype : kHalfDTypes) {
      for (DType x_dtype : kFloatDTypes) {
        for (Sum sum : kSums) {
          const Buffer residual = RowOf(dtype, AllPatterns(0));
          const Buffer x = Constant(x_dtype, {residual.width()}, -0.0);
          Buffer out(dtype, {x.width()}), residual_out(dtype, {x.width()});
          Options options;
          options.sum = sum;
          ASSERT_STATUS_OK(implementation.add_rms_norm(
              x, residual, Buffer(), out, residual_out, options));
          ExpectConverted(residual_out,
                          [&](int64_t i) { return residual.value(0, i); });
        }
      }
    }
  });
}

// All patterns as rows of `width`.
Buffer PatternRows(DType dtype, int64_t width) {
  Buffer buffer(dtype, {(65536 + width - 1) / width, width});
  for (int64_t i = 0; i < 65536; ++i) {
    buffer.set_bits(i / width, i % width, static_cast<uint64_t>(i));
  }
  return buffer;
}

Buffer InF32(const Buffer& from) {
  Buffer to(DType::kF32, {from.rows(), from.width()});
  for (int64_t r = 0; r < from.rows(); ++r) {
    for (int64_t i = 0; i < from.width(); ++i) {
      to.set_value(r, i, from.value(r, i));
    }
  }
  return to;
}

// The same values in 16 bits and in f32 have the same norm in f32.
TEST(Conversion, HalvesNormaliseAsTheirF32Values) {
  ForEachImplementation([](const Implementation& implementation) {
    for (DType dtype : kHalfDTypes) {
      for (int64_t width : {1, 8, 97}) {
        const Buffer half = PatternRows(dtype, width);
        const Buffer single = InF32(half);
        const Buffer zeros = Constant(DType::kF32, {half.rows(), width}, -0.0);
        Buffer want(DType::kF32, {half.rows(), width});
        Buffer out = want, sum_out = want;
        Options options;
        options.sum = Sum::kExact;
        ASSERT_STATUS_OK(reference::RmsNorm(single, Buffer(), want, options));
        ASSERT_STATUS_OK(implementation.rms_norm(half, Buffer(), out, options));
        ASSERT_TRUE(SameBits(want, out)) << Name(dtype) << " " << width;
        ASSERT_STATUS_OK(implementation.add_rms_norm(
            zeros, half, Buffer(), sum_out, Buffer().tensor(), options));
        ASSERT_TRUE(SameBits(want, sum_out)) << Name(dtype) << " " << width;
      }
    }
  });
}

// Stores -----------------------------------------------------------------

void StoreOut(const Implementation& implementation, DType x_dtype,
              DType out_dtype, const Buffer& weight) {
  const Buffer x = Signs(x_dtype, weight.width());
  Buffer out(out_dtype, {weight.width()});
  Options options;
  options.eps = 0;
  ASSERT_STATUS_OK(implementation.rms_norm(x, weight, out, options));
  ExpectConverted(out, [&](int64_t i) { return Sign(i) * weight.value(0, i); });
  // The same again through the fused addition.
  const Buffer residual = Constant(out_dtype, {weight.width()}, -0.0);
  Buffer sum_out(out_dtype, {weight.width()});
  ASSERT_STATUS_OK(implementation.add_rms_norm(x, residual, weight, sum_out,
                                               Buffer().tensor(), options));
  ASSERT_TRUE(SameBits(out, sum_out));
}

void StoreResidualOut(const Implementation& implementation, DType stream,
                      DType out_dtype, const Buffer& x) {
  const Buffer residual = Constant(stream, {x.width()}, -0.0);
  for (Sum sum : kSums) {
    Buffer out(out_dtype, {x.width()}), residual_out(stream, {x.width()});
    Options options;
    options.sum = sum;
    ASSERT_STATUS_OK(implementation.add_rms_norm(x, residual, Buffer(), out,
                                                 residual_out, options));
    ExpectConverted(residual_out, [&](int64_t i) { return x.value(0, i); });
  }
}

// In pieces of an odd width, at most 65536 wide: rstd is 1 exactly.
std::vector<Buffer> Pieces(const Bits& bits) {
  std::vector<Buffer> pieces;
  for (size_t begin = 0; begin < bits.size(); begin += 65521) {
    const size_t end = std::min(begin + 65521, bits.size());
    pieces.push_back(
        RowOf(DType::kF32, Bits(&bits[begin], &bits[end - 1] + 1)));
  }
  return pieces;
}

TEST(Conversion, StoreValuesAndTies) {
  const std::vector<DType> x_dtypes =
      Subset() ? std::vector<DType>{DType::kF32}
               : std::vector<DType>{DType::kF32, DType::kBF16, DType::kF16};
  ForEachImplementation([&](const Implementation& implementation) {
    for (DType dtype : kHalfDTypes) {
      for (const Buffer& values : Pieces(ValuesAndTies(dtype))) {
        for (DType x_dtype : x_dtypes) {
          StoreOut(implementation, x_dtype, dtype, values);
          StoreResidualOut(implementation, dtype, x_dtype, values);
        }
      }
    }
  });
}

TEST(Conversion, StoreAnyF32) {
  Random random;
  Bits bits;
  for (int i = 0; i < 65521 * 2; ++i) bits.push_back(random.Next() >> 32);
  ForEachImplementation([&](const Implementation& implementation) {
    for (const Buffer& values : Pieces(bits)) {
      for (DType dtype : kFloatDTypes) {
        StoreOut(implementation, DType::kF32, dtype, values);
        StoreResidualOut(implementation, dtype, DType::kF32, values);
      }
    }
  });
}

// Each special value at each place of rows of up to two vectors and a tail.
TEST(Conversion, SpecialsInEveryLane) {
  const int64_t widest = Subset() ? 20 : 70;
  ForEachImplementation([&](const Implementation& implementation) {
    for (DType dtype : kFloatDTypes) {
      const Bits specials = Specials(dtype);
      for (int64_t width = 1; width <= widest; ++width) {
        for (size_t first = 0; first < specials.size(); ++first) {
          Bits bits;
          for (int64_t i = 0; i < width; ++i) {
            bits.push_back(
                specials[(first + static_cast<size_t>(i)) % specials.size()]);
          }
          const Buffer values = RowOf(DType::kF32, bits);
          StoreOut(implementation, DType::kF32, dtype, values);
          StoreOut(implementation, dtype, dtype, values);
          StoreResidualOut(implementation, dtype, dtype, values);
          ASSERT_FALSE(testing::Test::HasFailure())
              << Name(dtype) << " width " << width << " first " << first;
        }
      }
    }
  });
}

// NaN -------------------------------------------------------------------

// The NaN of x or residual, at `place`, makes all of out NaN, and residual_out
// there alone.
void ExpectNanRow(const Implementation& implementation, const Buffer& x,
                  const Buffer& residual, DType dtype, int64_t place) {
  const int64_t width = x.width();
  for (Sum sum : kSums) {
    Buffer out(dtype, {width}), residual_out(residual.dtype(), {width});
    Options options;
    options.sum = sum;
    ASSERT_STATUS_OK(implementation.add_rms_norm(x, residual, Buffer(), out,
                                                 residual_out, options));
    for (int64_t i = 0; i < width; ++i) {
      ASSERT_TRUE(IsNan(dtype, out.bits(0, i))) << i << " of " << width;
      ASSERT_TRUE(IsQuiet(dtype, out.bits(0, i))) << i << " of " << width;
      ASSERT_EQ(i == place, IsNan(residual.dtype(), residual_out.bits(0, i)))
          << i << " of " << width;
    }
    Buffer plain(dtype, {width});
    const Buffer& with_nan = std::isnan(x.value(0, place)) ? x : residual;
    ASSERT_STATUS_OK(
        implementation.rms_norm(with_nan, Buffer(), plain, options));
    for (int64_t i = 0; i < width; ++i) {
      ASSERT_TRUE(IsNan(dtype, plain.bits(0, i))) << i << " of " << width;
    }
  }
}

TEST(Conversion, NanOfF32InVectorAndTail) {
  ForEachImplementation([](const Implementation& implementation) {
    for (int64_t width : {1, 7, 16, 37, 64, 67}) {
      for (int64_t place : {int64_t{0}, width / 2, width - 1}) {
        for (uint64_t nan : kNans) {
          for (DType dtype : kFloatDTypes) {
            for (DType other : kFloatDTypes) {
              Buffer with_nan = Constant(DType::kF32, {width}, 1.5);
              with_nan.set_bits(0, place, nan);
              const Buffer ones = Constant(other, {width}, 1);
              ExpectNanRow(implementation, with_nan, ones, dtype, place);
              ExpectNanRow(implementation, ones, with_nan, dtype, place);
              ASSERT_FALSE(testing::Test::HasFailure());
            }
          }
        }
      }
    }
  });
}

// The tests' own conversions ---------------------------------------------

TEST(Conversion, TheTestsRoundToNearestEven) {
  for (DType dtype : kHalfDTypes) {
    for (uint64_t bits = 0; bits < 65536; ++bits) {
      const double value = ToDouble(dtype, bits);
      if (std::isnan(value)) {
        ASSERT_TRUE(IsNan(dtype, bits) &&
                    IsNan(dtype, FromDouble(dtype, value)));
        continue;
      }
      ASSERT_EQ(bits, FromDouble(dtype, value));
      if (std::isinf(value)) continue;
      const double next = ToDouble(dtype, bits + 1);
      if (std::isinf(next)) continue;
      const double middle = value + (next - value) / 2;
      ASSERT_EQ(bits + (bits & 1), FromDouble(dtype, middle));
      ASSERT_EQ(bits, FromDouble(dtype, std::nextafter(middle, value)));
      ASSERT_EQ(bits + 1, FromDouble(dtype, std::nextafter(middle, next)));
    }
  }
  EXPECT_EQ(0x3F80u, FromDouble(DType::kBF16, 1.0));
  EXPECT_EQ(0x7BFFu, FromDouble(DType::kF16, 65519.99));
  EXPECT_EQ(0x7C00u, FromDouble(DType::kF16, 65520.0));
  EXPECT_EQ(0xC000u, FromDouble(DType::kF16, -2.0));
  // f32 has the processor's own conversion beside it.
  Random random;
  for (int i = 0; i < 100000; ++i) {
    const double value = std::ldexp(
        random.Normal(), static_cast<int>(random.Uniform(-160, 130)));
    const float rounded = static_cast<float>(value);
    ASSERT_EQ(GetBits(DType::kF32, &rounded, 0),
              FromDouble(DType::kF32, value));
    ASSERT_EQ(static_cast<double>(rounded), RoundTo(DType::kF32, value));
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

// Rows of given values through every way to normalise them, and the question
// whether a result is the true value.
#ifndef FUSEDNORM_TESTS_KNOWN_ROWS_H_
#define FUSEDNORM_TESTS_KNOWN_ROWS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "operands.h"
#include "test_support.h"

namespace fusednorm {
namespace test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kUnit = 0x1p-23;
constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF16 = DType::kF16;

// Within 4 units of 2^-23 of the true value, then rounded to the dtype.
inline testing::AssertionResult Near(DType dtype, double value, double got) {
  const double slack = 4 * kUnit * std::fabs(value);
  const double low = RoundTo(dtype, value - slack);
  const double high = RoundTo(dtype, value + slack);
  if (got >= low && got <= high) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "expected " << value << ", got " << got << " in " << Name(dtype);
}

using Values = std::vector<double>;

inline Values Repeat(const Values& pattern, int64_t count) {
  Values all;
  for (int64_t i = 0; i < count; ++i) {
    all.insert(all.end(), pattern.begin(), pattern.end());
  }
  return all;
}

// One row as RmsNorm's x, and as AddRmsNorm's x or residual with zeros for the
// other: in each case the row itself is what is normalised.
struct Way {
  Op op;
  bool in_residual;
};
constexpr Way kWays[] = {
    {Op::kRmsNorm, false}, {Op::kAddRmsNorm, false}, {Op::kAddRmsNorm, true}};

// All of those, for each implementation: runs it on rows that hold `values`
// rounded to `dtype`, and hands over the output.
inline void ForEachWay(
    DType dtype, DType out_dtype, const Values& values, const Buffer& weight,
    const Options& options,
    const std::function<void(const Buffer& out, const std::string&)>& check) {
  const auto width = static_cast<int64_t>(values.size());
  ForEachImplementation([&](const Implementation& implementation) {
    for (const Way& way : kWays) {
      const std::string name =
          Name(way.op) + (way.in_residual ? " residual" : " x") + " " +
          Name(dtype) + " -> " + Name(out_dtype) + ", width " +
          std::to_string(width) + ", " + Name(options);
      Operands operands(way.op, {dtype, dtype, kF32, out_dtype},
                        Packed({1, width}));
      operands.x.FillWith(Values(values.size(), 0.0));
      operands.residual.FillWith(Values(values.size(), 0.0));
      (way.in_residual ? operands.residual : operands.x).FillWith(values);
      Views views = operands.Make();
      views.options = options;
      // The weight is only read.
      views.weight = const_cast<Buffer&>(weight).tensor();
      EXPECT_STATUS_OK(views.Run(implementation));
      check(operands.out, name);
    }
  });
}

// The usual question: is the row `values` normalised to `expected`, for each
// dtype of the output?
inline void ExpectNorm(DType dtype, const Values& values,
                       const Values& expected, float eps) {
  Options options;
  options.eps = eps;
  for (const DType out_dtype : kFloatDTypes) {
    ForEachWay(dtype, out_dtype, values, {}, options,
               [&](const Buffer& out, const std::string& name) {
                 for (size_t i = 0; i < values.size(); ++i) {
                   ASSERT_TRUE(Near(out_dtype, expected[i],
                                    out.value(0, static_cast<int64_t>(i))))
                       << name << ", element " << i;
                 }
               });
  }
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_KNOWN_ROWS_H_

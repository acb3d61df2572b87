// Holds results to golden values, and prints how far they were apart.
#ifndef FUSEDNORM_TESTS_GOLDEN_COMPARE_H_
#define FUSEDNORM_TESTS_GOLDEN_COMPARE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "fusednorm/c.h"
#include "golden_reader.h"

namespace fusednorm {
namespace test {

// How far an element may lie from the expected one: `relative` times its
// scale, which is the size of what was added up for it; in 16 bits in any case
// one ulp. A share of equal bits is asked for besides a distance: a wrong order
// of roundings stays within one ulp and shows only there (vLLM's sum taken for
// another one of ours still agrees in 93 % of the elements).
struct Bound {
  double relative;
  std::vector<double> scale;  // one per element
  double equal16;             // share of equal 16-bit elements
};

// Collects comparisons under a label and the dtype.
class GoldenTotals {
 public:
  void Compare(const std::string& label, const GoldenTensor& got,
               const GoldenTensor& expected, const Bound& bound) {
    SCOPED_TRACE(label);
    const auto dtype = static_cast<DType>(expected.dtype);
    const std::vector<double> ours = Values(got), theirs = Values(expected);
    ASSERT_EQ(ours.size(), theirs.size());
    ASSERT_EQ(bound.scale.size(), theirs.size());
    Statistics* total = &totals_[label + " " + Name(dtype)];
    total->bits16 = dtype != DType::kF32;
    total->equal16 = bound.equal16;
    for (size_t i = 0; i < theirs.size(); ++i) {
      const double error = std::fabs(ours[i] - theirs[i]);
      const int64_t ulps = Ulps(dtype, got, expected, i);
      const bool near = error <= bound.relative * bound.scale[i] ||
                        (total->bits16 && ulps <= 1);
      EXPECT_TRUE(near) << "element " << i << ": " << ours[i] << " instead of "
                        << theirs[i] << ", scale " << bound.scale[i];
      ++total->elements;
      total->equal += ours[i] == theirs[i];
      total->worst_ulps = std::max(total->worst_ulps, ulps);
      if (error > 0) {
        total->worst = std::max(total->worst, error / bound.scale[i]);
      }
    }
  }

  void Report(const std::string& source, const std::string& implementation) {
    for (const auto& [label, total] : totals_) {
      const double equal = static_cast<double>(total.equal) /
                           static_cast<double>(total.elements);
      std::printf("%-14s %-9s %-16s %7lld elements, %8.4f %% equal, worst %.2g",
                  source.c_str(), implementation.c_str(), label.c_str(),
                  static_cast<long long>(total.elements), 100 * equal,
                  total.worst);
      if (total.bits16) {
        std::printf(", %lld ulp", static_cast<long long>(total.worst_ulps));
        EXPECT_GE(equal, total.equal16) << label;
      }
      std::printf("\n");
    }
  }

 private:
  struct Statistics {
    int64_t elements = 0;
    int64_t equal = 0;
    double worst = 0;  // relative to the scale
    int64_t worst_ulps = 0;
    bool bits16 = false;
    double equal16 = 0;
  };

  // Numbers 16-bit patterns in the order of their values, so that the
  // difference of two is their distance in ulp.
  static int64_t Ulps(DType dtype, const GoldenTensor& a, const GoldenTensor& b,
                      size_t index) {
    const auto rank = [=](const GoldenTensor& tensor) {
      const auto bits = static_cast<int64_t>(
          GetBits(dtype, tensor.bytes.data(), static_cast<int64_t>(index)));
      return bits & 0x8000 ? -(bits & 0x7FFF) : bits;
    };
    return dtype == DType::kF32 ? 0 : std::abs(rank(a) - rank(b));
  }

  std::map<std::string, Statistics> totals_;
};

// A golden file, as a test's parameter.
struct GoldenSource {
  const char* name;  // of the file, without .bin
  size_t records;
};

inline void PrintTo(const GoldenSource& source, std::ostream* stream) {
  *stream << source.name;
}

// Compares a record of the running implementation.
using CompareRecord = std::function<void(const GoldenRecord& record,
                                         bool reference, GoldenTotals* totals)>;

// Walks over the source's records with the reference and every target.
inline void CompareSource(const GoldenSource& source,
                          const CompareRecord& compare) {
  const std::vector<GoldenRecord> records = ReadGolden(source.name);
  ASSERT_EQ(records.size(), source.records);
  std::istringstream names("reference " + std::string(fusednorm_targets()));
  for (std::string name; names >> name;) {
    SCOPED_TRACE(name);
    const bool reference = name == "reference";
    ASSERT_EQ(fusednorm_set_target(reference ? nullptr : name.c_str()),
              FUSEDNORM_OK)
        << fusednorm_last_error();
    GoldenTotals totals;
    for (const GoldenRecord& record : records) {
      SCOPED_TRACE(record.name);
      compare(record, reference, &totals);
      if (testing::Test::HasFailure()) return;  // One record tells enough.
    }
    totals.Report(source.name, name);
  }
  fusednorm_set_target(nullptr);
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_GOLDEN_COMPARE_H_

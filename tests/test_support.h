// What the tests share: implementations to walk over, tensors in every layout,
// seeded data, conversions of their own, and bitwise comparison.
//
// Environment: FUSEDNORM_TEST_SEED (a number) changes all random data;
// FUSEDNORM_TEST_SUBSET=1 asks for a short run, meant for emulators.
#ifndef FUSEDNORM_TESTS_TEST_SUPPORT_H_
#define FUSEDNORM_TESTS_TEST_SUPPORT_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fusednorm/fusednorm.h"
#include "fusednorm/reference.h"

namespace fusednorm {
namespace test {

// ---------------------------------------------------------------- settings

bool Subset();        // A short run was asked for.
uint64_t TestSeed();  // Of the running test: its name and the global seed.

// ------------------------------------------------------------------- names

std::string Name(DType dtype);
std::string Name(const Options& options);
std::string Name(const std::vector<int64_t>& numbers);

// --------------------------------------------------------- implementations

// One way to run the operations: the reference or a target.
struct Implementation {
  std::string name;    // "reference", or as in TargetNames()
  std::string target;  // "" for the reference
  Status (*rms_norm)(const ConstTensor& x, const ConstTensor& weight,
                     const Tensor& out, const Options& options);
  Status (*add_rms_norm)(const ConstTensor& x, const ConstTensor& residual,
                         const ConstTensor& weight, const Tensor& out,
                         const Tensor& residual_out, const Options& options);
};

Implementation Reference();
std::vector<Implementation> Targets();          // All of TargetNames().
std::vector<Implementation> Implementations();  // The reference, then targets.

// Puts the implementation's target in use for the scope's duration.
class ScopedTarget {
 public:
  explicit ScopedTarget(const Implementation& implementation);
  ~ScopedTarget();
  ScopedTarget(const ScopedTarget&) = delete;
  ScopedTarget& operator=(const ScopedTarget&) = delete;

 private:
  std::string previous_;
};

// Runs `body` for the reference and each target, with that target in use and
// its name in the trace.
void ForEachImplementation(
    const std::function<void(const Implementation&)>& body);

// ------------------------------------------------------------------- dtypes

constexpr DType kFloatDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

int64_t SizeOf(DType dtype);

// Exact. Written apart from the library: field by field, in integers.
double ToDouble(DType dtype, uint64_t bits);

// The nearest value of `dtype`, ties to even, as bits; overflow gives Inf, a
// NaN gives a quiet NaN, subnormals are kept.
uint64_t FromDouble(DType dtype, double value);

double RoundTo(DType dtype, double value);
bool IsNan(DType dtype, uint64_t bits);

// The bits of element `index` of packed elements at `data`.
uint64_t GetBits(DType dtype, const void* data, int64_t index);
void SetBits(DType dtype, void* data, int64_t index, uint64_t bits);

// ------------------------------------------------------------------- random

// The same numbers on every machine (splitmix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  Random() : Random(TestSeed()) {}

  uint64_t Next();
  int64_t Uniform(int64_t first, int64_t last);  // Both included.
  bool Chance(int percent) { return Uniform(0, 99) < percent; }
  double Unit();    // [0, 1)
  double Normal();  // About N(0, 1), within +-3.5.

  template <typename T>
  const T& Pick(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(
        Uniform(0, static_cast<int64_t>(choices.size()) - 1))];
  }

 private:
  uint64_t state_;
};

// What a row is filled with.
enum class Data {
  kNormal,
  kHuge,       // Squares leave f32 (f16: close to its maximum).
  kTiny,       // Normal numbers whose squares vanish in f32.
  kSubnormal,  // Subnormals of the dtype.
  kZeros,      // Of either sign.
  kNan,        // kNormal with one NaN somewhere.
  kInf,        // kNormal with one Inf somewhere.
  kBits,       // Any bit pattern.
};
constexpr Data kAllData[] = {Data::kNormal,    Data::kHuge,  Data::kTiny,
                             Data::kSubnormal, Data::kZeros, Data::kNan,
                             Data::kInf,       Data::kBits};

void FillRow(Random& random, Data data, DType dtype, void* row, int64_t width);

// ------------------------------------------------------------------ buffers

// Where a tensor lies: `strides` as in Tensor, `offset` elements behind a
// 64-byte boundary.
struct Layout {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  int64_t offset = 0;
};

Layout Packed(const std::vector<int64_t>& shape, int64_t offset = 0);
// `gap` unused elements behind each row.
Layout Padded(const std::vector<int64_t>& shape, int64_t gap,
              int64_t offset = 0);

// Memory of one tensor. All that lies outside its rows (gaps, and a margin on
// both sides) holds a NaN, which poisons what reads it and reveals what writes
// it. The rows start as a finite pattern. Copies are deep.
class Buffer {
 public:
  Buffer() = default;  // No tensor.
  Buffer(DType dtype, const Layout& layout);
  Buffer(DType dtype, const std::vector<int64_t>& shape)
      : Buffer(dtype, Packed(shape)) {}

  DType dtype() const { return dtype_; }
  const Layout& layout() const { return layout_; }
  int64_t rows() const { return rows_; }  // The leading axes' product.
  int64_t width() const { return layout_.shape.back(); }
  bool empty() const { return memory_.empty(); }

  // Row-major over the leading axes.
  void* row(int64_t index);
  const void* row(int64_t index) const;
  uint64_t bits(int64_t row_index, int64_t column) const;
  void set_bits(int64_t row_index, int64_t column, uint64_t bits);
  double value(int64_t row_index, int64_t column) const;
  void set_value(int64_t row_index, int64_t column, double value);

  void Fill(Random& random, Data data);
  // Row r gets kAllData[(first + r) % 8].
  void FillMixed(Random& random, int first = 0);
  // All rows have these values, rounded to the dtype.
  void FillWith(const std::vector<double>& values);

  Tensor tensor();
  ConstTensor tensor() const;
  operator Tensor() { return tensor(); }
  operator ConstTensor() const { return tensor(); }

  // Nothing outside the rows has changed since construction.
  testing::AssertionResult OutsideIntact() const;
  // Every byte, the margins included.
  testing::AssertionResult SameBytes(const Buffer& other) const;

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  uint8_t* base() { return memory_.data()->bytes; }
  const uint8_t* base() const { return memory_.data()->bytes; }
  int64_t RowStart(int64_t index) const;  // In elements from base().

  DType dtype_ = DType::kF32;
  Layout layout_;
  int64_t rows_ = 0;
  std::vector<Line> memory_;
};

// --------------------------------------------------------------- comparison

// Equal bit for bit, where any NaN equals any NaN. The message has the first
// mismatch. Every element counts as one comparison; the total is printed when
// the program ends.
testing::AssertionResult SameRow(DType dtype, const void* expected,
                                 const void* actual, int64_t width);
testing::AssertionResult SameBits(const Buffer& expected, const Buffer& actual);
testing::AssertionResult SameBits(const std::vector<float>& expected,
                                  const std::vector<float>& actual);

int64_t ComparisonCount();

}  // namespace test
}  // namespace fusednorm

#define EXPECT_STATUS_OK(expression)                  \
  do {                                                \
    const ::fusednorm::Status status_ = (expression); \
    EXPECT_TRUE(status_.ok()) << status_.message();   \
  } while (false)
#define ASSERT_STATUS_OK(expression)                  \
  do {                                                \
    const ::fusednorm::Status status_ = (expression); \
    ASSERT_TRUE(status_.ok()) << status_.message();   \
  } while (false)

#endif  // FUSEDNORM_TESTS_TEST_SUPPORT_H_

#include "test_support.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>

namespace fusednorm {
namespace test {
namespace {

std::atomic<int64_t> comparisons{0};

uint64_t GlobalSeed() {
  const char* text = std::getenv("FUSEDNORM_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 0);
}

// Prints what a reader needs to repeat the run, and how much was compared.
class Report : public testing::Environment {
 public:
  void SetUp() override {
    std::printf("FUSEDNORM_TEST_SEED=%llu subset=%d targets=%s\n",
                static_cast<unsigned long long>(GlobalSeed()), Subset(),
                TargetNames());
  }
  void TearDown() override {
    if (ComparisonCount() == 0) return;
    std::printf("bit comparisons: %lld\n",
                static_cast<long long>(ComparisonCount()));
  }
};
testing::Environment* const report =
    testing::AddGlobalTestEnvironment(new Report);

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// A binary floating-point format; the exponent has 8, 5 or 11 bits.
struct Format {
  int exponent_bits;
  int mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint64_t exponent_mask() const { return (uint64_t{1} << exponent_bits) - 1; }
  uint64_t mantissa_mask() const { return (uint64_t{1} << mantissa_bits) - 1; }
  uint64_t infinity() const { return exponent_mask() << mantissa_bits; }
  int sign_shift() const { return exponent_bits + mantissa_bits; }
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {8, 23};
    case DType::kBF16:
      return {8, 7};
    case DType::kF16:
      return {5, 10};
    default:
      return {11, 52};
  }
}

uint64_t RoundShift(uint64_t value, int shift) {
  if (shift <= 0) return value << -shift;
  if (shift > 63) return 0;
  const uint64_t quotient = value >> shift;
  const uint64_t rest = value & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  const bool up = rest > half || (rest == half && (quotient & 1) != 0);
  return quotient + (up ? 1 : 0);
}

// A signalling NaN with a pattern of its own: what reads it, becomes NaN; what
// is written over it, is unlikely to be it.
uint64_t Poison(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x7FA5C3E1;
    case DType::kBF16:
      return 0x7FA5;
    case DType::kF16:
      return 0x7DA5;
    default:
      return 0x7FF5C3E1A5F0B7D2;
  }
}

constexpr uint64_t kUnwritten = 0x5A4B5A4B5A4B5A4B;  // Finite in each dtype.
constexpr int64_t kMargin = 64;                      // Elements on each side.

double Magnitude(Random& random, double exponent_from, double exponent_to) {
  const double exponent =
      exponent_from + (exponent_to - exponent_from) * random.Unit();
  const double value = std::exp2(exponent);
  return (random.Next() >> 63) != 0 ? -value : value;
}

uint64_t SubnormalBits(Random& random, DType dtype) {
  const Format format = FormatOf(dtype);
  const uint64_t bits = random.Next();
  return (bits & format.mantissa_mask()) |
         ((bits >> 63) << format.sign_shift());
}

// The exponents that make f32's squares overflow, or vanish. f16 has neither
// kind and takes its own extremes.
uint64_t HugeBits(Random& random, DType dtype) {
  if (dtype == DType::kF16) {
    return FromDouble(dtype, Magnitude(random, 14.0, 15.99));
  }
  return FromDouble(dtype, Magnitude(random, 63.0, 127.9));
}

uint64_t TinyBits(Random& random, DType dtype) {
  if (dtype == DType::kF16) {
    return FromDouble(dtype, Magnitude(random, -14.0, -10.0));
  }
  return FromDouble(dtype, Magnitude(random, -126.0, -62.0));
}

uint64_t ElementBits(Random& random, Data data, DType dtype) {
  switch (data) {
    case Data::kHuge:
      return HugeBits(random, dtype);
    case Data::kTiny:
      return TinyBits(random, dtype);
    case Data::kSubnormal:
      return SubnormalBits(random, dtype);
    case Data::kZeros:
      return (random.Next() >> 63) << FormatOf(dtype).sign_shift();
    case Data::kBits:
      return random.Next();
    default:
      return FromDouble(dtype, random.Normal());
  }
}

template <typename T>
T Load(const void* data, int64_t index) {
  T value;
  std::memcpy(&value,
              static_cast<const uint8_t*>(data) +
                  index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <typename T>
void Store(void* data, int64_t index, uint64_t bits) {
  const T value = static_cast<T>(bits);
  std::memcpy(
      static_cast<uint8_t*>(data) + index * static_cast<int64_t>(sizeof(T)),
      &value, sizeof(T));
}

double DoubleOf(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

double PowerOfTwo(int exponent) {
  return DoubleOf(static_cast<uint64_t>(exponent + 1023) << 52);
}

std::string Hex(uint64_t bits) {
  std::ostringstream text;
  text << "0x" << std::hex << bits;
  return text.str();
}

}  // namespace

// ---------------------------------------------------------------- settings

bool Subset() {
  const char* text = std::getenv("FUSEDNORM_TEST_SUBSET");
  return text != nullptr && std::strcmp(text, "1") == 0;
}

uint64_t TestSeed() {
  uint64_t seed = GlobalSeed();
  const testing::TestInfo* info =
      testing::UnitTest::GetInstance()->current_test_info();
  if (info == nullptr) return Mix(seed);
  const std::string name =
      std::string(info->test_suite_name()) + "." + info->name();
  for (char letter : name) seed = Mix(seed + static_cast<uint8_t>(letter) + 1);
  return seed;
}

// ------------------------------------------------------------------- names

std::string Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kF64:
      return "f64";
    default:
      return "dtype " + std::to_string(static_cast<int32_t>(dtype));
  }
}

std::string Name(const Options& options) {
  std::ostringstream text;
  text << "eps " << options.eps << " weight_offset " << options.weight_offset
       << " residual_scale " << options.residual_scale << " rounding "
       << static_cast<int32_t>(options.rounding) << " sum "
       << static_cast<int32_t>(options.sum) << " nontemporal "
       << static_cast<int32_t>(options.nontemporal) << " num_threads "
       << options.num_threads << (options.rstd != nullptr ? " rstd" : "");
  return text.str();
}

std::string Name(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) text += " " + std::to_string(number);
  return "(" + (text.empty() ? text : text.substr(1)) + ")";
}

// --------------------------------------------------------- implementations

Implementation Reference() {
  return {"reference", "", &reference::RmsNorm, &reference::AddRmsNorm};
}

std::vector<Implementation> Targets() {
  std::vector<Implementation> targets;
  std::istringstream names(TargetNames());
  for (std::string name; names >> name;) {
    targets.push_back({name, name, &RmsNorm, &AddRmsNorm});
  }
  return targets;
}

std::vector<Implementation> Implementations() {
  std::vector<Implementation> all = Targets();
  all.insert(all.begin(), Reference());
  return all;
}

ScopedTarget::ScopedTarget(const Implementation& implementation)
    : previous_(TargetName()) {
  if (implementation.target.empty()) return;
  EXPECT_STATUS_OK(SetTarget(implementation.target.c_str()));
  EXPECT_EQ(implementation.target, TargetName());
}

ScopedTarget::~ScopedTarget() {
  EXPECT_STATUS_OK(SetTarget(previous_.empty() ? nullptr : previous_.c_str()));
}

void ForEachImplementation(
    const std::function<void(const Implementation&)>& body) {
  for (const Implementation& implementation : Implementations()) {
    SCOPED_TRACE(implementation.name);
    ScopedTarget target(implementation);
    body(implementation);
  }
}

// ------------------------------------------------------------------- dtypes

int64_t SizeOf(DType dtype) {
  if (dtype == DType::kF64) return 8;
  return dtype == DType::kF32 ? 4 : 2;
}

double ToDouble(DType dtype, uint64_t bits) {
  if (dtype == DType::kF64) return DoubleOf(bits);
  const Format format = FormatOf(dtype);
  const bool negative = ((bits >> format.sign_shift()) & 1) != 0;
  const uint64_t exponent =
      (bits >> format.mantissa_bits) & format.exponent_mask();
  const uint64_t mantissa = bits & format.mantissa_mask();
  double value = 0;
  if (exponent == format.exponent_mask()) {
    value = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                          : std::numeric_limits<double>::infinity();
  } else {
    const uint64_t implicit =
        exponent != 0 ? uint64_t{1} << format.mantissa_bits : 0;
    const int scale = static_cast<int>(exponent != 0 ? exponent : 1) -
                      format.bias() - format.mantissa_bits;
    value = static_cast<double>(mantissa | implicit) * PowerOfTwo(scale);
  }
  return negative ? -value : value;
}

uint64_t FromDouble(DType dtype, double value) {
  if (dtype == DType::kF64) return Load<uint64_t>(&value, 0);
  const Format from = FormatOf(DType::kF64);
  const Format to = FormatOf(dtype);
  const uint64_t bits = Load<uint64_t>(&value, 0);
  const uint64_t sign = (bits >> 63) << to.sign_shift();
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  if (magnitude > from.infinity()) {
    return sign | to.infinity() | (uint64_t{1} << (to.mantissa_bits - 1));
  }
  const int exponent = static_cast<int>(magnitude >> from.mantissa_bits) -
                       from.bias() + to.bias();
  // A double's own subnormals are far below half of any other subnormal.
  if (exponent < -to.mantissa_bits - 1) return sign;
  const uint64_t significand =
      (magnitude & from.mantissa_mask()) | (uint64_t{1} << from.mantissa_bits);
  const int dropped = from.mantissa_bits - to.mantissa_bits;
  // A carry out of the mantissa runs into the exponent, as it should.
  if (exponent <= 0)
    return sign | RoundShift(significand, dropped + 1 - exponent);
  if (static_cast<uint64_t>(exponent) >= to.exponent_mask()) {
    return sign | to.infinity();
  }
  const uint64_t base = static_cast<uint64_t>(exponent - 1) << to.mantissa_bits;
  return sign | (base + RoundShift(significand, dropped));
}

double RoundTo(DType dtype, double value) {
  return ToDouble(dtype, FromDouble(dtype, value));
}

bool IsNan(DType dtype, uint64_t bits) {
  const Format format = FormatOf(dtype);
  const uint64_t magnitude = (uint64_t{1} << format.sign_shift()) - 1;
  return (bits & magnitude) > format.infinity();
}

uint64_t GetBits(DType dtype, const void* data, int64_t index) {
  switch (SizeOf(dtype)) {
    case 2:
      return Load<uint16_t>(data, index);
    case 4:
      return Load<uint32_t>(data, index);
    default:
      return Load<uint64_t>(data, index);
  }
}

void SetBits(DType dtype, void* data, int64_t index, uint64_t bits) {
  switch (SizeOf(dtype)) {
    case 2:
      return Store<uint16_t>(data, index, bits);
    case 4:
      return Store<uint32_t>(data, index, bits);
    default:
      return Store<uint64_t>(data, index, bits);
  }
}

// ------------------------------------------------------------------- random

uint64_t Random::Next() {
  state_ += 0x9E3779B97F4A7C15u;
  return Mix(state_);
}

int64_t Random::Uniform(int64_t first, int64_t last) {
  const uint64_t span = static_cast<uint64_t>(last - first) + 1;
  return first + static_cast<int64_t>(Next() % span);
}

double Random::Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

double Random::Normal() {
  // The sum of four uniform numbers of 16 bits, scaled to variance 1.
  const uint64_t bits = Next();
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<double>((bits >> (16 * i)) & 0xFFFF);
  }
  return (sum - 2 * 65535.0) * (1.7320508075688772 / 65536.0);
}

void FillRow(Random& random, Data data, DType dtype, void* row, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    SetBits(dtype, row, i, ElementBits(random, data, dtype));
  }
  if (data != Data::kNan && data != Data::kInf) return;
  const double infinity = std::numeric_limits<double>::infinity();
  const double special = data == Data::kNan
                             ? std::numeric_limits<double>::quiet_NaN()
                             : (random.Chance(50) ? infinity : -infinity);
  SetBits(dtype, row, random.Uniform(0, width - 1), FromDouble(dtype, special));
}

// ------------------------------------------------------------------ buffers

Layout Packed(const std::vector<int64_t>& shape, int64_t offset) {
  return Padded(shape, 0, offset);
}

Layout Padded(const std::vector<int64_t>& shape, int64_t gap, int64_t offset) {
  Layout layout{shape, std::vector<int64_t>(shape.size(), 1), offset};
  int64_t stride = shape.back() + gap;
  for (size_t axis = shape.size() - 1; axis-- > 0;) {
    layout.strides[axis] = stride;
    stride *= shape[axis];
  }
  return layout;
}

Buffer::Buffer(DType dtype, const Layout& layout)
    : dtype_(dtype), layout_(layout), rows_(1) {
  int64_t last = width() - 1;  // Of the elements, counted from the first.
  for (size_t axis = 0; axis + 1 < layout_.shape.size(); ++axis) {
    rows_ *= layout_.shape[axis];
    if (layout_.shape[axis] > 0) {
      last += (layout_.shape[axis] - 1) * layout_.strides[axis];
    }
  }
  const int64_t elements = 2 * kMargin + layout_.offset + last + 1;
  const int64_t bytes = elements * SizeOf(dtype);
  memory_.resize(static_cast<size_t>((bytes + 63) / 64));
  const int64_t capacity =
      static_cast<int64_t>(memory_.size() * 64) / SizeOf(dtype);
  for (int64_t i = 0; i < capacity; ++i) {
    SetBits(dtype, base(), i, Poison(dtype));
  }
  for (int64_t r = 0; r < rows_; ++r) {
    for (int64_t i = 0; i < width(); ++i) set_bits(r, i, kUnwritten);
  }
}

int64_t Buffer::RowStart(int64_t index) const {
  int64_t start = kMargin + layout_.offset;
  for (size_t axis = layout_.shape.size() - 1; axis-- > 0;) {
    start += index % layout_.shape[axis] * layout_.strides[axis];
    index /= layout_.shape[axis];
  }
  return start;
}

void* Buffer::row(int64_t index) {
  return base() + RowStart(index) * SizeOf(dtype_);
}

const void* Buffer::row(int64_t index) const {
  return base() + RowStart(index) * SizeOf(dtype_);
}

uint64_t Buffer::bits(int64_t row_index, int64_t column) const {
  return GetBits(dtype_, row(row_index), column);
}

void Buffer::set_bits(int64_t row_index, int64_t column, uint64_t bits) {
  SetBits(dtype_, row(row_index), column, bits);
}

double Buffer::value(int64_t row_index, int64_t column) const {
  return ToDouble(dtype_, bits(row_index, column));
}

void Buffer::set_value(int64_t row_index, int64_t column, double value) {
  set_bits(row_index, column, FromDouble(dtype_, value));
}

void Buffer::Fill(Random& random, Data data) {
  for (int64_t r = 0; r < rows_; ++r) {
    FillRow(random, data, dtype_, row(r), width());
  }
}

void Buffer::FillMixed(Random& random, int first) {
  for (int64_t r = 0; r < rows_; ++r) {
    FillRow(random, kAllData[(first + r) % 8], dtype_, row(r), width());
  }
}

void Buffer::FillWith(const std::vector<double>& values) {
  for (int64_t r = 0; r < rows_; ++r) {
    for (int64_t i = 0; i < width(); ++i) {
      set_value(r, i, values.at(static_cast<size_t>(i)));
    }
  }
}

ConstTensor Buffer::tensor() const {
  ConstTensor view;
  if (empty()) return view;
  view.data = base() + (kMargin + layout_.offset) * SizeOf(dtype_);
  view.dtype = dtype_;
  view.rank = static_cast<int32_t>(layout_.shape.size());
  for (size_t axis = 0; axis < layout_.shape.size(); ++axis) {
    view.shape[axis] = layout_.shape[axis];
    view.strides[axis] = layout_.strides[axis];
  }
  return view;
}

Tensor Buffer::tensor() {
  const ConstTensor view = static_cast<const Buffer*>(this)->tensor();
  Tensor tensor;
  if (empty()) return tensor;
  tensor.data = const_cast<void*>(view.data);  // It points into memory_.
  tensor.dtype = view.dtype;
  tensor.rank = view.rank;
  for (int axis = 0; axis < Tensor::kMaxRank; ++axis) {
    tensor.shape[axis] = view.shape[axis];
    tensor.strides[axis] = view.strides[axis];
  }
  return tensor;
}

testing::AssertionResult Buffer::OutsideIntact() const {
  std::vector<int64_t> starts;
  for (int64_t r = 0; r < rows_; ++r) starts.push_back(RowStart(r));
  // What lies behind the last row is the last gap.
  starts.push_back(static_cast<int64_t>(memory_.size() * 64) / SizeOf(dtype_));
  std::sort(starts.begin(), starts.end());
  int64_t position = 0;
  for (int64_t start : starts) {
    for (; position < start; ++position) {
      if (GetBits(dtype_, base(), position) == Poison(dtype_)) continue;
      return testing::AssertionFailure()
             << "element " << position - kMargin - layout_.offset
             << " from the data pointer is outside the rows but was written";
    }
    position = std::max(position, start + width());
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult Buffer::SameBytes(const Buffer& other) const {
  if (memory_.size() != other.memory_.size()) {
    return testing::AssertionFailure() << "the sizes differ";
  }
  if (empty() || std::memcmp(base(), other.base(), memory_.size() * 64) == 0) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "a byte has changed";
}

// --------------------------------------------------------------- comparison

testing::AssertionResult SameRow(DType dtype, const void* expected,
                                 const void* actual, int64_t width) {
  comparisons += width;
  const size_t bytes = static_cast<size_t>(width * SizeOf(dtype));
  if (width == 0 || std::memcmp(expected, actual, bytes) == 0) {
    return testing::AssertionSuccess();
  }
  for (int64_t i = 0; i < width; ++i) {
    const uint64_t want = GetBits(dtype, expected, i);
    const uint64_t got = GetBits(dtype, actual, i);
    if (want == got || (IsNan(dtype, want) && IsNan(dtype, got))) continue;
    return testing::AssertionFailure()
           << Name(dtype) << " element " << i << " of " << width
           << ": expected " << Hex(want) << " (" << ToDouble(dtype, want)
           << "), got " << Hex(got) << " (" << ToDouble(dtype, got) << ")";
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult SameBits(const Buffer& expected,
                                  const Buffer& actual) {
  if (expected.empty() && actual.empty()) return testing::AssertionSuccess();
  if (expected.empty() || actual.empty() ||
      expected.dtype() != actual.dtype() || expected.rows() != actual.rows() ||
      expected.width() != actual.width()) {
    return testing::AssertionFailure() << "dtypes or shapes differ";
  }
  for (int64_t r = 0; r < expected.rows(); ++r) {
    const testing::AssertionResult same = SameRow(
        expected.dtype(), expected.row(r), actual.row(r), expected.width());
    if (!same) {
      return testing::AssertionFailure()
             << "row " << r << ": " << same.message();
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult SameBits(const std::vector<float>& expected,
                                  const std::vector<float>& actual) {
  if (expected.size() != actual.size()) {
    return testing::AssertionFailure() << "sizes differ";
  }
  return SameRow(DType::kF32, expected.data(), actual.data(),
                 static_cast<int64_t>(expected.size()));
}

int64_t ComparisonCount() { return comparisons; }

}  // namespace test
}  // namespace fusednorm

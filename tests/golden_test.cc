// Our results beside those of other RMSNorms, and on a real model's data.
//
// tests/golden/ holds what Hugging Face's modules, PyTorch and vLLM returned,
// record by record; its README.md has the format. The files are read through
// the C ABI's types alone, so this is also a user's view of it. A share of
// equal bits is asked for besides a distance: a wrong order of roundings stays
// within one ulp and shows only there (vLLM's sum taken for another one of
// ours still agrees in 93 % of the elements).

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "fusednorm/c.h"

#ifndef FUSEDNORM_GOLDEN_DIR
#define FUSEDNORM_GOLDEN_DIR "golden"  // CTest runs the tests in tests/.
#endif

namespace {

constexpr double kRelativeF32 = 2e-6;
constexpr double kEqual16 = 0.996;

// ------------------------------------------------------------------ reading

enum Op : uint32_t { kRmsNorm = 0, kAddRmsNorm = 1 };

struct Tensor {
  bool present = false;
  fusednorm_dtype dtype = FUSEDNORM_F32;
  int64_t rows = 0;
  std::vector<char> bytes;
};

struct Record {
  uint32_t op, rounding, sum;
  float eps, weight_offset, residual_scale;
  int64_t rows, width;
  std::string name;
  Tensor x, residual, weight, out, residual_out;
};

size_t SizeOf(fusednorm_dtype dtype) { return dtype == FUSEDNORM_F32 ? 4 : 2; }

// Takes values off a file's bytes; ok() turns false at a read past the end.
class Reader {
 public:
  explicit Reader(std::vector<char> bytes) : bytes_(std::move(bytes)) {}

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && position_ == bytes_.size(); }

  std::vector<char> Bytes(size_t count) {
    ok_ = ok_ && count <= bytes_.size() - position_;
    if (!ok_) return {};
    const auto begin = bytes_.begin() + static_cast<ptrdiff_t>(position_);
    position_ += count;
    return {begin, begin + static_cast<ptrdiff_t>(count)};
  }

  // The files are little endian, as is every machine this library runs on.
  uint32_t U32() {
    const std::vector<char> bytes = Bytes(4);
    uint32_t value = 0;
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  float F32() {
    const uint32_t bits = U32();
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  std::string String() {
    const std::vector<char> bytes = Bytes(U32());
    return {bytes.begin(), bytes.end()};
  }

  Tensor ReadTensor(int64_t width) {
    Tensor tensor;
    const uint32_t dtype = U32();
    if (!ok_ || dtype == 0xFFFFFFFFu) return tensor;
    ok_ = dtype <= FUSEDNORM_F16;
    tensor.present = true;
    tensor.dtype = static_cast<fusednorm_dtype>(dtype);
    tensor.rows = U32();
    tensor.bytes =
        Bytes(static_cast<size_t>(tensor.rows * width) * SizeOf(tensor.dtype));
    return tensor;
  }

  Record ReadRecord() {
    Record record;
    record.op = U32();
    record.rounding = U32();
    record.sum = U32();
    record.eps = F32();
    record.weight_offset = F32();
    record.residual_scale = F32();
    record.rows = U32();
    record.width = U32();
    record.name = String();
    for (Tensor* tensor : {&record.x, &record.residual, &record.weight,
                           &record.out, &record.residual_out}) {
      *tensor = ReadTensor(record.width);
    }
    return record;
  }

 private:
  std::vector<char> bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

// Empty, with a failure, if the file is missing or damaged.
std::vector<Record> ReadFile(const std::string& source) {
  const std::string path =
      std::string(FUSEDNORM_GOLDEN_DIR) + "/" + source + ".bin";
  std::ifstream file(path, std::ios::binary);
  Reader reader(
      {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  const std::vector<char> magic = reader.Bytes(8);
  const uint32_t count = reader.U32();
  std::vector<Record> records;
  while (reader.ok() && records.size() < count) {
    records.push_back(reader.ReadRecord());
  }
  if (!reader.at_end() ||
      std::string(magic.begin(), magic.end()) != "FNGOLD1\n") {
    ADD_FAILURE() << "missing or damaged: " << path;
    return {};
  }
  return records;
}

// ------------------------------------------------------------------ running

// A view of the tensor's bytes, which the library does not write if `tensor`
// is an input. An absent tensor gives no data.
fusednorm_tensor View(const Tensor& tensor, int64_t width) {
  fusednorm_tensor view = {};
  view.data = tensor.present ? const_cast<char*>(tensor.bytes.data()) : nullptr;
  view.dtype = tensor.dtype;
  view.rank = 2;
  view.shape[0] = tensor.rows;
  view.shape[1] = width;
  view.strides[0] = width;
  view.strides[1] = 1;
  return view;
}

// A tensor like `expected` with other bytes in all places.
Tensor Blank(const Tensor& expected) {
  Tensor tensor = expected;
  for (char& byte : tensor.bytes) byte = static_cast<char>(~byte);
  return tensor;
}

fusednorm_status Run(const Record& record, bool reference, Tensor* out,
                     Tensor* residual_out) {
  fusednorm_options options;
  fusednorm_options_init(&options);
  options.eps = record.eps;
  options.weight_offset = record.weight_offset;
  options.residual_scale = record.residual_scale;
  options.rounding = static_cast<int32_t>(record.rounding);
  options.sum = static_cast<int32_t>(record.sum);

  const fusednorm_tensor x = View(record.x, record.width);
  const fusednorm_tensor residual = View(record.residual, record.width);
  const fusednorm_tensor weight = View(record.weight, record.width);
  const fusednorm_tensor* weight_or_null =
      record.weight.present ? &weight : nullptr;
  const fusednorm_tensor out_view = View(*out, record.width);
  const fusednorm_tensor stream_view = View(*residual_out, record.width);
  if (record.op == kRmsNorm) {
    const auto norm =
        reference ? fusednorm_reference_rms_norm : fusednorm_rms_norm;
    return norm(&x, weight_or_null, &out_view, &options);
  }
  const auto add_norm =
      reference ? fusednorm_reference_add_rms_norm : fusednorm_add_rms_norm;
  return add_norm(&x, &residual, weight_or_null, &out_view, &stream_view,
                  &options);
}

// ---------------------------------------------------------------- comparing

struct Statistics {
  int64_t elements = 0;
  int64_t equal = 0;
  double worst = 0;  // f32: relative; 16 bits: in ulp
};

// Numbers 16-bit patterns in the order of their values, so that the difference
// of two is their distance in ulp.
int32_t Rank16(uint16_t bits) {
  const int32_t magnitude = bits & 0x7FFF;
  return (bits & 0x8000) ? -magnitude : magnitude;
}

void Compare16(const Tensor& got, const Tensor& expected, Statistics* total) {
  for (size_t i = 0; i < expected.bytes.size(); i += 2) {
    uint16_t ours, theirs;
    std::memcpy(&ours, &got.bytes[i], 2);
    std::memcpy(&theirs, &expected.bytes[i], 2);
    const int distance = std::abs(Rank16(ours) - Rank16(theirs));
    EXPECT_LE(distance, 1) << "element " << i / 2 << ": " << std::hex << ours
                           << " instead of " << theirs;
    ++total->elements;
    total->equal += ours == theirs;
    total->worst = std::max(total->worst, static_cast<double>(distance));
  }
}

// Everything after the reduction is a product, so nothing cancels and the
// error is relative: of the reduction's sum, whose order is each source's own,
// and of three or four roundings of half an epsilon each. 2e-6 is 17 epsilon.
// An expected value below the epsilon of its row's largest one counts as that
// much: it may be subnormal, where a relative error means nothing.
void CompareF32(const Tensor& got, const Tensor& expected, int64_t width,
                Statistics* total) {
  std::vector<float> ours(got.bytes.size() / 4), theirs(ours.size());
  std::memcpy(ours.data(), got.bytes.data(), got.bytes.size());
  std::memcpy(theirs.data(), expected.bytes.data(), expected.bytes.size());
  double largest = 0;
  for (size_t i = 0; i < theirs.size(); ++i) {
    if (i % static_cast<size_t>(width) == 0) {
      largest = 0;
      for (size_t j = i; j < i + static_cast<size_t>(width); ++j) {
        largest = std::max(largest, std::fabs(double{theirs[j]}));
      }
    }
    const double scale =
        std::max(std::fabs(double{theirs[i]}), FLT_EPSILON * largest);
    const double error = std::fabs(double{ours[i]} - double{theirs[i]});
    EXPECT_LE(error, kRelativeF32 * scale)
        << "element " << i << ": " << ours[i] << " instead of " << theirs[i];
    ++total->elements;
    total->equal += ours[i] == theirs[i];
    if (scale > 0) total->worst = std::max(total->worst, error / scale);
  }
}

void CompareRecord(const Record& record, bool reference,
                   std::map<fusednorm_dtype, Statistics>* totals) {
  SCOPED_TRACE(record.name);
  ASSERT_LE(record.op, kAddRmsNorm);
  Tensor out = Blank(record.out);
  Tensor residual_out = Blank(record.residual_out);
  ASSERT_EQ(Run(record, reference, &out, &residual_out), FUSEDNORM_OK)
      << fusednorm_last_error();
  // One addition, rounded once: nobody has a choice there.
  EXPECT_TRUE(residual_out.bytes == record.residual_out.bytes)
      << "residual_out differs";
  Statistics* total = &(*totals)[record.out.dtype];
  if (record.out.dtype == FUSEDNORM_F32) {
    CompareF32(out, record.out, record.width, total);
  } else {
    Compare16(out, record.out, total);
  }
}

void CompareSource(const std::string& source,
                   const std::vector<Record>& records,
                   const std::string& implementation, bool reference) {
  SCOPED_TRACE(implementation);
  static constexpr const char* kNames[] = {"f32", "bf16", "f16"};
  std::map<fusednorm_dtype, Statistics> totals;
  for (const Record& record : records) {
    CompareRecord(record, reference, &totals);
    if (testing::Test::HasFailure()) return;  // One record tells enough.
  }
  for (const auto& [dtype, total] : totals) {
    const bool f32 = dtype == FUSEDNORM_F32;
    const double equal =
        static_cast<double>(total.equal) / static_cast<double>(total.elements);
    std::printf(
        "%-12s %-9s %-4s %7lld elements, %8.4f %% equal, worst %.2g%s\n",
        source.c_str(), implementation.c_str(), kNames[dtype],
        static_cast<long long>(total.elements), 100 * equal, total.worst,
        f32 ? " relative" : " ulp");
    if (!f32) {
      EXPECT_GE(equal, kEqual16) << kNames[dtype];
    }
  }
}

// -------------------------------------------------------------------- tests

struct Source {
  const char* name;  // of the file, without .bin
  size_t records;
};

void PrintTo(const Source& source, std::ostream* stream) {
  *stream << source.name;
}

class GoldenTest : public testing::TestWithParam<Source> {
 protected:
  void TearDown() override { fusednorm_set_target(nullptr); }
};

TEST_P(GoldenTest, AgreesWithSource) {
  const std::vector<Record> records = ReadFile(GetParam().name);
  ASSERT_EQ(records.size(), GetParam().records);
  CompareSource(GetParam().name, records, "reference", true);
  std::istringstream targets(fusednorm_targets());
  for (std::string target; targets >> target;) {
    ASSERT_EQ(fusednorm_set_target(target.c_str()), FUSEDNORM_OK)
        << fusednorm_last_error();
    CompareSource(GetParam().name, records, target, false);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sources, GoldenTest,
    testing::Values(Source{"llama", 20}, Source{"gemma", 15},
                    Source{"llama_add", 15}, Source{"gemma_add", 15},
                    Source{"pytorch", 18}, Source{"vllm", 16},
                    Source{"vllm_bf16", 8}, Source{"vllm_native", 10},
                    Source{"smollm2", 61},  // every norm of the model
                    Source{"smollm2_f32", 21}, Source{"smollm2_add", 20}),
    [](const auto& source) { return std::string(source.param.name); });

}  // namespace

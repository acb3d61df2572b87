// Reads the golden files; golden/README.md has their format.
#ifndef FUSEDNORM_TESTS_GOLDEN_READER_H_
#define FUSEDNORM_TESTS_GOLDEN_READER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "fusednorm/c.h"
#include "test_support.h"

#ifndef FUSEDNORM_GOLDEN_DIR
#define FUSEDNORM_GOLDEN_DIR "golden"  // CTest runs the tests in tests/.
#endif

namespace fusednorm {
namespace test {

enum GoldenOp : uint32_t {
  kRmsNorm = 0,
  kAddRmsNorm = 1,
  kRmsNormAdd = 2,
  kRmsNormAddRmsNorm = 3,
  kRmsNormBackward = 4,
  kAddRmsNormBackward = 5
};

struct GoldenTensor {
  bool present = false;
  fusednorm_dtype dtype = FUSEDNORM_F32;
  int64_t rows = 0;
  std::vector<char> bytes;
};

// The tensors carry the names of the operations' arguments; x is the stream h
// in kAddRmsNormBackward.
struct GoldenRecord {
  uint32_t op, rounding, sum;
  float eps, weight_offset, residual_scale;
  int64_t rows, width;
  std::string name;
  GoldenTensor x, residual, weight, weight_pre, out, residual_out;
  GoldenTensor dy, d_residual_out, dx, dweight;
  // What the source's 16-bit backward pass made of dx and dweight, where that
  // is not what we expect.
  GoldenTensor eager_dx, eager_dweight;
};

// Takes values off a file's bytes; ok() turns false at a read past the end.
class GoldenReader {
 public:
  explicit GoldenReader(std::vector<char> bytes) : bytes_(std::move(bytes)) {}

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

  GoldenTensor Tensor(int64_t width) {
    GoldenTensor tensor;
    const uint32_t dtype = U32();
    if (!ok_ || dtype == 0xFFFFFFFFu) return tensor;
    ok_ = dtype <= FUSEDNORM_F16;
    tensor.present = true;
    tensor.dtype = static_cast<fusednorm_dtype>(dtype);
    tensor.rows = U32();
    const int64_t size = dtype == FUSEDNORM_F32 ? 4 : 2;
    tensor.bytes = Bytes(static_cast<size_t>(tensor.rows * width * size));
    return tensor;
  }

  GoldenRecord Record() {
    GoldenRecord record = {};
    record.op = U32();
    record.rounding = U32();
    record.sum = U32();
    record.eps = F32();
    record.weight_offset = F32();
    record.residual_scale = F32();
    record.rows = U32();
    record.width = U32();
    record.name = String();
    for (GoldenTensor* tensor : TensorsOf(&record)) {
      *tensor = Tensor(record.width);
    }
    return record;
  }

 private:
  // What the file holds for the record's operation, in its order.
  std::vector<GoldenTensor*> TensorsOf(GoldenRecord* r) {
    switch (r->op) {
      case kRmsNorm:
      case kAddRmsNorm:
      case kRmsNormAdd:
        return {&r->x, &r->residual, &r->weight, &r->out, &r->residual_out};
      case kRmsNormAddRmsNorm:
        return {&r->x,          &r->residual, &r->weight,
                &r->weight_pre, &r->out,      &r->residual_out};
      case kRmsNormBackward:
      case kAddRmsNormBackward:
        return {&r->x,  &r->weight,  &r->dy,       &r->d_residual_out,
                &r->dx, &r->dweight, &r->eager_dx, &r->eager_dweight};
      default:
        ok_ = false;
        return {};
    }
  }

  std::vector<char> bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

// Empty, with a failure, if the file is missing or damaged.
inline std::vector<GoldenRecord> ReadGolden(const std::string& source) {
  const std::string path =
      std::string(FUSEDNORM_GOLDEN_DIR) + "/" + source + ".bin";
  std::ifstream file(path, std::ios::binary);
  GoldenReader reader(
      {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  const std::vector<char> magic = reader.Bytes(8);
  const uint32_t count = reader.U32();
  std::vector<GoldenRecord> records;
  while (reader.ok() && records.size() < count) {
    records.push_back(reader.Record());
  }
  if (!reader.at_end() ||
      std::string(magic.begin(), magic.end()) != "FNGOLD1\n") {
    ADD_FAILURE() << "missing or damaged: " << path;
    return {};
  }
  return records;
}

// The elements as numbers; none of an absent tensor.
inline std::vector<double> Values(const GoldenTensor& tensor) {
  const auto dtype = static_cast<DType>(tensor.dtype);
  const auto count = static_cast<int64_t>(tensor.bytes.size()) / SizeOf(dtype);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(ToDouble(dtype, GetBits(dtype, tensor.bytes.data(), i)));
  }
  return values;
}

// A tensor as an argument of the C functions: null if it is absent. The
// library writes its bytes if it is an output, for which `tensor` must not be
// const, whatever the constructor takes.
class GoldenView {
 public:
  GoldenView(const GoldenTensor& tensor, int64_t width)
      : present_(tensor.present) {
    view_.data = const_cast<char*>(tensor.bytes.data());
    view_.dtype = tensor.dtype;
    view_.rank = 2;
    view_.shape[0] = tensor.rows;
    view_.shape[1] = width;
    view_.strides[0] = width;
    view_.strides[1] = 1;
  }

  const fusednorm_tensor* get() const { return present_ ? &view_ : nullptr; }

 private:
  bool present_;
  fusednorm_tensor view_ = {};
};

inline fusednorm_options OptionsOf(const GoldenRecord& record) {
  fusednorm_options options;
  fusednorm_options_init(&options);
  options.eps = record.eps;
  options.weight_offset = record.weight_offset;
  options.residual_scale = record.residual_scale;
  options.rounding = static_cast<int32_t>(record.rounding);
  options.sum = static_cast<int32_t>(record.sum);
  return options;
}

// A tensor like `expected` with other bytes in all places.
inline GoldenTensor Blank(const GoldenTensor& expected) {
  GoldenTensor tensor = expected;
  for (char& byte : tensor.bytes) byte = static_cast<char>(~byte);
  return tensor;
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_GOLDEN_READER_H_

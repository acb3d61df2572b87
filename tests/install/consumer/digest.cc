// Prints one number made of the bits of many results, which any two builds of
// the library must share.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "fusednorm/fusednorm.h"

namespace {

using fusednorm::DType;
using fusednorm::Tensor;

uint64_t digest = 14695981039346656037u;  // FNV-1a

void Add(const std::vector<uint16_t>& values) {
  for (uint16_t value : values) digest = (digest ^ value) * 1099511628211u;
}

// 16-bit patterns that are small numbers in both formats: no NaN, whose bits
// are not promised.
std::vector<uint16_t> Data(size_t count, uint32_t seed) {
  std::vector<uint16_t> data(count);
  for (uint16_t& value : data) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<uint16_t>(seed >> 16 & 0xBFFF);  // Below 2.
  }
  return data;
}

bool Run(DType dtype, int64_t width) {
  constexpr int64_t kRows = 5;
  const size_t count = static_cast<size_t>(kRows * width);
  std::vector<uint16_t> x = Data(count, 1), residual = Data(count, 2);
  std::vector<uint16_t> weight = Data(static_cast<size_t>(width), 3);
  std::vector<uint16_t> out(count), sum(count);
  const Tensor x_view(x.data(), dtype, {kRows, width});
  const Tensor residual_view(residual.data(), dtype, {kRows, width});
  const Tensor weight_view(weight.data(), dtype, {width});
  const Tensor out_view(out.data(), dtype, {kRows, width});
  const Tensor sum_view(sum.data(), dtype, {kRows, width});
  fusednorm::Options options;
  options.rounding = fusednorm::Rounding::kBeforeWeight;
  if (!fusednorm::RmsNorm(x_view, weight_view, out_view, options).ok()) {
    return false;
  }
  Add(out);
  options.sum = fusednorm::Sum::kExact;
  options.weight_offset = 1;
  if (!fusednorm::AddRmsNorm(x_view, residual_view, weight_view, out_view,
                             sum_view, options)
           .ok()) {
    return false;
  }
  Add(out);
  Add(sum);
  return true;
}

}  // namespace

int main() {
  // Each target adds the same numbers.
  std::string names = fusednorm::TargetNames();
  while (!names.empty()) {
    const size_t end = names.find(' ');
    const std::string name = names.substr(0, end);
    names = end == std::string::npos ? "" : names.substr(end + 1);
    if (!fusednorm::SetTarget(name.c_str()).ok()) return 1;
    digest = 14695981039346656037u;
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const int64_t width : {1, 31, 64, 129, 2880}) {
        if (!Run(dtype, width)) return 1;
      }
    }
    std::printf("%016llx %s\n", static_cast<unsigned long long>(digest),
                name.c_str());
  }
  return 0;
}

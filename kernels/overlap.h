// Which bytes of memory views share.
#ifndef FUSEDNORM_KERNELS_OVERLAP_H_
#define FUSEDNORM_KERNELS_OVERLAP_H_

#include <cstdint>

#include "fusednorm/tensor.h"

namespace fusednorm {
namespace internal {

// A tensor's bytes, none of whose numbers overflow.
struct ByteView {
  const ConstTensor* tensor;
  uintptr_t begin;
  int64_t row_bytes;
  int64_t extent;  // From the first byte to past the last.
};

// Whether two rows of one view may share bytes. Views whose axes nest (each
// stride at least the extent of the axes of smaller strides) never do; others
// are taken to.
bool OverlapsItself(const ByteView& view);

// Whether rows of views whose byte ranges meet share bytes: exact where both
// have the same axes and do not overlap themselves (slices of one wider row);
// others are taken to.
bool RowsOverlap(const ByteView& a, const ByteView& b);

// Whether views share bytes.
inline bool Overlap(const ByteView& a, const ByteView& b) {
  const auto extent_a = static_cast<uintptr_t>(a.extent);
  const auto extent_b = static_cast<uintptr_t>(b.extent);
  return a.begin + extent_a > b.begin && b.begin + extent_b > a.begin &&
         RowsOverlap(a, b);
}

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_OVERLAP_H_

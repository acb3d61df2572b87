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

// Whether the ranges of two views from first to last byte meet.
inline bool RangesMeet(const ByteView& a, const ByteView& b) {
  return a.begin + static_cast<uintptr_t>(a.extent) > b.begin &&
         b.begin + static_cast<uintptr_t>(b.extent) > a.begin;
}

// Whether rows of views whose byte ranges meet share bytes: exact where both
// have the same axes and do not overlap themselves (slices of one wider row);
// others are taken to.
bool RowsOverlap(const ByteView& a, const ByteView& b);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_OVERLAP_H_

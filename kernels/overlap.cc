#include "kernels/overlap.h"

#include <algorithm>

namespace fusednorm {
namespace internal {
namespace {

// The view's axes by falling stride.
ByteView Sorted(ByteView view) {
  for (int i = 1; i < view.axes; ++i) {
    for (int j = i; j > 0 && view.stride[j] > view.stride[j - 1]; --j) {
      std::swap(view.stride[j], view.stride[j - 1]);
      std::swap(view.count[j], view.count[j - 1]);
    }
  }
  return view;
}

bool SameAxes(const ByteView& a, const ByteView& b) {
  return a.axes == b.axes && std::equal(a.count, a.count + a.axes, b.count) &&
         std::equal(a.stride, a.stride + a.axes, b.stride);
}

// Whether a row of a meets a row of b that lies `distance` bytes further along
// plus some whole steps of the axes from `axis` on. Strides fall and nest, so
// only the two multiples of a stride next to the distance can bring the rows
// together.
bool RowsMeet(const ByteView& a, const ByteView& b, int axis,
              int64_t distance) {
  if (axis >= a.axes || axis >= kMaxAxes) {
    return -b.row_bytes < distance && distance < a.row_bytes;
  }
  const int64_t steps = distance / a.stride[axis];  // Rounded towards zero.
  const int64_t limit = a.count[axis] - 1;
  for (int64_t n = steps - 1; n <= steps + 1; ++n) {
    if (n < -limit || n > limit) continue;
    if (RowsMeet(a, b, axis + 1, distance - n * a.stride[axis])) return true;
  }
  return false;
}

}  // namespace

bool OverlapsItself(const ByteView& view) {
  if (view.axes == 0) return false;
  if (view.axes == 1) return view.stride[0] < view.row_bytes;
  const ByteView sorted = Sorted(view);
  int64_t inner = sorted.row_bytes;
  for (int axis = sorted.axes - 1; axis >= 0; --axis) {
    if (sorted.stride[axis] < inner) return true;
    inner += (sorted.count[axis] - 1) * sorted.stride[axis];
  }
  return false;
}

bool RowsOverlap(const ByteView& a, const ByteView& b) {
  if (!SameAxes(a, b) || OverlapsItself(a) || OverlapsItself(b)) return true;
  return RowsMeet(Sorted(a), Sorted(b), 0,
                  static_cast<int64_t>(b.begin - a.begin));
}

}  // namespace internal
}  // namespace fusednorm

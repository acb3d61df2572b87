#include "kernels/overlap.h"

#include <algorithm>

#include "kernels/plan.h"

namespace fusednorm {
namespace internal {
namespace {

// The leading axes of more than one row, by falling stride (bytes).
struct Axes {
  explicit Axes(const ConstTensor& t) {
    const int64_t size = SizeOf(t.dtype);
    for (int axis = 0; axis < t.rank - 1; ++axis) {
      if (t.shape[axis] == 1) continue;
      int at = axes++;
      for (; at > 0 && stride[at - 1] < t.strides[axis] * size; --at) {
        stride[at] = stride[at - 1];
        count[at] = count[at - 1];
      }
      stride[at] = t.strides[axis] * size;
      count[at] = t.shape[axis];
    }
  }

  bool operator==(const Axes& other) const {
    return axes == other.axes && std::equal(count, count + axes, other.count) &&
           std::equal(stride, stride + axes, other.stride);
  }

  int axes = 0;
  int64_t count[kMaxAxes];
  int64_t stride[kMaxAxes];
};

bool Nest(const Axes& axes, int64_t row_bytes) {
  int64_t inner = row_bytes;
  for (int axis = axes.axes - 1; axis >= 0; --axis) {
    if (axes.stride[axis] < inner) return false;
    inner += (axes.count[axis] - 1) * axes.stride[axis];
  }
  return true;
}

// Whether a row of a meets a row of b that lies `distance` bytes further along
// plus some whole steps of their common axes from `axis` on. Strides fall and
// nest, so only the two multiples of a stride next to the distance can bring
// the rows together.
bool RowsMeet(const ByteView& a, const ByteView& b, const Axes& axes, int axis,
              int64_t distance) {
  if (axis >= axes.axes || axis >= kMaxAxes) {
    return -b.row_bytes < distance && distance < a.row_bytes;
  }
  const int64_t steps = distance / axes.stride[axis];  // Towards zero.
  const int64_t limit = axes.count[axis] - 1;
  for (int64_t n = steps - 1; n <= steps + 1; ++n) {
    if (n < -limit || n > limit) continue;
    if (RowsMeet(a, b, axes, axis + 1, distance - n * axes.stride[axis])) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool OverlapsItself(const ByteView& view) {
  return !Nest(Axes(*view.tensor), view.row_bytes);
}

bool RowsOverlap(const ByteView& a, const ByteView& b) {
  const Axes axes(*a.tensor);
  if (!(axes == Axes(*b.tensor)) || !Nest(axes, a.row_bytes) ||
      !Nest(axes, b.row_bytes)) {
    return true;
  }
  return RowsMeet(a, b, axes, 0, static_cast<int64_t>(b.begin - a.begin));
}

}  // namespace internal
}  // namespace fusednorm

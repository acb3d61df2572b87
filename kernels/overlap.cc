#include "kernels/overlap.h"

#include <algorithm>

#include "kernels/plan.h"

namespace fusednorm {
namespace internal {
namespace {

// The leading axes of more than one row.
struct Axes {
  explicit Axes(const ConstTensor& t) {
    for (int axis = 0; axis < t.rank - 1; ++axis) {
      if (t.shape[axis] == 1) continue;
      count[axes] = t.shape[axis];
      stride[axes++] = t.strides[axis] * SizeOf(t.dtype);
    }
  }

  bool operator==(const Axes& other) const {
    return axes == other.axes && std::equal(count, count + axes, other.count) &&
           std::equal(stride, stride + axes, other.stride);
  }

  int axes = 0;
  int64_t count[kMaxAxes];
  int64_t stride[kMaxAxes];  // Bytes.
};

// By falling stride.
Axes Sorted(Axes axes) {
  for (int i = 1; i < axes.axes; ++i) {
    for (int j = i; j > 0 && axes.stride[j] > axes.stride[j - 1]; --j) {
      std::swap(axes.stride[j], axes.stride[j - 1]);
      std::swap(axes.count[j], axes.count[j - 1]);
    }
  }
  return axes;
}

// Whether each stride spans the axes of smaller ones; of sorted axes.
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
  return !Nest(Sorted(Axes(*view.tensor)), view.row_bytes);
}

bool RowsOverlap(const ByteView& a, const ByteView& b) {
  const Axes own(*a.tensor);
  if (!(own == Axes(*b.tensor))) return true;
  const Axes axes = Sorted(own);
  if (!Nest(axes, std::max(a.row_bytes, b.row_bytes))) return true;
  return RowsMeet(a, b, axes, 0, static_cast<int64_t>(b.begin - a.begin));
}

}  // namespace internal
}  // namespace fusednorm

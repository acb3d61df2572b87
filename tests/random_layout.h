// Shapes, strides and contents drawn at random: rank 1 to 4, gaps, leading axes
// in any order in memory, rows that repeat, misaligned data, weights per head.
#ifndef FUSEDNORM_TESTS_RANDOM_LAYOUT_H_
#define FUSEDNORM_TESTS_RANDOM_LAYOUT_H_

#include <algorithm>
#include <vector>

#include "test_support.h"

namespace fusednorm {
namespace test {

using Numbers = std::vector<int64_t>;

inline DType RandomDType(Random& random) {
  return kFloatDTypes[random.Uniform(0, 2)];
}

inline int64_t RandomWidth(Random& random) {
  const int64_t kind = random.Uniform(0, 99);
  if (kind < 70) return random.Uniform(1, 140);
  if (kind < 97 || Subset()) return random.Uniform(141, 2200);
  return random.Uniform(2201, 20000);
}

// Rank 1 to 4 with up to 40 rows.
inline Numbers RandomShape(Random& random) {
  Numbers shape;
  int64_t rows_left = 40;
  for (int64_t axis = random.Uniform(0, 3); axis > 0; --axis) {
    shape.push_back(random.Uniform(1, std::min<int64_t>(rows_left, 9)));
    rows_left /= shape.back();
  }
  if (shape.size() == 1) shape[0] = random.Uniform(1, 40);
  shape.push_back(RandomWidth(random));
  return shape;
}

// Rows that do not overlap.
inline Layout RandomLayout(Random& random, const Numbers& shape) {
  Layout layout = Packed(shape, random.Uniform(0, 15));
  Numbers axes;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    axes.insert(axes.begin() + random.Uniform(0, static_cast<int64_t>(axis)),
                static_cast<int64_t>(axis));
  }
  int64_t stride = shape.back();
  for (int64_t axis : axes) {
    stride += random.Chance(50) ? random.Uniform(0, 70) : 0;
    layout.strides[static_cast<size_t>(axis)] = stride;
    stride *= shape[static_cast<size_t>(axis)];
  }
  // An axis of size 1 has no say in strides.
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1 && random.Chance(50)) {
      layout.strides[axis] = random.Pick(Numbers{0, 3, int64_t{1} << 40});
    }
  }
  return layout;
}

// Rows of an input may repeat or overlap.
inline Layout RandomInputLayout(Random& random, const Numbers& shape) {
  Layout layout = RandomLayout(random, shape);
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    if (random.Chance(10)) layout.strides[axis] = random.Pick(Numbers{0, 1, 5});
  }
  return layout;
}

// Half of the rows ordinary, the others of any kind.
inline Buffer RandomInput(Random& random, DType dtype, const Layout& layout) {
  Buffer buffer(dtype, layout);
  for (int64_t r = 0; r < buffer.rows(); ++r) {
    const Data data =
        random.Chance(50) ? Data::kNormal : kAllData[random.Uniform(0, 7)];
    FillRow(random, data, dtype, buffer.row(r), buffer.width());
  }
  return buffer;
}

// One row, or rows shared along some of x's leading axes.
inline Numbers RandomWeightShape(Random& random, const Numbers& shape) {
  Numbers weight_shape = {shape.back()};
  if (random.Chance(60)) return weight_shape;
  weight_shape = shape;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    if (random.Chance(50)) weight_shape[axis] = 1;
  }
  return weight_shape;
}

inline Buffer RandomWeight(Random& random, DType dtype, const Numbers& shape) {
  if (random.Chance(15)) return Buffer();
  const Numbers weight_shape = RandomWeightShape(random, shape);
  return RandomInput(random, dtype, RandomInputLayout(random, weight_shape));
}

// Which row of a weight (or dweight) belongs to row `r` of a tensor of this
// shape.
inline int64_t WeightRow(const Buffer& weight, const Numbers& shape,
                         int64_t r) {
  const Numbers& weight_shape = weight.layout().shape;
  if (weight_shape.size() != shape.size()) return 0;
  int64_t row = 0, step = 1;
  for (size_t axis = shape.size() - 1; axis-- > 0;) {
    if (weight_shape[axis] != 1) row += r % shape[axis] * step;
    r /= shape[axis];
    step *= weight_shape[axis];
  }
  return row;
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_RANDOM_LAYOUT_H_

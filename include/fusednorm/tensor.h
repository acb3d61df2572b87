// The tensor view that every operation takes: data pointer, dtype, shape and
// strides. It owns nothing and copies nothing.
#ifndef FUSEDNORM_TENSOR_H_
#define FUSEDNORM_TENSOR_H_

#include <cstdint>
#include <initializer_list>

namespace fusednorm {

// bf16 and f16 (IEEE binary16) cross this interface as raw 16-bit data. The
// values are those of the C ABI.
enum class DType : int32_t {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kF64 = 3,
  kI8 = 4,
  kF8E4M3 = 5,
  kQ8_0 = 6,
};

// A view of rank 1 to 4. The last axis is the row: `width` contiguous elements
// (its stride is 1). The leading axes may have any non-negative stride, counted
// in elements, so that a slice of a wider row or a transposed batch needs no
// copy; inputs may repeat rows with stride 0. An axis of size 1 has no say in
// strides. No alignment is asked beyond the element's own.
//
// A default-constructed view (rank 0, no data) stands for "no tensor" where an
// operation calls its argument optional.
template <typename Void>
struct BasicTensor {
  static constexpr int kMaxRank = 4;

  Void* data = nullptr;
  DType dtype = DType::kF32;
  int32_t rank = 0;
  int64_t shape[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};

  BasicTensor() = default;

  // A packed tensor: each stride is the product of the sizes to its right.
  BasicTensor(Void* data_in, DType dtype_in,
              std::initializer_list<int64_t> shape_in)
      : data(data_in),
        dtype(dtype_in),
        rank(static_cast<int32_t>(shape_in.size())) {
    Fill(shape, shape_in);
    uint64_t stride = 1;  // Unsigned: a shape that overflows is refused later.
    for (int axis = (rank < kMaxRank ? rank : kMaxRank) - 1; axis >= 0;
         --axis) {
      strides[axis] = static_cast<int64_t>(stride);
      stride *= static_cast<uint64_t>(shape[axis]);
    }
  }

  BasicTensor(Void* data_in, DType dtype_in,
              std::initializer_list<int64_t> shape_in,
              std::initializer_list<int64_t> strides_in)
      : BasicTensor(data_in, dtype_in, shape_in) {
    Fill(strides, strides_in);
  }

  // A Tensor serves wherever a ConstTensor is asked for.
  operator BasicTensor<const void>() const {
    BasicTensor<const void> view;
    view.data = data;
    view.dtype = dtype;
    view.rank = rank;
    for (int axis = 0; axis < kMaxRank; ++axis) {
      view.shape[axis] = shape[axis];
      view.strides[axis] = strides[axis];
    }
    return view;
  }

 private:
  static void Fill(int64_t* to, std::initializer_list<int64_t> from) {
    int axis = 0;
    for (int64_t value : from) {
      if (axis < kMaxRank) to[axis++] = value;
    }
  }
};

using Tensor = BasicTensor<void>;
using ConstTensor = BasicTensor<const void>;

}  // namespace fusednorm

#endif  // FUSEDNORM_TENSOR_H_

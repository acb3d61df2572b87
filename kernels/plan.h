// What one call asks for, once its arguments are checked: the Plan (dtypes and
// options) and the Geometry (where the rows are). Row kernels see a Plan and
// Rows, a run of rows at constant strides, and neither thread nor allocate.
#ifndef FUSEDNORM_KERNELS_PLAN_H_
#define FUSEDNORM_KERNELS_PLAN_H_

#include <cstdint>

#include "fusednorm/options.h"
#include "fusednorm/tensor.h"

namespace fusednorm {
namespace internal {

enum class Op : uint8_t {
  kRmsNorm,
  kAddRmsNorm,
  kRmsNormAdd,
  kRmsNormAddRmsNorm,
  kRowRstd,
  kRowSumSquares,
  kRmsNormWithRstd,
  kRmsNormBackward,
  kAddRmsNormBackward,
};

// The tensors that operations are made of; each has those that signature.cc
// lists. Values per row (rstd, sums) are tensors of width 1.
enum Operand : uint8_t {
  kX,         // Backward: x or h.
  kResidual,  // Backward: d_residual_out.
  kDy,
  kOut,  // Backward: dx or dh.
  kResidualOut,
  kWeight,       // In the sandwich that of the post norm ...
  kWeightPre,    // ... and of the norm after the addition.
  kRowOperands,  // Row kernels walk over those above, element by element.
  kDWeight = kRowOperands,
  kRstd,
  kSums,
  kOperands
};

// Sets what there is for each operand. Unrolled: GCC makes the loop a string
// instruction, which takes 5 ns to start.
template <typename T>
inline void FillOperands(T value, T (&of)[kOperands]) {
#pragma GCC unroll 16
  for (int k = 0; k < kOperands; ++k) of[k] = value;
}

constexpr int kMaxAxes = 3;  // Leading axes: all but the row.

struct Plan {
  Op op;
  DType dtype[kOperands];  // Of kResidualOut: residual's, also when absent.
  bool has[kOperands];
  // The operands of this call.
  Operand operands[kOperands];
  int count;
  int64_t width;
  float eps;
  float weight_offset;
  float residual_scale;
  Rounding rounding;
  Sum sum;
  Nontemporal nontemporal;
  bool accumulate;
  // Set when the work is shared out (parallel.cc): the rows do not stay in the
  // second cache, nor in the third, and stores to `out` are to bypass both.
  bool far;
  bool memory;
  bool stream;
  // The first cache has fewer than 12 places for lines whole pages apart.
  bool few_ways;
};

// Row i of operand k starts at data[k] + i * stride[k] (bytes). Absent
// operands are null with stride 0.
struct Rows {
  char* data[kOperands];
  int64_t stride[kOperands];
  int64_t count;
  void* sums;  // Backward operations: see backward.h.

  char* Row(Operand operand, int64_t row) const {
    return data[operand] + row * stride[operand];
  }
};

// All rows of a call: `axes` leading axes, outermost first. Only the operands
// of the plan are filled in.
struct Geometry {
  int64_t rows;  // The product of the counts.
  int axes;
  char* data[kOperands];
  struct Axis {
    int64_t count;
    int64_t stride[kOperands];  // Bytes.
  } axis[kMaxAxes];
};

// Rows that a vector kernel works on together.
constexpr int kGroup = 4;

// Computes all rows of a run; called under the default FP environment.
using RowKernel = void (*)(const Plan& plan, const Rows& rows);

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF64:
      return 8;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    default:  // kI8, kF8E4M3; Q8_0 is not made of elements.
      return 1;
  }
}

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_PLAN_H_

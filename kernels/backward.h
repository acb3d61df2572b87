// The backward operations: rows for dx, and sums over rows for dweight.
#ifndef FUSEDNORM_KERNELS_BACKWARD_H_
#define FUSEDNORM_KERNELS_BACKWARD_H_

#include <cstdint>

#include "fusednorm/options.h"
#include "fusednorm/status.h"
#include "kernels/plan.h"
#include "kernels/targets.h"

namespace fusednorm {
namespace internal {

// `run` computes dx of its rows, where wanted, and adds each row's dy * xh to
// rows.sums, where not null: f32, or f64 where the tensors are, as many as the
// width rounded up to a multiple of 64.
struct BackwardKernel {
  RowKernel run;
  // The order of the sums: 0 as in a row; else, in each 2 * lanes of them, the
  // even elements come before the odd ones.
  int64_t lanes;
};

// Where element i of a row is in sums of that order. A division would take
// longer than all else that is done for a gradient, but lanes are a power of 2.
inline int64_t SumPosition(int64_t i, int64_t lanes) {
  if (lanes == 0) return i;
  const int64_t in_pair = i & (2 * lanes - 1);
  return i - in_pair + (in_pair & 1) * lanes + in_pair / 2;
}

// Calls use(i, SumPosition(i, lanes)) for the elements of a row in turn. Pair
// by pair, in a third of the time that it takes to search for each position.
template <class Use>
void ForEachSum(int64_t width, int64_t lanes, const Use& use) {
  int64_t i = 0;
  if (lanes != 0) {
    for (; i + 2 * lanes <= width; i += 2 * lanes) {
      for (int64_t k = 0; k < lanes; ++k) {
        use(i + 2 * k, i + k);
        use(i + 2 * k + 1, i + lanes + k);
      }
    }
  }
  for (; i < width; ++i) use(i, SumPosition(i, lanes));
}

BackwardKernel SelectReferenceBackward(const Plan& plan);

// One row, for a vector kernel with sums of its order: where rstd is not finite
// the zeros past the end of a row would not stay zeros.
void BackwardRowByReference(const Plan& plan, const Rows& rows, int64_t index,
                            int64_t lanes);

BackwardKernel SelectBackward(Target target, const Plan& plan);

Status RunBackward(Target target, Plan* plan, const Geometry& geometry,
                   const Options& options);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_BACKWARD_H_

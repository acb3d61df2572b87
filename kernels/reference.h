// The scalar row kernels: the public reference, the target "scalar", and the
// path of exceptional rows for all other targets.
#ifndef FUSEDNORM_KERNELS_REFERENCE_H_
#define FUSEDNORM_KERNELS_REFERENCE_H_

#include "kernels/plan.h"

namespace fusednorm {
namespace internal {

// The forward operations.
RowKernel SelectReference(const Plan& plan);

// Does one row again from the start, where a vector kernel found its statistic
// not ordinary (see reduction.h). `sum_is_stored`: the kernel has stored
// residual_out already, over x or residual perhaps, so the sum is read there.
void ExceptionalRow(const Plan& plan, const Rows& rows, int64_t index,
                    bool sum_is_stored);

// rstd of a row, given or computed.
float ReferenceRstd(const Plan& plan, const Rows& rows, int64_t index);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_REFERENCE_H_

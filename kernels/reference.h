// The scalar row kernels: the public reference, the target "scalar", and the
// path of exceptional rows for all other targets.
#ifndef FUSEDNORM_KERNELS_REFERENCE_H_
#define FUSEDNORM_KERNELS_REFERENCE_H_

#include "kernels/plan.h"

namespace fusednorm {
namespace internal {

RowKernel SelectReference(const Plan& plan);

// Finishes one row whose statistic is not ordinary (see reduction.h) once the
// statistic pass is over: statistic and output again, in f64.
void ExceptionalRow(const Plan& plan, const Rows& rows, int64_t row);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_REFERENCE_H_

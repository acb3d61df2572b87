// Shares the rows of a call among threads.
#ifndef FUSEDNORM_KERNELS_PARALLEL_H_
#define FUSEDNORM_KERNELS_PARALLEL_H_

#include "fusednorm/options.h"
#include "kernels/plan.h"

namespace fusednorm {
namespace internal {

// Runs the kernel over all rows, on the calling thread where the work is small.
void RunRows(const Plan& plan, const Geometry& geometry, RowKernel kernel,
             const Options& options);

// OpenMP's threads do not survive a fork: from then on the child computes on
// its calling thread.
void InstallForkHandler();

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_PARALLEL_H_

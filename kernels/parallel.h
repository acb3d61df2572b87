// Shares the rows of a call among threads.
#ifndef FUSEDNORM_KERNELS_PARALLEL_H_
#define FUSEDNORM_KERNELS_PARALLEL_H_

#include <algorithm>
#include <cstdint>

#include "fusednorm/options.h"
#include "kernels/plan.h"

namespace fusednorm {
namespace internal {

// Runs the kernel over all rows, on the calling thread where the work is small.
// Decides how the rows meet the cache.
void RunRows(Plan* plan, const Geometry& geometry, RowKernel kernel,
             const Options& options);

// Rows [begin, end) as runs of constant strides: run(rows), in order.
template <class Run>
void ForEachRun(const Plan& plan, const Geometry& g, int64_t begin, int64_t end,
                Run run) {
  const int inner = g.axes - 1;
  while (begin < end) {
    int64_t index[kMaxAxes];
    int64_t rest = begin;
    for (int axis = inner; axis >= 0; --axis) {
      index[axis] = rest % g.axis[axis].count;
      rest /= g.axis[axis].count;
    }
    Rows rows;
    FillOperands<char*>(nullptr, rows.data);
    FillOperands<int64_t>(0, rows.stride);
    rows.sums = nullptr;
    rows.count = 1;
    if (inner >= 0) {
      rows.count = std::min(g.axis[inner].count - index[inner], end - begin);
    }
    for (int n = 0; n < plan.count; ++n) {
      const Operand k = plan.operands[n];
      rows.data[k] = g.data[k];
      rows.stride[k] = inner >= 0 ? g.axis[inner].stride[k] : 0;
      for (int axis = 0; axis <= inner; ++axis) {
        rows.data[k] += index[axis] * g.axis[axis].stride[k];
      }
    }
    run(rows);
    begin += rows.count;
  }
}

// Sets how the rows of one of `threads` threads meet the cache.
void PlanCache(const Geometry& geometry, int64_t threads, Plan* plan);

// The bytes that rows read and write; saturates.
int64_t BytesOf(const Plan& plan, int64_t rows);

// How many threads may share `bytes` of work in `blocks` parts: 1 where it is
// small, or where the calling thread has to do it alone.
int64_t ThreadsFor(int64_t bytes, int64_t blocks, const Options& options);

// body(arg, begin, end) over ranges that cover [0, blocks), on that many
// threads or on the caller's pool. Each sets up its own FP environment.
using Body = void (*)(void* arg, int64_t begin, int64_t end);
void RunParallel(int64_t blocks, int64_t threads, const Options& options,
                 Body body, void* arg);

// OpenMP's threads do not survive a fork: from then on the child computes on
// its calling thread.
void InstallForkHandler();

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_PARALLEL_H_

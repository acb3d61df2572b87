#include "kernels/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "kernels/fp_environment.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace fusednorm {
namespace internal {
namespace {

// Below this many bytes read and written a call is over before a second thread
// has begun.
constexpr int64_t kMinParallelBytes = 256 * 1024;

// What a thread takes at a time.
constexpr int64_t kBlockBytes = 64 * 1024;

std::atomic<bool> in_forked_child{false};

struct Work {
  const Plan& plan;
  const Geometry& geometry;
  RowKernel kernel;
  int64_t rows_per_block;
};

int64_t BytesPerRow(const Plan& plan) {
  int64_t bytes = 0;
  for (int k = 0; k < kOperands; ++k) {
    if (plan.has[k] && k != kWeight && k != kRstd) {
      bytes += plan.width * SizeOf(plan.dtype[k]);
    }
  }
  return bytes;
}

// Rows [begin, end) as runs along the innermost axis.
void RunRange(const Work& work, int64_t begin, int64_t end) {
  const ScopedFpEnvironment environment;
  const Geometry& g = work.geometry;
  const int inner = g.axes - 1;
  while (begin < end) {
    int64_t index[kMaxAxes];
    int64_t rest = begin;
    for (int axis = inner; axis >= 0; --axis) {
      index[axis] = rest % g.count[axis];
      rest /= g.count[axis];
    }
    Rows rows;
    rows.count = 1;
    if (inner >= 0) {
      rows.count = std::min(g.count[inner] - index[inner], end - begin);
    }
    for (int k = 0; k < kOperands; ++k) {
      rows.data[k] = g.data[k];
      rows.stride[k] = inner >= 0 ? g.stride[k][inner] : 0;
      for (int axis = 0; axis <= inner; ++axis) {
        rows.data[k] += index[axis] * g.stride[k][axis];
      }
    }
    work.kernel(work.plan, rows);
    begin += rows.count;
  }
}

void RunBlocks(void* arg, int64_t begin, int64_t end) {
  const Work& work = *static_cast<const Work*>(arg);
  RunRange(work, begin * work.rows_per_block,
           std::min(end * work.rows_per_block, work.geometry.rows));
}

#ifdef _OPENMP

bool InParallelRegion() { return omp_get_level() > 0; }

void RunOpenMp(Work* work, int64_t blocks, int32_t num_threads) {
  const int64_t wanted = num_threads > 0 ? num_threads : omp_get_max_threads();
  const int threads = static_cast<int>(std::min(wanted, blocks));
  if (threads <= 1) return RunBlocks(work, 0, blocks);
#pragma omp parallel num_threads(threads)
  {
    // Fewer threads than asked for may come.
    const int64_t count = omp_get_num_threads();
    const int64_t id = omp_get_thread_num();
    RunBlocks(work, blocks * id / count, blocks * (id + 1) / count);
  }
}

#else

bool InParallelRegion() { return false; }

void RunOpenMp(Work* work, int64_t blocks, int32_t) {
  RunBlocks(work, 0, blocks);
}

#endif  // _OPENMP

}  // namespace

void RunRows(const Plan& plan, const Geometry& geometry, RowKernel kernel,
             const Options& options) {
  const int64_t bytes_per_row = BytesPerRow(plan);
  Work work = {plan, geometry, kernel,
               std::max<int64_t>(1, kBlockBytes / bytes_per_row)};
  const bool small =
      geometry.rows == 1 || geometry.rows < kMinParallelBytes / bytes_per_row;
  if (options.num_threads == 1 || small ||
      in_forked_child.load(std::memory_order_relaxed) || InParallelRegion()) {
    return RunRange(work, 0, geometry.rows);
  }
  const int64_t blocks =
      (geometry.rows + work.rows_per_block - 1) / work.rows_per_block;
  if (options.parallel_for != nullptr) {
    options.parallel_for(options.parallel_context, blocks, &RunBlocks, &work);
  } else {
    RunOpenMp(&work, blocks, options.num_threads);
  }
}

void InstallForkHandler() {
  pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true); });
}

}  // namespace internal
}  // namespace fusednorm

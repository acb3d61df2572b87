#include "kernels/parallel.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "kernels/fp_environment.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace fusednorm {
namespace internal {
namespace {

// Below this many bytes read and written a call is over before a second thread
// is of use: two are 0.7 to 1.0 times as fast as one at 256 KiB, 0.9 to 1.5
// times at 512 (Skylake, Zen 4).
constexpr int64_t kMinParallelBytes = 512 * 1024;

// What a thread takes at a time: in whole groups of rows, which kernels work on
// together, where rows are not too long for that.
constexpr int64_t kBlockBytes = 128 * 1024;

int64_t RowsPerBlock(int64_t bytes_per_row) {
  const int64_t rows = std::max<int64_t>(1, kBlockBytes / bytes_per_row);
  return rows < kGroup ? rows : rows - rows % kGroup;
}

std::atomic<bool> in_forked_child{false};

// From this much output for each thread on, stores past the cache win even if
// the caller reads `out` at once (0.75 times as fast at 4 MB, 1.3 at 64 MB).
constexpr int64_t kMinStreamBytes = 32 * 1024 * 1024;

int64_t BytesPerRow(const Plan& plan) {
  int64_t bytes = 0;
  for (Operand k : {kX, kResidual, kDy, kOut, kResidualOut}) {
    if (plan.has[k]) bytes += plan.width * SizeOf(plan.dtype[k]);
  }
  return bytes;
}

// What Linux tells of a cache, without its unit; `unknown` if it does not.
int64_t CacheFact(int index, const char* name, int64_t unknown) {
  char path[64];
  std::snprintf(path, sizeof(path),
                "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return unknown;
  char text[16] = {};  // "32768K"
  const ssize_t length = read(file, text, sizeof(text) - 1);
  close(file);
  const int64_t fact = length > 0 ? std::strtoll(text, nullptr, 10) : 0;
  return fact > 0 ? fact : unknown;
}

// sysconf takes the third caches of a whole AMD package together in Debian 12's
// glibc, ten times what a core can use (f32 twice as large as the cache then
// took 1.4 times as long), and knows none on AArch64.
int64_t CacheBytes(int level, int64_t unknown_kib) {
  return 1024 * CacheFact(level, "size", unknown_kib);
}

// Index 0 is the first cache for data.
bool FirstCacheHasFewWays() {
  static const bool few = CacheFact(0, "ways_of_associativity", 8) < 12;
  return few;
}

// What stays close to a core.
int64_t SecondCacheBytes() {
  static const int64_t bytes = CacheBytes(2, 1024);
  return bytes;
}

// What a call may hope to find in the cache that cores share; 0 if not known.
int64_t ThirdCacheBytes() {
  static const int64_t bytes = CacheBytes(3, 0) / 4;
  return bytes;
}

int64_t Processors() {
  static const int64_t count = [] {
    const long known = sysconf(_SC_NPROCESSORS_ONLN);
    return known > 0 ? int64_t{known} : int64_t{1};
  }();
  return count;
}

bool OutIsAligned(const Geometry& g) {
  constexpr int64_t kVector = 64;  // The widest store.
  bool aligned = reinterpret_cast<uintptr_t>(g.data[kOut]) % kVector == 0;
  for (int axis = 0; axis < g.axes; ++axis) {
    aligned = aligned && g.axis[axis].stride[kOut] % kVector == 0;
  }
  return aligned;
}

bool OutIsInPlace(const Plan& plan, const Geometry& g) {
  for (Operand k : {kX, kResidual, kDy}) {
    if (plan.has[k] && g.data[kOut] == g.data[k]) return true;
  }
  return false;
}

struct Work {
  const Plan& plan;
  const Geometry& geometry;
  RowKernel kernel;
  int64_t rows_per_block;
};

void RunBlocks(void* arg, int64_t begin, int64_t end) {
  const Work& work = *static_cast<const Work*>(arg);
  const ScopedFpEnvironment environment;
  ForEachRun(work.plan, work.geometry, begin * work.rows_per_block,
             std::min(end * work.rows_per_block, work.geometry.rows),
             [&](const Rows& rows) { work.kernel(work.plan, rows); });
}

#ifdef _OPENMP

// The largest team that is asked for on machines with fewer cores.
constexpr int kMaxTeam = 64;

bool InParallelRegion() { return omp_get_level() > 0; }

int64_t MaxThreads() { return omp_get_max_threads(); }

void RunOpenMp(int64_t blocks, int64_t threads, Body body, void* arg) {
  // libgomp ends the process if it cannot start a thread.
  const int limit = std::max(kMaxTeam, omp_get_num_procs());
  const int team = static_cast<int>(std::min<int64_t>(threads, limit));
#pragma omp parallel num_threads(team)
  {
    // Fewer threads than asked for may come.
    const int64_t count = omp_get_num_threads();
    const int64_t id = omp_get_thread_num();
    body(arg, blocks * id / count, blocks * (id + 1) / count);
  }
}

#else

bool InParallelRegion() { return false; }

int64_t MaxThreads() { return 1; }

void RunOpenMp(int64_t blocks, int64_t, Body body, void* arg) {
  body(arg, 0, blocks);
}

#endif  // _OPENMP

}  // namespace

void PlanCache(const Geometry& g, int64_t threads, Plan* plan) {
  const int64_t bytes_per_row = BytesPerRow(*plan);
  // A caller's pool has more tasks than threads.
  const int64_t sharers = std::min(threads, Processors());
  const int64_t rows = (g.rows + sharers - 1) / sharers;
  const int64_t second = SecondCacheBytes();
  // Three groups of four rows, the last of them being fetched, must fit.
  const bool fits = bytes_per_row <= second / 8;
  const bool always = plan->nontemporal == Nontemporal::kAlways;
  const bool large =
      always ||
      (plan->has[kOut] &&
       rows >= kMinStreamBytes / (plan->width * SizeOf(plan->dtype[kOut])));
  plan->far = fits && (always || rows > second / bytes_per_row);
  plan->memory = plan->far &&
                 (large || rows > ThirdCacheBytes() / sharers / bytes_per_row);
  plan->stream = plan->far && large && plan->has[kOut] &&
                 plan->nontemporal != Nontemporal::kNever && OutIsAligned(g) &&
                 !OutIsInPlace(*plan, g);
  plan->few_ways = FirstCacheHasFewWays();
}

int64_t BytesOf(const Plan& plan, int64_t rows) {
  int64_t bytes;
  const bool fits = !__builtin_mul_overflow(BytesPerRow(plan), rows, &bytes);
  return fits ? bytes : INT64_MAX;
}

int64_t ThreadsFor(int64_t bytes, int64_t blocks, const Options& options) {
  if (options.num_threads == 1 || bytes < kMinParallelBytes ||
      in_forked_child.load(std::memory_order_relaxed) || InParallelRegion()) {
    return 1;
  }
  int64_t threads = options.num_threads;
  if (threads == 0) {
    // How many threads a caller's pool has is not known: many.
    threads = options.parallel_for != nullptr ? blocks : MaxThreads();
  }
  return std::min(threads, blocks);
}

void RunParallel(int64_t blocks, int64_t threads, const Options& options,
                 Body body, void* arg) {
  if (threads <= 1) {
    body(arg, 0, blocks);
  } else if (options.parallel_for != nullptr) {
    options.parallel_for(options.parallel_context, blocks, body, arg);
  } else {
    RunOpenMp(blocks, threads, body, arg);
  }
}

void RunRows(Plan* plan, const Geometry& geometry, RowKernel kernel,
             const Options& options) {
  const int64_t bytes = BytesOf(*plan, geometry.rows);
  // Most calls of a decoder: nothing to share out, nothing leaves the cache.
  if (bytes < kMinParallelBytes && plan->nontemporal != Nontemporal::kAlways) {
    return ForEachRun(*plan, geometry, 0, geometry.rows,
                      [&](const Rows& rows) { kernel(*plan, rows); });
  }
  const int64_t bytes_per_row = BytesPerRow(*plan);
  Work work = {*plan, geometry, kernel, RowsPerBlock(bytes_per_row)};
  const int64_t blocks =
      (geometry.rows + work.rows_per_block - 1) / work.rows_per_block;
  const int64_t threads = ThreadsFor(bytes, blocks, options);
  PlanCache(geometry, threads, plan);
  RunParallel(blocks, threads, options, &RunBlocks, &work);
}

void InstallForkHandler() {
  pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true); });
}

}  // namespace internal
}  // namespace fusednorm

// What every benchmark needs: the run's flags and context, memory, and timing
// in turn.
#ifndef FUSEDNORM_BENCH_HARNESS_H_
#define FUSEDNORM_BENCH_HARNESS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fusednorm {
namespace bench {

struct Flags {
  int max_cost = 2;      // --selection=quick|default|full
  int threads = 2;       // --threads=N: besides one
  double seconds = 0.1;  // Of timing per benchmark; more with full.
};

// Takes our flags out of argv and leaves Google Benchmark's. Exits on a flag
// that cannot be met.
Flags ParseFlags(int* argc, char** argv);

// What the figures depend on: CPU, clock, compiler, Highway, targets.
std::vector<std::pair<std::string, std::string>> Context();

// Of the last-level cache, in bytes; 32 MiB where the system does not tell.
size_t LastLevelCache();

// One buffer for all benchmarks, page-aligned. Null if it would take more than
// half of the machine's memory.
uint8_t* Memory(size_t bytes);

// Things to be timed against each other; run(n) does the thing n times.
struct Kernel {
  std::string name;
  std::function<void(int64_t calls)> run;
  bool is_roof = false;  // What the others are measured against.
};

using Samples = std::vector<double>;

struct Timing {
  std::vector<Samples> samples;  // Of each kernel, seconds per call.
  // The core was this thread's alone in all of them; not known of several
  // threads.
  bool alone;
};

// Times each kernel once in a round. In a round the kernels take turns, so that
// a slow spell of the machine hits all of them.
//   warm       one call that is not timed comes before each sample
//   min_calls  per sample; more where a call is short
//   threads    that a kernel uses
//   seconds    for all of it, unless the fewest rounds take longer; with one
//              thread as long again to wait for the core to be alone
// Rounds in which it was not are left out where there are enough others.
Timing TimeInTurn(const std::vector<Kernel>& kernels, bool warm,
                  int64_t min_calls, int threads, double seconds);

double Quantile(Samples samples, double q);
inline double Median(const Samples& samples) { return Quantile(samples, 0.5); }

// The median over the rounds of a / b.
double MedianRatio(const Samples& a, const Samples& b);

}  // namespace bench
}  // namespace fusednorm

#endif  // FUSEDNORM_BENCH_HARNESS_H_

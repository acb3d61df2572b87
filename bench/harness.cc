#include "bench/harness.h"

#include <benchmark/benchmark.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "bench/roofline.h"
#include "fusednorm/c.h"
#include "fusednorm/targets.h"
#include "hwy/highway.h"

namespace fusednorm {
namespace bench {
namespace {

// Long beside the clock's own cost, short beside the machine's moods.
constexpr double kSampleSeconds = 200e-6;
constexpr int64_t kMinRounds = 5;
constexpr int64_t kMaxRounds = 301;

// A neighbour on the core comes and goes within a millisecond or so: samples
// that are shorter are taken when it is away, if that takes no longer than this
// share of the time for all.
constexpr double kShortSampleSeconds = 1e-3;
constexpr double kPatience = 1;

// With one thread its own time, so that the turns of other processes do not
// count; with more the time that passes.
double Now(int threads) {
  timespec now;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

constexpr int kAdditions = 50000;

// Independent additions, some 5 microseconds of them: a core does as many in a
// cycle as it can, and half as many for this thread while a neighbour works on
// its other hardware thread.
double SecondsOfAdditions() {
  using Clock = std::chrono::steady_clock;
  constexpr int kIndependent = 5;
  uint64_t sum[kIndependent] = {};
  uint64_t one = 1;
  const auto start = Clock::now();
  for (int i = 0; i < kAdditions / kIndependent; ++i) {
#pragma GCC unroll 5
    for (uint64_t& s : sum) s += one;
    asm volatile(""
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]),
                   "+r"(sum[4]), "+r"(one));
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Whether they show that this thread has its core to itself: as far as it has
// seen until now, or at first for a core of today, which does at least four in
// a cycle.
bool IsAlone(double seconds) {
  static double best = kAdditions / (4 * ClockGHz() * 1e9);
  best = std::min(best, seconds);
  return seconds < 1.35 * best;
}

double Seconds(const Kernel& kernel, int64_t calls, int threads) {
  const double start = Now(threads);
  kernel.run(calls);
  return Now(threads) - start;
}

// A field of the first processor in /proc/cpuinfo; "" if it has none.
std::string CpuField(const std::string& field) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos &&
        line.find_first_of("\t:") == field.size() &&
        line.compare(0, field.size(), field) == 0) {
      return line.substr(colon + 2);
    }
  }
  return "";
}

std::string CpuName() {
  const std::string name = CpuField("model name");
  return name.empty() ? "unknown" : name;  // AArch64 kernels do not tell.
}

// What expectations are kept for: vendor, family and model.
std::string CpuFamily() {
  if (!CpuField("vendor_id").empty()) {
    return CpuField("vendor_id") + "-" + CpuField("cpu family") + "-" +
           CpuField("model");
  }
  return CpuField("CPU implementer") + "-" + CpuField("CPU part");
}

std::string Compiler() {
#if defined(__clang__)
  return std::string("Clang ") + __clang_version__;
#else
  return std::string("GCC ") + __VERSION__;
#endif
}

[[noreturn]] void Refuse(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(2);
}

void SetSelection(const std::string& value, Flags* flags) {
  if (value == "quick") {
    flags->max_cost = 1;
  } else if (value == "default") {
    flags->max_cost = 2;
  } else if (value == "full") {
    flags->max_cost = 3;
    flags->seconds = 0.15;
  } else if (value == "all") {
    flags->max_cost = std::numeric_limits<int>::max();
  } else {
    Refuse("--selection: quick, default, full or all, not " + value);
  }
}

void SetThreads(const std::string& value, Flags* flags) {
  flags->threads = std::atoi(value.c_str());
  if (flags->threads < 1) Refuse("--threads: a number from 1, not " + value);
}

int UsableThreads() {
#if defined(_OPENMP)
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
#else
  return 1;
#endif
}

// What is left of the time to wait for a neighbour, in seconds.
class Patience {
 public:
  explicit Patience(double seconds) : left_(seconds) {}
  bool AtEnd() const { return left_ <= 0; }
  // False: it came to its end.
  bool WaitUntilAlone() {
    for (;;) {
      const double seconds = SecondsOfAdditions();
      if (IsAlone(seconds)) return true;
      if (AtEnd()) return false;
      Lose(seconds);
    }
  }
  void Lose(double seconds) { left_ -= seconds; }

 private:
  double left_;
};

double Sample(const Kernel& kernel, int64_t calls, bool warm, int threads) {
  if (warm) kernel.run(1);
  return Seconds(kernel, calls, threads);
}

// Of one thread; alone: whether the core was its own.
double SampleAlone(const Kernel& kernel, int64_t calls, bool warm,
                   Patience* patience, bool* alone) {
  for (;;) {
    *alone = patience->WaitUntilAlone();
    const double seconds = Sample(kernel, calls, warm, /*threads=*/1);
    *alone = IsAlone(SecondsOfAdditions()) && *alone;
    if (*alone || patience->AtEnd() || seconds > kShortSampleSeconds) {
      return seconds;
    }
    patience->Lose(seconds);
  }
}

}  // namespace

Flags ParseFlags(int* argc, char** argv) {
  Flags flags;
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value =
        equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (name == "--selection") {
      SetSelection(value, &flags);
    } else if (name == "--threads") {
      SetThreads(value, &flags);
    } else {
      argv[kept++] = argv[i];
    }
  }
  *argc = kept;
  flags.threads = std::min(flags.threads, UsableThreads());
  return flags;
}

std::vector<std::pair<std::string, std::string>> Context() {
  char clock[32];
  std::snprintf(clock, sizeof(clock), "%.2f", ClockGHz());
  return {
      {"cpu", CpuName()},
      {"cpu_family", CpuFamily()},
      {"clock_ghz", clock},
      {"compiler", Compiler()},
      {"highway", std::to_string(HWY_MAJOR) + "." + std::to_string(HWY_MINOR) +
                      "." + std::to_string(HWY_PATCH)},
      {"fusednorm", fusednorm_version()},
      {"targets", TargetNames()},
  };
}

size_t LastLevelCache() {
  size_t bytes = 0;
  for (const auto& cache : benchmark::CPUInfo::Get().caches) {
    if (cache.type == "Instruction") continue;
    bytes = std::max(bytes, static_cast<size_t>(cache.size));
  }
  return bytes != 0 ? bytes : size_t{32} << 20;
}

uint8_t* Memory(size_t bytes) {
  static uint8_t* buffer = nullptr;
  static size_t capacity = 0;
  if (bytes <= capacity) return buffer;

  const size_t page = 4096;
  const size_t wanted = (bytes + page - 1) / page * page;
  const size_t machine = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                         static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (wanted > machine / 2) return nullptr;
  std::free(buffer);
  buffer = static_cast<uint8_t*>(std::aligned_alloc(page, wanted));
  capacity = buffer != nullptr ? wanted : 0;
  return buffer;
}

Timing TimeInTurn(const std::vector<Kernel>& kernels, bool warm,
                  int64_t min_calls, int threads, double seconds) {
  std::vector<int64_t> calls;
  double round = 0;
  for (const Kernel& kernel : kernels) {
    if (warm) kernel.run(min_calls);
    const double once =
        Seconds(kernel, min_calls, threads) / static_cast<double>(min_calls);
    const int64_t wanted = static_cast<int64_t>(kSampleSeconds / once);
    calls.push_back(std::max(min_calls, wanted));
    round += once * static_cast<double>(calls.back() + (warm ? 1 : 0));
  }
  const int64_t rounds =
      std::clamp(static_cast<int64_t>(seconds / round), kMinRounds, kMaxRounds);

  const bool waits = threads == 1;
  Patience patience(kPatience * seconds);
  std::vector<Samples> all(kernels.size());
  std::vector<Samples> alone(kernels.size());
  for (int64_t i = 0; i < rounds; ++i) {
    if (waits && patience.AtEnd() && i >= kMinRounds) break;
    Samples turns;
    bool round_alone = true;
    for (size_t k = 0; k < kernels.size(); ++k) {
      bool is_alone = false;
      const double taken =
          waits ? SampleAlone(kernels[k], calls[k], warm, &patience, &is_alone)
                : Sample(kernels[k], calls[k], warm, threads);
      turns.push_back(taken / static_cast<double>(calls[k]));
      round_alone = round_alone && is_alone;
    }
    for (size_t k = 0; k < kernels.size(); ++k) {
      all[k].push_back(turns[k]);
      if (round_alone) alone[k].push_back(turns[k]);
    }
  }
  const bool enough = alone[0].size() >= static_cast<size_t>(kMinRounds);
  return {enough ? alone : all, enough};
}

double Quantile(Samples samples, double q) {
  const double place = q * static_cast<double>(samples.size() - 1);
  const auto nth = samples.begin() + std::lround(place);
  std::nth_element(samples.begin(), nth, samples.end());
  return *nth;
}

double MedianRatio(const Samples& a, const Samples& b) {
  Samples ratios(a.size());
  std::transform(a.begin(), a.end(), b.begin(), ratios.begin(),
                 [](double x, double y) { return x / y; });
  return Median(ratios);
}

}  // namespace bench
}  // namespace fusednorm

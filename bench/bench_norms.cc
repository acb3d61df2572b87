// Every operation beside the best pass over the same bytes, and fused beside
// unfused. One benchmark is, for example,
//   rms_norm/bf16/once/avx2/4096x128/warm
// with /t2 at the end where it uses two threads. A shape of rows inside wider
// ones is 256x1536of2112, and 512x4096nt bypasses the cache. Its time is that
// of one call; its counters:
//   GB/s           bytes that must move, over time
//   roof           time of the best pass / time: 1 is the machine's limit
//   roof_GB/s      what that pass reached
//   memcpy         time of memcpy / time, where that is one of the passes
//   ns_per_row
//   cycles_per_32  of the core, for 32 elements
//   unfused        time of the separate operations / time
//   never, always  time without and with stores that bypass the cache / time,
//                  where out is read at once
//   spread         quartile distance of the time / median
//   MB             size of the rows, inputs and outputs
// Every output is compared with the reference's bits before and after.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>

#include "bench/harness.h"
#include "bench/problem.h"
#include "bench/roofline.h"

namespace fusednorm {
namespace bench {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF16 = DType::kF16;
constexpr Rounding kOnce = Rounding::kOnce, kBefore = Rounding::kBeforeWeight;

// x, residual or dy, weight, out.
constexpr Mix kMixes[] = {
    {"f32/once", kF32, kF32, kF32, kF32, kOnce, 0},
    {"bf16/once", kBF16, kBF16, kBF16, kBF16, kOnce, 0},
    {"bf16/before", kBF16, kBF16, kBF16, kBF16, kBefore, 1},
    {"f16/once", kF16, kF16, kF16, kF16, kOnce, 1},
    {"f16/before", kF16, kF16, kF16, kF16, kBefore, 3},
    {"bf16-w:f32/once", kBF16, kBF16, kF32, kBF16, kOnce, 1},
    {"f16-w:f32/once", kF16, kF16, kF32, kF16, kOnce, 3},
    {"bf16-stream:f32/once", kBF16, kF32, kBF16, kBF16, kOnce, 2},
    {"f32-out:bf16/once", kF32, kF32, kBF16, kBF16, kOnce, 2},
    {"bf16-out:f32/once", kBF16, kBF16, kBF16, kF32, kOnce, 3},
    {"f16-out:bf16/once", kF16, kF16, kF16, kBF16, kOnce, 3},
};

constexpr Shape kShapes[] = {
#define FUSEDNORM_SHAPE(...) {__VA_ARGS__},
#include "bench/shapes.inc"
#undef FUSEDNORM_SHAPE
};

bool any_failed = false;

void Fail(benchmark::State& state, const char* message) {
  std::fprintf(stderr, "%s\n", message);
  any_failed = true;
  state.SkipWithError(message);
}

size_t BestRoof(const std::vector<Kernel>& kernels,
                const std::vector<Samples>& samples) {
  size_t best = kernels.size();
  for (size_t k = 0; k < kernels.size(); ++k) {
    if (!kernels[k].is_roof) continue;
    if (best == kernels.size() || Median(samples[k]) < Median(samples[best])) {
      best = k;
    }
  }
  return best;
}

void SetCounters(benchmark::State& state, const Case& c,
                 const std::vector<Kernel>& kernels, const Timing& timing,
                 double clock) {
  const std::vector<Samples>& samples = timing.samples;
  const Samples& ours = samples[0];
  const double seconds = Median(ours);
  const double moved = static_cast<double>(c.MovedBytes());
  const double elements = static_cast<double>(c.Elements());
  const double rows = elements / static_cast<double>(c.shape.width);
  const size_t best = BestRoof(kernels, samples);

  state.counters["GB/s"] = moved / seconds * 1e-9;
  state.counters["roof"] = MedianRatio(samples[best], ours);
  state.counters["roof_GB/s"] = moved / Median(samples[best]) * 1e-9;
  state.counters["ns_per_row"] = seconds / rows * 1e9;
  state.counters["alone"] = timing.alone ? 1 : 0;
  state.counters["clock_ghz"] = clock;
  state.counters["cycles_per_32"] = seconds * clock * 1e9 / elements * 32;
  state.counters["spread"] =
      (Quantile(ours, 0.75) - Quantile(ours, 0.25)) / seconds;
  state.counters["MB"] = static_cast<double>(c.SetBytes()) * 1e-6;
  for (size_t k = 1; k < kernels.size(); ++k) {
    if (kernels[k].is_roof && kernels[k].name != "memcpy") continue;
    state.counters[kernels[k].name] = MedianRatio(samples[k], ours);
  }
  state.SetLabel(kernels[best].name + "; " + c.shape.models);
}

// The unfused gradient of the stream is rounded twice.
bool UnfusedHasOurBits(const Case& c) {
  const bool twice = c.op == Op::kAddRmsNormBackward && c.mix.x != DType::kF32;
  return !twice && c.op != Op::kRmsNorm && c.op != Op::kRmsNormThenRead &&
         c.mix.RowsAreUniform();
}

void Run(benchmark::State& state, const Case& c) {
  if (!SetTarget(c.target.c_str()).ok()) return Fail(state, "no such target");
  Problem problem(c);
  if (!problem.HasMemory()) {
    return state.SkipWithError("needs more than half of the memory");
  }
  if (!problem.Check() || (UnfusedHasOurBits(c) && !problem.CheckUnfused())) {
    return Fail(state, "output differs from the reference");
  }
  const std::vector<Kernel> kernels = problem.Kernels();
  for (auto _ : state) {
    const Timing timing =
        TimeInTurn(kernels, !c.cold, problem.Sets(), c.threads, c.seconds);
    // Some cores slow down for wide vectors: the clock of this kernel's.
    kernels.front().run(1);
    const double clock = ClockGHz();
    state.SetIterationTime(Median(timing.samples[0]));
    SetCounters(state, c, kernels, timing, clock);
  }
  if (!problem.Check()) Fail(state, "output differs after the timing");
}

bool Fits(Ops ops, Op op) {
  switch (op) {
    case Op::kRmsNorm:
      return ops != kThenRead;
    case Op::kRmsNormThenRead:
      return ops == kThenRead;
    case Op::kAddRmsNorm:
    case Op::kAddRmsNormInPlace:
      return ops == kAdd || ops == kAll;
    default:
      return ops == kAll;
  }
}

// Warm where the rows fit the caches, cold where they are more than a few
// lines: beyond that nothing but the price of a miss is seen.
bool MakesSense(const Case& c) {
  if (!Fits(c.shape.ops, c.op)) return false;
  const bool residual_differs = c.mix.second != c.mix.x;
  if (residual_differs && !TraitsOf(c.op).has_second) return false;
  if (c.mix.out != c.mix.x && !TraitsOf(c.op).has_x) return false;
  const bool backward =
      c.op == Op::kRmsNormBackward || c.op == Op::kAddRmsNormBackward;
  if (backward && c.mix.rounding != kOnce) return false;  // The same code.
  // It has no speed to defend; a look at it is enough.
  if (c.target == "scalar" && (c.cold || c.SetBytes() > 8 << 20)) return false;
  if (c.threads > 1 && c.SetBytes() < 256 << 10) return false;
  return c.cold ? c.SetBytes() >= 8192 : c.SetBytes() <= LastLevelCache();
}

void Register(const Case& c) {
  benchmark::RegisterBenchmark(c.Name().c_str(),
                               [c](benchmark::State& state) { Run(state, c); })
      ->Iterations(1)  // It makes its own rounds.
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void RegisterShape(const Flags& flags, const std::string& target, int cost,
                   Op op, const Shape& shape) {
  const std::set<int> thread_counts = {1, flags.threads};
  for (const int threads : thread_counts) {
    for (const bool cold : {false, true}) {
      for (const Mix& mix : kMixes) {
        const Case c = {op,   mix,  shape,   target,
                        cost, cold, threads, flags.seconds};
        if (c.Cost() <= flags.max_cost && MakesSense(c)) Register(c);
      }
    }
  }
}

void RegisterAll(const Flags& flags) {
  std::istringstream names(TargetNames());
  int cost = 0;  // The best target is the core, the scalar code the last.
  for (std::string target; names >> target; cost = 1) {
    const int target_cost = target == "scalar" ? 2 : cost;
    for (const Op op : kOps) {
      for (const Shape& shape : kShapes) {
        RegisterShape(flags, target, target_cost, op, shape);
      }
    }
  }
}

// One line per benchmark, as it ends; the table is made from the JSON.
class Progress : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const std::string& name = run.run_name.function_name;
      if (run.counters.count("GB/s") == 0) {  // See Fail.
        std::printf("%-54s no figures\n", name.c_str());
        continue;
      }
      std::printf("%-54s %10.3f us %7.1f GB/s %5.2f of %s\n", name.c_str(),
                  run.GetAdjustedRealTime(), run.counters.at("GB/s").value,
                  run.counters.at("roof").value, run.report_label.c_str());
      std::fflush(stdout);
    }
  }
};

}  // namespace
}  // namespace bench
}  // namespace fusednorm

int main(int argc, char** argv) {
  using namespace fusednorm::bench;
  const Flags flags = ParseFlags(&argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  if (std::strcmp(fusednorm::TargetNames(), "scalar") == 0) {
    std::fprintf(stderr, "This build and CPU have no vector target.\n");
    return 2;
  }
  for (const auto& [key, value] : Context()) {
    benchmark::AddCustomContext(key, value);
  }
  RegisterAll(flags);
  Progress progress;
  const size_t count = benchmark::RunSpecifiedBenchmarks(&progress);
  return count == 0 || any_failed ? 1 : 0;
}

// RmsNorm and AddRmsNorm (in place, as engines call it) beside the best copy of
// the same bytes, and fused beside unfused. One benchmark is, for example,
//   rms_norm/bf16/once/avx2/4096x128/warm
// Its time is that of one call; its counters:
//   GB/s           bytes of the rows that must move, over time
//   roof           time of the best copy / time: 1 is the machine's limit
//   roof_GB/s      what that copy reached
//   ns_per_row
//   cycles_per_32  of the core, for 32 elements
//   unfused        time of an addition followed by RmsNorm / time
//   spread         quartile distance of the time / median
//   MB             size of the rows, inputs and outputs
// Every output is compared with the reference's bits before and after.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <sstream>

#include "bench/harness.h"
#include "bench/problem.h"
#include "bench/roofline.h"

namespace fusednorm {
namespace bench {
namespace {

constexpr Variant kVariants[] = {
    {"f32/once", DType::kF32, DType::kF32, Rounding::kOnce, 0},
    {"bf16/once", DType::kBF16, DType::kBF16, Rounding::kOnce, 0},
    {"bf16/before", DType::kBF16, DType::kBF16, Rounding::kBeforeWeight, 1},
    {"f16/once", DType::kF16, DType::kF16, Rounding::kOnce, 1},
    {"f16/before", DType::kF16, DType::kF16, Rounding::kBeforeWeight, 3},
    {"bf16w32/once", DType::kBF16, DType::kF32, Rounding::kOnce, 2},
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

void SetCounters(benchmark::State& state, const Case& c,
                 const std::vector<Kernel>& kernels,
                 const std::vector<Samples>& samples, double clock) {
  const Samples& ours = samples[0];
  const double seconds = Median(ours);
  const double moved = static_cast<double>(c.MovedBytes());
  const double rows = static_cast<double>(c.shape.rows);
  const double elements = rows * static_cast<double>(c.shape.width);

  size_t best = c.add ? 2 : 1;  // Of the copies.
  for (size_t k = best; k < samples.size(); ++k) {
    if (Median(samples[k]) < Median(samples[best])) best = k;
  }

  state.counters["GB/s"] = moved / seconds * 1e-9;
  state.counters["roof"] = MedianRatio(samples[best], ours);
  state.counters["roof_GB/s"] = moved / Median(samples[best]) * 1e-9;
  state.counters["ns_per_row"] = seconds / rows * 1e9;
  state.counters["cycles_per_32"] = seconds * clock * 1e9 / elements * 32;
  state.counters["spread"] =
      (Quantile(ours, 0.75) - Quantile(ours, 0.25)) / seconds;
  state.counters["MB"] = static_cast<double>(c.SetBytes()) * 1e-6;
  if (c.add) state.counters["unfused"] = MedianRatio(samples[1], ours);
  state.SetLabel(kernels[best].name + "; " + c.shape.models);
}

void Run(benchmark::State& state, const Case& c) {
  if (!SetTarget(c.target.c_str()).ok()) return Fail(state, "no such target");
  Problem problem(c);
  if (!problem.HasMemory()) {
    return state.SkipWithError("needs more than half of the memory");
  }
  if (!problem.Check() || (c.add && !problem.CheckUnfused())) {
    return Fail(state, "output differs from the reference");
  }
  const std::vector<Kernel> kernels = problem.Kernels();
  for (auto _ : state) {
    const double clock_before = ClockGHz();
    const std::vector<Samples> samples =
        TimeInTurn(kernels, !c.cold, problem.Sets(), c.flags);
    const double clock = (clock_before + ClockGHz()) / 2;
    state.SetIterationTime(Median(samples[0]));
    SetCounters(state, c, kernels, samples, clock);
  }
  if (!problem.Check()) Fail(state, "output differs after the timing");
}

// Warm where the rows fit the caches, cold where they are more than a few
// lines: beyond that nothing but the price of a miss is seen.
bool MakesSense(const Case& c) {
  if (c.add && c.shape.ops == kNorm) return false;
  // It has no speed to defend; a look at it is enough.
  if (c.target == "scalar" && (c.cold || c.SetBytes() > 8 << 20)) return false;
  return c.cold ? c.SetBytes() >= 8192 : c.SetBytes() <= LastLevelCache();
}

void Register(const Case& c) {
  benchmark::RegisterBenchmark(c.Name().c_str(),
                               [c](benchmark::State& state) { Run(state, c); })
      ->Iterations(1)  // It makes its own rounds.
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void RegisterTarget(const Flags& flags, const std::string& target, int cost) {
  for (const bool add : {false, true}) {
    for (const bool cold : {false, true}) {
      for (const Shape& shape : kShapes) {
        for (const Variant& variant : kVariants) {
          const Case c = {add, variant, shape, target, cost, cold, flags};
          if (c.Cost() <= flags.max_cost && MakesSense(c)) Register(c);
        }
      }
    }
  }
}

void RegisterAll(const Flags& flags) {
  std::istringstream names(TargetNames());
  int cost = 0;  // The best target is the core, the scalar code the last.
  for (std::string target; names >> target; cost = 1) {
    RegisterTarget(flags, target, target == "scalar" ? 2 : cost);
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
        std::printf("%-46s no figures\n", name.c_str());
        continue;
      }
      std::printf("%-46s %10.3f us %7.1f GB/s %5.2f of %s\n", name.c_str(),
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
  DescribeRun(flags);
  RegisterAll(flags);
  Progress progress;
  const size_t count = benchmark::RunSpecifiedBenchmarks(&progress);
  return count == 0 || any_failed ? 1 : 0;
}

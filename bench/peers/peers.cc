// The comparison as a C interface for peers.py: one case at a time, ours, all
// peers and the roofline on the same buffers, in turn.
#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>

#include "bench/harness.h"
#include "bench/peers/peer.h"
#include "bench/problem.h"
#include "fusednorm/targets.h"
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace fusednorm {
namespace bench {
namespace {

constexpr struct {
  const char* name;
  MakePeer make;
} kPeers[] = {
    {"PyTorch", MakePyTorch},
    {"vLLM", MakeVllm},
#if defined(FUSEDNORM_GGML)
    {"ggml", MakeGgml},
#endif
#if defined(FUSEDNORM_ONEDNN)
    {"oneDNN", MakeOneDnn},
#endif
};

struct NamedCall {
  std::string name;
  PeerCall call;
};

struct Comparison {
  explicit Comparison(const Case& the_case)
      : c(the_case), problem(c), sets(problem.OperandsOfSets()) {}

  Case c;
  Problem problem;
  std::vector<Operands> sets;
  std::vector<NamedCall> peers;
  std::string answer;
};

Case MakeCase(const std::string& op, const std::string& dtype, int64_t rows,
              int64_t width, bool cold, int threads, double seconds) {
  Case c = {};
  for (const Op candidate : kOps) {
    if (op == TraitsOf(candidate).name) c.op = candidate;
  }
  const DType type = dtype == "bf16"  ? DType::kBF16
                     : dtype == "f16" ? DType::kF16
                                      : DType::kF32;
  // The sum as vLLM has it, our nearest rival.
  c.mix = {
      "", type, type, type, type, Rounding::kOnce, 0, Sum::kExactStatistic};
  c.shape.rows = rows;
  c.shape.width = width;
  c.target = TargetName();
  c.cold = cold;
  c.threads = threads;
  c.seconds = seconds;
  return c;
}

void Describe(const Comparison& all, const std::vector<Kernel>& kernels,
              const Timing& timing, const std::vector<Difference>& differences,
              std::ostream& json) {
  const std::vector<Samples>& samples = timing.samples;
  const double moved = static_cast<double>(all.c.MovedBytes());
  json << "[";
  for (size_t k = 0; k < kernels.size(); ++k) {
    const double median = Median(samples[k]);
    json << (k ? ", " : "") << "{\"name\": \"" << kernels[k].name
         << "\", \"roof\": " << kernels[k].is_roof
         << ", \"alone\": " << timing.alone << ", \"us\": " << median * 1e6
         << ", \"GB/s\": " << moved / median * 1e-9
         << ", \"ratio\": " << MedianRatio(samples[k], samples[0])
         << ", \"spread\": "
         << (Quantile(samples[k], 0.75) - Quantile(samples[k], 0.25)) / median;
    const size_t first = kernels.size() - all.peers.size();
    if (k >= first) {
      json << ", \"unequal\": " << differences[k - first].unequal
           << ", \"epsilons\": " << differences[k - first].epsilons;
    }
    json << "}";
  }
  json << "]";
}

std::string Measure(Comparison* all) {
  std::vector<Kernel> kernels = all->problem.Kernels();
  std::vector<Difference> differences;
  for (const NamedCall& peer : all->peers) {
    differences.push_back(all->problem.Compare(
        [&](size_t set) {
          peer.call.run(set);
          if (peer.call.fetch) peer.call.fetch(set);
        },
        peer.call.sum));
    kernels.push_back(all->problem.Peer(peer.name, peer.call.run));
  }
  if (!all->problem.Check()) return "";
  const Timing timing = TimeInTurn(kernels, !all->c.cold, all->problem.Sets(),
                                   all->c.threads, all->c.seconds);
  std::ostringstream json;
  Describe(*all, kernels, timing, differences, json);
  return json.str();
}

}  // namespace
}  // namespace bench
}  // namespace fusednorm

extern "C" {

using fusednorm::bench::Comparison;
#define PEERS_API __attribute__((visibility("default")))

// Null if there is not enough memory.
PEERS_API Comparison* peers_open(const char* op, const char* dtype,
                                 int64_t rows, int64_t width, int cold,
                                 int threads, double seconds) {
  using namespace fusednorm::bench;
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#endif
  auto all = std::make_unique<Comparison>(
      MakeCase(op, dtype, rows, width, cold != 0, threads, seconds));
  if (!all->problem.HasMemory()) return nullptr;
  for (const auto& peer : kPeers) {
    PeerCall call = peer.make(all->c, all->sets);
    if (call.run) all->peers.push_back({peer.name, std::move(call)});
  }
  return all.release();
}

PEERS_API int64_t peers_sets(const Comparison* all) {
  return all->problem.Sets();
}

// 0: x, 1: residual or dy, 2: out, 3: weight.
PEERS_API const void* peers_data(const Comparison* all, int64_t set,
                                 int tensor) {
  const fusednorm::bench::Operands& t = all->sets[static_cast<size_t>(set)];
  const void* const data[] = {t.x.data, t.second.data, t.out.data,
                              t.weight.data};
  return data[tensor];
}

// A peer that is called from Python.
PEERS_API void peers_add(Comparison* all, const char* name,
                         void (*run)(size_t set), int exact_sum) {
  fusednorm::bench::PeerCall call;
  call.run = run;
  if (exact_sum) call.sum = fusednorm::Sum::kExact;
  all->peers.push_back({name, std::move(call)});
}

// JSON, or "" if our own result is wrong.
PEERS_API const char* peers_measure(Comparison* all) {
  all->answer = fusednorm::bench::Measure(all);
  return all->answer.c_str();
}

PEERS_API void peers_close(Comparison* all) { delete all; }

// What the figures depend on, as JSON.
PEERS_API const char* peers_context() {
  static std::string json;
  std::ostringstream out;
  out << "{";
  for (const auto& [key, value] : fusednorm::bench::Context()) {
    out << (out.tellp() > 1 ? ", " : "") << '"' << key << "\": \"" << value
        << '"';
  }
  out << "}";
  json = out.str();
  return json.c_str();
}

}  // extern "C"

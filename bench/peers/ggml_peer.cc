// ggml: rms_norm and mul, which its CPU backend fuses, in f32.
#include <ggml-cpu.h>
#include <ggml.h>

#include <memory>

#include "bench/peers/peer.h"

namespace fusednorm {
namespace bench {
namespace {

struct Graph {
  ggml_context* context = nullptr;
  ggml_cgraph* graph = nullptr;
  ggml_cplan plan;
  std::vector<uint8_t> work;

  Graph() = default;
  Graph(const Graph&) = delete;
  ~Graph() { ggml_free(context); }
};

template <class View>
ggml_tensor* Wrap(ggml_context* context, const View& view) {
  ggml_tensor* tensor =
      ggml_new_tensor_2d(context, GGML_TYPE_F32, view.shape[view.rank - 1],
                         view.rank == 2 ? view.shape[0] : 1);
  tensor->data = const_cast<void*>(view.data);
  return tensor;
}

void Make(const Case& c, const Operands& set, ggml_threadpool* pool, Graph* g) {
  g->context = ggml_init(
      {16 * ggml_tensor_overhead() + ggml_graph_overhead_custom(8, false),
       nullptr, /*no_alloc=*/true});
  g->graph = ggml_new_graph_custom(g->context, 8, false);
  ggml_tensor* x = nullptr;
  if (c.op == Op::kRmsNorm) {
    x = Wrap(g->context, set.x);
  } else {
    x = ggml_add_inplace(g->context, Wrap(g->context, set.second),
                         Wrap(g->context, set.out));
    x->data = set.second.data;
  }
  ggml_tensor* norm = ggml_rms_norm(g->context, x, kPeerEps);
  norm->data = set.out.data;
  ggml_tensor* out =
      ggml_mul_inplace(g->context, norm, Wrap(g->context, set.weight));
  out->data = set.out.data;
  ggml_build_forward_expand(g->graph, out);
  g->plan = ggml_graph_plan(g->graph, c.threads, pool);
  g->work.resize(g->plan.work_size);
  g->plan.work_data = g->work.data();
}

}  // namespace

PeerCall MakeGgml(const Case& c, const std::vector<Operands>& sets) {
  PeerCall call;
  if (c.mix.x != DType::kF32) return call;
  if (c.op != Op::kRmsNorm && c.op != Op::kAddRmsNormInPlace) return call;
  ggml_cpu_init();
  ggml_threadpool_params params = ggml_threadpool_params_default(c.threads);
  // Threads that poll would take the other peers' time.
  params.poll = 0;
  const std::shared_ptr<ggml_threadpool> pool(ggml_threadpool_new(&params),
                                              ggml_threadpool_free);
  const auto graphs = std::make_shared<std::vector<Graph>>(sets.size());
  for (size_t i = 0; i < sets.size(); ++i) {
    Make(c, sets[i], pool.get(), &(*graphs)[i]);
  }
  call.run = [graphs, pool](size_t set) {
    ggml_graph_compute((*graphs)[set].graph, &(*graphs)[set].plan);
  };
  return call;
}

}  // namespace bench
}  // namespace fusednorm

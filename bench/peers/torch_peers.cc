// PyTorch, and vLLM's CPU operations, through PyTorch's dispatcher.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>

#include "bench/peers/peer.h"

namespace fusednorm {
namespace bench {
namespace {

at::ScalarType TorchType(DType dtype) {
  if (dtype == DType::kBF16) return at::kBFloat16;
  return dtype == DType::kF16 ? at::kHalf : at::kFloat;
}

template <class View>
at::Tensor Wrap(const View& view) {
  const at::IntArrayRef shape(view.shape, static_cast<size_t>(view.rank));
  return at::from_blob(const_cast<void*>(view.data), shape,
                       TorchType(view.dtype));
}

struct Tensors {
  at::Tensor x, second, out, weight;
  at::Tensor result;
  std::vector<at::Tensor> gradients;
};
using AllTensors = std::shared_ptr<std::vector<Tensors>>;

AllTensors WrapAll(const Case& c, const std::vector<Operands>& sets) {
  const auto all = std::make_shared<std::vector<Tensors>>();
  for (const Operands& set : sets) {
    Tensors t;
    t.x = Wrap(set.x);
    t.out = Wrap(set.out);
    t.weight = Wrap(set.weight);
    if (TraitsOf(c.op).has_second) t.second = Wrap(set.second);
    all->push_back(t);
  }
  return all;
}

at::Tensor Norm(const at::Tensor& x, const at::Tensor& weight) {
  return at::rms_norm(x, weight.sizes(), weight, double{kPeerEps});
}

// The graph of the forward pass is made once and kept.
PeerCall Backward(const AllTensors& all) {
  for (Tensors& t : *all) {
    t.x.requires_grad_();
    t.weight.requires_grad_();
    t.result = Norm(t.x, t.weight);
  }
  PeerCall call;
  call.run = [all](size_t set) {
    Tensors& t = (*all)[set];
    t.gradients = torch::autograd::grad({t.result}, {t.x, t.weight}, {t.second},
                                        /*retain_graph=*/true);
  };
  call.fetch = [all](size_t set) {
    const at::NoGradGuard guard;
    (*all)[set].out.copy_((*all)[set].gradients[0]);
  };
  return call;
}

}  // namespace

PeerCall MakePyTorch(const Case& c, const std::vector<Operands>& sets) {
  const AllTensors all = WrapAll(c, sets);
  if (c.op == Op::kRmsNormBackward) return Backward(all);
  PeerCall call;
  if (c.op == Op::kRmsNorm) {
    call.run = [all](size_t set) {
      const c10::InferenceMode guard;
      Tensors& t = (*all)[set];
      t.result = Norm(t.x, t.weight);
    };
  } else if (c.op == Op::kAddRmsNormInPlace) {
    call.run = [all](size_t set) {
      const c10::InferenceMode guard;
      Tensors& t = (*all)[set];
      t.second.add_(t.out);
      t.result = Norm(t.second, t.weight);
    };
  }
  call.fetch = [all](size_t set) {
    const c10::InferenceMode guard;
    (*all)[set].out.copy_((*all)[set].result);
  };
  return call;
}

PeerCall MakeVllm(const Case& c, const std::vector<Operands>& sets) {
  PeerCall call;
  auto& dispatcher = c10::Dispatcher::singleton();
  const char* name = c.op == Op::kRmsNorm             ? "_C::rms_norm"
                     : c.op == Op::kAddRmsNormInPlace ? "_C::fused_add_rms_norm"
                                                      : "";
  const auto schema = dispatcher.findSchema({name, ""});
  if (!schema.has_value()) return call;  // Not loaded.
  using Function =
      void(at::Tensor&, at::Tensor&, std::optional<at::Tensor>, double);
  const auto function = schema->typed<Function>();
  const AllTensors all = WrapAll(c, sets);
  if (c.op == Op::kRmsNorm) {
    call.run = [all, function](size_t set) {
      const c10::InferenceMode guard;
      Tensors& t = (*all)[set];
      function.call(t.out, t.x, t.weight, kPeerEps);
    };
    return call;
  }
  call.run = [all, function](size_t set) {
    const c10::InferenceMode guard;
    Tensors& t = (*all)[set];
    function.call(t.out, t.second, t.weight, kPeerEps);
  };
  call.sum = Sum::kExactStatistic;
  return call;
}

}  // namespace bench
}  // namespace fusednorm

// oneDNN: layer normalisation with its RMS flag. It has no fused addition.
#include <dnnl.hpp>

#include <memory>
#include <unordered_map>

#include "bench/peers/peer.h"

namespace fusednorm {
namespace bench {
namespace {

using dnnl::memory;

memory::desc Describe(DType dtype, const memory::dims& shape) {
  const auto type = dtype == DType::kF32    ? memory::data_type::f32
                    : dtype == DType::kBF16 ? memory::data_type::bf16
                                            : memory::data_type::f16;
  const auto tag =
      shape.size() == 1 ? memory::format_tag::a : memory::format_tag::ab;
  return {shape, type, tag};
}

}  // namespace

PeerCall MakeOneDnn(const Case& c, const std::vector<Operands>& sets) {
  PeerCall call;
  if (c.op != Op::kRmsNorm) return call;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto rows = Describe(c.mix.x, {c.shape.rows, c.shape.width});
  const auto weight = Describe(c.mix.weight, {c.shape.width});
  std::shared_ptr<dnnl::layer_normalization_forward> primitive;
  try {
    const dnnl::layer_normalization_forward::primitive_desc description(
        engine, dnnl::prop_kind::forward_inference, rows, rows,
        weight.get_data_type(), kPeerEps,
        dnnl::normalization_flags::use_scale |
            dnnl::normalization_flags::rms_norm);
    primitive =
        std::make_shared<dnnl::layer_normalization_forward>(description);
  } catch (const dnnl::error&) {
    return call;  // Not for this dtype on this CPU.
  }
  using Arguments = std::unordered_map<int, memory>;
  const auto all = std::make_shared<std::vector<Arguments>>();
  for (const Operands& set : sets) {
    all->push_back(
        {{DNNL_ARG_SRC, memory(rows, engine, const_cast<void*>(set.x.data))},
         {DNNL_ARG_DST, memory(rows, engine, set.out.data)},
         {DNNL_ARG_SCALE,
          memory(weight, engine, const_cast<void*>(set.weight.data))}});
  }
  const auto stream = std::make_shared<dnnl::stream>(engine);
  call.run = [all, primitive, stream](size_t set) {
    primitive->execute(*stream, (*all)[set]);
    stream->wait();
  };
  return call;
}

}  // namespace bench
}  // namespace fusednorm

// What a peer brings to the comparison.
#ifndef FUSEDNORM_BENCH_PEERS_PEER_H_
#define FUSEDNORM_BENCH_PEERS_PEER_H_

#include <functional>
#include <vector>

#include "bench/operation.h"
#include "bench/problem.h"

namespace fusednorm {
namespace bench {

constexpr float kPeerEps = 1e-6f;  // The default of Options.

// A peer's operation on any of several sets of tensors; what an engine would
// prepare once is prepared.
struct PeerCall {
  Problem::SetCall run;  // Null: the peer has no such operation.
  // Copies the result to out where the peer makes a tensor of its own.
  Problem::SetCall fetch;
  Sum sum = Sum::kRounded;  // Of the semantics that the peer has.
};
using MakePeer = PeerCall (*)(const Case& c, const std::vector<Operands>& sets);

PeerCall MakePyTorch(const Case& c, const std::vector<Operands>& sets);
PeerCall MakeVllm(const Case& c, const std::vector<Operands>& sets);
PeerCall MakeGgml(const Case& c, const std::vector<Operands>& sets);
PeerCall MakeOneDnn(const Case& c, const std::vector<Operands>& sets);

}  // namespace bench
}  // namespace fusednorm

#endif  // FUSEDNORM_BENCH_PEERS_PEER_H_

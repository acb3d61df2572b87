#include "bench/operation.h"

#include "fusednorm/reference.h"

namespace fusednorm {
namespace bench {
namespace {

// The library and its reference have the same functions.
struct Functions {
  decltype(&RmsNorm) rms_norm;
  decltype(&AddRmsNorm) add_rms_norm;
  decltype(&RmsNormAdd) rms_norm_add;
  decltype(&RmsNormAddRmsNorm) rms_norm_add_rms_norm;
  decltype(&RmsNormBackward) backward;
  decltype(&AddRmsNormBackward) add_backward;
};
constexpr Functions kTarget = {RmsNorm,         AddRmsNorm,
                               RmsNormAdd,      RmsNormAddRmsNorm,
                               RmsNormBackward, AddRmsNormBackward};
constexpr Functions kReference = {
    reference::RmsNorm,         reference::AddRmsNorm,
    reference::RmsNormAdd,      reference::RmsNormAddRmsNorm,
    reference::RmsNormBackward, reference::AddRmsNormBackward};

}  // namespace

const OpTraits& TraitsOf(Op op) {
  constexpr bool y = true, n = false;
  static constexpr OpTraits kTraits[] = {
      {"rms_norm", Streams::kCopy, y, n, n, n, 0},
      {"rms_norm_then_read", Streams::kCopy, y, n, n, n, 1},
      {"add_rms_norm", Streams::kAdd, y, y, n, n, 0},
      {"add_rms_norm_in_place", Streams::kRewrite, n, y, y, n, 1},
      {"rms_norm_add", Streams::kMerge, y, y, n, n, 1},
      {"rms_norm_add_rms_norm", Streams::kAdd, y, y, n, n, 0},
      {"rms_norm_backward", Streams::kMerge, y, y, n, n, 0},
      {"add_rms_norm_backward", Streams::kMergeInPlace, y, y, y, y, 1},
  };
  return kTraits[static_cast<int>(op)];
}

Status Call(Backend backend, Op op, const Operands& t, const Options& options) {
  const Functions& f = backend == Backend::kTarget ? kTarget : kReference;
  switch (op) {
    case Op::kRmsNorm:
    case Op::kRmsNormThenRead:
      return f.rms_norm(t.x, t.weight, t.out, options);
    case Op::kAddRmsNorm:
      return f.add_rms_norm(t.x, t.second, t.weight, t.out, t.second, options);
    case Op::kAddRmsNormInPlace:
      return f.add_rms_norm(t.out, t.second, t.weight, t.out, t.second,
                            options);
    case Op::kRmsNormAdd:
      return f.rms_norm_add(t.x, t.second, t.weight, t.out, options);
    case Op::kRmsNormAddRmsNorm:
      return f.rms_norm_add_rms_norm(t.x, t.second, t.weight, t.weight, t.out,
                                     t.second, options);
    case Op::kRmsNormBackward:
      return f.backward(t.x, t.weight, t.second, t.out, t.dweight, options);
    case Op::kAddRmsNormBackward:
      return f.add_backward(t.x, t.weight, t.second, t.out, t.out, t.dweight,
                            options);
  }
  return {};
}

}  // namespace bench
}  // namespace fusednorm

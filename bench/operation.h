// The operations that are measured, and one call for all of them.
#ifndef FUSEDNORM_BENCH_OPERATION_H_
#define FUSEDNORM_BENCH_OPERATION_H_

#include "bench/roofline.h"
#include "fusednorm/fusednorm.h"

namespace fusednorm {
namespace bench {

enum class Op {
  kRmsNorm,
  kRmsNormThenRead,  // Followed by a reader of out, as in a model.
  kAddRmsNorm,
  kAddRmsNormInPlace,  // x is out.
  kRmsNormAdd,
  kRmsNormAddRmsNorm,
  kRmsNormBackward,
  kAddRmsNormBackward,
};
constexpr Op kOps[] = {
    Op::kRmsNorm,           Op::kRmsNormThenRead,    Op::kAddRmsNorm,
    Op::kAddRmsNormInPlace, Op::kRmsNormAdd,         Op::kRmsNormAddRmsNorm,
    Op::kRmsNormBackward,   Op::kAddRmsNormBackward,
};

struct OpTraits {
  const char* name;
  Streams streams;   // What must move.
  bool has_x;        // Apart from out.
  bool has_second;   // A second tensor beside x: residual or dy.
  bool out_is_read;  // It is an input as well.
  bool has_scratch;  // The unfused form needs room.
  int cost;
};
const OpTraits& TraitsOf(Op op);

// The tensors of an operation, as engines and trainers pass them: the residual
// and the gradient of the stream are updated in place.
struct Operands {
  ConstTensor x;
  ConstTensor weight;
  Tensor second;  // residual or dy
  Tensor out;     // out, dx; d_residual_out and dh; in place also x
  Tensor dweight;
};

enum class Backend { kTarget, kReference };
Status Call(Backend backend, Op op, const Operands& operands,
            const Options& options);

}  // namespace bench
}  // namespace fusednorm

#endif  // FUSEDNORM_BENCH_OPERATION_H_

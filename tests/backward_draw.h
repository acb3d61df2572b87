// Backward calls drawn at random.
#ifndef FUSEDNORM_TESTS_BACKWARD_DRAW_H_
#define FUSEDNORM_TESTS_BACKWARD_DRAW_H_

#include <cmath>
#include <vector>

#include "backward_call.h"
#include "random_layout.h"
#include "test_support.h"

namespace fusednorm {
namespace test {

struct BackwardDTypes {
  DType x, weight, dy, d_residual_out, dx;
};

inline BackwardDTypes Uniform(DType dtype) {
  return {dtype, dtype, dtype, dtype, dtype};
}

inline BackwardDTypes RandomBackwardDTypes(Random& random) {
  if (random.Chance(50)) return Uniform(RandomDType(random));
  return {RandomDType(random), RandomDType(random), RandomDType(random),
          RandomDType(random), RandomDType(random)};
}

// f32, f64, or the weight's.
inline DType RandomDWeightDType(Random& random, const Buffer& weight) {
  const int64_t choice = random.Uniform(0, 2);
  if (choice == 2 && !weight.empty()) return weight.dtype();
  return choice == 0 ? DType::kF32 : DType::kF64;
}

inline std::vector<float> RandomRstd(Random& random, int64_t rows) {
  const std::vector<float> odd = {0.0f, -2.5f, 1e30f, 1e-42f, INFINITY, NAN};
  std::vector<float> rstd;
  for (int64_t r = 0; r < rows; ++r) {
    rstd.push_back(random.Chance(80)
                       ? static_cast<float>(0.1 + 3 * random.Unit())
                       : random.Pick(odd));
  }
  return rstd;
}

// Options, rstd and dweight of a call whose tensors are there.
inline void DrawRest(Random& random, const Numbers& shape, BackwardCall& call) {
  using Floats = std::vector<float>;
  const bool f64 = call.x.dtype() == DType::kF64;
  Options& options = call.options;
  options.eps = random.Pick(Floats{1e-6f, 1e-5f, 0.0f, 1e-19f, 0.5f});
  options.weight_offset = random.Pick(Floats{0.0f, 0.0f, 1.0f, -0.5f});
  // They must change nothing.
  options.rounding = static_cast<Rounding>(random.Uniform(0, 1));
  options.sum = static_cast<Sum>(random.Uniform(0, 2));
  options.nontemporal = static_cast<Nontemporal>(random.Uniform(0, 2));
  options.num_threads = 1;
  if (random.Chance(30) && !f64) {
    call.rstd = RandomRstd(random, call.x.rows());
  }
  if (random.Chance(20)) return;
  const Numbers dweight_shape = call.weight.empty()
                                    ? RandomWeightShape(random, shape)
                                    : call.weight.layout().shape;
  const DType dtype =
      f64 ? DType::kF64 : RandomDWeightDType(random, call.weight);
  call.dweight = Buffer(dtype, RandomLayout(random, dweight_shape));
  call.dweight.Fill(random, Data::kNormal);
  options.accumulate = random.Chance(40);
}

// Packed tensors of this shape. dx, dweight or neither may be missing.
inline BackwardCall DrawBackward(Random& random, BackwardOp op,
                                 const BackwardDTypes& dtypes,
                                 const Numbers& shape) {
  const auto input = [&](DType dtype) {
    return RandomInput(random, dtype, Packed(shape, random.Uniform(0, 15)));
  };
  BackwardCall call;
  call.op = op;
  call.x = input(dtypes.x);
  call.weight = RandomWeight(random, dtypes.weight, shape);
  call.dy = input(dtypes.dy);
  if (op == BackwardOp::kAddRmsNorm && random.Chance(80)) {
    call.d_residual_out = input(dtypes.d_residual_out);
  }
  DrawRest(random, shape, call);
  if (call.dweight.empty() || random.Chance(85)) {
    call.dx = Buffer(dtypes.dx, Packed(shape, random.Uniform(0, 15)));
  }
  return call;
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_BACKWARD_DRAW_H_

// One backward call as a value: inputs, blank outputs (with what dweight is
// added to), options. It can be run by any implementation, with dx on any of
// its inputs, and its results compared.
#ifndef FUSEDNORM_TESTS_BACKWARD_CALL_H_
#define FUSEDNORM_TESTS_BACKWARD_CALL_H_

#include <string>
#include <vector>

#include "test_support.h"

namespace fusednorm {
namespace test {

enum class BackwardOp { kRmsNorm, kAddRmsNorm };
constexpr BackwardOp kBackwardOps[] = {BackwardOp::kRmsNorm,
                                       BackwardOp::kAddRmsNorm};

inline std::string Name(BackwardOp op) {
  return op == BackwardOp::kRmsNorm ? "RmsNormBackward" : "AddRmsNormBackward";
}

// By the names of RmsNormBackward: x is h and dx is dh in the other.
struct BackwardViews {
  BackwardOp op = BackwardOp::kRmsNorm;
  Tensor x, weight, dy, d_residual_out, dx, dweight;
  Options options;

  Status Run(const Implementation& implementation) const {
    const bool reference = implementation.target.empty();
    if (op == BackwardOp::kRmsNorm) {
      return (reference ? reference::RmsNormBackward : RmsNormBackward)(
          x, weight, dy, dx, dweight, options);
    }
    return (reference ? reference::AddRmsNormBackward : AddRmsNormBackward)(
        x, weight, dy, d_residual_out, dx, dweight, options);
  }
};

struct BackwardCall {
  BackwardOp op = BackwardOp::kRmsNorm;
  Buffer x;
  Buffer weight;  // Empty: none.
  Buffer dy;
  Buffer d_residual_out;    // Empty: none.
  Buffer dx;                // Empty: not wanted.
  Buffer dweight;           // Empty: not wanted.
  std::vector<float> rstd;  // Empty: computed again.
  Options options;
};

struct Gradients {
  Buffer dx;
  Buffer dweight;
};

// Which input dx is written over.
enum class DxOver { kNothing, kX, kDy, kDResidualOut };
constexpr DxOver kDxOver[] = {DxOver::kNothing, DxOver::kX, DxOver::kDy,
                              DxOver::kDResidualOut};

inline std::string Name(DxOver over) {
  const char* const names[] = {"own", "x", "dy", "d_residual_out"};
  return std::string("dx over ") + names[static_cast<int>(over)];
}

inline std::string Name(const BackwardCall& call) {
  const auto describe = [](const char* role, const Buffer& buffer) {
    if (buffer.empty()) return std::string();
    return std::string(" ") + role + " " + Name(buffer.dtype()) +
           Name(buffer.layout().shape) + Name(buffer.layout().strides) + "+" +
           std::to_string(buffer.layout().offset);
  };
  return Name(call.op) + ":" + describe("x", call.x) +
         describe("weight", call.weight) + describe("dy", call.dy) +
         describe("d_residual_out", call.d_residual_out) +
         describe("dx", call.dx) + describe("dweight", call.dweight) + " " +
         Name(call.options) + (call.rstd.empty() ? "" : " rstd") +
         (call.options.accumulate ? " accumulate" : "");
}

// Runs on copies. Expects success, that inputs which are no alias keep every
// byte, and that nothing is written outside the rows.
inline Gradients RunBackward(const Implementation& implementation,
                             const BackwardCall& call,
                             DxOver over = DxOver::kNothing) {
  Buffer x = call.x, dy = call.dy, d_residual_out = call.d_residual_out;
  Buffer weight = call.weight;
  std::vector<float> rstd = call.rstd;
  Gradients results{call.dx, call.dweight};
  Buffer* const places[] = {&results.dx, &x, &dy, &d_residual_out};
  Buffer& dx = *places[static_cast<int>(over)];

  BackwardViews views;
  views.op = call.op;
  views.x = x;
  views.weight = weight;
  views.dy = dy;
  views.d_residual_out = d_residual_out;
  views.dx = dx;
  views.dweight = results.dweight;
  views.options = call.options;
  if (!rstd.empty()) views.options.rstd = rstd.data();
  ScopedTarget target(implementation);
  EXPECT_STATUS_OK(views.Run(implementation));

  EXPECT_TRUE(over == DxOver::kX || x.SameBytes(call.x));
  EXPECT_TRUE(over == DxOver::kDy || dy.SameBytes(call.dy));
  EXPECT_TRUE(over == DxOver::kDResidualOut ||
              d_residual_out.SameBytes(call.d_residual_out));
  EXPECT_TRUE(weight.SameBytes(call.weight));
  EXPECT_TRUE(SameBits(call.rstd, rstd));
  EXPECT_TRUE(dx.empty() || dx.OutsideIntact());
  EXPECT_TRUE(results.dweight.empty() || results.dweight.OutsideIntact());
  if (over != DxOver::kNothing) results.dx = dx;
  return results;
}

inline testing::AssertionResult Same(const Gradients& expected,
                                     const Gradients& actual) {
  testing::AssertionResult same = SameBits(expected.dx, actual.dx);
  if (!same) return testing::AssertionFailure() << "dx " << same.message();
  same = SameBits(expected.dweight, actual.dweight);
  if (!same) return testing::AssertionFailure() << "dweight " << same.message();
  return same;
}

// Expects of each implementation, with that alias, the given gradients. False
// on a mismatch.
inline bool ExpectSame(const Gradients& expected, const BackwardCall& call,
                       const std::vector<Implementation>& implementations,
                       DxOver over = DxOver::kNothing) {
  for (const Implementation& implementation : implementations) {
    const testing::AssertionResult same =
        Same(expected, RunBackward(implementation, call, over));
    EXPECT_TRUE(same) << implementation.name << ", " << Name(over) << "\n"
                      << Name(call);
    if (!same) return false;
  }
  return !testing::Test::HasFailure();
}

// The legal aliases of a call whose tensors have one layout, by dtypes alone.
inline std::vector<DxOver> LegalAliases(const BackwardCall& call) {
  const Buffer* const inputs[] = {&call.dx, &call.x, &call.dy,
                                  &call.d_residual_out};
  std::vector<DxOver> legal;
  for (DxOver over : kDxOver) {
    const Buffer& input = *inputs[static_cast<int>(over)];
    const bool own = over == DxOver::kNothing;
    const bool fits =
        !input.empty() && !call.dx.empty() && input.dtype() == call.dx.dtype();
    if (own || fits) legal.push_back(over);
  }
  return legal;
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_BACKWARD_CALL_H_

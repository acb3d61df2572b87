// One call of an operation of a transformer block as a value, for those that
// call.h does not have: post-norm, sandwich, and the split statistic. It can be
// run by any implementation, with or without aliases, and its results compared.
#ifndef FUSEDNORM_TESTS_BLOCK_CALL_H_
#define FUSEDNORM_TESTS_BLOCK_CALL_H_

#include <string>
#include <vector>

#include "call.h"
#include "test_support.h"

namespace fusednorm {
namespace test {

enum class BlockOp {
  kRmsNormAdd,
  kRmsNormAddRmsNorm,
  kRowRstd,
  kRowSumSquares,
  kRmsNormWithRstd,
};
constexpr BlockOp kBlockOps[] = {
    BlockOp::kRmsNormAdd, BlockOp::kRmsNormAddRmsNorm, BlockOp::kRowRstd,
    BlockOp::kRowSumSquares, BlockOp::kRmsNormWithRstd};

inline std::string Name(BlockOp op) {
  const char* const names[] = {"RmsNormAdd", "RmsNormAddRmsNorm", "RowRstd",
                               "RowSumSquares", "RmsNormWithRstd"};
  return names[static_cast<int>(op)];
}

inline bool HasResidual(BlockOp op) {
  return op == BlockOp::kRmsNormAdd || op == BlockOp::kRmsNormAddRmsNorm;
}
inline bool HasOut(BlockOp op) {
  return HasResidual(op) || op == BlockOp::kRmsNormWithRstd;
}

// The views of one call. Only those that the operation takes are looked at.
struct BlockViews {
  BlockOp op = BlockOp::kRmsNormAdd;
  Tensor x, residual, weight, weight_pre, out, residual_out;
  float* rstd = nullptr;   // RowRstd: written; RmsNormWithRstd: read.
  double* sums = nullptr;  // RowSumSquares.
  Options options;

  Status Run(const Implementation& implementation) const {
    const bool reference = implementation.target.empty();
    switch (op) {
      case BlockOp::kRmsNormAdd:
        return (reference ? reference::RmsNormAdd : RmsNormAdd)(
            x, residual, weight, out, options);
      case BlockOp::kRmsNormAddRmsNorm:
        return (reference ? reference::RmsNormAddRmsNorm : RmsNormAddRmsNorm)(
            x, residual, weight, weight_pre, out, residual_out, options);
      case BlockOp::kRowRstd:
        return (reference ? reference::RowRstd : RowRstd)(x, rstd, options);
      case BlockOp::kRowSumSquares:
        return (reference ? reference::RowSumSquares : RowSumSquares)(x, sums,
                                                                      options);
      case BlockOp::kRmsNormWithRstd:
        return (reference ? reference::RmsNormWithRstd : RmsNormWithRstd)(
            x, rstd, weight, out, options);
    }
    return Status(StatusCode::kInternal, "no such operation");
  }
};

struct BlockCall {
  BlockOp op = BlockOp::kRmsNormAdd;
  Buffer x;
  Buffer residual;
  Buffer weight;      // Empty: none. In the sandwich that of the post norm.
  Buffer weight_pre;  // The sandwich's second.
  Buffer out;
  Buffer residual_out;
  std::vector<float> given_rstd;  // RmsNormWithRstd.
  Options options;
  bool want_rstd = false;  // RmsNormAdd.
};

struct BlockResults {
  Buffer out;
  Buffer residual_out;
  std::vector<float> rstd;
  std::vector<double> sums;
};

inline std::string Name(const BlockCall& call) {
  const auto describe = [](const char* role, const Buffer& buffer) {
    if (buffer.empty()) return std::string();
    return std::string(" ") + role + " " + Name(buffer.dtype()) +
           Name(buffer.layout().shape) + Name(buffer.layout().strides) + "+" +
           std::to_string(buffer.layout().offset);
  };
  return Name(call.op) + ":" + describe("x", call.x) +
         describe("residual", call.residual) + describe("weight", call.weight) +
         describe("weight_pre", call.weight_pre) + describe("out", call.out) +
         describe("residual_out", call.residual_out) + " " +
         Name(call.options) + (call.want_rstd ? " rstd" : "");
}

// Runs on copies. Expects success, that inputs which are no alias keep every
// byte, and that nothing is written outside the rows.
inline BlockResults RunBlock(const Implementation& implementation,
                             const BlockCall& call, const Alias& alias = {}) {
  Buffer x = call.x, residual = call.residual;
  Buffer weight = call.weight, weight_pre = call.weight_pre;
  const auto choose = [&](Over over, Buffer& own) -> Buffer& {
    if (over == Over::kNothing) return own;
    return over == Over::kX ? x : residual;
  };
  BlockResults results{call.out, call.residual_out, {}, {}};
  Buffer& out = choose(alias.out, results.out);
  Buffer& residual_out = choose(alias.residual_out, results.residual_out);
  const size_t rows = static_cast<size_t>(call.x.rows());
  if (call.want_rstd || call.op == BlockOp::kRowRstd) {
    results.rstd.resize(rows, -1.0f);
  }
  if (call.op == BlockOp::kRowSumSquares) results.sums.resize(rows, -1.0);
  std::vector<float> given = call.given_rstd;

  BlockViews views;
  views.op = call.op;
  views.x = x;
  views.residual = residual;
  views.weight = weight;
  views.weight_pre = weight_pre;
  views.out = out;
  views.residual_out = residual_out;
  views.rstd =
      call.op == BlockOp::kRmsNormWithRstd ? given.data() : results.rstd.data();
  views.sums = results.sums.data();
  views.options = call.options;
  if (call.want_rstd) views.options.rstd = results.rstd.data();
  ScopedTarget target(implementation);
  EXPECT_STATUS_OK(views.Run(implementation));

  const auto is_over = [&](Over over) {
    return alias.out == over || alias.residual_out == over;
  };
  EXPECT_TRUE(is_over(Over::kX) || x.SameBytes(call.x));
  EXPECT_TRUE(is_over(Over::kResidual) || residual.SameBytes(call.residual));
  EXPECT_TRUE(weight.SameBytes(call.weight));
  EXPECT_TRUE(weight_pre.SameBytes(call.weight_pre));
  EXPECT_TRUE(out.empty() || out.OutsideIntact());
  EXPECT_TRUE(residual_out.empty() || residual_out.OutsideIntact());
  if (alias.out != Over::kNothing) results.out = out;
  if (alias.residual_out != Over::kNothing) results.residual_out = residual_out;
  return results;
}

inline testing::AssertionResult Same(const BlockResults& expected,
                                     const BlockResults& actual) {
  testing::AssertionResult same = SameBits(expected.out, actual.out);
  if (!same) return testing::AssertionFailure() << "out " << same.message();
  same = SameBits(expected.residual_out, actual.residual_out);
  if (!same) {
    return testing::AssertionFailure() << "residual_out " << same.message();
  }
  same = SameBits(expected.rstd, actual.rstd);
  if (!same) return testing::AssertionFailure() << "rstd " << same.message();
  same = SameRow(DType::kF64, expected.sums.data(), actual.sums.data(),
                 static_cast<int64_t>(expected.sums.size()));
  if (!same) return testing::AssertionFailure() << "sums " << same.message();
  return same;
}

// Expects of each implementation, with that alias, the given results. False on
// a mismatch.
inline bool ExpectSame(const BlockResults& expected, const BlockCall& call,
                       const std::vector<Implementation>& implementations,
                       const Alias& alias = {}) {
  for (const Implementation& implementation : implementations) {
    const testing::AssertionResult same =
        Same(expected, RunBlock(implementation, call, alias));
    EXPECT_TRUE(same) << implementation.name << ", " << Name(alias) << "\n"
                      << Name(call);
    if (!same) return false;
  }
  return !testing::Test::HasFailure();
}

// The legal aliases of a call whose tensors have one layout, by dtypes alone.
inline std::vector<Alias> LegalAliases(const BlockCall& call) {
  const auto fits = [&](Over over, const Buffer& output) {
    if (over == Over::kNothing) return true;
    if (output.empty()) return false;
    const Buffer& input = over == Over::kX ? call.x : call.residual;
    return !input.empty() && input.dtype() == output.dtype();
  };
  std::vector<Alias> legal;
  for (Over out : {Over::kNothing, Over::kX, Over::kResidual}) {
    for (Over residual_out : {Over::kNothing, Over::kX, Over::kResidual}) {
      if (out == residual_out && out != Over::kNothing) continue;
      if (fits(out, call.out) && fits(residual_out, call.residual_out)) {
        legal.push_back({out, residual_out});
      }
    }
  }
  return legal;
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_BLOCK_CALL_H_

#include "call.h"

namespace fusednorm {
namespace test {
namespace {

std::string Describe(const char* role, const Buffer& buffer) {
  if (buffer.empty()) return "";
  return std::string(" ") + role + " " + Name(buffer.dtype()) +
         Name(buffer.layout().shape) + Name(buffer.layout().strides) + "+" +
         std::to_string(buffer.layout().offset);
}

Buffer& Choose(Over over, Buffer& own, Buffer& x, Buffer& residual) {
  if (over == Over::kNothing) return own;
  return over == Over::kX ? x : residual;
}

bool IsOver(Over over, const Alias& alias) {
  return alias.out == over || alias.residual_out == over;
}

bool SameDType(Over over, const Call& call, DType dtype) {
  if (over == Over::kNothing) return true;
  return (over == Over::kX ? call.x : call.residual).dtype() == dtype;
}

}  // namespace

std::string Name(const Call& call) {
  return std::string(call.is_add() ? "AddRmsNorm:" : "RmsNorm:") +
         Describe("x", call.x) + Describe("residual", call.residual) +
         Describe("weight", call.weight) + Describe("out", call.out) +
         Describe("residual_out", call.residual_out) + " " +
         Name(call.options) + (call.want_rstd ? " rstd" : "");
}

std::string Name(const Alias& alias) {
  const char* const names[] = {"own", "x", "residual"};
  return std::string("out over ") + names[static_cast<int>(alias.out)] +
         ", residual_out over " + names[static_cast<int>(alias.residual_out)];
}

Results RunCall(const Implementation& implementation, const Call& call,
                const Alias& alias) {
  Buffer x = call.x;
  Buffer residual = call.residual;
  Results results{call.out, call.residual_out, {}};
  Buffer& out = Choose(alias.out, results.out, x, residual);
  Buffer& residual_out =
      Choose(alias.residual_out, results.residual_out, x, residual);
  Options options = call.options;
  if (call.want_rstd) {
    results.rstd.resize(static_cast<size_t>(call.x.rows()), -1.0f);
    options.rstd = results.rstd.data();
  }

  ScopedTarget target(implementation);
  if (call.is_add()) {
    EXPECT_STATUS_OK(implementation.add_rms_norm(x, residual, call.weight, out,
                                                 residual_out, options));
  } else {
    EXPECT_STATUS_OK(implementation.rms_norm(x, call.weight, out, options));
  }

  EXPECT_TRUE(IsOver(Over::kX, alias) || x.SameBytes(call.x));
  EXPECT_TRUE(IsOver(Over::kResidual, alias) ||
              residual.SameBytes(call.residual));
  EXPECT_TRUE(out.OutsideIntact());
  EXPECT_TRUE(residual_out.empty() || residual_out.OutsideIntact());
  if (alias.out != Over::kNothing) results.out = out;
  if (alias.residual_out != Over::kNothing) results.residual_out = residual_out;
  return results;
}

testing::AssertionResult Same(const Results& expected, const Results& actual) {
  testing::AssertionResult same = SameBits(expected.out, actual.out);
  if (!same) return testing::AssertionFailure() << "out " << same.message();
  same = SameBits(expected.residual_out, actual.residual_out);
  if (!same) {
    return testing::AssertionFailure() << "residual_out " << same.message();
  }
  same = SameBits(expected.rstd, actual.rstd);
  if (!same) return testing::AssertionFailure() << "rstd " << same.message();
  return same;
}

bool ExpectSame(const Results& expected, const Call& call,
                const std::vector<Implementation>& implementations,
                const Alias& alias) {
  for (const Implementation& implementation : implementations) {
    const testing::AssertionResult same =
        Same(expected, RunCall(implementation, call, alias));
    EXPECT_TRUE(same) << implementation.name << ", " << Name(alias) << "\n"
                      << Name(call);
    if (!same) return false;
  }
  return !testing::Test::HasFailure();
}

std::vector<Alias> LegalAliases(const Call& call) {
  std::vector<Alias> legal;
  for (Over out : {Over::kNothing, Over::kX, Over::kResidual}) {
    for (Over residual_out : {Over::kNothing, Over::kX, Over::kResidual}) {
      const bool one_buffer_twice =
          out == residual_out && out != Over::kNothing;
      const bool missing =
          (!call.is_add() && out == Over::kResidual) ||
          (call.residual_out.empty() && residual_out != Over::kNothing);
      if (one_buffer_twice || missing ||
          !SameDType(out, call, call.out.dtype()) ||
          !SameDType(residual_out, call, call.residual_out.dtype())) {
        continue;
      }
      legal.push_back({out, residual_out});
    }
  }
  return legal;
}

}  // namespace test
}  // namespace fusednorm

// Calls with one thing wrong, and what their refusal must look like.
#ifndef FUSEDNORM_TESTS_REFUSAL_H_
#define FUSEDNORM_TESTS_REFUSAL_H_

#include <gtest/gtest.h>

#include <cctype>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "operands.h"
#include "test_support.h"

namespace fusednorm {
namespace test {

constexpr int64_t kRows = 3;
constexpr int64_t kWidth = 8;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// An argument of a call by its name.
struct Argument {
  const char* name;
  Tensor Views::*tensor;
  bool output;
};
constexpr Argument kArguments[] = {
    {"x", &Views::x, false},
    {"residual", &Views::residual, false},
    {"weight", &Views::weight, false},
    {"out", &Views::out, true},
    {"residual_out", &Views::residual_out, true},
};

inline std::vector<Argument> ArgumentsOf(Op op) {
  std::vector<Argument> arguments;
  for (const Argument& argument : kArguments) {
    const std::string name = argument.name;
    const bool stream = name == "residual" || name == "residual_out";
    if (op == Op::kAddRmsNorm || !stream) arguments.push_back(argument);
  }
  return arguments;
}

// Whole words only, so that "out" is not found in "residual_out".
inline bool HasWord(const std::string& text, const std::string& word) {
  const auto is_word = [&](size_t i) {
    return i < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[i])) != 0 ||
            text[i] == '_');
  };
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + 1)) {
    if ((at == 0 || !is_word(at - 1)) && !is_word(at + word.size())) {
      return true;
    }
  }
  return false;
}

// One way to spoil a call, and what the refusal must say.
struct Fault {
  std::string name;
  std::function<void(Views*)> apply;
  StatusCode code = StatusCode::kInvalidArgument;
  std::string argument;             // "" if several could be named.
  std::vector<std::string> values;  // Parts of the message.
};

inline void ExpectRefused(const Implementation& implementation, Op op,
                          const DTypes& dtypes, const Fault& fault) {
  SCOPED_TRACE(Name(op) + ": " + fault.name);
  Operands operands(op, dtypes, Packed({kRows, kWidth}));
  Random random;
  operands.Fill(random);
  const Operands before = operands;
  Views call = operands.Make();
  fault.apply(&call);
  const Status status = call.Run(implementation);
  const std::string message = status.message();
  EXPECT_EQ(static_cast<int>(status.code()), static_cast<int>(fault.code))
      << message;
  EXPECT_TRUE(fault.argument.empty() || HasWord(message, fault.argument))
      << message;
  for (const std::string& value : fault.values) {
    EXPECT_NE(message.find(value), std::string::npos)
        << "no \"" << value << "\" in: " << message;
  }
  EXPECT_TRUE(operands.x.SameBytes(before.x));
  EXPECT_TRUE(operands.residual.SameBytes(before.residual));
  EXPECT_TRUE(operands.weight.SameBytes(before.weight));
  EXPECT_TRUE(operands.out.SameBytes(before.out));
  EXPECT_TRUE(operands.residual_out.SameBytes(before.residual_out));
  EXPECT_EQ(operands.rstd, before.rstd);
}

inline void ExpectAllRefused(
    const DTypes& dtypes, const std::function<std::vector<Fault>(Op)>& faults) {
  ForEachImplementation([&](const Implementation& implementation) {
    for (const Op op : kOps) {
      for (const Fault& fault : faults(op)) {
        ExpectRefused(implementation, op, dtypes, fault);
      }
    }
  });
}

// A fault that bends the view of one argument.
inline Fault ViewFault(const Argument& argument, const std::string& what,
                       const std::function<void(Tensor*)>& bend,
                       std::vector<std::string> values,
                       StatusCode code = StatusCode::kInvalidArgument) {
  const auto tensor = argument.tensor;
  return {std::string(argument.name) + ": " + what,
          [tensor, bend](Views* call) { bend(&(call->*tensor)); }, code,
          argument.name, std::move(values)};
}

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_REFUSAL_H_

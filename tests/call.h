// One call of an operation as a value: inputs, blank outputs, options. It can
// be run by any implementation, with or without aliases, and its results
// compared.
#ifndef FUSEDNORM_TESTS_CALL_H_
#define FUSEDNORM_TESTS_CALL_H_

#include <vector>

#include "fusednorm/fusednorm.h"
#include "test_support.h"

namespace fusednorm {
namespace test {

struct Call {
  Buffer x;
  Buffer residual;  // Empty: RmsNorm, else AddRmsNorm.
  Buffer weight;    // Empty: none.
  Buffer out;
  Buffer residual_out;  // Empty: not wanted.
  Options options;
  bool want_rstd = false;

  bool is_add() const { return !residual.empty(); }
};

// Which input an output is written over.
enum class Over { kNothing, kX, kResidual };

struct Alias {
  Over out = Over::kNothing;
  Over residual_out = Over::kNothing;
};

struct Results {
  Buffer out;
  Buffer residual_out;
  std::vector<float> rstd;
};

std::string Name(const Call& call);
std::string Name(const Alias& alias);

// Runs on copies. Expects success, that inputs which are no alias keep every
// byte, and that nothing is written outside the rows.
Results RunCall(const Implementation& implementation, const Call& call,
                const Alias& alias = {});

testing::AssertionResult Same(const Results& expected, const Results& actual);

// Expects of each implementation, with that alias, the reference's bits.
// `expected` comes from the reference without aliases. False on a mismatch.
bool ExpectSame(const Results& expected, const Call& call,
                const std::vector<Implementation>& implementations,
                const Alias& alias = {});

// The legal aliases of a call whose tensors have one layout, by dtypes alone.
std::vector<Alias> LegalAliases(const Call& call);

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_CALL_H_

// The caller's floating-point environment changes no bit of the results, and is
// found as it was left: control bits and sticky flags, on the calling thread
// and on those of its pool.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "fp_state.h"
#include "fusednorm/c.h"
#include "operands.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

// Rows of every kind: they overflow, vanish, divide by zero and are subnormal.
constexpr int64_t kRows = 13;

// Runs the call in that state; the outputs are compared outside of it.
void ExpectUntouched(const Implementation& implementation, const Views& views,
                     const NamedFpState& caller, StatusCode expected) {
  FpState before, after;
  StatusCode code;
  {
    const ScopedFpState scope(caller.state);
    before = GetFpState();
    code = views.Run(implementation).code();
    after = GetFpState();
  }
  EXPECT_EQ(static_cast<int>(code), static_cast<int>(expected)) << caller.name;
  EXPECT_EQ(before, after) << caller.name;
}

TEST(FpEnvironment, ChangesNoBitAndIsKept) {
  Random random;
  for (const Op op : kOps) {
    for (const DTypes& dtypes : kUsualDTypes) {
      for (const int64_t width : {5, 64, 1031}) {
        Operands expected(op, dtypes, Packed({kRows, width}));
        expected.FillMixed(random);
        const Operands blank = expected;
        Views views = expected.Make();
        Options options = views.options;
        options.eps = random.Chance(50) ? 0 : 1e-40f;
        options.rounding = static_cast<Rounding>(random.Uniform(0, 1));
        options.sum = static_cast<Sum>(random.Uniform(0, 2));
        views.options = options;
        ASSERT_STATUS_OK(views.Run(Reference()));
        ForEachImplementation([&](const Implementation& implementation) {
          for (const NamedFpState& caller : CallerStates()) {
            Operands actual = blank;
            views = actual.Make();
            float* const rstd = views.options.rstd;
            views.options = options;
            views.options.rstd = rstd;
            ExpectUntouched(implementation, views, caller, StatusCode::kOk);
            EXPECT_TRUE(SameOutputs(expected, actual))
                << caller.name << ": " << Name(op) << " " << dtypes
                << ", width " << width;
          }
        });
        if (HasFailure()) return;
      }
    }
  }
}

// What is refused does not depend on the caller's mode, and leaves it alone: a
// negative subnormal eps is negative where subnormals count as zero, too.
TEST(FpEnvironment, RefusalsAreTheSame) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float signalling;
  const uint32_t bits = 0x7F800001;
  std::memcpy(&signalling, &bits, sizeof signalling);
  const float subnormal = std::numeric_limits<float>::denorm_min();

  ForEachImplementation([&](const Implementation& implementation) {
    for (const Op op : kOps) {
      for (const NamedFpState& caller : CallerStates()) {
        Operands operands(op, Uniform(DType::kF32), Packed({kRows, 8}));
        Views views = operands.Make();
        for (const float eps :
             {-1.0f, -subnormal, -0.1f, kInfinity, -kInfinity, signalling}) {
          views.options = {};
          std::memcpy(&views.options.eps, &eps, sizeof eps);
          ExpectUntouched(implementation, views, caller,
                          StatusCode::kInvalidArgument);
        }
        for (const float offset : {kInfinity, signalling}) {
          views.options = {};
          std::memcpy(&views.options.weight_offset, &offset, sizeof offset);
          ExpectUntouched(implementation, views, caller,
                          StatusCode::kInvalidArgument);
        }
        views.options = {};
        views.options.eps = subnormal;
        views.options.weight_offset = subnormal;
        views.options.residual_scale = -subnormal;
        ExpectUntouched(implementation, views, caller, StatusCode::kOk);
      }
    }
  });
}

// The message is the same as well: numbers are printed in no caller's mode.
TEST(FpEnvironment, MessagesAreTheSame) {
  Operands operands(Op::kRmsNorm, Uniform(DType::kF32), Packed({1, 8}));
  Views views = operands.Make();
  views.options.eps = -0.1f;
  const std::string expected = views.Run(Reference()).message();
  EXPECT_NE(expected.find("-0.1"), std::string::npos);
  for (const NamedFpState& caller : CallerStates()) {
    std::string message;
    {
      const ScopedFpState scope(caller.state);
      const Status status = views.Run(Reference());
      SetFpState({CallerStates()[0].state});
      message = status.message();
    }
    EXPECT_EQ(message, expected) << caller.name;
  }
}

// An option that is subnormal has its value in the caller's every mode: an
// offset, which the gain is, and the only part of an output.
TEST(FpEnvironment, SubnormalOptionsCount) {
  const float subnormal = 0x1p-130f;
  ForEachImplementation([&](const Implementation& implementation) {
    for (const NamedFpState& caller : CallerStates()) {
      Operands operands(Op::kAddRmsNorm, Uniform(DType::kF32), Packed({1, 64}));
      operands.x.FillWith(std::vector<double>(64, 0.0));
      operands.residual.FillWith(std::vector<double>(64, 1.0));
      operands.weight.FillWith(std::vector<double>(64, 0.0));
      Views views = operands.Make();
      views.options.eps = 0;
      views.options.weight_offset = subnormal;
      views.options.residual_scale = subnormal;
      ExpectUntouched(implementation, views, caller, StatusCode::kOk);
      EXPECT_EQ(operands.residual_out.value(0, 63), subnormal) << caller.name;
      EXPECT_EQ(operands.out.value(0, 63), subnormal) << caller.name;
    }
  });
}

// The caller's own arithmetic goes on as it was.
TEST(FpEnvironment, CallerKeepsSubnormals) {
  Operands operands(Op::kRmsNorm, Uniform(DType::kF32), Packed({1, 8}));
  Views views = operands.Make();
  ForEachImplementation([&](const Implementation& implementation) {
    EXPECT_STATUS_OK(views.Run(implementation));
    volatile float tiny = 0x1p-140f;
    volatile float one = 1.0f;
    EXPECT_GT(tiny * one, 0.0f);
  });
}

// The parts of the environment that this library never needs stay as well: all
// of what <cfenv> can see.
TEST(FpEnvironment, CfenvIsKept) {
  Random random;
  Operands operands(Op::kAddRmsNorm, Uniform(DType::kBF16),
                    Packed({kRows, 515}));
  operands.FillMixed(random);
  const Views views = operands.Make();
  ForEachImplementation([&](const Implementation& implementation) {
    for (const int rounding :
         {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      for (const int raised : {0, FE_INEXACT | FE_DIVBYZERO, FE_ALL_EXCEPT}) {
        std::feclearexcept(FE_ALL_EXCEPT);
        std::feraiseexcept(raised);
        std::fesetround(rounding);
        const bool ok = views.Run(implementation).ok();
        const int rounding_after = std::fegetround();
        const int raised_after = std::fetestexcept(FE_ALL_EXCEPT);
        std::fesetround(FE_TONEAREST);
        std::feclearexcept(FE_ALL_EXCEPT);
        EXPECT_TRUE(ok);
        EXPECT_EQ(rounding_after, rounding);
        EXPECT_EQ(raised_after, raised);
      }
    }
  });
}

// ------------------------------------------------------------ other threads

// A pool whose threads have a state of their own.
struct Pool {
  NamedFpState worker;
  std::vector<FpState> after;
};

void RunInPool(void* context, int64_t count,
               void (*body)(void*, int64_t, int64_t), void* arg) {
  Pool& pool = *static_cast<Pool*>(context);
  for (int64_t i = 0; i < count; ++i) {
    std::thread worker([&] {
      const ScopedFpState scope(pool.worker.state);
      body(arg, i, i + 1);
      pool.after.push_back(GetFpState());
    });
    worker.join();
  }
}

TEST(FpEnvironment, PoolThreadsAreKept) {
  Random random;
  constexpr int64_t kManyRows = 256;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Operands expected(Op::kAddRmsNorm, Uniform(dtype),
                      Packed({kManyRows, 1024}));
    expected.FillMixed(random);
    const Operands blank = expected;
    ASSERT_STATUS_OK(expected.Make().Run(Reference()));
    ForEachImplementation([&](const Implementation& implementation) {
      for (const NamedFpState& caller : CallerStates()) {
        Operands actual = blank;
        Views views = actual.Make();
        Pool pool = {caller, {}};
        views.options.parallel_for = RunInPool;
        views.options.parallel_context = &pool;
        EXPECT_STATUS_OK(views.Run(implementation));
        EXPECT_TRUE(SameOutputs(expected, actual)) << caller.name;
        EXPECT_FALSE(pool.after.empty());
        for (const FpState& after : pool.after) {
          EXPECT_EQ(after, caller.state) << caller.name;
        }
      }
    });
  }
}

#ifdef _OPENMP
int ThreadsWithControl(const FpState& state) {
  int threads = 0;
#pragma omp parallel num_threads(4) reduction(+ : threads)
  threads += GetFpState().control == state.control ? 1 : 0;
  return threads;
}

// The team's threads keep theirs from one parallel region to the next.
TEST(FpEnvironment, TeamThreadsAreKept) {
  Random random;
  Operands expected(Op::kRmsNorm, Uniform(DType::kBF16), Packed({512, 2048}));
  expected.FillMixed(random);
  const Operands blank = expected;
  ASSERT_STATUS_OK(expected.Make().Run(Reference()));
  ForEachImplementation([&](const Implementation& implementation) {
    for (const NamedFpState& caller : CallerStates()) {
      if (std::strstr(caller.name, "trapped") != nullptr) continue;
#pragma omp parallel num_threads(4)
      SetFpState(caller.state);
      // Clang's runtime gives its threads the state of their master again.
      const int before = ThreadsWithControl(caller.state);
      Operands actual = blank;
      Views views = actual.Make();
      views.options.num_threads = 4;
      const bool ok = views.Run(implementation).ok();
      const int after = ThreadsWithControl(caller.state);
#pragma omp parallel num_threads(4)
      SetFpState(CallerStates()[0].state);
      EXPECT_TRUE(ok);
#ifndef __clang__
      EXPECT_EQ(before, 4) << caller.name;
#endif
      EXPECT_EQ(after, before) << caller.name;
      EXPECT_TRUE(SameOutputs(expected, actual)) << caller.name;
    }
  });
}
#endif  // _OPENMP

// ----------------------------------------------------------------- loading

#ifdef FUSEDNORM_SHARED_LIBRARY
// To load the shared library, to use it and to unload it changes no state of
// the process: the modes, and that it can fork.
TEST(Loading, ChangesNothing) {
  for (const NamedFpState& caller : CallerStates()) {
    if (std::strstr(caller.name, "trapped") != nullptr) continue;
    FpState before, loaded, used;
    void* library;
    int32_t status = -1;
    float out[4] = {};
    {
      const ScopedFpState scope(caller.state);
      before = GetFpState();
      library = dlopen(FUSEDNORM_SHARED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
      loaded = GetFpState();
      if (library != nullptr) {
        const auto rms_norm =
            reinterpret_cast<decltype(&fusednorm_rms_norm_f32)>(
                dlsym(library, "fusednorm_rms_norm_f32"));
        const float x[4] = {3, 4, 0, 0};
        if (rms_norm != nullptr) status = rms_norm(x, nullptr, out, 1, 4, 0);
      }
      used = GetFpState();
    }
    ASSERT_NE(library, nullptr) << dlerror();
    EXPECT_EQ(status, FUSEDNORM_OK);
    EXPECT_FLOAT_EQ(out[0], 1.2f);
    // The dynamic linker itself may raise flags; modes are what a library sets.
    EXPECT_EQ(before.control, loaded.control) << caller.name;
    EXPECT_EQ(loaded, used) << caller.name;
    EXPECT_EQ(dlclose(library), 0);
  }
  // No handler of an unloaded library is left behind.
  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) _exit(7);
  int exit_status = 0;
  ASSERT_EQ(waitpid(child, &exit_status, 0), child);
  ASSERT_TRUE(WIFEXITED(exit_status));
  EXPECT_EQ(WEXITSTATUS(exit_status), 7);
}
#endif  // FUSEDNORM_SHARED_LIBRARY

}  // namespace
}  // namespace test
}  // namespace fusednorm

// Rows shared among threads: by OpenMP or by the caller's hook, with the same
// bits in every split; and when they are not shared: small work, one thread,
// inside a parallel region, in a child after fork. Threads and calls are
// counted, nothing is timed.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "operands.h"
#include "test_support.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace fusednorm {
namespace test {
namespace {

// Threads of this process by their numbers. Those of a runtime's team that were
// let go or joined may still be on their way out: they are among these for a
// while, so only new numbers tell of new threads.
using Threads = std::set<std::string>;

Threads LiveThreads() {
  Threads threads;
  DIR* const directory = opendir("/proc/self/task");
  if (directory == nullptr) return threads;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') threads.insert(entry->d_name);
  }
  closedir(directory);
  return threads;
}

// Threads alive now that are not among `before`.
int NewThreads(const Threads& before) {
  int count = 0;
  for (const std::string& thread : LiveThreads()) {
    count += before.count(thread) == 0 ? 1 : 0;
  }
  return count;
}

// A call and its right answer. Large: far more bytes than it takes to share.
struct Problem {
  Problem(Op op, const DTypes& dtypes, const Layout& layout)
      : blank(op, dtypes, layout), expected(blank) {
    Random random;
    blank.FillMixed(random);
    expected = blank;
    EXPECT_STATUS_OK(expected.Make().Run(Reference()));
  }

  // Whether the call with these options has the right answer.
  testing::AssertionResult Check(const Implementation& implementation,
                                 const Options& options) const {
    Operands actual = blank;
    Views views = actual.Make();
    float* const rstd = views.options.rstd;
    views.options = options;
    views.options.rstd = rstd;
    const Status status = views.Run(implementation);
    if (!status.ok()) return testing::AssertionFailure() << status.message();
    return SameOutputs(expected, actual);
  }

  Operands blank, expected;
};

constexpr int64_t kManyRows = 131;
constexpr int64_t kWidth = 2049;

Problem LargeProblem(Op op = Op::kAddRmsNorm, DType dtype = DType::kBF16) {
  return Problem(op, Uniform(dtype), Packed({kManyRows, kWidth}));
}
Problem SmallProblem() {
  return Problem(Op::kAddRmsNorm, Uniform(DType::kBF16), Packed({1, 64}));
}

// ------------------------------------------------------------------- hooks

// What a hook was asked, and how it is to split the work.
struct Hook {
  enum Split { kWhole, kOneByOne, kReversed, kOddPieces, kPool, kEmptyRanges };
  Split split = kWhole;
  std::atomic<int> calls{0};
};

void RunHook(void* context, int64_t count,
             void (*body)(void*, int64_t, int64_t), void* arg) {
  Hook& hook = *static_cast<Hook*>(context);
  ++hook.calls;
  switch (hook.split) {
    case Hook::kWhole:
      body(arg, 0, count);
      break;
    case Hook::kOneByOne:
      for (int64_t i = 0; i < count; ++i) body(arg, i, i + 1);
      break;
    case Hook::kReversed:
      for (int64_t i = count; i > 0; --i) body(arg, i - 1, i);
      break;
    case Hook::kOddPieces:  // Of 1, 2, 4, ... from the end.
      for (int64_t end = count, size = 1; end > 0; size *= 2) {
        const int64_t begin = std::max<int64_t>(0, end - size);
        body(arg, begin, end);
        end = begin;
      }
      break;
    case Hook::kPool: {
      std::atomic<int64_t> next{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&] {
          for (int64_t i = next++; i < count; i = next++) body(arg, i, i + 1);
        });
      }
      for (std::thread& thread : threads) thread.join();
      break;
    }
    case Hook::kEmptyRanges:
      body(arg, 0, 0);
      body(arg, 0, count);
      body(arg, count, count);
      break;
  }
}

Options WithHook(Hook* hook) {
  Options options;
  options.parallel_for = RunHook;
  options.parallel_context = hook;
  return options;
}

TEST(Hook, EverySplitHasTheSameBits) {
  for (const Op op : kOps) {
    for (const DType dtype : kFloatDTypes) {
      const Problem problem = LargeProblem(op, dtype);
      ForEachImplementation([&](const Implementation& implementation) {
        for (int split = Hook::kWhole; split <= Hook::kEmptyRanges; ++split) {
          Hook hook;
          hook.split = static_cast<Hook::Split>(split);
          EXPECT_TRUE(problem.Check(implementation, WithHook(&hook)))
              << "split " << split;
          EXPECT_EQ(hook.calls, 1);
        }
      });
    }
  }
}

// Three leading axes that do not merge: blocks begin and end inside of them.
TEST(Hook, StridedAxes) {
  Layout layout;
  layout.shape = {5, 7, 11, 1030};
  layout.strides = {1100, 5 * 11 * 1100, 5 * 1100, 1};
  const Problem problem(Op::kAddRmsNorm, Uniform(DType::kF16), layout);
  ForEachImplementation([&](const Implementation& implementation) {
    for (const Hook::Split split : {Hook::kOneByOne, Hook::kOddPieces}) {
      Hook hook;
      hook.split = split;
      EXPECT_TRUE(problem.Check(implementation, WithHook(&hook)));
      EXPECT_EQ(hook.calls, 1);
    }
  });
}

TEST(Hook, SmallWorkDoesNotCallIt) {
  const Problem problem = SmallProblem();
  ForEachImplementation([&](const Implementation& implementation) {
    Hook hook;
    EXPECT_TRUE(problem.Check(implementation, WithHook(&hook)));
    EXPECT_EQ(hook.calls, 0);
  });
}

TEST(Hook, OneThreadDoesNotCallIt) {
  const Problem problem = LargeProblem();
  ForEachImplementation([&](const Implementation& implementation) {
    Hook hook;
    Options options = WithHook(&hook);
    options.num_threads = 1;
    EXPECT_TRUE(problem.Check(implementation, options));
    EXPECT_EQ(hook.calls, 0);
  });
}

// A refused call does no work, and no rows are none.
TEST(Hook, RefusedAndEmptyCallsDoNotCallIt) {
  Operands large(Op::kRmsNorm, Uniform(DType::kF32), Packed({1024, 1024}));
  Operands empty(Op::kRmsNorm, Uniform(DType::kF32), Packed({0, 1024}));
  ForEachImplementation([&](const Implementation& implementation) {
    Hook hook;
    Views views = large.Make();
    views.options = WithHook(&hook);
    views.options.eps = -1;
    EXPECT_FALSE(views.Run(implementation).ok());
    views = empty.Make();
    views.options = WithHook(&hook);
    EXPECT_TRUE(views.Run(implementation).ok());
    EXPECT_EQ(hook.calls, 0);
  });
}

// ------------------------------------------------------------------ OpenMP

// Fewer rows than threads, as many, a few more, many; narrow and wide.
TEST(Threads, EveryCountHasTheSameBits) {
  const std::vector<std::vector<int64_t>> shapes = {
      {1, 100000}, {3, 32768},          {16, 8193},
      {17, 4096},  {kManyRows, kWidth}, {5000, 65}};
  for (const Op op : kOps) {
    for (const DType dtype : kFloatDTypes) {
      for (const std::vector<int64_t>& shape : shapes) {
        const Problem problem(op, Uniform(dtype), Packed(shape));
        ForEachImplementation([&](const Implementation& implementation) {
          for (const int threads : {0, 1, 2, 7, 16}) {
            Options options;
            options.num_threads = threads;
            EXPECT_TRUE(problem.Check(implementation, options))
                << Name(op) << " " << Name(dtype) << Name(shape) << ", "
                << threads << " threads";
          }
        });
        if (HasFailure()) return;
      }
    }
  }
}

// A new thread has no team yet: any team that the call makes is seen.
int ThreadsMadeBy(const std::function<void()>& call) {
  Threads before;
  int made = 0;
  std::thread thread([&] {
    before = LiveThreads();
    call();
    made = NewThreads(before);
  });
  thread.join();
  EXPECT_FALSE(before.empty());
  return made;
}

TEST(Threads, SmallWorkAndOneThreadMakeNone) {
  const Problem small = SmallProblem();
  const Problem large = LargeProblem();
  ForEachImplementation([&](const Implementation& implementation) {
    for (const int threads : {0, 1, 4}) {
      Options options;
      options.num_threads = threads;
      EXPECT_EQ(ThreadsMadeBy(
                    [&] { EXPECT_TRUE(small.Check(implementation, options)); }),
                0);
    }
    Options options;
    options.num_threads = 1;
    EXPECT_EQ(ThreadsMadeBy(
                  [&] { EXPECT_TRUE(large.Check(implementation, options)); }),
              0);
  });
}

#ifdef _OPENMP
// Without this the test above would show nothing. It comes last of those that
// count threads: a runtime may keep its threads for the next team.
TEST(Threads, LargeWorkMakesSome) {
  const Problem large = LargeProblem();
  Options options;
  options.num_threads = 4;
  const int made =
      ThreadsMadeBy([&] { EXPECT_TRUE(large.Check(Reference(), options)); });
  EXPECT_LE(made, 3);
  EXPECT_GE(made + NewThreads({}), 2) << "no thread was ever made";
}

// Each thread of a region calls with its own data; the library adds no threads.
TEST(Threads, InsideAParallelRegion) {
  const Problem problem = LargeProblem();
  const int levels = omp_get_max_active_levels();
  for (const int max_levels : {1, 4}) {
    omp_set_max_active_levels(max_levels);
    ForEachImplementation([&](const Implementation& implementation) {
      Threads before;
      int wrong = 0, made = 0;
#pragma omp parallel num_threads(4) reduction(+ : wrong) reduction(max : made)
      {
#pragma omp barrier
#pragma omp single
        before = LiveThreads();
        Options options;
        options.num_threads = 4;
        for (int repeat = 0; repeat < 3; ++repeat) {
          wrong += problem.Check(implementation, options) ? 0 : 1;
          made = std::max(made, NewThreads(before));
        }
      }
      EXPECT_EQ(wrong, 0);
      EXPECT_EQ(made, 0);
    });
  }
  omp_set_max_active_levels(levels);
}

TEST(Threads, HookInsideAParallelRegionIsNotCalled) {
  const Problem problem = LargeProblem();
  ForEachImplementation([&](const Implementation& implementation) {
    Hook hook;
    int wrong = 0;
#pragma omp parallel num_threads(2) reduction(+ : wrong)
    wrong += problem.Check(implementation, WithHook(&hook)) ? 0 : 1;
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(hook.calls, 0);
  });
}
#endif  // _OPENMP

// -------------------------------------------------------------------- fork

// Runs `body` in a child; whether it returned true. A child that hangs is
// killed by its alarm.
testing::AssertionResult InChild(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(300);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    return testing::AssertionFailure() << "no child";
  }
  if (WIFSIGNALED(status)) {
    return testing::AssertionFailure()
           << "the child died of signal " << WTERMSIG(status);
  }
  if (WEXITSTATUS(status) != 0) {
    return testing::AssertionFailure() << "wrong in the child";
  }
  return testing::AssertionSuccess();
}

TEST(Fork, ChildGetsRightAnswers) {
  const Problem problem = LargeProblem();
  ForEachImplementation([&](const Implementation& implementation) {
    Options options;
    options.num_threads = 4;
    ASSERT_TRUE(problem.Check(implementation, options));
    EXPECT_TRUE(InChild([&] {
      return static_cast<bool>(problem.Check(implementation, options));
    }));
    // The parent goes on as before.
    EXPECT_TRUE(problem.Check(implementation, options));
  });
}

TEST(Fork, ChildStaysOnItsThread) {
  const Problem problem = LargeProblem();
  Hook hook;
  Options options;
  options.num_threads = 4;
  ASSERT_TRUE(problem.Check(Reference(), options));
  ForEachImplementation([&](const Implementation& implementation) {
    EXPECT_TRUE(InChild([&] {
      const Threads before = LiveThreads();  // An emulator may have its own.
      return problem.Check(implementation, options) &&
             NewThreads(before) == 0 &&
             problem.Check(implementation, WithHook(&hook)) && hook.calls == 0;
    }));
  });
}

TEST(Fork, Grandchild) {
  const Problem problem = LargeProblem();
  Options options;
  options.num_threads = 4;
  ASSERT_TRUE(problem.Check(Reference(), options));
  for (const Implementation& implementation : Implementations()) {
    EXPECT_TRUE(InChild([&] {
      return problem.Check(implementation, options) && InChild([&] {
               return static_cast<bool>(problem.Check(implementation, options));
             });
    }));
  }
}

// A thread of the parent forks, while that thread has a team of its own.
TEST(Fork, FromAnotherThread) {
  const Problem problem = LargeProblem();
  Options options;
  options.num_threads = 4;
  std::thread thread([&] {
    EXPECT_TRUE(problem.Check(Reference(), options));
    EXPECT_TRUE(InChild([&] {
      return static_cast<bool>(problem.Check(Targets()[0], options));
    }));
  });
  thread.join();
}

// ------------------------------------------------------------- concurrency

// Callers of all kinds at once, while the target changes under them.
TEST(Concurrency, CallersDoNotDisturbEachOther) {
  const Problem small = SmallProblem();
  const Problem large = LargeProblem();
  const std::vector<Implementation> targets = Targets();
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      for (int repeat = 0; repeat < 8; ++repeat) {
        Options options;
        options.num_threads = t;
        const Problem& problem = t % 2 == 0 ? small : large;
        wrong += problem.Check(targets[0], options) ? 0 : 1;
        // Errors belong to the thread that made them.
        Operands operands(Op::kRmsNorm, Uniform(DType::kF32), Packed({1, 4}));
        Views views = operands.Make();
        views.options.eps = static_cast<float>(-1 - t);
        const std::string message = views.Run(targets[0]).message();
        wrong += message.find("-" + std::to_string(t + 1)) != std::string::npos
                     ? 0
                     : 1;
      }
    });
  }
  for (int repeat = 0; repeat < 200; ++repeat) {
    const Implementation& target =
        targets[static_cast<size_t>(repeat) % targets.size()];
    wrong += SetTarget(target.name.c_str()).ok() ? 0 : 1;
    std::this_thread::yield();
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_STATUS_OK(SetTarget(nullptr));
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

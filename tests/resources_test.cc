// What a forward call takes from the machine: at most 32 KiB of stack, no
// allocation, no limit of the width.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "operands.h"
#include "test_support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FUSEDNORM_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define FUSEDNORM_SANITIZED 1
#endif
#endif

#ifndef FUSEDNORM_SANITIZED
// Counts the calling thread's allocations, in the place of glibc's own.
static thread_local int64_t allocations = 0;
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  ++allocations;
  return __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
}
#endif

namespace fusednorm {
namespace test {
namespace {

// Runs `body` in a thread with this stack.
void RunOnStack(void* stack, size_t bytes, const std::function<void()>& body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstack(&attributes, stack, bytes), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* arg) -> void* {
                  (*static_cast<const std::function<void()>*>(arg))();
                  return nullptr;
                },
                const_cast<std::function<void()>*>(&body)),
            0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

// A thread's stack below a forbidden page.
class Stack {
 public:
  explicit Stack(size_t bytes) : page_(PageSize()), bytes_(bytes) {
    void* const all = mmap(nullptr, page_ + bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(all, MAP_FAILED);
    EXPECT_EQ(mprotect(all, page_, PROT_NONE), 0);
    begin_ = static_cast<uint8_t*>(all) + page_;
  }
  ~Stack() { munmap(begin_ - page_, page_ + bytes_); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  static size_t PageSize() {
    return static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }

  // Runs `call`; how far below the caller's frame it has written. The stack
  // grows downwards on every machine that is supported.
  int64_t Depth(const std::function<void()>& call) {
    std::memset(begin_, kUntouched, bytes_);
    const uint8_t* frame = nullptr;
    RunOnStack(begin_, bytes_, [&] {
      frame = static_cast<const uint8_t*>(__builtin_frame_address(0));
      call();
    });
    const uint8_t* lowest = begin_;
    while (lowest < frame && *lowest == kUntouched) ++lowest;
    return frame - lowest;
  }

  void Run(const std::function<void()>& call) {
    RunOnStack(begin_, bytes_, call);
  }

 private:
  static constexpr uint8_t kUntouched = 0xC7;
  const size_t page_, bytes_;
  uint8_t* begin_;
};

// Calls that take every way through the library: few rows and many, narrow and
// wide, ordinary and exceptional, with and without weight, refused.
void ForEachCall(
    const std::function<void(const Implementation&, const Views&)>& body) {
  Random random;
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {1, 33}, {1, 4096}, {20, 130}, {20, 7167}, {9, 7168}, {2, 40000}};
  for (const Op op : kOps) {
    for (const DTypes& dtypes : kUsualDTypes) {
      for (const auto& shape : shapes) {
        Operands operands(op, dtypes, Packed({shape.first, shape.second}));
        operands.FillMixed(random);
        Views views = operands.Make();
        views.options.num_threads = 1;
        for (const int sum : {0, 1, 2}) {
          if (op == Op::kRmsNorm && sum > 0) break;
          views.options.sum = static_cast<Sum>(sum);
          views.options.rounding = static_cast<Rounding>(random.Uniform(0, 1));
          Views refused = views, weightless = views;
          refused.options.eps = -1;
          weightless.weight = Tensor();
          ForEachImplementation([&](const Implementation& implementation) {
            SCOPED_TRACE(testing::Message()
                         << Name(op) << " " << dtypes << " rows " << shape.first
                         << " width " << shape.second << ", "
                         << Name(views.options));
            body(implementation, views);
            body(implementation, weightless);
            body(implementation, refused);
          });
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(Resources, Stack) {
#if defined(FUSEDNORM_SANITIZED) || !defined(__OPTIMIZE__)
  GTEST_SKIP() << "frames are larger in this build";
#endif
  Stack stack(256 * 1024);
  int64_t deepest = 0;
  ForEachCall([&](const Implementation& implementation, const Views& views) {
    const auto call = [&] { (void)views.Run(implementation); };
    call();  // The first call of a function also runs the dynamic linker.
    const int64_t depth = stack.Depth(call);
    deepest = std::max(deepest, depth);
    EXPECT_LE(depth, 32 * 1024);
  });
  EXPECT_GT(deepest, 0);
  RecordProperty("deepest", static_cast<int>(deepest));
}

#ifndef FUSEDNORM_SANITIZED
TEST(Resources, NoAllocation) {
  const int64_t start = allocations;
  void* volatile probe = std::malloc(1 << 20);  // Clang drops a plain pair.
  std::free(probe);
  ASSERT_GT(allocations, start) << "the counter is not in the program";
  ForEachCall([&](const Implementation& implementation, const Views& views) {
    const int64_t before = allocations;
    (void)views.Run(implementation);
    EXPECT_EQ(allocations, before);
  });
}

// A hook gets its rows without an allocation too.
TEST(Resources, NoAllocationWithHook) {
  Random random;
  Operands operands(Op::kAddRmsNorm, Uniform(DType::kBF16),
                    Packed({512, 2048}));
  operands.Fill(random);
  Views views = operands.Make();
  int calls = 0;
  views.options.parallel_context = &calls;
  views.options.parallel_for = [](void* context, int64_t count,
                                  void (*body)(void*, int64_t, int64_t),
                                  void* arg) {
    ++*static_cast<int*>(context);
    body(arg, 0, count);
  };
  ForEachImplementation([&](const Implementation& implementation) {
    calls = 0;
    const int64_t before = allocations;
    (void)views.Run(implementation);
    EXPECT_EQ(allocations, before);
    EXPECT_EQ(calls, 1);
  });
}
#endif

// A row of a million in a thread with the smallest of stacks.
TEST(Resources, WideRowsOnASmallStack) {
  constexpr int64_t kWidth = 1000003;
  const size_t smallest = std::max<size_t>(
      64 * 1024, static_cast<size_t>(sysconf(_SC_THREAD_STACK_MIN)));
  const size_t page = Stack::PageSize();
#if defined(FUSEDNORM_SANITIZED) || !defined(__OPTIMIZE__)
  (void)page;
  Stack stack(std::max<size_t>(smallest, 1024 * 1024));
#else
  Stack stack((smallest + page - 1) / page * page);
#endif
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Op op : kOps) {
      Operands operands(op, Uniform(dtype), Packed({1, kWidth}));
      operands.x.FillWith(std::vector<double>(kWidth, 1.0));
      operands.residual.FillWith(std::vector<double>(kWidth, 0.0));
      operands.weight.FillWith(std::vector<double>(kWidth, 1.0));
      ForEachImplementation([&](const Implementation& implementation) {
        Views views = operands.Make();
        views.options.eps = 0;
        Status status;
        stack.Run([&] { status = views.Run(implementation); });
        EXPECT_TRUE(status.ok());
        for (const int64_t i : {int64_t{0}, kWidth / 2, kWidth - 1}) {
          EXPECT_NEAR(operands.out.value(0, i), 1.0, 0x1p-23);
        }
        EXPECT_NEAR(operands.rstd[0], 1.0, 0x1p-23);
      });
    }
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

// Runs a scope under the default floating-point environment (round to nearest,
// subnormals kept, nothing trapped) and puts back the caller's, control bits
// and sticky flags alike. <cfenv> would do, but it also saves the x87 state,
// which costs more than a small row.
#ifndef FUSEDNORM_KERNELS_FP_ENVIRONMENT_H_
#define FUSEDNORM_KERNELS_FP_ENVIRONMENT_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace fusednorm {
namespace internal {

#if defined(__x86_64__)

class ScopedFpEnvironment {
 public:
  ScopedFpEnvironment() : saved_(_mm_getcsr()) {
    // The low six bits are the sticky flags, which change no result. Writing
    // the register costs more than reading it.
    if ((saved_ & ~0x3Fu) != kDefault) _mm_setcsr(kDefault);
  }
  ~ScopedFpEnvironment() {
    if (_mm_getcsr() != saved_) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kDefault = 0x1F80;
  const unsigned saved_;

#elif defined(__aarch64__)

class ScopedFpEnvironment {
 public:
  ScopedFpEnvironment() {
    asm volatile("mrs %0, fpcr" : "=r"(control_));
    asm volatile("mrs %0, fpsr" : "=r"(status_));
    if (control_ != 0) Write(0, status_);
  }
  ~ScopedFpEnvironment() { Write(control_, status_); }

 private:
  static void Write(uint64_t control, uint64_t status) {
    asm volatile("msr fpcr, %0" : : "r"(control) : "memory");
    asm volatile("msr fpsr, %0" : : "r"(status) : "memory");
  }
  uint64_t control_;
  uint64_t status_;

#else

class ScopedFpEnvironment {
 public:
  ScopedFpEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~ScopedFpEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;

#endif

 public:
  ScopedFpEnvironment(const ScopedFpEnvironment&) = delete;
  ScopedFpEnvironment& operator=(const ScopedFpEnvironment&) = delete;
};

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_FP_ENVIRONMENT_H_

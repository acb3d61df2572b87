// The floating-point state of the calling thread: control bits (rounding,
// flushing, what is trapped) and sticky flags.
#ifndef FUSEDNORM_TESTS_FP_STATE_H_
#define FUSEDNORM_TESTS_FP_STATE_H_

#include <cstdint>
#include <ostream>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fusednorm {
namespace test {

struct FpState {
  uint64_t control = 0;
  uint64_t status = 0;

  bool operator==(const FpState& other) const {
    return control == other.control && status == other.status;
  }
};

inline std::ostream& operator<<(std::ostream& stream, const FpState& state) {
  return stream << std::hex << "control 0x" << state.control << " status 0x"
                << state.status << std::dec;
}

struct NamedFpState {
  const char* name;
  FpState state;
};

#if defined(__x86_64__)

// MXCSR holds both.
inline FpState GetFpState() {
  const unsigned all = _mm_getcsr();
  return {all & ~0x3Fu, all & 0x3Fu};
}
inline void SetFpState(const FpState& state) {
  _mm_setcsr(static_cast<unsigned>(state.control | state.status));
}

inline std::vector<NamedFpState> CallerStates() {
  return {
      {"default", {0x1F80, 0}},
      {"all sticky flags set", {0x1F80, 0x3F}},
      {"flush to zero", {0x9F80, 0}},
      {"denormals are zero", {0x1FC0, 0}},
      {"both, sticky inexact", {0x9FC0, 0x20}},
      {"down", {0x3F80, 0}},
      {"up", {0x5F80, 0}},
      {"to zero, flushing, sticky overflow", {0xFFC0, 0x08}},
      {"everything trapped", {0x0000, 0}},
      {"invalid, division and overflow trapped", {0x1900, 0}},
      {"everything trapped, rounding up, flushing", {0xC040, 0}},
  };
}

#elif defined(__aarch64__)

inline FpState GetFpState() {
  FpState state;
  asm volatile("mrs %0, fpcr" : "=r"(state.control));
  asm volatile("mrs %0, fpsr" : "=r"(state.status));
  return state;
}
inline void SetFpState(const FpState& state) {
  asm volatile("msr fpcr, %0" : : "r"(state.control));
  asm volatile("msr fpsr, %0" : : "r"(state.status));
}

// Few processors can trap: the others keep those bits zero.
inline std::vector<NamedFpState> CallerStates() {
  constexpr uint64_t kFlush = 1u << 24, kDefaultNan = 1u << 25;
  constexpr uint64_t kUp = 1u << 22, kDown = 2u << 22, kZero = 3u << 22;
  return {
      {"default", {0, 0}},
      {"all sticky flags set", {0, 0x9F}},
      {"flush to zero", {kFlush, 0}},
      {"default NaN", {kDefaultNan, 0}},
      {"flushing, sticky inexact", {kFlush, 0x10}},
      {"down", {kDown, 0}},
      {"up", {kUp, 0}},
      {"to zero, flushing, sticky overflow", {kZero | kFlush, 0x04}},
  };
}

#endif

// Sets a state, and puts the thread's own back at the end of the scope.
class ScopedFpState {
 public:
  explicit ScopedFpState(const FpState& state) : own_(GetFpState()) {
    SetFpState(state);
  }
  ~ScopedFpState() { SetFpState(own_); }
  ScopedFpState(const ScopedFpState&) = delete;
  ScopedFpState& operator=(const ScopedFpState&) = delete;

 private:
  const FpState own_;
};

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_FP_STATE_H_

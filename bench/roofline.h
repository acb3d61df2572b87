// What the machine allows: passes over the bytes that an operation must move,
// and the core's clock.
#ifndef FUSEDNORM_BENCH_ROOFLINE_H_
#define FUSEDNORM_BENCH_ROOFLINE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "fusednorm/tensor.h"

namespace fusednorm {
namespace bench {

// The streams of a pass over `x`, `second` and `out`.
enum class Streams {
  kCopy,          // x read, out written
  kAdd,           // x and second read, second and out written
  kMerge,         // x and second read, out written
  kMergeInPlace,  // x, second and out read, out written
  kRewrite,       // second and out read and written
};
constexpr int kStreamKinds = 5;

// How many times `bytes` such a pass moves.
constexpr size_t CountOf(Streams streams) {
  return streams == Streams::kCopy ? 2 : streams == Streams::kMerge ? 3 : 4;
}

// Pointers to be written are aligned to 64 bytes.
using Pass = void (*)(const uint8_t* x, uint8_t* second, uint8_t* out,
                      size_t bytes);

// Vector loops, compiled for one target.
struct Roofline {
  struct Passes {
    Pass plain;
    Pass stream;  // Bypasses the cache with out.
  } passes[kStreamKinds];

  // to += x: the addition as a pass of its own. It takes whole vectors, so it
  // may run up to 128 bytes past the end.
  void (*add)(DType dtype, const uint8_t* x, uint8_t* to, size_t bytes);

  // Reads all of x.
  void (*read)(const uint8_t* x, size_t bytes);
};

// The loops for a target of the library, by its name; null for "scalar".
const Roofline* RooflineOf(const std::string& target);

// The core's clock now, from a chain of dependent additions.
double ClockGHz();

}  // namespace bench
}  // namespace fusednorm

#endif  // FUSEDNORM_BENCH_ROOFLINE_H_

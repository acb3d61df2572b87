// What the machine allows: copies of the bytes that an operation must move,
// and the core's clock.
#ifndef FUSEDNORM_BENCH_ROOFLINE_H_
#define FUSEDNORM_BENCH_ROOFLINE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "fusednorm/tensor.h"

namespace fusednorm {
namespace bench {

// Vector loops, compiled for one target. Pointers to be written are aligned to
// 64 bytes.
struct Roofline {
  // out = x; `stream` bypasses the cache.
  void (*copy)(const uint8_t* x, uint8_t* out, size_t bytes);
  void (*stream)(const uint8_t* x, uint8_t* out, size_t bytes);

  // The four streams of the fused addition: x and residual read, residual and
  // out written (out = residual, then residual = x). `stream_add` bypasses the
  // cache with out.
  void (*copy_add)(const uint8_t* x, uint8_t* residual, uint8_t* out,
                   size_t bytes);
  void (*stream_add)(const uint8_t* x, uint8_t* residual, uint8_t* out,
                     size_t bytes);

  // residual += x: the addition as a pass of its own. It takes whole vectors,
  // so it may run up to 128 bytes past the end.
  void (*add)(DType dtype, const uint8_t* x, uint8_t* residual, size_t bytes);
};

// The loops for a target of the library, by its name; null for "scalar".
const Roofline* RooflineOf(const std::string& target);

// The core's clock now, from a chain of dependent additions.
double ClockGHz();

}  // namespace bench
}  // namespace fusednorm

#endif  // FUSEDNORM_BENCH_ROOFLINE_H_

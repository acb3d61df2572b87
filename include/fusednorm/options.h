// The options that all operations share.
#ifndef FUSEDNORM_OPTIONS_H_
#define FUSEDNORM_OPTIONS_H_

#include <cstdint>

namespace fusednorm {

// Where v = u * rstd is rounded on its way to y = v * g. The two differ in the
// last bits of 16-bit outputs, and models depend on which they were trained
// with. For f32 they are the same.
enum class Rounding : int32_t {
  // v stays f32; y is rounded once. PyTorch rms_norm, Hugging Face Gemma, OLMo
  // 2 and gpt-oss, vLLM CPU, SGLang, FlashInfer, ONNX Runtime.
  kOnce = 0,
  // v is rounded to the dtype of the vector that is normalised (x; in the
  // fused addition the stream) before the weight is applied. Hugging Face
  // Llama, Qwen, Mistral and DeepSeek.
  kBeforeWeight = 1,
};

// Which value of h = x + residual_scale * residual the norm sees. The stream's
// dtype is residual's, also when residual_out is left out; for an f32 stream
// the three are the same.
enum class Sum : int32_t {
  // Statistic and output use h as stored in residual_out: the bits of the
  // separate operations. Hugging Face eager, vLLM GPU.
  kRounded = 0,
  // Statistic and output use h in f32. SGLang, FlashInfer, ONNX Runtime.
  kExact = 1,
  // The statistic uses h in f32, the output the stored value. vLLM CPU, ZenDNN.
  kExactStatistic = 2,
};

// Whether stores to `out` bypass the cache: a hint that changes no bit.
enum class Nontemporal : int32_t {
  kAuto = 0,
  kNever = 1,
  kAlways = 2,
};

// Runs body(arg, begin, end) over disjoint ranges that cover [0, count), on any
// threads, and returns when all are done. It must not throw.
using ParallelFor = void (*)(void* context, int64_t count,
                             void (*body)(void* arg, int64_t begin,
                                          int64_t end),
                             void* arg);

struct Options {
  // Added to the mean square inside the root. Finite, >= 0; the same number for
  // every dtype, never replaced by another.
  float eps = 1e-6f;
  // The gain is g = weight_offset + weight, added in f32, or weight itself if
  // the offset is 0. Gemma stores weight - 1 and takes 1 here. Finite.
  float weight_offset = 0.0f;
  // h = fma(residual_scale, residual, x); DeepNorm. Finite.
  float residual_scale = 1.0f;
  Rounding rounding = Rounding::kOnce;
  Sum sum = Sum::kRounded;
  Nontemporal nontemporal = Nontemporal::kAuto;
  // Backward operations: add to dweight instead of overwriting it.
  bool accumulate = false;
  // 0: as many as OpenMP would use; 1: the calling thread alone, OpenMP and
  // parallel_for untouched. Small work stays on the calling thread in any case,
  // as does a call from inside a parallel region or in a forked child.
  int32_t num_threads = 0;
  // Forward operations write one rstd per row here, in row-major order of the
  // leading axes; null: not wanted. Not with f64.
  float* rstd = nullptr;
  // Quantised outputs: one scale per row or group. Must be null elsewhere.
  float* scale = nullptr;
  // The caller's own thread pool in place of OpenMP; null: OpenMP.
  ParallelFor parallel_for = nullptr;
  void* parallel_context = nullptr;
};

}  // namespace fusednorm

#endif  // FUSEDNORM_OPTIONS_H_

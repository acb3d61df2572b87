/* fusednorm: the C ABI. Stable: it grows by new functions, new enumerators and
   fields at the end of the options, and changes nothing else.

   fusednorm.h documents the operations: formulas, shapes, dtypes, aliasing,
   errors. A tensor marked "or null" is optional. Every call returns a status
   and never aborts, throws or prints; when it refuses it writes no output, and
   fusednorm_last_error() says why. */
#ifndef FUSEDNORM_C_H_
#define FUSEDNORM_C_H_

#include <stddef.h>
#include <stdint.h>

#include "fusednorm/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bf16 and f16 are raw 16-bit data. */
typedef int32_t fusednorm_dtype;
enum {
  FUSEDNORM_F32 = 0,
  FUSEDNORM_BF16 = 1,
  FUSEDNORM_F16 = 2,
  FUSEDNORM_F64 = 3,
  FUSEDNORM_I8 = 4,
  FUSEDNORM_F8E4M3 = 5,
  FUSEDNORM_Q8_0 = 6
};

typedef int32_t fusednorm_status;
enum {
  FUSEDNORM_OK = 0,
  FUSEDNORM_INVALID_ARGUMENT = 1, /* malformed; the message names what */
  FUSEDNORM_UNSUPPORTED = 2,      /* well-formed, but not offered */
  FUSEDNORM_INTERNAL = 3,
  FUSEDNORM_OUT_OF_MEMORY = 4
};

/* rounding: whether x * rstd is rounded before the weight is applied */
enum { FUSEDNORM_ROUND_ONCE = 0, FUSEDNORM_ROUND_BEFORE_WEIGHT = 1 };

/* sum: which value of x + residual the norm sees */
enum {
  FUSEDNORM_SUM_ROUNDED = 0,
  FUSEDNORM_SUM_EXACT = 1,
  FUSEDNORM_SUM_EXACT_STATISTIC = 2
};

/* nontemporal: whether stores to out bypass the cache; changes no bit */
enum {
  FUSEDNORM_NONTEMPORAL_AUTO = 0,
  FUSEDNORM_NONTEMPORAL_NEVER = 1,
  FUSEDNORM_NONTEMPORAL_ALWAYS = 2
};

/* A view: it owns nothing. The last axis is the row, contiguous. */
typedef struct fusednorm_tensor {
  void* data;
  fusednorm_dtype dtype;
  int32_t rank; /* 1 to 4 */
  int64_t shape[4];
  int64_t strides[4]; /* in elements; the last is 1 */
} fusednorm_tensor;

/* Runs body(arg, begin, end) over disjoint ranges that cover [0, count), on any
   threads, and returns when all are done. */
typedef void (*fusednorm_parallel_for)(void* context, int64_t count,
                                       void (*body)(void* arg, int64_t begin,
                                                    int64_t end),
                                       void* arg);

/* options.h documents the fields. */
typedef struct fusednorm_options {
  size_t struct_size;   /* set by fusednorm_options_init; what a smaller struct
                           lacks has its default */
  float eps;            /* 1e-6 */
  float weight_offset;  /* 0; Gemma: 1 */
  float residual_scale; /* 1 */
  int32_t rounding;
  int32_t sum;
  int32_t nontemporal;
  int32_t accumulate;  /* backward: add to dweight */
  int32_t num_threads; /* 0: as many as there are; 1: the caller's alone */
  float* rstd;  /* one per row, or null: written by forward, read by backward */
  float* scale; /* quantised outputs: one per row or group */
  fusednorm_parallel_for parallel_for;
  void* parallel_context;
} fusednorm_options;

/* Sets struct_size and the defaults. */
FUSEDNORM_API void fusednorm_options_init(fusednorm_options* options);

/* options null: the defaults. */
FUSEDNORM_API fusednorm_status fusednorm_rms_norm(
    const fusednorm_tensor* x, const fusednorm_tensor* weight /* or null */,
    const fusednorm_tensor* out, const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_add_rms_norm(
    const fusednorm_tensor* x, const fusednorm_tensor* residual,
    const fusednorm_tensor* weight /* or null */, const fusednorm_tensor* out,
    const fusednorm_tensor* residual_out /* or null */,
    const fusednorm_options* options);

FUSEDNORM_API fusednorm_status fusednorm_rms_norm_add(
    const fusednorm_tensor* x, const fusednorm_tensor* residual,
    const fusednorm_tensor* weight /* or null */, const fusednorm_tensor* out,
    const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_rms_norm_add_rms_norm(
    const fusednorm_tensor* x, const fusednorm_tensor* residual,
    const fusednorm_tensor* weight_post /* or null */,
    const fusednorm_tensor* weight_pre /* or null */,
    const fusednorm_tensor* out, const fusednorm_tensor* residual_out,
    const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_row_rstd(
    const fusednorm_tensor* x, float* rstd, const fusednorm_options* options);
FUSEDNORM_API fusednorm_status
fusednorm_row_sum_squares(const fusednorm_tensor* x, double* sum_squares,
                          const fusednorm_options* options);
FUSEDNORM_API float fusednorm_rstd_from_sum_squares(double sum_squares,
                                                    int64_t width, float eps);
FUSEDNORM_API fusednorm_status fusednorm_rms_norm_with_rstd(
    const fusednorm_tensor* x, const float* rstd,
    const fusednorm_tensor* weight /* or null */, const fusednorm_tensor* out,
    const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_rms_norm_backward(
    const fusednorm_tensor* x, const fusednorm_tensor* weight /* or null */,
    const fusednorm_tensor* dy, const fusednorm_tensor* dx /* or null */,
    const fusednorm_tensor* dweight /* or null */,
    const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_add_rms_norm_backward(
    const fusednorm_tensor* h, const fusednorm_tensor* weight /* or null */,
    const fusednorm_tensor* dy,
    const fusednorm_tensor* d_residual_out /* or null */,
    const fusednorm_tensor* dh /* or null */,
    const fusednorm_tensor* dweight /* or null */,
    const fusednorm_options* options);

/* fusednorm_rms_norm of packed f32 rows with the default options but eps. */
FUSEDNORM_API fusednorm_status
fusednorm_rms_norm_f32(const float* x, const float* weight /* or null */,
                       float* out, int64_t rows, int64_t width, float eps);

/* The scalar reference: the same arguments, the same bits. */
FUSEDNORM_API fusednorm_status fusednorm_reference_rms_norm(
    const fusednorm_tensor* x, const fusednorm_tensor* weight /* or null */,
    const fusednorm_tensor* out, const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_reference_add_rms_norm(
    const fusednorm_tensor* x, const fusednorm_tensor* residual,
    const fusednorm_tensor* weight /* or null */, const fusednorm_tensor* out,
    const fusednorm_tensor* residual_out /* or null */,
    const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_reference_rms_norm_add(
    const fusednorm_tensor* x, const fusednorm_tensor* residual,
    const fusednorm_tensor* weight /* or null */, const fusednorm_tensor* out,
    const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_reference_rms_norm_add_rms_norm(
    const fusednorm_tensor* x, const fusednorm_tensor* residual,
    const fusednorm_tensor* weight_post /* or null */,
    const fusednorm_tensor* weight_pre /* or null */,
    const fusednorm_tensor* out, const fusednorm_tensor* residual_out,
    const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_reference_row_rstd(
    const fusednorm_tensor* x, float* rstd, const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_reference_row_sum_squares(
    const fusednorm_tensor* x, double* sum_squares,
    const fusednorm_options* options);
FUSEDNORM_API float fusednorm_reference_rstd_from_sum_squares(
    double sum_squares, int64_t width, float eps);
FUSEDNORM_API fusednorm_status fusednorm_reference_rms_norm_with_rstd(
    const fusednorm_tensor* x, const float* rstd,
    const fusednorm_tensor* weight /* or null */, const fusednorm_tensor* out,
    const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_reference_rms_norm_backward(
    const fusednorm_tensor* x, const fusednorm_tensor* weight /* or null */,
    const fusednorm_tensor* dy, const fusednorm_tensor* dx /* or null */,
    const fusednorm_tensor* dweight /* or null */,
    const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_reference_add_rms_norm_backward(
    const fusednorm_tensor* h, const fusednorm_tensor* weight /* or null */,
    const fusednorm_tensor* dy,
    const fusednorm_tensor* d_residual_out /* or null */,
    const fusednorm_tensor* dh /* or null */,
    const fusednorm_tensor* dweight /* or null */,
    const fusednorm_options* options);
FUSEDNORM_API fusednorm_status fusednorm_reference_rms_norm_f32(
    const float* x, const float* weight /* or null */, float* out, int64_t rows,
    int64_t width, float eps);

/* The message of the calling thread's last failing call; "" if none. */
FUSEDNORM_API const char* fusednorm_last_error(void);
FUSEDNORM_API const char* fusednorm_version(void); /* "1.2.3" */

/* targets.h documents these. */
FUSEDNORM_API const char* fusednorm_target(void);  /* the one in use */
FUSEDNORM_API const char* fusednorm_targets(void); /* best first, by spaces */
FUSEDNORM_API fusednorm_status
fusednorm_set_target(const char* name); /* null: back to the best */

#ifdef __cplusplus
}
#endif
#endif /* FUSEDNORM_C_H_ */

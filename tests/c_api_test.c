/* The C ABI as a C program sees it. Each check returns null, or the text of the
   condition that failed; c_api_test.cc turns them into tests. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "c_api_test.h"
#include "fusednorm/c.h"

#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)
#define CHECK(condition) \
  if (!(condition)) return __FILE__ ":" TEXT(__LINE__) ": " #condition

enum { kRows = 3, kWidth = 5, kSize = kRows * kWidth };

static const float kX[kSize] = {1, -2, 3, 4,   5,     -6,    7e20f, 8,
                                9, 10, 0, 0.f, 1e-9f, -0.5f, 2};
static const float kResidual[kSize] = {3, 1, 4,    1, 5, 9, 2, 6,
                                       5, 3, 5.5f, 8, 9, 7, 9};
static const float kWeight[kWidth] = {1, 0.5f, -2, 3, 0.125f};

static fusednorm_tensor Rows(const void* data) {
  fusednorm_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = (void*)data;
  tensor.dtype = FUSEDNORM_F32;
  tensor.rank = 2;
  tensor.shape[0] = kRows;
  tensor.shape[1] = kWidth;
  tensor.strides[0] = kWidth;
  tensor.strides[1] = 1;
  return tensor;
}

static fusednorm_tensor OneRow(const void* data) {
  fusednorm_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = (void*)data;
  tensor.rank = 1;
  tensor.shape[0] = kWidth;
  tensor.strides[0] = 1;
  return tensor;
}

static int Near(float a, double b) {
  return fabs((double)a - b) <= 1e-6 * fabs(b);
}

/* What a compiled caller has baked in: values, offsets, sizes. */
const char* CheckLayout(void) {
  CHECK(FUSEDNORM_F32 == 0 && FUSEDNORM_BF16 == 1 && FUSEDNORM_F16 == 2);
  CHECK(FUSEDNORM_F64 == 3 && FUSEDNORM_I8 == 4 && FUSEDNORM_F8E4M3 == 5);
  CHECK(FUSEDNORM_Q8_0 == 6);
  CHECK(FUSEDNORM_OK == 0 && FUSEDNORM_INVALID_ARGUMENT == 1);
  CHECK(FUSEDNORM_UNSUPPORTED == 2 && FUSEDNORM_INTERNAL == 3);
  CHECK(FUSEDNORM_OUT_OF_MEMORY == 4);
  CHECK(FUSEDNORM_ROUND_ONCE == 0 && FUSEDNORM_ROUND_BEFORE_WEIGHT == 1);
  CHECK(FUSEDNORM_SUM_ROUNDED == 0 && FUSEDNORM_SUM_EXACT == 1);
  CHECK(FUSEDNORM_SUM_EXACT_STATISTIC == 2);
  CHECK(FUSEDNORM_NONTEMPORAL_AUTO == 0 && FUSEDNORM_NONTEMPORAL_NEVER == 1);
  CHECK(FUSEDNORM_NONTEMPORAL_ALWAYS == 2);
  CHECK(sizeof(fusednorm_dtype) == 4 && sizeof(fusednorm_status) == 4);

  CHECK(sizeof(fusednorm_tensor) == 80);
  CHECK(offsetof(fusednorm_tensor, data) == 0);
  CHECK(offsetof(fusednorm_tensor, dtype) == 8);
  CHECK(offsetof(fusednorm_tensor, rank) == 12);
  CHECK(offsetof(fusednorm_tensor, shape) == 16);
  CHECK(offsetof(fusednorm_tensor, strides) == 48);

  CHECK(offsetof(fusednorm_options, struct_size) == 0);
  CHECK(offsetof(fusednorm_options, eps) == 8);
  CHECK(offsetof(fusednorm_options, weight_offset) == 12);
  CHECK(offsetof(fusednorm_options, residual_scale) == 16);
  CHECK(offsetof(fusednorm_options, rounding) == 20);
  CHECK(offsetof(fusednorm_options, sum) == 24);
  CHECK(offsetof(fusednorm_options, nontemporal) == 28);
  CHECK(offsetof(fusednorm_options, accumulate) == 32);
  CHECK(offsetof(fusednorm_options, num_threads) == 36);
  CHECK(offsetof(fusednorm_options, rstd) == 40);
  CHECK(offsetof(fusednorm_options, scale) == 48);
  CHECK(offsetof(fusednorm_options, parallel_for) == 56);
  CHECK(offsetof(fusednorm_options, parallel_context) == 64);
  CHECK(sizeof(fusednorm_options) == 72);
  return NULL;
}

const char* CheckOptionsInit(void) {
  fusednorm_options options;
  memset(&options, 0xA5, sizeof options);
  fusednorm_options_init(&options);
  CHECK(options.struct_size == sizeof options);
  CHECK(options.eps == 1e-6f);
  CHECK(options.weight_offset == 0 && options.residual_scale == 1);
  CHECK(options.rounding == FUSEDNORM_ROUND_ONCE);
  CHECK(options.sum == FUSEDNORM_SUM_ROUNDED);
  CHECK(options.nontemporal == FUSEDNORM_NONTEMPORAL_AUTO);
  CHECK(options.accumulate == 0 && options.num_threads == 0);
  CHECK(options.rstd == NULL && options.scale == NULL);
  CHECK(options.parallel_for == NULL && options.parallel_context == NULL);
  return NULL;
}

const char* CheckValues(void) {
  const float in[4] = {3, 4, 0, 0};
  const float weight[4] = {1, 0.5f, 2, 2};
  float out[4] = {-1, -1, -1, -1};
  CHECK(fusednorm_rms_norm_f32(in, weight, out, 1, 4, 0) == FUSEDNORM_OK);
  CHECK(Near(out[0], 1.2) && Near(out[1], 0.8) && out[2] == 0 && out[3] == 0);
  CHECK(fusednorm_rms_norm_f32(in, NULL, out, 2, 2, 1e-6f) == FUSEDNORM_OK);
  CHECK(Near(out[0], 0.84852812) && Near(out[1], 1.13137082) && out[2] == 0);
  return NULL;
}

/* The optional arguments: null means that there is none. */
const char* CheckRmsNorm(void) {
  fusednorm_tensor x = Rows(kX), weight = OneRow(kWeight), out, expected;
  fusednorm_options options;
  float a[kSize], b[kSize], rstd[kRows];
  out = Rows(a);
  expected = Rows(b);

  CHECK(fusednorm_rms_norm(&x, &weight, &out, NULL) == FUSEDNORM_OK);
  CHECK(fusednorm_reference_rms_norm(&x, &weight, &expected, NULL) ==
        FUSEDNORM_OK);
  CHECK(memcmp(a, b, sizeof a) == 0);
  CHECK(fusednorm_rms_norm_f32(kX, kWeight, b, kRows, kWidth, 1e-6f) ==
        FUSEDNORM_OK);
  CHECK(memcmp(a, b, sizeof a) == 0);
  CHECK(fusednorm_reference_rms_norm_f32(kX, kWeight, b, kRows, kWidth,
                                         1e-6f) == FUSEDNORM_OK);
  CHECK(memcmp(a, b, sizeof a) == 0);

  /* Without a weight, with options that change every value. */
  fusednorm_options_init(&options);
  options.eps = 10;
  options.rstd = rstd;
  CHECK(fusednorm_rms_norm(&x, NULL, &out, &options) == FUSEDNORM_OK);
  CHECK(Near(rstd[0], 1 / sqrt(55.0 / 5 + 10)) && Near(a[0], rstd[0]));
  CHECK(fusednorm_rms_norm_f32(kX, NULL, b, kRows, kWidth, 10) == FUSEDNORM_OK);
  CHECK(memcmp(a, b, sizeof a) == 0);

  fusednorm_options_init(&options);
  options.weight_offset = 1;
  CHECK(fusednorm_rms_norm(&x, &weight, &out, &options) == FUSEDNORM_OK);
  CHECK(Near(a[0], 2 / sqrt(11.0 + 1e-6)));
  return NULL;
}

const char* CheckAddRmsNorm(void) {
  fusednorm_tensor x = Rows(kX), residual = Rows(kResidual);
  fusednorm_tensor weight = OneRow(kWeight), out, sum, expected, expected_sum;
  fusednorm_options options;
  float a[kSize], h[kSize], b[kSize], g[kSize];
  out = Rows(a);
  sum = Rows(h);
  expected = Rows(b);
  expected_sum = Rows(g);

  CHECK(fusednorm_add_rms_norm(&x, &residual, &weight, &out, &sum, NULL) ==
        FUSEDNORM_OK);
  CHECK(h[0] == 4 && h[1] == -1 && h[2] == 7);
  CHECK(fusednorm_reference_add_rms_norm(&x, &residual, &weight, &expected,
                                         &expected_sum, NULL) == FUSEDNORM_OK);
  CHECK(memcmp(a, b, sizeof a) == 0 && memcmp(h, g, sizeof h) == 0);
  CHECK(fusednorm_rms_norm_f32(h, kWeight, b, kRows, kWidth, 1e-6f) ==
        FUSEDNORM_OK);
  CHECK(memcmp(a, b, sizeof a) == 0);

  memset(b, 0, sizeof b);
  CHECK(fusednorm_add_rms_norm(&x, &residual, &weight, &expected, NULL, NULL) ==
        FUSEDNORM_OK);
  CHECK(memcmp(a, b, sizeof a) == 0);

  fusednorm_options_init(&options);
  options.residual_scale = 2;
  CHECK(fusednorm_add_rms_norm(&x, &residual, NULL, &out, &sum, &options) ==
        FUSEDNORM_OK);
  CHECK(h[0] == 7 && h[1] == 0 && h[2] == 11);
  return NULL;
}

/* A tensor that is not optional must be there, and the views must be sound. */
const char* CheckRefusals(void) {
  fusednorm_tensor x = Rows(kX), residual = Rows(kResidual), out, bad;
  fusednorm_options options;
  float a[kSize], before[kSize];
  memset(a, 0x5A, sizeof a);
  memset(before, 0x5A, sizeof before);
  out = Rows(a);

  CHECK(fusednorm_rms_norm(NULL, NULL, &out, NULL) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(strstr(fusednorm_last_error(), "x") != NULL);
  CHECK(fusednorm_rms_norm(&x, NULL, NULL, NULL) == FUSEDNORM_INVALID_ARGUMENT);
  CHECK(strstr(fusednorm_last_error(), "out") != NULL);
  CHECK(fusednorm_add_rms_norm(&x, NULL, NULL, &out, NULL, NULL) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(strstr(fusednorm_last_error(), "residual") != NULL);
  CHECK(fusednorm_add_rms_norm(NULL, &residual, NULL, &out, NULL, NULL) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(fusednorm_add_rms_norm(&x, &residual, NULL, NULL, NULL, NULL) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(fusednorm_reference_rms_norm(NULL, NULL, &out, NULL) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(fusednorm_reference_add_rms_norm(&x, NULL, NULL, &out, NULL, NULL) ==
        FUSEDNORM_INVALID_ARGUMENT);

  bad = x;
  bad.dtype = 7;
  CHECK(fusednorm_rms_norm(&bad, NULL, &out, NULL) ==
        FUSEDNORM_INVALID_ARGUMENT);
  bad = out;
  bad.dtype = FUSEDNORM_I8;
  CHECK(fusednorm_rms_norm(&x, NULL, &bad, NULL) == FUSEDNORM_UNSUPPORTED);

  fusednorm_options_init(&options);
  options.rounding = 2;
  CHECK(fusednorm_rms_norm(&x, NULL, &out, &options) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(strstr(fusednorm_last_error(), "rounding") != NULL);

  CHECK(fusednorm_rms_norm_f32(NULL, NULL, a, kRows, kWidth, 0) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(fusednorm_rms_norm_f32(kX, NULL, NULL, kRows, kWidth, 0) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(fusednorm_rms_norm_f32(kX, NULL, a, -1, kWidth, 0) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(fusednorm_rms_norm_f32(kX, NULL, a, kRows, 0, 0) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(fusednorm_rms_norm_f32(kX, NULL, a, kRows, -5, 0) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(fusednorm_rms_norm_f32(kX, NULL, a, kRows, kWidth, -1) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(strstr(fusednorm_last_error(), "eps") != NULL);
  CHECK(strstr(fusednorm_last_error(), "-1") != NULL);
  CHECK(fusednorm_rms_norm_f32(kX, NULL, a, INT64_MAX, kWidth, 0) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(fusednorm_rms_norm_f32(kX, a, a, kRows, kWidth, 0) ==
        FUSEDNORM_INVALID_ARGUMENT);
  CHECK(memcmp(a, before, sizeof a) == 0);

  /* No rows: nothing to read, nothing to write, nothing to refuse. */
  CHECK(fusednorm_rms_norm_f32(NULL, NULL, NULL, 0, kWidth, 0) == FUSEDNORM_OK);
  return NULL;
}

/* The last error outlives the calls that succeed. */
const char* CheckLastError(void) {
  char message[512];
  float out[kWidth];
  CHECK(fusednorm_rms_norm_f32(kX, NULL, out, 1, 0, 0) ==
        FUSEDNORM_INVALID_ARGUMENT);
  snprintf(message, sizeof message, "%s", fusednorm_last_error());
  CHECK(message[0] != '\0');
  CHECK(fusednorm_rms_norm_f32(kX, NULL, out, 1, kWidth, 0) == FUSEDNORM_OK);
  CHECK(strcmp(message, fusednorm_last_error()) == 0);
  return NULL;
}

const char* CheckVersion(void) {
  int major = -1, minor = -1, patch = -1, end = -1;
  const char* version = fusednorm_version();
  CHECK(sscanf(version, "%d.%d.%d%n", &major, &minor, &patch, &end) == 3);
  CHECK(major >= 0 && minor >= 0 && patch >= 0);
  CHECK(end == (int)strlen(version));
  return NULL;
}

/* Every listed target can be chosen, and says so; no other can. */
const char* CheckTargets(void) {
  char names[256];
  char best[64];
  char* name;
  CHECK(fusednorm_set_target(NULL) == FUSEDNORM_OK);
  snprintf(best, sizeof best, "%s", fusednorm_target());
  snprintf(names, sizeof names, "%s", fusednorm_targets());
  CHECK(strncmp(names, best, strlen(best)) == 0);
  CHECK(strstr(names, "scalar") != NULL);
  for (name = strtok(names, " "); name != NULL; name = strtok(NULL, " ")) {
    CHECK(fusednorm_set_target(name) == FUSEDNORM_OK);
    CHECK(strcmp(fusednorm_target(), name) == 0);
  }
  CHECK(fusednorm_set_target("altivec") == FUSEDNORM_INVALID_ARGUMENT);
  CHECK(strstr(fusednorm_last_error(), "altivec") != NULL);
  CHECK(strstr(fusednorm_last_error(), "scalar") != NULL);
  CHECK(strcmp(fusednorm_target(), "scalar") == 0); /* The last of the list. */
  CHECK(fusednorm_set_target(NULL) == FUSEDNORM_OK);
  CHECK(strcmp(fusednorm_target(), best) == 0);
  return NULL;
}

// Highway as this library uses it: which targets are compiled, and whatever
// differs between its releases. Comes before any other Highway header.
#ifndef FUSEDNORM_KERNELS_HIGHWAY_H_
#define FUSEDNORM_KERNELS_HIGHWAY_H_

// AVX2, AVX-512 and NEON. The others lack fused multiply-add or fixed vector
// sizes and are served by the reference; Highway insists on SCALAR or EMU128
// as a baseline for plain x86-64, which compiles to nothing here.
#define HWY_DISABLED_TARGETS \
  (~(HWY_AVX2 | HWY_AVX3 | FUSEDNORM_NEON | HWY_SCALAR | HWY_EMU128))

#include "hwy/detect_targets.h"

// From 1.2 on plain AArch64 is NEON_WITHOUT_AES, and NEON a second target that
// differs in nothing used here.
#if defined(HWY_NEON_WITHOUT_AES) && !defined(__ARM_FEATURE_AES)
#define FUSEDNORM_NEON HWY_NEON_WITHOUT_AES
#define FUSEDNORM_N_NEON N_NEON_WITHOUT_AES
#else
#define FUSEDNORM_NEON HWY_NEON
#define FUSEDNORM_N_NEON N_NEON
#endif

// In a per-target section: whether this target is one of ours.
#define FUSEDNORM_HAVE_TARGET \
  (HWY_TARGET & (HWY_AVX2 | HWY_AVX3 | FUSEDNORM_NEON))

// A function of each target's namespace, in the order of Target; null where
// the target is not compiled.
#if HWY_TARGETS & HWY_AVX3
#define FUSEDNORM_AVX512(function) &N_AVX3::function
#else
#define FUSEDNORM_AVX512(function) nullptr
#endif
#if HWY_TARGETS & HWY_AVX2
#define FUSEDNORM_AVX2(function) &N_AVX2::function
#else
#define FUSEDNORM_AVX2(function) nullptr
#endif
#if HWY_TARGETS & FUSEDNORM_NEON
#define FUSEDNORM_NEON_FUNCTION(function) &FUSEDNORM_N_NEON::function
#else
#define FUSEDNORM_NEON_FUNCTION(function) nullptr
#endif
#define FUSEDNORM_TARGET_TABLE(function)                  \
  {                                                       \
    FUSEDNORM_AVX512(function), FUSEDNORM_AVX2(function), \
        FUSEDNORM_NEON_FUNCTION(function), nullptr        \
  }

#endif  // FUSEDNORM_KERNELS_HIGHWAY_H_

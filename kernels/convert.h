// Scalar conversions between f32 and the 16-bit dtypes: round to nearest even,
// NaN stays a (quiet) NaN, overflow gives Inf, subnormals are kept.
#ifndef FUSEDNORM_KERNELS_CONVERT_H_
#define FUSEDNORM_KERNELS_CONVERT_H_

#include <cstdint>
#include <cstring>

namespace fusednorm {
namespace internal {

inline uint32_t BitsFromF32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float F32FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float F32FromBF16(uint16_t bits) {
  return F32FromBits(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t BF16FromF32(float value) {
  const uint32_t bits = BitsFromF32(value);
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  if (nan) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  // Half a unit less one, and the odd bit: a carry exactly where RNE rounds up.
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline float F32FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {  // Zero or subnormal: a multiple of 2^-24, exact in f32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return F32FromBits(sign | BitsFromF32(magnitude));
  }
  const uint32_t biased = exponent == 0x1F ? 0xFFu : exponent + (127 - 15);
  return F32FromBits(sign | (biased << 23) | (mantissa << 13));
}

inline uint16_t F16FromF32(float value) {
  const uint32_t bits = BitsFromF32(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN: quiet, upper payload bits kept.
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu));
  }
  if (magnitude >= 0x477FF000u) {  // From 65520, the tie above 65504.
    return static_cast<uint16_t>(sign | 0x7C00u);
  }
  if (magnitude >= 0x38800000u) {  // Normal in f16: from 2^-14.
    const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
  }
  // Subnormal: a whole number of 2^-24. Below 2^-25 (shift > 24) it is zero.
  const uint32_t shift = 126 - (magnitude >> 23);
  if (shift > 24) return static_cast<uint16_t>(sign);
  const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
  const uint32_t quotient = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  const bool up = rest > half || (rest == half && (quotient & 1u) != 0);
  return static_cast<uint16_t>(sign | (quotient + (up ? 1u : 0u)));
}

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_CONVERT_H_

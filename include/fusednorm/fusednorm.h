// fusednorm: fused RMSNorm kernels for CPUs. The operations.
//
// Common to all operations
//   row        one vector along the last axis; its length is the width n
//   g_j        weight_j, or weight_offset + weight_j; no weight: no factor
//   norm(u)_j  = round(u_j * r) * g_j,  r = 1 / sqrt(mean(u^2) + eps), where
//              the middle rounding is options.rounding
//   bits       the same on every target, thread count and batch, equal to
//              those of reference.h, for all inputs and in whatever
//              floating-point environment the caller runs (it is left alone)
//   accuracy   f32 outputs: 4 units of 2^-23 relative to the exact formula up
//              to width 65536; 16-bit outputs: that, rounded to nearest even
//              (twice with kBeforeWeight)
//   range      finite rows are range safe: squares that overflow or vanish in
//              f32 do no harm; a zero row gives zeros for every eps >= 0; one
//              NaN makes its row NaN, an Inf gives NaN in its place and 0
//              elsewhere; other rows are untouched by it
//   shapes     any width from 1, any number of rows; zero rows succeed and
//              write nothing. See tensor.h for strides
//   dtypes     f32, bf16 and f16, each tensor on its own; or f64 for all
//              tensors of a call (computed in f64 by the scalar code)
//   weight     optional (a default-constructed view): one row of width n, or
//              x's rank with each leading axis equal to x's or 1
//   aliasing   an output may be an input's alias, that is the same pointer,
//              dtype, shape and strides, where the operation lists the pair;
//              any other overlap of an output with another tensor or with
//              itself is refused. Inputs may overlap each other
//   memory     the forward operations allocate nothing and use at most 32 KiB
//              of stack; nothing outside the rows is read or written
//   errors     kInvalidArgument for a malformed argument (null data, bad rank,
//              shape mismatch, width 0, last stride not 1, negative stride,
//              overlap, bad option, misaligned pointer, size overflow) and
//              kUnsupported for what is well-formed but not offered; nothing
//              is written then, and the message names the argument
//   threads    all functions may be called from any number of threads
#ifndef FUSEDNORM_FUSEDNORM_H_
#define FUSEDNORM_FUSEDNORM_H_

#include "fusednorm/export.h"
#include "fusednorm/options.h"
#include "fusednorm/status.h"
#include "fusednorm/targets.h"
#include "fusednorm/tensor.h"

namespace fusednorm {

// out = norm(x). Zhang and Sennrich, "Root Mean Square Layer Normalization",
// 2019.
//   x       rows of any shape
//   weight  optional
//   out     x's shape; may alias x
//   options.rstd  receives r of each row
FUSEDNORM_API Status RmsNorm(const ConstTensor& x, const ConstTensor& weight,
                             const Tensor& out,
                             const Options& options = {}) noexcept;

// h = x + residual_scale * residual;  residual_out = h;  out = norm(h): the
// pre-norm step of a transformer block, where `residual` is the stream.
// options.sum says which value of h the norm sees.
//   x, residual   the same shape
//   weight        optional
//   out           x's shape; may alias x or residual
//   residual_out  optional; x's shape and residual's dtype; may alias residual
//                 or x
//   options.rstd  receives r of each row
FUSEDNORM_API Status AddRmsNorm(const ConstTensor& x,
                                const ConstTensor& residual,
                                const ConstTensor& weight, const Tensor& out,
                                const Tensor& residual_out,
                                const Options& options = {}) noexcept;

}  // namespace fusednorm

#endif  // FUSEDNORM_FUSEDNORM_H_

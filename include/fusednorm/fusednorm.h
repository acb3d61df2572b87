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

// out = norm(x) + residual_scale * residual: post-norm blocks (OLMo 2). With
// sum = kRounded the normalised value is rounded to x's dtype before it is
// added, as a norm of its own would leave it; with kExact and kExactStatistic
// it stays f32.
//   x, residual   the same shape
//   weight        optional
//   out           x's shape; may alias x or residual
//   options.rstd  receives r of each row
FUSEDNORM_API Status RmsNormAdd(const ConstTensor& x,
                                const ConstTensor& residual,
                                const ConstTensor& weight, const Tensor& out,
                                const Options& options = {}) noexcept;

// h = norm(x; weight_post) + residual;  residual_out = h;
// out = norm(h; weight_pre): from the end of one sub-layer to the start of the
// next in sandwich blocks (Gemma 2 and 3). eps, weight_offset and rounding hold
// for both norms. options.sum is that of AddRmsNorm for h, and of RmsNormAdd
// for the value added. Refuses rstd, and a residual_scale other than 1.
//   x, residual   the same shape
//   weight_post   optional
//   weight_pre    optional
//   out           x's shape; may alias x or residual
//   residual_out  x's shape and residual's dtype; may alias residual or x
FUSEDNORM_API Status RmsNormAddRmsNorm(const ConstTensor& x,
                                       const ConstTensor& residual,
                                       const ConstTensor& weight_post,
                                       const ConstTensor& weight_pre,
                                       const Tensor& out,
                                       const Tensor& residual_out,
                                       const Options& options = {}) noexcept;

// The statistic alone: rstd = 1 / sqrt(mean(x^2) + eps), one f32 per row in
// row-major order of the leading axes. The bits that options.rstd receives.
FUSEDNORM_API Status RowRstd(const ConstTensor& x, float* rstd,
                             const Options& options = {}) noexcept;

// The sum of squares of each row in f64, so that shards of a row (tensor
// parallelism) can be added up. Where each shard but the last is 16384 elements
// the total, added from left to right, has the bits of the whole row's; for
// other cuts, and where the squares of a row or shard leave the range of f32
// (those are summed in f64), it is as accurate, but last bits may differ.
FUSEDNORM_API Status RowSumSquares(const ConstTensor& x, double* sum_squares,
                                   const Options& options = {}) noexcept;

// rstd of a row of `width` elements from its sum of squares. From the sum of
// RowSumSquares it has the bits of RowRstd, but for the last one at the very
// edge of the range of f32.
FUSEDNORM_API float RstdFromSumSquares(double sum_squares, int64_t width,
                                       float eps) noexcept;

// out = round(x * rstd) * g for an rstd that is given, one f32 per row. eps is
// of no account, and no row is exceptional.
//   out  x's shape; may alias x
FUSEDNORM_API Status RmsNormWithRstd(const ConstTensor& x, const float* rstd,
                                     const ConstTensor& weight,
                                     const Tensor& out,
                                     const Options& options = {}) noexcept;

// Gradients of RmsNorm, in f32 whatever the dtypes, rounded once:
//   xh = x * r;  a = g * dy;  c = sum(a * xh) / n
//   dx = (a - xh * c) * r;  dweight = sum over rows of dy * xh
// (Liger Kernel and Apex compute the same.) rounding and sum change nothing
// here. A zero row with eps = 0 has r = 0 and dx = 0.
//   x, dy         the same shape; dy may repeat rows with stride 0
//   weight        optional
//   dx            optional; x's shape; may alias dy or x
//   dweight       optional; weight's shape (without a weight: one that it could
//                 have), f32, f64 or weight's dtype; rows that share a weight
//                 row are added up in f64, in an order that depends on the
//                 number of rows alone. options.accumulate adds to the old
//                 value; no rows: zeros, or the old value
//   options.rstd  r of each row from the forward call; null: computed again,
//                 with the same bits
// kOutOfMemory if there is none for the sums of dweight; nothing is written.
FUSEDNORM_API Status RmsNormBackward(const ConstTensor& x,
                                     const ConstTensor& weight,
                                     const ConstTensor& dy, const Tensor& dx,
                                     const Tensor& dweight,
                                     const Options& options = {}) noexcept;

// Gradients of AddRmsNorm, from its residual_out h: dh is the gradient of both
// x and (times residual_scale) residual.
//   dh = d_residual_out + dx, where dx is that of RmsNormBackward at h, added
//   in f32 and rounded once
//   d_residual_out  optional; h's shape
//   dh              optional; may alias dy, h or d_residual_out
// All else as in RmsNormBackward.
FUSEDNORM_API Status AddRmsNormBackward(const ConstTensor& h,
                                        const ConstTensor& weight,
                                        const ConstTensor& dy,
                                        const ConstTensor& d_residual_out,
                                        const Tensor& dh, const Tensor& dweight,
                                        const Options& options = {}) noexcept;

}  // namespace fusednorm

#endif  // FUSEDNORM_FUSEDNORM_H_

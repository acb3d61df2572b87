// The scalar reference: plain C++, one element after the other, on every
// machine. The same arguments and the same bits as the functions of
// fusednorm.h, whatever target is in use. It is what a user checks parity
// against, what every target is tested against, and the text to read first:
// kernels/reference.cc.
#ifndef FUSEDNORM_REFERENCE_H_
#define FUSEDNORM_REFERENCE_H_

#include "fusednorm/export.h"
#include "fusednorm/options.h"
#include "fusednorm/status.h"
#include "fusednorm/tensor.h"

namespace fusednorm {
namespace reference {

FUSEDNORM_API Status RmsNorm(const ConstTensor& x, const ConstTensor& weight,
                             const Tensor& out,
                             const Options& options = {}) noexcept;

FUSEDNORM_API Status AddRmsNorm(const ConstTensor& x,
                                const ConstTensor& residual,
                                const ConstTensor& weight, const Tensor& out,
                                const Tensor& residual_out,
                                const Options& options = {}) noexcept;

FUSEDNORM_API Status RmsNormAdd(const ConstTensor& x,
                                const ConstTensor& residual,
                                const ConstTensor& weight, const Tensor& out,
                                const Options& options = {}) noexcept;

FUSEDNORM_API Status RmsNormAddRmsNorm(const ConstTensor& x,
                                       const ConstTensor& residual,
                                       const ConstTensor& weight_post,
                                       const ConstTensor& weight_pre,
                                       const Tensor& out,
                                       const Tensor& residual_out,
                                       const Options& options = {}) noexcept;

FUSEDNORM_API Status RowRstd(const ConstTensor& x, float* rstd,
                             const Options& options = {}) noexcept;

FUSEDNORM_API Status RowSumSquares(const ConstTensor& x, double* sum_squares,
                                   const Options& options = {}) noexcept;

FUSEDNORM_API Status RmsNormWithRstd(const ConstTensor& x, const float* rstd,
                                     const ConstTensor& weight,
                                     const Tensor& out,
                                     const Options& options = {}) noexcept;

FUSEDNORM_API Status RmsNormBackward(const ConstTensor& x,
                                     const ConstTensor& weight,
                                     const ConstTensor& dy, const Tensor& dx,
                                     const Tensor& dweight,
                                     const Options& options = {}) noexcept;

FUSEDNORM_API Status AddRmsNormBackward(const ConstTensor& h,
                                        const ConstTensor& weight,
                                        const ConstTensor& dy,
                                        const ConstTensor& d_residual_out,
                                        const Tensor& dh, const Tensor& dweight,
                                        const Options& options = {}) noexcept;

}  // namespace reference
}  // namespace fusednorm

#endif  // FUSEDNORM_REFERENCE_H_

// What every public function comes to: check, select, run.
#ifndef FUSEDNORM_KERNELS_RUN_H_
#define FUSEDNORM_KERNELS_RUN_H_

#include "fusednorm/options.h"
#include "fusednorm/status.h"
#include "kernels/check.h"

namespace fusednorm {
namespace internal {

enum class Backend { kCurrentTarget, kReference };

Status Run(Op op, Backend backend, const Arguments& arguments,
           const Options& options, const void* per_row = nullptr);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_RUN_H_

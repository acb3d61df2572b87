#include "kernels/run.h"

#include "kernels/backward.h"
#include "kernels/fp_environment.h"
#include "kernels/parallel.h"
#include "kernels/reference.h"
#include "kernels/select.h"
#include "kernels/targets.h"

namespace fusednorm {
namespace internal {
namespace {

RowKernel Select(Target target, const Plan& plan) {
  if (target == Target::kScalar || plan.dtype[kX] == DType::kF64) {
    return SelectReference(plan);
  }
  RowKernel kernel = nullptr;
  switch (plan.op) {
    case Op::kRmsNorm:
      kernel = SelectRmsNorm(target, plan);
      break;
    case Op::kAddRmsNorm:
      kernel = SelectAddRmsNorm(target, plan);
      break;
    case Op::kRmsNormAdd:
      kernel = SelectRmsNormAdd(target, plan);
      break;
    case Op::kRmsNormAddRmsNorm:
      kernel = SelectRmsNormAddRmsNorm(target, plan);
      break;
    case Op::kRowRstd:
    case Op::kRowSumSquares:
      kernel = SelectRowStatistic(target, plan);
      break;
    case Op::kRmsNormWithRstd:
      kernel = SelectRmsNormWithRstd(target, plan);
      break;
    case Op::kRmsNormBackward:
    case Op::kAddRmsNormBackward:
      break;  // RunBackward selects.
  }
  return kernel != nullptr ? kernel : SelectReference(plan);
}

}  // namespace

Status Run(Op op, Backend backend, const Arguments& arguments,
           const Options& options, const void* per_row) {
  // The checks too compare floats, which may raise flags.
  const ScopedFpEnvironment environment;
  Target target = Target::kScalar;
  Status status = CurrentTarget(&target);
  if (!status.ok()) return status;
  if (backend == Backend::kReference) target = Target::kScalar;
  Plan plan;
  Geometry geometry;
  status = Check(op, arguments, per_row, options, &plan, &geometry);
  if (!status.ok()) return status;
  if (op == Op::kRmsNormBackward || op == Op::kAddRmsNormBackward) {
    return RunBackward(target, &plan, geometry, options);
  }
  if (geometry.rows > 0) {
    RunRows(&plan, geometry, Select(target, plan), options);
  }
  return {};
}

}  // namespace internal
}  // namespace fusednorm

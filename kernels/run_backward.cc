// dx row by row, and dweight as sums over rows whose order depends on the
// number of rows alone.
//
// For each row of dweight the R rows of x that share it are cut into slabs of
// 32 * ceil(R / 2048) rows, 64 slabs at most. Within a slab blocks of 32 rows
// are summed by fma in f32 and added up in f64; slabs are added in order. One
// slab is the work of one thread, which makes dx on the way: x and dy are read
// once.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "kernels/backward.h"
#include "kernels/error.h"
#include "kernels/fp_environment.h"
#include "kernels/parallel.h"
#include "kernels/reduction.h"

namespace fusednorm {
namespace internal {
namespace {

constexpr int64_t kRowsPerBlock = 32;
constexpr int64_t kMaxSlabs = 64;

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// The axes of x's rows, parted by whether dweight repeats along them.
struct Parts {
  Geometry shared;  // Of the rows that share a row of dweight.
  Geometry kept;    // Of the rows of dweight.
};

Parts Part(const Geometry& g) {
  Parts parts;
  for (Geometry* part : {&parts.shared, &parts.kept}) {
    *part = g;
    part->axes = 0;
    part->rows = 1;
  }
  for (int axis = 0; axis < g.axes; ++axis) {
    Geometry& part =
        g.axis[axis].stride[kDWeight] == 0 ? parts.shared : parts.kept;
    part.axis[part.axes++] = g.axis[axis];
    part.rows *= g.axis[axis].count;
  }
  return parts;
}

// The slabs of one row of dweight and their sums.
struct Slabs {
  const Plan& plan;
  Geometry rows;
  BackwardKernel kernel;
  int64_t rows_per_slab;
  int64_t count;
  int64_t width;   // The plan's, padded: see backward.h.
  double* totals;  // `width` for each slab ...
  double* blocks;  // ... and as many for a block at hand, f32 or f64.
};

void RunSlab(const Slabs& slabs, int64_t slab, double* block) {
  double* total = slabs.totals + slab * slabs.width;
  const int64_t end =
      std::min((slab + 1) * slabs.rows_per_slab, slabs.rows.rows);
  std::fill(total, total + slabs.width, 0.0);
  for (int64_t row = slab * slabs.rows_per_slab; row < end;
       row += kRowsPerBlock) {
    std::fill(block, block + slabs.width, 0.0);
    ForEachRun(slabs.plan, slabs.rows, row, std::min(row + kRowsPerBlock, end),
               [&](Rows run) {
                 run.sums = block;
                 slabs.kernel.run(slabs.plan, run);
               });
    slabs.kernel.add(block, slabs.width, total);
  }
}

void RunSlabs(void* arg, int64_t begin, int64_t end) {
  const ScopedFpEnvironment environment;
  const Slabs& slabs = *static_cast<const Slabs*>(arg);
  double* block = slabs.blocks + begin * slabs.width;  // For all of them.
  for (int64_t slab = begin; slab < end; ++slab) RunSlab(slabs, slab, block);
}

// Calls body(rows of x that share it, dweight row) for each row of dweight.
template <class Body>
void ForEachDWeightRow(const Plan& plan, const Parts& parts, Body body) {
  ForEachRun(plan, parts.kept, 0, parts.kept.rows, [&](const Rows& run) {
    for (int64_t i = 0; i < run.count; ++i) {
      Geometry rows = parts.shared;
      for (int n = 0; n < plan.count; ++n) {
        rows.data[plan.operands[n]] = run.Row(plan.operands[n], i);
      }
      body(rows, run.Row(kDWeight, i));
    }
  });
}

Status RunWithDWeight(Plan plan, const Geometry& geometry,
                      BackwardKernel kernel, const Options& options) {
  const Parts parts = Part(geometry);
  if (parts.shared.rows == 0) {
    if (plan.accumulate) return {};
    const size_t bytes =
        static_cast<size_t>(plan.width * SizeOf(plan.dtype[kDWeight]));
    ForEachDWeightRow(plan, parts, [&](const Geometry&, char* dweight) {
      std::memset(dweight, 0, bytes);  // Zeros of any dtype.
    });
    return {};
  }
  Slabs slabs = {plan, parts.shared, kernel, 0, 0, 0, nullptr, nullptr};
  slabs.rows_per_slab =
      kRowsPerBlock * CeilDiv(parts.shared.rows, kRowsPerBlock * kMaxSlabs);
  slabs.count = CeilDiv(parts.shared.rows, slabs.rows_per_slab);
  slabs.width = CeilDiv(plan.width, kStep) * kStep;
  int64_t sums;
  std::unique_ptr<double[]> scratch;
  if (!__builtin_mul_overflow(2 * slabs.count, slabs.width, &sums) &&
      sums <= PTRDIFF_MAX / 8) {
    scratch.reset(new (std::nothrow) double[static_cast<size_t>(sums)]);
  }
  if (scratch == nullptr) {
    return Error(StatusCode::kOutOfMemory,
                 "dweight: no memory for the sums of %lld slabs of rows",
                 static_cast<long long>(slabs.count));
  }
  slabs.totals = scratch.get();
  slabs.blocks = scratch.get() + slabs.count * slabs.width;
  const int64_t threads =
      ThreadsFor(BytesOf(plan, parts.shared.rows), slabs.count, options);
  PlanCache(geometry, threads, &plan);
  ForEachDWeightRow(plan, parts, [&](const Geometry& rows, char* dweight) {
    slabs.rows = rows;
    RunParallel(slabs.count, threads, options, &RunSlabs, &slabs);
    for (int64_t slab = 1; slab < slabs.count; ++slab) {
      const double* total = slabs.totals + slab * slabs.width;
      for (int64_t i = 0; i < slabs.width; ++i) slabs.totals[i] += total[i];
    }
    kernel.store(plan, slabs.totals, dweight);
  });
  return {};
}

}  // namespace

Status RunBackward(Target target, Plan* plan, const Geometry& geometry,
                   const Options& options) {
  const BackwardKernel kernel =
      target == Target::kScalar || plan->dtype[kX] == DType::kF64
          ? SelectReferenceBackward(*plan)
          : SelectBackward(target, *plan);
  if (plan->has[kDWeight]) {
    return RunWithDWeight(*plan, geometry, kernel, options);
  }
  if (plan->has[kOut] && geometry.rows > 0) {
    RunRows(plan, geometry, kernel.run, options);
  }
  return {};
}

}  // namespace internal
}  // namespace fusednorm

// Which implementation runs: named, listed, and replaceable at run time.
#ifndef FUSEDNORM_TARGETS_H_
#define FUSEDNORM_TARGETS_H_

#include "fusednorm/export.h"
#include "fusednorm/status.h"

namespace fusednorm {

// Every target gives the same bits, so the choice is one of speed alone.
// Names: "avx512", "avx2" (x86-64), "neon" (AArch64), "scalar" (everywhere; the
// reference itself).
//
// The best target of the running CPU is chosen at the first use of the library.
// The environment variable FUSEDNORM_TARGET, read at that moment, overrides it;
// if it names a target that the CPU or this build lacks, every operation
// refuses with kInvalidArgument until SetTarget is called.

// The name of the target in use; "" while FUSEDNORM_TARGET names no target.
FUSEDNORM_API const char* TargetName() noexcept;

// The targets that this build and CPU can run, best first, separated by one
// space, for example "avx512 avx2 scalar".
FUSEDNORM_API const char* TargetNames() noexcept;

// Chooses a target for the whole process; calls that have begun keep theirs.
// Null: back to the best of the CPU, FUSEDNORM_TARGET left aside.
// kInvalidArgument if `name` is not one of TargetNames(); nothing changes then.
FUSEDNORM_API Status SetTarget(const char* name) noexcept;

}  // namespace fusednorm

#endif  // FUSEDNORM_TARGETS_H_

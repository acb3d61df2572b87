#include "kernels/targets.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/error.h"
#include "kernels/highway.h"
#include "kernels/parallel.h"

// Must come after kernels/highway.h.
#include "hwy/targets.h"

namespace fusednorm {
namespace internal {
namespace {

constexpr const char* kNames[kTargets] = {"avx512", "avx2", "neon", "scalar"};

// The bit of Highway's target that was compiled for ours; 0 for none.
constexpr int64_t kBits[kTargets] = {HWY_TARGETS & HWY_AVX3,
                                     HWY_TARGETS& HWY_AVX2,
                                     HWY_TARGETS& FUSEDNORM_NEON, 0};

// What the first use of the library finds.
struct Machine {
  bool runs[kTargets];
  Target best;
  char names[32];       // Of the targets that run, best first.
  const char* unknown;  // What FUSEDNORM_TARGET asks for in vain, or null.
  Target initial;       // Unless `unknown`.
};

bool Find(const Machine& machine, const char* name, Target* target) {
  for (int t = 0; t < kTargets; ++t) {
    if (machine.runs[t] && std::strcmp(name, kNames[t]) == 0) {
      *target = static_cast<Target>(t);
      return true;
    }
  }
  return false;
}

Machine Detect() {
  InstallForkHandler();
  Machine machine = {};
  // Asked once: Highway's state belongs to the whole process.
  const int64_t supported = hwy::SupportedTargets();
  machine.best = Target::kScalar;
  for (int t = kTargets - 1; t >= 0; --t) {
    const auto target = static_cast<Target>(t);
    machine.runs[t] = target == Target::kScalar || (supported & kBits[t]) != 0;
    if (machine.runs[t]) machine.best = target;
  }
  for (int t = 0; t < kTargets; ++t) {
    if (!machine.runs[t]) continue;
    if (machine.names[0] != '\0') std::strcat(machine.names, " ");
    std::strcat(machine.names, kNames[t]);
  }
  machine.initial = machine.best;
  const char* asked = std::getenv("FUSEDNORM_TARGET");
  if (asked != nullptr && asked[0] != '\0' &&
      !Find(machine, asked, &machine.initial)) {
    static char copy[64];  // The environment may change.
    std::snprintf(copy, sizeof(copy), "%s", asked);
    machine.unknown = copy;
  }
  return machine;
}

const Machine& TheMachine() {
  static const Machine machine = Detect();
  return machine;
}

// In use, as the first call or SetTarget chose it; -1: nothing yet.
std::atomic<int> current{-1};

}  // namespace

Status CurrentTarget(Target* target) {
  int choice = current.load(std::memory_order_relaxed);
  if (choice < 0) {
    const Machine& machine = TheMachine();
    if (machine.unknown != nullptr) {
      return Error(StatusCode::kInvalidArgument,
                   "FUSEDNORM_TARGET is \"%s\"; this build and CPU have: %s",
                   machine.unknown, machine.names);
    }
    // Unless SetTarget comes in between.
    const int initial = static_cast<int>(machine.initial);
    if (current.compare_exchange_strong(choice, initial)) choice = initial;
  }
  *target = static_cast<Target>(choice);
  return {};
}

}  // namespace internal

const char* TargetName() noexcept {
  internal::Target target = internal::Target::kScalar;
  if (!internal::CurrentTarget(&target).ok()) return "";
  return internal::kNames[static_cast<int>(target)];
}

const char* TargetNames() noexcept { return internal::TheMachine().names; }

Status SetTarget(const char* name) noexcept {
  const internal::Machine& machine = internal::TheMachine();
  internal::Target target = machine.best;
  if (name != nullptr && !internal::Find(machine, name, &target)) {
    return internal::Error(StatusCode::kInvalidArgument,
                           "target is \"%.64s\"; this build and CPU have: %s",
                           name, machine.names);
  }
  internal::current.store(static_cast<int>(target), std::memory_order_relaxed);
  return {};
}

}  // namespace fusednorm

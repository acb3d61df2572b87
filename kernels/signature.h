// What each operation takes: its tensors by name, in which role, and which
// outputs may lie on which inputs.
#ifndef FUSEDNORM_KERNELS_SIGNATURE_H_
#define FUSEDNORM_KERNELS_SIGNATURE_H_

#include "kernels/plan.h"

namespace fusednorm {
namespace internal {

enum class Role : uint8_t {
  kInput,        // x's shape.
  kWeight,       // One row, or x's rank with each leading axis x's or 1.
  kPerRowInput,  // Packed, one value for each row of x.
  kOutput,       // Outputs from here on.
  kDWeight,
  kPerRowOutput,
};

struct Slot {
  const char* name;
  Operand operand;
  Role role;
  bool required;
  uint8_t aliases;  // Of an output: bits of the inputs that it may lie on.
};

constexpr bool IsOutput(const Slot& slot) { return slot.role >= Role::kOutput; }

constexpr bool IsPerRow(const Slot& slot) {
  return slot.role == Role::kPerRowInput || slot.role == Role::kPerRowOutput;
}

struct Signature {
  const Slot* slots;  // x first, values per row last.
  int count;
};

Signature SignatureOf(Op op);

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_SIGNATURE_H_

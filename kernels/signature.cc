#include "kernels/signature.h"

namespace fusednorm {
namespace internal {
namespace {

constexpr uint8_t Bit(Operand operand) {
  return static_cast<uint8_t>(1u << operand);
}

constexpr bool kRequired = true;
constexpr bool kOptional = false;

constexpr Slot X(const char* name = "x") {
  return {name, kX, Role::kInput, kRequired, 0};
}
constexpr Slot Residual() {
  return {"residual", kResidual, Role::kInput, kRequired, 0};
}
constexpr Slot Weight(const char* name = "weight") {
  return {name, kWeight, Role::kWeight, kOptional, 0};
}
constexpr Slot Out(uint8_t aliases) {
  return {"out", kOut, Role::kOutput, kRequired, aliases};
}
constexpr Slot ResidualOut(bool required) {
  return {"residual_out", kResidualOut, Role::kOutput, required,
          Bit(kX) | Bit(kResidual)};
}
constexpr Slot Rstd(Role role, bool required) {
  return {"rstd", kRstd, role, required, 0};
}

constexpr Slot kRmsNormSlots[] = {X(), Weight(), Out(Bit(kX)),
                                  Rstd(Role::kPerRowOutput, kOptional)};

constexpr Slot kAddRmsNormSlots[] = {X(),
                                     Residual(),
                                     Weight(),
                                     Out(Bit(kX) | Bit(kResidual)),
                                     ResidualOut(kOptional),
                                     Rstd(Role::kPerRowOutput, kOptional)};

constexpr Slot kRmsNormAddSlots[] = {X(), Residual(), Weight(),
                                     Out(Bit(kX) | Bit(kResidual)),
                                     Rstd(Role::kPerRowOutput, kOptional)};

constexpr Slot kRmsNormAddRmsNormSlots[] = {
    X(),
    Residual(),
    Weight("weight_post"),
    {"weight_pre", kWeightPre, Role::kWeight, kOptional, 0},
    Out(Bit(kX) | Bit(kResidual)),
    ResidualOut(kRequired)};

constexpr Slot kRowRstdSlots[] = {X(), Rstd(Role::kPerRowOutput, kRequired)};

constexpr Slot kRowSumSquaresSlots[] = {
    X(), {"sum_squares", kSums, Role::kPerRowOutput, kRequired, 0}};

constexpr Slot kRmsNormWithRstdSlots[] = {X(), Weight(), Out(Bit(kX)),
                                          Rstd(Role::kPerRowInput, kRequired)};

constexpr Slot kDy = {"dy", Operand::kDy, Role::kInput, kRequired, 0};
constexpr Slot kDWeightSlot = {"dweight", kDWeight, Role::kDWeight, kOptional,
                               0};

constexpr Slot kRmsNormBackwardSlots[] = {
    X(),
    Weight(),
    kDy,
    {"dx", kOut, Role::kOutput, kOptional, Bit(kX) | Bit(Operand::kDy)},
    kDWeightSlot,
    Rstd(Role::kPerRowInput, kOptional)};

constexpr Slot kAddRmsNormBackwardSlots[] = {
    X("h"),
    Weight(),
    kDy,
    {"d_residual_out", kResidual, Role::kInput, kOptional, 0},
    {"dh", kOut, Role::kOutput, kOptional,
     Bit(kX) | Bit(Operand::kDy) | Bit(kResidual)},
    kDWeightSlot,
    Rstd(Role::kPerRowInput, kOptional)};

template <int kCount>
constexpr Signature Make(const Slot (&slots)[kCount]) {
  return {slots, kCount};
}

}  // namespace

Signature SignatureOf(Op op) {
  switch (op) {
    case Op::kRmsNorm:
      return Make(kRmsNormSlots);
    case Op::kAddRmsNorm:
      return Make(kAddRmsNormSlots);
    case Op::kRmsNormAdd:
      return Make(kRmsNormAddSlots);
    case Op::kRmsNormAddRmsNorm:
      return Make(kRmsNormAddRmsNormSlots);
    case Op::kRowRstd:
      return Make(kRowRstdSlots);
    case Op::kRowSumSquares:
      return Make(kRowSumSquaresSlots);
    case Op::kRmsNormWithRstd:
      return Make(kRmsNormWithRstdSlots);
    case Op::kRmsNormBackward:
      return Make(kRmsNormBackwardSlots);
    case Op::kAddRmsNormBackward:
      return Make(kAddRmsNormBackwardSlots);
  }
  return {nullptr, 0};
}

}  // namespace internal
}  // namespace fusednorm

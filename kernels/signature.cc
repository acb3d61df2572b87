#include "kernels/signature.h"

namespace fusednorm {
namespace internal {
namespace {

constexpr unsigned Bit(Operand operand) { return 1u << operand; }

constexpr bool kRequired = true;
constexpr bool kOptional = false;

constexpr Slot X(const char* name = "x") {
  return {kX, name, Role::kInput, kRequired, 0};
}
constexpr Slot Residual() {
  return {kResidual, "residual", Role::kInput, kRequired, 0};
}
constexpr Slot Weight(const char* name = "weight") {
  return {kWeight, name, Role::kWeight, kOptional, 0};
}
constexpr Slot Out(unsigned aliases) {
  return {kOut, "out", Role::kOutput, kRequired, aliases};
}
constexpr Slot ResidualOut(bool required) {
  return {kResidualOut, "residual_out", Role::kOutput, required,
          Bit(kX) | Bit(kResidual)};
}
constexpr Slot Rstd(Role role, bool required) {
  return {kRstd, "rstd", role, required, 0};
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
    {kWeightPre, "weight_pre", Role::kWeight, kOptional, 0},
    Out(Bit(kX) | Bit(kResidual)),
    ResidualOut(kRequired)};

constexpr Slot kRowRstdSlots[] = {X(), Rstd(Role::kPerRowOutput, kRequired)};

constexpr Slot kRowSumSquaresSlots[] = {
    X(), {kSums, "sum_squares", Role::kPerRowOutput, kRequired, 0}};

constexpr Slot kRmsNormWithRstdSlots[] = {X(), Weight(), Out(Bit(kX)),
                                          Rstd(Role::kPerRowInput, kRequired)};

constexpr Slot kDy = {Operand::kDy, "dy", Role::kInput, kRequired, 0};
constexpr Slot kDWeightSlot = {kDWeight, "dweight", Role::kDWeight, kOptional,
                               0};

constexpr Slot kRmsNormBackwardSlots[] = {
    X(),
    Weight(),
    kDy,
    {kOut, "dx", Role::kOutput, kOptional, Bit(kX) | Bit(Operand::kDy)},
    kDWeightSlot,
    Rstd(Role::kPerRowInput, kOptional)};

constexpr Slot kAddRmsNormBackwardSlots[] = {
    X("h"),
    Weight(),
    kDy,
    {kResidual, "d_residual_out", Role::kInput, kOptional, 0},
    {kOut, "dh", Role::kOutput, kOptional,
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

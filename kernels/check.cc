#include "kernels/check.h"

#include <cinttypes>
#include <cmath>
#include <optional>

#include "kernels/error.h"
#include "kernels/overlap.h"
#include "kernels/signature.h"

namespace fusednorm {
namespace internal {
namespace {

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kF64:
      return "f64";
    case DType::kI8:
      return "i8";
    case DType::kF8E4M3:
      return "f8e4m3";
    case DType::kQ8_0:
      return "q8_0";
  }
  return nullptr;
}

Status CheckRank(const char* name, const ConstTensor& t) {
  if (t.rank >= 1 && t.rank <= ConstTensor::kMaxRank) return {};
  return Error(kInvalid, "%s.rank is %d; it must be 1 to %d", name,
               static_cast<int>(t.rank), ConstTensor::kMaxRank);
}

// The shape against which the others are held, and its number of rows.
Status CheckX(const char* name, const ConstTensor& x, int64_t* rows) {
  const Status status = CheckRank(name, x);
  if (!status.ok()) return status;
  const int last = x.rank - 1;
  for (int axis = 0; axis <= last; ++axis) {
    if (x.shape[axis] < 0) {
      return Error(kInvalid, "%s.shape[%d] is %" PRId64, name, axis,
                   x.shape[axis]);
    }
  }
  if (x.shape[last] == 0) {
    return Error(kInvalid, "%s.shape[%d], the width, is 0", name, last);
  }
  *rows = 1;
  bool fits = true;
  for (int axis = 0; axis < last; ++axis) {
    if (x.shape[axis] == 0) {
      *rows = 0;
      return {};
    }
    fits = fits && !__builtin_mul_overflow(*rows, x.shape[axis], rows);
  }
  if (!fits) return Error(kInvalid, "%s: its number of rows overflows", name);
  return {};
}

// f64 mixes with nothing, but dweight may be f64, as values per row are.
Status CheckDType(const Slot& slot, const ConstTensor& t, const ConstTensor& x,
                  const char* x_name) {
  static_assert(DType::kF32 < DType::kF64 && DType::kBF16 < DType::kF64 &&
                    DType::kF16 < DType::kF64 && DType::kF64 < DType::kI8,
                "the dtypes that are offered come first");
  if (t.dtype > DType::kF64 || t.dtype < DType{}) {
    if (Name(t.dtype) == nullptr) {
      return Error(kInvalid, "%s.dtype is %d, which is no dtype", slot.name,
                   static_cast<int>(t.dtype));
    }
    return Error(kUnsupported, "%s.dtype is %s, not offered here", slot.name,
                 Name(t.dtype));
  }
  const bool f64 = t.dtype == DType::kF64;
  if (f64 != (x.dtype == DType::kF64) &&
      !(f64 && slot.role == Role::kDWeight)) {
    return Error(kUnsupported,
                 "%s.dtype is %s with %s.dtype %s: f64 does not mix with "
                 "others",
                 slot.name, Name(t.dtype), x_name, Name(x.dtype));
  }
  return {};
}

Status ShapeMismatch(const char* name, int axis, int64_t is, int64_t wanted) {
  return Error(kInvalid,
               "%s.shape[%d] is %" PRId64 ", but x has %" PRId64 " there", name,
               axis, is, wanted);
}

// The same shape as x; a weight is one row, or has 1 where it repeats. Strides
// are not negative where they are used, and the last is 1.
Status CheckShape(const Slot& slot, const ConstTensor& t,
                  const ConstTensor& x) {
  const Status status = CheckRank(slot.name, t);
  if (!status.ok()) return status;
  const int last = t.rank - 1;
  const int64_t width = x.shape[x.rank - 1];
  const bool is_weight =
      slot.role == Role::kWeight || slot.role == Role::kDWeight;
  if (t.rank != x.rank && !(is_weight && t.rank == 1)) {
    return Error(kInvalid, "%s.rank is %d, but x.rank is %d", slot.name,
                 static_cast<int>(t.rank), static_cast<int>(x.rank));
  }
  if (t.shape[last] != width) {
    return ShapeMismatch(slot.name, last, t.shape[last], width);
  }
  if (width > 1 && t.strides[last] != 1) {
    return Error(kInvalid, "%s.strides[%d] is %" PRId64 "; the last must be 1",
                 slot.name, last, t.strides[last]);
  }
  for (int axis = 0; axis < last; ++axis) {
    if (t.shape[axis] != x.shape[axis] && !(is_weight && t.shape[axis] == 1)) {
      return ShapeMismatch(slot.name, axis, t.shape[axis], x.shape[axis]);
    }
    if (t.shape[axis] > 1 && t.strides[axis] < 0) {
      return Error(kInvalid, "%s.strides[%d] is %" PRId64 ", negative",
                   slot.name, axis, t.strides[axis]);
    }
  }
  return {};
}

// A view of at least one row as bytes; refuses null and misaligned data, and
// sizes that leave the address space.
Status MakeByteView(const char* name, ByteView* view) {
  const ConstTensor& t = *view->tensor;
  if (t.data == nullptr) return Error(kInvalid, "%s.data is null", name);
  const int64_t size = SizeOf(t.dtype);
  view->begin = reinterpret_cast<uintptr_t>(t.data);
  if ((view->begin & static_cast<uintptr_t>(size - 1)) != 0) {
    return Error(kInvalid, "%s.data %p is not aligned to its %s elements", name,
                 t.data, Name(t.dtype));
  }
  bool fits =
      !__builtin_mul_overflow(t.shape[t.rank - 1], size, &view->row_bytes);
  view->extent = view->row_bytes;
  for (int axis = 0; fits && axis < t.rank - 1; ++axis) {
    if (t.shape[axis] == 1) continue;
    int64_t stride, reach;
    fits = !__builtin_mul_overflow(t.strides[axis], size, &stride) &&
           !__builtin_mul_overflow(stride, t.shape[axis] - 1, &reach) &&
           !__builtin_add_overflow(view->extent, reach, &view->extent);
  }
  uintptr_t end;
  fits = fits && !__builtin_add_overflow(
                     view->begin, static_cast<uintptr_t>(view->extent), &end);
  if (!fits) return Error(kInvalid, "%s: its size overflows", name);
  return {};
}

bool IsEmpty(const ConstTensor& t) {
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] == 0) return true;
  }
  return false;
}

bool SameShape(const ConstTensor& a, const ConstTensor& b) {
  if (a.rank != b.rank) return false;
  for (int axis = 0; axis < a.rank; ++axis) {
    if (a.shape[axis] != b.shape[axis]) return false;
  }
  return true;
}

bool SameView(const ConstTensor& a, const ConstTensor& b) {
  if (a.data != b.data || a.dtype != b.dtype || !SameShape(a, b)) return false;
  for (int axis = 0; axis < a.rank; ++axis) {
    if (a.shape[axis] > 1 && a.strides[axis] != b.strides[axis]) return false;
  }
  return true;
}

// An argument that there is.
struct Present {
  const Slot* slot;
  ByteView bytes;
};

// Outputs against everything else.
Status CheckOverlaps(const Present* begin, const Present* end) {
  for (const Present* output = begin; output != end; ++output) {
    if (!IsOutput(*output->slot)) continue;
    for (const Present* other = begin; other != end; ++other) {
      if (other == output || !RangesMeet(output->bytes, other->bytes)) continue;
      const ConstTensor& t = *output->bytes.tensor;
      const ConstTensor& u = *other->bytes.tensor;
      const bool may_alias =
          (output->slot->aliases >> other->slot->operand & 1u) != 0;
      if (may_alias && SameView(t, u)) continue;
      if (!RowsOverlap(output->bytes, other->bytes)) continue;
      return Error(kInvalid, "%s at %p overlaps %s at %p", output->slot->name,
                   t.data, other->slot->name, u.data);
    }
  }
  return {};
}

template <class Choice>
Status CheckChoice(const char* name, Choice choice, Choice last) {
  if (choice >= Choice{} && choice <= last) return {};
  return Error(kInvalid, "%s is %d, which is no option", name,
               static_cast<int>(choice));
}

Status CheckOptions(const Options& o) {
  if (!std::isfinite(o.eps) || o.eps < 0) {
    return Error(kInvalid, "eps is %g; it must be finite and not negative",
                 static_cast<double>(o.eps));
  }
  if (!std::isfinite(o.weight_offset)) {
    return Error(kInvalid, "weight_offset is %g; it must be finite",
                 static_cast<double>(o.weight_offset));
  }
  if (!std::isfinite(o.residual_scale)) {
    return Error(kInvalid, "residual_scale is %g; it must be finite",
                 static_cast<double>(o.residual_scale));
  }
  Status status = CheckChoice("rounding", o.rounding, Rounding::kBeforeWeight);
  if (status.ok()) status = CheckChoice("sum", o.sum, Sum::kExactStatistic);
  if (status.ok()) {
    status = CheckChoice("nontemporal", o.nontemporal, Nontemporal::kAlways);
  }
  if (!status.ok()) return status;
  if (o.num_threads < 0) {
    return Error(kInvalid, "num_threads is %d, negative",
                 static_cast<int>(o.num_threads));
  }
  if (o.scale != nullptr) {
    return Error(kUnsupported, "scale is %p, but out is not quantised",
                 static_cast<void*>(o.scale));
  }
  return {};
}

// Values per row as a tensor: packed, one for each row of x.
ConstTensor PerRowTensor(const ConstTensor& x, const void* data, DType dtype) {
  ConstTensor t = x;
  t.data = data;
  t.dtype = dtype;
  int64_t stride = 1;
  t.shape[t.rank - 1] = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.strides[axis] = stride;
    stride *= t.shape[axis];
  }
  return t;
}

// Bytes from one index of x's axis to the next; 0 where the tensor repeats.
int64_t ByteStride(const ConstTensor& t, const ConstTensor& x, int axis) {
  if (t.rank < x.rank || t.shape[axis] == 1) return 0;
  return t.strides[axis] * SizeOf(t.dtype);
}

// Leading axes, innermost first while they are gathered: those of size 1
// dropped, those that continue each other in every operand merged.
void FillAxes(const Present* present, const ConstTensor& x, const Plan& plan,
              Geometry* g) {
  g->axes = 0;
  for (int axis = x.rank - 2; axis >= 0; --axis) {
    const int64_t count = x.shape[axis];
    if (count == 1) continue;
    bool continues = g->axes > 0;
    int64_t stride[kOperands];
    for (int n = 0; n < plan.count; ++n) {
      const Operand k = plan.operands[n];
      stride[k] = ByteStride(*present[n].bytes.tensor, x, axis);
      continues =
          continues && stride[k] == g->axis[0].stride[k] * g->axis[0].count;
    }
    if (continues) {
      g->axis[0].count *= count;
      continue;
    }
    for (int a = g->axes; a > 0; --a) g->axis[a] = g->axis[a - 1];
    g->axis[0].count = count;
    for (int n = 0; n < plan.count; ++n) {
      g->axis[0].stride[plan.operands[n]] = stride[plan.operands[n]];
    }
    ++g->axes;
  }
}

// All of a plan but its operands.
void FillPlan(Op op, const ConstTensor& x, const Options& o, Plan* plan) {
  plan->op = op;
  plan->width = x.shape[x.rank - 1];
  plan->eps = o.eps;
  plan->weight_offset = o.weight_offset;
  plan->residual_scale = o.residual_scale;
  plan->rounding = o.rounding;
  plan->sum = o.sum;
  plan->nontemporal = o.nontemporal;
  plan->accumulate = o.accumulate;
  plan->far = false;
  plan->memory = false;
  plan->stream = false;
  plan->few_ways = false;
  plan->count = 0;
  FillOperands(false, plan->has);
  FillOperands(x.dtype, plan->dtype);
}

// What an operation lacks, and dtypes that hang together.
Status CheckOperation(Op op, const Arguments& arguments,
                      const Options& options) {
  const ConstTensor* residual = arguments.tensor[kResidual];
  const ConstTensor* stream = arguments.tensor[kResidualOut];
  if (stream != nullptr && stream->dtype != residual->dtype) {
    return Error(kInvalid, "residual_out.dtype is %s, but residual.dtype is %s",
                 Name(stream->dtype), Name(residual->dtype));
  }
  const ConstTensor* dweight = arguments.tensor[kDWeight];
  const ConstTensor* weight = arguments.tensor[kWeight];
  if (dweight != nullptr && dweight->dtype != DType::kF32 &&
      dweight->dtype != DType::kF64 &&
      !(weight != nullptr && weight->dtype == dweight->dtype)) {
    return Error(kUnsupported, "dweight.dtype is %s: f32, f64 or weight's",
                 Name(dweight->dtype));
  }
  if (dweight != nullptr && weight != nullptr &&
      !SameShape(*dweight, *weight)) {
    return Error(kInvalid, "dweight: its shape is not weight's");
  }
  if (op == Op::kRmsNormAddRmsNorm && options.residual_scale != 1) {
    return Error(kUnsupported, "residual_scale is %g: not offered here",
                 static_cast<double>(options.residual_scale));
  }
  return {};
}

// The values per row: rstd is an option, or an argument of operations that
// are about nothing else.
Status MakePerRow(const Signature& signature, const ConstTensor& x,
                  const void* argument, const Options& options,
                  std::optional<ConstTensor>* per_row) {
  const Slot& slot = signature.slots[signature.count - 1];
  const bool is_option = IsPerRow(slot) && !slot.required;
  if (options.rstd != nullptr && !is_option) {
    return Error(kUnsupported, "rstd is %p: no option of this operation",
                 static_cast<void*>(options.rstd));
  }
  if (!IsPerRow(slot)) return {};
  const void* data = is_option ? options.rstd : argument;
  if (data == nullptr) return {};
  const DType dtype = slot.operand == kSums ? DType::kF64 : DType::kF32;
  if (x.dtype == DType::kF64 && dtype == DType::kF32) {
    return Error(kUnsupported, "rstd is %p: not offered for f64", data);
  }
  *per_row = PerRowTensor(x, data, dtype);
  return {};
}

}  // namespace

Status Check(Op op, const Arguments& arguments, const void* per_row,
             const Options& options, Plan* plan, Geometry* geometry) {
  const Signature signature = SignatureOf(op);
  const Slot* end = signature.slots + signature.count;
  const char* x_name = signature.slots->name;
  const ConstTensor* x = arguments.tensor[kX];
  if (x == nullptr) return Error(kInvalid, "%s is null", x_name);
  Status status = CheckX(x_name, *x, &geometry->rows);
  if (status.ok()) status = CheckOptions(options);
  std::optional<ConstTensor> per_row_tensor;
  if (status.ok()) {
    status = MakePerRow(signature, *x, per_row, options, &per_row_tensor);
  }
  if (!status.ok()) return status;
  const bool empty = geometry->rows == 0;
  FillPlan(op, *x, options, plan);
  Present present[kOperands];
  for (const Slot* slot = signature.slots; slot != end; ++slot) {
    const Operand k = slot->operand;
    const ConstTensor* t = arguments.tensor[k];
    if (IsPerRow(*slot) && per_row_tensor) t = &*per_row_tensor;
    if (t == nullptr) {
      if (!slot->required || (empty && IsPerRow(*slot))) continue;
      return Error(kInvalid, "%s is null", slot->name);
    }
    Present* const argument = &present[plan->count];
    argument->slot = slot;
    argument->bytes.tensor = t;
    if (!IsPerRow(*slot)) {
      status = CheckDType(*slot, *t, *x, x_name);
      if (status.ok()) status = CheckShape(*slot, *t, *x);
    }
    // Without rows only dweight is written, if it has elements.
    const bool used = !empty || (slot->role == Role::kDWeight && !IsEmpty(*t));
    if (status.ok() && used) {
      ByteView* const bytes = &argument->bytes;
      status = MakeByteView(slot->name, bytes);
      if (status.ok() && IsOutput(*slot) && OverlapsItself(*bytes)) {
        status = Error(kInvalid, "%s: its rows overlap each other", slot->name);
      }
    }
    if (!status.ok()) return status;
    plan->has[k] = true;
    plan->dtype[k] = t->dtype;
    plan->operands[plan->count++] = k;
    geometry->data[k] = static_cast<char*>(const_cast<void*>(t->data));
  }
  status = CheckOperation(op, arguments, options);
  if (status.ok() && !empty) {
    status = CheckOverlaps(present, present + plan->count);
  }
  if (!status.ok()) return status;
  if (plan->has[kResidual]) {
    plan->dtype[kResidualOut] = plan->dtype[kResidual];
  }
  // Where the sum rounds nothing its modes are one, and kernels and reference
  // have to agree on when residual_out is stored.
  if (plan->dtype[kResidualOut] == DType::kF32 &&
      (op == Op::kAddRmsNorm || x->dtype == DType::kF32)) {
    plan->sum = Sum::kRounded;
  }
  FillAxes(present, *x, *plan, geometry);
  return {};
}

}  // namespace internal
}  // namespace fusednorm

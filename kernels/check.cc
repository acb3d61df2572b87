#include "kernels/check.h"

#include <cinttypes>
#include <cmath>

#include "kernels/error.h"
#include "kernels/overlap.h"

namespace fusednorm {
namespace internal {
namespace {

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

const char* Name(Operand operand) {
  static constexpr const char* kNames[kOperands] = {
      "x", "residual", "weight", "out", "residual_out", "rstd"};
  return kNames[operand];
}

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

constexpr unsigned Bit(Operand operand) { return 1u << operand; }
constexpr unsigned kOutputs = Bit(kOut) | Bit(kResidualOut) | Bit(kRstd);

// What an operation takes, and which outputs may lie on which inputs.
struct Signature {
  unsigned required;
  unsigned optional;
  unsigned aliases[kOperands];  // Of an output: the inputs.
};

Signature SignatureOf(Op op) {
  Signature s = {};
  s.required = Bit(kX) | Bit(kOut);
  s.optional = Bit(kWeight);
  s.aliases[kOut] = Bit(kX);
  if (op == Op::kAddRmsNorm) {
    s.required |= Bit(kResidual);
    s.optional |= Bit(kResidualOut);
    s.aliases[kOut] |= Bit(kResidual);
    s.aliases[kResidualOut] = Bit(kX) | Bit(kResidual);
  }
  return s;
}

// dtype, rank, shape and strides of one tensor by itself.
Status CheckView(const char* name, const ConstTensor& t) {
  if (Name(t.dtype) == nullptr) {
    return Error(kInvalid, "%s.dtype is %d, which is no dtype", name,
                 static_cast<int>(t.dtype));
  }
  if (t.rank < 1 || t.rank > ConstTensor::kMaxRank) {
    return Error(kInvalid, "%s.rank is %d; it must be 1 to %d", name,
                 static_cast<int>(t.rank), ConstTensor::kMaxRank);
  }
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] < 0) {
      return Error(kInvalid, "%s.shape[%d] is %" PRId64, name, axis,
                   t.shape[axis]);
    }
    if (t.shape[axis] > 1 && t.strides[axis] < 0) {
      return Error(kInvalid, "%s.strides[%d] is %" PRId64 ", negative", name,
                   axis, t.strides[axis]);
    }
  }
  const int last = t.rank - 1;
  if (t.shape[last] == 0) {
    return Error(kInvalid, "%s.shape[%d], the width, is 0", name, last);
  }
  if (t.shape[last] > 1 && t.strides[last] != 1) {
    return Error(kInvalid, "%s.strides[%d] is %" PRId64 "; the last must be 1",
                 name, last, t.strides[last]);
  }
  return {};
}

Status CheckDType(const char* name, DType dtype, DType x) {
  const bool offered = dtype == DType::kF32 || dtype == DType::kBF16 ||
                       dtype == DType::kF16 || dtype == DType::kF64;
  if (!offered) {
    return Error(kUnsupported, "%s.dtype is %s, not offered here", name,
                 Name(dtype));
  }
  if ((dtype == DType::kF64) != (x == DType::kF64)) {
    return Error(kUnsupported,
                 "%s.dtype is %s with x.dtype %s: f64 does not "
                 "mix with others",
                 name, Name(dtype), Name(x));
  }
  return {};
}

Status ShapeMismatch(const char* name, int axis, int64_t is, int64_t wanted) {
  return Error(kInvalid,
               "%s.shape[%d] is %" PRId64 ", but x has %" PRId64 " there", name,
               axis, is, wanted);
}

// The same shape as x; a weight is one row, or has 1 where it repeats.
Status CheckShape(Operand operand, const ConstTensor& t, const ConstTensor& x) {
  const char* name = Name(operand);
  const int64_t width = x.shape[x.rank - 1];
  const bool is_weight = operand == kWeight;
  if (t.rank != x.rank && !(is_weight && t.rank == 1)) {
    return Error(kInvalid, "%s.rank is %d, but x.rank is %d", name,
                 static_cast<int>(t.rank), static_cast<int>(x.rank));
  }
  if (t.shape[t.rank - 1] != width) {
    return ShapeMismatch(name, t.rank - 1, t.shape[t.rank - 1], width);
  }
  for (int axis = 0; axis < t.rank - 1; ++axis) {
    if (t.shape[axis] != x.shape[axis] && !(is_weight && t.shape[axis] == 1)) {
      return ShapeMismatch(name, axis, t.shape[axis], x.shape[axis]);
    }
  }
  return {};
}

// A view of at least one row as bytes; refuses null and misaligned data, and
// sizes that leave the address space.
Status MakeByteView(const char* name, const ConstTensor& t, ByteView* view) {
  if (t.data == nullptr) return Error(kInvalid, "%s.data is null", name);
  const int64_t size = SizeOf(t.dtype);
  view->begin = reinterpret_cast<uintptr_t>(t.data);
  if (view->begin % static_cast<uintptr_t>(size) != 0) {
    return Error(kInvalid, "%s.data %p is not aligned to its %s elements", name,
                 t.data, Name(t.dtype));
  }
  bool fits =
      !__builtin_mul_overflow(t.shape[t.rank - 1], size, &view->row_bytes);
  view->extent = view->row_bytes;
  view->axes = 0;
  for (int axis = 0; fits && axis < t.rank - 1; ++axis) {
    if (t.shape[axis] == 1) continue;
    int64_t stride, reach;
    fits = !__builtin_mul_overflow(t.strides[axis], size, &stride) &&
           !__builtin_mul_overflow(stride, t.shape[axis] - 1, &reach) &&
           !__builtin_add_overflow(view->extent, reach, &view->extent);
    view->count[view->axes] = t.shape[axis];
    view->stride[view->axes++] = stride;
  }
  uintptr_t end;
  fits = fits && !__builtin_add_overflow(
                     view->begin, static_cast<uintptr_t>(view->extent), &end);
  if (!fits) return Error(kInvalid, "%s: its size overflows", name);
  return {};
}

bool SameView(const ConstTensor& a, const ConstTensor& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int axis = 0; axis < a.rank; ++axis) {
    if (a.shape[axis] != b.shape[axis]) return false;
    if (a.shape[axis] > 1 && a.strides[axis] != b.strides[axis]) return false;
  }
  return true;
}

// Outputs against themselves and everything else.
Status CheckOverlaps(const Signature& signature, const Arguments& arguments,
                     const ByteView (&views)[kOperands]) {
  for (int o = 0; o < kOperands; ++o) {
    const auto output = static_cast<Operand>(o);
    if ((kOutputs & Bit(output)) == 0) continue;
    if (arguments.tensor[output] == nullptr) continue;
    if (OverlapsItself(views[output])) {
      return Error(kInvalid, "%s: its rows overlap each other", Name(output));
    }
    for (int k = 0; k < kOperands; ++k) {
      const auto other = static_cast<Operand>(k);
      if (other == output || arguments.tensor[other] == nullptr) continue;
      const bool alias =
          (signature.aliases[output] & Bit(other)) != 0 &&
          SameView(*arguments.tensor[output], *arguments.tensor[other]);
      if (!alias && Overlap(views[output], views[other])) {
        return Error(kInvalid, "%s at %p overlaps %s at %p", Name(output),
                     arguments.tensor[output]->data, Name(other),
                     arguments.tensor[other]->data);
      }
    }
  }
  return {};
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
  const struct {
    const char* name;
    int32_t value;
    int32_t last;
  } choices[] = {{"rounding", static_cast<int32_t>(o.rounding), 1},
                 {"sum", static_cast<int32_t>(o.sum), 2},
                 {"nontemporal", static_cast<int32_t>(o.nontemporal), 2}};
  for (const auto& choice : choices) {
    if (choice.value < 0 || choice.value > choice.last) {
      return Error(kInvalid, "%s is %d, which is no option", choice.name,
                   static_cast<int>(choice.value));
    }
  }
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

// rstd as a tensor: packed, one f32 for each row of x.
ConstTensor RstdTensor(const ConstTensor& x, const float* rstd) {
  ConstTensor t = x;
  t.data = rstd;
  t.dtype = DType::kF32;
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

// Whether axis `outer` continues the innermost axis so far in every operand.
bool Continues(const Geometry& g, const int64_t (&stride)[kOperands]) {
  for (int k = 0; k < kOperands; ++k) {
    if (stride[k] != g.stride[k][0] * g.count[0]) return false;
  }
  return true;
}

// Leading axes, innermost first while they are gathered: those of size 1
// dropped, those that continue each other merged.
void FillGeometry(const Arguments& arguments, Geometry* g) {
  const ConstTensor& x = *arguments.tensor[kX];
  *g = {};
  g->rows = 1;
  for (int k = 0; k < kOperands; ++k) {
    const ConstTensor* t = arguments.tensor[k];
    if (t != nullptr)
      g->data[k] = static_cast<char*>(const_cast<void*>(t->data));
  }
  for (int axis = x.rank - 2; axis >= 0; --axis) {
    g->rows *= x.shape[axis];
    if (x.shape[axis] == 1) continue;
    int64_t stride[kOperands] = {};
    for (int k = 0; k < kOperands; ++k) {
      const ConstTensor* t = arguments.tensor[k];
      if (t != nullptr) stride[k] = ByteStride(*t, x, axis);
    }
    if (g->axes > 0 && Continues(*g, stride)) {
      g->count[0] *= x.shape[axis];
      continue;
    }
    for (int a = g->axes; a > 0; --a) {  // Room at the front.
      g->count[a] = g->count[a - 1];
      for (int k = 0; k < kOperands; ++k) g->stride[k][a] = g->stride[k][a - 1];
    }
    g->count[0] = x.shape[axis];
    for (int k = 0; k < kOperands; ++k) g->stride[k][0] = stride[k];
    ++g->axes;
  }
}

// The product of the leading axes, 0 as soon as one is 0.
Status CountRows(const ConstTensor& x, int64_t* rows) {
  *rows = 1;
  for (int axis = 0; axis < x.rank - 1; ++axis) {
    if (x.shape[axis] == 0) {
      *rows = 0;
      return {};
    }
  }
  for (int axis = 0; axis < x.rank - 1; ++axis) {
    if (__builtin_mul_overflow(*rows, x.shape[axis], rows)) {
      return Error(kInvalid, "x: its number of rows overflows");
    }
  }
  return {};
}

void FillPlan(Op op, const Arguments& arguments, const Options& o, Plan* plan) {
  const ConstTensor& x = *arguments.tensor[kX];
  *plan = {};
  plan->op = op;
  for (int k = 0; k < kOperands; ++k) {
    const ConstTensor* t = arguments.tensor[k];
    plan->has[k] = t != nullptr;
    plan->dtype[k] = t != nullptr ? t->dtype : x.dtype;
  }
  if (plan->has[kResidual]) {
    plan->dtype[kResidualOut] = plan->dtype[kResidual];
  }
  plan->width = x.shape[x.rank - 1];
  plan->eps = o.eps;
  plan->weight_offset = o.weight_offset;
  plan->residual_scale = o.residual_scale;
  plan->rounding = o.rounding;
  plan->sum = o.sum;
  plan->nontemporal = o.nontemporal;
}

}  // namespace

Status Check(Op op, const Arguments& given, const Options& options, Plan* plan,
             Geometry* geometry) {
  const Signature signature = SignatureOf(op);
  Arguments arguments = given;
  const ConstTensor* x = arguments.tensor[kX];
  for (int k = 0; k < kOperands; ++k) {
    const auto operand = static_cast<Operand>(k);
    const ConstTensor* t = arguments.tensor[k];
    if (t == nullptr) {
      if ((signature.required & Bit(operand)) == 0) continue;
      return Error(kInvalid, "%s is null", Name(operand));
    }
    Status status = CheckView(Name(operand), *t);
    if (status.ok()) status = CheckDType(Name(operand), t->dtype, x->dtype);
    if (status.ok()) status = CheckShape(operand, *t, *x);
    if (!status.ok()) return status;
  }
  const ConstTensor* residual = arguments.tensor[kResidual];
  const ConstTensor* residual_out = arguments.tensor[kResidualOut];
  if (residual_out != nullptr && residual_out->dtype != residual->dtype) {
    return Error(kInvalid, "residual_out.dtype is %s, but residual.dtype is %s",
                 Name(residual_out->dtype), Name(residual->dtype));
  }
  Status status = CheckOptions(options);
  if (!status.ok()) return status;
  if (options.rstd != nullptr && x->dtype == DType::kF64) {
    return Error(kUnsupported, "rstd is %p: not offered for f64",
                 static_cast<void*>(options.rstd));
  }

  int64_t rows;
  status = CountRows(*x, &rows);
  if (!status.ok()) return status;
  if (rows == 0) {
    *geometry = {};
    return {};
  }
  ConstTensor rstd;
  if (options.rstd != nullptr) {
    rstd = RstdTensor(*x, options.rstd);
    arguments.tensor[kRstd] = &rstd;
  }
  ByteView views[kOperands];
  for (int k = 0; k < kOperands; ++k) {
    if (arguments.tensor[k] == nullptr) continue;
    status = MakeByteView(Name(static_cast<Operand>(k)), *arguments.tensor[k],
                          &views[k]);
    if (!status.ok()) return status;
  }
  status = CheckOverlaps(signature, arguments, views);
  if (!status.ok()) return status;
  FillPlan(op, arguments, options, plan);
  FillGeometry(arguments, geometry);
  return {};
}

}  // namespace internal
}  // namespace fusednorm

#include "bench/problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <sstream>

#include "fusednorm/reference.h"
#include "kernels/convert.h"

namespace fusednorm {
namespace bench {
namespace {

// Rows repeat after so many: a prime, so that any mix-up of rows shows.
constexpr int64_t kDistinctRows = 61;

constexpr size_t kCheckedSets = 8;

size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// Random signs and magnitudes in [0.5, 2): nothing overflows, however often
// something is added to.
std::vector<uint8_t> RandomValues(DType dtype, int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> values(static_cast<size_t>(count) * SizeOf(dtype));
  for (size_t i = 0; i < values.size(); i += SizeOf(dtype)) {
    uint32_t bits = static_cast<uint32_t>(random());
    if (dtype == DType::kF32) bits = (bits & 0x80FFFFFF) | 0x3F000000;
    if (dtype == DType::kBF16) bits = (bits & 0x80FF) | 0x3F00;
    if (dtype == DType::kF16) bits = (bits & 0x87FF) | 0x3800;
    std::memcpy(&values[i], &bits, SizeOf(dtype));  // The low half, if 16-bit.
  }
  return values;
}

std::vector<uint8_t> Ones(DType dtype, int64_t count) {
  const uint32_t one = dtype == DType::kF32    ? 0x3F800000
                       : dtype == DType::kBF16 ? 0x3F80
                                               : 0x3C00;
  std::vector<uint8_t> values(static_cast<size_t>(count) * SizeOf(dtype));
  for (size_t i = 0; i < values.size(); i += SizeOf(dtype)) {
    std::memcpy(&values[i], &one, SizeOf(dtype));
  }
  return values;
}

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

// The body over [0, bytes) on some threads; it takes a begin and an end.
template <class Body>
void InSlices(int threads, size_t bytes, const Body& body) {
  if (threads == 1) return body(size_t{0}, bytes);
  const size_t slice = RoundUp(bytes / static_cast<size_t>(threads) + 1, 128);
#if defined(_OPENMP)
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
  for (int i = 0; i < threads; ++i) {
    const size_t begin = std::min(bytes, static_cast<size_t>(i) * slice);
    body(begin, std::min(bytes, begin + slice));
  }
}

// As much as a rotation of sets takes at least: several times the cache, so
// that most of what a pass over it evicts is its own.
size_t RotationBytes() {
  return std::clamp(4 * LastLevelCache(), size_t{64} << 20, size_t{512} << 20);
}

// The machine's limit is the same for the scalar code: the best vectors'.
const Roofline& RooflineFor(const std::string& target) {
  const std::string all = TargetNames();
  const std::string best = all.substr(0, all.find(' '));
  return *RooflineOf(target == "scalar" ? best : target);
}

// `pattern` over and over; all ones, NaN in every dtype, if there is none.
void Fill(uint8_t* to, size_t bytes, const std::vector<uint8_t>& pattern) {
  if (pattern.empty()) std::memset(to, 0xFF, bytes);
  for (size_t done = 0; done < bytes && !pattern.empty();) {
    const size_t part = std::min(pattern.size(), bytes - done);
    std::memcpy(to + done, pattern.data(), part);
    done += part;
  }
}

bool Holds(const uint8_t* memory, size_t bytes,
           const std::vector<uint8_t>& pattern) {
  for (size_t done = 0; done < bytes && !pattern.empty();) {
    const size_t part = std::min(pattern.size(), bytes - done);
    if (std::memcmp(memory + done, pattern.data(), part) != 0) return false;
    done += part;
  }
  return true;
}

double Value(DType dtype, const uint8_t* p) {
  uint16_t half;
  float single;
  std::memcpy(&half, p, sizeof(half));
  if (dtype == DType::kF16) return internal::F32FromF16(half);
  if (dtype == DType::kBF16) return internal::F32FromBF16(half);
  std::memcpy(&single, p, sizeof(single));
  return single;
}

double EpsilonOf(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-10;
  return dtype == DType::kBF16 ? 0x1p-7 : 0x1p-23;
}

Difference Distance(DType dtype, const uint8_t* values,
                    const std::vector<uint8_t>& expected) {
  const size_t count = expected.size() / SizeOf(dtype);
  double mean = 0;
  for (size_t i = 0; i < expected.size(); i += SizeOf(dtype)) {
    mean += std::abs(Value(dtype, &expected[i])) / static_cast<double>(count);
  }
  Difference difference;
  for (size_t i = 0; i < expected.size(); i += SizeOf(dtype)) {
    const double wanted = Value(dtype, &expected[i]);
    const double error = std::abs(Value(dtype, values + i) - wanted);
    if (error == 0) continue;
    difference.unequal += 1 / static_cast<double>(count);
    const double unit = EpsilonOf(dtype) * std::max(mean, std::abs(wanted));
    const double epsilons = error >= 0 ? error / unit : 1e30;  // NaN
    difference.epsilons = std::max(difference.epsilons, epsilons);
  }
  return difference;
}

}  // namespace

std::string Shape::Name() const {
  std::ostringstream name;
  name << rows << 'x';
  if (heads > 1) name << heads << 'x';
  name << width;
  if (x_stride != 0) name << "of" << x_stride;
  if (nontemporal == Nontemporal::kAlways) name << "nt";
  if (pages_apart) name << "pages";
  return name.str();
}

std::string Case::Name() const {
  std::ostringstream name;
  name << TraitsOf(op).name << '/' << mix.name << '/' << target << '/'
       << shape.Name() << '/' << (cold ? "cold" : "warm");
  if (threads > 1) name << "/t" << threads;
  return name.str();
}

size_t Case::SetBytes() const {
  size_t bytes = SizeOf(mix.out);
  if (TraitsOf(op).has_x) bytes += SizeOf(mix.x);
  if (TraitsOf(op).has_second) bytes += SizeOf(mix.second);
  return bytes * static_cast<size_t>(Elements());
}

size_t Case::MovedBytes() const {
  const OpTraits& traits = TraitsOf(op);
  size_t bytes = SetBytes() / static_cast<size_t>(Elements());
  if (traits.streams == Streams::kAdd || traits.streams == Streams::kRewrite) {
    bytes += SizeOf(mix.second);  // Read and written.
  }
  if (traits.out_is_read) bytes += SizeOf(mix.out);
  return bytes * static_cast<size_t>(Elements());
}

Problem::Problem(const Case& c)
    : case_(c),
      traits_(TraitsOf(c.op)),
      roofline_(RooflineFor(c.target)),
      pass_bytes_(c.MovedBytes() / CountOf(traits_.streams)) {
  options_.rounding = c.mix.rounding;
  options_.sum = c.mix.sum;
  options_.nontemporal = c.shape.nontemporal;
  options_.num_threads = c.threads;
  MakeContents();

  size_t largest = pass_bytes_;
  for (const Content& content : contents_) {
    largest = std::max(largest, content.bytes);
  }
  // Nine lines apart unless the shape asks for whole pages: rows of all buffers
  // share their low address bits then. Either leaves room for a vector past the
  // end.
  stride_ = c.shape.pages_apart ? RoundUp(largest + 64, 4096)
                                : RoundUp(largest, 64) + 9 * 64;
  set_stride_ = (traits_.has_scratch ? kScratch + 1 : kOut + 1) * stride_;
  while (c.cold && sets_ * c.SetBytes() < RotationBytes()) sets_ *= 2;
  memory_ = Memory(sets_ * set_stride_);

  uint8_t* const later[kBuffers] = {};
  operands_ = View(later, c.shape.rows);
}

void Problem::MakeContents() {
  const Shape& shape = case_.shape;
  const int64_t distinct = std::min(kDistinctRows, shape.rows);
  const int64_t packed = shape.heads * shape.width;
  const auto content = [&](DType dtype, int64_t stride, unsigned seed) {
    Content made;
    made.dtype = dtype;
    made.bytes = static_cast<size_t>(shape.rows * stride) * SizeOf(dtype);
    made.before = made.after = RandomValues(dtype, distinct * stride, seed);
    return made;
  };
  // In place one call's output is the next one's input: a weight would drive
  // most elements towards zero, and time is measured on ordinary numbers.
  weight_ = traits_.has_x ? RandomValues(case_.mix.weight, shape.width, 1)
                          : Ones(case_.mix.weight, shape.width);
  dweight_.resize(static_cast<size_t>(shape.width));
  contents_[kX] = content(case_.mix.x, shape.XStride(), 2);
  contents_[kOut] = content(case_.mix.out, packed, 4);
  if (!traits_.out_is_read) contents_[kOut].before.clear();
  if (traits_.has_second) {
    contents_[kSecond] = content(case_.mix.second, packed, 3);
  }

  uint8_t* data[kBuffers];
  for (int b = 0; b < kBuffers; ++b) data[b] = contents_[b].after.data();
  const Operands operands = View(data, distinct);
  // Trainers keep rstd from the forward pass.
  if (case_.op == Op::kRmsNormBackward || case_.op == Op::kAddRmsNormBackward) {
    rstd_.resize(static_cast<size_t>(shape.rows));
    ok_ &= reference::RowRstd(operands.x, rstd_.data(), options_).ok();
    for (size_t i = static_cast<size_t>(distinct); i < rstd_.size(); ++i) {
      rstd_[i] = rstd_[i - static_cast<size_t>(distinct)];
    }
    options_.rstd = rstd_.data();
  }
  ok_ &= Call(Backend::kReference, case_.op, operands, options_).ok();
}

Operands Problem::View(uint8_t* const* data, int64_t rows) {
  const Mix& mix = case_.mix;
  const int64_t heads = case_.shape.heads;
  const int64_t width = case_.shape.width;
  const auto packed = [&](uint8_t* p, DType dtype) {
    return heads == 1 ? Tensor(p, dtype, {rows, width})
                      : Tensor(p, dtype, {rows, heads, width});
  };
  Operands t;
  t.x = packed(data[kX], mix.x);
  t.x.strides[0] = case_.shape.XStride();
  t.second = packed(data[kSecond], mix.second);
  t.out = packed(data[kOut], mix.out);
  t.weight = ConstTensor(weight_.data(), mix.weight, {width});
  t.dweight = Tensor(dweight_.data(), DType::kF32, {width});
  return t;
}

void Problem::NextSet() {
  // The number of sets is a power of two, so an odd step visits all; a large
  // one keeps the hardware from fetching the next set ahead.
  const size_t step = sets_ * 5 / 8 | 1;
  set_ = (set_ + step) & (sets_ - 1);
}

void Problem::CallOn(Op op, uint8_t* x, uint8_t* second, uint8_t* out) {
  operands_.x.data = x;
  operands_.second.data = second;
  operands_.out.data = out;
  ok_ &= Call(Backend::kTarget, op, operands_, options_).ok();
}

void Problem::AddTo(Buffer x, Buffer sum) {
  const size_t bytes = contents_[sum].bytes;
  InSlices(case_.threads, bytes, [&](size_t begin, size_t end) {
    roofline_.add(case_.mix.x, At(x) + begin, At(sum) + begin, end - begin);
  });
}

bool Problem::HasUnfused() const {
  const bool alone =
      case_.op == Op::kRmsNorm || case_.op == Op::kRmsNormThenRead;
  return !alone && case_.mix.RowsAreUniform();
}

// With separate operations, as a framework would compose it.
void Problem::Unfused() {
  uint8_t* const x = At(kX);
  uint8_t* const second = At(kSecond);
  uint8_t* const out = At(kOut);
  switch (case_.op) {
    case Op::kRmsNorm:
    case Op::kRmsNormThenRead:
      break;
    case Op::kAddRmsNorm:
      AddTo(kX, kSecond);
      CallOn(Op::kRmsNorm, second, nullptr, out);
      break;
    case Op::kAddRmsNormInPlace:
      AddTo(kOut, kSecond);
      CallOn(Op::kRmsNorm, second, nullptr, out);
      break;
    case Op::kRmsNormAdd:
      CallOn(Op::kRmsNorm, x, nullptr, out);
      AddTo(kSecond, kOut);
      break;
    case Op::kRmsNormAddRmsNorm:
      CallOn(Op::kRmsNorm, x, nullptr, out);
      AddTo(kOut, kSecond);
      CallOn(Op::kRmsNorm, second, nullptr, out);
      break;
    case Op::kRmsNormBackward: {  // dx and dweight one after the other.
      const Operands both = operands_;
      operands_.dweight = Tensor();
      CallOn(Op::kRmsNormBackward, x, second, out);
      operands_ = both;
      operands_.out = Tensor();
      CallOn(Op::kRmsNormBackward, x, second, nullptr);
      operands_ = both;
      break;
    }
    case Op::kAddRmsNormBackward:
      CallOn(Op::kRmsNormBackward, x, second, At(kScratch));
      AddTo(kScratch, kOut);
      break;
  }
}

void Problem::ThenRead(Nontemporal nontemporal) {
  options_.nontemporal = nontemporal;
  Fused();
  InSlices(case_.threads, contents_[kOut].bytes, [&](size_t begin, size_t end) {
    roofline_.read(At(kOut) + begin, end - begin);
  });
}

void Problem::RunPass(Pass pass, int threads) {
  InSlices(threads, pass_bytes_, [&](size_t begin, size_t end) {
    pass(At(kX) + begin, At(kSecond) + begin, At(kOut) + begin, end - begin);
  });
}

void Problem::Refill() {
  for (int b = 0; b < kBuffers; ++b) {
    Fill(At(Buffer(b)), contents_[b].bytes, contents_[b].before);
  }
}

bool Problem::Check(Method method) {
  // All sets get their values, once; a sample of the results is enough.
  for (size_t i = 0; i < sets_; ++i) {
    if (i >= kCheckedSets && filled_) break;
    NextSet();
    Refill();
    if (i >= kCheckedSets) continue;
    (this->*method)();
    for (int b = 0; b < kBuffers; ++b) {
      const Content& content = contents_[b];
      ok_ = ok_ && Holds(At(Buffer(b)), content.bytes, content.after);
    }
  }
  filled_ = true;
  return ok_;
}

std::vector<Operands> Problem::OperandsOfSets() {
  std::vector<Operands> all;
  for (set_ = 0; set_ < sets_; ++set_) {
    Refill();
    uint8_t* const data[kBuffers] = {At(kX), At(kSecond), At(kOut), nullptr};
    all.push_back(View(data, case_.shape.rows));
  }
  set_ = 0;
  return all;
}

Kernel Problem::Peer(std::string name, const SetCall& call) {
  return Rotating(std::move(name), [this, call] { call(set_); });
}

Difference Problem::Compare(const SetCall& call, Sum sum) {
  Refill();
  call(set_);
  Options options = options_;
  options.sum = sum;
  std::vector<uint8_t> expected[kBuffers];
  uint8_t* data[kBuffers];
  for (int b = 0; b < kBuffers; ++b) {
    const Content& content = contents_[b];
    expected[b] = content.before.empty() ? content.after : content.before;
    data[b] = expected[b].data();
  }
  const int64_t rows = std::min(kDistinctRows, case_.shape.rows);
  ok_ &= Call(Backend::kReference, case_.op, View(data, rows), options).ok();

  Difference worst;
  for (const Buffer b : {kSecond, kOut}) {
    const Difference d = Distance(contents_[b].dtype, At(b), expected[b]);
    worst.unequal = std::max(worst.unequal, d.unequal);
    worst.epsilons = std::max(worst.epsilons, d.epsilons);
  }
  return worst;
}

template <class Body>
Kernel Problem::Rotating(std::string name, Body body, bool is_roof) {
  return {std::move(name),
          [this, body](int64_t calls) {
            for (int64_t i = 0; i < calls; ++i) {
              NextSet();
              body();
            }
          },
          is_roof};
}

void Problem::AddRivals(std::vector<Kernel>* kernels) {
  if (HasUnfused()) {
    kernels->push_back(Rotating("unfused", [this] { Unfused(); }));
  }
  if (case_.op == Op::kRmsNormThenRead) {
    kernels->push_back(
        Rotating("never", [this] { ThenRead(Nontemporal::kNever); }));
    kernels->push_back(
        Rotating("always", [this] { ThenRead(Nontemporal::kAlways); }));
  }
}

void Problem::AddRoof(int threads, std::vector<Kernel>* kernels) {
  const auto add = [&](const char* name, Pass pass) {
    kernels->push_back(Rotating(
        name, [this, pass, threads] { RunPass(pass, threads); }, true));
  };
  const Roofline::Passes& passes =
      roofline_.passes[static_cast<int>(traits_.streams)];
  add("plain", passes.plain);
  add("stream", passes.stream);
  if (traits_.streams == Streams::kCopy) {
    add("memcpy", [](const uint8_t* x, uint8_t*, uint8_t* out, size_t bytes) {
      std::memcpy(out, x, bytes);
    });
  }
}

std::vector<Kernel> Problem::Kernels() {
  std::vector<Kernel> kernels;
  if (case_.op == Op::kRmsNormThenRead) {
    kernels.push_back(
        Rotating("fused", [this] { ThenRead(Nontemporal::kAuto); }));
  } else {
    kernels.push_back(Rotating("fused", [this] { Fused(); }));
  }
  AddRivals(&kernels);
  // The best of one thread and of all: starting threads has its price.
  AddRoof(1, &kernels);
  if (case_.threads > 1) AddRoof(case_.threads, &kernels);
  return kernels;
}

}  // namespace bench
}  // namespace fusednorm

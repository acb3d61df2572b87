#include "bench/problem.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <sstream>

#include "fusednorm/reference.h"

namespace fusednorm {
namespace bench {
namespace {

size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// Random signs and magnitudes in [0.5, 2): nothing overflows, however often
// a residual is added to.
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

size_t SetsOf(const Case& c, size_t set_bytes) {
  size_t sets = 1;
  while (c.cold && sets * set_bytes < RotationBytes()) sets *= 2;
  return sets;
}

// The machine's limit is the same for the scalar code: the best vectors'.
const Roofline& RooflineFor(const std::string& target) {
  const std::string all = TargetNames();
  const std::string best = all.substr(0, all.find(' '));
  return *RooflineOf(target == "scalar" ? best : target);
}

}  // namespace

std::string Case::Name() const {
  std::ostringstream name;
  name << (add ? "add_rms_norm" : "rms_norm") << '/' << variant.name << '/'
       << target << '/' << shape.rows << 'x' << shape.width << '/'
       << (cold ? "cold" : "warm");
  if (flags.threads > 1) name << "/t" << flags.threads;
  return name.str();
}

size_t Case::RowsBytes() const {
  return static_cast<size_t>(shape.rows * shape.width) * SizeOf(variant.dtype);
}

Problem::Problem(const Case& c)
    : case_(c),
      roofline_(RooflineFor(c.target)),
      rows_bytes_(c.RowsBytes()),
      // Nine lines apart, or rows of all buffers would share their low address
      // bits. It is also the room for a vector past the end.
      rows_stride_(RoundUp(rows_bytes_, 64) + 9 * 64),
      set_stride_((c.add ? 3 : 2) * rows_stride_),
      sets_(SetsOf(c, set_stride_)),
      memory_(Memory(sets_ * set_stride_)) {
  const DType dtype = c.variant.dtype;
  const int64_t width = c.shape.width;
  const int64_t distinct = std::min(kDistinctRows, c.shape.rows);

  options_.rounding = c.variant.rounding;
  options_.num_threads = c.flags.threads;
  x_ = ConstTensor(nullptr, dtype, {c.shape.rows, width});
  residual_ = out_ = Tensor(nullptr, dtype, {c.shape.rows, width});
  weight_values_ = RandomValues(c.variant.weight, width, 1);
  weight_ = ConstTensor(weight_values_.data(), c.variant.weight, {width});

  x_rows_ = RandomValues(dtype, distinct * width, 2);
  residual_rows_ = RandomValues(dtype, distinct * width, 3);
  sum_rows_.resize(x_rows_.size());
  out_rows_.resize(x_rows_.size());
  const ConstTensor x(x_rows_.data(), dtype, {distinct, width});
  const ConstTensor residual(residual_rows_.data(), dtype, {distinct, width});
  const Tensor sum(sum_rows_.data(), dtype, {distinct, width});
  const Tensor out(out_rows_.data(), dtype, {distinct, width});
  const Status status =
      c.add ? reference::AddRmsNorm(x, residual, weight_, out, sum, options_)
            : reference::RmsNorm(x, weight_, out, options_);
  ok_ = status.ok();
}

void Problem::NextSet() {
  // The number of sets is a power of two, so an odd step visits all; a large
  // one keeps the hardware from fetching the next set ahead.
  const size_t step = sets_ * 5 / 8 | 1;
  set_ = (set_ + step) & (sets_ - 1);
}

void Problem::Fused() {
  x_.data = X();
  out_.data = Out();
  if (case_.add) {
    residual_.data = Residual();
    ok_ &= AddRmsNorm(x_, residual_, weight_, out_, residual_, options_).ok();
  } else {
    ok_ &= RmsNorm(x_, weight_, out_, options_).ok();
  }
}

void Problem::Unfused() {
  InSlices(case_.flags.threads, rows_bytes_, [this](size_t begin, size_t end) {
    roofline_.add(case_.variant.dtype, X() + begin, Residual() + begin,
                  end - begin);
  });
  residual_.data = Residual();
  out_.data = Out();
  ok_ &= RmsNorm(residual_, weight_, out_, options_).ok();
}

void Problem::Fill(uint8_t* to, const std::vector<uint8_t>& rows) const {
  for (size_t done = 0; done < rows_bytes_; done += rows.size()) {
    const size_t part = std::min(rows.size(), rows_bytes_ - done);
    std::memcpy(to + done, rows.data(), part);
  }
}

bool Problem::Holds(const uint8_t* memory,
                    const std::vector<uint8_t>& rows) const {
  for (size_t done = 0; done < rows_bytes_; done += rows.size()) {
    const size_t part = std::min(rows.size(), rows_bytes_ - done);
    if (std::memcmp(memory + done, rows.data(), part) != 0) return false;
  }
  return true;
}

bool Problem::Check(Method method) {
  for (size_t i = 0; i < sets_; ++i) {
    NextSet();
    Fill(X(), x_rows_);
    if (case_.add) Fill(Residual(), residual_rows_);
    std::memset(Out(), 0xFF, rows_bytes_);  // NaN in every dtype.
    (this->*method)();
    ok_ = ok_ && Holds(X(), x_rows_) && Holds(Out(), out_rows_);
    if (case_.add) ok_ = ok_ && Holds(Residual(), sum_rows_);
  }
  return ok_;
}

template <class Body>
Kernel Problem::Rotating(std::string name, Body body) {
  return {std::move(name), [this, body](int64_t calls) {
            for (int64_t i = 0; i < calls; ++i) {
              NextSet();
              body();
            }
          }};
}

std::vector<Kernel> Problem::Kernels() {
  std::vector<Kernel> kernels;
  kernels.push_back(Rotating("fused", [this] { Fused(); }));
  if (case_.add) kernels.push_back(Rotating("unfused", [this] { Unfused(); }));

  // The best of one thread and of all: starting threads has its price.
  for (int threads = 1; threads <= case_.flags.threads;
       threads += std::max(1, case_.flags.threads - 1)) {
    const auto copy = [this, threads](auto function) {
      return [this, threads, function] {
        InSlices(threads, rows_bytes_, [&](size_t begin, size_t end) {
          function(X() + begin, Out() + begin, end - begin);
        });
      };
    };
    const auto copy_add = [this, threads](auto function) {
      return [this, threads, function] {
        InSlices(threads, rows_bytes_, [&](size_t begin, size_t end) {
          function(X() + begin, Residual() + begin, Out() + begin, end - begin);
        });
      };
    };
    if (case_.add) {
      kernels.push_back(Rotating("copy", copy_add(roofline_.copy_add)));
      kernels.push_back(Rotating("stream", copy_add(roofline_.stream_add)));
    } else {
      kernels.push_back(Rotating("copy", copy(roofline_.copy)));
      kernels.push_back(Rotating("stream", copy(roofline_.stream)));
      kernels.push_back(Rotating(
          "memcpy", copy([](const uint8_t* x, uint8_t* out, size_t bytes) {
            std::memcpy(out, x, bytes);
          })));
    }
  }
  return kernels;
}

}  // namespace bench
}  // namespace fusednorm

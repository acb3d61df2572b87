// Nothing outside the rows is read or written, not one byte: buffers between
// forbidden pages, rows between forbidden pages, NaN in all gaps; and strides
// and sizes that leave 32 bits.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "guarded_memory.h"
#include "operands.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

// Two groups of rows and one more, for kernels that take several at a time.
constexpr int64_t kRows = 9;

// ------------------------------------------------------- guarded operands

// Where an operand lies between guards: packed as one block, or row by row.
enum class Placing { kPacked, kRowByRow };

// A copy of one operand in guarded memory.
class GuardedTensor {
 public:
  GuardedTensor(int64_t rows, int64_t row_capacity, Placing placing)
      : placing_(placing),
        memory_(
            placing == Placing::kPacked ? 1 : rows,
            placing == Placing::kPacked ? rows * row_capacity : row_capacity) {}

  Tensor Copy(const Buffer& from, Side side) {
    memory_.Unlock();
    const int64_t bytes = from.width() * SizeOf(from.dtype());
    const bool packed = placing_ == Placing::kPacked;
    memory_.Place(packed ? from.rows() * bytes : bytes, side);
    row_bytes_ = bytes;
    for (int64_t r = 0; r < from.rows(); ++r) {
      std::memcpy(row(r), from.row(r), static_cast<size_t>(bytes));
    }
    Tensor view = const_cast<Buffer&>(from).tensor();
    view.data = row(0);
    if (view.rank == 2) {
      view.strides[0] =
          (packed ? bytes : memory_.stride()) / SizeOf(from.dtype());
    }
    return view;
  }

  void CopyBack(Buffer* to) {
    for (int64_t r = 0; r < to->rows(); ++r) {
      std::memcpy(to->row(r), row(r), static_cast<size_t>(row_bytes_));
    }
  }

  GuardedMemory& memory() { return memory_; }

 private:
  uint8_t* row(int64_t r) {
    return placing_ == Placing::kPacked ? memory_.row(0) + r * row_bytes_
                                        : memory_.row(r);
  }

  const Placing placing_;
  GuardedMemory memory_;
  int64_t row_bytes_ = 0;
};

class GuardedOperands {
 public:
  GuardedOperands(int64_t rows, int64_t max_width, Placing placing)
      : x_(rows, 8 * max_width, placing),
        residual_(rows, 8 * max_width, placing),
        weight_(1, 8 * max_width, placing),
        out_(rows, 8 * max_width, placing),
        residual_out_(rows, 8 * max_width, placing),
        rstd_(1, 4 * rows, Placing::kPacked) {}

  // Runs the call between guards, with its inputs locked, and brings the
  // results back.
  void Run(const Implementation& implementation, const Options& options,
           Side side, Operands* operands) {
    Views views = operands->Make();
    const bool rstd = views.options.rstd != nullptr;
    views.options = options;
    views.x = x_.Copy(operands->x, side);
    if (!operands->weight.empty()) {
      views.weight = weight_.Copy(operands->weight, side);
    }
    views.out = out_.Copy(operands->out, side);
    if (operands->op == Op::kAddRmsNorm) {
      views.residual = residual_.Copy(operands->residual, side);
      if (!operands->residual_out.empty()) {
        views.residual_out = residual_out_.Copy(operands->residual_out, side);
      }
    }
    Buffer rstds(DType::kF32, {operands->x.rows()});
    if (rstd) {
      views.options.rstd = static_cast<float*>(rstd_.Copy(rstds, side).data);
    }
    for (GuardedTensor* input : {&x_, &residual_, &weight_}) {
      input->memory().Lock();
    }
    EXPECT_STATUS_OK(views.Run(implementation));
    out_.CopyBack(&operands->out);
    if (views.residual_out.rank != 0) {
      residual_out_.CopyBack(&operands->residual_out);
    }
    if (rstd) {
      std::memcpy(operands->rstd.data(), views.options.rstd,
                  4 * operands->rstd.size());
    }
    for (GuardedTensor* tensor :
         {&x_, &residual_, &weight_, &out_, &residual_out_, &rstd_}) {
      EXPECT_TRUE(tensor->memory().Intact());
    }
  }

 private:
  GuardedTensor x_, residual_, weight_, out_, residual_out_, rstd_;
};

Options RandomOptions(Random& random) {
  Options options;
  options.eps = random.Chance(50) ? 1e-6f : 0;
  options.weight_offset = random.Chance(50) ? 1.0f : 0;
  options.residual_scale = random.Chance(50) ? 0.75f : 1;
  options.rounding = static_cast<Rounding>(random.Uniform(0, 1));
  options.sum = static_cast<Sum>(random.Uniform(0, 2));
  options.nontemporal = static_cast<Nontemporal>(random.Uniform(0, 2));
  return options;
}

// One width between guards, for all dtypes, implementations and sides.
void CheckGuarded(int64_t width, GuardedOperands* guarded, Random& random) {
  for (const Op op : kOps) {
    for (const DTypes& dtypes : kUsualDTypes) {
      Operands expected(op, dtypes, Packed({kRows, width}));
      expected.FillMixed(random);
      if (random.Chance(20)) expected.weight = {};
      if (random.Chance(20)) expected.residual_out = {};
      const Operands blank = expected;
      Options options = RandomOptions(random);
      Views views = expected.Make();
      float* const rstd = views.options.rstd;
      views.options = options;
      views.options.rstd = rstd;
      ASSERT_STATUS_OK(views.Run(Reference()));
      ForEachImplementation([&](const Implementation& implementation) {
        for (const Side side : {Side::kFirst, Side::kLast}) {
          Operands actual = blank;
          guarded->Run(implementation, options, side, &actual);
          EXPECT_TRUE(SameOutputs(expected, actual))
              << Name(op) << " " << dtypes << ", width " << width << ", "
              << Name(options);
        }
      });
    }
  }
}

std::vector<int64_t> SmallWidths() {
  std::vector<int64_t> widths;
  for (int64_t width = 1; width <= 130; width += Subset() ? 3 : 1) {
    widths.push_back(width);
  }
  return widths;
}

TEST(Memory, GuardedBuffers) {
  Random random;
  GuardedOperands guarded(kRows, 130, Placing::kPacked);
  for (const int64_t width : SmallWidths()) {
    CheckGuarded(width, &guarded, random);
    if (HasFailure()) return;
  }
}

TEST(Memory, GuardedRows) {
  Random random;
  GuardedOperands guarded(kRows, 130, Placing::kRowByRow);
  for (const int64_t width : SmallWidths()) {
    CheckGuarded(width, &guarded, random);
    if (HasFailure()) return;
  }
}

// About the blocks and chunks of the sum, and where tiles may end.
TEST(Memory, GuardedWideRows) {
  Random random;
  for (const int64_t width : {511, 533, 1023, 1025, 1037, 2112, 4097, 16385}) {
    if (Subset() && width > 1100) break;
    GuardedOperands guarded(kRows, width, Placing::kRowByRow);
    CheckGuarded(width, &guarded, random);
    if (HasFailure()) return;
  }
}

// A weight of its own for each head, the last one up to the forbidden page.
TEST(Memory, GuardedWeightsWithLeadingAxes) {
  Random random;
  constexpr int64_t kHeads = 3, kTokens = 2;
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t width : {1, 7, 16, 33, 64, 127}) {
      Buffer x(dtype, {kTokens, kHeads, width});
      Buffer weight(dtype, {1, kHeads, width});
      Buffer expected(dtype, {kTokens, kHeads, width});
      x.FillMixed(random);
      weight.Fill(random, Data::kNormal);
      ASSERT_STATUS_OK(reference::RmsNorm(x, weight, expected));
      GuardedMemory memory(1, kHeads * width * 4);
      ForEachImplementation([&](const Implementation& implementation) {
        for (const Side side : {Side::kFirst, Side::kLast}) {
          const int64_t bytes = kHeads * width * SizeOf(dtype);
          uint8_t* const data = memory.Place(bytes, side);
          std::memcpy(data, weight.row(0), static_cast<size_t>(bytes));
          ConstTensor view = weight;
          view.data = data;
          memory.Lock();
          Buffer actual(dtype, {kTokens, kHeads, width});
          EXPECT_STATUS_OK(implementation.rms_norm(x, view, actual, {}));
          EXPECT_TRUE(SameBits(expected, actual));
          memory.Unlock();
        }
      });
    }
  }
}

// -------------------------------------------------------------------- gaps

// Rows apart, at odd offsets, with signalling NaN between them: the bits are
// those of packed rows, and the gaps keep theirs.
TEST(Memory, PoisonedGaps) {
  Random random;
  for (const int64_t width : {1, 5, 16, 31, 64, 100, 257, 1030}) {
    for (const int64_t gap : {1, 3, 16, 61}) {
      for (const Op op : kOps) {
        for (const DTypes& dtypes : kUsualDTypes) {
          Operands packed(op, dtypes, Packed({2, kRows, width}));
          Operands padded(
              op, dtypes,
              Padded({2, kRows, width}, gap, random.Uniform(0, 15)));
          packed.FillMixed(random);
          for (int64_t r = 0; r < packed.x.rows(); ++r) {
            const auto copy = [&](const Buffer& from, Buffer* to) {
              std::memcpy(to->row(r), from.row(r),
                          static_cast<size_t>(width * SizeOf(to->dtype())));
            };
            copy(packed.x, &padded.x);
            copy(packed.residual, &padded.residual);
          }
          padded.weight = packed.weight;
          const Operands blank = padded;
          const Options options = RandomOptions(random);
          const auto run = [&](const Implementation& implementation,
                               Operands* operands) {
            Views views = operands->Make();
            float* const rstd = views.options.rstd;
            views.options = options;
            views.options.rstd = rstd;
            EXPECT_STATUS_OK(views.Run(implementation));
          };
          run(Reference(), &packed);
          ForEachImplementation([&](const Implementation& implementation) {
            padded = blank;
            run(implementation, &padded);
            EXPECT_TRUE(SameOutputs(packed, padded))
                << Name(op) << " " << dtypes << ", width " << width << ", gap "
                << gap << ", " << Name(options);
            EXPECT_TRUE(padded.out.OutsideIntact());
            EXPECT_TRUE(padded.residual_out.OutsideIntact());
            EXPECT_TRUE(padded.x.SameBytes(blank.x));
            EXPECT_TRUE(padded.residual.SameBytes(blank.residual));
            EXPECT_TRUE(padded.weight.SameBytes(blank.weight));
          });
          if (HasFailure()) return;
        }
      }
    }
  }
}

// A slice of a packed QKV row, normalised in place: the other parts keep their
// bytes.
TEST(Memory, SliceInPlace) {
  Random random;
  constexpr int64_t kRowLength = 192, kWidth = 64, kOffset = 64;
  for (const DType dtype : kFloatDTypes) {
    Buffer qkv(dtype, {kRows, kRowLength});
    qkv.FillMixed(random);
    Buffer slice(dtype, {kRows, kWidth}), expected(dtype, {kRows, kWidth});
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < kWidth; ++i) {
        slice.set_bits(r, i, qkv.bits(r, kOffset + i));
      }
    }
    ASSERT_STATUS_OK(reference::RmsNorm(slice, {}, expected));
    ForEachImplementation([&](const Implementation& implementation) {
      Buffer after = qkv;
      Tensor view(static_cast<uint8_t*>(after.row(0)) + kOffset * SizeOf(dtype),
                  dtype, {kRows, kWidth}, {kRowLength, 1});
      EXPECT_STATUS_OK(implementation.rms_norm(view, {}, view, {}));
      for (int64_t r = 0; r < kRows; ++r) {
        EXPECT_TRUE(SameRow(
            dtype, expected.row(r),
            static_cast<uint8_t*>(after.row(r)) + kOffset * SizeOf(dtype),
            kWidth));
        for (int64_t i = 0; i < kRowLength; ++i) {
          if (i >= kOffset && i < kOffset + kWidth) continue;
          ASSERT_EQ(after.bits(r, i), qkv.bits(r, i))
              << "row " << r << " " << i;
        }
      }
    });
  }
}

// --------------------------------------------------------- 64-bit indices

// Address space without memory behind it, until it is touched.
class SparseMemory {
 public:
  explicit SparseMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~SparseMemory() {
    if (ok()) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  bool ok() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  const size_t bytes_;
  void* data_;
};

// Rows 2^31 bytes apart: the third of 16-bit elements starts at element 2^31.
constexpr int64_t kSparseRows = 5;
constexpr int64_t kSparseBytes = int64_t{1} << 31;

Tensor SparseRows(const SparseMemory& memory, DType dtype, int64_t width) {
  return Tensor(memory.data(), dtype, {kSparseRows, width},
                {kSparseBytes / SizeOf(dtype), 1});
}

void CopyRows(const Buffer& from, const Tensor& to) {
  for (int64_t r = 0; r < from.rows(); ++r) {
    std::memcpy(
        static_cast<uint8_t*>(to.data) + r * to.strides[0] * SizeOf(to.dtype),
        from.row(r), static_cast<size_t>(from.width() * SizeOf(to.dtype)));
  }
}

testing::AssertionResult SameRows(const Buffer& expected, const Tensor& rows) {
  for (int64_t r = 0; r < expected.rows(); ++r) {
    const auto same = SameRow(rows.dtype, expected.row(r),
                              static_cast<uint8_t*>(rows.data) +
                                  r * rows.strides[0] * SizeOf(rows.dtype),
                              expected.width());
    if (!same) return same;
  }
  return testing::AssertionSuccess();
}

TEST(Memory, StridesPast32Bits) {
  constexpr int64_t kWidth = 64;
  for (const DType dtype : kFloatDTypes) {
    const SparseMemory x_memory(kSparseRows * kSparseBytes);
    const SparseMemory residual_memory(kSparseRows * kSparseBytes);
    ASSERT_TRUE(x_memory.ok() && residual_memory.ok());
    const Tensor x = SparseRows(x_memory, dtype, kWidth);
    const Tensor residual = SparseRows(residual_memory, dtype, kWidth);
    Random random;
    Operands packed(Op::kAddRmsNorm, Uniform(dtype),
                    Packed({kSparseRows, kWidth}));
    packed.FillMixed(random);
    Buffer norm(dtype, {kSparseRows, kWidth});
    ASSERT_STATUS_OK(reference::RmsNorm(packed.x, packed.weight, norm));
    ASSERT_STATUS_OK(packed.Make().Run(Reference()));

    ForEachImplementation([&](const Implementation& implementation) {
      // Sparse to packed, then in place.
      CopyRows(packed.x, x);
      Buffer out(dtype, {kSparseRows, kWidth});
      EXPECT_STATUS_OK(implementation.rms_norm(x, packed.weight, out, {}));
      EXPECT_TRUE(SameBits(norm, out));
      EXPECT_STATUS_OK(implementation.rms_norm(x, packed.weight, x, {}));
      EXPECT_TRUE(SameRows(norm, x));

      CopyRows(packed.x, x);
      CopyRows(packed.residual, residual);
      EXPECT_STATUS_OK(implementation.add_rms_norm(x, residual, packed.weight,
                                                   x, residual, {}));
      EXPECT_TRUE(SameRows(packed.out, x));
      EXPECT_TRUE(SameRows(packed.residual_out, residual));
    });
  }
}

// The stride of one row is not used, however large.
TEST(Memory, OneRowWithAnyStride) {
  for (const DType dtype : kFloatDTypes) {
    Random random;
    Operands expected(Op::kAddRmsNorm, Uniform(dtype), Packed({1, 33}));
    expected.Fill(random);
    const Operands blank = expected;
    ASSERT_STATUS_OK(expected.Make().Run(Reference()));
    for (const int64_t stride :
         {int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 62, int64_t{0}}) {
      ForEachImplementation([&](const Implementation& implementation) {
        Operands actual = blank;
        Views views = actual.Make();
        for (Tensor* tensor :
             {&views.x, &views.residual, &views.out, &views.residual_out}) {
          tensor->strides[0] = stride;
        }
        EXPECT_STATUS_OK(views.Run(implementation));
        EXPECT_TRUE(SameOutputs(expected, actual));
      });
    }
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

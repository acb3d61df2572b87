// Backward calls touch nothing outside their rows: operands between forbidden
// pages, inputs that cannot be written. No rows, no dweight; no memory, no
// writes; and gradients nobody asked for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backward_call.h"
#include "backward_draw.h"
#include "guarded_memory.h"
#include "random_layout.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

constexpr int64_t kRows = 3;

// A copy of one operand, each of its rows between forbidden pages.
class Guarded {
 public:
  Guarded(int64_t rows, int64_t max_width) : memory_(rows, 8 * max_width) {}

  Tensor Copy(const Buffer& from, Side side) {
    memory_.Unlock();
    if (from.empty()) return Tensor();
    row_bytes_ = static_cast<size_t>(from.width() * SizeOf(from.dtype()));
    memory_.Place(static_cast<int64_t>(row_bytes_), side);
    Tensor view = const_cast<Buffer&>(from).tensor();
    view.data = memory_.row(0);
    if (view.rank == 2) {
      view.strides[0] = memory_.stride() / SizeOf(from.dtype());
    }
    for (int64_t r = 0; r < from.rows(); ++r) {
      std::memcpy(memory_.row(r), from.row(r), row_bytes_);
    }
    return view;
  }
  void CopyBack(Buffer* to) {
    for (int64_t r = 0; !to->empty() && r < to->rows(); ++r) {
      std::memcpy(to->row(r), memory_.row(r), row_bytes_);
    }
  }
  GuardedMemory& memory() { return memory_; }

 private:
  GuardedMemory memory_;
  size_t row_bytes_ = 0;
};

class GuardedOperands {
 public:
  explicit GuardedOperands(int64_t max_width)
      : x_(kRows, max_width),
        weight_(1, max_width),
        dy_(kRows, max_width),
        d_residual_out_(kRows, max_width),
        dx_(kRows, max_width),
        dweight_(1, max_width),
        rstd_(1, kRows) {}

  Gradients Run(const Implementation& implementation, const BackwardCall& call,
                Side side) {
    BackwardViews views;
    views.op = call.op;
    views.options = call.options;
    views.x = x_.Copy(call.x, side);
    views.weight = weight_.Copy(call.weight, side);
    views.dy = dy_.Copy(call.dy, side);
    views.d_residual_out = d_residual_out_.Copy(call.d_residual_out, side);
    views.dx = dx_.Copy(call.dx, side);
    views.dweight = dweight_.Copy(call.dweight, side);
    if (!call.rstd.empty()) {
      Buffer rstd(DType::kF32, Numbers{kRows});
      std::memcpy(rstd.row(0), call.rstd.data(), kRows * sizeof(float));
      views.options.rstd = static_cast<float*>(rstd_.Copy(rstd, side).data);
    }
    for (Guarded* input : {&x_, &weight_, &dy_, &d_residual_out_, &rstd_}) {
      input->memory().Lock();
    }
    EXPECT_STATUS_OK(views.Run(implementation));
    Gradients results{call.dx, call.dweight};
    dx_.CopyBack(&results.dx);
    dweight_.CopyBack(&results.dweight);
    for (Guarded* operand :
         {&x_, &weight_, &dy_, &d_residual_out_, &dx_, &dweight_, &rstd_}) {
      EXPECT_TRUE(operand->memory().Intact());
    }
    return results;
  }

 private:
  Guarded x_, weight_, dy_, d_residual_out_, dx_, dweight_, rstd_;
};

void CheckWidth(Random& random, int64_t width, GuardedOperands& guarded) {
  for (BackwardOp op : kBackwardOps) {
    for (int repeat = 0; repeat < 8; ++repeat) {
      const BackwardDTypes dtypes = repeat < 3 ? Uniform(kFloatDTypes[repeat])
                                    : repeat == 3
                                        ? Uniform(DType::kF64)
                                        : RandomBackwardDTypes(random);
      BackwardCall call = DrawBackward(random, op, dtypes, {kRows, width});
      // A weight of more rows is none of this test's.
      if (!call.weight.empty()) {
        call.weight = Buffer(dtypes.weight, Numbers{width});
        call.weight.Fill(random, Data::kNormal);
      }
      if (!call.dweight.empty()) {
        call.dweight = Buffer(call.dweight.dtype(), Numbers{width});
      }
      const Gradients expected = RunBackward(Reference(), call);
      ForEachImplementation([&](const Implementation& implementation) {
        for (Side side : {Side::kFirst, Side::kLast}) {
          EXPECT_TRUE(Same(expected, guarded.Run(implementation, call, side)))
              << Name(call);
        }
      });
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(BackwardMemory, SmallWidths) {
  Random random;
  GuardedOperands guarded(130);
  for (int64_t width = 1; width <= 130; width += Subset() ? 3 : 1) {
    CheckWidth(random, width, guarded);
    if (HasFailure()) return;
  }
}

TEST(BackwardMemory, WideRows) {
  Random random;
  for (int64_t width : {511, 533, 1023, 1025, 1037, 2112, 16385}) {
    if (Subset() && width > 1100) break;
    GuardedOperands guarded(width);
    CheckWidth(random, width, guarded);
    if (HasFailure()) return;
  }
}

// ----------------------------------------------------------------- no rows

BackwardCall WithoutRows(BackwardOp op, DType dtype, const Numbers& shape,
                         const Numbers& weight_shape, DType dweight) {
  BackwardCall call;
  call.op = op;
  call.x = call.dy = call.dx = Buffer(dtype, shape);
  if (op == BackwardOp::kAddRmsNorm) call.d_residual_out = call.x;
  call.weight = Buffer(dtype, weight_shape);
  call.dweight = Buffer(dweight, Padded(weight_shape, 3));
  return call;
}

// dweight is a sum over no rows: zeros, or with accumulate its old value, which
// may be -0 or a NaN, to the byte.
TEST(BackwardMemory, NoRows) {
  struct Shapes {
    Numbers x, weight;
  };
  const std::vector<Shapes> all_shapes = {
      {{0, 70}, {70}},
      {{0, 70}, {1, 70}},
      {{0, 3, 70}, {1, 3, 70}},
      {{3, 0, 70}, {3, 1, 70}},
      {{2, 0, 5, 7}, {2, 1, 5, 7}},
      {{2, 0, 5, 7}, {1, 1, 1, 7}},
  };
  for (BackwardOp op : kBackwardOps) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      for (DType dweight : {dtype, DType::kF64}) {
        for (const Shapes& shapes : all_shapes) {
          BackwardCall call =
              WithoutRows(op, dtype, shapes.x, shapes.weight, dweight);
          call.dweight.set_value(0, 0, -0.0);
          call.dweight.set_value(0, 1, NAN);
          Buffer zeros = call.dweight;
          zeros.FillWith(
              std::vector<double>(static_cast<size_t>(zeros.width()), 0.0));
          ForEachImplementation([&](const Implementation& implementation) {
            call.options.accumulate = false;
            EXPECT_TRUE(
                SameBits(zeros, RunBackward(implementation, call).dweight))
                << Name(call);
            call.options.accumulate = true;
            EXPECT_TRUE(RunBackward(implementation, call)
                            .dweight.SameBytes(call.dweight))
                << Name(call);
          });
          ASSERT_FALSE(HasFailure());
        }
      }
    }
  }
}

// Tensors without rows need no memory; dweight does, and is checked.
TEST(BackwardMemory, NoRowsAndNoData) {
  ForEachImplementation([](const Implementation& implementation) {
    BackwardCall call = WithoutRows(BackwardOp::kAddRmsNorm, DType::kF32,
                                    {0, 8}, Numbers{8}, DType::kF32);
    Buffer dweight = call.dweight;
    BackwardViews views;
    views.op = call.op;
    views.x = views.dy = views.dx = views.d_residual_out =
        Tensor(nullptr, DType::kF32, {0, 8});
    views.dweight = dweight;
    EXPECT_STATUS_OK(views.Run(implementation));
    EXPECT_EQ(dweight.bits(0, 7), 0u);
    views.dweight.data = nullptr;
    EXPECT_EQ(static_cast<int>(views.Run(implementation).code()),
              static_cast<int>(StatusCode::kInvalidArgument));
    views.dweight = dweight;
    views.dweight.data = static_cast<uint8_t*>(views.dweight.data) + 1;
    EXPECT_EQ(static_cast<int>(views.Run(implementation).code()),
              static_cast<int>(StatusCode::kInvalidArgument));
    EXPECT_TRUE(dweight.OutsideIntact());
  });
}

// --------------------------------------------------------------- no memory

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAllocatorAborts = true;
#else
constexpr bool kAllocatorAborts = false;
#endif

// A width whose sums exceed the address space. The tensors are not there
// either: nothing is read or written before the refusal.
TEST(BackwardMemory, OutOfMemory) {
  if (kAllocatorAborts) GTEST_SKIP() << "the allocator does not return null";
  const int64_t width = int64_t{1} << 44;
  const auto nowhere = [&](int64_t place, bool row) {
    Tensor view;
    view.data = reinterpret_cast<void*>(static_cast<uintptr_t>(place) << 50);
    view.rank = row ? 1 : 2;
    view.dtype = row ? DType::kF32 : DType::kBF16;
    view.shape[0] = row ? width : 2;
    view.shape[1] = width;
    view.strides[0] = row ? 1 : width;
    view.strides[1] = 1;
    return view;
  };
  ForEachImplementation([&](const Implementation& implementation) {
    for (BackwardOp op : kBackwardOps) {
      BackwardViews views;
      views.op = op;
      views.x = nowhere(1, false);
      views.dy = nowhere(2, false);
      views.dx = nowhere(3, false);
      views.dweight = nowhere(4, true);
      const Status status = views.Run(implementation);
      EXPECT_EQ(static_cast<int>(status.code()),
                static_cast<int>(StatusCode::kOutOfMemory));
      EXPECT_NE(std::string(status.message()).find("dweight"),
                std::string::npos)
          << status.message();
    }
  });
}

// ---------------------------------------------------------- nothing wanted

TEST(BackwardMemory, NoGradientWanted) {
  Random random;
  for (BackwardOp op : kBackwardOps) {
    BackwardCall call = DrawBackward(random, op, Uniform(DType::kF32), {5, 33});
    call.dx = Buffer();
    call.dweight = Buffer();
    ForEachImplementation([&](const Implementation& implementation) {
      RunBackward(implementation, call);
    });
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

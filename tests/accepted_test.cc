// What is at the edge of the rules, and sound: no rows, axes that are never
// stepped along, extreme options.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "operands.h"
#include "refusal.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

// Zero rows: sound arguments succeed, with or without data.
TEST(Accepted, ZeroRows) {
  const std::vector<std::vector<int64_t>> shapes = {
      {0, kWidth}, {0, 2, kWidth}, {2, 0, kWidth}, {3, 2, 0, kWidth}};
  ForEachImplementation([&](const Implementation& implementation) {
    for (const Op op : kOps) {
      for (const DTypes& dtypes : kUsualDTypes) {
        for (const std::vector<int64_t>& shape : shapes) {
          SCOPED_TRACE(Name(shape));
          Operands operands(op, dtypes, Packed(shape));
          const Operands before = operands;
          Views call = operands.Make();
          float rstd = -1;
          if (dtypes.x != DType::kF64) call.options.rstd = &rstd;
          EXPECT_STATUS_OK(call.Run(implementation));
          EXPECT_TRUE(operands.out.SameBytes(before.out));
          EXPECT_TRUE(operands.residual_out.SameBytes(before.residual_out));
          EXPECT_EQ(rstd, -1);

          for (const Argument& argument : ArgumentsOf(op)) {
            if (argument.tensor == &Views::weight) continue;
            (call.*argument.tensor).data = nullptr;
          }
          EXPECT_STATUS_OK(call.Run(implementation));
          call.weight = Tensor();
          EXPECT_STATUS_OK(call.Run(implementation));

          // They excuse nothing else.
          call.options.eps = -1;
          EXPECT_EQ(static_cast<int>(call.Run(implementation).code()),
                    static_cast<int>(StatusCode::kInvalidArgument));
          call.options.eps = 0;
          call.out.shape[call.out.rank - 1] = kWidth - 1;
          EXPECT_EQ(static_cast<int>(call.Run(implementation).code()),
                    static_cast<int>(StatusCode::kInvalidArgument));
        }
      }
    }
  });
}

// An axis of size 1 is never stepped along: any stride will do, and the view
// still is its row's alias.
TEST(Accepted, AxesOfSizeOne) {
  ForEachImplementation([](const Implementation& implementation) {
    for (const Op op : kOps) {
      for (const int64_t stride : {int64_t{0}, int64_t{-8}, int64_t{1}, kMax}) {
        SCOPED_TRACE(stride);
        Operands expected(op, Uniform(DType::kBF16), Packed({1, 1, kWidth}));
        Random random;
        expected.Fill(random);
        Operands actual = expected;
        EXPECT_STATUS_OK(expected.Make().Run(implementation));
        Views call = actual.Make();
        for (const Argument& argument : ArgumentsOf(op)) {
          if (argument.tensor == &Views::weight) continue;
          (call.*argument.tensor).strides[0] = stride;
          (call.*argument.tensor).strides[1] = stride;
        }
        EXPECT_STATUS_OK(call.Run(implementation));
        EXPECT_TRUE(SameOutputs(expected, actual));

        call.out.data = call.x.data;
        call.out.strides[0] = 17;
        EXPECT_STATUS_OK(call.Run(implementation));
        EXPECT_TRUE(SameBits(expected.out, actual.x));
      }
    }
  });
}

// Of the last axis too, when the width is 1.
TEST(Accepted, LastAxisOfSizeOne) {
  ForEachImplementation([](const Implementation& implementation) {
    for (const Op op : kOps) {
      Operands expected(op, Uniform(DType::kF32), Packed({kRows, 1}));
      Random random;
      expected.Fill(random);
      Operands actual = expected;
      EXPECT_STATUS_OK(expected.Make().Run(implementation));
      Views call = actual.Make();
      for (const Argument& argument : ArgumentsOf(op)) {
        Tensor& tensor = call.*argument.tensor;
        tensor.strides[tensor.rank - 1] = -5;
      }
      EXPECT_STATUS_OK(call.Run(implementation));
      EXPECT_TRUE(SameOutputs(expected, actual));
    }
  });
}

// The edge of what is allowed: eps 0 of either sign, and the largest values.
TEST(Accepted, ExtremeOptions) {
  ForEachImplementation([](const Implementation& implementation) {
    for (const Op op : kOps) {
      Operands operands(op, Uniform(DType::kF32), Packed({kRows, kWidth}));
      Views call = operands.Make();
      for (const float eps :
           {0.0f, -0.0f, 1e-45f, std::numeric_limits<float>::max()}) {
        call.options.eps = eps;
        EXPECT_STATUS_OK(call.Run(implementation));
      }
      call.options = {};
      call.options.weight_offset = -std::numeric_limits<float>::max();
      call.options.residual_scale = std::numeric_limits<float>::max();
      EXPECT_STATUS_OK(call.Run(implementation));
      call.options = {};
      call.options.num_threads = 1 << 30;
      EXPECT_STATUS_OK(call.Run(implementation));
    }
  });
}

// A refused call leaves the library as it was.
TEST(Accepted, TheCallAfterARefusal) {
  ForEachImplementation([](const Implementation& implementation) {
    for (const Op op : kOps) {
      Operands operands(op, Uniform(DType::kF32), Packed({kRows, kWidth}));
      operands.x.FillWith(std::vector<double>(kWidth, 2.0));
      operands.residual.FillWith(std::vector<double>(kWidth, 2.0));
      operands.weight.FillWith(std::vector<double>(kWidth, 3.0));
      Views call = operands.Make();
      call.options.eps = -1;
      EXPECT_FALSE(call.Run(implementation).ok());
      call.options.eps = 0;
      const Status status = call.Run(implementation);
      EXPECT_TRUE(status.ok());
      EXPECT_STREQ(status.message(), "");
      EXPECT_EQ(operands.out.value(kRows - 1, kWidth - 1), 3.0);
    }
  });
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

// A row's bits do not depend on its company: its place in the batch, the size
// of the batch, strides, the alignment of each pointer, threads, repetition.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "operands.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

// One row of each operation, with its right answer.
struct Row {
  Row(Op op, const DTypes& dtypes, int64_t width)
      : blank(op, dtypes, Packed({1, width})), expected(blank) {
    Random random;
    blank.Fill(random);
    expected = blank;
    EXPECT_STATUS_OK(expected.Make().Run(Reference()));
  }

  // Puts the row's inputs at a row of `batch`.
  void CopyTo(Operands* batch, int64_t row) const {
    CopyRow(blank.x, &batch->x, row);
    CopyRow(blank.residual, &batch->residual, row);
  }

  testing::AssertionResult SameAs(const Operands& batch, int64_t row) const {
    const int64_t width = blank.x.width();
    auto same = SameRow(expected.out.dtype(), expected.out.row(0),
                        batch.out.row(row), width);
    if (same && blank.op == Op::kAddRmsNorm) {
      same =
          SameRow(expected.residual_out.dtype(), expected.residual_out.row(0),
                  batch.residual_out.row(row), width);
    }
    if (same) {
      same = SameRow(DType::kF32, expected.rstd.data(),
                     &batch.rstd[static_cast<size_t>(row)], 1);
    }
    return same;
  }

  static void CopyRow(const Buffer& from, Buffer* to, int64_t row) {
    std::memcpy(to->row(row), from.row(0),
                static_cast<size_t>(from.width() * SizeOf(from.dtype())));
  }

  Operands blank, expected;
};

constexpr DTypes kDTypes[] = {
    {DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16},
    {DType::kF16, DType::kF16, DType::kF32, DType::kF16},
    {DType::kF32, DType::kF32, DType::kF32, DType::kF32},
    {DType::kBF16, DType::kF32, DType::kF16, DType::kF32},
};

// The row at some places of a batch of other rows.
void CheckPlaces(const Row& row, int64_t rows, int64_t gap,
                 const std::vector<int>& thread_counts) {
  const Operands& one = row.blank;
  const DTypes dtypes = {one.x.dtype(), one.residual.dtype(),
                         one.weight.dtype(), one.out.dtype()};
  Operands batch(one.op, dtypes, Padded({rows, one.x.width()}, gap));
  Random random;
  batch.FillMixed(random);
  batch.weight = one.weight;
  std::vector<int64_t> places;
  for (const int64_t place : {0, 1, 100, 254, 255, 299}) {
    if (place >= rows) break;
    places.push_back(place);
    row.CopyTo(&batch, place);
  }
  ForEachImplementation([&](const Implementation& implementation) {
    for (const int threads : thread_counts) {
      Views views = batch.Make();
      views.options.num_threads = threads;
      EXPECT_STATUS_OK(views.Run(implementation));
      for (const int64_t place : places) {
        EXPECT_TRUE(row.SameAs(batch, place))
            << Name(one.op) << " " << dtypes << ", row " << place << " of "
            << rows << ", " << threads << " threads";
      }
    }
  });
}

TEST(Batch, PlaceInTheBatch) {
  const int64_t width = Subset() ? 512 : 4096;
  for (const Op op : kOps) {
    for (const DTypes& dtypes : kDTypes) {
      const Row row(op, dtypes, width);
      CheckPlaces(row, 1, 0, {1});
      CheckPlaces(row, 7, 13, {2});
      CheckPlaces(row, 255, 13, {7});
      CheckPlaces(row, 256, 0, {1});
      CheckPlaces(row, 300, 13, {1, 2, 7, 16});
      if (HasFailure()) return;
    }
  }
}

// Each pointer by itself, 1 to 15 elements behind a multiple of 64 bytes.
TEST(Batch, AlignmentOfEachPointer) {
  for (const Op op : kOps) {
    for (const DTypes& dtypes : kDTypes) {
      for (const int64_t width : {130, 3584}) {
        const Row row(op, dtypes, width);
        for (int64_t offset = 1; offset < 16; ++offset) {
          for (int moved = 0; moved < 5; ++moved) {
            Operands one = row.blank;
            Buffer* const buffers[] = {&one.x, &one.residual, &one.weight,
                                       &one.out, &one.residual_out};
            Buffer* const buffer = buffers[moved];
            const Buffer aligned = *buffer;
            Layout layout = aligned.layout();
            layout.offset = offset;
            *buffer = Buffer(aligned.dtype(), layout);
            Row::CopyRow(aligned, buffer, 0);
            ForEachImplementation([&](const Implementation& implementation) {
              EXPECT_STATUS_OK(one.Make().Run(implementation));
              EXPECT_TRUE(row.SameAs(one, 0))
                  << Name(op) << " " << dtypes << ", tensor " << moved
                  << " moved by " << offset;
              EXPECT_TRUE(one.out.OutsideIntact());
              EXPECT_TRUE(one.residual_out.OutsideIntact());
            });
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

// Odd widths leave a tail, which must not differ from run to run.
TEST(Batch, FiftyRunsAreTheSame) {
  for (const int64_t width : {768, 769, 513, 4095, 4097}) {
    for (const DType dtype : kFloatDTypes) {
      Operands expected(Op::kAddRmsNorm, Uniform(dtype),
                        Padded({7, width}, 3, 5));
      Random random;
      expected.Fill(random);
      const Operands blank = expected;
      ASSERT_STATUS_OK(expected.Make().Run(Reference()));
      ForEachImplementation([&](const Implementation& implementation) {
        for (int run = 0; run < (Subset() ? 3 : 50); ++run) {
          Operands actual = blank;
          Views views = actual.Make();
          views.options.num_threads = run % 2 == 0 ? 4 : 1;
          EXPECT_STATUS_OK(views.Run(implementation));
          ASSERT_TRUE(SameOutputs(expected, actual)) << "run " << run;
          ASSERT_TRUE(actual.out.OutsideIntact());
          ASSERT_TRUE(actual.residual_out.OutsideIntact());
        }
      });
    }
  }
}

// Q and K heads of several tokens under one weight, from a packed row that
// holds V too: each head is a row of its own.
TEST(Batch, HeadsOfPackedTokens) {
  constexpr int64_t kTokens = 2, kHeads = 32, kWidth = 128;
  for (const DType dtype : kFloatDTypes) {
    Random random;
    Buffer tokens(dtype, {kTokens, (kHeads + 8) * kWidth});
    tokens.FillMixed(random);
    Buffer weight(dtype, {kWidth});
    weight.Fill(random, Data::kNormal);
    const ConstTensor heads(static_cast<const Buffer&>(tokens).row(0), dtype,
                            {kTokens, kHeads, kWidth},
                            {(kHeads + 8) * kWidth, kWidth, 1});
    ForEachImplementation([&](const Implementation& implementation) {
      Buffer out(dtype, {kTokens, kHeads, kWidth});
      EXPECT_STATUS_OK(implementation.rms_norm(heads, weight, out, {}));
      for (int64_t r = 0; r < out.rows(); ++r) {
        Buffer alone(dtype, {kWidth}), expected(dtype, {kWidth});
        const int64_t first = r / kHeads * (kHeads + 8) + r % kHeads;
        for (int64_t i = 0; i < kWidth; ++i) {
          alone.set_bits(0, i, GetBits(dtype, heads.data, first * kWidth + i));
        }
        EXPECT_STATUS_OK(reference::RmsNorm(alone, weight, expected));
        ASSERT_TRUE(SameRow(dtype, expected.row(0), out.row(r), kWidth))
            << "row " << r;
      }
    });
  }
}

// A weight for each head, or for each group of a row.
TEST(Batch, WeightsWithLeadingAxes) {
  constexpr int64_t kTokens = 3, kHeads = 5;
  const std::vector<std::vector<int64_t>> leading = {
      {1, 1}, {1, kHeads}, {kTokens, 1}, {kTokens, kHeads}};
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t width : {1, 16, 33, 64, 100}) {
      Random random;
      Buffer x(dtype, {kTokens, kHeads, width});
      x.FillMixed(random);
      for (const std::vector<int64_t>& axes : leading) {
        Buffer weight(dtype, {axes[0], axes[1], width});
        weight.Fill(random, Data::kNormal);
        ForEachImplementation([&](const Implementation& implementation) {
          Buffer out(dtype, {kTokens, kHeads, width});
          EXPECT_STATUS_OK(implementation.rms_norm(x, weight, out, {}));
          for (int64_t t = 0; t < kTokens; ++t) {
            for (int64_t h = 0; h < kHeads; ++h) {
              const int64_t row =
                  (axes[0] == 1 ? 0 : t) * axes[1] + (axes[1] == 1 ? 0 : h);
              const Tensor x_row(x.row(t * kHeads + h), dtype, {width});
              const Tensor weight_row(weight.row(row), dtype, {width});
              Buffer expected(dtype, {width});
              EXPECT_STATUS_OK(reference::RmsNorm(x_row, weight_row, expected));
              ASSERT_TRUE(SameRow(dtype, expected.row(0),
                                  out.row(t * kHeads + h), width))
                  << Name(axes) << " token " << t << " head " << h;
            }
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

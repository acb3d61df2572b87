// Faults that backward kernels are known for, each as a test of its kind: small
// inputs with gradients that were computed in f64 from the formulas. Patterns
// are repeated over many widths, which leaves the gradients as they are.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "backward_call.h"
#include "random_layout.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

using Values = std::vector<double>;

Values Repeat(const Values& pattern, int64_t count) {
  Values all;
  for (int64_t i = 0; i < count; ++i) {
    all.insert(all.end(), pattern.begin(), pattern.end());
  }
  return all;
}

Buffer Filled(DType dtype, const Numbers& shape, const Values& values) {
  Buffer buffer(dtype, shape);
  buffer.FillWith(values);
  return buffer;
}

// `rows` rows of these values, and blank gradients.
BackwardCall MakeCall(DType dtype, int64_t rows, const Values& x,
                      const Values& weight, const Values& dy, float eps) {
  const int64_t width = static_cast<int64_t>(x.size());
  BackwardCall call;
  call.x = Filled(dtype, {rows, width}, x);
  call.weight = Filled(dtype, Numbers{width}, weight);
  call.dy = Filled(dtype, {rows, width}, dy);
  call.dx = Buffer(dtype, {rows, width});
  call.dweight = Buffer(DType::kF32, Numbers{width});
  call.options.eps = eps;
  return call;
}

// Within some units of the dtype, relatively.
void ExpectRow(const Buffer& got, int64_t row, const Values& expected,
               double units = 4) {
  const double unit = got.dtype() == DType::kBF16  ? 0x1p-8
                      : got.dtype() == DType::kF16 ? 0x1p-11
                                                   : 0x1p-23;
  for (int64_t i = 0; i < got.width(); ++i) {
    const double want = expected[static_cast<size_t>(i)];
    EXPECT_NEAR(got.value(row, i), want, units * unit * std::fabs(want))
        << Name(got.dtype()) << " row " << row << " element " << i << " of "
        << got.width();
  }
}

// Both operations, all implementations, dx on each input that it may lie on.
void ForEachForm(
    const BackwardCall& call,
    const std::function<void(const Gradients&, const std::string&)>& check) {
  for (BackwardOp op : kBackwardOps) {
    BackwardCall form = call;
    form.op = op;
    for (const Implementation& implementation : Implementations()) {
      for (DxOver over : LegalAliases(form)) {
        SCOPED_TRACE(Name(op) + ", " + implementation.name + ", " + Name(over));
        check(RunBackward(implementation, form, over), Name(over));
      }
    }
  }
}

// dx from a weight used once: used twice it is [-3, -4.5] here.
TEST(BackwardCases, WeightIsUsedOnce) {
  for (int64_t count : {1, 2, 3, 8, 17, 32, 33, 65}) {
    BackwardCall call =
        MakeCall(DType::kF32, 1, Repeat({1, 1}, count), Repeat({2, 3}, count),
                 Repeat({1, 1}, count), 0);
    ForEachForm(call, [&](const Gradients& got, const std::string&) {
      ExpectRow(got.dx, 0, Repeat({-0.5, 0.5}, count));
      ExpectRow(got.dweight, 0, Repeat({1, 1}, count));
    });
    call = MakeCall(DType::kF32, 1, Repeat({3, 4}, count),
                    Repeat({2, 3}, count), Repeat({1, 1}, count), 0);
    ForEachForm(call, [&](const Gradients& got, const std::string&) {
      ExpectRow(got.dx, 0, Repeat({-0.04525483, 0.03394113}, count), 16);
      ExpectRow(got.dweight, 0, Repeat({0.84852814, 1.13137085}, count));
    });
  }
}

// An offset belongs to the gain, in the gradient too: stored as weight - 1 the
// gradients are the same.
TEST(BackwardCases, OffsetIsPartOfTheGain) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : {1, 2, 31, 64, 100}) {
      BackwardCall plain =
          MakeCall(dtype, 3, Values(static_cast<size_t>(width)),
                   Values(static_cast<size_t>(width)),
                   Values(static_cast<size_t>(width)), 1e-6f);
      plain.x.Fill(random, Data::kNormal);
      plain.dy.Fill(random, Data::kNormal);
      BackwardCall offset = plain;
      offset.options.weight_offset = 1;
      for (int64_t i = 0; i < width; ++i) {
        const double stored = static_cast<double>(random.Uniform(-8, 8)) / 8;
        offset.weight.set_value(0, i, stored);
        plain.weight.set_value(0, i, stored + 1);
      }
      const Gradients expected = RunBackward(Reference(), plain);
      ForEachForm(offset, [&](const Gradients& got, const std::string&) {
        EXPECT_TRUE(Same(expected, got));
      });
    }
  }
}

// A weight of zeros still has a gradient, and with offset 1 dx is that of a
// gain of 1.
TEST(BackwardCases, ZeroWeights) {
  for (float offset : {0.0f, 1.0f}) {
    BackwardCall call = MakeCall(DType::kF32, 1, {3, 4}, {0, 0}, {1, 0}, 0);
    call.options.weight_offset = offset;
    const double r = std::sqrt(2.0) / 5;
    ForEachForm(call, [&](const Gradients& got, const std::string&) {
      // r (dy - xh mean(dy xh)), xh = (3 r, 4 r)
      ExpectRow(got.dx, 0,
                offset == 0 ? Values{0, 0}
                            : Values{r * (1 - 9 * r * r / 2),
                                     r * (0 - 12 * r * r / 2)});
      ExpectRow(got.dweight, 0, {3 * r, 0});
    });
  }
}

// The term that projects onto x: dy parallel to x has (with eps 0) no dx at
// all, and dx is orthogonal to x whatever dy is.
TEST(BackwardCases, GradientIsOrthogonalToTheRow) {
  Random random;
  for (int64_t width : {2, 7, 64, 100, 1025}) {
    BackwardCall call =
        MakeCall(DType::kF32, 4, Values(static_cast<size_t>(width)),
                 Values(static_cast<size_t>(width), 1.0),
                 Values(static_cast<size_t>(width)), 0);
    call.x.Fill(random, Data::kNormal);
    call.dy.Fill(random, Data::kNormal);
    ForEachForm(call, [&](const Gradients& got, const std::string& over) {
      for (int64_t r = 0; r < 4; ++r) {
        double dot = 0, magnitude = 0;
        for (int64_t i = 0; i < width; ++i) {
          dot += got.dx.value(r, i) * call.x.value(r, i);
          magnitude += std::fabs(got.dx.value(r, i) * call.x.value(r, i));
        }
        EXPECT_NEAR(dot, 0, 1e-5 * magnitude + 1e-6) << over;
      }
    });
    call.dy = call.x;
    const Gradients got = RunBackward(Reference(), call);
    for (int64_t i = 0; i < width; ++i) {
      EXPECT_NEAR(got.dx.value(0, i), 0, 1e-5 * std::fabs(call.x.value(0, i)));
    }
  }
}

// dh = d_residual_out + dx: added behind the norm's derivative, in f32.
TEST(BackwardCases, ResidualGradientIsAddedLast) {
  for (int64_t count : {1, 3, 16, 33}) {
    BackwardCall call =
        MakeCall(DType::kF32, 1, Repeat({1, 1}, count), Repeat({2, 3}, count),
                 Repeat({1, 1}, count), 0);
    call.op = BackwardOp::kAddRmsNorm;
    call.d_residual_out = call.dy;
    call.d_residual_out.FillWith(Repeat({10, -20}, count));
    for (const Implementation& implementation : Implementations()) {
      for (DxOver over : LegalAliases(call)) {
        const Gradients got = RunBackward(implementation, call, over);
        ExpectRow(got.dx, 0, Repeat({9.5, -19.5}, count));
        ExpectRow(got.dweight, 0, Repeat({1, 1}, count));
      }
    }
  }
  // One rounding: dx is 1 + 2^-9. In bf16 that is 1, and 256 + 1 a tie, which
  // goes to 256.
  BackwardCall call = MakeCall(DType::kBF16, 1, {1, 1}, {0, 0}, {1, 1}, 0);
  call.op = BackwardOp::kAddRmsNorm;
  call.weight = Filled(DType::kF32, Numbers{2}, {2 + 0x1p-8, 0});
  call.d_residual_out = Filled(DType::kBF16, {1, 2}, {256, 256});
  for (const Implementation& implementation : Implementations()) {
    const Gradients got = RunBackward(implementation, call);
    EXPECT_EQ(got.dx.value(0, 0), 258);
    EXPECT_EQ(got.dx.value(0, 1), 255);
  }
}

// dweight counts rows: 16 bits stop at 256 (bf16) or 2048 (f16), f32 at 2^24.
TEST(BackwardCases, DWeightCountsRows) {
  for (DType dtype : kFloatDTypes) {
    for (int64_t rows : {257, 300, 2049, 4096, 70000}) {
      if (Subset() && rows > 300) break;
      const Values ones(8, 1.0);
      BackwardCall call = MakeCall(dtype, rows, ones, ones, ones, 0);
      for (DType dweight : {DType::kF32, DType::kF64, dtype}) {
        call.dweight = Buffer(dweight, Numbers{8});
        ForEachImplementation([&](const Implementation& implementation) {
          const Gradients got = RunBackward(implementation, call);
          for (int64_t i = 0; i < 8; ++i) {
            EXPECT_EQ(got.dweight.value(0, i),
                      RoundTo(dweight, static_cast<double>(rows)));
          }
        });
      }
    }
  }
}

// x = 0: r = 1 / sqrt(eps), so dx is large and finite, and dweight is 0; with
// eps 0 both are 0. Other rows do not notice.
TEST(BackwardCases, ZeroRows) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : {1, 3, 16, 64, 100, 513}) {
      const size_t n = static_cast<size_t>(width);
      BackwardCall call = MakeCall(dtype, 1, Values(n, 0.0), Values(n, 1.0),
                                   Values(n, 1.0), 1e-6f);
      ForEachForm(call, [&](const Gradients& got, const std::string&) {
        ExpectRow(got.dx, 0, Values(n, 1000.0));
        ExpectRow(got.dweight, 0, Values(n, 0.0));
      });
      call.options.eps = 0;
      ForEachForm(call, [&](const Gradients& got, const std::string&) {
        ExpectRow(got.dx, 0, Values(n, 0.0));
        ExpectRow(got.dweight, 0, Values(n, 0.0));
      });

      // One among ordinary rows.
      const int64_t rows = 40, zero = random.Uniform(0, rows - 1);
      call = MakeCall(dtype, rows, Values(n), Values(n, 1.0), Values(n), 1e-6f);
      call.x.Fill(random, Data::kNormal);
      call.dy.Fill(random, Data::kNormal);
      const Gradients without = RunBackward(Reference(), call);
      for (int64_t i = 0; i < width; ++i) call.x.set_value(zero, i, 0);
      ForEachImplementation([&](const Implementation& implementation) {
        const Gradients with = RunBackward(implementation, call);
        for (int64_t r = 0; r < rows; ++r) {
          if (r == zero) continue;
          EXPECT_TRUE(SameRow(dtype, without.dx.row(r), with.dx.row(r), width));
        }
        for (int64_t i = 0; i < width; ++i) {
          EXPECT_TRUE(std::isfinite(with.dx.value(zero, i)));
          EXPECT_TRUE(std::isfinite(with.dweight.value(0, i)));
        }
      });
    }
  }
  // f64 likewise.
  BackwardCall call =
      MakeCall(DType::kF64, 2, {0, 0, 0}, {1, 1, 1}, {1, 2, 3}, 0);
  call.dweight = Buffer(DType::kF64, Numbers{3});
  ForEachForm(call, [&](const Gradients& got, const std::string&) {
    ExpectRow(got.dx, 1, {0, 0, 0});
    ExpectRow(got.dweight, 0, {0, 0, 0});
  });
}

// eps counts, as a number of its own, and dominates small rows.
TEST(BackwardCases, EpsCounts) {
  // x = 1e-3: mean(x^2) = 1e-6, r = 1 / sqrt(1e-6 + eps), xh = x r,
  // dx = r (1 - xh^2) for dy = 1.
  for (float eps : {1e-6f, 1e-5f, 1e-4f}) {
    for (size_t n : {1u, 5u, 64u, 100u}) {
      BackwardCall call = MakeCall(DType::kF32, 1, Values(n, 1e-3),
                                   Values(n, 1.0), Values(n, 1.0), eps);
      const double x = call.x.value(0, 0);
      const double r = 1 / std::sqrt(x * x + double{eps});
      const double dx = r * (1 - x * r * x * r);
      ForEachForm(call, [&](const Gradients& got, const std::string&) {
        ExpectRow(got.dx, 0, Values(n, dx), 16);
        ExpectRow(got.dweight, 0, Values(n, x * r));
      });
    }
  }
}

// dx on dy or on x: both are needed once more after the first pass, and
// dweight needs them too.
TEST(BackwardCases, InPlace) {
  for (int64_t count : {1, 2, 4, 5, 16, 17, 33}) {
    const Values x = Repeat({1, 0, 0, 0}, count);
    BackwardCall call =
        MakeCall(DType::kF32, 1, x, Values(x.size(), 1.0), x, 1e-4f);
    ForEachForm(call, [&](const Gradients& got, const std::string& over) {
      // r = 1.99960012; dx = r (1 - r^2 / 4), where 12 bits cancel.
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(got.dx.value(0, static_cast<int64_t>(i)), 0.00079952 * x[i],
                    1e-6)
            << over;
      }
      ExpectRow(got.dweight, 0, Repeat({1.99960012, 0, 0, 0}, count));
    });
  }
}

// NaN and Inf stay in their row; dweight takes them up.
TEST(BackwardCases, NonFiniteRows) {
  Random random;
  for (DType dtype : kFloatDTypes) {
    for (int64_t width : {1, 16, 33, 130}) {
      for (double special : {double{NAN}, double{INFINITY}}) {
        for (bool in_dy : {false, true}) {
          const size_t n = static_cast<size_t>(width);
          BackwardCall call =
              MakeCall(dtype, 6, Values(n), Values(n, 1.0), Values(n), 1e-6f);
          call.x.Fill(random, Data::kNormal);
          call.dy.Fill(random, Data::kNormal);
          const Gradients clean = RunBackward(Reference(), call);
          const int64_t column = random.Uniform(0, width - 1);
          (in_dy ? call.dy : call.x).set_value(3, column, special);
          ForEachImplementation([&](const Implementation& implementation) {
            const Gradients got = RunBackward(implementation, call);
            EXPECT_TRUE(std::isnan(got.dx.value(3, column)));
            EXPECT_FALSE(std::isfinite(got.dweight.value(0, column)));
            for (int64_t r : {0, 1, 2, 4, 5}) {
              EXPECT_TRUE(
                  SameRow(dtype, clean.dx.row(r), got.dx.row(r), width));
            }
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

// The analytic gradients against central differences of the forward operations,
// both in f64 by the reference: every differentiable input of every operation,
// alone and composed as blocks compose them, with both weight offsets and with
// an eps that counts.
//
// A loss is sum(t * out) + sum(s * residual_out) for fixed t and s, so that t
// and s are the gradients that come in from above.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "random_layout.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

constexpr DType kF64 = DType::kF64;

double Dot(const Buffer& a, const Buffer& b) {
  double sum = 0;
  for (int64_t r = 0; r < a.rows(); ++r) {
    for (int64_t i = 0; i < a.width(); ++i)
      sum += a.value(r, i) * b.value(r, i);
  }
  return sum;
}

// The inputs of one problem, which the losses below read.
struct Problem {
  std::string name;
  Numbers shape, weight_shape;
  Buffer x, residual, post, pre, t, s;
  Options options;

  Buffer Blank() const { return Buffer(kF64, shape); }
  Buffer BlankWeight() const { return Buffer(kF64, weight_shape); }
};

Problem MakeProblem(Random& random, const Numbers& shape,
                    const Numbers& weight_shape, double magnitude, float eps,
                    float offset) {
  Problem problem;
  problem.shape = shape;
  problem.weight_shape = weight_shape;
  problem.name = Name(shape) + Name(weight_shape) + " |x| " +
                 std::to_string(magnitude) + " eps " + std::to_string(eps) +
                 " offset " + std::to_string(offset);
  const auto input = [&](const Numbers& of, double scale) {
    Buffer buffer(kF64, of);
    for (int64_t r = 0; r < buffer.rows(); ++r) {
      for (int64_t i = 0; i < buffer.width(); ++i) {
        buffer.set_value(r, i, scale * random.Normal());
      }
    }
    return buffer;
  };
  problem.x = input(shape, magnitude);
  problem.residual = input(shape, magnitude);
  problem.post = input(weight_shape, 1);
  problem.pre = input(weight_shape, 1);
  problem.t = input(shape, 1);
  problem.s = input(shape, 1);
  problem.options.eps = eps;
  problem.options.weight_offset = offset;
  return problem;
}

// The largest difference, against the tensor's largest gradient: elements where
// terms cancel are no less accurate than that.
struct Worst {
  double error = 0;
  std::string where;
};

// Compares the analytic gradient of one input with central differences of the
// loss. The step balances truncation and rounding: cube root of 2^-52.
void Check(const Problem& problem, const std::string& what, Buffer& input,
           const Buffer& gradient, const std::function<double()>& loss,
           Worst& worst) {
  double scale = 0, largest = 0;
  for (int64_t r = 0; r < input.rows(); ++r) {
    for (int64_t i = 0; i < input.width(); ++i) {
      scale = std::fmax(scale, std::fabs(input.value(r, i)));
      largest = std::fmax(largest, std::fabs(gradient.value(r, i)));
    }
  }
  const double step = scale * 0x1p-17;
  for (int64_t r = 0; r < input.rows(); ++r) {
    for (int64_t i = 0; i < input.width(); ++i) {
      const double value = input.value(r, i);
      input.set_value(r, i, value + step);
      const double above = loss();
      input.set_value(r, i, value - step);
      const double below = loss();
      input.set_value(r, i, value);
      const double numeric = (above - below) / (2 * step);
      const double error =
          std::fabs(numeric - gradient.value(r, i)) / (largest + 1e-300);
      EXPECT_LT(error, 1e-6)
          << problem.name << " " << what << " row " << r << " element " << i
          << ": numeric " << numeric << ", analytic " << gradient.value(r, i);
      if (error > worst.error) worst = {error, problem.name + " " + what};
    }
  }
}

Buffer Scaled(const Buffer& buffer, double factor) {
  Buffer scaled = buffer;
  for (int64_t r = 0; r < buffer.rows(); ++r) {
    for (int64_t i = 0; i < buffer.width(); ++i) {
      scaled.set_value(r, i, factor * buffer.value(r, i));
    }
  }
  return scaled;
}

void CheckRmsNorm(Problem p, Worst& worst) {
  Buffer out = p.Blank(), dx = p.Blank(), dweight = p.BlankWeight();
  const auto loss = [&] {
    EXPECT_STATUS_OK(reference::RmsNorm(p.x, p.post, out, p.options));
    return Dot(p.t, out);
  };
  ASSERT_STATUS_OK(
      reference::RmsNormBackward(p.x, p.post, p.t, dx, dweight, p.options));
  Check(p, "RmsNorm x", p.x, dx, loss, worst);
  Check(p, "RmsNorm weight", p.post, dweight, loss, worst);
  p.post = Buffer();
  ASSERT_STATUS_OK(
      reference::RmsNormBackward(p.x, p.post, p.t, dx, Tensor(), p.options));
  Check(p, "RmsNorm x without weight", p.x, dx, loss, worst);
}

void CheckAddRmsNorm(Problem p, Worst& worst) {
  for (float scale : {1.0f, 0.75f}) {
    p.options.residual_scale = scale;
    Buffer out = p.Blank(), h = p.Blank(), dh = p.Blank();
    Buffer dweight = p.BlankWeight();
    const auto loss = [&] {
      EXPECT_STATUS_OK(
          reference::AddRmsNorm(p.x, p.residual, p.pre, out, h, p.options));
      return Dot(p.t, out) + Dot(p.s, h);
    };
    loss();
    ASSERT_STATUS_OK(reference::AddRmsNormBackward(h, p.pre, p.t, p.s, dh,
                                                   dweight, p.options));
    Check(p, "AddRmsNorm x", p.x, dh, loss, worst);
    Check(p, "AddRmsNorm residual", p.residual, Scaled(dh, scale), loss, worst);
    Check(p, "AddRmsNorm weight", p.pre, dweight, loss, worst);
  }
}

// The residual's gradient is t itself.
void CheckRmsNormAdd(Problem p, Worst& worst) {
  p.options.residual_scale = 0.75f;
  Buffer out = p.Blank(), dx = p.Blank(), dweight = p.BlankWeight();
  const auto loss = [&] {
    EXPECT_STATUS_OK(
        reference::RmsNormAdd(p.x, p.residual, p.post, out, p.options));
    return Dot(p.t, out);
  };
  ASSERT_STATUS_OK(
      reference::RmsNormBackward(p.x, p.post, p.t, dx, dweight, p.options));
  Check(p, "RmsNormAdd x", p.x, dx, loss, worst);
  Check(p, "RmsNormAdd residual", p.residual, Scaled(p.t, 0.75), loss, worst);
  Check(p, "RmsNormAdd weight", p.post, dweight, loss, worst);
}

// From out through the pre norm to h, whose gradient is the residual's, and
// from there through the post norm to x.
void CheckSandwich(Problem p, Worst& worst) {
  Buffer out = p.Blank(), h = p.Blank(), dh = p.Blank(), dx = p.Blank();
  Buffer dpre = p.BlankWeight(), dpost = p.BlankWeight();
  const auto loss = [&] {
    EXPECT_STATUS_OK(reference::RmsNormAddRmsNorm(p.x, p.residual, p.post,
                                                  p.pre, out, h, p.options));
    return Dot(p.t, out) + Dot(p.s, h);
  };
  loss();
  ASSERT_STATUS_OK(
      reference::AddRmsNormBackward(h, p.pre, p.t, p.s, dh, dpre, p.options));
  ASSERT_STATUS_OK(
      reference::RmsNormBackward(p.x, p.post, dh, dx, dpost, p.options));
  Check(p, "RmsNormAddRmsNorm x", p.x, dx, loss, worst);
  Check(p, "RmsNormAddRmsNorm residual", p.residual, dh, loss, worst);
  Check(p, "RmsNormAddRmsNorm weight_post", p.post, dpost, loss, worst);
  Check(p, "RmsNormAddRmsNorm weight_pre", p.pre, dpre, loss, worst);
}

// d(sum of squares)/dx = 2 x.
void CheckRowSumSquares(Problem p, Worst& worst) {
  std::vector<double> sums(static_cast<size_t>(p.x.rows()));
  const auto loss = [&] {
    EXPECT_STATUS_OK(reference::RowSumSquares(p.x, sums.data(), p.options));
    double sum = 0;
    for (double value : sums) sum += value;
    return sum;
  };
  Check(p, "RowSumSquares x", p.x, Scaled(p.x, 2), loss, worst);
}

using Checker = void (*)(Problem, Worst&);
struct Operation {
  const char* name;
  Checker check;
};
constexpr Operation kOperations[] = {
    {"RmsNorm", &CheckRmsNorm},
    {"AddRmsNorm", &CheckAddRmsNorm},
    {"RmsNormAdd", &CheckRmsNormAdd},
    {"RmsNormAddRmsNorm", &CheckSandwich},
    {"RowSumSquares", &CheckRowSumSquares},
};

class Gradcheck : public testing::TestWithParam<Operation> {};

TEST_P(Gradcheck, AnalyticGradientsAreThoseOfTheForwardOperation) {
  struct Scale {
    double magnitude;
    float eps;
  };
  Random random;
  Worst worst;
  for (const Scale& scale :
       {Scale{1, 1e-6f}, Scale{1e-3, 1e-6f}, Scale{1e-3, 1e-4f},
        Scale{30, 0.0f}, Scale{0.1, 1.0f}}) {
    for (float offset : {0.0f, 1.0f}) {
      for (const Numbers& shape :
           {Numbers{3, 2}, Numbers{2, 7}, Numbers{1, 64}, Numbers{2, 70}}) {
        const Numbers weight = {shape.back()};
        GetParam().check(MakeProblem(random, shape, weight, scale.magnitude,
                                     scale.eps, offset),
                         worst);
        ASSERT_FALSE(HasFailure());
      }
      // More rows than a block of dweight's sum, and weights per head.
      GetParam().check(
          MakeProblem(random, {35, 3}, {3}, scale.magnitude, scale.eps, offset),
          worst);
      GetParam().check(MakeProblem(random, {2, 3, 5}, {1, 3, 5},
                                   scale.magnitude, scale.eps, offset),
                       worst);
      ASSERT_FALSE(HasFailure());
    }
  }
  std::printf("%s: differences within %.1e of the largest gradient (%s)\n",
              GetParam().name, worst.error, worst.where.c_str());
  RecordProperty("worst_difference", std::to_string(worst.error));
}

INSTANTIATE_TEST_SUITE_P(Operations, Gradcheck, testing::ValuesIn(kOperations),
                         [](const auto& operation) {
                           return operation.param.name;
                         });

}  // namespace
}  // namespace test
}  // namespace fusednorm

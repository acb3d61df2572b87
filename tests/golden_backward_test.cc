// Our gradients beside autograd's: of Hugging Face's norms, of PyTorch's, and
// of whole residual blocks.
//
// In f32 we expect what the source returned. In bf16 we expect what its norm
// gives in f32 for the same values, rounded once; where the source's own bf16
// pass rounds in between, the records hold that result too. Gradients cancel:
// dx is a difference, dweight a sum. So errors are relative to the size of
// what was added up; relative to the result itself two right answers in f32
// lie up to 1e-2 apart where a row is little but one large element.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "fusednorm/c.h"
#include "golden_compare.h"
#include "golden_reader.h"

namespace fusednorm {
namespace test {
namespace {

// As in the forward direction: sums in another order, and a few roundings.
constexpr double kRelativeF32 = 2e-6;
constexpr double kChainedF32 = 1e-5;  // dh has cancelled before
constexpr double kEqualBf16 = 0.996;

// Four roundings to bf16 of half an ulp: dy * g (which also moves the mean) or
// x * r and its product with dy; the sum with d_residual_out; the source's
// result; ours.
constexpr double kEagerBf16 = 4 * 0x1p-8;

// The sizes of what is added up for each element of dx and dweight, in f64.
struct Terms {
  std::vector<double> dx, dweight;
};

void AddTermsOfRow(const GoldenRecord& record, const double* x,
                   const double* dy, const std::vector<double>& weight,
                   Terms* terms) {
  const auto width = static_cast<size_t>(record.width);
  const auto n = static_cast<double>(width);
  double squares = 0;
  for (size_t i = 0; i < width; ++i) squares += x[i] * x[i];
  const double rstd = 1 / std::sqrt(squares / n + double{record.eps});
  const auto dy_times_gain = [&](size_t i) {
    const double gain =
        weight.empty() ? 1 : double{record.weight_offset} + weight[i];
    return std::fabs(dy[i] * gain);
  };
  double mean = 0;
  for (size_t i = 0; i < width; ++i) {
    mean += dy_times_gain(i) * std::fabs(x[i] * rstd) / n;
  }
  for (size_t i = 0; i < width; ++i) {
    const double xh = std::fabs(x[i] * rstd);
    terms->dx.push_back((dy_times_gain(i) + xh * mean) * rstd);
    terms->dweight[i] += std::fabs(dy[i]) * xh;
  }
}

Terms TermsOf(const GoldenRecord& record) {
  const std::vector<double> x = Values(record.x), dy = Values(record.dy);
  const std::vector<double> weight = Values(record.weight);
  const auto width = static_cast<size_t>(record.width);
  Terms terms;
  terms.dweight.resize(width);
  for (size_t i = 0; i < x.size(); i += width) {
    AddTermsOfRow(record, &x[i], &dy[i], weight, &terms);
  }
  const std::vector<double> stream = Values(record.d_residual_out);
  for (size_t i = 0; i < stream.size(); ++i) {
    terms.dx[i] += std::fabs(stream[i]);
  }
  return terms;
}

fusednorm_status CallBackward(const GoldenRecord& record, bool reference,
                              GoldenTensor* dx, GoldenTensor* dweight) {
  const fusednorm_options options = OptionsOf(record);
  const GoldenView x(record.x, record.width);
  const GoldenView weight(record.weight, record.width);
  const GoldenView dy(record.dy, record.width);
  const GoldenView d_stream(record.d_residual_out, record.width);
  const GoldenView dx_view(*dx, record.width);
  const GoldenView dweight_view(*dweight, record.width);
  if (record.op == kRmsNormBackward) {
    return (reference ? fusednorm_reference_rms_norm_backward
                      : fusednorm_rms_norm_backward)(
        x.get(), weight.get(), dy.get(), dx_view.get(), dweight_view.get(),
        &options);
  }
  return (reference ? fusednorm_reference_add_rms_norm_backward
                    : fusednorm_add_rms_norm_backward)(
      x.get(), weight.get(), dy.get(), d_stream.get(), dx_view.get(),
      dweight_view.get(), &options);
}

void CompareBackward(const GoldenRecord& record, bool reference,
                     GoldenTotals* totals) {
  GoldenTensor dx = Blank(record.dx);
  GoldenTensor dweight = Blank(record.dweight);
  ASSERT_EQ(CallBackward(record, reference, &dx, &dweight), FUSEDNORM_OK)
      << fusednorm_last_error();
  const Terms terms = TermsOf(record);
  totals->Compare("dx", dx, record.dx, {kRelativeF32, terms.dx, kEqualBf16});
  totals->Compare("dweight", dweight, record.dweight,
                  {kRelativeF32, terms.dweight, kEqualBf16});
  if (record.eager_dx.present) {
    totals->Compare("eager dx", dx, record.eager_dx, {kEagerBf16, terms.dx, 0});
  }
  if (record.eager_dweight.present) {
    totals->Compare("eager dweight", dweight, record.eager_dweight,
                    {kEagerBf16, terms.dweight, 0});
  }
}

class GoldenBackwardTest : public testing::TestWithParam<GoldenSource> {};

TEST_P(GoldenBackwardTest, AgreesWithSource) {
  CompareSource(GetParam(), CompareBackward);
}

INSTANTIATE_TEST_SUITE_P(Sources, GoldenBackwardTest,
                         testing::Values(GoldenSource{"llama_grad", 11},
                                         GoldenSource{"gemma_grad", 10},
                                         GoldenSource{"pytorch_grad", 10},
                                         GoldenSource{"pre_norm_block", 8},
                                         GoldenSource{"sandwich_block", 16}),
                         [](const auto& source) {
                           return std::string(source.param.name);
                         });

// The gradient of a whole sandwich: our dh at the stream is the dy of the
// norm before it. In bf16 the source rounds its dh twice, so f32 alone.
TEST(GoldenBackwardChainTest, SandwichPassesItsGradientOn) {
  GoldenTensor dh;
  GoldenTensor unwanted;
  size_t chained = 0;
  const auto compare = [&](const GoldenRecord& record, bool reference,
                           GoldenTotals* totals) {
    if (record.x.dtype != FUSEDNORM_F32) return;
    GoldenRecord linked = record;
    if (record.op == kRmsNormBackward) {
      ASSERT_EQ(dh.bytes.size(), record.dy.bytes.size());
      linked.dy = dh;
      ++chained;
    }
    GoldenTensor dx = Blank(record.dx);
    ASSERT_EQ(CallBackward(linked, reference, &dx, &unwanted), FUSEDNORM_OK)
        << fusednorm_last_error();
    totals->Compare(record.op == kRmsNormBackward ? "chained dx" : "dh", dx,
                    record.dx, {kChainedF32, TermsOf(record).dx, 0});
    dh = dx;
  };
  CompareSource({"sandwich_block", 16}, compare);
  EXPECT_GE(chained, 4u);
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

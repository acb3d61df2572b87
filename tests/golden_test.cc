// Our results beside those of other RMSNorms, and on a real model's data.
//
// tests/golden/ holds what Hugging Face's modules, PyTorch and vLLM returned,
// record by record; its README.md has the format. The library is called
// through the C ABI alone, so this is also a user's view of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>
#include <vector>

#include "fusednorm/c.h"
#include "golden_compare.h"
#include "golden_reader.h"

namespace fusednorm {
namespace test {
namespace {

// Of the reduction's sum, whose order is each source's own, and of three or
// four roundings of half an epsilon each: 17 epsilon.
constexpr double kRelativeF32 = 2e-6;
constexpr double kEqual16 = 0.996;

// ------------------------------------------------------------------ running

fusednorm_status CallForward(const GoldenRecord& record, bool reference,
                             GoldenTensor* out, GoldenTensor* residual_out) {
  const fusednorm_options options = OptionsOf(record);
  const GoldenView x(record.x, record.width);
  const GoldenView residual(record.residual, record.width);
  const GoldenView weight(record.weight, record.width);
  const GoldenView weight_pre(record.weight_pre, record.width);
  const GoldenView y(*out, record.width);
  const GoldenView h(*residual_out, record.width);
  switch (record.op) {
    case kRmsNorm:
      return (reference ? fusednorm_reference_rms_norm : fusednorm_rms_norm)(
          x.get(), weight.get(), y.get(), &options);
    case kAddRmsNorm:
      return (reference ? fusednorm_reference_add_rms_norm
                        : fusednorm_add_rms_norm)(
          x.get(), residual.get(), weight.get(), y.get(), h.get(), &options);
    case kRmsNormAdd:
      return (reference ? fusednorm_reference_rms_norm_add
                        : fusednorm_rms_norm_add)(
          x.get(), residual.get(), weight.get(), y.get(), &options);
    case kRmsNormAddRmsNorm:
      return (reference ? fusednorm_reference_rms_norm_add_rms_norm
                        : fusednorm_rms_norm_add_rms_norm)(
          x.get(), residual.get(), weight.get(), weight_pre.get(), y.get(),
          h.get(), &options);
    default:
      ADD_FAILURE() << "not a forward operation";
      return FUSEDNORM_INTERNAL;
  }
}

// ---------------------------------------------------------------- comparing

// The largest relative step of a dtype. For 16 bits: what a sum may be off,
// relative to its terms, if one of them is an ulp off.
double Step(fusednorm_dtype dtype) {
  if (dtype == FUSEDNORM_F32) return kRelativeF32;
  return dtype == FUSEDNORM_BF16 ? 0x1p-7 : 0x1p-10;
}

// Of a norm: everything after the reduction is a product, so nothing cancels
// and the error is relative to the value. An expected value below the epsilon
// of its row's largest one counts as that much: it may be subnormal, where a
// relative error means nothing.
Bound NormBound(const GoldenRecord& record) {
  std::vector<double> scale = Values(record.out);
  for (size_t begin = 0; begin < scale.size();) {
    const size_t end = begin + static_cast<size_t>(record.width);
    double largest = 0;
    for (size_t i = begin; i < end; ++i) {
      scale[i] = std::fabs(scale[i]);
      largest = std::max(largest, scale[i]);
    }
    for (; begin < end; ++begin) {
      scale[begin] = std::max(scale[begin], FLT_EPSILON * largest);
    }
  }
  const bool f32 = record.out.dtype == FUSEDNORM_F32;
  return {f32 ? kRelativeF32 : 0, scale, kEqual16};
}

// Of a norm to which the residual was added: these may cancel.
Bound SumBound(const GoldenRecord& record, const GoldenTensor& sum) {
  std::vector<double> scale = Values(sum);
  const std::vector<double> residual = Values(record.residual);
  for (size_t i = 0; i < scale.size(); ++i) {
    scale[i] = std::fabs(residual[i]) + std::fabs(scale[i] - residual[i]);
  }
  return {Step(sum.dtype), scale, kEqual16};
}

// Of the norm of that sum: its relative error, and a rounding or two (so
// 2 steps) of its own.
Bound SandwichBound(const GoldenRecord& record) {
  Bound bound = NormBound(record);
  const std::vector<double> terms = SumBound(record, record.residual_out).scale;
  const std::vector<double> sum = Values(record.residual_out);
  for (size_t i = 0; i < sum.size(); ++i) {
    if (sum[i] != 0) bound.scale[i] *= terms[i] / std::fabs(sum[i]);
  }
  bound.relative = 2 * Step(record.out.dtype);
  return bound;
}

void CompareForward(const GoldenRecord& record, bool reference,
                    GoldenTotals* totals) {
  GoldenTensor out = Blank(record.out);
  GoldenTensor residual_out = Blank(record.residual_out);
  ASSERT_EQ(CallForward(record, reference, &out, &residual_out), FUSEDNORM_OK)
      << fusednorm_last_error();
  if (record.op == kRmsNormAdd) {
    totals->Compare("out", out, record.out, SumBound(record, record.out));
  } else if (record.op == kRmsNormAddRmsNorm) {
    totals->Compare("out", out, record.out, SandwichBound(record));
    totals->Compare("residual_out", residual_out, record.residual_out,
                    SumBound(record, record.residual_out));
  } else {
    totals->Compare("out", out, record.out, NormBound(record));
    // One addition, rounded once: nobody has a choice there.
    EXPECT_TRUE(residual_out.bytes == record.residual_out.bytes)
        << "residual_out differs";
  }
}

// -------------------------------------------------------------------- tests

class GoldenTest : public testing::TestWithParam<GoldenSource> {};

TEST_P(GoldenTest, AgreesWithSource) {
  CompareSource(GetParam(), CompareForward);
}

INSTANTIATE_TEST_SUITE_P(
    Sources, GoldenTest,
    testing::Values(
        GoldenSource{"llama", 20}, GoldenSource{"gemma", 15},
        GoldenSource{"llama_add", 15}, GoldenSource{"gemma_add", 15},
        GoldenSource{"olmo2", 15}, GoldenSource{"gemma_sandwich", 12},
        GoldenSource{"pytorch", 18}, GoldenSource{"vllm", 16},
        GoldenSource{"vllm_bf16", 8}, GoldenSource{"vllm_native", 10},
        GoldenSource{"smollm2", 61},  // every norm of the model
        GoldenSource{"smollm2_f32", 21}, GoldenSource{"smollm2_add", 20}),
    [](const auto& source) { return std::string(source.param.name); });

}  // namespace
}  // namespace test
}  // namespace fusednorm

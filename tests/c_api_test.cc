// The C ABI: the checks of c_api_test.c, which a C compiler compiles, and what
// is easier to ask from C++: agreement with the C++ interface, options structs
// of other sizes, one last error per thread.
#include "c_api_test.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "fusednorm/c.h"
#include "fusednorm/fusednorm.h"
#include "gtest/gtest.h"

namespace {

#define EXPECT_C(check)                   \
  do {                                    \
    const char* const failed = check();   \
    EXPECT_EQ(failed, nullptr) << failed; \
  } while (false)

TEST(CApi, Layout) { EXPECT_C(CheckLayout); }
TEST(CApi, OptionsInit) { EXPECT_C(CheckOptionsInit); }
TEST(CApi, Values) { EXPECT_C(CheckValues); }
TEST(CApi, RmsNorm) { EXPECT_C(CheckRmsNorm); }
TEST(CApi, AddRmsNorm) { EXPECT_C(CheckAddRmsNorm); }
TEST(CApi, Refusals) { EXPECT_C(CheckRefusals); }
TEST(CApi, LastError) { EXPECT_C(CheckLastError); }
TEST(CApi, Version) { EXPECT_C(CheckVersion); }
TEST(CApi, Targets) { EXPECT_C(CheckTargets); }

TEST(CApi, ValuesOfCpp) {
  using fusednorm::DType;
  using fusednorm::StatusCode;
  EXPECT_EQ(static_cast<int>(DType::kF32), FUSEDNORM_F32);
  EXPECT_EQ(static_cast<int>(DType::kBF16), FUSEDNORM_BF16);
  EXPECT_EQ(static_cast<int>(DType::kF16), FUSEDNORM_F16);
  EXPECT_EQ(static_cast<int>(DType::kF64), FUSEDNORM_F64);
  EXPECT_EQ(static_cast<int>(DType::kI8), FUSEDNORM_I8);
  EXPECT_EQ(static_cast<int>(DType::kF8E4M3), FUSEDNORM_F8E4M3);
  EXPECT_EQ(static_cast<int>(DType::kQ8_0), FUSEDNORM_Q8_0);
  EXPECT_EQ(static_cast<int>(StatusCode::kOk), FUSEDNORM_OK);
  EXPECT_EQ(static_cast<int>(StatusCode::kInvalidArgument),
            FUSEDNORM_INVALID_ARGUMENT);
  EXPECT_EQ(static_cast<int>(StatusCode::kUnsupported), FUSEDNORM_UNSUPPORTED);
  EXPECT_EQ(static_cast<int>(StatusCode::kInternal), FUSEDNORM_INTERNAL);
  EXPECT_EQ(static_cast<int>(StatusCode::kOutOfMemory),
            FUSEDNORM_OUT_OF_MEMORY);
}

TEST(CApi, LastErrorOfEachThread) {
  float out[2];
  const float x[2] = {1, 2};
  ASSERT_NE(fusednorm_rms_norm_f32(x, nullptr, out, 1, 2, -1), FUSEDNORM_OK);
  const std::string mine = fusednorm_last_error();
  std::string before, after;
  std::thread other([&] {
    before = fusednorm_last_error();
    EXPECT_EQ(fusednorm_rms_norm_f32(x, nullptr, out, 1, 0, 0),
              FUSEDNORM_INVALID_ARGUMENT);
    after = fusednorm_last_error();
  });
  other.join();
  EXPECT_EQ(before, "");
  EXPECT_NE(after, "");
  EXPECT_NE(after, mine);
  EXPECT_EQ(fusednorm_last_error(), mine);
}

// Messages fit their buffer whatever the caller passes.
TEST(CApi, LongTargetName) {
  const std::string name(100000, 'x');
  EXPECT_EQ(fusednorm_set_target(name.c_str()), FUSEDNORM_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fusednorm_last_error()).find("xxx"), std::string::npos);
}

// Options structs as callers that were compiled against an older or a newer
// header pass them.
class OptionsSize : public ::testing::Test {
 protected:
  static fusednorm_tensor Row(const void* data) {
    fusednorm_tensor tensor{};
    tensor.data = const_cast<void*>(data);
    tensor.dtype = FUSEDNORM_F32;
    tensor.rank = 1;
    tensor.shape[0] = kWidth;
    tensor.strides[0] = 1;
    return tensor;
  }

  // A hook that must not be called.
  static void Trap(void* /*context*/, int64_t /*count*/,
                   void (* /*body*/)(void*, int64_t, int64_t), void* /*arg*/) {
    ADD_FAILURE() << "a hook past the end of the struct was called";
  }

  // Every field set to what would be refused, or would change the result.
  static fusednorm_options Poison() {
    fusednorm_options options;
    fusednorm_options_init(&options);
    options.eps = -1;
    options.weight_offset = std::numeric_limits<float>::infinity();
    options.residual_scale = std::numeric_limits<float>::quiet_NaN();
    options.rounding = options.sum = options.nontemporal = -7;
    options.accumulate = options.num_threads = -7;
    options.rstd = reinterpret_cast<float*>(static_cast<uintptr_t>(3));
    options.scale = options.rstd;
    options.parallel_for = Trap;
    return options;
  }

  // The default value for the first `size` bytes, then poison.
  static fusednorm_options Truncated(size_t size) {
    fusednorm_options defaults, options = Poison();
    fusednorm_options_init(&defaults);
    std::memcpy(&options, &defaults, size);
    options.struct_size = size;
    return options;
  }

  fusednorm_status Run(const void* options) {
    const fusednorm_tensor x = Row(x_), out = Row(out_);
    return fusednorm_add_rms_norm(
        &x, &x, nullptr, &out, nullptr,
        static_cast<const fusednorm_options*>(options));
  }

  static constexpr int kWidth = 3;
  const float x_[kWidth] = {1, -2, 3};
  float out_[kWidth] = {};
};

// The ends of all fields, in order.
#define END_OF(field) \
  offsetof(fusednorm_options, field) + sizeof(fusednorm_options::field)
constexpr size_t kFieldEnds[] = {
    END_OF(struct_size),     END_OF(eps),
    END_OF(weight_offset),   END_OF(residual_scale),
    END_OF(rounding),        END_OF(sum),
    END_OF(nontemporal),     END_OF(accumulate),
    END_OF(num_threads),     END_OF(rstd),
    END_OF(scale),           END_OF(parallel_for),
    END_OF(parallel_context)};

TEST_F(OptionsSize, MissingFieldsHaveDefaults) {
  ASSERT_EQ(Run(nullptr), FUSEDNORM_OK);
  const std::vector<float> expected(out_, out_ + kWidth);
  for (const size_t size : kFieldEnds) {
    const fusednorm_options options = Truncated(size);
    std::memset(out_, 0, sizeof out_);
    EXPECT_EQ(Run(&options), FUSEDNORM_OK)
        << size << ": " << fusednorm_last_error();
    EXPECT_EQ(std::vector<float>(out_, out_ + kWidth), expected) << size;
  }
}

// And a field that is there counts.
TEST_F(OptionsSize, PresentFieldsCount) {
  constexpr size_t kCanBeWrong[] = {
      END_OF(eps),         END_OF(weight_offset), END_OF(residual_scale),
      END_OF(rounding),    END_OF(sum),           END_OF(nontemporal),
      END_OF(num_threads), END_OF(rstd)};
  size_t begin = 0;
  for (const size_t end : kFieldEnds) {
    fusednorm_options options = Truncated(begin);
    options.struct_size = end;
    const bool wrong = std::find(std::begin(kCanBeWrong), std::end(kCanBeWrong),
                                 end) != std::end(kCanBeWrong);
    if (wrong) {
      EXPECT_EQ(Run(&options), FUSEDNORM_INVALID_ARGUMENT) << end;
    }
    begin = end;
  }
  fusednorm_options options = Truncated(END_OF(eps));
  options.eps = 96;  // The mean square of x + x is 56 / 3.
  ASSERT_EQ(Run(&options), FUSEDNORM_OK);
  EXPECT_NEAR(out_[0], 2 / std::sqrt(56 / 3.0 + 96), 1e-6);
}

// Half a field is no field.
TEST_F(OptionsSize, PartOfAField) {
  for (const size_t end : kFieldEnds) {
    if (end == END_OF(struct_size)) continue;
    fusednorm_options options = Truncated(end - 4);
    options.struct_size = end - 2;
    EXPECT_EQ(Run(&options), FUSEDNORM_OK)
        << end << ": " << fusednorm_last_error();
  }
}

// A struct that nobody initialised, or that holds what this library does not
// know, is refused: ignoring an option would change results in silence.
TEST_F(OptionsSize, OtherSizesAreRefused) {
  for (const size_t size : {size_t{0}, size_t{7}, sizeof(fusednorm_options) + 1,
                            sizeof(fusednorm_options) + 8, SIZE_MAX}) {
    fusednorm_options options;
    fusednorm_options_init(&options);
    options.struct_size = size;
    out_[0] = -7;
    EXPECT_EQ(Run(&options), FUSEDNORM_INVALID_ARGUMENT) << size;
    EXPECT_NE(std::string(fusednorm_last_error()).find("struct_size"),
              std::string::npos);
    EXPECT_EQ(out_[0], -7);
  }
}

}  // namespace

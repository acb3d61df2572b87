// The choice of a target: at first use, by FUSEDNORM_TARGET, by SetTarget. The
// first use happens once in a process, so every case has a child of its own,
// and the parent never touches the library.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "fusednorm/c.h"
#include "fusednorm/fusednorm.h"
#include "fusednorm/reference.h"

namespace fusednorm {
namespace {

constexpr const char* kAllNames[] = {"avx512", "avx2", "neon", "scalar"};

// Runs `body` in a child where FUSEDNORM_TARGET is `value` (null: unset);
// expects that nothing fails there.
void InChild(const char* value, const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    if (value == nullptr) {
      unsetenv("FUSEDNORM_TARGET");
    } else {
      setenv("FUSEDNORM_TARGET", value, 1);
    }
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "FUSEDNORM_TARGET=" << (value == nullptr ? "(unset)" : value)
      << ", status " << status;
}

std::vector<std::string> Listed() {
  std::vector<std::string> names;
  std::istringstream text(TargetNames());
  for (std::string name; text >> name;) names.push_back(name);
  return names;
}

bool IsListed(const std::string& name) {
  for (const std::string& listed : Listed()) {
    if (listed == name) return true;
  }
  return false;
}

// A call of each public function that computes; their messages, "" for those
// that succeed. None may write when it refuses.
std::vector<std::string> CallAll() {
  const float in[4] = {3, 4, 0, 0};
  float out[4] = {-7, -7, -7, -7}, sum[4] = {-7, -7, -7, -7};
  const ConstTensor x(in, DType::kF32, {1, 4});
  const Tensor y(out, DType::kF32, {1, 4}), h(sum, DType::kF32, {1, 4});
  fusednorm_tensor c_x = {};
  c_x.data = const_cast<float*>(in);
  c_x.rank = 1;
  c_x.shape[0] = 4;
  c_x.strides[0] = 1;
  fusednorm_tensor c_out = c_x;
  c_out.data = out;

  const std::vector<std::function<bool()>> calls = {
      [&] { return RmsNorm(x, {}, y).ok(); },
      [&] { return AddRmsNorm(x, x, {}, y, h).ok(); },
      [&] { return reference::RmsNorm(x, {}, y).ok(); },
      [&] { return reference::AddRmsNorm(x, x, {}, y, h).ok(); },
      [&] { return fusednorm_rms_norm(&c_x, nullptr, &c_out, nullptr) == 0; },
      [&] {
        return fusednorm_add_rms_norm(&c_x, &c_x, nullptr, &c_out, nullptr,
                                      nullptr) == 0;
      },
      [&] { return fusednorm_rms_norm_f32(in, nullptr, out, 1, 4, 0) == 0; },
      [&] {
        return fusednorm_reference_rms_norm(&c_x, nullptr, &c_out, nullptr) ==
               0;
      },
      [&] {
        return fusednorm_reference_rms_norm_f32(in, nullptr, out, 1, 4, 0) == 0;
      },
  };
  std::vector<std::string> messages;
  for (const auto& call : calls) {
    out[0] = sum[0] = -7;
    const bool ok = call();
    messages.push_back(ok ? "" : fusednorm_last_error());
    EXPECT_EQ(out[0] == -7, !ok);
    if (!ok) {
      EXPECT_EQ(sum[0], -7);
    }
  }
  return messages;
}

void ExpectAllSucceed() {
  for (const std::string& message : CallAll()) EXPECT_EQ(message, "");
}

// Every call names what was asked for and lists what there is.
void ExpectAllRefuse(const std::string& name) {
  for (const std::string& message : CallAll()) {
    EXPECT_NE(message.find("FUSEDNORM_TARGET"), std::string::npos) << message;
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find(TargetNames()), std::string::npos) << message;
  }
}

TEST(Targets, ListIsBestFirstAndHasScalar) {
  InChild(nullptr, [] {
    const std::vector<std::string> names = Listed();
    ASSERT_FALSE(names.empty());
    EXPECT_EQ(names.back(), "scalar");
    size_t next = 0;
    for (const char* name : kAllNames) {
      if (next < names.size() && names[next] == name) ++next;
    }
    EXPECT_EQ(next, names.size()) << TargetNames();
    std::string joined;
    for (const std::string& name : names) {
      joined += (joined.empty() ? "" : " ") + name;
    }
    EXPECT_EQ(joined, TargetNames()) << "one space between names";
    EXPECT_STREQ(fusednorm_targets(), TargetNames());
  });
}

// What the list says is what the processor has.
TEST(Targets, ListIsTheProcessors) {
  InChild(nullptr, [] {
#if defined(__x86_64__)
    __builtin_cpu_init();
    EXPECT_FALSE(IsListed("neon"));
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
      EXPECT_FALSE(IsListed("avx2"));
    }
    if (!__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw")) {
      EXPECT_FALSE(IsListed("avx512"));
    }
#elif defined(__aarch64__)
    EXPECT_FALSE(IsListed("avx2") || IsListed("avx512"));
    EXPECT_TRUE(IsListed("neon"));
#endif
  });
}

TEST(Targets, DefaultIsTheBest) {
  InChild(nullptr, [] {
    EXPECT_EQ(TargetName(), Listed().front());
    ExpectAllSucceed();
    EXPECT_EQ(TargetName(), Listed().front());
  });
  InChild("", [] { EXPECT_EQ(TargetName(), Listed().front()); });
}

TEST(Targets, EnvironmentChooses) {
  for (const char* name : kAllNames) {
    InChild(name, [name] {
      if (!IsListed(name)) return;  // EnvironmentOfAnotherCpu has those.
      EXPECT_STREQ(TargetName(), name);
      EXPECT_STREQ(fusednorm_target(), name);
      ExpectAllSucceed();
    });
  }
}

// Read at first use: what becomes of the variable afterwards is no matter.
TEST(Targets, EnvironmentIsReadOnce) {
  InChild("scalar", [] {
    EXPECT_STREQ(TargetName(), "scalar");
    setenv("FUSEDNORM_TARGET", "nonsense", 1);
    EXPECT_STREQ(TargetName(), "scalar");
    ExpectAllSucceed();
  });
  InChild("nonsense", [] {
    EXPECT_STREQ(TargetName(), "");
    setenv("FUSEDNORM_TARGET", "scalar", 1);
    ExpectAllRefuse("nonsense");
  });
}

// Whether the first use is a call, or a question.
TEST(Targets, UnknownEnvironmentRefusesEveryCall) {
  for (const char* name : {"avx1024", "AVX2", "scalar ", "avx2 scalar", " "}) {
    InChild(name, [name] {
      ExpectAllRefuse(name);
      EXPECT_STREQ(TargetName(), "");
      EXPECT_STREQ(fusednorm_target(), "");
      ExpectAllRefuse(name);
    });
    InChild(name, [name] {
      EXPECT_STREQ(TargetName(), "");
      ExpectAllRefuse(name);
    });
  }
  InChild(std::string(5000, 'x').c_str(), [] { ExpectAllRefuse("xxxx"); });
}

// A name that is sound but that this machine cannot run: there always is one.
TEST(Targets, EnvironmentOfAnotherCpu) {
  for (const char* name : kAllNames) {
    InChild(name, [name] {
      if (!IsListed(name)) ExpectAllRefuse(name);
    });
  }
  InChild(nullptr, [] { EXPECT_LT(Listed().size(), std::size(kAllNames)); });
}

TEST(Targets, SetTargetEndsTheRefusal) {
  InChild("nonsense", [] {
    ExpectAllRefuse("nonsense");
    EXPECT_FALSE(SetTarget("nonsense").ok());
    ExpectAllRefuse("nonsense");
    EXPECT_TRUE(SetTarget("scalar").ok());
    EXPECT_STREQ(TargetName(), "scalar");
    ExpectAllSucceed();
  });
  InChild("nonsense", [] {
    EXPECT_TRUE(SetTarget(nullptr).ok());
    EXPECT_EQ(TargetName(), Listed().front());
    ExpectAllSucceed();
  });
}

TEST(Targets, SetTargetBeforeFirstUse) {
  InChild(nullptr, [] {
    EXPECT_TRUE(SetTarget("scalar").ok());
    EXPECT_STREQ(TargetName(), "scalar");
    ExpectAllSucceed();
  });
}

TEST(Targets, SetTargetChoosesEach) {
  InChild("scalar", [] {
    for (const std::string& name : Listed()) {
      EXPECT_TRUE(SetTarget(name.c_str()).ok());
      EXPECT_EQ(TargetName(), name);
      ExpectAllSucceed();
    }
    // Null is the best of the processor, whatever the variable says.
    EXPECT_TRUE(SetTarget(nullptr).ok());
    EXPECT_EQ(TargetName(), Listed().front());
  });
}

TEST(Targets, SetTargetRefusesOthersAndChangesNothing) {
  InChild(nullptr, [] {
    EXPECT_TRUE(SetTarget("scalar").ok());
    std::vector<std::string> others = {"", "nonsense", "SCALAR", "scalar ",
                                       TargetNames()};
    if (Listed().size() == 1) others.pop_back();  // The list is a name.
    for (const char* name : kAllNames) {
      if (!IsListed(name)) others.push_back(name);
    }
    for (const std::string& name : others) {
      const Status status = SetTarget(name.c_str());
      EXPECT_EQ(static_cast<int>(status.code()),
                static_cast<int>(StatusCode::kInvalidArgument));
      const std::string message = status.message();
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find(TargetNames()), std::string::npos) << message;
      EXPECT_STREQ(TargetName(), "scalar");
    }
    ExpectAllSucceed();
  });
}

// The same bits, whichever is chosen.
TEST(Targets, AllGiveTheSameBits) {
  InChild(nullptr, [] {
    std::vector<float> x(1000), expected(1000), out(1000);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(static_cast<int>(i * 7919 % 1009) - 500) / 77;
    }
    ASSERT_EQ(fusednorm_reference_rms_norm_f32(x.data(), nullptr,
                                               expected.data(), 8, 125, 1e-6f),
              FUSEDNORM_OK);
    for (const std::string& name : Listed()) {
      ASSERT_TRUE(SetTarget(name.c_str()).ok());
      ASSERT_EQ(
          fusednorm_rms_norm_f32(x.data(), nullptr, out.data(), 8, 125, 1e-6f),
          FUSEDNORM_OK);
      EXPECT_EQ(std::memcmp(out.data(), expected.data(), 4000), 0) << name;
    }
  });
}

}  // namespace
}  // namespace fusednorm

// Malformed calls of the post-norm, sandwich, split and backward operations are
// refused: the status says which kind, the message names the argument, and not
// one byte is written. One table says what each operation takes.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

enum class Op {
  kRmsNormAdd,
  kRmsNormAddRmsNorm,
  kRowRstd,
  kRowSumSquares,
  kRmsNormWithRstd,
  kRmsNormBackward,
  kAddRmsNormBackward,
};
constexpr Op kAllOps[] = {Op::kRmsNormAdd,        Op::kRmsNormAddRmsNorm,
                          Op::kRowRstd,           Op::kRowSumSquares,
                          Op::kRmsNormWithRstd,   Op::kRmsNormBackward,
                          Op::kAddRmsNormBackward};
const char* const kOpNames[] = {"RmsNormAdd",        "RmsNormAddRmsNorm",
                                "RowRstd",           "RowSumSquares",
                                "RmsNormWithRstd",   "RmsNormBackward",
                                "AddRmsNormBackward"};

enum Role { kInput, kWeight, kOutput, kDWeight };

// A tensor of a call. Outputs say which arguments they may lie on.
struct Argument {
  const char* name;
  Role role;
  bool required;
  std::vector<std::string> aliases;

  bool is_output() const { return role == kOutput || role == kDWeight; }
  bool is_row() const { return role == kWeight || role == kDWeight; }
};

const std::vector<Argument>& ArgumentsOf(Op op) {
  static const std::vector<Argument> all[] = {
      {{"x", kInput, true, {}},
       {"residual", kInput, true, {}},
       {"weight", kWeight, false, {}},
       {"out", kOutput, true, {"x", "residual"}}},
      {{"x", kInput, true, {}},
       {"residual", kInput, true, {}},
       {"weight_post", kWeight, false, {}},
       {"weight_pre", kWeight, false, {}},
       {"out", kOutput, true, {"x", "residual"}},
       {"residual_out", kOutput, true, {"x", "residual"}}},
      {{"x", kInput, true, {}}},
      {{"x", kInput, true, {}}},
      {{"x", kInput, true, {}},
       {"weight", kWeight, false, {}},
       {"out", kOutput, true, {"x"}}},
      {{"x", kInput, true, {}},
       {"weight", kWeight, false, {}},
       {"dy", kInput, true, {}},
       {"dx", kOutput, false, {"x", "dy"}},
       {"dweight", kDWeight, false, {}}},
      {{"h", kInput, true, {}},
       {"weight", kWeight, false, {}},
       {"dy", kInput, true, {}},
       {"d_residual_out", kInput, false, {}},
       {"dh", kOutput, false, {"h", "dy", "d_residual_out"}},
       {"dweight", kDWeight, false, {}}},
  };
  return all[static_cast<int>(op)];
}

constexpr int64_t kRows = 3;
constexpr int64_t kWidth = 8;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// All operands of a call in one arena, far from each other.
class Call {
 public:
  Call(Op op_in, DType dtype) : op(op_in) {
    for (size_t i = 0; i < kArena; ++i) {
      arena_[i] = static_cast<uint16_t>(0x3C00 + i * 37 % 512);
    }
    for (size_t k = 0; k < ArgumentsOf(op).size(); ++k) {
      void* const data = Place(static_cast<int64_t>(k));
      tensors.push_back(ArgumentsOf(op)[k].is_row()
                            ? Tensor(data, dtype, {kWidth})
                            : Tensor(data, dtype, {kRows, kWidth}));
    }
    rstd = static_cast<float*>(Place(6));
    sums = static_cast<double*>(Place(7));
    std::memcpy(before_, arena_, sizeof(arena_));
  }

  // The arena's operand `index`; each has room for f64.
  void* Place(int64_t index) { return arena_ + index * 512; }

  Tensor& operator[](const std::string& name) {
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (ArgumentsOf(op)[k].name == name) return tensors[k];
    }
    ADD_FAILURE() << "no argument " << name;
    return tensors[0];
  }

  Status Run(const Implementation& implementation) const {
    const bool r = implementation.target.empty();
    const std::vector<Tensor>& t = tensors;
    switch (op) {
      case Op::kRmsNormAdd:
        return (r ? reference::RmsNormAdd : RmsNormAdd)(t[0], t[1], t[2], t[3],
                                                        options);
      case Op::kRmsNormAddRmsNorm:
        return (r ? reference::RmsNormAddRmsNorm : RmsNormAddRmsNorm)(
            t[0], t[1], t[2], t[3], t[4], t[5], options);
      case Op::kRowRstd:
        return (r ? reference::RowRstd : RowRstd)(t[0], rstd, options);
      case Op::kRowSumSquares:
        return (r ? reference::RowSumSquares : RowSumSquares)(t[0], sums,
                                                              options);
      case Op::kRmsNormWithRstd:
        return (r ? reference::RmsNormWithRstd : RmsNormWithRstd)(
            t[0], rstd, t[1], t[2], options);
      case Op::kRmsNormBackward:
        return (r ? reference::RmsNormBackward : RmsNormBackward)(
            t[0], t[1], t[2], t[3], t[4], options);
      case Op::kAddRmsNormBackward:
        return (r ? reference::AddRmsNormBackward : AddRmsNormBackward)(
            t[0], t[1], t[2], t[3], t[4], t[5], options);
    }
    return Status(StatusCode::kInternal, "no such operation");
  }

  bool Unchanged() const {
    return std::memcmp(arena_, before_, sizeof(arena_)) == 0;
  }

  Op op;
  std::vector<Tensor> tensors;
  float* rstd;
  double* sums;
  Options options;

 private:
  static constexpr size_t kArena = 8 * 512;
  alignas(64) uint16_t arena_[kArena];
  uint16_t before_[kArena];
};

// Whole words only, so that "out" is not found in "residual_out".
bool HasWord(const std::string& text, const std::string& word) {
  const auto is_word = [&](size_t i) {
    return i < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[i])) != 0 ||
            text[i] == '_');
  };
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + 1)) {
    const bool begins = at == 0 || !is_word(at - 1);
    if (begins && !is_word(at + word.size())) return true;
  }
  return false;
}

using Bend = std::function<void(Call&)>;

// Every implementation refuses the call, bent in this way, and names `word`
// ("": one of several).
void ExpectRefused(Op op, DType dtype, const std::string& fault,
                   const std::string& word, StatusCode code, const Bend& bend) {
  ForEachImplementation([&](const Implementation& implementation) {
    Call call(op, dtype);
    bend(call);
    const Status status = call.Run(implementation);
    const std::string message = status.message();
    const std::string what = std::string(kOpNames[static_cast<int>(op)]) +
                             ", " + Name(dtype) + ", " + fault + ": " + message;
    EXPECT_EQ(static_cast<int>(status.code()), static_cast<int>(code)) << what;
    EXPECT_TRUE(word.empty() || HasWord(message, word)) << what;
    EXPECT_FALSE(message.empty()) << what;
    EXPECT_TRUE(call.Unchanged()) << what;
  });
}

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

// Every operation and argument with this fault of its view. f64 takes part
// where the operation has it.
void ExpectViewRefused(
    const std::string& fault, StatusCode code,
    const std::function<void(Tensor&)>& bend,
    const std::function<bool(const Argument&)>& applies = [](const Argument&) {
      return true;
    }) {
  for (Op op : kAllOps) {
    for (const Argument& argument : ArgumentsOf(op)) {
      if (!applies(argument)) continue;
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        // What x lacks, others may be blamed for.
        const bool first = &argument == &ArgumentsOf(op)[0];
        ExpectRefused(op, dtype, std::string(argument.name) + " " + fault,
                      first ? "" : argument.name, code,
                      [&](Call& call) { bend(call[argument.name]); });
      }
    }
  }
}

TEST(BlockErrors, NothingIsWrongWithTheCall) {
  for (Op op : kAllOps) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      ForEachImplementation([&](const Implementation& implementation) {
        Call call(op, dtype);
        EXPECT_STATUS_OK(call.Run(implementation));
        EXPECT_FALSE(call.Unchanged());
      });
    }
  }
}

// ------------------------------------------------------------------- views

TEST(BlockErrors, Data) {
  ExpectViewRefused("null", kInvalid, [](Tensor& t) { t.data = nullptr; });
  ExpectViewRefused("misaligned", kInvalid,
                    [](Tensor& t) { t.data = static_cast<char*>(t.data) + 1; });
  ExpectViewRefused(
      "missing", kInvalid, [](Tensor& t) { t = Tensor(); },
      [](const Argument& a) { return a.required; });
}

TEST(BlockErrors, Rank) {
  for (int32_t rank : {-1, 0, 5, 1 << 30}) {
    ExpectViewRefused("rank " + std::to_string(rank), kInvalid,
                      [&](Tensor& t) { t.rank = rank; });
  }
}

TEST(BlockErrors, Shape) {
  const auto is_row = [](const Argument& a) { return a.is_row(); };
  const auto not_x = [](const Argument& a) {
    return !a.is_row() && std::string(a.name) != "x" &&
           std::string(a.name) != "h";
  };
  for (int64_t width : {int64_t{0}, int64_t{-1}, -kMax}) {
    ExpectViewRefused("width " + std::to_string(width), kInvalid,
                      [&](Tensor& t) { t.shape[t.rank - 1] = width; });
  }
  for (int64_t width : {kWidth - 1, kWidth + 1}) {
    for (const auto& applies : {std::function<bool(const Argument&)>(is_row),
                                std::function<bool(const Argument&)>(not_x)}) {
      ExpectViewRefused(
          "width " + std::to_string(width), kInvalid,
          [&](Tensor& t) { t.shape[t.rank - 1] = width; }, applies);
    }
  }
  for (int64_t rows : {int64_t{-3}, int64_t{0}, int64_t{1}, kRows + 1}) {
    ExpectViewRefused(
        "rows " + std::to_string(rows), kInvalid,
        [&](Tensor& t) { t.shape[0] = rows; }, not_x);
  }
  ExpectViewRefused(
      "rank 3", kInvalid,
      [](Tensor& t) {
        t = Tensor(t.data, t.dtype, {kRows, 1, kWidth});
      },
      not_x);
  // A weight is one row, or has x's rank.
  for (int64_t rows : {int64_t{0}, int64_t{2}, kRows + 1}) {
    ExpectViewRefused(
        "leading axis", kInvalid,
        [&](Tensor& t) {
          t = Tensor(t.data, t.dtype, {rows, kWidth});
        },
        is_row);
  }
  ExpectViewRefused(
      "three axes", kInvalid,
      [](Tensor& t) {
        t = Tensor(t.data, t.dtype, {1, 1, kWidth});
      },
      is_row);
}

TEST(BlockErrors, Strides) {
  ExpectViewRefused("last stride", kInvalid,
                    [](Tensor& t) { t.strides[t.rank - 1] = 2; });
  ExpectViewRefused("last stride", kInvalid,
                    [](Tensor& t) { t.strides[t.rank - 1] = 0; });
  const auto has_rows = [](const Argument& a) { return !a.is_row(); };
  ExpectViewRefused(
      "negative stride", kInvalid, [](Tensor& t) { t.strides[0] = -kWidth; },
      has_rows);
  ExpectViewRefused(
      "overflowing stride", kInvalid,
      [](Tensor& t) { t.strides[0] = kMax / 2; }, has_rows);
}

TEST(BlockErrors, DTypes) {
  for (int32_t dtype : {-1, 7, 1000}) {
    ExpectViewRefused("dtype " + std::to_string(dtype), kInvalid,
                      [&](Tensor& t) { t.dtype = static_cast<DType>(dtype); });
  }
  for (DType dtype : {DType::kI8, DType::kF8E4M3, DType::kQ8_0}) {
    ExpectViewRefused("quantised", kUnsupported,
                      [&](Tensor& t) { t.dtype = dtype; });
  }
  // f64 is for all or for none; dweight alone may sum up in it.
  for (Op op : kAllOps) {
    for (const Argument& argument : ArgumentsOf(op)) {
      if (ArgumentsOf(op).size() == 1) continue;
      if (argument.role != kDWeight) {
        ExpectRefused(
            op, DType::kF32, "one f64", "", kUnsupported,
            [&](Call& call) { call[argument.name].dtype = DType::kF64; });
      }
      if (op == Op::kRmsNormWithRstd) continue;  // Has no f64 at all.
      ExpectRefused(
          op, DType::kF64, "one f32", "", kUnsupported,
          [&](Call& call) { call[argument.name].dtype = DType::kF32; });
    }
  }
  ExpectRefused(Op::kRmsNormAddRmsNorm, DType::kBF16, "two streams",
                "residual_out", kInvalid,
                [](Call& call) { call["residual_out"].dtype = DType::kF16; });
}

// --------------------------------------------------------- values per row

TEST(BlockErrors, ValuesPerRow) {
  ExpectRefused(Op::kRowRstd, DType::kF32, "null", "rstd", kInvalid,
                [](Call& call) { call.rstd = nullptr; });
  ExpectRefused(Op::kRowSumSquares, DType::kF32, "null", "sum_squares",
                kInvalid, [](Call& call) { call.sums = nullptr; });
  ExpectRefused(Op::kRmsNormWithRstd, DType::kF32, "null", "rstd", kInvalid,
                [](Call& call) { call.rstd = nullptr; });
  for (Op op : {Op::kRowRstd, Op::kRmsNormWithRstd, Op::kRowSumSquares}) {
    const char* name = op == Op::kRowSumSquares ? "sum_squares" : "rstd";
    ExpectRefused(
        op, DType::kF32, "misaligned", name, kInvalid, [](Call& call) {
          call.rstd =
              reinterpret_cast<float*>(reinterpret_cast<char*>(call.rstd) + 2);
          call.sums =
              reinterpret_cast<double*>(reinterpret_cast<char*>(call.sums) + 4);
        });
  }
  // What is written may lie on nothing, and what is read on no output.
  ExpectRefused(
      Op::kRowRstd, DType::kF32, "rstd on x", "rstd", kInvalid,
      [](Call& call) { call.rstd = static_cast<float*>(call["x"].data) + 23; });
  ExpectRefused(
      Op::kRowSumSquares, DType::kF32, "sums on x", "sum_squares", kInvalid,
      [](Call& call) { call.sums = static_cast<double*>(call["x"].data); });
  ExpectRefused(Op::kRmsNormWithRstd, DType::kF32, "rstd on out", "rstd",
                kInvalid, [](Call& call) {
                  call.rstd = static_cast<float*>(call["out"].data) + 23;
                });
}

TEST(BlockErrors, OptionRstd) {
  // An option of RmsNormAdd (written) and of the backward operations (read).
  for (Op op :
       {Op::kRmsNormAdd, Op::kRmsNormBackward, Op::kAddRmsNormBackward}) {
    ExpectRefused(
        op, DType::kF32, "misaligned rstd", "rstd", kInvalid, [](Call& call) {
          call.options.rstd =
              reinterpret_cast<float*>(reinterpret_cast<char*>(call.rstd) + 1);
        });
    ExpectRefused(op, DType::kF64, "rstd", "rstd", kUnsupported,
                  [](Call& call) { call.options.rstd = call.rstd; });
    const char* out = op == Op::kRmsNormAdd        ? "out"
                      : op == Op::kRmsNormBackward ? "dx"
                                                   : "dh";
    ExpectRefused(op, DType::kF32, "rstd on an output", "rstd", kInvalid,
                  [&](Call& call) {
                    call.options.rstd = static_cast<float*>(call[out].data);
                  });
  }
  for (Op op : {Op::kRmsNormBackward, Op::kAddRmsNormBackward}) {
    ExpectRefused(
        op, DType::kF32, "rstd on dweight", "rstd", kInvalid, [](Call& call) {
          call.options.rstd = static_cast<float*>(call["dweight"].data);
        });
  }
  ExpectRefused(Op::kRmsNormAdd, DType::kF32, "rstd on the weight", "rstd",
                kInvalid, [](Call& call) {
                  call.options.rstd = static_cast<float*>(call["weight"].data);
                });
  // The sandwich has two; the others take theirs as an argument, or none.
  for (Op op : {Op::kRmsNormAddRmsNorm, Op::kRowRstd, Op::kRowSumSquares,
                Op::kRmsNormWithRstd}) {
    ExpectRefused(op, DType::kF32, "rstd", "rstd", kUnsupported,
                  [](Call& call) { call.options.rstd = call.rstd + 16; });
  }
}

// The statistic is f32: there is none of f64 rows. Their sum of squares is.
TEST(BlockErrors, StatisticOfF64) {
  for (Op op : {Op::kRowRstd, Op::kRmsNormWithRstd}) {
    ExpectRefused(op, DType::kF64, "rstd", "rstd", kUnsupported, [](Call&) {});
  }
  ForEachImplementation([](const Implementation& implementation) {
    for (Op op : kAllOps) {
      if (op == Op::kRowRstd || op == Op::kRmsNormWithRstd) continue;
      Call call(op, DType::kF64);
      EXPECT_STATUS_OK(call.Run(implementation));
    }
  });
}

// ----------------------------------------------------------------- options

TEST(BlockErrors, Options) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  struct Fault {
    const char* word;
    StatusCode code;
    std::function<void(Options&)> bend;
  };
  static float scale[kRows];
  const std::vector<Fault> faults = {
      {"eps", kInvalid, [](Options& o) { o.eps = -1; }},
      {"eps", kInvalid, [](Options& o) { o.eps = kInf; }},
      {"eps", kInvalid, [](Options& o) { o.eps = NAN; }},
      {"weight_offset", kInvalid, [](Options& o) { o.weight_offset = kInf; }},
      {"weight_offset", kInvalid, [](Options& o) { o.weight_offset = NAN; }},
      {"residual_scale", kInvalid, [](Options& o) { o.residual_scale = kInf; }},
      {"residual_scale", kInvalid, [](Options& o) { o.residual_scale = NAN; }},
      {"rounding", kInvalid,
       [](Options& o) { o.rounding = static_cast<Rounding>(2); }},
      {"sum", kInvalid, [](Options& o) { o.sum = static_cast<Sum>(-1); }},
      {"sum", kInvalid, [](Options& o) { o.sum = static_cast<Sum>(3); }},
      {"nontemporal", kInvalid,
       [](Options& o) { o.nontemporal = static_cast<Nontemporal>(3); }},
      {"num_threads", kInvalid, [](Options& o) { o.num_threads = -1; }},
      {"scale", kUnsupported, [](Options& o) { o.scale = scale; }},
  };
  for (Op op : kAllOps) {
    for (const Fault& fault : faults) {
      ExpectRefused(op, DType::kF32, fault.word, fault.word, fault.code,
                    [&](Call& call) { fault.bend(call.options); });
    }
  }
}

// The sandwich's residual is added as it is.
TEST(BlockErrors, SandwichRefusesAScale) {
  for (float scale : {0.0f, 0.5f, -1.0f, std::nextafter(1.0f, 2.0f)}) {
    ExpectRefused(Op::kRmsNormAddRmsNorm, DType::kBF16, "scale",
                  "residual_scale", kUnsupported,
                  [&](Call& call) { call.options.residual_scale = scale; });
  }
}

// ---------------------------------------------------------------- overlaps

// Every output against every other tensor: one on the other, unless the header
// lists the pair, and shifted by one element, by one row, or by less.
TEST(BlockErrors, Overlaps) {
  for (Op op : kAllOps) {
    for (const Argument& output : ArgumentsOf(op)) {
      if (!output.is_output()) continue;
      for (const Argument& other : ArgumentsOf(op)) {
        if (&other == &output) continue;
        bool listed = false;
        for (const std::string& name : output.aliases) {
          listed = listed || name == other.name;
        }
        for (int64_t shift : {0, 1, 7, 8, 9}) {
          const bool same = shift == 0 && listed;
          if (same) continue;
          // A row-like tensor at element 8 of another ends before or meets it.
          const bool rows = output.is_row() && other.is_row();
          if (rows && shift >= kWidth) continue;
          if (!output.is_row() && other.is_row() && shift > 0) continue;
          ExpectRefused(op, DType::kF32,
                        std::string(output.name) + " on " + other.name + " + " +
                            std::to_string(shift),
                        "overlaps", kInvalid, [&](Call& call) {
                          call[output.name].data =
                              static_cast<float*>(call[other.name].data) +
                              shift;
                        });
        }
      }
    }
  }
}

// A legal alias has the same pointer, dtype, shape and strides.
TEST(BlockErrors, AliasesOfAnotherView) {
  for (Op op : kAllOps) {
    for (const Argument& output : ArgumentsOf(op)) {
      for (const std::string& alias : output.aliases) {
        const auto bent = [&](const Bend& bend) {
          return [&, bend](Call& call) {
            call[output.name] = call[alias];
            bend(call);
          };
        };
        ExpectRefused(
            op, DType::kBF16, "alias of another dtype", "", kInvalid,
            bent([&](Call& call) { call[output.name].dtype = DType::kF16; }));
        ExpectRefused(op, DType::kBF16, "alias of other strides", "", kInvalid,
                      bent([&](Call& call) {
                        call[output.name].strides[0] = kWidth + 1;
                      }));
      }
    }
  }
}

TEST(BlockErrors, OutputsThatOverlapThemselves) {
  ExpectViewRefused(
      "repeats a row", kInvalid, [](Tensor& t) { t.strides[0] = 0; },
      [](const Argument& a) { return a.role == kOutput; });
  ExpectViewRefused(
      "rows overlap", kInvalid, [](Tensor& t) { t.strides[0] = kWidth - 1; },
      [](const Argument& a) { return a.role == kOutput; });
  for (Op op : {Op::kRmsNormBackward, Op::kAddRmsNormBackward}) {
    for (int64_t stride : {int64_t{0}, kWidth - 1}) {
      ExpectRefused(
          op, DType::kF32, "dweight repeats a row", "dweight", kInvalid,
          [&](Call& call) {
            for (const char* name : {"weight", "dweight"}) {
              Tensor& t = call[name];
              t = Tensor(t.data, t.dtype, {kRows, kWidth}, {stride, 1});
            }
          });
    }
  }
}

// Inputs may overlap each other, and repeat rows.
TEST(BlockErrors, InputsMayOverlap) {
  for (Op op : kAllOps) {
    ForEachImplementation([&](const Implementation& implementation) {
      Call call(op, DType::kF32);
      for (const Argument& argument : ArgumentsOf(op)) {
        Tensor& tensor = call[argument.name];
        if (argument.role == kInput) {
          tensor.data = call.tensors[0].data;
          tensor.strides[0] = argument.name[0] == 'd' ? 0 : 3;
        }
        if (argument.role == kWeight) tensor.data = call.tensors[0].data;
      }
      EXPECT_STATUS_OK(call.Run(implementation));
    });
  }
}

// ----------------------------------------------------------------- dweight

TEST(BlockErrors, DWeight) {
  for (Op op : {Op::kRmsNormBackward, Op::kAddRmsNormBackward}) {
    // f32, f64 or the weight's dtype.
    for (DType weight : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (DType dweight : {DType::kBF16, DType::kF16}) {
        if (weight == dweight) continue;
        ExpectRefused(op, DType::kBF16, "dweight's dtype", "dweight",
                      kUnsupported, [&](Call& call) {
                        call["weight"].dtype = weight;
                        call["dweight"].dtype = dweight;
                      });
      }
    }
    ExpectRefused(op, DType::kBF16, "16 bits without a weight", "dweight",
                  kUnsupported, [](Call& call) { call["weight"] = Tensor(); });
    ExpectRefused(op, DType::kF64, "f32 of f64", "dweight", kUnsupported,
                  [](Call& call) { call["dweight"].dtype = DType::kF32; });
    // The weight's shape.
    ExpectRefused(op, DType::kF32, "dweight per row", "dweight", kInvalid,
                  [](Call& call) {
                    Tensor& t = call["dweight"];
                    t = Tensor(t.data, t.dtype, {kRows, kWidth});
                  });
    ExpectRefused(op, DType::kF32, "weight per row", "dweight", kInvalid,
                  [](Call& call) {
                    Tensor& t = call["weight"];
                    t = Tensor(t.data, t.dtype, {kRows, kWidth});
                  });
    // What is sound: every dtype that is offered, and any weight's shape.
    ForEachImplementation([&](const Implementation& implementation) {
      for (DType x : kFloatDTypes) {
        for (DType weight : kFloatDTypes) {
          for (DType dweight : {DType::kF32, DType::kF64, weight}) {
            Call call(op, x);
            call["weight"].dtype = weight;
            call["dweight"].dtype = dweight;
            EXPECT_STATUS_OK(call.Run(implementation));
          }
        }
        Call call(op, x);
        call["weight"] = Tensor();
        Tensor& t = call["dweight"];
        for (const Tensor& shape :
             {Tensor(t.data, DType::kF32, {kWidth}),
              Tensor(t.data, DType::kF32, {1, kWidth}),
              Tensor(t.data, DType::kF32, {kRows, kWidth})}) {
          t = shape;
          EXPECT_STATUS_OK(call.Run(implementation));
        }
      }
    });
  }
}

// ----------------------------------------------------------------- no rows

// Sound arguments without rows succeed, with or without data, and write
// nothing (dweight apart); they excuse nothing else.
TEST(BlockErrors, NoRows) {
  for (Op op : kAllOps) {
    ForEachImplementation([&](const Implementation& implementation) {
      for (bool data : {true, false}) {
        for (bool outer : {true, false}) {
          Call call(op, DType::kF32);
          for (const Argument& argument : ArgumentsOf(op)) {
            Tensor& t = call[argument.name];
            if (argument.role == kDWeight) t = Tensor();
            if (argument.is_row()) continue;
            void* const at = data ? t.data : nullptr;
            t = outer ? Tensor(at, t.dtype, {0, 2, kWidth})
                      : Tensor(at, t.dtype, {2, 0, kWidth});
          }
          EXPECT_STATUS_OK(call.Run(implementation));
          EXPECT_TRUE(call.Unchanged());
          call.options.eps = -1;
          EXPECT_FALSE(call.Run(implementation).ok());
          EXPECT_TRUE(call.Unchanged());
        }
      }
    });
  }
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

// Malformed calls are refused: the status says which kind, the message names
// the argument and its value, and not one byte is written. Overlaps of tensors
// have overlap_test.cc; accepted_test.cc has what only looks malformed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "operands.h"
#include "refusal.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ------------------------------------------------------------------- views

TEST(Errors, NullData) {
  ExpectAllRefused(Uniform(DType::kF32), [](Op op) {
    std::vector<Fault> faults;
    for (const Argument& argument : ArgumentsOf(op)) {
      faults.push_back(ViewFault(argument, "null data",
                                 [](Tensor* t) { t->data = nullptr; },
                                 {"null"}));
    }
    return faults;
  });
}

TEST(Errors, MissingTensor) {
  ExpectAllRefused(Uniform(DType::kF32), [](Op op) {
    std::vector<Fault> faults;
    for (const Argument& argument : ArgumentsOf(op)) {
      const std::string name = argument.name;
      if (name == "weight" || name == "residual_out") continue;  // Optional.
      faults.push_back(
          ViewFault(argument, "missing", [](Tensor* t) { *t = {}; }, {}));
    }
    return faults;
  });
}

TEST(Errors, Rank) {
  ExpectAllRefused(Uniform(DType::kBF16), [](Op op) {
    std::vector<Fault> faults;
    for (const Argument& argument : ArgumentsOf(op)) {
      for (const int rank : {-1, 0, 5, 1 << 30}) {
        const std::string value = std::to_string(rank);
        faults.push_back(ViewFault(argument, "rank " + value,
                                   [rank](Tensor* t) { t->rank = rank; },
                                   {"rank", value}));
      }
    }
    return faults;
  });
}

TEST(Errors, Width) {
  ExpectAllRefused(Uniform(DType::kF16), [](Op op) {
    std::vector<Fault> faults;
    for (const int64_t width : {int64_t{0}, int64_t{-1}, -kMax}) {
      const std::string value = std::to_string(width);
      faults.push_back({"all widths " + value,
                        [width](Views* call) {
                          call->weight.shape[0] = width;
                          for (const Argument& a : ArgumentsOf(call->op)) {
                            Tensor& tensor = call->*a.tensor;
                            tensor.shape[tensor.rank - 1] = width;
                          }
                        },
                        StatusCode::kInvalidArgument,
                        "",
                        {value}});
      for (const Argument& argument : ArgumentsOf(op)) {
        if (std::string(argument.name) == "x") continue;
        faults.push_back(ViewFault(
            argument, "width " + value,
            [width](Tensor* t) { t->shape[t->rank - 1] = width; }, {value}));
      }
    }
    return faults;
  });
}

TEST(Errors, NegativeShape) {
  ExpectAllRefused(Uniform(DType::kF32), [](Op) {
    std::vector<Fault> faults;
    for (const int64_t rows : {int64_t{-1}, int64_t{-3}, -kMax}) {
      faults.push_back({"rows " + std::to_string(rows),
                        [rows](Views* call) {
                          call->x.shape[0] = rows;
                          call->out.shape[0] = rows;
                          call->residual.shape[0] = rows;
                          call->residual_out.shape[0] = rows;
                        },
                        StatusCode::kInvalidArgument,
                        "",
                        {std::to_string(rows)}});
    }
    return faults;
  });
}

TEST(Errors, ShapeMismatch) {
  ExpectAllRefused(Uniform(DType::kBF16), [](Op op) {
    std::vector<Fault> faults;
    for (const Argument& argument : ArgumentsOf(op)) {
      const std::string name = argument.name;
      if (name == "x") continue;  // The one the others are held against.
      faults.push_back(ViewFault(
          argument, "narrower",
          [](Tensor* t) { t->shape[t->rank - 1] = kWidth - 1; }, {"7"}));
      faults.push_back(ViewFault(
          argument, "wider",
          [](Tensor* t) { t->shape[t->rank - 1] = kWidth + 1; }, {"9"}));
      if (name == "weight") continue;
      faults.push_back(ViewFault(argument, "fewer rows",
                                 [](Tensor* t) { t->shape[0] = 2; }, {"2"}));
      faults.push_back(ViewFault(argument, "one row",
                                 [](Tensor* t) { t->shape[0] = 1; }, {"1"}));
      faults.push_back(ViewFault(argument, "no rows",
                                 [](Tensor* t) { t->shape[0] = 0; }, {"0"}));
      // The same rows, in another rank.
      faults.push_back(
          ViewFault(argument, "rank 3",
                    [](Tensor* t) {
                      *t = Tensor(t->data, t->dtype, {kRows, 1, kWidth});
                    },
                    {}));
      faults.push_back(ViewFault(
          argument, "rank 1",
          [](Tensor* t) { *t = Tensor(t->data, t->dtype, {kWidth}); }, {}));
    }
    return faults;
  });
}

// A weight is one row, or has x's rank with leading axes of x's size or 1.
TEST(Errors, WeightShape) {
  ExpectAllRefused(Uniform(DType::kF32), [](Op) {
    std::vector<Fault> faults;
    const auto add = [&](std::initializer_list<int64_t> shape) {
      faults.push_back(
          ViewFault(kArguments[2], Name(std::vector<int64_t>(shape)),
                    [shape = std::vector<int64_t>(shape)](Tensor* t) {
                      t->rank = static_cast<int32_t>(shape.size());
                      for (size_t axis = 0; axis < shape.size(); ++axis) {
                        t->shape[axis] = shape[axis];
                        t->strides[axis] = axis + 1 == shape.size() ? 1 : 0;
                      }
                    },
                    {}));
    };
    add({2, kWidth});
    add({0, kWidth});
    add({4, kWidth});
    add({1, 1, kWidth});
    add({1, kRows, kWidth});
    add({1, 1, 1, kWidth});
    add({kWidth, 1});
    return faults;
  });
}

TEST(Errors, Strides) {
  ExpectAllRefused(Uniform(DType::kF16), [](Op op) {
    std::vector<Fault> faults;
    for (const Argument& argument : ArgumentsOf(op)) {
      for (const int64_t stride : {int64_t{0}, int64_t{2}, int64_t{-1}, kMax}) {
        const std::string value = std::to_string(stride);
        faults.push_back(
            ViewFault(argument, "last stride " + value,
                      [stride](Tensor* t) { t->strides[t->rank - 1] = stride; },
                      {"stride", value}));
      }
      if (std::string(argument.name) == "weight") continue;
      for (const int64_t stride : {int64_t{-8}, int64_t{-1}, -kMax}) {
        const std::string value = std::to_string(stride);
        faults.push_back(
            ViewFault(argument, "row stride " + value,
                      [stride](Tensor* t) { t->strides[0] = stride; },
                      {"stride", value}));
      }
    }
    return faults;
  });
}

TEST(Errors, SizeOverflow) {
  ExpectAllRefused(Uniform(DType::kF32), [](Op op) {
    std::vector<Fault> faults;
    for (const Argument& argument : ArgumentsOf(op)) {
      if (std::string(argument.name) == "weight") continue;
      // Elements past the last int64, bytes past it, bytes past the address
      // space that the pointer has before it.
      for (const int64_t stride : {kMax, kMax / 2, kMax / 4, kMax / 8}) {
        faults.push_back(
            ViewFault(argument, "row stride " + std::to_string(stride),
                      [stride](Tensor* t) { t->strides[0] = stride; }, {}));
      }
    }
    // Too many rows, or too wide rows, in every tensor alike.
    const auto all = [&](const char* name, std::vector<int64_t> shape) {
      faults.push_back(
          {name,
           [shape](Views* call) {
             for (const Argument& argument : ArgumentsOf(call->op)) {
               if (std::string(argument.name) == "weight") continue;
               Tensor& tensor = call->*argument.tensor;
               tensor.rank = static_cast<int32_t>(shape.size());
               for (size_t axis = 0; axis < shape.size(); ++axis) {
                 tensor.shape[axis] = shape[axis];
                 // Inputs repeat one row; outputs have every row apart.
                 tensor.strides[axis] = axis + 1 == shape.size() ? 1
                                        : argument.output        ? kWidth
                                                                 : 0;
               }
             }
             call->weight = Tensor();
           },
           StatusCode::kInvalidArgument,
           "",
           {}});
    };
    all("2^62 rows", {int64_t{1} << 62, kWidth});
    all("2^64 rows", {int64_t{1} << 32, int64_t{1} << 32, kWidth});
    all("2^63 - 1 wide", {1, kMax});
    all("2^61 wide", {1, int64_t{1} << 61});
    return faults;
  });
}

TEST(Errors, Misaligned) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    ExpectAllRefused(Uniform(dtype), [&](Op op) {
      std::vector<Fault> faults;
      for (const Argument& argument : ArgumentsOf(op)) {
        for (int64_t bytes = 1; bytes < SizeOf(dtype); ++bytes) {
          faults.push_back(ViewFault(
              argument, Name(dtype) + " + " + std::to_string(bytes) + " bytes",
              [bytes](Tensor* t) {
                t->data = static_cast<char*>(t->data) + bytes;
              },
              {"align"}));
        }
      }
      return faults;
    });
  }
}

// ------------------------------------------------------------------ dtypes

TEST(Errors, UnknownDType) {
  ExpectAllRefused(Uniform(DType::kF32), [](Op op) {
    std::vector<Fault> faults;
    for (const Argument& argument : ArgumentsOf(op)) {
      for (const int dtype : {-1, 7, 100, 1 << 30}) {
        const std::string value = std::to_string(dtype);
        faults.push_back(ViewFault(
            argument, "dtype " + value,
            [dtype](Tensor* t) { t->dtype = static_cast<DType>(dtype); },
            {"dtype", value}));
      }
    }
    return faults;
  });
}

TEST(Errors, DTypeNotOffered) {
  for (const DType base : {DType::kF32, DType::kBF16}) {
    ExpectAllRefused(Uniform(base), [](Op op) {
      std::vector<Fault> faults;
      for (const Argument& argument : ArgumentsOf(op)) {
        for (const DType dtype : {DType::kI8, DType::kF8E4M3, DType::kQ8_0}) {
          // Alone, residual_out would have another dtype than residual.
          if (argument.tensor == &Views::residual_out) continue;
          faults.push_back(ViewFault(
              argument, Name(dtype), [dtype](Tensor* t) { t->dtype = dtype; },
              {}, StatusCode::kUnsupported));
        }
      }
      return faults;
    });
  }
}

// f64 is for all tensors of a call or for none, and has no rstd.
TEST(Errors, MixedF64) {
  ExpectAllRefused(Uniform(DType::kF32), [](Op op) {
    std::vector<Fault> faults;
    for (const Argument& argument : ArgumentsOf(op)) {
      if (argument.tensor == &Views::residual_out) continue;
      faults.push_back(ViewFault(
          argument, "f64", [](Tensor* t) { t->dtype = DType::kF64; }, {},
          StatusCode::kUnsupported));
      faults.back().argument = "";  // It and the others are at odds.
    }
    return faults;
  });
  for (const DType other : {DType::kF32, DType::kBF16, DType::kF16}) {
    ExpectAllRefused(Uniform(DType::kF64), [&](Op op) {
      std::vector<Fault> faults;
      for (const Argument& argument : ArgumentsOf(op)) {
        if (argument.tensor == &Views::residual_out) continue;
        faults.push_back(ViewFault(
            argument, Name(other), [other](Tensor* t) { t->dtype = other; }, {},
            StatusCode::kUnsupported));
        faults.back().argument = "";
      }
      return faults;
    });
  }
}

TEST(Errors, F64HasNoRstd) {
  static float rstd[kRows];
  ExpectAllRefused(Uniform(DType::kF64), [](Op) {
    return std::vector<Fault>{{"rstd",
                               [](Views* call) { call->options.rstd = rstd; },
                               StatusCode::kUnsupported,
                               "rstd",
                               {}}};
  });
}

TEST(Errors, StreamHasOneDType) {
  ExpectAllRefused(Uniform(DType::kF32), [](Op op) {
    std::vector<Fault> faults;
    if (op != Op::kAddRmsNorm) return faults;
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      faults.push_back(ViewFault(kArguments[4], Name(dtype),
                                 [dtype](Tensor* t) { t->dtype = dtype; }, {}));
    }
    return faults;
  });
}

// ----------------------------------------------------------------- options

Fault OptionFault(const std::string& option, const std::string& value,
                  const std::function<void(Options*)>& bend,
                  StatusCode code = StatusCode::kInvalidArgument) {
  return {option + " " + value,
          [bend](Views* call) { bend(&call->options); },
          code,
          option,
          {value}};
}

TEST(Errors, FloatOptions) {
  const auto faults = [](Op op) {
    std::vector<Fault> all;
    for (const float eps : {-1.0f, -kInfinity, kInfinity, kNan}) {
      all.push_back(OptionFault("eps",
                                std::isnan(eps)   ? "nan"
                                : std::isinf(eps) ? "inf"
                                                  : "-1",
                                [eps](Options* o) { o->eps = eps; }));
    }
    all.push_back(
        OptionFault("eps", "-", [](Options* o) { o->eps = -1e-45f; }));
    for (const float value : {kInfinity, -kInfinity, kNan}) {
      const char* const text = std::isnan(value) ? "nan" : "inf";
      all.push_back(OptionFault("weight_offset", text, [value](Options* o) {
        o->weight_offset = value;
      }));
      if (op != Op::kAddRmsNorm) continue;
      all.push_back(OptionFault("residual_scale", text, [value](Options* o) {
        o->residual_scale = value;
      }));
    }
    return all;
  };
  ExpectAllRefused(Uniform(DType::kF32), faults);
  ExpectAllRefused(Uniform(DType::kBF16), faults);
}

TEST(Errors, UnknownOptions) {
  ExpectAllRefused(Uniform(DType::kF16), [](Op) {
    std::vector<Fault> faults;
    for (const int value : {-1, 3, 100, 1 << 30}) {
      const std::string text = std::to_string(value);
      faults.push_back(OptionFault("rounding", text, [value](Options* o) {
        o->rounding = static_cast<Rounding>(value);
      }));
      faults.push_back(OptionFault("sum", text, [value](Options* o) {
        o->sum = static_cast<Sum>(value);
      }));
      faults.push_back(OptionFault("nontemporal", text, [value](Options* o) {
        o->nontemporal = static_cast<Nontemporal>(value);
      }));
    }
    faults.push_back(OptionFault("rounding", "2", [](Options* o) {
      o->rounding = static_cast<Rounding>(2);
    }));
    faults.push_back(OptionFault("num_threads", "-1",
                                 [](Options* o) { o->num_threads = -1; }));
    return faults;
  });
}

// Scales belong to quantised outputs.
TEST(Errors, Scale) {
  static float scale[kRows];
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    ExpectAllRefused(Uniform(dtype), [](Op) {
      return std::vector<Fault>{
          {"scale",
           [](Views* call) { call->options.scale = scale; },
           StatusCode::kUnsupported,
           "scale",
           {}}};
    });
  }
}

TEST(Errors, MisalignedRstd) {
  static float rstd[kRows + 1];
  ExpectAllRefused(Uniform(DType::kBF16), [](Op) {
    std::vector<Fault> faults;
    for (int bytes = 1; bytes < 4; ++bytes) {
      faults.push_back(OptionFault("rstd", "align", [bytes](Options* o) {
        o->rstd =
            reinterpret_cast<float*>(reinterpret_cast<char*>(rstd) + bytes);
      }));
    }
    return faults;
  });
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

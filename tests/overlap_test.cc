// Which tensors may share memory. Overlaps are judged by the byte ranges of the
// views, or row by row where their leading strides are the same in bytes. What
// is refused is not written; what is accepted has the bits of separate buffers
// (here for disjoint views; alias_test.cc has the aliases).
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "operands.h"
#include "test_support.h"

namespace fusednorm {
namespace test {
namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kWidth = 8;

// Memory that all views of a call lie in, by byte offsets.
class Arena {
 public:
  Arena() {
    Random random(7);
    for (uint16_t& half : memory_) {
      // Finite in every dtype.
      half = static_cast<uint16_t>(0x3C00 + random.Uniform(0, 511));
    }
    before_.assign(std::begin(memory_), std::end(memory_));
  }

  Tensor View(DType dtype, int64_t byte_offset,
              const std::vector<int64_t>& shape,
              const std::vector<int64_t>& strides) {
    Tensor view;
    view.data = reinterpret_cast<char*>(memory_) + byte_offset;
    view.dtype = dtype;
    view.rank = static_cast<int32_t>(shape.size());
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      view.shape[axis] = shape[axis];
      view.strides[axis] = strides[axis];
    }
    return view;
  }

  // kRows rows of kWidth f32.
  Tensor F32(int64_t first_element, int64_t stride) {
    return View(DType::kF32, first_element * 4, {kRows, kWidth}, {stride, 1});
  }
  Tensor Weight(int64_t first_element) {
    return View(DType::kF32, first_element * 4, {kWidth}, {1});
  }
  float* Rstd(int64_t first_element) {
    return reinterpret_cast<float*>(memory_) + first_element;
  }

  bool Unchanged() const {
    return std::memcmp(memory_, before_.data(), sizeof memory_) == 0;
  }

 private:
  alignas(64) uint16_t memory_[8192];
  std::vector<uint16_t> before_;
};

// Far away from what a case places: the inputs it does not care for.
constexpr int64_t kFarX = 2000, kFarResidual = 2200, kFarOut = 2400,
                  kFarSum = 2600, kFarWeight = 2800;

Views Separate(Op op, Arena& arena) {
  Views views;
  views.op = op;
  views.x = arena.F32(kFarX, kWidth);
  views.weight = arena.Weight(kFarWeight);
  views.out = arena.F32(kFarOut, kWidth);
  if (op == Op::kAddRmsNorm) {
    views.residual = arena.F32(kFarResidual, kWidth);
    views.residual_out = arena.F32(kFarSum, kWidth);
  }
  return views;
}

struct Case {
  const char* name;
  std::function<void(Arena&, Views*)> place;
  bool add_only = false;  // Bends residual or residual_out.
};

void ForEachCase(
    const std::vector<Case>& cases,
    const std::function<void(const Implementation&, Op, const Case&)>& body) {
  ForEachImplementation([&](const Implementation& implementation) {
    for (const Op op : kOps) {
      for (const Case& one : cases) {
        if (one.add_only && op == Op::kRmsNorm) continue;
        SCOPED_TRACE(Name(op) + ": " + one.name);
        body(implementation, op, one);
      }
    }
  });
}

void ExpectRefused(const std::vector<Case>& cases) {
  ForEachCase(cases, [](const Implementation& implementation, Op op,
                        const Case& one) {
    Arena arena;
    Views views = Separate(op, arena);
    one.place(arena, &views);
    const Status status = views.Run(implementation);
    EXPECT_EQ(static_cast<int>(status.code()),
              static_cast<int>(StatusCode::kInvalidArgument));
    EXPECT_NE(std::string(status.message()).find("overlap"), std::string::npos)
        << status.message();
    EXPECT_TRUE(arena.Unchanged());
  });
}

// The rows of a view, packed.
Buffer Copy(const Tensor& view) {
  if (view.rank == 0) return {};
  std::vector<int64_t> shape(view.shape, view.shape + view.rank);
  Buffer copy(view.dtype, shape);
  for (int64_t r = 0; r < copy.rows(); ++r) {
    int64_t element = 0, rest = r;
    for (int axis = view.rank - 2; axis >= 0; --axis) {
      element += rest % view.shape[axis] * view.strides[axis];
      rest /= view.shape[axis];
    }
    std::memcpy(
        copy.row(r),
        static_cast<const char*>(view.data) + element * SizeOf(view.dtype),
        static_cast<size_t>(copy.width() * SizeOf(view.dtype)));
  }
  return copy;
}

void ExpectAccepted(const std::vector<Case>& cases) {
  ForEachCase(
      cases, [](const Implementation& implementation, Op op, const Case& one) {
        Arena arena;
        Views views = Separate(op, arena);
        one.place(arena, &views);
        // The same call on packed copies, by the reference.
        Buffer x = Copy(views.x), residual = Copy(views.residual);
        Buffer weight = Copy(views.weight), out = Copy(views.out);
        Buffer sum = Copy(views.residual_out);
        Views copies = views;
        copies.x = x;
        copies.residual = residual;
        copies.weight = weight;
        copies.out = out;
        copies.residual_out = sum;
        std::vector<float> rstd(static_cast<size_t>(x.rows()));
        if (views.options.rstd != nullptr) copies.options.rstd = rstd.data();
        ASSERT_STATUS_OK(copies.Run(Reference()));
        ASSERT_STATUS_OK(views.Run(implementation));
        EXPECT_TRUE(SameBits(out, Copy(views.out)));
        EXPECT_TRUE(SameBits(sum, Copy(views.residual_out)));
        EXPECT_TRUE(SameBits(x, Copy(views.x)));
        EXPECT_TRUE(SameBits(residual, Copy(views.residual)));
        EXPECT_TRUE(SameBits(weight, Copy(views.weight)));
        if (views.options.rstd != nullptr) {
          EXPECT_TRUE(SameBits(
              rstd, std::vector<float>(views.options.rstd,
                                       views.options.rstd + rstd.size())));
        }
      });
}

// out and residual_out over an input, but not as its alias.
TEST(Overlap, ShiftedOrReshapedInputIsRefused) {
  std::vector<Case> cases;
  // Elements by which the output is shifted.
  for (const int64_t shift : {1, 4, 7, 8, 9, 31}) {
    cases.push_back({"out behind x", [shift](Arena& a, Views* v) {
                       v->x = a.F32(0, kWidth);
                       v->out = a.F32(shift, kWidth);
                     }});
    cases.push_back({"out before x", [shift](Arena& a, Views* v) {
                       v->x = a.F32(shift, kWidth);
                       v->out = a.F32(0, kWidth);
                     }});
    cases.push_back({"residual_out behind residual",
                     [shift](Arena& a, Views* v) {
                       v->residual = a.F32(0, kWidth);
                       v->residual_out = a.F32(shift, kWidth);
                     },
                     true});
    cases.push_back({"residual_out before x",
                     [shift](Arena& a, Views* v) {
                       v->x = a.F32(shift, kWidth);
                       v->residual_out = a.F32(0, kWidth);
                     },
                     true});
    cases.push_back({"out behind residual",
                     [shift](Arena& a, Views* v) {
                       v->residual = a.F32(0, kWidth);
                       v->out = a.F32(shift, kWidth);
                     },
                     true});
  }
  cases.push_back(
      {"another dtype at x's pointer", [](Arena& a, Views* v) {
         v->x = a.F32(0, kWidth);
         v->out = a.View(DType::kBF16, 0, {kRows, kWidth}, {kWidth, 1});
       }});
  cases.push_back(
      {"another dtype, the same byte strides", [](Arena& a, Views* v) {
         v->x = a.F32(0, kWidth);
         v->out = a.View(DType::kF16, 0, {kRows, kWidth}, {2 * kWidth, 1});
       }});
  cases.push_back(
      {"bf16 over f16", [](Arena& a, Views* v) {
         v->x = a.View(DType::kF16, 0, {kRows, kWidth}, {kWidth, 1});
         v->out = a.View(DType::kBF16, 0, {kRows, kWidth}, {kWidth, 1});
       }});
  cases.push_back({"other strides at x's pointer", [](Arena& a, Views* v) {
                     v->x = a.F32(0, kWidth);
                     v->out = a.F32(0, 2 * kWidth);
                   }});
  cases.push_back({"x repeats one row", [](Arena& a, Views* v) {
                     v->x = a.F32(0, 0);
                     v->out = a.F32(0, kWidth);
                   }});
  cases.push_back(
      {"transposed rows", [](Arena& a, Views* v) {
         v->x = a.View(DType::kF32, 0, {2, 2, kWidth}, {2 * kWidth, kWidth, 1});
         v->out =
             a.View(DType::kF32, 0, {2, 2, kWidth}, {kWidth, 2 * kWidth, 1});
         v->residual =
             a.View(DType::kF32, kFarResidual * 4, {2, 2, kWidth}, {16, 8, 1});
         v->residual_out =
             a.View(DType::kF32, kFarSum * 4, {2, 2, kWidth}, {16, 8, 1});
       }});
  ExpectRefused(cases);
}

// Outputs over each other, over the weight, under rstd.
TEST(Overlap, OutputsAreNeverShared) {
  const std::vector<Case> cases = {
      {"out on weight",
       [](Arena& a, Views* v) { v->weight = a.Weight(kFarOut); }},
      {"out's last element on weight",
       [](Arena& a, Views* v) {
         v->weight = a.Weight(kFarOut + kRows * kWidth - 1);
       }},
      {"weight in a gap of out, which has rows of other strides",
       [](Arena& a, Views* v) {
         v->out = a.F32(0, 3 * kWidth);
         v->weight = a.Weight(kWidth);
       }},
      {"one row: weight is no alias",
       [](Arena& a, Views* v) {
         for (Tensor* t : {&v->x, &v->out, &v->residual, &v->residual_out}) {
           t->shape[0] = 1;
         }
         v->weight = a.View(DType::kF32, kFarOut * 4, {1, kWidth}, {8, 1});
       }},
      {"residual_out on weight",
       [](Arena& a, Views* v) { v->weight = a.Weight(kFarSum + 3); }, true},
      {"residual_out is out",
       [](Arena&, Views* v) { v->residual_out = v->out; }, true},
      {"residual_out and out on x",
       [](Arena&, Views* v) { v->residual_out = v->out = v->x; }, true},
      {"residual_out and out on residual",
       [](Arena&, Views* v) { v->residual_out = v->out = v->residual; }, true},
      {"residual_out half over out",
       [](Arena& a, Views* v) { v->residual_out = a.F32(kFarOut + 4, 8); },
       true},
      {"rstd in x",
       [](Arena& a, Views* v) { v->options.rstd = a.Rstd(kFarX); }},
      {"rstd's last on x's first",
       [](Arena& a, Views* v) { v->options.rstd = a.Rstd(kFarX - kRows + 1); }},
      {"rstd on x's last",
       [](Arena& a, Views* v) {
         v->options.rstd = a.Rstd(kFarX + kRows * kWidth - 1);
       }},
      {"rstd in weight",
       [](Arena& a, Views* v) { v->options.rstd = a.Rstd(kFarWeight + 7); }},
      {"rstd in out",
       [](Arena& a, Views* v) { v->options.rstd = a.Rstd(kFarOut + 5); }},
      {"rstd in a gap of out",
       [](Arena& a, Views* v) {
         v->out = a.F32(0, 3 * kWidth);
         v->options.rstd = a.Rstd(kWidth);
       }},
      {"rstd in residual",
       [](Arena& a, Views* v) { v->options.rstd = a.Rstd(kFarResidual + 1); },
       true},
      {"rstd in residual_out",
       [](Arena& a, Views* v) { v->options.rstd = a.Rstd(kFarSum + 2); }, true},
  };
  ExpectRefused(cases);
}

TEST(Overlap, OutputsThatOverlapThemselvesAreRefused) {
  std::vector<Case> cases;
  for (const int64_t stride : {0, 1, 4, 7}) {
    cases.push_back(
        {"rows of out closer than they are wide",
         [stride](Arena& a, Views* v) { v->out = a.F32(0, stride); }});
    cases.push_back(
        {"out on x, whose rows overlap",
         [stride](Arena& a, Views* v) { v->out = v->x = a.F32(0, stride); }});
    cases.push_back(
        {"rows of residual_out closer than they are wide",
         [stride](Arena& a, Views* v) { v->residual_out = a.F32(0, stride); },
         true});
  }
  // Two axes: rows (0, 1) and (1, 0), or (0, 3) and (2, 0), are the same.
  const std::vector<std::vector<int64_t>> shapes = {{2, 2}, {3, 4}, {2, 2}};
  const std::vector<std::vector<int64_t>> strides = {{8, 8}, {24, 16}, {12, 8}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::vector<int64_t> shape = {shapes[i][0], shapes[i][1], kWidth};
    const std::vector<int64_t> stride = {strides[i][0], strides[i][1], 1};
    cases.push_back(
        {"axes that lead to one row", [shape, stride](Arena& a, Views* v) {
           const std::vector<int64_t> apart = {shape[1] * kWidth, kWidth, 1};
           v->x = a.View(DType::kF32, kFarX * 4, shape, apart);
           v->residual = a.View(DType::kF32, kFarResidual * 4, shape, apart);
           v->residual_out = a.View(DType::kF32, kFarSum * 4, shape, apart);
           v->out = a.View(DType::kF32, 0, shape, stride);
         }});
  }
  ExpectRefused(cases);
}

// Row by row: slices of one wider row and interleaved rows are apart.
TEST(Overlap, SlicesOfWiderRowsAreAccepted) {
  const std::vector<Case> cases = {
      {"neighbours",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 24);
         v->out = a.F32(8, 24);
       }},
      {"out first",
       [](Arena& a, Views* v) {
         v->x = a.F32(16, 24);
         v->out = a.F32(0, 24);
       }},
      {"interleaved rows",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 2 * kWidth);
         v->out = a.F32(kWidth, 2 * kWidth);
       }},
      {"interleaved rows, out three rows on",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 2 * kWidth);
         v->out = a.F32(3 * kWidth, 2 * kWidth);
       }},
      {"all of a call in one wider row",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 40);
         v->residual = a.F32(8, 40);
         v->out = a.F32(16, 40);
         v->residual_out = a.F32(24, 40);
       },
       true},
      {"f32 and bf16 slices of the same bytes",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 16);
         v->out = a.View(DType::kBF16, 32, {kRows, kWidth}, {32, 1});
       }},
      {"bf16 in, f32 out, up to the last byte",
       [](Arena& a, Views* v) {
         v->x = a.View(DType::kBF16, 32, {kRows, kWidth}, {24, 1});
         v->out = a.F32(0, 12);
       }},
      {"bf16 stream between f32 slices",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 24);
         v->residual = a.View(DType::kBF16, 32, {kRows, kWidth}, {48, 1});
         v->residual_out = a.View(DType::kBF16, 48, {kRows, kWidth}, {48, 1});
         v->out = a.F32(16, 24);
       },
       true},
      {"heads: two axes with the same strides",
       [](Arena& a, Views* v) {
         v->x = a.View(DType::kF32, 0, {2, 2, kWidth}, {64, 16, 1});
         v->out = a.View(DType::kF32, 32, {2, 2, kWidth}, {64, 16, 1});
         v->residual =
             a.View(DType::kF32, kFarResidual * 4, {2, 2, kWidth}, {16, 8, 1});
         v->residual_out =
             a.View(DType::kF32, kFarSum * 4, {2, 2, kWidth}, {16, 8, 1});
       }},
      {"Q and K parts of packed tokens",
       [](Arena& a, Views* v) {
         v->x = a.View(DType::kF32, 0, {2, 2, kWidth}, {48, 8, 1});
         v->out = a.View(DType::kF32, 64, {2, 2, kWidth}, {48, 8, 1});
         v->residual =
             a.View(DType::kF32, kFarResidual * 4, {2, 2, kWidth}, {16, 8, 1});
         v->residual_out =
             a.View(DType::kF32, kFarSum * 4, {2, 2, kWidth}, {16, 8, 1});
       }},
  };
  ExpectAccepted(cases);
}

TEST(Overlap, SlicesThatMeetAreRefused) {
  const std::vector<Case> cases = {
      {"one element shared",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 24);
         v->out = a.F32(7, 24);
       }},
      {"one element shared, out first",
       [](Arena& a, Views* v) {
         v->x = a.F32(7, 24);
         v->out = a.F32(0, 24);
       }},
      {"out meets x's next row",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 12);
         v->out = a.F32(8, 12);
       }},
      {"out meets x's third row",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 24);
         v->out = a.F32(2 * 24 - 1, 24);
       }},
      {"half a bf16 row on f32",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 16);
         v->out = a.View(DType::kBF16, 30, {kRows, kWidth}, {32, 1});
       }},
      {"apart, but by other strides: judged by the ranges",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 16);
         v->out = a.F32(8, 32);
       }},
      {"apart, but by axes in another order: judged by the ranges",
       [](Arena& a, Views* v) {
         const std::vector<int64_t> shape = {2, 2, kWidth};
         v->x = a.View(DType::kF32, 0, shape, {48, 24, 1});
         v->out = a.View(DType::kF32, 12 * 4, shape, {24, 48, 1});
         v->residual = a.View(DType::kF32, kFarResidual * 4, shape, {16, 8, 1});
         v->residual_out = a.View(DType::kF32, kFarSum * 4, shape, {16, 8, 1});
       }},
      {"the same strides in elements, not in bytes",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, 24);
         v->out = a.View(DType::kBF16, 32, {kRows, kWidth}, {24, 1});
       }},
      {"residual_out meets out in the wider row",
       [](Arena& a, Views* v) {
         v->out = a.F32(0, 24);
         v->residual_out = a.F32(4, 24);
       },
       true},
      {"heads of the next token",
       [](Arena& a, Views* v) {
         v->x = a.View(DType::kF32, 0, {2, 2, kWidth}, {32, 8, 1});
         v->out = a.View(DType::kF32, 12 * 4, {2, 2, kWidth}, {32, 8, 1});
         v->residual =
             a.View(DType::kF32, kFarResidual * 4, {2, 2, kWidth}, {16, 8, 1});
         v->residual_out =
             a.View(DType::kF32, kFarSum * 4, {2, 2, kWidth}, {16, 8, 1});
       }},
  };
  ExpectRefused(cases);
}

// Touching ranges share nothing, and inputs may overlap each other.
TEST(Overlap, WhatIsApartIsAccepted) {
  const std::vector<Case> cases = {
      {"out right behind x",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, kWidth);
         v->out = a.F32(kRows * kWidth, kWidth);
       }},
      {"out right before x",
       [](Arena& a, Views* v) {
         v->x = a.F32(kRows * kWidth, kWidth);
         v->out = a.F32(0, kWidth);
       }},
      {"rstd between x and out",
       [](Arena& a, Views* v) {
         v->x = a.F32(0, kWidth);
         v->options.rstd = a.Rstd(kRows * kWidth);
         v->out = a.F32(kRows * kWidth + kRows, kWidth);
       }},
      {"weight right behind out",
       [](Arena& a, Views* v) {
         v->weight = a.Weight(kFarOut + kRows * kWidth);
       }},
      {"weight in x",
       [](Arena& a, Views* v) { v->weight = a.Weight(kFarX + 3); }},
      {"x repeats one row", [](Arena& a, Views* v) { v->x = a.F32(kFarX, 0); }},
      {"rows of x overlap", [](Arena& a, Views* v) { v->x = a.F32(kFarX, 3); }},
      {"residual is x", [](Arena&, Views* v) { v->residual = v->x; }, true},
      {"residual half over x",
       [](Arena& a, Views* v) { v->residual = a.F32(kFarX + 4, kWidth); },
       true},
      {"residual of another dtype in x",
       [](Arena& a, Views* v) {
         v->residual =
             a.View(DType::kBF16, kFarX * 4 + 2, {kRows, kWidth}, {kWidth, 1});
         v->residual_out =
             a.View(DType::kBF16, kFarSum * 4, {kRows, kWidth}, {kWidth, 1});
       },
       true},
      {"residual repeats one row",
       [](Arena& a, Views* v) { v->residual = a.F32(kFarResidual, 0); }, true},
      {"axes of out in any order",
       [](Arena& a, Views* v) {
         const std::vector<int64_t> shape = {2, 2, kWidth};
         v->x = a.View(DType::kF32, kFarX * 4, shape, {16, 8, 1});
         v->residual = a.View(DType::kF32, kFarResidual * 4, shape, {16, 8, 1});
         v->residual_out = a.View(DType::kF32, kFarSum * 4, shape, {8, 16, 1});
         v->out = a.View(DType::kF32, 0, shape, {8, 24, 1});
       }},
  };
  ExpectAccepted(cases);
}

}  // namespace
}  // namespace test
}  // namespace fusednorm

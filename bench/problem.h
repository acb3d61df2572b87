// One configuration to be measured, and its tensors.
#ifndef FUSEDNORM_BENCH_PROBLEM_H_
#define FUSEDNORM_BENCH_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/roofline.h"
#include "fusednorm/fusednorm.h"

namespace fusednorm {
namespace bench {

struct Variant {
  const char* name;
  DType dtype;  // Of the rows.
  DType weight;
  Rounding rounding;
  int cost;
};

enum Ops { kBoth, kNorm };

struct Shape {
  const char* models;
  Ops ops;
  int64_t rows;
  int64_t width;
  int cost;
};

struct Case {
  bool add;
  Variant variant;
  Shape shape;
  std::string target;
  int target_cost;
  bool cold;
  Flags flags;

  // Each step away from the core costs, so that a selection is one number.
  int Cost() const {
    return shape.cost + variant.cost + target_cost + (cold ? 1 : 0);
  }
  std::string Name() const;
  size_t RowsBytes() const;  // Of one tensor.
  size_t SetBytes() const { return (add ? 3 : 2) * RowsBytes(); }
  size_t MovedBytes() const { return (add ? 4 : 2) * RowsBytes(); }
};

// The tensors of a case, and what can be done with them. There is one set of
// rows, or, cold, as many as outgrow every cache; a call takes the next set.
class Problem {
 public:
  explicit Problem(const Case& c);

  bool HasMemory() const { return memory_ != nullptr; }
  int64_t Sets() const { return static_cast<int64_t>(sets_); }

  // Fused first, then unfused if there is such a thing, then the copies.
  std::vector<Kernel> Kernels();

  // Whether all outputs have the reference's bits, and x still its own.
  bool Check() { return Check(&Problem::Fused); }
  bool CheckUnfused() { return Check(&Problem::Unfused); }

 private:
  using Method = void (Problem::*)();

  uint8_t* X() const { return memory_ + set_ * set_stride_; }
  uint8_t* Residual() const { return X() + rows_stride_; }
  uint8_t* Out() const { return X() + (case_.add ? 2 : 1) * rows_stride_; }
  void NextSet();

  void Fused();
  void Unfused();
  bool Check(Method method);
  void Fill(uint8_t* to, const std::vector<uint8_t>& rows) const;
  bool Holds(const uint8_t* memory, const std::vector<uint8_t>& rows) const;
  template <class Body>
  Kernel Rotating(std::string name, Body body);

  const Case case_;
  const Roofline& roofline_;
  const size_t rows_bytes_;
  const size_t rows_stride_;  // From one buffer of a set to the next.
  const size_t set_stride_;
  size_t sets_;
  size_t set_ = 0;
  uint8_t* memory_;
  bool ok_ = true;

  ConstTensor x_, weight_;
  Tensor residual_, out_;
  Options options_;

  // Rows repeat after so many: a prime, so that any mix-up of rows shows.
  static constexpr int64_t kDistinctRows = 61;
  std::vector<uint8_t> weight_values_;
  std::vector<uint8_t> x_rows_, residual_rows_, sum_rows_, out_rows_;
};

}  // namespace bench
}  // namespace fusednorm

#endif  // FUSEDNORM_BENCH_PROBLEM_H_

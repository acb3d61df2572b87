// One configuration to be measured, and its tensors.
#ifndef FUSEDNORM_BENCH_PROBLEM_H_
#define FUSEDNORM_BENCH_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/operation.h"
#include "bench/roofline.h"
#include "fusednorm/fusednorm.h"

namespace fusednorm {
namespace bench {

struct Mix {
  const char* name;
  DType x, second, weight, out;
  Rounding rounding;
  int cost;
  Sum sum = Sum::kRounded;

  bool RowsAreUniform() const { return x == second && x == out; }
};

// Which operations a shape is measured with.
enum Ops { kNorm, kAdd, kAll, kThenRead };

struct Shape {
  const char* models;
  Ops ops;
  int64_t rows;
  int64_t width;
  int cost;

  // A view: `heads` rows of `width` inside each row of x, `x_stride` elements
  // apart. The other tensors are packed.
  int64_t heads = 1;
  int64_t x_stride = 0;
  Nontemporal nontemporal = Nontemporal::kAuto;
  // The tensors lie whole pages apart, as large ones from most allocators do;
  // otherwise some lines more.
  bool pages_apart = false;

  int64_t XStride() const { return x_stride != 0 ? x_stride : width; }
  std::string Name() const;
};

struct Case {
  Op op;
  Mix mix;
  Shape shape;
  std::string target;
  int target_cost;
  bool cold;
  int threads;
  double seconds;  // Of timing.

  // Each step away from the core costs, so that a selection is one number.
  int Cost() const {
    return TraitsOf(op).cost + shape.cost + mix.cost + target_cost +
           (cold ? 1 : 0) + (threads > 1 ? 1 : 0);
  }
  std::string Name() const;

  int64_t Elements() const { return shape.rows * shape.heads * shape.width; }
  size_t SetBytes() const;    // Of all tensors.
  size_t MovedBytes() const;  // That a call reads and writes.
};

// How far a result lies from the reference's.
struct Difference {
  double unequal = 0;  // Share of the elements.
  // The largest, in units of the dtype's epsilon at the expected value or at
  // the mean magnitude, whichever is larger.
  double epsilons = 0;
};

// The tensors of a case, and what can be done with them. There is one set of
// them, or, cold, as many as outgrow every cache; a call takes the next set.
class Problem {
 public:
  explicit Problem(const Case& c);

  bool HasMemory() const { return memory_ != nullptr; }
  int64_t Sets() const { return static_cast<int64_t>(sets_); }

  // Ours first, then its rivals (the unfused form, other options), then the
  // passes of the roofline.
  std::vector<Kernel> Kernels();

  // Whether all outputs have the reference's bits, and inputs still their own.
  bool Check() { return Check(&Problem::Fused); }
  bool HasUnfused() const;
  bool CheckUnfused() { return Check(&Problem::Unfused); }

  // For someone else's kernel on the same tensors, filled; call(set) runs it.
  using SetCall = std::function<void(size_t set)>;
  std::vector<Operands> OperandsOfSets();
  Kernel Peer(std::string name, const SetCall& call);
  Difference Compare(const SetCall& call, Sum sum);

 private:
  enum Buffer { kX, kSecond, kOut, kScratch, kBuffers };

  // What a buffer holds before and after a call. Its rows repeat.
  struct Content {
    DType dtype;
    size_t bytes = 0;  // 0: the operation has no such buffer.
    std::vector<uint8_t> before, after;
  };

  using Method = void (Problem::*)();

  void MakeContents();
  void Refill();
  Operands View(uint8_t* const* data, int64_t rows);
  uint8_t* At(Buffer b) const {
    return memory_ + set_ * set_stride_ + static_cast<size_t>(b) * stride_;
  }
  void NextSet();

  void CallOn(Op op, uint8_t* x, uint8_t* second, uint8_t* out);
  void Fused() { CallOn(case_.op, At(kX), At(kSecond), At(kOut)); }
  void Unfused();
  void AddTo(Buffer x, Buffer sum);
  void ThenRead(Nontemporal nontemporal);
  void RunPass(Pass pass, int threads);
  bool Check(Method method);
  template <class Body>
  Kernel Rotating(std::string name, Body body, bool is_roof = false);
  void AddRivals(std::vector<Kernel>* kernels);
  void AddRoof(int threads, std::vector<Kernel>* kernels);

  const Case case_;
  const OpTraits traits_;
  const Roofline& roofline_;
  const size_t pass_bytes_;  // Of each stream of the roofline.
  Content contents_[kBuffers];
  size_t stride_ = 0;  // From one buffer of a set to the next.
  size_t set_stride_ = 0;
  size_t sets_ = 1;
  size_t set_ = 0;
  uint8_t* memory_ = nullptr;
  bool ok_ = true;
  bool filled_ = false;
  Operands operands_;
  Options options_;
  std::vector<uint8_t> weight_;
  std::vector<float> dweight_, rstd_;
};

}  // namespace bench
}  // namespace fusednorm

#endif  // FUSEDNORM_BENCH_PROBLEM_H_

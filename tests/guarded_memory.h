// Rows between pages that may not be touched: each row's first byte follows a
// forbidden page, or its last byte precedes one. What else lies on the rows'
// pages is a canary.
#ifndef FUSEDNORM_TESTS_GUARDED_MEMORY_H_
#define FUSEDNORM_TESTS_GUARDED_MEMORY_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace fusednorm {
namespace test {

enum class Side { kFirst, kLast };

class GuardedMemory {
 public:
  // For up to `rows` rows of up to `row_capacity` bytes.
  GuardedMemory(int64_t rows, int64_t row_capacity)
      : page_(sysconf(_SC_PAGESIZE)),
        rows_(rows),
        usable_((row_capacity + page_ - 1) / page_ * page_),
        mapped_(page_ + rows * stride()) {
    void* const all = mmap(nullptr, static_cast<size_t>(mapped_), PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) throw std::runtime_error("mmap failed");
    all_ = static_cast<uint8_t*>(all);
    SetAccess(PROT_READ | PROT_WRITE);
    Place(0, Side::kFirst);
  }
  ~GuardedMemory() { munmap(all_, static_cast<size_t>(mapped_)); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // Bytes from row to row.
  int64_t stride() const { return usable_ + page_; }

  // Makes room for rows of `bytes` at one end of their pages; the first row's
  // address.
  uint8_t* Place(int64_t bytes, Side side) {
    if (bytes > usable_) throw std::runtime_error("too large to place");
    bytes_ = bytes;
    offset_ = side == Side::kFirst ? 0 : usable_ - bytes;
    for (int64_t r = 0; r < rows_; ++r) {
      std::memset(Pages(r), kCanary, static_cast<size_t>(usable_));
    }
    return row(0);
  }
  uint8_t* row(int64_t r) { return Pages(r) + offset_; }

  // Whether the canary lives.
  bool Intact() const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t i = 0; i < usable_; ++i) {
        if (i == offset_) i += bytes_;
        if (i < usable_ && Pages(r)[i] != kCanary) return false;
      }
    }
    return true;
  }

  // While inputs are locked, writing to them faults, be it their own value.
  void Lock() { SetAccess(PROT_READ); }
  void Unlock() { SetAccess(PROT_READ | PROT_WRITE); }

 private:
  static constexpr uint8_t kCanary = 0xA5;

  uint8_t* Pages(int64_t r) const { return all_ + page_ + r * stride(); }
  void SetAccess(int access) {
    for (int64_t r = 0; r < rows_; ++r) {
      if (mprotect(Pages(r), static_cast<size_t>(usable_), access) != 0) {
        throw std::runtime_error("mprotect failed");
      }
    }
  }

  const int64_t page_, rows_, usable_, mapped_;
  uint8_t* all_ = nullptr;
  int64_t bytes_ = 0, offset_ = 0;
};

}  // namespace test
}  // namespace fusednorm

#endif  // FUSEDNORM_TESTS_GUARDED_MEMORY_H_

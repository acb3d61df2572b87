// What every call returns. Nothing here throws, aborts or prints.
#ifndef FUSEDNORM_STATUS_H_
#define FUSEDNORM_STATUS_H_

#include <cstdint>

namespace fusednorm {

enum class StatusCode : int32_t {
  kOk = 0,
  kInvalidArgument = 1,  // The call is malformed; the message names what.
  kUnsupported = 2,      // Well-formed, but not offered.
  kInternal = 3,
  kOutOfMemory = 4,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, const char* message)
      : code_(code), message_(message) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }

  // Names the argument and its value; "" if ok. It points into a buffer of the
  // calling thread, which the thread's next failing call overwrites.
  const char* message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  const char* message_ = "";
};

}  // namespace fusednorm

#endif  // FUSEDNORM_STATUS_H_

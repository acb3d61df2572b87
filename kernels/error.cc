#include "kernels/error.h"

#include <cstdarg>
#include <cstdio>

namespace fusednorm {
namespace internal {
namespace {

thread_local char last_error[320] = "";

}  // namespace

Status Error(StatusCode code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_error, sizeof(last_error), format, arguments);
  va_end(arguments);
  return Status(code, last_error);
}

const char* LastError() { return last_error; }

}  // namespace internal
}  // namespace fusednorm

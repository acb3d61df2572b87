// The calling thread's last error: a fixed buffer, so that refusing a call
// allocates nothing.
#ifndef FUSEDNORM_KERNELS_ERROR_H_
#define FUSEDNORM_KERNELS_ERROR_H_

#include "fusednorm/status.h"

namespace fusednorm {
namespace internal {

// Formats the message into the buffer and returns a Status that points there.
__attribute__((cold, format(printf, 2, 3))) Status Error(StatusCode code,
                                                         const char* format,
                                                         ...);

const char* LastError();

}  // namespace internal
}  // namespace fusednorm

#endif  // FUSEDNORM_KERNELS_ERROR_H_

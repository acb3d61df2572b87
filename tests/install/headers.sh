#!/usr/bin/env bash
# headers.sh INCLUDE_DIRECTORY
#
# Each public header compiles by itself, without warnings, and includes nothing
# but the standard library and its neighbours; c.h is C99 and C++ alike.
set -euo pipefail
include=$1
strict=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)

for header in "$include"/fusednorm/*.h; do
  name=fusednorm/$(basename "$header")
  echo "$name"
  "$CXX" -std=c++17 "${strict[@]}" -I "$include" -fsyntax-only -x c++ - \
    <<<"#include \"$name\""
  if grep '#include "' "$header" | grep --invert-match '"fusednorm/'; then
    echo "FAILED: $name includes more than its neighbours" >&2
    exit 1
  fi
  if grep --ignore-case 'hwy' "$header"; then
    echo "FAILED: $name knows Highway" >&2
    exit 1
  fi
done
"$CC" -std=c99 "${strict[@]}" -I "$include" -fsyntax-only -x c - \
  <<<'#include "fusednorm/c.h"'

#!/usr/bin/env bash
# exports.sh SHARED_LIBRARY INCLUDE_DIRECTORY
#
# The shared library exports what the headers mark FUSEDNORM_API, all of it and
# nothing else.
set -euo pipefail
library=$1
include=$2/fusednorm

# The names that follow FUSEDNORM_API in a header, each with a prefix.
declared() {
  tr '\n' ' ' <"$include/$1" |
    grep --only-matching 'FUSEDNORM_API[^;()]*(' |
    sed "s/.*[ *]\([A-Za-z0-9_]*\)(/$2\1/"
}

declared=$(
  {
    declared c.h ""
    declared fusednorm.h fusednorm::
    declared targets.h fusednorm::
    declared reference.h fusednorm::reference::
  } | sort
)
exported=$("${NM:-nm}" --dynamic --defined-only --demangle "$library" |
  sed 's/^[0-9a-f]* [A-Za-z] //; s/(.*//' | sort)

[[ -n $declared ]]
echo "$(wc -l <<<"$declared") names declared (<); those exported (>) differ by:"
diff <(echo "$declared") <(echo "$exported") && echo nothing

#!/usr/bin/env bash
# subproject.sh PREFIX WORK_DIRECTORY
#
# As a subproject the library gives the installed library's bits, though the
# parent asks for fast math, and brings nothing but itself: no test, no
# benchmark, no installed file, no setting of the parent changed.
source "$(dirname "$0")/support.sh"
work=$2
rm -rf "$work"
extract_examples "$work/examples"

build_consumer "$work/package" -DKIND=shared -DEXAMPLES="$work/examples" \
  -DCMAKE_PREFIX_PATH="$1"
build_consumer "$work/build" -DKIND=static -DEXAMPLES="$work/examples" \
  -DFUSEDNORM_SOURCE_DIR="$source_dir" \
  -DCMAKE_CXX_FLAGS="-O1 -ffast-math -funsafe-math-optimizations"
check_examples "$work/build/example_cc" "$work/build/example_c"
expect "$("$work/package/digest")" "$work/build/digest"

cache=$work/build/CMakeCache.txt
grep '^CMAKE_BUILD_TYPE:STRING=$' "$cache" || fail "a build type was set"
foreign=$(grep -Eo '^[A-Za-z0-9_]+' "$cache" | grep -Evi \
  '^(_?CMAKE|FUSEDNORM|CONSUMER|OpenMP|Threads|hwy|FetchContent)_|^(KIND|EXAMPLES)$' |
  grep -v FIND_PACKAGE_MESSAGE_DETAILS || true)
[[ -z $foreign ]] || fail "cache entries: $foreign"
! grep -Ei '^(GTest|benchmark)_' "$cache" || fail "test packages were looked up"
[[ -z $(find "$work/build" -name CTestTestfile.cmake) ]] || fail "tests"
"$CMAKE" --install "$work/build" --prefix "$work/prefix"
[[ -z $(find "$work/prefix" -type f 2>/dev/null) ]] || fail "installed files"

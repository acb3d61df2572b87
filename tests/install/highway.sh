#!/usr/bin/env bash
# highway.sh SOURCE_DIRECTORY WORK_DIRECTORY HIGHWAY_INCLUDE_DIRECTORIES
#
# Where Highway may come from, by configuring alone: a source tree, an archive
# with its hash; and what is refused: an old one, a wrong hash, none.
source "$(dirname "$0")/support.sh"
source_dir=$1
work=$2
IFS=';' read -ra includes <<<"$3"
rm -rf "$work"

# A source tree in miniature: the headers, and the target that Highway defines.
make_tree() {
  mkdir -p "$1"
  for include in "${includes[@]}"; do
    [[ ! -d $include/hwy ]] || cp -r "$include/hwy" "$1/"
  done
  echo 'int hwy_stub() { return 0; }' >"$1/hwy/stub.cc"
  cat >"$1/CMakeLists.txt" <<'TREE'
cmake_minimum_required(VERSION 3.10)
project(hwy LANGUAGES CXX)
set(HWY_ENABLE_TESTS ON CACHE BOOL "")
if(HWY_ENABLE_TESTS)
  message(FATAL_ERROR "Highway's tests would be built")
endif()
add_library(hwy STATIC hwy/stub.cc)
target_include_directories(hwy PUBLIC ${CMAKE_CURRENT_LIST_DIR})
TREE
}

make_tree "$work/highway"
make_tree "$work/old"
sed -i 's/^#define HWY_MINOR .*/#define HWY_MINOR 0/
        s/^#define HWY_PATCH .*/#define HWY_PATCH 2/' "$work"/old/hwy/*.h
mkdir "$work/old_package"
echo 'add_library(hwy::hwy INTERFACE IMPORTED)' \
  >"$work/old_package/hwy-config.cmake"
echo 'set(PACKAGE_VERSION 1.0.2)' >"$work/old_package/hwy-config-version.cmake"
tar -C "$work" -czf "$work/highway.tar.gz" highway
hash=$(sha256sum "$work/highway.tar.gz" | cut -d' ' -f1)

configure() {
  rm -rf "$work/build"
  "$CMAKE" -S "$source_dir" -B "$work/build" -DCMAKE_CXX_COMPILER="$CXX" \
    -DFUSEDNORM_TESTS=OFF -DFUSEDNORM_BENCHMARKS=OFF "$@" >"$work/log" 2>&1
}
accept() {
  configure "$@" || fail "$*: $(cat "$work/log")"
  # Built here, so installed under a name of our own.
  grep -qr fusednorm_hwy "$work/build" --include='*.cmake' ||
    fail "$*: another Highway was taken"
}
# refuse MESSAGE OPTION...
refuse() {
  local message=$1
  shift
  ! configure "$@" || fail "$* was accepted"
  tr -s '\n ' ' ' <"$work/log" | grep -qF "$message" ||
    fail "$*: $(cat "$work/log")"
}

accept -DFUSEDNORM_HIGHWAY_SOURCE_DIR="$work/highway"
accept -DFUSEDNORM_HIGHWAY_URL="$work/highway.tar.gz" \
  -DFUSEDNORM_HIGHWAY_SHA256="$hash"
refuse "hash" -DFUSEDNORM_HIGHWAY_URL="$work/highway.tar.gz" \
  -DFUSEDNORM_HIGHWAY_SHA256="${hash//[0-9]/0}"
refuse "needs its FUSEDNORM_HIGHWAY_SHA256" \
  -DFUSEDNORM_HIGHWAY_URL="$work/highway.tar.gz"
refuse "needs Highway 1.0.3 or newer, but found 1.0.2" \
  -DFUSEDNORM_HIGHWAY_SOURCE_DIR="$work/old"
refuse "needs Highway 1.0.3 or newer, but found 1.0.2" \
  -Dhwy_DIR="$work/old_package"

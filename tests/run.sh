#!/usr/bin/env bash
# Builds the library and runs its tests; sets a fresh Debian machine up first.
#
#   bash tests/run.sh [--neon | --sanitize | --no-openmp | --clang | --debug]
#                     [--highway PATH] [-- CTEST_OPTIONS]
#
#   --neon           cross-compiled for AArch64, run under qemu
#   --sanitize       with the address and undefined behaviour sanitizers, but
#                    for use after scope, which takes twice as long to compile
#   --no-openmp      without OpenMP
#   --clang          by Clang
#   --debug          unoptimised
#   --highway PATH   against the Highway source tree at PATH
#
# Each variant but --debug tests a subset of the grid, since the default run
# has tested all of it; FUSEDNORM_TEST_SUBSET=0 asks for all. The build is left
# in build/<variant>.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
bootstrap=()
cmake=(-DFUSEDNORM_BENCHMARKS=OFF)
ctest=()
while (($#)); do
  case $1 in
    --neon | --clang)
      preset=${1#--}
      bootstrap+=("$1")
      ;;
    --sanitize | --no-openmp | --debug) preset=${1#--} ;;
    --highway)
      cmake+=("-DFUSEDNORM_HIGHWAY_SOURCE_DIR=$(realpath "$2")")
      shift
      ;;
    --)
      shift
      ctest+=("$@")
      break
      ;;
    *)
      echo "run.sh: unknown option $1" >&2
      exit 2
      ;;
  esac
  shift
done

# Warnings are errors for us, not for whoever has a newer compiler.
[[ -z ${CI:-} ]] || cmake+=(-DFUSEDNORM_WERROR=ON)

if [[ $preset != release && $preset != debug ]]; then
  export FUSEDNORM_TEST_SUBSET=${FUSEDNORM_TEST_SUBSET:-1}
fi

bash cmake/bootstrap.sh "${bootstrap[@]}"
cmake --preset "$preset" "${cmake[@]}"
cmake --build --preset "$preset"
ctest --preset "$preset" --parallel "$(nproc)" "${ctest[@]}"

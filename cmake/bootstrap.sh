#!/usr/bin/env bash
# Installs what a fresh Debian 12 or 13 lacks to build, test and measure.
# Quick, and without network, when nothing is missing.
#
#   cmake/bootstrap.sh [--neon] [--clang] [--python] [--ccache]
#
#   --neon    also the AArch64 cross compiler, its libraries, and qemu
#   --clang   also Clang with its OpenMP
#   --python  also what Python packages are installed with, for tests/golden/
#   --ccache  also a cache of compiled objects, for several builds in a row
set -euo pipefail

# python3: the benchmark's tables.
packages=(binutils g++ libbenchmark-dev libgtest-dev libhwy-dev ninja-build
          pkg-config python3)
foreign=()
for option in "$@"; do
  case $option in
    --neon)
      packages+=(g++-aarch64-linux-gnu qemu-user)
      foreign+=(libgomp1 libgtest-dev libhwy-dev)
      ;;
    --clang) packages+=(clang libomp-dev) ;;
    --ccache) packages+=(ccache) ;;
    --python) packages+=(python3-pip python3-venv) ;;
    *)
      echo "bootstrap.sh: unknown option $option" >&2
      exit 2
      ;;
  esac
done

# A CMake from elsewhere (pip, say) will do as well as Debian's.
cmake_is_recent() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')
  [[ -n $version ]] && printf '3.25\n%s\n' "$version" | sort -C -V
}
cmake_is_recent || packages+=(cmake)

missing=()
installed() {
  dpkg-query --show --showformat='${db:Status-Status}\n' "$1" 2>/dev/null |
    grep --quiet '^installed$'
}
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
for package in "${foreign[@]}"; do
  # Both architectures must have one version: name both.
  installed "$package:arm64" || missing+=("$package" "$package:arm64")
done

if ((${#missing[@]})); then
  echo "bootstrap.sh: installing ${missing[*]}"
  as_root=()
  ((EUID == 0)) || as_root=(sudo)
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet=2
       -o Acquire::Retries=3 -o DPkg::Lock::Timeout=600)
  if ((${#foreign[@]})); then
    "${as_root[@]}" dpkg --add-architecture arm64
  fi
  # One unreachable source among several is no reason to stop; a package that
  # cannot be had is, below.
  "${apt[@]}" update || true
  "${apt[@]}" install --yes --no-install-recommends "${missing[@]}"
fi

if ! cmake_is_recent; then
  echo "bootstrap.sh: $(command -v cmake) is older than CMake 3.25" >&2
  exit 1
fi

# Sourced by the scripts beside it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_dir=$(cd "$here/../.." && pwd)

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# extract_examples DIRECTORY: the first C++ and the first C block of README.md.
extract_examples() {
  mkdir -p "$1"
  local language
  for language in cc c; do
    awk -v fence="\`\`\`${language/cc/cpp}" '
      $0 == fence { inside = 1; next }
      /^```/ && inside { exit }
      inside' "$source_dir/README.md" >"$1/example.$language"
    [[ -s $1/example.$language ]] || fail "README.md has no $language example"
  done
}

# build_consumer DIRECTORY CMAKE_OPTION...: configures and builds consumer/.
build_consumer() {
  local directory=$1
  shift
  "$CMAKE" -S "$here/consumer" -B "$directory" -DCMAKE_C_COMPILER="$CC" \
    -DCMAKE_CXX_COMPILER="$CXX" "$@"
  "$CMAKE" --build "$directory"
}

# expect OUTPUT PROGRAM ARGUMENT...
expect() {
  local expected=$1 actual
  shift
  actual=$("$@") || fail "$* failed"
  [[ $actual == "$expected" ]] || fail "$*: $actual, not $expected"
}

# What the comments in the examples of README.md say.
check_examples() {
  expect "1.2 0.8" "$1"
  expect "1.2 1.6" "$2"
}

#!/usr/bin/env bash
# Benchmarks on a machine as it is: installs what is missing, builds in
# build/bench, measures and prints tables.
#
#   bench/run.sh [--quick | --full] [--check | --expect] [--filter REGEX]
#                [--threads N] [--processes N] [--out FILE]
#
#   --quick      the core, a minute; --full: everything, 10 to 25 minutes
#   --check      a quick run; status 3 on a drop against bench/expectations/
#   --expect     a quick run in five processes that writes them
#   --filter     benchmarks whose name matches, of all (see bench_norms.cc)
#   --threads    besides one thread; 2 unless said otherwise
#   --processes  repeats the run in as many processes; the tables have medians
#   --out        the JSON, build/bench/results.json if not said; the tables go
#                beside it
set -euo pipefail

selection=default
mode=
filter=.
threads=2
processes=1
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/bench
out=$build/results.json

usage() {
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
while (($# > 0)); do
  case $1 in
    --quick | --full) selection=${1#--} ;;
    --check | --expect) mode=${1#--} selection=quick ;;
    --filter | --threads | --processes | --out)
      (($# > 1)) || usage
      printf -v "${1#--}" %s "$2"
      [[ $1 == --filter && $selection == default ]] && selection=all
      shift
      ;;
    *) usage ;;
  esac
  shift
done
[[ $mode == expect ]] && processes=5

python=()
command -v python3 >/dev/null || python=(--python)
bash "$root/cmake/bootstrap.sh" "${python[@]}"
cmake=(-DCMAKE_BUILD_TYPE=Release -DFUSEDNORM_BENCHMARKS=ON
       -DFUSEDNORM_TESTS=OFF -DFUSEDNORM_BUILD_SHARED=OFF)
[[ -z ${CI:-} ]] || cmake+=(-DFUSEDNORM_WERROR=ON)
cmake -S "$root" -B "$build" "${cmake[@]}"
cmake --build "$build" --parallel "$(nproc)" --target bench_norms

commit=$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
binary=$build/bench/bench_norms
files=()
for ((process = 1; process <= processes; ++process)); do
  file=$out
  ((process == 1)) || file=${out%.json}-$process.json
  "$binary" --selection="$selection" \
    --threads="$threads" --benchmark_filter="$filter" \
    --benchmark_context=commit="$commit" \
    --benchmark_out="$file" --benchmark_out_format=json
  files+=("$file")
done

echo
python3 "$root/bench/report.py" "${files[@]}" | tee "${out%.json}.txt"
echo "JSON: ${files[*]}"
case $mode in
  check) python3 "$root/bench/check.py" "$binary" "${files[@]}" ;;
  expect) python3 "$root/bench/check.py" --write "$binary" "${files[@]}" ;;
esac

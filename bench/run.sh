#!/usr/bin/env bash
# Benchmarks on a machine as it is: installs what is missing, builds in
# build/bench, measures and prints tables.
#
#   bench/run.sh [--quick | --full] [--filter REGEX] [--threads N]
#                [--processes N] [--out FILE]
#
#   --quick      the core, a few seconds; --full: everything, some 15 minutes
#   --filter     benchmarks whose name matches, of all (see bench_rms_norm.cc)
#   --threads    1 unless said otherwise
#   --processes  repeats the run in as many processes; the tables have medians
#   --out        the JSON, build/bench/results.json if not said; the tables go
#                beside it
set -euo pipefail

selection=default
filter=.
threads=1
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
    --filter | --threads | --processes | --out)
      (($# > 1)) || usage
      printf -v "${1#--}" %s "$2"
      [[ $1 == --filter && $selection == default ]] && selection=full
      shift
      ;;
    *) usage ;;
  esac
  shift
done

python=()
command -v python3 >/dev/null || python=(--python)
bash "$root/cmake/bootstrap.sh" "${python[@]}"
cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release \
  -DFUSEDNORM_BENCHMARKS=ON -DFUSEDNORM_TESTS=OFF -DFUSEDNORM_BUILD_SHARED=OFF
cmake --build "$build" --parallel "$(nproc)"

commit=$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
files=()
for ((process = 1; process <= processes; ++process)); do
  file=$out
  ((process == 1)) || file=${out%.json}-$process.json
  "$build/bench/bench_rms_norm" --selection="$selection" \
    --threads="$threads" --benchmark_filter="$filter" \
    --benchmark_context=commit="$commit" \
    --benchmark_out="$file" --benchmark_out_format=json
  files+=("$file")
done

echo
python3 "$root/bench/report.py" "${files[@]}" | tee "${out%.json}.txt"
echo "JSON: ${files[*]}"

#!/usr/bin/env bash
# fusednorm beside its peers: PyTorch, vLLM's CPU operations and ONNX Runtime
# from pinned packages in a virtual environment of its own, ggml where there is
# a package, oneDNN where CMake finds a release with RMS normalisation.
#
#   bench/peers/run.sh [--quick] [--threads N] [--out FILE]
#
# Writes build/bench/peers.json unless told otherwise. PYTHON names the
# interpreter: 3.11 to 3.13.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/bench
environment=$root/build/peers-venv
requirements=$root/bench/peers/requirements.txt
arguments=("$@")
[[ " $* " == *" --out "* ]] || arguments+=(--out "$build/peers.json")

bash "$root/cmake/bootstrap.sh" --python
# Made again when the requirements change.
if ! cmp --quiet "$requirements" "$environment/installed"; then
  rm -rf "$environment"
  "${PYTHON:-python3}" -m venv "$environment"
  "$environment/bin/pip" install --quiet --no-deps -r "$requirements"
  cp "$requirements" "$environment/installed"
fi

torch=$("$environment/bin/python" -c \
  'import torch; print(list(torch.__path__)[0])')
cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release \
  -DFUSEDNORM_BENCHMARKS=ON -DFUSEDNORM_TESTS=OFF -DFUSEDNORM_BUILD_SHARED=OFF \
  -DFUSEDNORM_TORCH_DIR="$torch"
cmake --build "$build" --parallel "$(nproc)" --target peers

commit=$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
"$environment/bin/python" "$root/bench/peers/peers.py" \
  "$build/bench/peers/libpeers.so" --commit "$commit" "${arguments[@]}"

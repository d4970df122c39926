#!/usr/bin/env bash
# gpu_checks.sh FOLDER: what a GPU can show and no CPU can, in about five minutes, after `make gpu-bundle`.
#
# Installs the working tree (on_gpu.sh). Then, side by side: a thousand random chains of calls, every
# family of kernels beside the CPU's, 100000 calls in the same memory, compute-sanitizer; XLA compiles
# for the benchmarks meanwhile. Then the benchmarks, one after the other. FOLDER gets logs and JSON.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$1
mkdir -p "$folder"
export XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1 JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
JAX_COMPILATION_CACHE_DIR=$(mktemp -d)
export JAX_COMPILATION_CACHE_DIR
parts=(bert memory_bound products attention recurrent small_call models other_products data_dependent)

tools/on_gpu.sh python -c "import shlo_disc" || exit 1
run() { # LOG COMMAND...
  local log=$folder/$1.log
  shift
  tools/on_gpu.sh timeout 90 "$@" >"$log" 2>&1
  echo "exit status $?" >>"$log"
}
run chains python -m tests.gpu.chains 1000 &
run families env JAX_PLATFORMS=cpu python -m tests.gpu.on_device &
run endless python -m tests.gpu.endless 100000 &
for tool in memcheck racecheck; do
  run "$tool" env JAX_PLATFORMS=cpu compute-sanitizer --tool "$tool" --error-exitcode 9 \
    python -m tests.gpu.on_device &
done
for part in "${parts[@]}"; do
  SHLO_DISC_BENCHMARK_WARM=1 run "warm_$part" python -m benchmarks.gpu "$folder/warm.json" "$part" &
done
wait
rm -f "$folder/warm.json"
tail -n 2 "$folder"/{chains,families,endless,memcheck,racecheck}.log
for part in "${parts[@]}"; do
  run "$part" python -m benchmarks.gpu "$folder/$part.json" "$part"
  grep "^$part " "$folder/$part.log"
done

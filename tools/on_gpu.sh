#!/usr/bin/env bash
# on_gpu.sh COMMAND...: on a GPU machine without package registries, install the working tree and run
# a command in its environment. `make gpu-bundle` makes what it needs beforehand; carry build/gpu-bundle.
#
# The machine's own Python has JAX, llvmlite, nanobind, scikit-build-core and a compiler. Installing
# twice is quick: what was unpacked is kept in .venv-gpu.
set -euo pipefail
cd "$(dirname "$0")/.."

bundle=build/gpu-bundle/torch_mlir.tar.xz
python=${PYTHON:-python}
site=$PWD/.venv-gpu
if [[ ! -e $site/.installed ]]; then
  [[ -e $bundle ]] || { echo "on_gpu.sh: no $bundle; run make gpu-bundle first and carry it" >&2; exit 1; }
  mkdir -p "$site"
  tar -xJf "$bundle" -C "$site"
  CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "$python" -m pip install --quiet --no-index --no-deps \
    --no-build-isolation --disable-pip-version-check --target "$site/package" .
  mv "$site"/package/shlo_disc/ral/_ral*.so shlo_disc/ral/
  touch "$site/.installed"
fi
export PYTHONPATH="$PWD:$site${PYTHONPATH:+:$PYTHONPATH}"
exec "$@"

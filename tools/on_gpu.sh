#!/usr/bin/env bash
# on_gpu.sh COMMAND...: on a GPU machine without package registries, install the working tree and run
# a command in its environment. `make gpu-bundle` makes what it needs beforehand; carry build/gpu-bundle.
#
# The machine's own Python has JAX, llvmlite, nanobind, scikit-build-core and a compiler. Installing
# twice is quick: the environment is kept in .venv-gpu.
set -euo pipefail
cd "$(dirname "$0")/.."

bundle=build/gpu-bundle/torch_mlir.tar.xz
venv=.venv-gpu
if [[ ! -e $venv/.installed ]]; then
  [[ -e $bundle ]] || { echo "on_gpu.sh: no $bundle; run make gpu-bundle first and carry it" >&2; exit 1; }
  python3 -m venv --system-site-packages "$venv"
  tar -xJf "$bundle" -C "$("$venv"/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "$venv"/bin/python -m pip install --quiet --no-index --no-deps \
    --no-build-isolation --disable-pip-version-check --editable .
  touch "$venv/.installed"
fi
export PATH="$PWD/$venv/bin:$PATH"
exec "$@"

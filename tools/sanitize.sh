#!/usr/bin/env bash
# sanitize.sh address|thread [PYTEST ARGUMENT...]: the tests with a runtime built for a sanitizer.
#
# `address` is AddressSanitizer with UBSan, `thread` ThreadSanitizer; both are those of the C++
# compiler (GCC or Clang, with its libraries). Code that LLVM makes of kernels is not instrumented:
# tests/inaccessible.py puts the memory kernels get between inaccessible pages.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:-}
case $kind in
  address)
    flags=address,undefined library=libasan.so
    # Python and LLVM keep memory until the process ends, which is no leak of the runtime. LLVM gives the
    # thread that first writes an object file a signal stack of its own, which AddressSanitizer would unmap.
    export ASAN_OPTIONS=detect_leaks=0:use_sigaltstack=0:detect_odr_violation=0:allocator_may_return_null=1
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    ;;
  thread)
    flags=thread library=libtsan.so
    export TSAN_OPTIONS=halt_on_error=0:exitcode=66:report_mutex_bugs=0:detect_deadlocks=0:allocator_may_return_null=1:suppressions=$PWD/tools/tsan.txt:log_path=$PWD/build/thread/report
    ;;
  *)
    echo "usage: sanitize.sh address|thread [pytest arguments]" >&2
    exit 2
    ;;
esac
shift

python=$PWD/${VENV:-.venv}/bin/python
build=build/$kind
"$python" -m pip install --disable-pip-version-check --quiet cmake ninja nanobind </dev/null
PATH=$(dirname "$python"):$PATH
"$python" -m cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DPython_EXECUTABLE="$python" -DSHLO_DISC_SANITIZE="$flags" >/dev/null
"$python" -m cmake --build "$build" | tail -n 1

compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
SHLO_DISC_TEST_RAL=$(echo "$PWD/$build"/_ral*.so)
LD_PRELOAD=$("$compiler" -print-file-name="$library"):$("$compiler" -print-file-name=libstdc++.so.6)
export SHLO_DISC_TEST_RAL LD_PRELOAD
exec "$python" -m pytest -q -m "not unsanitized" "$@"

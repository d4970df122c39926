#!/usr/bin/env bash
# emulator.sh: install Debian's compiler and emulator for AArch64, where that is possible and they are
# not there. Without them tests that run code of AArch64 are skipped.
set -euo pipefail
if command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-g++ >/dev/null; then
  exit 0
fi
if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "emulator.sh: cannot install an emulator of AArch64 here (needs root and apt-get)" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
install() {
  timeout 300 apt-get install --yes --no-install-recommends g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user \
    >/dev/null 2>&1
}
if ! install && ! { timeout 120 apt-get update >/dev/null 2>&1 && install; }; then
  echo "emulator.sh: no emulator of AArch64 could be installed; tests that need it will be skipped" >&2
fi

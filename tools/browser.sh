#!/usr/bin/env bash
# browser.sh: install Debian's Chromium for the browser tests, where that is possible and it is not
# there. Without it those tests are skipped.
set -euo pipefail
if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then
  exit 0
fi
if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "browser.sh: cannot install chromium here (needs root and apt-get)" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
install() { timeout 240 apt-get install --yes --no-install-recommends chromium >/dev/null 2>&1; }
if ! install && ! { timeout 120 apt-get update >/dev/null 2>&1 && install; }; then
  echo "browser.sh: chromium could not be installed; browser tests will be skipped" >&2
fi

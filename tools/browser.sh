#!/usr/bin/env bash
# browser.sh: install Debian's Chromium for the browser tests, where that is possible and it is not
# there. Without it those tests are skipped.
set -euo pipefail
command -v chromium >/dev/null || command -v chromium-browser >/dev/null && exit 0
if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "browser.sh: cannot install chromium here (needs root and apt-get)" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install --yes --no-install-recommends chromium >/dev/null 2>&1 ||
  { apt-get update >/dev/null && apt-get install --yes --no-install-recommends chromium >/dev/null; } ||
  echo "browser.sh: chromium could not be installed; browser tests will be skipped" >&2

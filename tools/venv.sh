#!/usr/bin/env bash
# venv.sh DIRECTORY REQUIREMENT...: make a virtual environment there and install into it; the first
# requirement is this project, or `-r FILE` for an environment without it.
#
# Doing it again is safe and quick. $PYTHON is an interpreter or a list of versions to try in order
# ("3.13 3.12"); without it any Python from 3.11 to 3.13 will do.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
shift

suits() { # is this an interpreter of a version we support, with what venv needs?
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
    >/dev/null 2>&1
}

find_python() {
  local wanted=${PYTHON:-3.11 3.12 3.13} version candidate
  if [[ -x $wanted ]]; then
    suits "$wanted" && echo "$wanted" && return
    echo "venv.sh: $wanted is not Python 3.11 to 3.13 with venv and ensurepip" >&2
    return 1
  fi
  for version in ${wanted//python/}; do
    for candidate in "python$version" "$HOME/.pyenv/versions/$version".*/bin/python \
      "/opt/python/cp${version/./}-cp${version/./}/bin/python" "/usr/local/bin/python$version"; do
      if suits "$candidate"; then
        echo "$candidate"
        return
      fi
    done
  done
  if [[ -z ${PYTHON:-} ]] && suits python3; then
    echo python3
    return
  fi
  echo "venv.sh: found no Python among: $wanted; install one or set PYTHON=/path/to/python" >&2
  return 1
}

if [[ ! -x $venv/bin/python ]]; then
  "$(find_python)" -m venv "$venv"
fi

install() { "$venv/bin/python" -m pip install --disable-pip-version-check --quiet "$@" </dev/null; }

install --upgrade 'pip>=24'
if [[ $1 == -r ]]; then
  install "$@"
else
  # Editable, so that the tests see the tree. Environments of one Python share the C++ runtime.
  wheel=$("$venv/bin/python" tools/editable_wheel.py)
  install "$wheel${1#.}" "${@:2}"
  install --force-reinstall --no-deps "$wheel"  # pip leaves one of the same version
  # As pip does for packages; where .pyc files are forbidden, processes would compile them again.
  "$venv/bin/python" -m compileall -q shlo_disc
fi
touch "$venv/.installed"

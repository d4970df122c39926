"""Artifacts for AArch64, run here: the runtime's library cross-compiled, and qemu.

`tools/emulator.sh` installs what that takes; :func:`missing` tells what of that is not there.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.base.errors import ShapeMismatchError, UnsupportedError
from shlo_disc.executables.executable import Executable

ROOT = Path(__file__).parents[1]
TARGET = "aarch64"
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
LIBRARIES = "/usr/aarch64-linux-gnu"
"""Where Debian puts the libraries of C and C++ for AArch64."""


def missing() -> str:
    """What this machine needs to run code of AArch64 and has not; "" if it has all."""
    lacks = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
    return f"no {' and no '.join(lacks)}: run tools/emulator.sh" if lacks else ""


def built_runner() -> Path:
    """`tests/artifacts/runner.cpp` for AArch64, with the library of the runtime.

    CMake builds anew what is older than its source. One process builds at a time.
    """
    folder, runner = ROOT / "build" / TARGET, ROOT / "build" / TARGET / "runner"
    folder.mkdir(parents=True, exist_ok=True)
    cmake = sys.executable, "-m", "cmake"
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_COMPILER": COMPILER,
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": TARGET,
        "SHLO_DISC_PYTHON": "OFF",
    }
    source, core = ROOT / "tests/artifacts/runner.cpp", ROOT / "shlo_disc/ral/src/core"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        given = [f"-D{name}={value}" for name, value in options.items()]
        _done(*cmake, "-S", str(ROOT), "-B", str(folder), *given)
        _done(*cmake, "--build", str(folder), "--parallel", "2")
        libraries = [folder / "libdisc_ral_core.a", folder / "lib/libdisc_ral.so"]
        newest = max(path.stat().st_mtime for path in (source, *libraries))
        if not runner.exists() or runner.stat().st_mtime < newest:
            _done(
                *(COMPILER, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", str(source)),
                *(f"-I{core}", f"-I{core.parents[1] / 'include'}", "-o", str(runner)),
                *(*map(str, libraries), f"-Wl,-rpath,{folder / 'lib'}", "-pthread"),
            )
    return runner


def _done(*command: str) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{ran.stdout}{ran.stderr}")


def told(runner: Path, *arguments: str) -> list[str]:
    """The lines that the runner prints. Raises RuntimeError where a signal ends it."""
    command = [EMULATOR, "-L", LIBRARIES, str(runner), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"exit status {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout.splitlines()


class Emulated:
    """A program that is saved for :data:`TARGET`; each call is a process of qemu's."""

    def __init__(self, executable: Any, runner: Path, folder: Path) -> None:
        """`folder`: for its files. Raises UnsupportedError for what an artifact cannot hold."""
        if not isinstance(executable, Executable):
            raise UnsupportedError("a program of several parts cannot be saved")
        self.executable, self._runner, self._folder = executable, runner, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.artifact = folder / "program.disc"
        executable.save(self.artifact, targets=[TARGET])

    def run_numpy(self, leaves: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """As :meth:`Executable.run_numpy`; errors of any kind are ShapeMismatchError."""
        signature, results = self.executable.signature, self._folder / "results"
        lines = [str(results)]
        for i, (leaf, spec) in enumerate(zip(leaves, signature.arguments, strict=True)):
            array = np.asarray(leaf, spec.dtype)
            path = self._folder / f"{i}.bin"
            path.write_bytes(array.tobytes())
            lines.append(f"{path} {array.dtype.name} {' '.join(map(str, array.shape))}")
        results.unlink(missing_ok=True)
        call = self._folder / "call"
        call.write_text("\n".join(lines))
        sizes = told(self._runner, "run", str(self.artifact), str(call))
        if not results.exists():
            raise ShapeMismatchError(" ".join(sizes))
        data, out = results.read_bytes(), []
        for line, result in zip(sizes, signature.results, strict=True):
            shape = tuple(map(int, line.split()))
            count = int(np.prod(shape)) * result.dtype.itemsize
            out.append(np.frombuffer(data[:count], result.dtype).reshape(shape))
            data = data[count:]
        assert not data, "all bytes are those of results"
        return out

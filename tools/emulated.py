"""Programs for AArch64, run here: the runtime cross-compiled, and qemu.

`apt-get install g++-aarch64-linux-gnu qemu-user` gives what it takes; :func:`missing` tells what of
that is not there.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from shlo_disc import ral
from shlo_disc.base.errors import ShapeMismatchError, UnsupportedError
from shlo_disc.executables.executable import Executable
from shlo_disc.executables.record import ProgramRecord
from shlo_disc.executables.signature import signature_of
from shlo_disc.lower.cpu.foreign_code import HOST_FUNCTIONS, Objects, objects_for

ROOT = Path(__file__).parents[1]
CORE = ROOT / "shlo_disc/ral/src/core"
TARGET = "cpu:aarch64"
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


def missing() -> str:
    """What a machine needs to run code of AArch64 and has not; "" if it has all."""
    lacks = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
    advice = "apt-get install g++-aarch64-linux-gnu qemu-user"
    return f"no {' and no '.join(lacks)} ({advice})" if lacks else ""


def built_core(folder: Path) -> Path:
    """`tests/ral/core.cpp` with the core of the runtime for AArch64, built in `folder`.

    What is newer than its source is not built again. One process builds at a time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _built(folder)


def _built(folder: Path) -> Path:
    headers = [*CORE.glob("*.h"), *Path(ral.include_dir()).glob("*.h")]
    newest = max(header.stat().st_mtime for header in headers)
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
    flags += [f"-I{CORE}", f"-I{ral.include_dir()}"]

    def compiled(source: Path) -> Path:
        out = folder / f"{source.stem}.o"
        if not out.exists() or out.stat().st_mtime < max(newest, source.stat().st_mtime):
            command = [COMPILER, *flags, "-c", str(source), "-o", str(out)]
            subprocess.run(command, check=True)
        return out

    with ThreadPoolExecutor(2) as pool:
        objects = list(
            pool.map(compiled, [*sorted(CORE.glob("*.cpp")), ROOT / "tests/ral/core.cpp"])
        )
    program = folder / "core"
    if not program.exists() or program.stat().st_mtime < max(o.stat().st_mtime for o in objects):
        # Static: it runs without the libraries of an Arm system.
        command = [COMPILER, *map(str, objects), "-static", "-pthread", "-o", str(program)]
        subprocess.run(command, check=True, capture_output=True)
    return program


def run_core(core: Path, *arguments: str) -> str:
    """What the program :func:`built_core` prints. Raises CalledProcessError where it fails."""
    command = [EMULATOR, str(core), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Emulated:
    """A program that was compiled for :data:`TARGET`; its calls run in a process of qemu's."""

    def __init__(self, executable: Any, core: Path, folder: Path) -> None:
        """`folder`: for its files. Raises UnsupportedError for what needs more than the core."""
        if not isinstance(executable, Executable) or executable.record.has_apart:
            raise UnsupportedError("a program of several parts is not run by the core alone")
        if executable.host.foreign:
            raise UnsupportedError("FFI targets are not called by the core alone")
        self._core, self._folder, self._calls = core, folder, 0
        folder.mkdir(parents=True, exist_ok=True)
        self._record = executable.record
        self._lines = program_lines(self._record, folder)

    def run_numpy(self, leaves: Sequence[Any]) -> list[np.ndarray]:
        """As :meth:`Executable.run_numpy`."""
        signature, lines = signature_of(self._record), [*self._lines]
        self._calls += 1
        for i, (leaf, spec) in enumerate(zip(leaves, signature.arguments, strict=True)):
            array = np.asarray(leaf, spec.dtype)
            path = self._folder / f"{i}.bin"
            path.write_bytes(array.tobytes())
            lines.append(f"argument {path} {array.dtype.name} {' '.join(map(str, array.shape))}")
        results = self._folder / "results"
        results.unlink(missing_ok=True)
        program = self._folder / "program"
        program.write_text("\n".join([*lines, f"once {results}"]))
        told = run_core(self._core, str(program)).split("\n")[:-1]
        if not results.exists():
            raise ShapeMismatchError(" ".join(told))
        data, out = results.read_bytes(), []
        for line, result in zip(told, signature.results, strict=True):
            sizes = tuple(map(int, line.split()))
            count = int(np.prod(sizes)) * result.dtype.itemsize
            out.append(np.frombuffer(data[:count], result.dtype).reshape(sizes))
            data = data[count:]
        assert not data, "all bytes are those of results"
        return out


def program_lines(record: ProgramRecord, folder: Path) -> list[str]:
    """A program as lines of `tests/ral/core.cpp`; the files that they name are in `folder`."""
    objects: Objects = objects_for(record.target.partition(":")[2])
    program, host, signature = record.program, record.host, signature_of(record)

    def written(name: str, data: bytes) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    code = written("host.o", objects.of_host(host.text))
    kernels = []
    for kernel in host.kernels:
        name = objects.kernel_name(kernel.text)
        kernels.append(f"kernel {written(f'{name}.o', objects.of_kernel(kernel.text))} {name}")
    sizes = [[e.value if e.is_const else -1 for e in shape] for shape in program.arguments]
    return [
        f"name {record.name}",
        f"symbols {len(program.steps)}",
        *(f"guard {check.message}".replace("\n", " ") for check in program.checks),
        "guard an array is too large",
        *(f"{name} {code} {name}" for name in HOST_FUNCTIONS),
        *kernels,
        *(
            f"constant {written(f'constant_{i}', constant.tobytes())}"
            for i, constant in enumerate(host.constants)
        ),
        *(f"layout {key}" for key in host.pack_keys),
        *(
            f"parameter {spec.dtype.name} argument_{i} {' '.join(map(str, each))}"
            for i, (spec, each) in enumerate(zip(signature.arguments, sizes, strict=True))
        ),
        f"sized_by {' '.join(map(str, program.size_arguments))}",
        *(f"result {spec.dtype.name} {len(spec.sizes)}" for spec in signature.results),
    ]


def core_folder() -> Path:
    """Where :func:`built_core` keeps what it builds between runs."""
    return ROOT / "build/aarch64"

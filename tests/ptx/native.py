"""The native part of the interpreter: `src/*.cpp`, compiled once and loaded with ctypes."""

from __future__ import annotations

import concurrent.futures
import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

SOURCES = Path(__file__).with_name("src")
HOT = {"memory", "order", "scheduler"}
"""Sources where time is spent; the others only take longer to compile with -O2."""
FLAGS = ["-std=c++20", "-march=native", "-ffp-contract=off", "-fPIC", "-Wall", "-Wextra"]

CODE = np.dtype(
    [
        *((name, np.int32) for name in ("op", "guard", "first", "count", "together", "pad")),
        ("imm", np.int64, 4),
    ]
)
"""`Encoded` of machine.h."""
SEGMENT = np.dtype([(name, np.uint64) for name in ("begin", "bytes", "host", "writable")])
"""`Segment` of machine.h."""


class Launch(ctypes.Structure):
    """`Launch` of machine.h."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("params", ctypes.c_char_p),
        ("param_bytes", ctypes.c_uint64),
        *(
            part
            for name in ("segment", "shared", "local")
            for part in ((f"{name}s", ctypes.c_void_p), (f"{name}_count", ctypes.c_uint64))
        ),
        ("granule", ctypes.c_uint64),
        ("global_granule", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("limit", ctypes.c_uint64),
        ("fill", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("at", ctypes.c_int64),
        ("message", ctypes.c_char * 480),
    )


class Program:
    """A kernel that the native part has loaded."""

    def __init__(
        self, code: np.ndarray, operands: np.ndarray, constants: np.ndarray, registers: int
    ) -> None:
        arrays = [(a.ctypes.data, len(a)) for a in (code, operands, constants)]
        self._at = _library().ptx_program(*(x for pair in arrays for x in pair), registers)

    def __del__(self) -> None:
        _library().ptx_free(self._at)

    def launch(self, launch: Launch) -> int:
        """0, or 1 after a fault, 2 at an instruction that is not written, 3 after a mistake."""
        return int(_library().ptx_launch(self._at, ctypes.byref(launch)))


@functools.cache
def handlers() -> dict[str, int]:
    """The numbers of all instructions that the native part knows."""
    found: dict[str, int] = {}
    while name := _library().ptx_handler(len(found)):
        found[name.decode()] = len(found)
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_built()))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.ptx_handler.restype = ctypes.c_char_p
    library.ptx_program.restype = pointer
    library.ptx_program.argtypes = [pointer, number] * 3 + [ctypes.c_int32]
    library.ptx_free.argtypes = [pointer]
    library.ptx_free.restype = None
    library.ptx_launch.argtypes = [pointer, pointer]
    return library


def _built() -> Path:
    """The library, compiled at the first use on this machine for these sources."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    key = hashlib.sha256(repr([compiler, FLAGS, sorted(HOT), platform.node()]).encode())
    for path in sorted(SOURCES.iterdir()):
        key.update(path.name.encode() + path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"shlo_disc-ptx-{os.getuid()}"
    library = folder / f"{key.hexdigest()[:24]}.so"
    folder.mkdir(exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the workers of a test run need it at the same time
        if not library.exists():
            _compile(compiler, library)
    return library


def _compile(compiler: Sequence[str], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as own:
        sources = sorted(SOURCES.glob("*.cpp"))
        objects = [Path(own) / f"{source.stem}.o" for source in sources]

        def compile_one(source: Path, to: Path) -> None:
            level = "-O2" if source.stem in HOT else "-O1"
            command = [*compiler, *FLAGS, level, "-c", str(source), "-o", str(to)]
            subprocess.run(command, check=True)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, sources, objects))
        linked = Path(own) / library.name
        subprocess.run([*compiler, "-shared", *map(str, objects), "-o", str(linked)], check=True)
        linked.replace(library)

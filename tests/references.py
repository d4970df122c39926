"""What XLA makes of the programs that results are compared with, kept between runs.

JAX's own cache on disk, with three differences: files appear whole (two workers and their children
share them), the CPU is in their keys, and the configuration of JAX is as users have it. Their keys
are JAX's: the module, the version of jaxlib, XLA's flags and the options of the compilation.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import jax
from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface
from jax._src.interpreters import mlir

FOLDER = Path(os.environ["SHLO_DISC_CACHE_DIR"]) / "references"
"""Beside the machine code of tests (`tests/conftest.py`)."""
LIMIT_BYTES = 512 << 20
COUNTS: Counter[str] = Counter()
"""Of this process: "asked", "loaded" and "compiled". JAX keeps none of those that call back."""


class References(CacheInterface):
    """Files of one folder, named by the digest of their key and of the CPU."""

    def __init__(self, folder: Path) -> None:
        self._path = folder
        folder.mkdir(parents=True, exist_ok=True)
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        self._cpu = next((s for s in lines if s.startswith(("flags", "Features"))), "")

    def _file(self, key: str) -> Path:
        return self._path / hashlib.sha256(f"{key} {self._cpu}".encode()).hexdigest()

    def get(self, key: str) -> bytes | None:
        """What was put there; None for a key that is new, or was removed."""
        COUNTS["asked"] += 1
        file = self._file(key)
        try:
            content = file.read_bytes()
            os.utime(file)  # `prune` removes what was not used for longest
        except FileNotFoundError:
            return None
        COUNTS["loaded"] += 1
        return content

    def put(self, key: str, value: bytes) -> None:
        """Keep `value`; the last one that is put under a key stays."""
        COUNTS["compiled"] += 1
        file = self._file(key)
        unfinished = file.with_name(f"{secrets.token_hex(8)}.tmp")
        unfinished.write_bytes(value)
        unfinished.replace(file)


def keep(folder: Path = FOLDER) -> None:
    """Have JAX keep in `folder` what XLA compiles in this process from now on."""
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    compilation_cache._cache = References(folder)
    compilation_cache._cache_initialized = True
    compilation_cache._cache_checked = compilation_cache._cache_used = True


def share_contexts(lowerings: int = 64) -> None:
    """Have JAX use a context of MLIR for so many lowerings of a thread, one after the other.

    JAX makes one for each lowering, of each small operation of a test too: a 16th of all time.
    """
    make, own = mlir.make_ir_context, threading.local()

    def shared() -> Any:
        if mlir.ir.Context.current is not None:  # what is lowered meanwhile would get into it
            return make()
        left = getattr(own, "left", 0)
        if not left:
            own.context, left = make(), lowerings
        own.left = left - 1
        return own.context

    mlir.make_ir_context = shared


def prune(folder: Path = FOLDER, limit_bytes: int = LIMIT_BYTES) -> None:
    """Remove the files that were not used for longest, down to the limit."""
    found: list[tuple[float, int, str]] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as files:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                known = file.stat()
                found.append((known.st_mtime, known.st_size, file.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit_bytes:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        total -= size

"""What the emitters must know of the machine they write for."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Target", "host_target"]


@dataclass(frozen=True)
class Target:
    """A CPU: vector width, caches, instruction set features."""

    vector_bytes: int = 64
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 1024 * 1024
    cores: int = 1
    features: frozenset[str] = frozenset()
    """Names as in /proc/cpuinfo: avx2, fma, avx512f, ..."""

    def lanes(self, element_bytes: int) -> int:
        """Elements in one vector register."""
        return max(1, self.vector_bytes // element_bytes)

    @property
    def vector_registers(self) -> int:
        """Number of vector registers."""
        return 32 if self.vector_bytes == 64 else 16

    @staticmethod
    def host() -> Target:
        """See :func:`host_target`."""
        return host_target()


@functools.cache
def host_target() -> Target:
    """The machine this process runs on; a plain SSE2 machine where nothing can be read."""
    features = _host_features()
    width = 64 if "avx512f" in features else 32 if "avx2" in features else 16
    return Target(
        vector_bytes=width,
        l1_bytes=_cache_bytes(1, 32 * 1024),
        l2_bytes=_cache_bytes(2, 1024 * 1024),
        cores=len(os.sched_getaffinity(0)),
        features=features,
    )


def _host_features() -> frozenset[str]:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return frozenset()
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _cache_bytes(level: int, default: int) -> int:
    """The data cache of `level` seen by the first core."""
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        kind = (index / "type").read_text().strip()
        if int((index / "level").read_text()) == level and kind in ("Data", "Unified"):
            text = (index / "size").read_text().strip()
            units = {"K": 1024, "M": 1024 * 1024}
            return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)
    return default

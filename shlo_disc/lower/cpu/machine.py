"""What the emitters must know of the CPU they write for."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from shlo_disc.base import flags
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu import matrix_unit

if TYPE_CHECKING:
    from shlo_disc.lower.cpu.builder import CpuBuilder, SizedBuilder


class Level(NamedTuple):
    """A level of x86-64."""

    vector_bytes: int
    features: frozenset[str]
    """What it has beyond SSE2 and generated code asks for."""
    abi_name: str
    """Its name in the System V ABI, which LLVM takes for a CPU."""
    abi_features: tuple[str, ...]
    """What code of kernels may use of it beyond SSE2, by LLVM's names."""


_AVX2 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})
_AVX512 = frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})
_V2 = ("popcnt", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
ARCHITECTURES: dict[str, Level] = {
    "sse2": Level(16, frozenset(), "x86-64", ()),
    "avx2": Level(32, _AVX2, "x86-64-v3", _V3),
    "avx512": Level(64, _AVX2 | _AVX512, "x86-64-v4", (*_V3, *sorted(_AVX512))),
}
"""The levels of x86-64 by the names that targets have. Source: the System V ABI."""

HOST_OF_GPUS = "avx2"
"""The level of the CPU that launches kernels of GPUs in artifacts."""


@dataclass(frozen=True)
class Machine:
    """A CPU: vector width, caches, instruction set and features of it."""

    vector_bytes: int = 64
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 1024 * 1024
    cores: int = 1
    features: frozenset[str] = frozenset()
    """Names as in /proc/cpuinfo: avx2, fma, avx512f, ...; of others, those in :data:`OTHERS`."""
    without: frozenset[str] = frozenset()
    """Features that this process's CPU has and that generated code must not use."""
    instruction_set: str = "x86-64"
    """The other one is "aarch64"."""
    vendor: str = ""
    """As in /proc/cpuinfo."""

    def lanes(self, element_bytes: int) -> int:
        """Elements in one vector register."""
        return max(1, self.vector_bytes // element_bytes)

    def run(self, elements: int) -> int:
        """Neighbouring elements that make a task: all `elements` that pay for it."""
        return elements

    def moved(self, elements: int, lanes: int) -> int:
        """The same for tasks that only move elements."""
        return elements

    def builder(self) -> CpuBuilder:
        """A new kernel for this machine."""
        from shlo_disc.lower.cpu.builder import CpuBuilder  # noqa: PLC0415 - kept code needs none

        return CpuBuilder(self)

    def sized(self, sizes: Mapping[str, Expr]) -> SizedBuilder:
        """A new kernel for this machine, with named sizes."""
        from shlo_disc.lower.cpu.builder import SizedBuilder  # noqa: PLC0415 - as above

        return SizedBuilder(self, sizes)

    @property
    def vector_registers(self) -> int:
        """Number of vector registers."""
        has_many = self.vector_bytes == 64 or self.instruction_set == "aarch64"
        return 32 if has_many else 16

    @property
    def is_this_one(self) -> bool:
        """True if this process can run its code."""
        return self.instruction_set == _instruction_set()

    @property
    def has_fma(self) -> bool:
        """True if a multiply-add is one instruction, rounded once."""
        return "fma" in self.features or self.vector_bytes == 64

    @property
    def multiplies_bf16(self) -> bool:
        """True if `vdpbf16ps` is faster than multiply-adds of f32.

        Intel's CPUs issue it once in two cycles, half as often as a multiply-add of f32. A core of
        a Sapphire Rapids gets 102 Gop/s of it, and 170 to 199 of f32. Zen 4 is published as faster
        with it.
        """
        is_slow = self.vendor == _INTEL
        return self.vector_bytes == 64 and "avx512_bf16" in self.features and not is_slow

    def has_tiles(self, feature: str) -> bool:
        """True if products may use `feature` of AMX, or its soft lowering.

        The first question on a machine with AMX asks the system for its permission.
        """
        if not self.has_fma:
            return False
        if matrix_unit.SOFT in self.features:
            return True
        return {"amx_tile", feature} <= self.features and matrix_unit.is_granted()


OTHERS: dict[str, Machine] = {
    "aarch64": Machine(
        instruction_set="aarch64",
        vector_bytes=16,
        l1_bytes=64 * 1024,
        l2_bytes=1024 * 1024,
        features=frozenset({"asimd", "fma"}),
    ),
}
"""Name of an instruction set to what all its machines have, and to the caches of a usual one.

Armv8-A has 32 registers of 16 bytes, and multiply-adds that round once. The caches are those of a
Neoverse N1.
"""


def machine_of(architecture: str) -> Machine:
    """The machine this process runs on, used as one of :data:`ARCHITECTURES` ("": as it is).

    Or one of :data:`OTHERS`, with as many cores. Raises UnsupportedError for another name, and
    where this machine lacks a feature.
    """
    host = host_machine()
    if not architecture:
        return with_tiles(host, flags.amx())
    if architecture in OTHERS:
        return replace(OTHERS[architecture], cores=host.cores)
    if architecture not in ARCHITECTURES:
        raise UnsupportedError(
            f"target 'cpu:{architecture}' is unknown; architectures: "
            f"{', '.join([*ARCHITECTURES, *OTHERS])}"
        )
    vector_bytes, features, *_ = ARCHITECTURES[architecture]
    if missing := features - host.features:
        raise UnsupportedError(
            f"target 'cpu:{architecture}' needs {', '.join(sorted(missing))}; this CPU has none"
        )
    beyond = frozenset(name for name in host.features - features if name.startswith(_VECTOR))
    return replace(host, vector_bytes=vector_bytes, features=features | {"sse2"}, without=beyond)


def with_tiles(machine: Machine, how: str) -> Machine:
    """`machine` with AMX as `SHLO_DISC_AMX` says."""
    if how == "1":
        return machine
    features = machine.features - matrix_unit.HARDWARE
    return replace(machine, features=features | ({matrix_unit.SOFT} if how == "soft" else set()))


def machine_of_level(architecture: str, cores: int) -> Machine:
    """Any machine of a level, with `cores` and common caches; this machine may be another one."""
    level = ARCHITECTURES[architecture]
    return Machine(level.vector_bytes, cores=cores, features=level.features | {"sse2"})


_INTEL = "GenuineIntel"
_VECTOR = ("amx", "avx", "bmi", "f16c", "fma")
"""Prefixes of the names of features that change what is generated."""


@functools.cache
def host_machine() -> Machine:
    """The machine this process runs on; a plain machine where nothing can be read."""
    said = _host_facts()
    features = frozenset(said.get("flags", "").split())
    if _instruction_set() in OTHERS:
        other = OTHERS[_instruction_set()]
        caches = _cache_bytes()
        return replace(
            other,
            l1_bytes=caches.get("1", other.l1_bytes),
            l2_bytes=caches.get("2", other.l2_bytes),
            cores=len(os.sched_getaffinity(0)),
            features=features | other.features,
        )
    width = 64 if "avx512f" in features else 32 if "avx2" in features else 16
    caches = _cache_bytes()
    return Machine(
        vector_bytes=width,
        l1_bytes=caches.get("1", 32 * 1024),
        l2_bytes=caches.get("2", 1024 * 1024),
        cores=len(os.sched_getaffinity(0)),
        features=features,
        vendor=said.get("vendor_id", ""),
    )


def _instruction_set() -> str:
    """Of this process's machine; x86-64 has many names."""
    name = platform.machine()
    return name if name in OTHERS else "x86-64"


def _host_facts() -> dict[str, str]:
    """What /proc/cpuinfo says of the first core, up to its flags."""
    facts: dict[str, str] = {}
    if os.path.exists("/proc/cpuinfo"):
        # The system writes what is read of it: a hundred cores after the first take milliseconds.
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                facts[name.strip()] = value.strip()
                if "flags" in facts:
                    break
    return facts


_CACHES = "/sys/devices/system/cpu/cpu0/cache"


def _cache_bytes() -> dict[str, int]:
    """The data caches seen by the first core, by level."""
    found: dict[str, int] = {}
    units = {"K": 1024, "M": 1024 * 1024}
    folders = os.listdir(_CACHES) if os.path.isdir(_CACHES) else ()
    for folder in sorted(folder for folder in folders if folder.startswith("index")):
        if found.keys() >= {"1", "2"}:
            break  # nobody asks for others, and each file takes the system long
        if _read(folder, "type") in ("Data", "Unified"):
            level, text = _read(folder, "level"), _read(folder, "size")
            size = int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)
            found.setdefault(level, size)
    return found


def _read(folder: str, name: str) -> str:
    with open(f"{_CACHES}/{folder}/{name}", encoding="utf-8") as file:
        return file.read().strip()

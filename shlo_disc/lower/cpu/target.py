"""The CPU as a target: one emitter per kind of fusion, found in :data:`EMITTERS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shlo_disc.base.later import imported_later
from shlo_disc.ir.mlir import is_in_loop
from shlo_disc.lower.cpu import codegen, foreign_code
from shlo_disc.lower.cpu.host_memory import CpuMemory
from shlo_disc.lower.cpu.machine import (
    ARCHITECTURES,
    OTHERS,
    Machine,
    machine_of,
    machine_of_level,
)
from shlo_disc.lower.cpu.matrix_unit import answer
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.lower.plan import KernelPlan, text_of
from shlo_disc.lower.target import ArtifactTarget, Target
from shlo_disc.passes.records import Planned

__all__ = ["EMITTERS", "Machine", "target"]

_Emit = Callable[[Planned[Any], Machine], KernelPlan]

emit_few_elements = imported_later("shlo_disc.lower.cpu.few_elements", "emit_few_elements")
has_few_elements = imported_later("shlo_disc.lower.cpu.few_elements", "has_few_elements")
probes = imported_later("shlo_disc.lower.cpu.probes", "probes")


def _unless_few(emit: _Emit) -> _Emit:
    """`emit`, or the emitter of few elements in its place."""

    def emit_any(fusion: Planned[Any], machine: Machine) -> KernelPlan:
        is_few = is_in_loop(fusion.op) and has_few_elements(fusion)
        plan: KernelPlan = (emit_few_elements if is_few else emit)(fusion, machine)
        return plan

    return emit_any


_emit_rows = _unless_few(imported_later("shlo_disc.lower.cpu.row", "emit"))

EMITTERS: dict[str, _Emit] = {
    "attention": imported_later("shlo_disc.lower.cpu.attention", "emit_attention"),
    "column": _emit_rows,
    "conv": imported_later("shlo_disc.lower.cpu.conv", "emit_conv"),
    "dense": _unless_few(imported_later("shlo_disc.lower.cpu.dense", "emit_dense")),
    "dynamic_update_slice": imported_later(
        "shlo_disc.lower.kernels.update_slice", "emit_dynamic_update_slice"
    ),
    "ffi": imported_later("shlo_disc.lower.kernels.ffi_call", "emit_ffi"),
    "fft": imported_later("shlo_disc.lower.cpu.fft", "emit_fft"),
    "loop": _unless_few(imported_later("shlo_disc.lower.cpu.loop", "emit")),
    "rng": imported_later("shlo_disc.lower.kernels.rng", "emit_rng"),
    "row": _emit_rows,
    "scan": imported_later("shlo_disc.lower.cpu.short_scan", "emit"),
    "scatter": imported_later("shlo_disc.lower.kernels.scatter", "emit_scatter"),
    "select_and_scatter": imported_later(
        "shlo_disc.lower.kernels.select_and_scatter", "emit_select_and_scatter"
    ),
    "sort": imported_later("shlo_disc.lower.kernels.sort", "emit_sort"),
    "top_k": imported_later("shlo_disc.lower.kernels.top_k", "emit_top_k"),
}
"""The emitter of every kind of fusion."""


def target(architecture: str) -> Target:
    """The CPU of this process, used as `architecture` (see `machine_of`; "": as it is).

    Or a CPU that code can be made for, but does not run here.
    """
    machine = machine_of(architecture)
    own = _target(architecture, machine)
    return own if machine.is_this_one else _foreign(own, foreign_code.Objects(machine))


def artifact_target(name: str, cores: int) -> ArtifactTarget | None:
    """Any CPU of a level of x86-64, or of Arm's, that has `cores`; None for another name."""
    if name in OTHERS:
        features: tuple[str, ...] = ("neon",)
        architecture = family = name
        machine = replace(OTHERS[name], cores=cores)
    else:
        known = [own for own, level in ARCHITECTURES.items() if level.abi_name == name]
        if not known:
            return None
        (architecture,), family = known, "x86-64"
        machine = machine_of_level(architecture, cores)
        features = ARCHITECTURES[architecture].abi_features
    objects = foreign_code.Objects(machine, "" if name in OTHERS else name)
    made = _foreign(_target(architecture, machine), objects)
    return ArtifactTarget(name, family, features, replace(made, code_names=None))


def _target(architecture: str, machine: Machine) -> Target:
    return Target(
        name=f"cpu:{architecture}" if architecture else "cpu",
        machine=machine,
        model=MODEL,
        emitters=EMITTERS,
        generator=lambda: codegen.Builder(machine=machine),
        memory=CpuMemory(),
        compile_host=lambda text: codegen.compile_host(text, machine),
        code_names=lambda host, kernels, plans: codegen.code_names(host, kernels, plans, machine),
        views={
            "llvm": lambda sources: codegen.llvm_text([*map(text_of, sources)], machine),
            "asm": lambda sources: codegen.assembly([*map(text_of, sources)], machine),
        },
        function_name=lambda text: codegen.function_name(text, machine),
        code=codegen.RECENT,
        probes=lambda: probes(machine),
        details=lambda: _details(machine),
    )


def _foreign(own: Target, objects: foreign_code.Objects) -> Target:
    """`own` with code for a machine that this process does not run on."""
    return replace(
        own,
        generator=lambda: foreign_code.Builder(objects),
        compile_host=lambda text: foreign_code.host_functions(objects, text),
        views={
            "llvm": own.views["llvm"],
            "asm": lambda sources: "\n".join(map(objects.assembly_of, map(text_of, sources))),
        },
        code=foreign_code.RECENT,
        probes=None,
    )


_FEATURES = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl",
             "avx512_bf16", "avx512_fp16", "amx_tile")  # fmt: skip
"""Instruction sets that change what is generated; /proc/cpuinfo lists a hundred more."""


def _details(machine: Machine) -> dict[str, str]:
    present = [name for name in _FEATURES if name in machine.features]
    tiles = {} if "amx_tile" not in machine.features else {"AMX": answer() or "not asked for"}
    return tiles | {
        "Features": " ".join(present) or "none known",
        "Vector registers": f"{8 * machine.vector_bytes} bits",
        "L1d / L2 per core": f"{machine.l1_bytes // 1024} / {machine.l2_bytes // 1024} KiB",
        "Cores this process may use": str(machine.cores),
    }

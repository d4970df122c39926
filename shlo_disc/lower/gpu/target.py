"""The target of one GPU architecture, from its machine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from shlo_disc.lower.gpu import codegen, loop, rows
from shlo_disc.lower.gpu.host_memory import GpuMemory
from shlo_disc.lower.gpu.launches import Emit, for_threads
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.products import TiledProduct, emit_dense
from shlo_disc.lower.gpu.scan import emit_scan
from shlo_disc.lower.gpu.scatter import emit_scatter
from shlo_disc.lower.gpu.sort import emit_sort
from shlo_disc.lower.gpu.top_k import emit_top_k
from shlo_disc.lower.kernels.ffi_call import emit_ffi
from shlo_disc.lower.kernels.fft import emit_fft
from shlo_disc.lower.kernels.rng import emit_rng
from shlo_disc.lower.kernels.select_and_scatter import emit_select_and_scatter
from shlo_disc.lower.kernels.update_slice import emit_dynamic_update_slice
from shlo_disc.lower.plan import KernelText
from shlo_disc.lower.products.conv import emit_conv
from shlo_disc.lower.target import Function, Target
from shlo_disc.passes.machine_model import MachineModel

EMITTERS: dict[str, Emit] = {
    "column": rows.emit,
    "conv": functools.partial(emit_conv, make_planner=TiledProduct),
    "dense": emit_dense,
    "dynamic_update_slice": emit_dynamic_update_slice,
    "ffi": emit_ffi,
    "fft": emit_fft,
    "loop": loop.emit,
    "rng": emit_rng,
    "row": rows.emit,
    "scan": emit_scan,
    "scatter": emit_scatter,
    "select_and_scatter": emit_select_and_scatter,
    "sort": emit_sort,
    "top_k": emit_top_k,
}
"""The emitter of every kind of fusion."""


def gpu_target(
    machine: Machine,
    model: MachineModel,
    emitters: Mapping[str, Emit],
    compile_host: Callable[[str], tuple[Function, Function]],
    views: Mapping[str, Callable[[Sequence[KernelText]], str]],
    details: Callable[[], Mapping[str, str]] = dict,
) -> Target:
    """The target of `machine`, with the planner's numbers `model`.

    `emitters` differ from :data:`EMITTERS` where the machine has kernels of its own. `compile_host`
    compiles host programs for this process. `views` are forms of machine code. `details` are
    further rows of `Target.details`.
    """
    return Target(
        name=machine.name,
        machine=machine,
        model=model,
        emitters={kind: for_threads(emit) for kind, emit in emitters.items()},
        generator=functools.partial(codegen.Builder, machine),
        memory=GpuMemory(),
        compile_host=compile_host,
        code_names=None,
        views={"llvm": functools.partial(codegen.llvm, machine=machine), **views},
        function_name=functools.partial(codegen.function_name, machine=machine),
        code=codegen.RECENT,
        probes=None,
        details=lambda: {
            "Architecture": machine.architecture,
            "Threads of a warp": str(machine.warp),
            **details(),
        },
    )

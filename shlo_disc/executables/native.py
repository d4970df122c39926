"""From the record of a program to the object of the runtime that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import cast

from shlo_disc import ral
from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError, UnsupportedError
from shlo_disc.executables.record import ProgramRecord
from shlo_disc.executables.signature import dtype_of, signature_of
from shlo_disc.ffi.targets import PLATFORMS, FfiTarget, ffi_target
from shlo_disc.lower.background import finish_all_later, pack_later
from shlo_disc.lower.host.record import TOO_LARGE, HostProgram
from shlo_disc.lower.images import KernelImage
from shlo_disc.lower.plan import FfiAttribute, FfiCall, kernels_of
from shlo_disc.lower.target import Function


def ffi_targets_of(record: ProgramRecord) -> dict[str, FfiTarget]:
    """The registered FFI targets that a program calls, by name.

    Raises UnsupportedError for one that is not registered.
    """
    platform = record.target.partition(":")[0]
    return {
        call.target: ffi_target(call.target, where, platform) for call, where in record.host.foreign
    }


def native_executable(
    record: ProgramRecord,
    kernels: Sequence[Function],
    plans: Sequence[Function],
    entry_points: tuple[Function, Function],
    targets: Mapping[str, FfiTarget],
) -> ral.Executable:
    """The program of a record in the runtime; `plans`: the functions of its plans.

    `entry_points`: `prepare` and `run` of its host program, `targets`: those of
    :func:`ffi_targets_of`.

    Raises UnsupportedError for an FFI target that cannot be called.
    """
    program, host, signature = record.program, record.host, signature_of(record)
    donated, gpu = frozenset(record.donated), _gpu_program(record, kernels)
    functions = (*kernels, *plans)
    table = [functions[number] for number in host.table]
    prepare, run = entry_points
    assert prepare.cell is not None
    assert run.cell is not None
    return ral.Executable(
        name=record.name,
        prepare=prepare.cell,
        run=run.cell,
        kernels=[function.cell for function in table if function.cell is not None],
        constants=list(host.constants),
        arguments=[
            # A number may be stated where the type has none.
            (spec.dtype, [e.value if e.is_const else -1 for e in shape], spec.name)
            for spec, shape in zip(signature.arguments, program.arguments, strict=True)
        ],
        results=[
            (spec.dtype, len(spec.sizes), weak)
            for spec, weak in zip(signature.results, record.weak_results, strict=True)
        ],
        symbols=len(program.steps),
        pack_layouts=list(host.pack_keys),
        packable=sorted(host.packed_arguments),
        unread=[k for k in host.unread_arguments if k not in donated],
        guards=[*(check.message for check in program.checks), TOO_LARGE],
        donated=sorted(donated),
        reuses=list(host.reuses),
        size_arguments=list(program.size_arguments),
        keep_alive=(prepare, run, *functions, *targets.values()),
        foreign=[_foreign_call(call, targets[call.target], where) for call, where in host.foreign],
        gpu=gpu,
        make_kernel=None if gpu is not None else _compiler_of(kernels, host),
        pack_later=partial(pack_later, [kernels[index] for index in host.packing_kernels])
        if host.pack_keys and flags.compile_ahead()
        else None,
    )


def _compiler_of(kernels: Sequence[Function], host: HostProgram) -> Callable[[int, bool], object]:
    """What compiles the kernel of an index for a call that needs it.

    Where that call has other sizes than the first one, the kernels of all sizes follow: more calls
    of this program will need them.
    """

    def compiled(index: int, at_other_sizes: bool) -> object:
        if at_other_sizes:
            finish_all_later(kernels)
        try:
            return kernels[host.table[index]].compiled()
        except MemoryError:
            raise
        except Exception as error:
            raise InternalError(f"{_told(host, host.table[index])}: {error}") from error

    return compiled


def _told(host: HostProgram, index: int) -> str:
    """The first fusion that a kernel is of, and its source line."""
    source = host.kernels[index].source
    for use in host.uses:
        if any(kernel.source == source for kernel in kernels_of(use.plan.steps)):
            return f"{use.name} ({use.where[0]})" if use.where else use.name
    return host.kernels[index].name


def gpu_kernels(record: ProgramRecord, images: Sequence[KernelImage]) -> Iterator[tuple[str, str]]:
    """The name of every kernel of a program for a GPU, and its line in the program or ""."""
    host = record.host
    assert len(images) == len(host.kernels)
    lines = {
        kernel.text: use.where[0] if use.where else ""
        for use in host.uses
        for kernel in kernels_of(use.plan.steps)
    }
    return ((kernel.name, lines.get(kernel.text, "")) for kernel in host.kernels)


def _gpu_program(record: ProgramRecord, kernels: Sequence[Function]) -> ral.GpuProgram | None:
    """What a device loads for a program; None for one of the CPU."""
    platform, _, architecture = record.target.partition(":")
    if platform == "cpu":
        return None
    images = [cast(KernelImage, made) for made in kernels]
    rows = [
        ral.GpuKernel(
            symbol=made.name,
            image=number,
            threads=made.signature.threads,
            tasks_per_block=made.signature.tasks,
            shared_bytes=made.signature.shared_bytes,
            args=made.signature.arrays,
            by_value=[position for position, _ in made.signature.by_value],
            params=made.signature.sizes,
            maps=[described.row for described in made.signature.maps],
            name=name,
            source=source,
        )
        for number, (made, (name, source)) in enumerate(
            zip(images, gpu_kernels(record, images), strict=True)
        )
    ]
    return ral.GpuProgram(
        platform=platform,
        architecture=architecture,
        images=[made.image for made in images],
        machine_code=[made.machine_code for made in images],
        kernels=rows,
    )


def copies_for_handlers(record: ProgramRecord, targets: frozenset[str]) -> tuple[str, ...]:
    """What is logged, once, of a program for a GPU that calls `targets` on the host."""
    lines = dict.fromkeys(
        f"@{call.target} ({where})" for call, where in record.host.foreign if call.target in targets
    )
    return (
        "%s: these FFI targets have no handlers for %s and run on the host. Each call waits for "
        "the GPU and copies operands and results: %s",
        record.name,
        PLATFORMS[record.target.partition(":")[0]],
        ", ".join(lines),
    )


def _foreign_call(call: FfiCall, target: FfiTarget, where: str) -> ral.ForeignCall:
    """Raises UnsupportedError where the handler cannot be called, or its first stage fails."""
    buffers = [(dtype_of(e), rank) for e, rank in zip(call.elements, call.ranks, strict=True)]
    count = len(call.operands)
    try:
        return ral.ForeignCall(
            target=call.target,
            where=where,
            handlers=list(target.addresses),
            operands=buffers[:count],
            results=buffers[count:],
            attributes=[
                *(attribute.row for attribute in call.attributes),
                *(FfiAttribute.of_number(name, number).row for name, number in target.numbers),
            ],
            size_attributes=[position for position, _ in call.size_attributes],
            state_types=list(target.types),
            on_device=target.platform != "cpu",
        )
    except RuntimeError as error:
        raise UnsupportedError(
            f"{where}: FFI target @{call.target} cannot be called: {error}"
        ) from None

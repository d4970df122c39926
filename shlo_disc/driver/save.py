"""Artifacts: a program compiled for several machines, as one file (`artifacts/container.py`)."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy.typing as npt

from shlo_disc.artifacts import manifest
from shlo_disc.artifacts.container import Contents
from shlo_disc.artifacts.read import record_name
from shlo_disc.artifacts.shared_library import head
from shlo_disc.base.callbacks import is_callback
from shlo_disc.base.errors import InternalError, UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.driver.load import load_programs
from shlo_disc.driver.parts import compile_code
from shlo_disc.driver.request import Request
from shlo_disc.driver.stages import Code
from shlo_disc.dynamic.program import ShapeProgram
from shlo_disc.executables.codec import to_bytes
from shlo_disc.executables.data_sized import Node
from shlo_disc.executables.native import gpu_kernels
from shlo_disc.executables.record import (
    BranchesRecord,
    GuardedRecord,
    ImpossibleRecord,
    LoopRecord,
    PartsRecord,
    ProgramRecord,
    Record,
    programs_of,
    with_programs,
)
from shlo_disc.executables.signature import ArraySpec, Signature, dtype_of, signature_of
from shlo_disc.ffi.targets import ffi_target, is_lapack
from shlo_disc.lower.background import finish_compiling
from shlo_disc.lower.host.record import TOO_LARGE, HostProgram, Unfused
from shlo_disc.lower.images import KernelImage
from shlo_disc.lower.plan import FfiAttribute
from shlo_disc.lower.target import (
    ARTIFACT_TARGETS,
    ArtifactTarget,
    Function,
    ObjectFunction,
    artifact_target,
)
from shlo_disc.report.describe import describe_program

_log = logging.getLogger("shlo_disc")


Arguments = Sequence[Any] | Callable[[Sequence[ArraySpec]], Sequence[Any]]
"""Those of a call, or what makes them of what the program takes."""


def save(
    request: Request,
    path: str | os.PathLike[str],
    targets: Sequence[str] | None,
    fixed: Mapping[int, npt.NDArray[Any]],
    *,
    cores: int | None = None,
    weights: str = "inside",
    packed_for: Arguments | None = None,
    format: str = "disc",
    ffi: str | None = None,
) -> None:
    """See :meth:`shlo_disc.Executable.save`; `fixed` gives arguments that callers do not pass."""
    if weights not in ("inside", "separate"):
        raise ValueError(f"weights must be 'inside' or 'separate', got {weights!r}")
    if format not in ("disc", "so"):
        raise ValueError(f"format must be 'disc' or 'so', got {format!r}")
    if ffi not in (None, "extern"):
        raise ValueError(f"ffi must be None or 'extern', got {ffi!r}")
    platform = request.options.target.partition(":")[0]
    if targets is None:
        targets = ARTIFACT_TARGETS if platform == "cpu" else (request.options.target,)
    if isinstance(targets, str) or not targets:
        raise TypeError(f"targets must be names such as 'x86-64-v3', got {targets!r}")
    known = len(os.sched_getaffinity(0)) if cores is None else cores
    if known < 1:
        raise ValueError(f"cores must be at least 1, got {cores}")
    machines = [artifact_target(name, known) for name in dict.fromkeys(targets)]
    families = sorted({machine.family for machine in machines})
    if format == "so" and len(families) > 1:
        raise UnsupportedError(
            f"a shared library is for one family of processors, not for {' and '.join(families)}; "
            "save one for each, or an artifact without format='so'"
        )
    # The first one that a machine can run is taken.
    machines.sort(key=lambda one: (not one.is_gpu, -one.generation, -len(one.features)))
    contents = Contents()
    made = [
        compile_code(request, machine.target, fixed, extern=ffi is not None) for machine in machines
    ]
    for record, _ in made:
        for program in programs_of(record):
            if why := _why_not_saved(program, ffi):
                raise UnsupportedError(f"{record.name} cannot be saved: it {why}")
    rows = [
        row
        for machine, (record, codes) in zip(machines, made, strict=True)
        for row in _rows(contents, machine, record, codes, known, weights == "separate")
    ]
    record, _ = made[0]
    programs = [*programs_of(record)]
    parts = tuple(map(_part, programs))
    steps = tuple(_steps(record, iter(range(len(parts)))))
    for other, _ in made[1:]:
        same = tuple(map(_part, programs_of(other))) == parts
        if not same or tuple(_steps(other, iter(range(len(parts))))) != steps:
            raise InternalError(f"{record.name} has other parts for each of {', '.join(targets)}")
    is_one = isinstance(record, ProgramRecord)
    devices = tuple(
        _device(contents, first * len(programs) + number, machine, codes[program.name])
        for first, (machine, (one, codes)) in enumerate(zip(machines, made, strict=True))
        if machine.is_gpu
        for number, program in enumerate(programs_of(one))
    )
    whole_is = parts[_last(record, programs)]
    compiled = [program for record, _ in made for program in programs_of(record)]
    foreign = tuple(
        call for n, program in enumerate(compiled) for call in _foreign(n, program, ffi)
    )
    count = record.arguments if isinstance(record, PartsRecord) else len(whole_is.arguments)
    told = [describe_program(_Described.of(program)) for program in programs]
    plain = told[0] if is_one else told
    contents.add("explain.json", json.dumps(plain, sort_keys=True, separators=(",", ":")).encode())
    tensors = contents.tensors()
    whole = manifest.Manifest(
        compiler=f"shlo_disc {version('shlo_disc')}",
        members=contents.members(),
        name=record.name,
        arguments=whole_is.arguments[:count],
        results=whole_is.results,
        targets=tuple(rows),
        weights_file=f"{Path(path).name}.safetensors" if tensors else "",
        tensors=tensors,
        devices=devices,
        foreign=foreign,
    )
    if not is_one:
        whole = replace(whole, parts=parts, steps=steps)
    if packed_for is not None:
        packs = _packs(contents, whole, Path(path).parent, packed_for)
        whole = replace(whole, members=contents.members(), packs=packs)
    front = partial(head, whole.name, families[0], Path(path).name) if format == "so" else None
    contents.write(path, whole, front)
    _log.info("saved %s for %s", whole.name, ", ".join(machine.name for machine in machines))


def _packs(
    contents: Contents, whole: manifest.Manifest, folder: Path, given: Arguments
) -> tuple[manifest.Pack, ...]:
    """The copies of constants that a call with `given` packs, which are put into `contents`.

    `folder`: where an artifact without them may be for a while.
    """
    found = []
    with tempfile.TemporaryDirectory(dir=folder, prefix=".packs-") as made:
        path = Path(made) / "m.disc"
        contents.write(path, whole)
        for first in range(0, len(whole.targets), whole.programs):
            if whole.device_of(first) is not None:
                continue  # kernels of GPUs pack nothing
            loaded, programs = load_programs(path, whole.targets[first].name)
            specs = loaded.signature.arguments
            loaded.run_numpy(given(specs) if callable(given) else given)
            finish_compiling()  # which packs what the call did without
            for number, program in enumerate(programs, first):
                for constant, slot, data in program.packs():
                    span = contents.add_constant(data, "packs")
                    found.append(manifest.Pack(number, constant, slot, span))
    return tuple(found)


@dataclass(frozen=True)
class _Described:
    """A program for reports."""

    name: str
    program: ShapeProgram
    host: HostProgram
    signature: Signature
    unfused: tuple[Unfused, ...]
    on_host: frozenset[str] = frozenset()

    @classmethod
    def of(cls, record: ProgramRecord) -> _Described:
        """The program of `record`."""
        signature = signature_of(record)
        return cls(record.name, record.program, record.host, signature, record.unfused)

    @property
    def checked(self) -> list[str]:
        """What must hold of the sizes of a call."""
        return [check.message for check in self.program.checks]


def _part(record: ProgramRecord) -> manifest.Part:
    """What a program takes and gives."""
    signature = signature_of(record)
    arguments = tuple(
        manifest.Argument(
            spec.name,
            spec.dtype.name,
            tuple(size.value if size.is_const else -1 for size in shape),
            spec.sizes,
        )
        for spec, shape in zip(signature.arguments, record.program.arguments, strict=True)
    )
    results = tuple(manifest.Result("", r.dtype.name, r.sizes) for r in signature.results)
    return manifest.Part(record.name, arguments, results)


def _last(record: Record, programs: Sequence[ProgramRecord]) -> int:
    """The place of the program that gives the results of all."""
    last = record
    while not isinstance(last, ProgramRecord):
        assert isinstance(last, PartsRecord | GuardedRecord)
        last = cast(Record, last.steps[-1]) if isinstance(last, PartsRecord) else last.program
    return next(number for number, program in enumerate(programs) if program is last)


def _steps(whole: Record, numbers: Iterator[int]) -> list[manifest.Step]:
    """The steps of an artifact; `numbers` are those of its programs."""
    steps = _steps_of(whole, numbers, 0)
    if not isinstance(whole, PartsRecord):
        steps.append(manifest.Step("sequence", steps=(len(steps) - 1,)))
    return steps


def _steps_of(node: Node, numbers: Iterator[int], before: int) -> list[manifest.Step]:
    """The steps of `node`, its own last; `before` others are in front of them."""
    children: tuple[Node, ...] = ()
    match node:
        case ProgramRecord():
            own = manifest.Step("program", next(numbers))
        case GuardedRecord():
            checks = node.program.program.checks
            inner = [number for number, check in enumerate(checks) if check.in_region]
            children = node.program, node.apart
            own = manifest.Step("guarded", numbers=(*inner, len(checks)))  # with TOO_LARGE
        case PartsRecord():
            children, own = node.steps, manifest.Step("sequence")
        case BranchesRecord():
            children, own = node.programs, manifest.Step("branches", node.index)
        case LoopRecord():
            children = node.condition, node.body
            own = manifest.Step("loop", numbers=node.initial)
        case ImpossibleRecord():
            own = manifest.Step("impossible", text=node.error)
    steps: list[manifest.Step] = []
    places = []
    for child in children:
        steps += _steps_of(child, numbers, before + len(steps))
        places.append(before + len(steps) - 1)
    return [*steps, replace(own, steps=tuple(places))]


def _why_not_saved(record: ProgramRecord, ffi: str | None) -> str:
    """What an artifact cannot have of a program, behind "it"; "" if there is nothing."""
    for call, where in record.host.foreign:
        if is_callback(call.target):
            return f"calls back into Python at {where}, where an artifact has no Python"
        if ffi is None and not is_lapack(call.target):
            return (
                f"calls the FFI target @{call.target} at {where}, whose handler is in the library "
                "that registered it; with ffi='extern' the artifact has the call, and who loads it "
                "gives the handler"
            )
    return ""


def _foreign(number: int, record: ProgramRecord, ffi: str | None) -> Iterator[manifest.ForeignCall]:
    """The calls of handlers of a program, target `number`."""
    platform = record.target.partition(":")[0]
    for call, where in record.host.foreign:
        target = ffi_target(call.target, where, platform, extern=ffi is not None)
        count = len(call.operands)
        buffers = tuple(
            manifest.ForeignBuffer(dtype_of(element).name, rank)
            for element, rank in zip(call.elements, call.ranks, strict=True)
        )
        yield manifest.ForeignCall(
            target=number,
            name=call.target,
            where=where,
            on_device=int(target.platform != "cpu"),
            stages=tuple(stage for stage, at in enumerate(target.addresses) if at),
            operands=buffers[:count],
            results=buffers[count:],
            attributes=tuple(map(_attribute, call.attributes)),
            size_attributes=tuple(position for position, _ in call.size_attributes),
        )


def _attribute(one: FfiAttribute) -> manifest.ForeignAttribute:
    entries = tuple(map(_attribute, one.entries))
    return manifest.ForeignAttribute(
        one.name, one.kind, one.data_type, one.size, one.bytes, entries
    )


def _rows(
    contents: Contents,
    machine: ArtifactTarget,
    record: Record,
    codes: Mapping[str, Code],
    cores: int,
    is_apart: bool,
) -> Iterator[manifest.Target]:
    """The row of each program for one machine; code, constants and records go into `contents`.

    `is_apart`: constants are in the weights file.
    """
    objects: dict[bytes, manifest.Span] = {}
    kept: dict[str, ProgramRecord] = {}
    names: dict[str, npt.NDArray[Any]] = {}
    for program in programs_of(record):
        row = _target(contents, machine, codes[program.name], cores, is_apart, objects)
        for array in program.host.constants:
            names[str(len(names))] = array
        # Without times: equal programs have equal files. Functions are in the order of the table.
        host = program.host
        if not machine.is_gpu:
            host = replace(host, table=tuple(range(len(row.kernels))))
        kept[program.name] = replace(program, host=host, stage_ms=(), passes=())
        yield row
    whole = with_programs(record, lambda program: kept[program.name])
    contents.add(record_name(machine.name), to_bytes(whole, (), names))


def _target(
    contents: Contents,
    machine: ArtifactTarget,
    code: Code,
    cores: int,
    is_apart: bool,
    known: dict[bytes, manifest.Span],
) -> manifest.Target:
    """One of :func:`_rows`; `known` are the object files of the machine so far."""
    record, host, program = code.record, code.record.host, code.record.program
    objects: dict[bytes, int] = {}

    def function(one: Function) -> manifest.Function:
        data = cast(ObjectFunction, one).object_code
        if data not in known:
            known[data] = contents.add_object(machine.name, data)
        return manifest.Function(objects.setdefault(data, len(objects)), one.name)

    prepare, run = map(function, code.entry_points)
    functions = (*code.kernels, *code.plans)
    rows = [] if machine.is_gpu else [function(functions[number]) for number in host.table]
    constants = tuple(
        contents.add_tensor(array, *kind) if is_apart else contents.add_constant(array)
        for array, kind in zip(host.constants, host.constant_types, strict=True)
    )
    return manifest.Target(
        name=machine.name,
        machine=machine.family,
        features=machine.features,
        cores=cores,
        objects=tuple(known[data] for data in objects),
        prepare=prepare,
        run=run,
        kernels=tuple(rows),
        symbols=len(program.steps),
        guards=(*(check.message for check in program.checks), TOO_LARGE),
        pack_layouts=tuple(host.pack_keys),
        constants=constants,
        size_arguments=tuple(program.size_arguments),
        packable=tuple(sorted(host.packed_arguments)),
        donated=record.donated,
        unread=tuple(k for k in host.unread_arguments if k not in record.donated),
        reuses=tuple(host.reuses),
    )


def _device(
    contents: Contents, number: int, machine: ArtifactTarget, code: Code
) -> manifest.Device:
    """The kernels of a program compiled for a GPU, target `number`; images are in `contents`."""
    platform, _, architecture = machine.name.partition(":")
    member = f"device/{platform}-{architecture}.bin"
    images = [cast(KernelImage, kernel) for kernel in code.kernels]
    rows, assembled = gpu_kernels(code.record, images), machine.machine_code
    assert assembled is not None
    return manifest.Device(
        target=number,
        platform=platform,
        architecture=architecture,
        images=tuple(contents.add(member, made.image) for made in images),
        machine_code=tuple(contents.add(member, assembled(made)) for made in images),
        kernels=tuple(
            manifest.DeviceKernel(
                symbol=made.name,
                image=place,
                threads=made.signature.threads,
                tasks=made.signature.tasks,
                shared_bytes=made.signature.shared_bytes,
                arrays=made.signature.arrays,
                by_value=made.signature.by_value,
                sizes=made.signature.sizes,
                maps=made.signature.maps,
                name=name,
                source=source,
            )
            for place, (made, (name, source)) in enumerate(zip(images, rows, strict=True))
        ),
    )

"""Artifacts: a program compiled for several machines, as one file (`artifacts/container.py`)."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy.typing as npt

from shlo_disc.artifacts import manifest
from shlo_disc.artifacts.container import Contents
from shlo_disc.artifacts.read import record_name
from shlo_disc.base.callbacks import is_callback
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.driver.load import load
from shlo_disc.driver.request import Request
from shlo_disc.driver.stages import Code, compile_code
from shlo_disc.dynamic.program import ShapeProgram
from shlo_disc.dynamic.size_sources import NeedsSeveralPrograms
from shlo_disc.executables.codec import to_bytes
from shlo_disc.executables.native import gpu_kernels
from shlo_disc.executables.record import ProgramRecord
from shlo_disc.executables.signature import Signature, signature_of
from shlo_disc.lower.background import finish_compiling
from shlo_disc.lower.host.record import TOO_LARGE, HostProgram, Unfused
from shlo_disc.lower.images import KernelImage
from shlo_disc.lower.target import (
    ARTIFACT_TARGETS,
    ArtifactTarget,
    Function,
    ObjectFunction,
    artifact_target,
)
from shlo_disc.report.describe import describe_program

_log = logging.getLogger("shlo_disc")


def save(
    request: Request,
    path: str | os.PathLike[str],
    targets: Sequence[str] | None,
    cores: int | None,
    fixed: Mapping[int, npt.NDArray[Any]],
    weights: str,
    packed_for: Sequence[Any] | None,
) -> None:
    """See :meth:`shlo_disc.Executable.save`; `fixed` gives arguments that callers do not pass."""
    if weights not in ("inside", "separate"):
        raise ValueError(f"weights must be 'inside' or 'separate', got {weights!r}")
    platform = request.options.target.partition(":")[0]
    if targets is None:
        targets = ARTIFACT_TARGETS if platform == "cpu" else (request.options.target,)
    if isinstance(targets, str) or not targets:
        raise TypeError(f"targets must be names such as 'x86-64-v3', got {targets!r}")
    known = len(os.sched_getaffinity(0)) if cores is None else cores
    if known < 1:
        raise ValueError(f"cores must be at least 1, got {cores}")
    machines = [artifact_target(name, known) for name in dict.fromkeys(targets)]
    # The first one that a machine can run is taken.
    machines.sort(key=lambda one: (not one.is_gpu, -one.generation, -len(one.features)))
    contents = Contents()
    made = [_compiled(request, machine, fixed) for machine in machines]
    rows = [
        _target(contents, machine, code, known, weights == "separate")
        for machine, code in zip(machines, made, strict=True)
    ]
    devices = tuple(
        _device(contents, number, machine, code)
        for number, (machine, code) in enumerate(zip(machines, made, strict=True))
        if machine.is_gpu
    )
    record = made[0].record
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
    told = describe_program(_Described.of(record))
    contents.add("explain.json", json.dumps(told, sort_keys=True, separators=(",", ":")).encode())
    tensors = contents.tensors()
    whole = manifest.Manifest(
        compiler=f"shlo_disc {version('shlo_disc')}",
        members=contents.members(),
        name=record.name,
        arguments=arguments,
        results=tuple(manifest.Result("", r.dtype.name, r.sizes) for r in signature.results),
        targets=tuple(rows),
        weights_file=f"{Path(path).name}.safetensors" if tensors else "",
        tensors=tensors,
        devices=devices,
    )
    if packed_for is not None:
        packs = _packs(contents, whole, Path(path).parent, packed_for)
        whole = replace(whole, members=contents.members(), packs=packs)
    contents.write(path, whole)
    _log.info("saved %s for %s", record.name, ", ".join(machine.name for machine in machines))


def _packs(
    contents: Contents, whole: manifest.Manifest, folder: Path, given: Sequence[Any]
) -> tuple[manifest.Pack, ...]:
    """The copies of constants that a call with `given` packs, which are put into `contents`.

    `folder`: where an artifact without them may be for a while.
    """
    found = []
    with tempfile.TemporaryDirectory(dir=folder, prefix=".packs-") as made:
        path = Path(made) / "m.disc"
        contents.write(path, whole)
        for number, row in enumerate(whole.targets):
            if whole.device_of(number) is not None:
                continue  # kernels of GPUs pack nothing
            loaded = load(path, row.name)
            loaded.run_numpy(given)
            finish_compiling()  # which packs what the call did without
            for constant, slot, data in loaded.packs():
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


def _compiled(
    request: Request, machine: ArtifactTarget, fixed: Mapping[int, npt.NDArray[Any]]
) -> Code:
    try:
        code = compile_code(request, machine.target, fixed)
    except NeedsSeveralPrograms as error:
        raise UnsupportedError(
            f"a program of several parts cannot be saved: a size comes from data: {error}"
        ) from error
    if why := _why_not_saved(code.record):
        raise UnsupportedError(f"{code.record.name} cannot be saved: it {why}")
    return code


def _why_not_saved(record: ProgramRecord) -> str:
    """What an artifact cannot have of a program, behind "it"; "" if there is nothing."""
    for call, where in record.host.foreign:
        if is_callback(call.target):
            return f"calls back into Python at {where}, where an artifact has no Python"
        return (
            f"calls the FFI target @{call.target} at {where}, whose handler is in the library "
            "that registered it"
        )
    if record.has_apart:
        for check in record.program.checks:
            if check.in_region:
                return (
                    f"has a region that may not run, and that needs {check.message}; calls "
                    "without that compile another program"
                )
    return ""


def _target(
    contents: Contents, machine: ArtifactTarget, code: Code, cores: int, is_apart: bool
) -> manifest.Target:
    """The row of a program compiled for one machine, whose code and constants are in `contents`.

    `is_apart`: its constants are in the weights file.
    """
    record, host, program = code.record, code.record.host, code.record.program
    objects: dict[bytes, int] = {}
    spans: list[manifest.Span] = []

    def function(one: Function) -> manifest.Function:
        data = cast(ObjectFunction, one).object_code
        if data not in objects:
            objects[data] = len(spans)
            spans.append(contents.add_object(machine.name, data))
        return manifest.Function(objects[data], one.name)

    prepare, run = map(function, code.entry_points)
    functions = (*code.kernels, *code.plans)
    rows = [] if machine.is_gpu else [function(functions[number]) for number in host.table]
    constants = tuple(
        contents.add_tensor(array, *kind) if is_apart else contents.add_constant(array)
        for array, kind in zip(host.constants, host.constant_types, strict=True)
    )
    names = {str(number): array for number, array in enumerate(host.constants)}
    # Without times: equal programs have equal files. Functions are in the order of the table.
    kept_host = host if machine.is_gpu else replace(host, table=tuple(range(len(rows))))
    kept = replace(record, host=kept_host, stage_ms=(), passes=())
    contents.add(record_name(machine.name), to_bytes(kept, (), names))
    return manifest.Target(
        name=machine.name,
        machine=machine.family,
        features=machine.features,
        cores=cores,
        objects=tuple(spans),
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
                maps=tuple(
                    manifest.TensorMap(m.argument, m.element, m.box, m.first, m.sizes, m.strides)
                    for m in made.signature.maps
                ),
                name=name,
                source=source,
            )
            for place, (made, (name, source)) in enumerate(zip(images, rows, strict=True))
        ),
    )

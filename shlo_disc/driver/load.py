"""Executables of artifacts: all that a compiled program has, but for the compiler."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable, Iterator

import numpy as np

from shlo_disc import ral
from shlo_disc.artifacts.manifest import Device, Span
from shlo_disc.artifacts.read import Artifact, read, record_name
from shlo_disc.base.errors import ArtifactError, DeviceError, UnsupportedError
from shlo_disc.base.later import Later
from shlo_disc.base.records import dataclass
from shlo_disc.executables.codec import RecordError, from_bytes
from shlo_disc.executables.data_sized import DataSizedExecutable, made_of
from shlo_disc.executables.executable import Executable
from shlo_disc.executables.record import (
    GuardedRecord,
    PartsRecord,
    ProgramRecord,
    Record,
    programs_of,
)
from shlo_disc.lower.images import KernelImage, KernelSignature
from shlo_disc.lower.target import check_processor, parse
from shlo_disc.store.loader import KernelCell, LoadedCode, ObjectCodeError


def load(
    path: str | os.PathLike[str], target: str | None = None
) -> Executable | DataSizedExecutable:
    """The program that was saved at `path`, for this machine; nothing is compiled.

    `target`: the one to take, as "x86-64-v3" or "cuda:sm_90a". By default it is the best one that
    this machine can run; those for GPUs come first.
    It is called on `jax.Array`s and numpy arrays as the program that was saved.

    Raises ArtifactError for another file, a damaged one, and one of a later version. Raises
    UnsupportedError where the artifact has no code for this machine, OSError for a file that cannot
    be read.
    """
    made, _ = load_programs(path, target)
    return made


def load_programs(
    path: str | os.PathLike[str], target: str | None
) -> tuple[Executable | DataSizedExecutable, list[Executable]]:
    """As :func:`load`, with all its programs, in the order of the rows of its target."""
    artifact = read(path)
    rows, record = _chosen(artifact, target)
    programs: list[Executable] = []

    def executable(program: ProgramRecord) -> Executable:
        made = _executable(artifact, rows[len(programs)], program)
        programs.append(made)
        return made

    made = made_of(record, executable)
    assert isinstance(made, Executable | DataSizedExecutable)
    return made, programs


def _executable(artifact: Artifact, number: int, record: ProgramRecord) -> Executable:
    """The program of row `number` of the manifest's targets."""
    row = artifact.manifest.targets[number]
    objects = [functools.cache(functools.partial(_loaded, artifact, span)) for span in row.objects]
    device = artifact.manifest.device_of(number)
    if device is not None and f"{device.platform}:{device.architecture}" != record.target:
        raise ArtifactError(f"{row.name}: its kernels are for {device.architecture}")
    functions = [
        _LoadedFunction.of(function.name, objects[function.object_file])
        for function in (row.prepare, row.run, *row.kernels)
    ]
    made = Executable(
        record,
        target=Later(lambda: parse(record.target)),
        kernels=functions[2:] if device is None else [*_images(artifact, device)],
        plans=(),
        entry_points=(functions[0], functions[1]),
    )
    for pack in artifact.manifest.packs:
        if pack.target == number:
            data = np.frombuffer(artifact.bytes_of(pack.data), np.uint8)
            made.add_pack(pack.constant, pack.slot, data)
    made.was_loaded = True
    return made


def _images(artifact: Artifact, device: Device) -> Iterator[KernelImage]:
    """The kernels of a GPU."""
    for kernel in device.kernels:
        image, machine_code = (
            bytes(artifact.bytes_of(spans[kernel.image]))
            for spans in (device.images, device.machine_code)
        )
        signature = KernelSignature(
            threads=kernel.threads,
            tasks=kernel.tasks,
            arrays=kernel.arrays,
            sizes=kernel.sizes,
            by_value=kernel.by_value,
            maps=kernel.maps,
            shared_bytes=kernel.shared_bytes,
        )
        yield KernelImage(kernel.symbol, image, signature, machine_code)


def _chosen(artifact: Artifact, wanted: str | None) -> tuple[range, Record]:
    """The rows of a target that this machine can run, and its programs."""
    refused = []
    rows, count = artifact.manifest.targets, artifact.manifest.programs
    for first in range(0, len(rows), count):
        row = rows[first]
        if wanted not in (None, row.name):
            continue
        if row.machine != platform.machine().replace("_", "-"):
            refused.append(f"{row.name}: this machine is {platform.machine()}")
            continue
        own = range(first, first + count)
        record = _record(artifact, own)
        name = next(programs_of(record)).target
        try:
            check_processor(name)
            family, _, architecture = name.partition(":")
            if family != "cpu":
                ral.gpu_check_architecture(family, architecture)
        except (UnsupportedError, DeviceError) as error:
            refused.append(f"{row.name}: {error}")
        else:
            return own, record
    names = ", ".join(row.name for row in rows[::count])
    why = "; ".join(refused) or f"it has no target {wanted!r}"
    raise UnsupportedError(
        f"{artifact.manifest.name} was saved for {names}, none of which runs here: {why}"
    )


def _record(artifact: Artifact, own: range) -> Record:
    rows = [artifact.manifest.targets[number] for number in own]
    weights = {
        str(number): np.frombuffer(artifact.bytes_of(span), np.uint8)
        for number, span in enumerate(span for row in rows for span in row.constants)
    }
    name = record_name(rows[0].name)
    try:
        record = from_bytes(artifact.members[name], (), weights)
    except (KeyError, RecordError) as error:
        raise ArtifactError(
            f"{artifact.manifest.name} was made by {artifact.manifest.compiler}, another version: "
            f"{error}; shlo_disc_runtime and C run it"
        ) from None
    if not isinstance(record, ProgramRecord | GuardedRecord | PartsRecord):
        raise ArtifactError(f"{name} has no program")
    if len([*programs_of(record)]) != len(rows):
        raise ArtifactError(f"{name} has other programs than the manifest")
    return record


def _loaded(artifact: Artifact, span: Span) -> LoadedCode:
    try:
        return LoadedCode(bytes(artifact.bytes_of(span)))
    except ObjectCodeError as error:
        raise ArtifactError(f"{artifact.manifest.name}: its code is refused: {error}") from None


@dataclass(frozen=True)
class _LoadedFunction:
    """A function of an artifact: :class:`shlo_disc.lower.target.Function`."""

    name: str
    cell: KernelCell
    size_bytes: int
    code: LoadedCode
    from_store: bool = True

    @classmethod
    def of(cls, name: str, code: Callable[[], LoadedCode]) -> _LoadedFunction:
        """The function `name` of an object file."""
        owner = code()
        if name not in owner.functions:
            raise ArtifactError(f"an object file has no function {name}")
        address, size_bytes = owner.functions[name]
        cell = KernelCell()
        cell.address = address
        return cls(name, cell, size_bytes, owner)

    @property
    def address(self) -> int:
        """Where the code is."""
        return self.cell.address

    @property
    def is_finished(self) -> bool:
        """Its code is the best one."""
        return True

    def compiled(self) -> _LoadedFunction:
        """Itself: it has its code."""
        return self

    def finish(self) -> None:
        """There is no better code."""

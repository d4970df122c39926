"""Executables of artifacts: all that a compiled program has, but for the compiler."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable, Iterator

import numpy as np

from shlo_disc import ral
from shlo_disc.artifacts.manifest import Device, Span
from shlo_disc.artifacts.manifest import Target as Row
from shlo_disc.artifacts.read import Artifact, read, record_name
from shlo_disc.base.errors import ArtifactError, DeviceError, UnsupportedError
from shlo_disc.base.later import Later
from shlo_disc.base.records import dataclass
from shlo_disc.executables.codec import RecordError, from_bytes
from shlo_disc.executables.executable import Executable
from shlo_disc.executables.record import ProgramRecord
from shlo_disc.lower.images import KernelImage, KernelSignature, TensorMap
from shlo_disc.lower.target import check_processor, parse
from shlo_disc.store.loader import KernelCell, LoadedCode, ObjectCodeError


def load(path: str | os.PathLike[str], target: str | None = None) -> Executable:
    """The program that was saved at `path`, for this machine; nothing is compiled.

    `target`: the one to take, as "x86-64-v3" or "cuda:sm_90a". By default it is the best one that
    this machine can run; those for GPUs come first.
    It is called on `jax.Array`s and numpy arrays as the program that was saved.

    Raises ArtifactError for another file, a damaged one, and one of a later version. Raises
    UnsupportedError where the artifact has no code for this machine, OSError for a file that cannot
    be read.
    """
    artifact = read(path)
    row, record = _chosen(artifact, target)
    objects = [functools.cache(functools.partial(_loaded, artifact, span)) for span in row.objects]
    number = artifact.manifest.targets.index(row)
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
            maps=tuple(
                TensorMap(m.argument, m.element, m.box, m.first, m.sizes, m.strides)
                for m in kernel.maps
            ),
            shared_bytes=kernel.shared_bytes,
        )
        yield KernelImage(kernel.symbol, image, signature, machine_code)


def _chosen(artifact: Artifact, wanted: str | None) -> tuple[Row, ProgramRecord]:
    """The row of a target that this machine can run, and its program."""
    refused = []
    for row in artifact.manifest.targets:
        if wanted not in (None, row.name):
            continue
        if row.machine != platform.machine().replace("_", "-"):
            refused.append(f"{row.name}: this machine is {platform.machine()}")
            continue
        record = _record(artifact, row)
        try:
            check_processor(record.target)
            family, _, architecture = record.target.partition(":")
            if family != "cpu":
                ral.gpu_check_architecture(family, architecture)
        except (UnsupportedError, DeviceError) as error:
            refused.append(f"{row.name}: {error}")
        else:
            return row, record
    names = ", ".join(row.name for row in artifact.manifest.targets)
    why = "; ".join(refused) or f"it has no target {wanted!r}"
    raise UnsupportedError(
        f"{artifact.manifest.name} was saved for {names}, none of which runs here: {why}"
    )


def _record(artifact: Artifact, row: Row) -> ProgramRecord:
    weights = {
        str(number): np.frombuffer(artifact.bytes_of(span), np.uint8)
        for number, span in enumerate(row.constants)
    }
    try:
        record = from_bytes(artifact.members[record_name(row.name)], (), weights)
    except (KeyError, RecordError) as error:
        raise ArtifactError(
            f"{artifact.manifest.name} was made by {artifact.manifest.compiler}, another version: "
            f"{error}; shlo_disc_runtime and C run it"
        ) from None
    if not isinstance(record, ProgramRecord):
        raise ArtifactError(f"{record_name(row.name)} has no program")
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

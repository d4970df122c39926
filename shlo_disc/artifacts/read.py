"""Reading an artifact in Python, where everything is checked before it is used.

The runtime's C++ reader does the same for processes without the compiler.
"""

from __future__ import annotations

import hmac
import mmap
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from shlo_disc.artifacts.container import COMMENT, MANIFEST, digest_of, digests_of
from shlo_disc.artifacts.manifest import (
    Device,
    Manifest,
    ManifestError,
    Pack,
    Span,
    Target,
    Tensor,
    unpacked,
)
from shlo_disc.artifacts.safetensors import stored
from shlo_disc.artifacts.shared_library import end_of_artifact
from shlo_disc.base.errors import ArtifactError
from shlo_disc.base.records import dataclass

_LOCAL_BYTES = 30
"""Of a local header of a ZIP file, in front of the name and the extra field."""
_END_BYTES = 22
"""Of the end record, in front of the comment."""
_FOLDERS = (".", "..")


@dataclass(frozen=True)
class Artifact:
    """An artifact that was checked: every member is what was written."""

    manifest: Manifest
    members: Mapping[str, memoryview]
    """Parts of the file, which is mapped."""
    tensors: tuple[memoryview, ...]
    """Parts of the weights file, which is mapped."""

    def bytes_of(self, span: Span) -> memoryview:
        """The bytes that a row of the manifest names."""
        if span.member < 0:
            return self.tensors[-1 - span.member]
        name = self.manifest.members[span.member].name
        return self.members[name][span.offset : span.offset + span.size]


def read(path: str | os.PathLike[str]) -> Artifact:
    """The artifact at `path`, which may be a shared library: none of its code is run.

    Raises ArtifactError for another file and a damaged one, OSError for one that cannot be read.
    """
    try:
        with open(path, "rb") as file:
            mapped = _mapped(file)
            if (end := end_of_artifact(mapped)) != len(mapped):
                mapped = mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ)
        # A map is a file, too. What is in front of the first member is none of the artifact.
        zipped = zipfile.ZipFile(cast(BinaryIO, mapped))
        manifest, members = _checked(memoryview(mapped), zipped)
    except (zipfile.BadZipFile, ManifestError, struct.error, ValueError) as error:
        raise ArtifactError(f"{path} is no artifact, or damaged: {error}") from None
    if not manifest.weights_file:
        return Artifact(manifest, members, ())
    beside = Path(path).parent / manifest.weights_file
    try:
        with open(beside, "rb") as file:
            tensors = tuple(_tensors(memoryview(_mapped(file)), manifest.tensors))
        return Artifact(manifest, members, tensors)
    except ArtifactError as error:
        raise ArtifactError(f"{beside}, the weights of {path}: {error}") from None


def _mapped(file: BinaryIO) -> mmap.mmap:
    if not os.fstat(file.fileno()).st_size:
        raise ArtifactError("it is empty")
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _tensors(file: memoryview, rows: Sequence[Tensor]) -> Iterator[memoryview]:
    """The bytes of `rows` in a weights file."""
    found = stored(file, [row.name for row in rows])
    digests = digests_of(found[row.name].data if row.name in found else b"" for row in rows)
    for row, digest in zip(rows, digests, strict=True):
        if (tensor := found.get(row.name)) is None:
            raise ArtifactError(f"it has no tensor {row.name!r}")
        has, wants = _typed(tensor.dtype, tensor.sizes), _typed(row.dtype, row.sizes)
        if has != wants or len(tensor.data) != row.size:
            raise ArtifactError(f"{row.name!r} is {has}, the artifact takes {wants}")
        if digest != row.digest:
            raise ArtifactError(f"{row.name!r} has other elements than those that were saved")
        yield tensor.data


def _typed(dtype: str, sizes: Sequence[int]) -> str:
    return f"{dtype}[{', '.join(map(str, sizes))}]"


def _checked(file: memoryview, zipped: zipfile.ZipFile) -> tuple[Manifest, dict[str, memoryview]]:
    """The manifest and the members by name."""
    end = len(file) - _END_BYTES - len(zipped.comment)
    if end < 0 or bytes(file[end : end + 4]) != b"PK\5\6":
        raise ArtifactError("there are bytes behind its end")
    found = {}
    for info in zipped.infolist():
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits or info.filename in found:
            raise ArtifactError(f"{info.filename!r} is not as artifacts have members")
        found[info.filename] = _contents(file, info)
    if MANIFEST not in found:
        raise ArtifactError(f"there is no {MANIFEST}")
    told = COMMENT + digest_of(found[MANIFEST]).hex().encode()
    if not hmac.compare_digest(told, zipped.comment):
        raise ArtifactError(f"{MANIFEST} is not what was written")
    manifest = unpacked(bytes(found.pop(MANIFEST)))
    if {member.name for member in manifest.members} != set(found):
        raise ArtifactError("the members are not those of the manifest")
    for member, digest in zip(
        manifest.members, digests_of(found[one.name] for one in manifest.members), strict=True
    ):
        if len(found[member.name]) != member.size or digest != member.digest:
            raise ArtifactError(f"{member.name} is not what was written")
    if len(manifest.targets) % manifest.programs:
        raise ArtifactError("a target lacks programs")
    for target in manifest.targets:
        _check_places(manifest, target)
    for pack in manifest.packs:
        _check_pack(manifest, pack)
    for device in manifest.devices:
        _check_device(manifest, device)
    if not all(0 <= call.target < len(manifest.targets) for call in manifest.foreign):
        raise ArtifactError("a call of a handler is of no target")
    name = manifest.weights_file
    if bool(name) != bool(manifest.tensors) or name != os.path.basename(name) or name in _FOLDERS:
        raise ArtifactError(f"{name!r} is no file of weights beside it")
    return manifest, found


def _check_places(manifest: Manifest, target: Target) -> None:
    """Raise ArtifactError unless all that a row names is there."""
    for span in target.constants:
        if span.member < 0 and -1 - span.member >= len(manifest.tensors):
            raise ArtifactError("a constant is no tensor")
    for span in (*target.objects, *(span for span in target.constants if span.member >= 0)):
        _check_span(manifest, span)
    for function in (target.prepare, target.run, *target.kernels):
        if not 0 <= function.object_file < len(target.objects):
            raise ArtifactError(f"the function {function.name} is in no object file")


def _check_pack(manifest: Manifest, pack: Pack) -> None:
    """Raise ArtifactError unless all that a packed copy is of is there."""
    if not 0 <= pack.target < len(manifest.targets):
        raise ArtifactError("a packed copy is of no target")
    target = manifest.targets[pack.target]
    if not (
        0 <= pack.constant < len(target.constants) and 0 <= pack.slot < len(target.pack_layouts)
    ):
        raise ArtifactError("a packed copy is of no constant, or has no layout")
    _check_span(manifest, pack.data)


def _check_device(manifest: Manifest, device: Device) -> None:
    """Raise ArtifactError unless all that kernels of a GPU need is there."""
    if not 0 <= device.target < len(manifest.targets) or manifest.targets[device.target].kernels:
        raise ArtifactError("kernels of a GPU are of no target")
    if len(device.images) != len(device.machine_code):
        raise ArtifactError("an image has no machine code")
    for span in (*device.images, *device.machine_code):
        _check_span(manifest, span)
    for kernel in device.kernels:
        if not 0 <= kernel.image < len(device.images):
            raise ArtifactError(f"the kernel {kernel.name} is in no image")


def _check_span(manifest: Manifest, span: Span) -> None:
    """Raise ArtifactError unless `span` is a part of a member."""
    if not 0 <= span.member < len(manifest.members):
        raise ArtifactError("a part is of no member")
    size = manifest.members[span.member].size
    if not 0 <= span.offset <= span.offset + span.size <= size:
        raise ArtifactError("a part is outside its member")


def _contents(file: memoryview, info: zipfile.ZipInfo) -> memoryview:
    begin = info.header_offset
    name, extra = struct.unpack_from("<HH", file, begin + _LOCAL_BYTES - 4)
    begin += _LOCAL_BYTES + name + extra
    if begin + info.file_size > len(file):
        raise ArtifactError(f"{info.filename!r} is outside the file")
    return file[begin : begin + info.file_size]


def record_name(target: str) -> str:
    """The member with all that Python knows of the program for a target."""
    return f"record/{target}.bin"

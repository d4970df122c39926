"""What `manifest.bin` of an artifact holds, as dataclasses, and their bytes.

The bytes are the fields in order, little-endian. An integer is 8 bytes, signed. A text or a bytes
object is its length and its bytes. A tuple is its length and its elements. The C++ reader is
`ral/src/core/manifest.cpp`; the two change together, and :data:`VERSION` with them. Later versions
add fields at the end of `Manifest`, with defaults for files that lack them.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Iterator
from typing import Any

from shlo_disc.base.records import dataclass

MAGIC = b"\x93discmf\n"
VERSION = 4
"""Of the fields below. A reader knows all versions up to its own."""


_SINCE = {
    "weights_file": 2,
    "tensors": 2,
    "packs": 2,
    "parts": 3,
    "steps": 3,
    "devices": 3,
    "foreign": 4,
}
"""The version of fields of `Manifest` that the first one lacks."""


class ManifestError(ValueError):
    """Bytes that are no manifest, or one of a later version."""


@dataclass(frozen=True)
class Member:
    """One file of the container, the manifest aside."""

    name: str
    size: int
    digest: bytes
    """BLAKE2b of 32 bytes."""


@dataclass(frozen=True)
class Tensor:
    """A constant that is in the weights file."""

    name: str
    dtype: str
    """As safetensors names it: "F32"."""
    sizes: tuple[int, ...]
    size: int
    """In bytes."""
    digest: bytes
    """BLAKE2b of 32 bytes."""


@dataclass(frozen=True)
class Span:
    """Bytes of a member."""

    member: int
    """Its place in `Manifest.members`. Of a constant also `-1 - k`: all of tensor `k`."""
    offset: int
    size: int


@dataclass(frozen=True)
class Pack:
    """A constant as a kernel wants it, so that no call packs it."""

    target: int
    """Its place in `Manifest.targets`."""
    constant: int
    """Its place in `Target.constants`."""
    slot: int
    """Its place in `Target.pack_layouts`."""
    data: Span


@dataclass(frozen=True)
class Argument:
    """One argument, the same for every target."""

    name: str
    dtype: str
    """As NumPy and ml_dtypes name it."""
    sizes: tuple[int, ...]
    """Of each dimension; -1: any."""
    texts: tuple[str, ...]
    """The sizes as users read them: `8`, `batch`, `2*n + 1`."""


@dataclass(frozen=True)
class Result:
    """One result, the same for every target."""

    name: str
    """Its place in the tree of results; may be empty."""
    dtype: str
    texts: tuple[str, ...]
    """The sizes as users read them."""


@dataclass(frozen=True)
class Function:
    """A function of machine code."""

    object_file: int
    """Its place in `Target.objects`."""
    name: str


@dataclass(frozen=True)
class Target:
    """A program compiled for some processors. Two targets share nothing but the types."""

    name: str
    """`x86-64-v3`, `x86-64-v4`, `aarch64`."""
    machine: str
    """The processor family of the object files: `x86-64` or `aarch64`."""
    features: tuple[str, ...]
    """What the processor must have, as LLVM names it: `avx2`, `fma`."""
    cores: int
    """The number of cores the host program was made for; it decides the order of some sums."""
    objects: tuple[Span, ...]
    """Relocatable object files."""
    prepare: Function
    run: Function
    kernels: tuple[Function, ...]
    symbols: int
    guards: tuple[str, ...]
    """The messages of the guards, in order."""
    pack_layouts: tuple[str, ...]
    constants: tuple[Span, ...]
    """Each begins at a multiple of 64 bytes of the file, or is a tensor."""
    size_arguments: tuple[int, ...]
    """Arguments whose elements the program reads as sizes."""
    packable: tuple[int, ...]
    """Arguments that some kernel wants packed."""
    donated: tuple[int, ...]
    unread: tuple[int, ...]
    """Arguments whose memory no code reads."""
    reuses: tuple[tuple[int, int], ...]
    """(donated argument, result): the result may be written over the argument."""


@dataclass(frozen=True)
class Part:
    """One of several programs, the same for every target."""

    name: str
    arguments: tuple[Argument, ...]
    """Those of the artifact, then the values of the programs before it."""
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Step:
    """What an artifact of several programs does. It takes values, the first of which are arguments.

    `kind` is one of these:

    - "program": gives what part `number` gives for all values.
    - "sequence": takes its steps in turn; each also has what those before it give. Gives what the
      last one gives, which is a program, maybe a guarded one.
    - "branches": gives what one of its steps gives. Value `number`, a scalar of bool or int32,
      chooses; out of bounds it is the last one.
    - "loop": carries values, at first those of `numbers`. While the first result of its
      first step, a scalar of bool, is true, the second step gives new ones. Both have them behind
      all other values. Gives those at its end.
    - "guarded": gives what its first step gives, a program. Where this breaks one of the guards of
      `numbers`, or lacks memory and donates none, it gives what its second step gives: a sequence
      that ends with a program.
    - "impossible": fails, and says why in `text`.
    """

    kind: str
    number: int = 0
    steps: tuple[int, ...] = ()
    """Places in `Manifest.steps`, in front of its own; each is in one step alone."""
    numbers: tuple[int, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class TensorMap:
    """An argument of a kernel that describes an array, boxes of which the kernel copies.

    The driver encodes it at every launch, from the array's address and sizes of the launch.
    """

    argument: int
    """The entry of `Launch.args` that it takes the place of."""
    element: str
    """ "f16", "bf16", or "tf32": f32 that the copy rounds."""
    box: tuple[int, ...]
    """Elements of a box, along the innermost dimension first."""
    first: int
    """The number of the param that counts elements in front of the tensor."""
    sizes: tuple[int, ...]
    """Numbers of the params that are its sizes, innermost first."""
    strides: tuple[int, ...]
    """Numbers of the params that are its strides, in elements, from the second dimension on."""

    @property
    def row(self) -> tuple[int, str, list[int], int, list[int], list[int]]:
        """As `ral.GpuKernel` takes it."""
        numbers = list(self.box), self.first, list(self.sizes), list(self.strides)
        return self.argument, self.element, *numbers

    def __str__(self) -> str:
        lists = ("x".join(map(str, x)) for x in (self.box, self.sizes, self.strides))
        return " ".join([str(self.argument), self.element, str(self.first), *lists])


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel of a GPU, and how it is launched; see `lower.images.KernelSignature`."""

    symbol: str
    image: int
    """Its place in `Device.images`."""
    threads: int
    tasks: int
    shared_bytes: int
    arrays: int
    by_value: tuple[tuple[int, int], ...]
    sizes: int
    maps: tuple[TensorMap, ...]
    name: str
    source: str
    """Its line in the program, for messages; may be empty."""


@dataclass(frozen=True)
class Device:
    """The kernels of a target for GPUs. Its `kernels` are empty: code of the CPU launches these."""

    target: int
    """Its place in `Manifest.targets`."""
    platform: str
    """`cuda` or `rocm`."""
    architecture: str
    """`sm_90a`, `gfx942`."""
    images: tuple[Span, ...]
    """PTX, which the driver compiles for this architecture and later ones, or code objects."""
    machine_code: tuple[Span, ...]
    """Of each image: a cubin, which devices of the architecture load in its place; may be empty."""
    kernels: tuple[DeviceKernel, ...]


@dataclass(frozen=True)
class ForeignBuffer:
    """An operand or a result of a handler."""

    dtype: str
    rank: int


@dataclass(frozen=True)
class ForeignAttribute:
    """An attribute of a call, in the terms of `XLA_FFI_Attrs`; see `lower.plan.FfiAttribute`."""

    name: str
    kind: int
    data_type: int
    size: int
    bytes: bytes
    entries: tuple[ForeignAttribute, ...]


@dataclass(frozen=True)
class ForeignCall:
    """A call of a handler of XLA's FFI. Who loads the artifact has the handler."""

    target: int
    """Its place in `Manifest.targets`."""
    name: str
    """Of the FFI target: `lapack_spotrf_ffi`."""
    where: str
    """Its source line."""
    on_device: int
    """1 for handlers of GPUs, 0 for those of the host."""
    stages: tuple[int, ...]
    """Those that the handler has, by number: `ffi.targets.STAGES`."""
    operands: tuple[ForeignBuffer, ...]
    results: tuple[ForeignBuffer, ...]
    attributes: tuple[ForeignAttribute, ...]
    size_attributes: tuple[int, ...]
    """Attributes, by place, that are sizes of the call."""


@dataclass(frozen=True)
class Manifest:
    """All of an artifact but the contents of its members."""

    compiler: str
    """What made it: `shlo_disc 0.1.0`. A reader that knows no such version still reads this."""
    members: tuple[Member, ...]
    name: str
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    targets: tuple[Target, ...]
    """The first whose features a processor has is used. With `parts` each has a row for each part,
    in their order, one behind the other."""
    weights_file: str = ""
    """A safetensors file in the folder of the artifact; "": constants are members."""
    tensors: tuple[Tensor, ...] = ()
    """Of the weights file."""
    packs: tuple[Pack, ...] = ()
    parts: tuple[Part, ...] = ()
    """Programs that run in turn, the one that gives the results last; none: there is one."""
    steps: tuple[Step, ...] = ()
    """How they run; the last one is the whole, a sequence."""
    devices: tuple[Device, ...] = ()
    """One for each row of a target for GPUs."""
    foreign: tuple[ForeignCall, ...] = ()
    """Those of each target in the order in which its code counts them."""

    @property
    def programs(self) -> int:
        """How many rows a target has."""
        return len(self.parts) or 1

    def device_of(self, target: int) -> Device | None:
        """The kernels of a target for GPUs; None: it is of the CPU alone."""
        return next((one for one in self.devices if one.target == target), None)


def packed(manifest: Manifest) -> bytes:
    """The bytes of a manifest."""
    return MAGIC + struct.pack("<q", VERSION) + b"".join(_packed(manifest))


def unpacked(data: bytes) -> Manifest:
    """The manifest of these bytes. Raises ManifestError."""
    if data[: len(MAGIC)] != MAGIC:
        raise ManifestError("no manifest of shlo_disc")
    reader = _Reader(data, len(MAGIC))
    reader.version = version = reader.integer()
    if not 1 <= version <= VERSION:
        made_by = reader.bytes().decode(errors="replace")
        raise ManifestError(
            f"format {version}, made by {made_by}; this shlo_disc reads up to format {VERSION}"
        )
    try:
        manifest: Manifest = reader.value(Manifest)
    except RecursionError:
        raise ManifestError("too many dictionaries in each other") from None
    if reader.at != len(data):
        raise ManifestError("bytes behind the manifest")
    return manifest


def _packed(value: Any) -> Iterator[bytes]:
    if isinstance(value, int):
        yield struct.pack("<q", value)
    elif isinstance(value, str | bytes):
        data = value if isinstance(value, bytes) else value.encode()
        yield struct.pack("<q", len(data))
        yield data
    elif isinstance(value, tuple):
        yield struct.pack("<q", len(value))
        for element in value:
            yield from _packed(element)
    else:
        for field in dataclasses.fields(value):
            yield from _packed(getattr(value, field.name))


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at, self.version = data, at, VERSION

    def taken(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ManifestError("truncated")
        self.at += size
        return self.data[self.at - size : self.at]

    def integer(self) -> int:
        (value,) = struct.unpack("<q", self.taken(8))
        assert isinstance(value, int)
        return value

    def bytes(self) -> bytes:
        return self.taken(self.integer())

    def value(self, kind: Any) -> Any:
        if kind is int:
            return self.integer()
        if kind is bytes:
            return self.bytes()
        if kind is str:
            try:
                return self.bytes().decode()
            except UnicodeDecodeError:
                raise ManifestError("a text that is not UTF-8") from None
        if typing.get_origin(kind) is tuple:
            element = typing.get_args(kind)[0]
            count = self.integer()
            if not 0 <= count <= len(self.data) - self.at:
                raise ManifestError("truncated")
            return tuple(self.value(element) for _ in range(count))
        kinds = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        known = [name for name in names if _SINCE.get(name, 1) <= self.version]
        return kind(*(self.value(kinds[name]) for name in known))

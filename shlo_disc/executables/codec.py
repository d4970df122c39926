"""Records as bytes: frozen dataclasses of plain data, written without pickle.

The bytes are a table of nodes, and the blobs that it refers to. The table is JSON, compressed. A
node is a list: the name of its kind, then its fields. A field is a number, a text or None as JSON
has them. A list of one number is the place of an earlier node. Equal nodes are written
once. What few ask for (`Later`) is a blob of the same form, which is read when it is asked for.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.artifacts.manifest import TensorMap
from shlo_disc.base.later import Later
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.monomial import Atom, intern
from shlo_disc.dynamic.program import Check, ShapeProgram, Solve
from shlo_disc.executables import record
from shlo_disc.ir.pass_record import PassRecord
from shlo_disc.lower import images, plan
from shlo_disc.lower.host.record import (
    CodeNames,
    HostDetails,
    HostProgram,
    KernelUse,
    Mark,
    PlanCall,
    PlanFunction,
    Site,
    Unfused,
    Work,
)
from shlo_disc.passes.place import At, Place

_RECORDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        images.GpuText, images.KernelSignature, TensorMap,
        Check, CodeNames, HostDetails, HostProgram, KernelUse, Mark, PassRecord, Place,
        PlanCall, PlanFunction, ShapeProgram, Site, Solve, Unfused, Work,
        plan.All, plan.Condition, plan.FfiAlias, plan.FfiAttribute, plan.FfiCall, plan.FftCall,
        plan.If, plan.Input, plan.KeptText, plan.Kernel, plan.KernelPlan, plan.Launch, plan.Output,
        plan.Pack, plan.Packed, plan.Part, plan.Workspace, record.BranchesRecord,
        record.GuardedRecord, record.ImpossibleRecord, record.LoopRecord,
        record.PartsRecord, record.ProgramRecord, record.Type,
    )
}  # fmt: skip
"""All kinds of records; no other class is written or read."""

_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in _RECORDS.values()}
"""In the order of `__init__`, which does no more than to set them."""

_LONGEST_MESSAGE = 10_000
"""Longer texts are programs, which have no source lines."""

NO_WEIGHTS: Mapping[str, npt.NDArray[np.uint8]] = {}

_LEVEL = 1
"""Of compression. Texts of kernels become a seventh; higher levels take longer than a kernel."""


class RecordError(ValueError):
    """Bytes are no record."""


Weights = Mapping[str, npt.NDArray[np.uint8]]
"""Arrays that are not written, by name."""


class NoLines(Sequence[str]):
    """The source lines of a program whose module nobody has lowered: any number of them."""

    def __getitem__(self, index: Any) -> Any:
        return "a source line"

    def __len__(self) -> int:
        return 0


def to_bytes(value: object, lines: Sequence[str] = (), weights: Weights = NO_WEIGHTS) -> bytes:
    """`value` as bytes: the same in every process. Raises TypeError for what is no plain data.

    `lines`: source lines, such as "model.py:7". Texts with one of them have its number instead.
    An array in the memory of one of `weights` is written as its name.
    """
    numbers = {line: n for n, line in reversed([*enumerate(lines)]) if line}
    names = {_place(array): name for name, array in weights.items()}
    return _Writer(numbers, names).bytes_of(value)


def from_bytes(
    data: bytes | memoryview, lines: Sequence[str] = (), weights: Weights = NO_WEIGHTS
) -> Any:
    """The value that `data` was written from, which was checked to be whole.

    `lines` are the source lines of today, by number, and `weights` the arrays that were not
    written. Raises RecordError for other bytes, and for names that these lack.
    """
    blobs = memoryview(data)
    try:
        length = int.from_bytes(blobs[:8], "little")
        nodes = json.loads(zlib.decompress(blobs[8 : 8 + length]))
        return _read(nodes, blobs[8 + length :], lines, weights)
    except (zlib.error, ValueError, TypeError, KeyError, IndexError) as error:
        raise RecordError(f"no record: {error}") from error


def sizes_from_bytes(data: bytes | memoryview) -> tuple[bytes, tuple[Expr, ...]]:
    """The key and sizes that `data` was written from. Raises RecordError for other bytes."""
    match from_bytes(data):
        case (bytes(key), tuple(sizes)) if all(isinstance(size, Expr) for size in sizes):
            return key, sizes
    raise RecordError("no sizes")


class _Writer:
    def __init__(self, lines: Mapping[str, int], names: Mapping[tuple[int, int], str]) -> None:
        self._lines, self._names = lines, names
        longest_first = sorted(map(re.escape, lines), key=len, reverse=True)
        self._line = re.compile(f"({'|'.join(longest_first)})(?!\\d)") if lines else None
        self.nodes: list[list[Any]] = []
        self.blobs = bytearray()
        self._places: dict[Any, int] = {}
        self._known: dict[int, tuple[object, list[int]]] = {}
        """What was written, by its address; it is kept so that no other object gets that."""

    def bytes_of(self, value: object) -> bytes:
        """`value`, which is all that is written."""
        if type(self.field(value)) is not list:  # no record
            self._node("plain", [value])
        table = json.dumps(self.nodes, ensure_ascii=False, separators=(",", ":")).encode()
        packed = zlib.compress(table, _LEVEL)
        return len(packed).to_bytes(8, "little") + packed + self.blobs

    def field(self, value: Any) -> Any:
        """`value` as a field of a node."""
        if type(value) is str and self._line is not None and len(value) < _LONGEST_MESSAGE:
            parts = self._line.split(value)
            if len(parts) > 1:
                return [self._node("told", [self._lines.get(part, part) for part in parts])]
        if value is None or type(value) in (bool, int, float, str):
            return value
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, [self._node(*self._parts(value))])
        return known[1]

    def _parts(self, value: Any) -> tuple[str, Iterable[Any]]:
        kind = type(value)
        if kind is plan.Kernel:
            # Else it is a text, or no plain data.
            late = isinstance(value.source, plan.LateText | plan.KeptText)
            return kind.__name__, [value.name, value.text if late else value.source]
        if kind is PlanFunction:
            return kind.__name__, [value.parts, None]
        if kind in _FIELDS:
            return kind.__name__, [getattr(value, name) for name in _FIELDS[kind]]
        if kind is Expr:
            return "size", [field for term in value.terms for field in term]
        if kind is Atom:
            return "atom", [value.op, value.key, *value.args]
        if kind in (tuple, list):
            return kind.__name__, value
        if kind in (set, frozenset):
            return "frozenset", sorted(value)
        if kind is np.ndarray and (name := self._names.get(_place(value))) is not None:
            return "weight", [name]
        if kind is bytes or isinstance(value, np.ndarray):
            return kind.__name__, self._blob(bytes(value))
        if kind is Later:
            return kind.__name__, self._blob(self._later(value.value))
        if isinstance(value, At):
            return "At", [value.value]
        raise TypeError(f"a {kind.__name__} is no plain data: {value!r}")

    def _later(self, value: object) -> bytes:
        return _Writer(self._lines, self._names).bytes_of(value)

    def _blob(self, data: bytes) -> tuple[int, int]:
        self.blobs += data
        return len(self.blobs) - len(data), len(data)

    def _node(self, kind: str, values: Iterable[Any]) -> int:
        node = [kind, *(values if kind == "told" else map(self.field, values))]
        # Types are part of the key: True equals 1.
        key = tuple((type(v), v[0] if type(v) is list else v) for v in node)
        place = self._places.setdefault(key, len(self.nodes))
        if place == len(self.nodes):
            self.nodes.append(node)
        return place


def _place(array: npt.NDArray[np.uint8]) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes


def _read(nodes: list[list[Any]], blobs: memoryview, lines: Sequence[str], weights: Weights) -> Any:
    makers: dict[str, Callable[..., Any]] = {
        **{name: partial(_record, kind) for name, kind in _RECORDS.items()},
        "At": At,
        "Later": lambda begin, length: Later(
            partial(from_bytes, _blob(blobs, begin, length), lines, weights)
        ),
        "weight": lambda name: weights[name],
        "told": lambda *parts: "".join(lines[p] if type(p) is int else p for p in parts),
        "atom": lambda op, key, *arguments: intern(op, key, arguments),
        "size": lambda *terms: Expr.of_terms(tuple(zip(terms[::2], terms[1::2], strict=True))),
        "plain": lambda value: value,
        "tuple": lambda *values: values,
        "list": lambda *values: [*values],
        "frozenset": lambda *values: frozenset(values),
        "bytes": lambda begin, length: bytes(_blob(blobs, begin, length)),
        "ndarray": lambda begin, length: np.frombuffer(_blob(blobs, begin, length), np.uint8),
    }
    made: list[Any] = []
    for kind, *values in nodes:
        made.append(makers[kind](*[made[v[0]] if type(v) is list else v for v in values]))
    return made[-1]


def _record(kind: type, *values: Any) -> Any:
    """A record of these fields; to compile an `__init__` takes as long as to read ten records."""
    made: Any = object.__new__(kind)
    vars(made).update(zip(_FIELDS[kind], values, strict=True))
    return made


def _blob(blobs: memoryview, begin: int, length: int) -> memoryview:
    if not 0 <= begin <= begin + length <= len(blobs):
        raise IndexError("a blob that is not there")
    return blobs[begin : begin + length]

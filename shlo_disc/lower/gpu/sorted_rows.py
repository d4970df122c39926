"""What sorts of rows share: the rows, the order of their records, and launches of one kernel.

A record has an element of each of several arrays. Kernels write `Workspace(SOURCE + i)` and
`Workspace(TARGET + i)` for array i; a launch says which buffers these are (:func:`with_buffers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.gpu.builder import GroupBuilder
from shlo_disc.lower.kernels.merge_sort import Keys
from shlo_disc.lower.plan import Buffer, Launch, Workspace
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.typed import IndexLike, IndexValue, Mask, MemRef, Register

SOURCE, TARGET = 1000, 2000
"""Numbers of the workspaces in which launches of one kernel differ, for the first array."""


@dataclass(frozen=True)
class RadixKey:
    """An unsigned integer whose order is that of the records."""

    array: int
    """The array from which the key is computed."""
    bits: int
    """Bits of the key that may differ, from the lowest on."""
    of: Callable[[Elemental, Register], Register]
    """The key of an element of the array, as it lies in memory: an integer of `bits` or more."""
    most: Expr | None = None
    """The largest key, where sizes tell it."""


@dataclass(frozen=True)
class Rows:
    """Rows of records (an element of each of several arrays), and their order."""

    storages: Sequence[tuple[str, int]]
    """MLIR type and bytes of an element of each array, as it lies in memory."""
    keys: Sequence[bool]
    """Which arrays the order depends on."""
    size: Expr
    """Records of a row."""
    rows: Expr
    inner: Expr
    """The distance of neighbours of a row in the results; so many rows lie side by side."""
    read: Callable[[Elemental, int, IndexValue, IndexValue], Register]
    """Array i of the record at a place of a row: (kernel, i, row, place)."""
    less: Callable[[Elemental, Keys, Keys], Mask]
    """True if the first record must come before the second."""
    results: Sequence[Buffer | None]
    """Where each array goes; None if nobody reads it."""
    write: Callable[[Elemental, IndexValue, IndexValue, Mapping[int, Register]], None] | None = None
    """Stores arrays of a record of the results: (kernel, row, place, elements by array). None: all
    of them, at the record's place."""
    radix: RadixKey | None = None
    """The key whose order `less` is, where there is one."""

    @property
    def moved(self) -> list[int]:
        """Arrays that records carry, and that their order does not depend on."""
        pairs = enumerate(zip(self.keys, self.results, strict=True))
        return [i for i, (is_key, to) in pairs if to is not None and not is_key]

    @property
    def arrays(self) -> list[int]:
        """Arrays of which passes over memory carry the elements."""
        keys = [i for i, is_key in enumerate(self.keys) if is_key]
        return sorted([*keys, *self.moved])


def array(e: Elemental, rows: Rows, buffer: Buffer, i: int) -> MemRef:
    """`buffer` as memory for array i."""
    return e.b.memref(e.arguments.slot(buffer), rows.storages[i][0])


def write_last(
    e: Elemental, rows: Rows, row: IndexValue, at: IndexValue, values: Mapping[int, Register]
) -> None:
    """Elements of a record, by array, to the results."""
    b = e.b
    results = {i: to for i in values if (to := rows.results[i]) is not None}
    if rows.write is not None:
        rows.write(e, row, at, {i: values[i] for i in results})
        return
    n = b.param(rows.size, opaque=True)
    place = place_in_results(b, row, at, n, b.param(rows.inner))
    for i, result in results.items():
        array(e, rows, result, i).store(values[i], place)


def place_in_results(
    b: KernelBuilder, row: IndexValue, at: IndexValue, n: IndexValue, inner: IndexValue
) -> IndexValue:
    """Where record `at` of a row lies, if `inner` rows lie side by side."""
    return row // inner * (n * inner) + at * inner + row % inner


def put_all(memories: Sequence[MemRef], values: Sequence[Register], at: IndexLike) -> None:
    """Store an element in each memory."""
    for memory, value in zip(memories, values, strict=True):
        memory.store(value, at)


def renumbered(base: int, places: Mapping[int, Buffer]) -> dict[Buffer, Buffer]:
    """The buffers of arrays in a launch, for those that its kernel names from `base` on."""
    return {Workspace(base + i): place for i, place in places.items()}


def with_buffers(
    launch: Launch, buffers: Mapping[Buffer, Buffer], sizes: Mapping[Expr, Expr | int], blocks: Expr
) -> Launch:
    """A launch of the same kernel with other buffers and sizes."""
    return replace(
        launch.moved(buffers),
        params=tuple(Expr.of(sizes.get(size, size)) for size in launch.params),
        extent=blocks,
    )


def builder(e: Elemental) -> GroupBuilder:
    """The builder of a kernel in which a block computes a task."""
    assert isinstance(e.b, GroupBuilder)
    return e.b

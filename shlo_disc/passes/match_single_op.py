"""Fusions of one op with an emitter of its own (sort, scatter, ...), and kind `loop`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import field

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.comparisons import comparison, less_than
from shlo_disc.ir.indexing import scatter_numbers
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.passes.op_classes import BROADCASTS, RESHAPES, is_flag, is_splat_constant, own_kind
from shlo_disc.passes.region import Region


@dataclass(frozen=True)
class Flag:
    """A result of rank 0: whether any of the truth values of the rows is true.

    Rows are the leading dimensions of the space of a `loop`, and the updates of a `scatter`.
    """

    number: int
    """Of the result of the region. Flags come last."""
    truths: ir.Value
    """One for each row."""
    outside: tuple[ir.Value, Expr] | None = field(default=None, compare=False)
    """(integers, n): the truth is `x < 0 | x >= n` of the integer of the row.

    The planner may find more than the emitter, for which 0 or n may be an array in memory.
    """


@dataclass(frozen=True)
class SingleOpRecord:
    """One op; the others of the region compute its operands, and flags."""

    op: ir.Operation
    results: tuple[int | None, ...]
    """For every result of `op` its number as a result of the region; None: nobody reads it."""
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True)
class LoopRecord:
    """Kind `loop`: every element of every root on its own."""

    roots: tuple[ir.Value, ...]
    space: tuple[Expr, ...]
    """The sizes of the first root; the others have as many elements."""
    flags: tuple[Flag, ...] = ()


def match_single_op(region: Region) -> SingleOpRecord | str:
    """The op of a region that has an emitter of its own; or why there is none."""
    ops = [op for op in region.ops if own_kind(op) is not None]
    if len(ops) != 1:
        return f"{len(ops)} ops with emitters of their own"
    (op,) = ops
    numbers = {value: k for k, value in enumerate(region.results)}
    flags = _flags(region, len([v for v in region.results if v in op.results]))
    if flags is None or (flags and op.name != "stablehlo.scatter"):
        return "it has several results"
    if flags:
        updates = op.operands[len(op.results) + 1]
        windows = scatter_numbers(op).window_dims
        sizes = region.shapes.shape(updates)
        rows = [size for d, size in enumerate(sizes) if d not in windows]
        all_sizes = (*rows, *(sizes[d] for d in windows))
        if not all(_are_rows(flag, all_sizes, len(rows), region.shapes) for flag in flags):
            return "truth values are not those of its updates"
    return SingleOpRecord(op, tuple(numbers.get(result) for result in op.results), flags)


def match_loop(region: Region) -> LoopRecord | str:
    """The roots of a region; or why they are no loop."""
    shapes = region.shapes
    if not region.results:
        return LoopRecord((), ())
    space = shapes.shape(region.results[0])
    count = 1
    for root in region.results[1:]:
        if not shapes.constraints.product_equal(shapes.shape(root), space):
            break
        count += 1
    flags = _flags(region, count)
    if flags is None or not all(_are_rows(flag, space, None, shapes) for flag in flags):
        return (
            f"results of one loop fusion with different element counts: {space} and "
            f"{shapes.shape(region.results[count])}"
        )
    return LoopRecord(region.results[:count], space, flags)


def _flags(region: Region, first: int) -> tuple[Flag, ...] | None:
    """The results from number `first` on, if they are flags."""
    ops = [region.producer(value) for value in region.results[first:]]
    if not all(op is not None and is_flag(op) for op in ops):
        return None
    return tuple(
        Flag(k, op.operands[0], _outside(op.operands[0], region.shapes))
        for k, op in enumerate(ops, first)
        if op is not None
    )


def _outside(truths: ir.Value, shapes: ShapeAnalysis) -> tuple[ir.Value, Expr] | None:
    """See `Flag.outside`."""
    either = producer(truths)
    if either is None or either.name != "stablehlo.or":
        return None
    for below, above in itertools.permutations(either.operands):
        low, high = less_than(below), producer(above)
        if low is None or high is None or high.name != "stablehlo.compare":
            continue
        x, size = high.operands
        if comparison(high) != "GE" or low[0] != x or _number(low[1], shapes) != Expr.const(0):
            continue
        if (n := _number(size, shapes)) is not None:
            return x, n
    return None


def _number(value: ir.Value, shapes: ShapeAnalysis) -> Expr | None:
    """The integer that all elements of `value` are, if it is computed from sizes."""
    while (op := producer(value)) is not None and op.name in (*BROADCASTS, *RESHAPES):
        value = op.operands[0]
    if op is not None and is_splat_constant(op):
        found = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
        return Expr.const(int(ir.IntegerAttr(found).value))
    return shapes.scalar(value)


def _are_rows(flag: Flag, sizes: Sequence[Expr], rows: int | None, shapes: ShapeAnalysis) -> bool:
    """True if a flag is of the leading `sizes`, or of as many as `rows`, and no row is empty."""
    own, whole = ([s for s in some if not s.is_one] for some in (shapes.shape(flag.truths), sizes))
    count = sum(not s.is_one for s in sizes[:rows])
    one = Expr.const(1)
    return (
        own == whole[: len(own)]
        and (rows is None or len(own) == count)
        and all(shapes.constraints.at_least(size, one) for size in whole[len(own) :])
    )

"""Which reductions are the rows of a fusion, how rows lie, and what each sweep computes.

Dimensions are kept, reduced, kept, ... in turn. With one run of each the rows are *whole*. With
reduced ones in front of the last kept ones, too, they are in *parts*. With kept ones behind, they
are columns, *side by side*.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.reductions import reduction_runs
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.attributes import integers
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.op_classes import ELEMENTWISE, RESHAPES, is_row_reduction
from shlo_disc.passes.region import Region

Shape = tuple[Expr, ...]
ONE = Expr.const(1)


class Layout(enum.Enum):
    """Where the elements of a row are; see the module."""

    WHOLE = enum.auto()
    PARTS = enum.auto()
    SIDE_BY_SIDE = enum.auto()


@dataclass(frozen=True)
class RowRecord:
    """Row work: kinds `row` and `column`, and what is inside of `attention` and behind `dense`."""

    layout: Layout
    rows: Shape
    """The kept dimensions in front."""
    parts: Expr
    """How many parts a row has: 1 but where rows are in parts."""
    apart: Expr
    """How many rows there are between two parts of one, or side by side: 1 where rows are whole."""
    cols: Expr
    """Columns of a part."""
    sweeps: tuple[tuple[ir.Operation, ...], ...]
    """The reductions of every sweep; each reads what earlier ones have found."""
    roots: tuple[ir.Value, ...]
    """What is computed."""
    swept: tuple[int | None, ...]
    """For every root the sweep that computes its elements; None: it has one element a row."""
    given: tuple[ir.Value, ...]
    """Values that are in memory although an op of the fusion computes them: one at most."""

    @property
    def space(self) -> Shape:
        """The sizes of a full-size value."""
        return (*self.rows, self.parts, self.apart, self.cols)

    @property
    def lines(self) -> Shape:
        """The sizes of what has one element a row."""
        return (*self.rows, self.apart)


def match_rows(
    region: Region, roots: Sequence[ir.Value] | None = None, *given: ir.Value
) -> RowRecord | str:
    """The rows that compute `roots` (what the region computes) from its inputs and from `given`,
    one value at most; or why they are none.
    """
    roots = region.results if roots is None else roots
    shapes = region.shapes
    ops = region.needed_for(roots, stop=given)
    if not all(_read_in_place(value, region) for value in given):
        return "a row would need elements of another row"
    first = next((op for op in ops if is_row_reduction(op)), None)
    if first is None:
        return "a row fusion without a reduction"
    runs = _runs(first, shapes)
    rows, *products = runs[0], *map(Expr.product, runs[1:])
    match products:
        case [cols]:
            layout, parts, apart = Layout.WHOLE, ONE, ONE
        case [cols, apart]:
            layout, parts = Layout.SIDE_BY_SIDE, ONE
        case [parts, apart, cols]:
            layout = Layout.PARTS
        case _:
            return f"no row fusion has such a reduction: {first}"
    equal = shapes.constraints.product_equal
    level: dict[ir.Value, int] = {}
    reduces: list[tuple[ir.Operation, int]] = []
    for op in ops:
        here = max((level.get(v, 0) for v in op.operands), default=0)
        its = _runs(op, shapes) if is_row_reduction(op) else []
        if len(its) == len(runs) and all(map(equal, its, runs)):
            reduces.append((op, here))
            here += 1
        level.update(dict.fromkeys(op.results, here))
    swept: list[int | None] = []
    for root in roots:
        full = equal(shapes.shape(root), [*rows, *products])
        if not full and not equal(shapes.shape(root), [*rows, apart]):
            sizes = shapes.shape(root)
            return f"a result of a row fusion is neither full nor a row value: {sizes}"
        swept.append(level.get(root, 0) if full else None)
    count = 1 + max(*(level.get(r, 0) for r in roots), *(n for _, n in reduces))
    sweeps = tuple(tuple(op for op, n in reduces if n == k) for k in range(count))
    return RowRecord(layout, rows, parts, apart, cols, sweeps, tuple(roots), tuple(swept), given)


def _read_in_place(value: ir.Value, region: Region) -> bool:
    """True if every op of the region needs element i of `value` for its own element i alone."""
    waiting = [value]
    while waiting:
        for op in region.readers(waiting.pop()):
            if op.name in RESHAPES:
                waiting += op.results
            elif op.name not in ELEMENTWISE and not is_row_reduction(op):
                return False
    return True


def _runs(op: ir.Operation, shapes: ShapeAnalysis) -> list[Shape]:
    """What a reduction keeps and reduces in turn, at least one run of each."""
    runs = reduction_runs(shapes.shape(op.operands[0]), integers(op, "dimensions"))
    return runs if len(runs) > 1 else [*runs, ()]

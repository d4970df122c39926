"""Kinds `dense` and `conv`: which op makes the sums, how they are stored, what is around them.

A region has one record at all sizes its symbols may have. So conditions here stay true when symbols
get values: they ask whether two sizes are equal, never whether they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.views import View, band_of, view_of
from shlo_disc.ir.attributes import integers
from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.convolutions import comes_in_phases
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.match_rows import Layout, RowRecord, match_rows
from shlo_disc.passes.op_classes import ELEMENTWISE
from shlo_disc.passes.region import Region

ELSEWHERE = "an element would need sums at other places"
SEVERAL = "it has several results"


@dataclass(frozen=True)
class Sums:
    """A contraction, and its sums in the order in which they are stored."""

    op: ir.Operation
    total: ir.Value
    """The result of `op`, or of the last of the transposes behind it."""
    order: tuple[int, ...]
    """Which dimension of the result of `op` each dimension of `total` is."""

    @property
    def in_order(self) -> bool:
        """Whether nothing is transposed."""
        return self.order == tuple(range(len(self.order)))


def sums_of(op: ir.Operation, region: Region) -> Sums:
    """The sums of `op` behind the transposes that alone read them."""
    total = op.results[0]
    order = tuple(range(ir.ShapedType(total.type).rank))
    while True:
        readers = region.readers(total)
        if len(readers) != 1 or total in region.results:
            return Sums(op, total, order)
        (reader,) = readers
        if reader.name != "stablehlo.transpose":
            return Sums(op, total, order)
        total = reader.results[0]
        order = tuple(order[d] for d in integers(reader, "permutation"))


@dataclass(frozen=True)
class Product:
    """A `dot_general` and the element-wise work on its sums."""

    sums: Sums
    left: View
    """How an input of the region is read as the left operand."""
    right: View
    """Likewise; of the right operand itself where the region computes it (`computed`)."""
    computed: bool
    """True if the region computes the right operand, element by element, while it is copied."""
    root: ir.Value
    """`sums.total`, or what is computed from it."""


@dataclass(frozen=True)
class Bands:
    """What is computed from parts of a product that lie side by side (`jnp.split`)."""

    count: int
    """How many parts of equal width there are."""
    parts: tuple[tuple[ir.Value, int], ...]
    """Slices of the product's `root`, and which part each is."""
    results: tuple[tuple[ir.Value, int], ...]
    """Results with the shape of a part, and their numbers."""
    whole: int | None
    """The number of `root` as a result; None where nobody else reads it."""


@dataclass(frozen=True)
class DenseRecord:
    """Kind `dense`."""

    products: tuple[Product, ...]
    """One for each result; one alone where there are bands or rows."""
    bands: Bands | None = None
    rows: RowRecord | None = None
    """The row work on `root` of the product, its `given`."""


@dataclass(frozen=True)
class ConvRecord:
    """Kind `conv`."""

    sums: Sums
    root: ir.Value
    """`sums.total`, or what is computed from it."""


def match_conv(region: Region) -> ConvRecord | str:
    """The convolution of a region; or why it has none."""
    convolutions = region.named("stablehlo.convolution")
    if len(convolutions) != 1:
        return f"{len(convolutions)} convolutions"
    (op,) = convolutions
    if any(value not in region.inputs for value in op.operands[:2]):
        return "an operand of a convolution is not in memory"
    if len(region.results) != 1:
        return SEVERAL
    sums, (root,) = sums_of(op, region), region.results
    if root != sums.total and comes_in_phases(op):
        return "results of a dilated input are computed in phases"
    return no_epilogue(sums, root, region) or ConvRecord(sums, root)


def match_dense(region: Region) -> DenseRecord | str:
    """The products of a region; or why it is none of kind `dense`."""
    dots = region.named("stablehlo.dot_general")
    if not dots:
        return "it has no product"
    if region.given is not None:
        return _with_rows(dots, region.given, region)
    if len(dots) == 1 and (whole := _banded(dots[0], region)) is not None:
        return _with_bands(dots[0], whole, region)
    products: list[Product] = []
    for root in region.results:
        its = [op for op in region.needed_for([root]) if op in dots]
        if len(its) != 1 or any(product.sums.op == its[0] for product in products):
            return SEVERAL
        product = _product(its[0], root, region)
        if isinstance(product, str):
            return product
        products.append(product)
    if len(products) != len(dots):
        return f"{len(products)} results of {len(dots)} products"
    return DenseRecord(tuple(products))


def _with_rows(dots: Sequence[ir.Operation], given: ir.Value, region: Region) -> DenseRecord | str:
    if len(dots) != 1:
        return "several products share a kernel"
    product = _product(dots[0], given, region)
    if isinstance(product, str):
        return product
    if product.computed:
        return "the product has other work behind it"
    if not _is_row_major(product.sums) or dot_sides(dots[0])[0].batch:
        return "the rows of the product are in another order"
    rows = match_rows(region, [root for root in region.results if root != given], given)
    if isinstance(rows, str):
        return rows
    *lines, columns = region.shapes.shape(given)
    same = region.shapes.constraints.product_equal
    lie_so = same(rows.rows, lines) and same([rows.cols], [columns])
    if rows.layout is not Layout.WHOLE or not lie_so:
        return "the rows are others"
    return DenseRecord((product,), rows=rows)


def _is_row_major(sums: Sums) -> bool:
    """True if the columns come from the right operand, in their order."""
    return sums.in_order and len(dot_sides(sums.op)[1].free) == 1


def _banded(dot: ir.Operation, region: Region) -> ir.Value | None:
    """The value computed from the sums of `dot` of which parts side by side are read, if any."""
    for op in _behind(dot.results, region):
        if len(op.results) and band_of(op.results[0], op.operands[0], region.shapes) is not None:
            found: ir.Value = op.operands[0]
            return found
    return None


def _with_bands(dot: ir.Operation, whole: ir.Value, region: Region) -> DenseRecord | str:
    """The record where parts of `whole` are read, which is computed from the sums of `dot`."""
    product = _product(dot, whole, region)
    if isinstance(product, str):
        return product
    if product.computed:
        return "the product has other work behind it"
    if not _is_row_major(product.sums):
        return "the rows of the product are in another order"
    early = region.needed_for([whole])
    sums = {*dot.results, *(r for op in _behind(dot.results, region, early) for r in op.results)}
    late: dict[ir.Value, int | None] = {}
    """What is computed from parts; of a part its number."""
    counts: set[int] = set()
    space: tuple[Expr, ...] = ()
    for op in _behind(dot.results, region):
        if op in early:
            continue
        band = band_of(op.results[0], whole, region.shapes)
        if band is not None:
            late[op.results[0]] = band[0]
            counts.add(band[1])
            space = space or region.shapes.shape(op.results[0])
        elif any(value in sums for value in op.operands):
            return "it is read in other parts, too"
        elif _leaves(op, space, region):
            return ELSEWHERE
        else:
            late.update(dict.fromkeys(op.results))
    if len(counts) != 1:
        return "it is cut into parts of several widths, or of one column"
    results = tuple((root, k) for k, root in enumerate(region.results) if root != whole)
    if not results or any(root not in late for root, _ in results):
        return SEVERAL
    parts = tuple((value, number) for value, number in late.items() if number is not None)
    number = next((k for k, root in enumerate(region.results) if root == whole), None)
    return DenseRecord((product,), bands=Bands(counts.pop(), parts, results, number))


def _product(dot: ir.Operation, root: ir.Value, region: Region) -> Product | str:
    """`dot` with the work that computes `root` from its sums."""
    left, right = dot.operands
    a, b = (view_of(value, region.inputs, region.shapes) for value in (left, right))
    if a is None:
        return "the left operand of a product is not in memory"
    sums = sums_of(dot, region)
    computed = b is None
    if b is None:
        b = view_of(right, [right], region.shapes)
        assert b is not None
        reason = _no_prologue(sums)
        if reason is not None:
            return reason
    return no_epilogue(sums, root, region) or Product(sums, a, b, computed, root)


def _no_prologue(sums: Sums) -> str | None:
    """Why blocks of the right operand cannot be computed where they are copied to."""
    if not sums.in_order:
        return "the result of the product is transposed"
    side = dot_sides(sums.op)[1]
    # A block is copied row by row of K, along neighbouring columns; or column by column.
    inner = [(*side.contracting, *side.free), (*side.free, *side.contracting)]
    dims = tuple(range(len(side.batch) + len(inner[0])))
    is_ordered = any((*side.batch, *order) == dims for order in inner)
    if not side.free or not side.contracting or not is_ordered:
        return "its dimensions are not in the order in which blocks are copied"
    return None


def no_epilogue(sums: Sums, root: ir.Value, region: Region) -> str | None:
    """Why `root` is not computed from `sums` element by element, where they are; None: it is.

    What does not depend on the sums is computed from inputs, at any index.
    """
    if root == sums.total:
        return None
    needed = region.needed_for([root], stop=[sums.total])
    space = region.shapes.shape(sums.total)
    behind = _behind([sums.total], region, needed)
    if not behind or region.producer(root) not in behind:
        return SEVERAL
    return ELSEWHERE if any(_leaves(op, space, region) for op in behind) else None


def _leaves(op: ir.Operation, space: Sequence[Expr], region: Region) -> bool:
    """True if element i of the result of `op` is not computed from elements i of its operands."""
    if op.name not in ELEMENTWISE:
        return True
    sizes, equal = region.shapes.shape(op.results[0]), region.shapes.constraints.equal
    return len(sizes) != len(space) or not all(map(equal, sizes, space))


def _behind(
    values: Iterable[ir.Value], region: Region, among: Sequence[ir.Operation] | None = None
) -> list[ir.Operation]:
    """The ops (`among` these) that depend on `values`, in order."""
    late = set(values)
    found: list[ir.Operation] = []
    for op in region.ops if among is None else among:
        if any(value in late for value in op.operands):
            late.update(op.results)
            found.append(op)
    return found

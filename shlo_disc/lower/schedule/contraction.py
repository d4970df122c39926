"""What a `dense` fusion computes: C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n].

Each side of a `dot_general` has groups of dimensions in any order. Dimensions of M that are one run
of C are one axis (A may walk through them in steps of its own). What is left of M beyond the
innermost such axis joins the batch, where the other operand does not move. Likewise N. The operands
change places when the innermost dimension of the result comes from the left one: the kernel writes
consecutive elements along N.

Convolutions are problems of this form too, with strides of A that overlap (`conv.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import dense_strides, magnitude, outermost_first
from shlo_disc.ir.contractions import dot_sides, may_round
from shlo_disc.ir.element_types import ELEMENT_TYPES, ElementType
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.values.elements import element_of, unsupported
from shlo_disc.passes.match_dense import Bands, DenseRecord, Product, Sums

ZERO, ONE = Expr.const(0), Expr.const(1)
SHORT = 8
"""Terms of a sum up to which they are added one by one, each product rounded, as StableHLO says."""


@dataclass(frozen=True)
class Axis:
    """A dimension of the iteration space and the step it makes in each array, in elements."""

    size: Expr
    a: Expr = ZERO
    b: Expr = ZERO
    c: Expr = ZERO


Steps = tuple[tuple[Expr, Expr], ...]
"""(size, stride) of each digit of an index, outermost first, at least one."""


@dataclass(frozen=True)
class Problem:
    """See the module. `a_input` and `b_input` are operand numbers of the fusion."""

    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    """One axis of C; several only where A walks through them in steps of its own. Likewise `n`."""
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]
    a_input: int
    b_input: int
    a: ElementType
    b: ElementType
    c: ElementType
    compute: ElementType
    a_first: Expr = ZERO
    """Offset of A[0, 0, 0]; likewise `b_first`."""
    b_first: Expr = ZERO
    bands: int = 1
    """N is one of so many bands of equal width: column j of band g is column g * N + j of B, and
    of the sums."""
    may_round: bool = False
    """The program lets a target round f32 operands to fewer digits (`contractions.may_round`)."""
    b_value: ir.Value | None = None
    """B is this value, computed in the fusion while it is copied (`prologue.py`), with strides as
    if it were stored; None: it is operand `b_input`."""

    @property
    def rows(self) -> Expr:
        """Size of M."""
        return Expr.product(x.size for x in self.m)

    @property
    def columns(self) -> Expr:
        """Size of N."""
        return Expr.product(x.size for x in self.n)

    @property
    def depth(self) -> Expr:
        """Number of products in a sum."""
        return Expr.product(x.size for x in self.k)

    @property
    def is_short(self) -> bool:
        """True if products are rounded and then added, as StableHLO says.

        The order is first to last. Lanes of inner products of batch entries are a tree.

        Equal products of such sums cancel: those of a 2 x 2 determinant, or of a complex number
        and its conjugate. A multiply-add rounds one of the two only.
        """
        depth = self.depth
        return self.compute.is_float and depth.is_const and depth.value <= SHORT

    @property
    def batches(self) -> Expr:
        """Number of (A, B, C) matrices."""
        return Expr.product(x.size for x in self.batch)


@dataclass(frozen=True)
class Dense:
    """A product of a fusion: its record (`sums`, `root`, `bands`) and its problem."""

    problem: Problem
    sums: Sums
    root: ir.Value
    """The result, where there are no bands."""
    bands: Bands | None = None

    @property
    def total(self) -> ir.Value:
        """The sums in the order in which they are stored."""
        return self.sums.total


def analyze_dense(
    record: DenseRecord, inputs: Sequence[ir.Value], shapes: ShapeAnalysis
) -> list[Dense]:
    """The problem behind every product of a fusion with these `inputs`.

    Raises UnsupportedError for element types that are not compiled.
    """
    alone = record.bands is None and record.rows is None
    found = [
        Dense(_problem(x, inputs, shapes, alone and not x.computed), x.sums, x.root)
        for x in record.products
    ]
    if record.bands is None:
        return found
    (dense,) = found
    problem, bands = dense.problem, record.bands
    (n,) = problem.n
    width = shapes.shape(bands.parts[0][0])[-1]
    problem = replace(problem, n=(replace(n, size=width),), bands=bands.count)
    return [replace(dense, problem=problem, bands=bands)]


def _problem(
    product: Product, inputs: Sequence[ir.Value], shapes: ShapeAnalysis, may_swap: bool
) -> Problem:
    """The problem of a product as it is stored. `may_swap`: see `normalized`."""
    dot, order, lhs, rhs = product.sums.op, product.sums.order, product.left, product.right
    out = dense_strides(shapes.shape(product.sums.total))
    left = iter(out[order.index(d)] for d in range(len(order)))
    mine, theirs = dot_sides(dot)
    batch = tuple(
        Axis(lhs.sizes[i], lhs.strides[i], rhs.strides[j], next(left))
        for i, j in zip(mine.batch, theirs.batch, strict=True)
    )
    m = tuple(Axis(lhs.sizes[i], a=lhs.strides[i], c=next(left)) for i in mine.free)
    n = tuple(Axis(rhs.sizes[j], b=rhs.strides[j], c=next(left)) for j in theirs.free)
    k = tuple(
        Axis(lhs.sizes[i], a=lhs.strides[i], b=rhs.strides[j])
        for i, j in zip(mine.contracting, theirs.contracting, strict=True)
    )
    a, b, c = (element_of(v) for v in (*dot.operands, dot.results[0]))
    compute = compute_element(dot, a, b, c)
    problem = Problem(
        batch,
        m,
        n,
        k,
        inputs.index(lhs.base),
        -1 if product.computed else inputs.index(rhs.base),
        a,
        b,
        c,
        compute,
        lhs.first,
        rhs.first,
        may_round=may_round(dot),
        b_value=rhs.base if product.computed else None,
    )
    return normalized(problem, shapes, may_swap)


def compute_element(
    op: ir.Operation, a: ElementType, b: ElementType, c: ElementType
) -> ElementType:
    """The type sums are kept in: at least f32 for floats, at least 32 bits for integers."""
    if c.is_float:
        return ELEMENT_TYPES["f64" if "f64" in (a.name, b.name, c.name) else "f32"]
    if a.is_float or b.is_float:
        unsupported(
            op, f"{a.name} x {b.name} summed as {c.name}", "use a float preferred_element_type"
        )
    return ELEMENT_TYPES["i64" if c.bits == 64 else "i32"]


def swapped(p: Problem) -> Problem:
    """`p` with its operands in each other's place, C as it was."""

    def swap(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(Axis(x.size, x.b, x.a, x.c) for x in axes)

    return replace(
        p,
        batch=swap(p.batch),
        m=swap(p.n),
        n=swap(p.m),
        k=swap(p.k),
        a_input=p.b_input,
        b_input=p.a_input,
        a=p.b,
        b=p.a,
        a_first=p.b_first,
        b_first=p.a_first,
    )


def normalized(problem: Problem, shapes: ShapeAnalysis, may_swap: bool = True) -> Problem:
    """`problem` with all axes in the form the module describes.

    `may_swap`: the operands may change places. They may not if B is computed, or if other work
    follows that takes M as rows, N as columns.
    """
    others = [*problem.n, *problem.batch]
    if may_swap and _holds_innermost(problem.m) and not _holds_innermost(others):
        problem = swapped(problem)
    equal = shapes.constraints.equal
    *outer_m, m = _groups(problem.m, shapes)
    *outer_n, n = _groups(problem.n, shapes)
    batch = [*problem.batch, *itertools.chain(*outer_m, *outer_n)]
    k = sorted(_relevant(problem.k), key=lambda x: magnitude(x.a), reverse=True)
    return replace(
        problem,
        batch=tuple(_merged(_by_c(batch, shapes), equal)),
        m=tuple(m),
        n=tuple(n),
        k=tuple(_merged(k, equal)) or (Axis(ONE),),
    )


def turned(problem: Problem, shapes: ShapeAnalysis) -> Problem:
    """`problem` with its operands in each other's place: its columns are rows.

    K is walked in the order of the right operand, which is read in place.
    """
    found = normalized(swapped(problem), shapes, may_swap=False)
    k = sorted(found.k, key=lambda x: magnitude(x.b), reverse=True)
    return replace(found, k=tuple(k))


def steps(axes: Sequence[Axis], array: str, shapes: ShapeAnalysis) -> Steps:
    """How an index over `axes` moves through one array: neighbours of one run are one step."""
    equal = shapes.constraints.equal
    found: list[tuple[Expr, Expr]] = []
    for axis in axes:
        size, stride = axis.size, getattr(axis, array)
        if found and _same(found[-1][1], stride * size, equal):
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return tuple(found)


Equal = Callable[[Expr, Expr], bool]


def _same(x: Expr, y: Expr, equal: Equal) -> bool:
    return bool(x == y or equal(x, y))


def _holds_innermost(axes: Sequence[Axis]) -> bool:
    """True if `axes` hold the innermost dimension of the result; axes of size 1 do not count."""
    return any(x.c == ONE and not x.size.is_one for x in axes)


def _relevant(axes: Sequence[Axis]) -> list[Axis]:
    return [x for x in axes if not x.size.is_one]


def _by_c(axes: Sequence[Axis], shapes: ShapeAnalysis) -> list[Axis]:
    found = _relevant(axes)
    order = outermost_first([(x.size, x.c) for x in found], shapes.constraints)
    return [found[k] for k in order]


def _groups(axes: Sequence[Axis], shapes: ShapeAnalysis) -> list[list[Axis]]:
    """`axes` in the order of C, cut where C is no single run; at least one group."""
    groups: list[list[Axis]] = []
    for axis in _by_c(axes, shapes):
        if groups and _same(groups[-1][-1].c, axis.c * axis.size, shapes.constraints.equal):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups or [[Axis(ONE)]]


def _merged(axes: Sequence[Axis], equal: Equal) -> list[Axis]:
    """Neighbours of one run of memory, in every array, as one axis."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and all(
            _same(getattr(merged[-1], array), getattr(axis, array) * axis.size, equal)
            for array in "abc"
        ):
            merged[-1] = Axis(merged[-1].size * axis.size, axis.a, axis.b, axis.c)
        else:
            merged.append(axis)
    return merged


def split_problem(p: Problem, parts: int) -> Problem | None:
    """The problem with K cut into `parts`, its results dense and unfinished; None: K has no stride.

    Right where `parts` divides the depth.
    """
    if len(p.k) != 1 or (p.depth.is_const and p.depth.value % parts):
        return None
    (k,) = p.k
    depth = k.size // parts
    rows, columns = p.rows, p.columns
    batch = [Axis(Expr.const(parts), k.a * depth, k.b * depth, p.batches * rows * columns)]
    return replace(
        p,
        batch=(*batch, *_dense(p.batch, rows * columns)),
        m=_dense(p.m, columns),
        n=_dense(p.n, Expr.const(1)),
        k=(replace(k, size=depth),),
        c=p.compute,
    )


def _dense(axes: tuple[Axis, ...], step: Expr) -> tuple[Axis, ...]:
    out: list[Axis] = []
    for axis in reversed(axes):
        out.insert(0, replace(axis, c=step))
        step = step * axis.size
    return tuple(out)

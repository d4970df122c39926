"""What a `dense` fusion computes: C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n].

Each side of a `dot_general` has groups of dimensions in any order. Dimensions of M that are one run
of C are one axis (A may walk through them in steps of its own); what is left of M beyond the
innermost such axis joins the batch, where the other operand simply does not move. Likewise N. The
operands change places when the innermost dimension of the result comes from the left one: the
kernel writes consecutive elements along N.

Convolutions are problems of this form too, with strides of A that overlap (`conv.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shlo_disc.dynamic.attributes import integers
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import View, band_of, dense_strides, view_of
from shlo_disc.errors import InternalError
from shlo_disc.lower.cpu.elements import ELEMENTS, Element, element_of, unsupported
from shlo_disc.mlir import ir
from shlo_disc.passes.match_attention import dot_sides

__all__ = [
    "Axis",
    "Bands",
    "Dense",
    "Problem",
    "Steps",
    "after_transposes",
    "analyze_dense",
    "compute_element",
    "magnitude",
    "normalized",
    "operand_view",
    "row_input",
    "steps",
]

ZERO, ONE = Expr.const(0), Expr.const(1)


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
    a: Element
    b: Element
    c: Element
    compute: Element
    a_first: Expr = ZERO
    """Offset of A[0, 0, 0]; likewise `b_first`."""
    b_first: Expr = ZERO
    bands: int = 1
    """N is one of so many bands of equal width: column j of band g is column g * N + j of B, and
    of the sums."""
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
    def batches(self) -> Expr:
        """Number of (A, B, C) matrices."""
        return Expr.product(x.size for x in self.batch)


@dataclass(frozen=True)
class Dense:
    """A fusion taken apart."""

    problem: Problem
    dot: ir.Operation
    total: ir.Value
    """The sums in the order of the result: the dot, or the transpose behind it."""
    root: ir.Value
    """`total`, or computed from it element by element: the result, where there are no bands."""
    bands: Bands | None = None


@dataclass(frozen=True)
class Bands:
    """What is computed from parts of `Dense.root` that lie side by side."""

    parts: dict[ir.Value, int]
    """Slices of `root`, and which band each is."""
    results: tuple[tuple[ir.Value, int], ...]
    """Results with the shape of a band, and their numbers."""
    whole: int | None
    """The number of `root` as a result; None where nobody else reads it."""


def analyze_dense(fusion: ir.Operation, shapes: ShapeAnalysis) -> list[Dense]:
    """The problem behind every result of a fusion: a dot_general, transposes around it,
    element-wise ops behind.

    Raises UnsupportedError for element types that are not compiled, InternalError for a fusion of
    another form.
    """
    block = fusion.regions[0].blocks[0]
    roots = list(block.operations[len(block.operations) - 1].operation.operands)
    ops = [view.operation for view in block.operations]
    if "given" in fusion.attributes:
        # A result may be computed by the row work alone, from other values than the product.
        return [_analyze_root(fusion, row_input(fusion), shapes)]
    if sum(op.name == "stablehlo.dot_general" for op in ops) == 1:
        bands = _bands(ops, roots, shapes)
        if bands is not None:
            return [bands]
    return [_analyze_root(fusion, root, shapes) for root in roots]


def row_input(fusion: ir.Operation) -> ir.Value:
    """The value of a dense fusion that its row work reads, as `plan-fusion` says."""
    place = ir.IntegerAttr(fusion.attributes["given"]).value
    return fusion.regions[0].blocks[0].operations[place].operation.results[0]


def _bands(
    ops: Sequence[ir.Operation], roots: Sequence[ir.Value], shapes: ShapeAnalysis
) -> Dense | None:
    """The fusion as one product that is read in bands; None where it is not."""
    late: set[ir.Value] = set()
    parts: dict[ir.Value, int] = {}
    count, whole = 1, None
    for op in ops:
        if op.name == "stablehlo.dot_general":
            late.update(op.results)
        elif any(value in late for value in op.operands) and len(op.results):
            band = band_of(op.results[0], op.operands[0], shapes)
            if band is None:
                late.update(op.results)
                continue
            whole = op.operands[0]
            parts[op.results[0]], count = band
    if whole is None:
        return None
    dense = _analyze_root(ops[0].block.owner.operation, whole, shapes)
    p = dense.problem
    (n,) = p.n
    width = shapes.shape(next(iter(parts)))[-1]
    problem = replace(p, n=(replace(n, size=width),), bands=count)
    results = tuple((root, k) for k, root in enumerate(roots) if root != whole)
    number = next((k for k, root in enumerate(roots) if root == whole), None)
    return replace(dense, problem=problem, bands=Bands(parts, results, number))


def _analyze_root(fusion: ir.Operation, root: ir.Value, shapes: ShapeAnalysis) -> Dense:
    block = fusion.regions[0].blocks[0]
    dots: dict[ir.Value, ir.Operation] = {}
    stack, seen = [root], set[ir.Value]()
    while stack:
        value = stack.pop()
        if value in seen or isinstance(value.owner, ir.Block):
            continue
        seen.add(value)
        op = value.owner.operation
        if op.name == "stablehlo.dot_general":
            dots[value] = op
        else:
            stack.extend(op.operands)
    if len(dots) != 1:
        raise InternalError(f"a result of a dense fusion with {len(dots)} dot_general: {fusion}")
    (dot,) = dots.values()
    total, order = after_transposes(dot.results[0])
    out = dense_strides(shapes.shape(total))
    strides = [out[order.index(d)] for d in range(len(order))]
    return Dense(_problem(dot, list(block.arguments), strides, shapes), dot, total, root)


def _problem(
    dot: ir.Operation, inputs: Sequence[ir.Value], out: Sequence[Expr], shapes: ShapeAnalysis
) -> Problem:
    """The problem of `dot` whose result dimensions have strides `out`."""
    left, right = dot.operands
    made = right if view_of(right, inputs, shapes) is None else None
    lhs = operand_view(left, inputs, shapes)
    rhs = operand_view(right, inputs if made is None else [right], shapes)
    mine, theirs = dot_sides(dot)
    left = iter(out)
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
    lhs_input, rhs_input = (
        inputs.index(lhs.base),
        -1 if made is not None else inputs.index(rhs.base),
    )
    problem = Problem(
        batch, m, n, k, lhs_input, rhs_input, a, b, c, compute, lhs.first, rhs.first, b_value=made
    )
    found = normalized(problem, shapes)
    if made is not None and found.b_input != -1:
        raise InternalError(f"the operands of {dot} change places, one of them computed")
    return found


def compute_element(op: ir.Operation, a: Element, b: Element, c: Element) -> Element:
    """The type sums are kept in: at least f32 for floats, at least 32 bits for integers."""
    if c.is_float:
        return ELEMENTS["f64" if "f64" in (a.name, b.name, c.name) else "f32"]
    if a.is_float or b.is_float:
        unsupported(
            op, f"{a.name} x {b.name} summed as {c.name}", "use a float preferred_element_type"
        )
    return ELEMENTS["i64" if c.bits == 64 else "i32"]


def operand_view(
    value: ir.Value, inputs: Sequence[ir.Value], shapes: ShapeAnalysis, spread: bool = False
) -> View:
    """`value` in the memory of an operand of the fusion, which is the view's base."""
    view = view_of(value, inputs, shapes, spread)
    if view is None:
        raise InternalError(f"a dense fusion cannot read its operand in place: {value}")
    return view


def after_transposes(result: ir.Value) -> tuple[ir.Value, list[int]]:
    """`result` behind the transposes that follow it, and which of its dimensions each one is."""
    last, order = result, list(range(ir.ShapedType(result.type).rank))
    while True:
        uses = list(last.uses)
        if len(uses) != 1 or uses[0].owner.operation.name != "stablehlo.transpose":
            return last, order
        op = uses[0].owner.operation
        last, order = op.results[0], [order[d] for d in integers(op, "permutation")]


def _swapped(p: Problem) -> Problem:
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


def normalized(problem: Problem, shapes: ShapeAnalysis) -> Problem:
    """`problem` with all axes in the form the module describes."""
    if _holds_innermost(problem.m) and not _holds_innermost([*problem.n, *problem.batch]):
        problem = _swapped(problem)
    equal = shapes.constraints.equal
    *outer_m, m = _groups(problem.m, equal)
    *outer_n, n = _groups(problem.n, equal)
    batch = [*problem.batch, *itertools.chain(*outer_m, *outer_n)]
    k = sorted(_relevant(problem.k), key=lambda x: magnitude(x.a), reverse=True)
    return replace(
        problem,
        batch=tuple(_merged(_by_c(batch), equal)),
        m=tuple(m),
        n=tuple(n),
        k=tuple(_merged(k, equal)) or (Axis(ONE),),
    )


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
    """Do `axes` hold the innermost dimension of the result? (Size 1 counts for nobody.)"""
    return any(x.c == ONE and not x.size.is_one for x in axes)


def _relevant(axes: Sequence[Axis]) -> list[Axis]:
    return [x for x in axes if not x.size.is_one]


def _by_c(axes: Sequence[Axis]) -> list[Axis]:
    return sorted(_relevant(axes), key=lambda x: magnitude(x.c), reverse=True)


def magnitude(stride: Expr) -> tuple[int, int]:
    """An order of strides that is right for the strides of one dense array."""
    degree = max((sum(p for _, p in monomial) for monomial, _ in stride.terms), default=0)
    return degree, max((abs(c) for _, c in stride.terms), default=0)


def _groups(axes: Sequence[Axis], equal: Equal) -> list[list[Axis]]:
    """`axes` in the order of C, cut where C is no single run; at least one group."""
    groups: list[list[Axis]] = []
    for axis in _by_c(axes):
        if groups and _same(groups[-1][-1].c, axis.c * axis.size, equal):
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

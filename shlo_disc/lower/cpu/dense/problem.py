"""What a `dense` fusion computes: C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n].

Each side of a `dot_general` has groups of dimensions in any order. Neighbours whose strides
agree in all arrays are one axis; what is left of M and N beyond the innermost axis joins the batch
(where the other operand simply does not move), so that the kernel sees one M and one N axis. K
keeps all its axes. The operands change places when the innermost dimension of the result comes
from the left one: the kernel writes consecutive elements along N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.errors import InternalError
from shlo_disc.lower.cpu.elements import ELEMENTS, Element, element_of, unsupported
from shlo_disc.mlir import ir, stablehlo

__all__ = ["Axis", "Problem", "analyze_dense", "compute_element", "dense_strides"]

ZERO, ONE = Expr.const(0), Expr.const(1)


@dataclass(frozen=True)
class Axis:
    """A dimension of the iteration space and the step it makes in each array, in elements."""

    size: Expr
    a: Expr = ZERO
    b: Expr = ZERO
    c: Expr = ZERO


@dataclass(frozen=True)
class Problem:
    """See the module. `a_input` and `b_input` are operand numbers of the fusion."""

    batch: tuple[Axis, ...]
    m: Axis
    n: Axis
    k: tuple[Axis, ...]
    """Outermost first, at least one."""
    a_input: int
    b_input: int
    a: Element
    b: Element
    c: Element
    compute: Element

    @property
    def depth(self) -> Expr:
        """Number of products in a sum."""
        return Expr.product(k.size for k in self.k)

    @property
    def batches(self) -> Expr:
        """Number of (A, B, C) matrices."""
        return Expr.product(x.size for x in self.batch)


def dense_strides(sizes: Sequence[Expr]) -> list[Expr]:
    """Row-major strides."""
    strides: list[Expr] = []
    step = ONE
    for size in reversed(sizes):
        strides.insert(0, step)
        step = step * size
    return strides


def compute_element(op: ir.Operation, a: Element, b: Element, c: Element) -> Element:
    """The type sums are kept in: at least f32 for floats, at least 32 bits for integers."""
    if c.is_float:
        return ELEMENTS["f64" if "f64" in (a.name, b.name, c.name) else "f32"]
    if a.is_float or b.is_float:
        unsupported(
            op, f"{a.name} x {b.name} summed as {c.name}", "use a float preferred_element_type"
        )
    return ELEMENTS["i64" if c.bits == 64 else "i32"]


def analyze_dense(fusion: ir.Operation, shapes: ShapeAnalysis) -> Problem:
    """The problem of a fusion with one dot_general and, after it, at most transposes.

    Raises UnsupportedError for element types that are not compiled, InternalError for a fusion of
    another form.
    """
    block = fusion.regions[0].blocks[0]
    ops = [view.operation for view in block.operations]
    dots = [op for op in ops if op.name == "stablehlo.dot_general"]
    if len(dots) != 1:
        raise InternalError(f"a dense fusion with {len(dots)} dot_general: {fusion}")
    (dot,) = dots
    terminator = ops[-1]
    if len(terminator.operands) != 1:
        raise InternalError(f"a dense fusion with {len(terminator.operands)} results: {fusion}")
    inputs = list(block.arguments)
    lhs, rhs = (_view(v, inputs, shapes) for v in dot.operands)
    out = _result_strides(dot, terminator.operands[0], shapes)
    numbers = stablehlo.DotDimensionNumbers(dot.attributes["dot_dimension_numbers"])
    lhs_batch, rhs_batch = (
        list(numbers.lhs_batching_dimensions),
        list(numbers.rhs_batching_dimensions),
    )
    lhs_k, rhs_k = (
        list(numbers.lhs_contracting_dimensions),
        list(numbers.rhs_contracting_dimensions),
    )
    lhs_free = [d for d in range(len(lhs.sizes)) if d not in lhs_batch and d not in lhs_k]
    rhs_free = [d for d in range(len(rhs.sizes)) if d not in rhs_batch and d not in rhs_k]
    batch_out = out[: len(lhs_batch)]
    m_out = out[len(lhs_batch) : len(lhs_batch) + len(lhs_free)]
    n_out = out[len(lhs_batch) + len(lhs_free) :]
    batch = [
        Axis(lhs.sizes[i], lhs.strides[i], rhs.strides[j], c)
        for i, j, c in zip(lhs_batch, rhs_batch, batch_out, strict=True)
    ]
    m = [Axis(lhs.sizes[i], a=lhs.strides[i], c=c) for i, c in zip(lhs_free, m_out, strict=True)]
    n = [Axis(rhs.sizes[j], b=rhs.strides[j], c=c) for j, c in zip(rhs_free, n_out, strict=True)]
    k = [
        Axis(lhs.sizes[i], a=lhs.strides[i], b=rhs.strides[j])
        for i, j in zip(lhs_k, rhs_k, strict=True)
    ]
    a, b, c = element_of(dot.operands[0]), element_of(dot.operands[1]), element_of(dot.results[0])
    problem = Problem(
        tuple(batch),
        ONE_AXIS,
        ONE_AXIS,
        tuple(k),
        lhs.input,
        rhs.input,
        a,
        b,
        c,
        compute_element(dot, a, b, c),
    )
    if _innermost_is(m, [*batch, *n]):
        problem = _swapped(problem)
        m, n = [_swap(x) for x in n], [_swap(x) for x in m]
    return _collapsed(problem, m, n, shapes)


ONE_AXIS = Axis(ONE)


@dataclass(frozen=True)
class _View:
    """An operand of the fusion as the dot sees it."""

    input: int
    sizes: list[Expr]
    strides: list[Expr]


def _view(value: ir.Value, inputs: Sequence[ir.Value], shapes: ShapeAnalysis) -> _View:
    """`value`, an operand of the fusion or a transpose of one."""
    if value in inputs:
        sizes = list(shapes.shape(value))
        return _View(list(inputs).index(value), sizes, dense_strides(sizes))
    op = value.owner.operation
    if op.name != "stablehlo.transpose":
        raise InternalError(f"a dense fusion cannot read its operand through {op}")
    inner = _view(op.operands[0], inputs, shapes)
    order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
    return _View(inner.input, [inner.sizes[d] for d in order], [inner.strides[d] for d in order])


def _result_strides(dot: ir.Operation, root: ir.Value, shapes: ShapeAnalysis) -> list[Expr]:
    """The step in the fusion's result of each dimension of the dot's result."""
    if root == dot.results[0]:
        return dense_strides(shapes.shape(root))
    op = root.owner.operation
    if op.name != "stablehlo.transpose":
        raise InternalError(f"a dense fusion cannot end in {op}")
    outer = dense_strides(shapes.shape(root))
    chain = [list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))]
    while op.operands[0] != dot.results[0]:
        op = op.operands[0].owner.operation
        if op.name != "stablehlo.transpose":
            raise InternalError(f"a dense fusion cannot hold {op} after its dot")
        chain.append(list(ir.DenseI64ArrayAttr(op.attributes["permutation"])))
    strides = outer
    for order in chain:
        strides = [strides[order.index(d)] for d in range(len(order))]
    return strides


def _is_one(size: Expr) -> bool:
    return bool(size.is_const and size.value == 1)


def _swap(axis: Axis) -> Axis:
    return Axis(axis.size, axis.b, axis.a, axis.c)


def _swapped(p: Problem) -> Problem:
    return Problem(
        tuple(_swap(x) for x in p.batch),
        p.m,
        p.n,
        tuple(_swap(x) for x in p.k),
        p.b_input,
        p.a_input,
        p.b,
        p.a,
        p.c,
        p.compute,
    )


def _innermost_is(axes: Sequence[Axis], others: Sequence[Axis]) -> bool:
    """Do `axes` hold the innermost dimension of the result? (Size 1 counts for nobody.)"""
    mine = [x for x in axes if not _is_one(x.size)]
    unit = any(x.c == ONE for x in mine)
    return unit and not any(x.c == ONE and not _is_one(x.size) for x in others)


def _collapsed(
    problem: Problem, m: Sequence[Axis], n: Sequence[Axis], shapes: ShapeAnalysis
) -> Problem:
    """`problem` with its axes merged where strides allow and spread as the module says."""
    merged_m, merged_n = _merge(_by_c(m), shapes), _merge(_by_c(n), shapes)
    *outer_m, last_m = merged_m or [ONE_AXIS]
    *outer_n, last_n = merged_n or [ONE_AXIS]
    batch = _merge(_by_c([*problem.batch, *outer_m, *outer_n]), shapes)
    k = _merge(sorted(problem.k, key=lambda x: _magnitude(x.a), reverse=True), shapes)
    return replace(problem, batch=tuple(batch), m=last_m, n=last_n, k=tuple(k or [ONE_AXIS]))


def _by_c(axes: Sequence[Axis]) -> list[Axis]:
    return sorted(axes, key=lambda x: _magnitude(x.c), reverse=True)


def _magnitude(stride: Expr) -> tuple[int, int]:
    """An order of strides that is right for the strides of one dense array."""
    degree = max((sum(p for _, p in monomial) for monomial, _ in stride.terms), default=0)
    return degree, max((abs(c) for _, c in stride.terms), default=0)


def _merge(axes: Sequence[Axis], shapes: ShapeAnalysis) -> list[Axis]:
    """Neighbours of one run of memory, in every array, as one axis; axes of size 1 dropped."""

    def same(x: Expr, y: Expr) -> bool:
        return bool(x == y or shapes.constraints.equal(x, y))

    merged: list[Axis] = []
    for axis in axes:
        if _is_one(axis.size):
            continue
        if merged:
            top = merged[-1]
            if all(same(getattr(top, array), getattr(axis, array) * axis.size) for array in "abc"):
                merged[-1] = Axis(top.size * axis.size, axis.a, axis.b, axis.c)
                continue
        merged.append(axis)
    return merged

"""Shape rules: the result sizes of each op from the sizes of its operands.

A rule is called when a result or an operand has a dynamic dimension. It returns the shapes of all
results and states the preconditions of the op (`require`). A precondition that facts do not prove
becomes a guard, so that no kernel runs on sizes the specification leaves undefined.

Source: the StableHLO specification, section by op name; letters as there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.dynamic.asked import Asked, Shape
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops import Role, names

Rule = Callable[[Asked, ir.Operation], list[Shape]]

DYNAMIC = ir.ShapedType.get_dynamic_size()
ZERO, ONE = Expr.const(0), Expr.const(1)

MOVING_RULES: dict[str, Rule] = {}
"""Element-wise and index-moving ops, and those with the shape of an operand."""


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for name in names:
            MOVING_RULES[name if "." in name else f"stablehlo.{name}"] = rule
        return rule

    return add


def refuse(op: ir.Operation, why: str, advice: str) -> UnsupportedError:
    """The error for an op whose shape cannot be told."""
    return UnsupportedError(f"{source_line(op)}: {op.name}: {why}; {advice}")


# -- the shape of an operand --------------------------------------------------------------------

_OTHER_RULES = {"stablehlo.bitcast_convert", "stablehlo.clamp", "stablehlo.select"}
_ELEMENTWISE = names(lambda row: row.role is Role.ELEMENTWISE) - _OTHER_RULES


@_rule(*sorted(_ELEMENTWISE))
def _elementwise(s: Asked, op: ir.Operation) -> list[Shape]:
    return [s.same_shape(op, list(op.operands))]


@_rule("select")
def _select(s: Asked, op: ir.Operation) -> list[Shape]:
    values = list(op.operands)
    return [s.same_shape(op, values if s.shape(values[0]) else values[1:])]


@_rule("clamp")
def _clamp(s: Asked, op: ir.Operation) -> list[Shape]:
    low, value, high = op.operands
    return [s.same_shape(op, [value, *(v for v in (low, high) if s.shape(v))])]


@_rule("reverse", "disc.scan")
def _like_first(s: Asked, op: ir.Operation) -> list[Shape]:
    return [s.shape(op.operands[0])]


@_rule("optimization_barrier")
def _like_each(s: Asked, op: ir.Operation) -> list[Shape]:
    return [s.shape(v) for v in op.operands]


@_rule("sort")
def _sort(s: Asked, op: ir.Operation) -> list[Shape]:
    return [s.same_shape(op, list(op.operands))] * len(op.results)


@_rule("bitcast_convert")
def _bitcast(s: Asked, op: ir.Operation) -> list[Shape]:
    shape = s.shape(op.operands[0])
    declared = s.declared(op.results[0])
    if len(declared) < len(shape):
        return [shape[:-1]]
    if len(declared) > len(shape):
        return [(*shape, Expr.const(declared[-1]))]
    return [shape]


@_rule("get_dimension_size")
def _scalar(s: Asked, op: ir.Operation) -> list[Shape]:
    return [()]


@_rule("disc.dim", "disc.shape", "disc.sizes", "constant", "iota")
def _declared(s: Asked, op: ir.Operation) -> list[Shape]:
    declared = s.declared(op.results[0])
    if DYNAMIC in declared:
        raise refuse(op, "its result type must be static", "use the dynamic form of the op")
    return [tuple(Expr.const(n) for n in declared)]


@_rule("disc.empty")
def _empty(s: Asked, op: ir.Operation) -> list[Shape]:
    return [tuple(s.parsed(d) for d in ir.ArrayAttr(op.attributes["dims"]))]


# -- shapes given as operands -------------------------------------------------------------------


def _given(s: Asked, op: ir.Operation, index: int) -> Shape:
    """A result shape given as operand; its sizes must be >= 0."""
    declared = s.declared(op.results[0])
    shape = s.sizes_operand(op, index)
    for size in shape:
        s.require(op, size, ">=", ZERO)
    # A static size in the type is a promise of the producer, checked where it does not follow.
    for written, size in zip(declared, shape, strict=True):
        if written != DYNAMIC:
            s.require_equal(op, size, Expr.const(written))
    return tuple(
        size if written == DYNAMIC else Expr.const(written)
        for written, size in zip(declared, shape, strict=True)
    )


@_rule("dynamic_iota")
def _dynamic_iota(s: Asked, op: ir.Operation) -> list[Shape]:
    return [_given(s, op, 0)]


@_rule("dynamic_reshape")
def _dynamic_reshape(s: Asked, op: ir.Operation) -> list[Shape]:
    shape = _given(s, op, 1)
    source = s.shape(op.operands[0])
    if not s.constraints.product_equal(source, shape):
        s.require_equal(op, Expr.product(source), Expr.product(shape))
    return [shape]


@_rule("dynamic_broadcast_in_dim")
def _dynamic_broadcast(s: Asked, op: ir.Operation) -> list[Shape]:
    shape = _given(s, op, 1)
    source = s.shape(op.operands[0])
    targets = attr.integers(op, "broadcast_dimensions")
    same = _optional(op, "known_nonexpanding_dimensions")
    expanding = _optional(op, "known_expanding_dimensions")
    for axis, target in enumerate(targets):
        own, result = source[axis], shape[target]
        if axis in same:
            s.require_equal(op, own, result)
        elif axis in expanding:
            s.require_equal(op, own, ONE)
        else:
            _broadcast_size(s, op, own, result)
    return [shape]


def _optional(op: ir.Operation, name: str) -> list[int]:
    return attr.integers_or(op, name, 0, 0)


# -- moving indices -----------------------------------------------------------------------------


@_rule("reshape")
def _reshape(s: Asked, op: ir.Operation) -> list[Shape]:
    (shape,) = _declared(s, op)
    s.require_equal(op, Expr.product(s.shape(op.operands[0])), Expr.product(shape))
    return [shape]


@_rule("broadcast_in_dim")
def _broadcast_in_dim(s: Asked, op: ir.Operation) -> list[Shape]:
    (shape,) = _declared(s, op)
    source = s.shape(op.operands[0])
    for axis, target in enumerate(attr.integers(op, "broadcast_dimensions")):
        _broadcast_size(s, op, source[axis], shape[target])
    return [shape]


def _broadcast_size(s: Asked, op: ir.Operation, size: Expr, result: Expr) -> None:
    """`size` is 1 or the result's size."""
    if size == ONE or s.constraints.equal(size, result):
        return
    if size.is_const or s.constraints.at_least(size, 2):
        s.require_equal(op, size, result)
    else:
        message = f"the size {size} of the operand must be 1 or {result}"
        s.require(op, (size - 1) * (size - result), "==", ZERO, message)


@_rule("transpose")
def _transpose(s: Asked, op: ir.Operation) -> list[Shape]:
    source = s.shape(op.operands[0])
    return [tuple(source[axis] for axis in attr.integers(op, "permutation"))]


def _sliced(
    s: Asked,
    op: ir.Operation,
    start: Sequence[Expr],
    limit: Sequence[Expr],
    stride: Sequence[Expr],
) -> Shape:
    """ceil((limit - start) / stride), given 0 <= start <= limit <= size and stride >= 1."""
    sizes = []
    source = s.shape(op.operands[0])
    for size, first, last, step in zip(source, start, limit, stride, strict=True):
        s.require(op, first, ">=", ZERO)
        s.require(op, last, ">=", first)
        s.require(op, size, ">=", last)
        s.require(op, step, ">=", ONE)
        sizes.append(s.constraints.canonical((last - first + step - 1) // step))
    return tuple(sizes)


@_rule("slice")
def _slice(s: Asked, op: ir.Operation) -> list[Shape]:
    keys = ("start_indices", "limit_indices", "strides")
    start, limit, stride = ([Expr.const(n) for n in attr.integers(op, key)] for key in keys)
    return [_sliced(s, op, start, limit, stride)]


@_rule("real_dynamic_slice")
def _real_dynamic_slice(s: Asked, op: ir.Operation) -> list[Shape]:
    if DYNAMIC not in s.declared(op.results[0]) and any(
        s.contents(v) is None for v in list(op.operands)[1:]
    ):
        return [tuple(Expr.const(n) for n in s.declared(op.results[0]))]
    start, limit, stride = (s.sizes_operand(op, k) for k in (1, 2, 3))
    return [_sliced(s, op, start, limit, stride)]


@_rule("dynamic_slice")
def _dynamic_slice(s: Asked, op: ir.Operation) -> list[Shape]:
    sizes = tuple(Expr.const(n) for n in attr.integers(op, "slice_sizes"))
    for own, size in zip(s.shape(op.operands[0]), sizes, strict=True):
        s.require(op, own, ">=", size)
    return [sizes]


@_rule("dynamic_update_slice")
def _dynamic_update_slice(s: Asked, op: ir.Operation) -> list[Shape]:
    shape = s.shape(op.operands[0])
    for own, size in zip(shape, s.shape(op.operands[1]), strict=True):
        s.require(op, own, ">=", size)
    return [shape]


def _padded(
    s: Asked,
    op: ir.Operation,
    low: Sequence[Expr],
    high: Sequence[Expr],
    interior: Sequence[Expr],
) -> Shape:
    """The size is n + low + high + max(n - 1, 0) * interior, which must be >= 0."""
    sizes = []
    for size, a, b, inner in zip(s.shape(op.operands[0]), low, high, interior, strict=True):
        s.require(op, inner, ">=", ZERO)
        holes = ZERO if inner == ZERO else Expr.max(size - 1, 0) * inner
        padded = s.constraints.canonical(size + a + b + holes)
        s.require(op, padded, ">=", ZERO)
        sizes.append(padded)
    return tuple(sizes)


@_rule("pad")
def _pad(s: Asked, op: ir.Operation) -> list[Shape]:
    keys = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, inner = ([Expr.const(n) for n in attr.integers(op, k)] for k in keys)
    return [_padded(s, op, low, high, inner)]


@_rule("dynamic_pad")
def _dynamic_pad(s: Asked, op: ir.Operation) -> list[Shape]:
    low, high, inner = (s.sizes_operand(op, k) for k in (2, 3, 4))
    return [_padded(s, op, low, high, inner)]


@_rule("concatenate")
def _concatenate(s: Asked, op: ir.Operation) -> list[Shape]:
    axis = attr.integer(op, "dimension")
    shapes = [s.shape(v) for v in op.operands]
    result = list(shapes[0])
    for shape in shapes[1:]:
        for k, size in enumerate(shape):
            if k != axis:
                result[k] = s.require_equal(op, result[k], size)
    result[axis] = Expr.sum(shape[axis] for shape in shapes)
    return [tuple(result)]


@_rule("reduce")
def _reduce(s: Asked, op: ir.Operation) -> list[Shape]:
    count = len(op.results)
    source = s.same_shape(op, list(op.operands)[:count])
    gone = set(attr.integers(op, "dimensions"))
    return [tuple(n for k, n in enumerate(source) if k not in gone)] * count

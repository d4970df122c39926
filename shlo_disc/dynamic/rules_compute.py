"""Shape rules of ops that compute over windows, indices, contractions and matrices.

See `rules.py`; Source: the StableHLO specification, section by op name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.dynamic.asked import Asked, Shape
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.rules import DYNAMIC, ONE, ZERO, Rule, refuse
from shlo_disc.dynamic.size_sources import SizeFromData
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.convolutions import conv_numbers
from shlo_disc.ir.dialect import fft_pairs
from shlo_disc.ir.indexing import IndexNumbers, gather_numbers, scatter_numbers
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops import ffi

COMPUTE_RULES: dict[str, Rule] = {}

CUSTOM_CALLS: dict[str, Rule] = {}
"""Custom calls of JAX whose result sizes are operands, by target name."""


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for name in names:
            COMPUTE_RULES[name if "." in name else f"stablehlo.{name}"] = rule
        return rule

    return add


# -- windows ------------------------------------------------------------------------------------


def _dilated(size: Expr, by: Expr) -> Expr:
    """`size` elements with `by - 1` holes between them: (size - 1)*by + 1, or 0."""
    return size if by == ONE else Expr.max((size - 1) * by + 1, 0)


def _window(
    s: Asked,
    op: ir.Operation,
    size: Expr,
    padding: tuple[Expr, Expr],
    base: Expr,
    window: Expr,
    dilation: Expr,
    stride: Expr,
) -> Expr:
    """The number of window positions: floor((padded - reach) / stride) + 1, or 0."""
    facts = s.constraints
    for positive in (window, dilation, stride, base):
        s.require(op, positive, ">=", ONE)
    padded = facts.canonical(_dilated(size, base) + padding[0] + padding[1])
    s.require(op, padded, ">=", ZERO)
    reach = (window - 1) * dilation + 1
    return facts.canonical(Expr.max(facts.canonical((padded - reach) // stride) + 1, 0))


def _consts(numbers: Sequence[int]) -> list[Expr]:
    return [Expr.const(n) for n in numbers]


def _windows(
    s: Asked,
    op: ir.Operation,
    source: Shape,
    padding: Sequence[tuple[Expr, Expr]],
    window: Sequence[Expr],
    stride: Sequence[Expr],
    base: Sequence[Expr],
    dilation: Sequence[Expr],
) -> Shape:
    return tuple(
        _window(s, op, n, padding[k], base[k], window[k], dilation[k], stride[k])
        for k, n in enumerate(source)
    )


@_rule("reduce_window")
def _reduce_window(s: Asked, op: ir.Operation) -> list[Shape]:
    count = len(op.results)
    source = s.same_shape(op, list(op.operands)[:count])
    rank = len(source)
    shape = _windows(
        s,
        op,
        source,
        [(Expr.const(a), Expr.const(b)) for a, b in attr.pairs(op, "padding", rank)],
        _consts(attr.integers(op, "window_dimensions")),
        _consts(attr.integers_or(op, "window_strides", rank, 1)),
        _consts(attr.integers_or(op, "base_dilations", rank, 1)),
        _consts(attr.integers_or(op, "window_dilations", rank, 1)),
    )
    return [shape] * count


@_rule("disc.reduce_window")
def _disc_reduce_window(s: Asked, op: ir.Operation) -> list[Shape]:
    """Operands: inputs, initial values, window, low and high padding of one dimension."""
    count = len(op.results)
    shape = list(s.same_shape(op, list(op.operands)[:count]))
    found = [s.scalar(v) for v in list(op.operands)[2 * count :]]
    numbers = [n for n in found if n is not None]
    if len(numbers) != len(found):
        raise SizeFromData.of(op, 2 * count + found.index(None))
    window, low, high = numbers
    axis = attr.integer(op, "dimension")
    shape[axis] = _window(s, op, shape[axis], (low, high), ONE, window, ONE, ONE)
    return [tuple(shape)] * count


@_rule("select_and_scatter")
def _select_and_scatter(s: Asked, op: ir.Operation) -> list[Shape]:
    shape = s.shape(op.operands[0])
    rank = len(shape)
    ones = [ONE] * rank
    expected = _windows(
        s,
        op,
        shape,
        [(Expr.const(a), Expr.const(b)) for a, b in attr.pairs(op, "padding", rank)],
        _consts(attr.integers_or(op, "window_dimensions", rank, 1)),
        _consts(attr.integers_or(op, "window_strides", rank, 1)),
        ones,
        ones,
    )
    for size, source in zip(expected, s.shape(op.operands[1]), strict=True):
        s.require_equal(op, source, size)
    return [shape]


@_rule("convolution")
def _convolution(s: Asked, op: ir.Operation) -> list[Shape]:
    n = conv_numbers(op)
    lhs, rhs = s.shape(op.operands[0]), s.shape(op.operands[1])
    spatial = len(n.input.spatial)
    padding = [(Expr.const(a), Expr.const(b)) for a, b in attr.pairs(op, "padding", spatial)]
    stride = _consts(attr.integers_or(op, "window_strides", spatial, 1))
    base = _consts(attr.integers_or(op, "lhs_dilation", spatial, 1))
    dilation = _consts(attr.integers_or(op, "rhs_dilation", spatial, 1))
    groups = attr.integer(op, "batch_group_count", 1)
    batch = lhs[n.input.batch]
    s.require_equal(op, batch % groups, ZERO)
    s.require_equal(
        op,
        rhs[n.kernel_input_feature] * attr.integer(op, "feature_group_count", 1),
        lhs[n.input.feature],
    )
    sizes: dict[int, Expr] = {
        n.output.batch: s.constraints.canonical(batch // groups),
        n.output.feature: rhs[n.kernel_output_feature],
    }
    for k in range(spatial):
        size, window = lhs[n.input.spatial[k]], rhs[n.kernel_spatial[k]]
        sizes[n.output.spatial[k]] = _window(
            s, op, size, padding[k], base[k], window, dilation[k], stride[k]
        )
    return [tuple(sizes[k] for k in range(len(lhs)))]


# -- indices ------------------------------------------------------------------------------------


def _gathered(s: Asked, op: ir.Operation, slices: Shape) -> list[Shape]:
    n = gather_numbers(op)
    operand, indices = s.shape(op.operands[0]), s.shape(op.operands[1])
    batch = [indices[d] for d in n.place_dims(len(indices))]
    slice_count = Expr.product(batch)
    is_needed = slice_count.is_const or s.constraints.at_least(slice_count, 1)
    for size, part in zip(operand, slices, strict=True):
        s.require(op, part, ">=", ZERO)
        # Without slices nothing is read: x[arange(b)] has a value where b is 0.
        s.require(op, size, ">=", part if is_needed else Expr.min(part, part * slice_count))
    _batching(s, op, n, operand, indices)
    window = [slices[d] for d in n.kept_dims(len(slices))]
    rank = len(batch) + len(window)
    return [tuple(window.pop(0) if k in n.window_dims else batch.pop(0) for k in range(rank))]


def _batching(s: Asked, op: ir.Operation, n: IndexNumbers, operand: Shape, indices: Shape) -> None:
    for a, b in zip(n.batching_dims, n.index_batching_dims, strict=True):
        s.require_equal(op, operand[a], indices[b])


@_rule("gather")
def _gather(s: Asked, op: ir.Operation) -> list[Shape]:
    return _gathered(s, op, tuple(_consts(attr.integers(op, "slice_sizes"))))


@_rule("dynamic_gather")
def _dynamic_gather(s: Asked, op: ir.Operation) -> list[Shape]:
    return _gathered(s, op, s.sizes_operand(op, 2))


@_rule("scatter")
def _scatter(s: Asked, op: ir.Operation) -> list[Shape]:
    count = len(op.results)
    values = list(op.operands)
    n = scatter_numbers(op)
    shape = s.same_shape(op, values[:count])
    indices = s.shape(values[count])
    updates = s.same_shape(op, values[count + 1 :])
    _batching(s, op, n, shape, indices)
    batch = [indices[d] for d in n.place_dims(len(indices))]
    window = [shape[d] for d in n.kept_dims(len(shape))]
    for k, size in enumerate(updates):
        if k in n.window_dims:
            s.require(op, window.pop(0), ">=", size)
        else:
            s.require_equal(op, batch.pop(0), size)
    return [s.shape(v) for v in values[:count]]


@_rule("chlo.top_k")
def _top_k(s: Asked, op: ir.Operation) -> list[Shape]:
    shape = s.shape(op.operands[0])
    k = Expr.const(attr.integer(op, "k"))
    s.require(op, shape[-1], ">=", k)
    return [(*shape[:-1], k)] * 2


# -- contractions -------------------------------------------------------------------------------


def _contracted(
    s: Asked, op: ir.Operation, batch: tuple[Sequence[int], Sequence[int]],
    contracting: tuple[Sequence[int], Sequence[int]],
) -> list[Shape]:  # fmt: skip
    lhs, rhs = (s.shape(v) for v in list(op.operands)[:2])
    for a, b in zip((*batch[0], *contracting[0]), (*batch[1], *contracting[1]), strict=True):
        s.require_equal(op, lhs[a], rhs[b])
    rows = [n for k, n in enumerate(lhs) if k not in (*batch[0], *contracting[0])]
    columns = [n for k, n in enumerate(rhs) if k not in (*batch[1], *contracting[1])]
    return [(*(lhs[k] for k in batch[0]), *rows, *columns)]


@_rule("dot_general")
def _dot_general(s: Asked, op: ir.Operation) -> list[Shape]:
    left, right = dot_sides(op)
    return _contracted(s, op, (left.batch, right.batch), (left.contracting, right.contracting))


# -- matrices, transforms, statistics -----------------------------------------------------------


@_rule("disc.fft")
def _disc_fft(s: Asked, op: ir.Operation) -> list[Shape]:
    kind = attr.text(op, "kind")
    shape = s.same_shape(op, list(op.operands)[:2])
    pairs_in, pairs_out = fft_pairs(op)
    if pairs_in:
        shape = shape[:-1]
    if pairs_out:
        shape = (*shape, Expr.const(2))
    if kind == "RFFT":
        shape = (*shape[:-1], shape[-1] // 2 + 1)
    elif kind == "IRFFT":
        length = s.scalar(op.operands[2])
        if length is None:
            raise SizeFromData.of(op, 2)
        s.require_equal(op, shape[-1], length // 2 + 1)
        shape = (*shape[:-1], length)
    return [shape] * len(op.results)


@_rule("rng_bit_generator")
def _rng_bit_generator(s: Asked, op: ir.Operation) -> list[Shape]:
    declared = s.declared(op.results[1])
    if DYNAMIC in declared:
        raise refuse(op, "its result size is not given", "use @stablehlo.dynamic_rng_bit_generator")
    return [s.shape(op.operands[0]), tuple(_consts(declared))]


# -- custom calls -------------------------------------------------------------------------------


def _call(name: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        CUSTOM_CALLS[name] = rule
        return rule

    return add


@_rule("custom_call")
def _custom_call(s: Asked, op: ir.Operation) -> list[Shape]:
    """By target, or by JAX's `indices_of_shape_operands`: one shape operand per result."""
    target = attr.text(op, "call_target_name")
    rule = CUSTOM_CALLS.get(ffi.ANY_TARGET[1:] if ffi.is_ffi_call(op) else target)
    if rule is not None:
        return rule(s, op)
    if "indices_of_shape_operands" in op.attributes:
        indices = ir.DenseIntElementsAttr(op.attributes["indices_of_shape_operands"])
        return [s.sizes_operand(op, int(i)) for i in indices]
    if any(DYNAMIC in s.declared(r) for r in op.results):
        raise refuse(
            op,
            f"@{target} is not known, and does not say the sizes of its results",
            "keep this part of the program outside shlo_disc.jit",
        )
    return [tuple(_consts(s.declared(r))) for r in op.results]


@_call(ffi.ANY_TARGET[1:])
def _ffi_call(s: Asked, op: ir.Operation) -> list[Shape]:
    """Shape operands give logical sizes; results are in the order of their memory."""
    at = ffi.size_operands(op)
    if not at:
        if any(DYNAMIC in s.declared(r) for r in op.results):
            target = attr.text(op, "call_target_name")
            raise refuse(
                op, f"@{target} does not say the sizes of its results", "give shape operands"
            )
        return [tuple(_consts(s.declared(r))) for r in op.results]
    orders = [ir.DenseI64ArrayAttr(o) for o in ir.ArrayAttr(op.attributes["disc.result_orders"])]
    return [
        (
            *(s.sizes_operand(op, k)[axis] for axis in order),
            *([Expr.const(2)] if ffi.holds_pairs(result, order) else []),
        )
        for k, result, order in zip(at, op.results, orders, strict=True)
    ]


@_call("stablehlo.dynamic_top_k")
def _dynamic_top_k(s: Asked, op: ir.Operation) -> list[Shape]:
    shape = s.shape(op.operands[0])
    (k,) = s.sizes_operand(op, 1)
    s.require(op, k, ">=", ZERO)
    s.require(op, shape[-1], ">=", k)
    return [(*shape[:-1], k)] * 2


@_call("stablehlo.dynamic_rng_bit_generator")
def _dynamic_rng_bit_generator(s: Asked, op: ir.Operation) -> list[Shape]:
    return [s.shape(op.operands[0]), s.sizes_operand(op, 1)]

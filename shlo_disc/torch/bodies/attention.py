"""Scaled dot-product attention, in the form that the `attention` kernel has.

    softmax(query @ key^T * scale + mask) @ value

Dimensions: [..., L, E] queries, [..., S, E] keys, [..., S, V] values, [..., L, V] results.
A row without any key is 0, as PyTorch has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, constant, converted, identity, iota
from shlo_disc.ingest.size_arithmetic import larger, quotient, reshaped, size_of, sizes_of
from shlo_disc.ingest.size_values import binary, extent
from shlo_disc.ir.builders import compare, create, element_of, reduced, select
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, spread, typed


def attention(call: BodyCall) -> list[ir.Value]:
    """`aten.scaled_dot_product_attention`. Raises UnsupportedError for dropout."""
    return _attention(call)[:1]


def flash_attention(call: BodyCall) -> list[ir.Value]:
    """`aten._scaled_dot_product_flash_attention_for_cpu`: also log(sum(exp(scores))) of each row.

    Raises UnsupportedError for dropout.
    """
    mixed, most, total = _attention(call)
    logarithm = create("stablehlo.log", [total], total.type)
    return [mixed, binary("add", logarithm, most)]


def _attention(call: BodyCall) -> list[ir.Value]:
    """The result; of each row of scores the maximum, and the sum of the exponentials."""
    if call["dropout_p"] != 0.0:
        raise UnsupportedError("dropout is random; call the model in eval mode")
    query, key, value = call["query"], call["key"], call["value"]
    shapes = [call.shape(name) for name in ("query", "key", "value")]
    if len({len(shape) for shape in shapes}) != 1:
        raise UnsupportedError("query, key and value must have one rank")
    key = _repeated(key, shapes[1], query, shapes[0])
    value = _repeated(value, shapes[2], query, shapes[0])
    f32 = ir.F32Type.get()
    wide = f32 if element_of(query) in (ir.F16Type.get(), ir.BF16Type.get()) else element_of(query)
    rank = ir.RankedTensorType(query.type).rank
    scores = _dot(query, key, rank - 1, rank - 1, wide)
    scale = _scale(call["scale"], query, wide)
    scores = binary("multiply", scores, spread(scale, [], scores))
    mask = call["attn_mask"]
    if call["is_causal"]:
        scores = _causal(scores)
    if mask is not None:
        scores = _masked(scores, mask)
    weights, most, total = _softmax(scores, may_be_empty=mask is not None)
    weights = converted(weights, element_of(value))
    mixed = _dot(weights, value, rank - 1, rank - 2, wide)
    return [converted(mixed, element_of(query)), most, total]


def _scale(scale: float | None, query: ir.Value, element: ir.Type) -> ir.Value:
    """What scores are multiplied by, of rank 0: `scale`, or one over the root of a head's size."""
    last = ir.RankedTensorType(query.type).rank - 1
    width = ir.RankedTensorType(query.type).shape[last]
    if scale is None and width < 0:
        # The scores of heads without an element are 0, and must not become NaN.
        size = binary("maximum", extent(query, last), constant(1, "i64"))
        return create("stablehlo.rsqrt", [converted(size, element)], typed(size, element))
    if scale is None:
        scale = 1 / math.sqrt(width) if width else 1.0
    return constant(scale, element)


def _repeated(
    x: ir.Value, shape: Sequence[object], query: ir.Value, want: Sequence[object]
) -> ir.Value:
    """Keys or values for every head of the queries: grouped heads, or sizes of 1.

    `shape` and `want` are the symbolic sizes of `x` and of `query`.
    """
    for axis in range(len(shape) - 2):
        have, wanted = shape[axis], want[axis]
        if have == wanted:
            continue
        if isinstance(have, int) and isinstance(wanted, int) and (not have or wanted % have):
            raise UnsupportedError(
                f"dimension {axis} of query has the size {wanted}, of key or value {have}"
            )
        x = _repeat(x, axis, query)
    return x


def _repeat(x: ir.Value, axis: int, query: ir.Value) -> ir.Value:
    """Every element of `axis` as often as `query` has the size in that dimension."""
    sizes, wanted = sizes_of(x), size_of(query, axis)
    times = quotient(wanted, larger(sizes[axis], 1))
    dims = [k if k <= axis else k + 1 for k in range(len(sizes))]
    wide = broadcast_to(x, dims, [*sizes[: axis + 1], times, *sizes[axis + 1 :]])
    return reshaped(wide, [*sizes[:axis], wanted, *sizes[axis + 1 :]])


def _dot(a: ir.Value, b: ir.Value, axis_a: int, axis_b: int, element: ir.Type) -> ir.Value:
    """A product over `axis_a` and `axis_b`; all leading dimensions are batches."""
    kinds = [ir.RankedTensorType(v.type) for v in (a, b)]
    rank = kinds[0].rank
    batch = list(range(rank - 2))
    sizes = [m if m >= 0 else n for m, n in zip(*(k.shape[: rank - 2] for k in kinds), strict=True)]
    for kind, axis in zip(kinds, (axis_a, axis_b), strict=True):
        sizes += [kind.shape[k] for k in (rank - 2, rank - 1) if k != axis]
    numbers = ir.Attribute.parse(
        f"#stablehlo.dot<lhs_batching_dimensions = {batch}, rhs_batching_dimensions = {batch}, "
        f"lhs_contracting_dimensions = [{axis_a}], rhs_contracting_dimensions = [{axis_b}]>"
    )
    result = ir.RankedTensorType.get(sizes, element)
    return create("stablehlo.dot_general", [a, b], result, dot_dimension_numbers=numbers)


def _causal(scores: ir.Value) -> ir.Value:
    """Scores of keys behind the query are -inf; query and key 0 are at one place."""
    rank = ir.RankedTensorType(scores.type).rank
    i32 = ir.IntegerType.get_signless(32)
    rows, columns = iota(sizes_of(scores), rank - 2, i32), iota(sizes_of(scores), rank - 1, i32)
    seen = compare("GE", rows, columns)
    none = spread(identity("maximum", element_of(scores)), [], scores)
    return select(seen, scores, none)


def _masked(scores: ir.Value, mask: ir.Value) -> ir.Value:
    """A mask of truth values says which scores count, one of floats is added."""
    kind = ir.RankedTensorType(scores.type)
    rank = ir.RankedTensorType(mask.type).rank
    dims = list(range(kind.rank - rank, kind.rank))
    if isinstance(element_of(mask), ir.IntegerType):
        none = spread(identity("maximum", kind.element_type), [], scores)
        return select(spread(mask, dims, scores), scores, none)
    return binary("add", scores, spread(converted(mask, kind.element_type), dims, scores))


def _softmax(scores: ir.Value, *, may_be_empty: bool) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Of the last dimension, with the maximum and the sum that it is computed from.

    Rows of -inf give 0 where they `may_be_empty`; their maximum is 0 and their sum is 1.
    """
    kind = ir.RankedTensorType(scores.type)
    rows = list(range(kind.rank - 1))
    lowest = identity("maximum", kind.element_type)
    most = reduced(scores, [kind.rank - 1], "maximum", lowest)
    if may_be_empty:
        finite = compare("NE", most, spread(lowest, [], most))
        zero = spread(constant(0, kind.element_type), [], most)
        most = select(finite, most, zero)
    below = binary("subtract", scores, spread(most, rows, scores))
    powers = create("stablehlo.exponential", [below], kind)
    total = reduced(powers, [kind.rank - 1], "add", constant(0, kind.element_type))
    if may_be_empty:
        one = spread(constant(1, kind.element_type), [], total)
        total = select(finite, total, one)
    return binary("divide", powers, spread(total, rows, scores)), most, total

"""Scaled dot-product attention, in the form that the `attention` kernel has.

    softmax(query @ key^T * scale + mask) @ value

Dimensions: [..., L, E] queries, [..., S, E] keys, [..., S, V] values, [..., L, V] results.
A row without any key is 0, as PyTorch has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import Array, identity
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall


def attention(call: BodyCall) -> list[Array]:
    """`aten.scaled_dot_product_attention`. Raises UnsupportedError for dropout."""
    return _attention(call)[:1]


def flash_attention(call: BodyCall) -> list[Array]:
    """`aten._scaled_dot_product_flash_attention_for_cpu`: also log(sum(exp(scores))) of each row.

    Raises UnsupportedError for dropout.
    """
    mixed, most, total = _attention(call)
    return [mixed, total.apply("log") + most]


def _attention(call: BodyCall) -> list[Array]:
    """The result; of each row of scores the maximum, and the sum of the exponentials."""
    if call["dropout_p"] != 0.0:
        raise UnsupportedError("dropout is random; call the model in eval mode")
    query, key, value = call["query"], call["key"], call["value"]
    shapes = [call.shape(name) for name in ("query", "key", "value")]
    if len({len(shape) for shape in shapes}) != 1:
        raise UnsupportedError("query, key and value must have one rank")
    key = _repeated(key, shapes[1], query, shapes[0])
    value = _repeated(value, shapes[2], query, shapes[0])
    is_half = query.element in (ir.F16Type.get(), ir.BF16Type.get())
    wide, last = ir.F32Type.get() if is_half else query.element, query.rank - 1
    scores = query.dot(key, last, last, batch=last - 1, element=wide)
    scores = scores * _scale(call["scale"], query, wide)
    mask = call["attn_mask"]
    if call["is_causal"]:  # keys behind the query do not count; both of number 0 are at one place
        seen = scores.iota(last - 1, "i32") >= scores.iota(last, "i32")
        scores = seen.where(scores, identity("maximum", wide))
    if mask is not None:
        scores = _masked(scores, mask)
    weights, most, total = _softmax(scores, may_be_empty=mask is not None)
    weights = weights.to(value.element)
    mixed = weights.dot(value, last, last - 1, batch=last - 1, element=wide)
    return [mixed.to(query.element), most, total]


def _scale(scale: float | None, query: Array, element: ir.Type) -> Array:
    """What scores are multiplied by, of rank 0: `scale`, or one over the root of a head's size."""
    width = query.shape[-1]
    if scale is None and width < 0:
        # The scores of heads without an element are 0, and must not become NaN.
        return query.extent(query.rank - 1).maximum(1).to(element).apply("rsqrt")
    if scale is None:
        scale = 1 / math.sqrt(width) if width else 1.0
    return Array.constant(scale, element)


def _repeated(x: Array, shape: Sequence[object], query: Array, want: Sequence[object]) -> Array:
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
        x = _repeat(x, axis, query.sizes[axis])
    return x


def _repeat(x: Array, axis: int, wanted: int | Array) -> Array:
    """Every element of `axis` as often as it takes to have the size `wanted`."""
    sizes = x.sizes
    have = max(sizes[axis], 1) if isinstance(sizes[axis], int) else sizes[axis].maximum(1)
    dims = [k if k <= axis else k + 1 for k in range(len(sizes))]
    wide = x.expand([*sizes[: axis + 1], wanted // have, *sizes[axis + 1 :]], dims)
    return wide.reshape([*sizes[:axis], wanted, *sizes[axis + 1 :]])


def _masked(scores: Array, mask: Array) -> Array:
    """A mask of truth values says which scores count, one of floats is added."""
    dims = list(range(scores.rank - mask.rank, scores.rank))
    if isinstance(mask.element, ir.IntegerType):
        return mask.spread(dims, scores).where(scores, identity("maximum", scores.element))
    return scores + mask.to(scores.element).spread(dims, scores)


def _softmax(scores: Array, *, may_be_empty: bool) -> tuple[Array, Array, Array]:
    """Of the last dimension, with the maximum and the sum that it is computed from.

    Rows of -inf give 0 where they `may_be_empty`; their maximum is 0 and their sum is 1.
    """
    last = scores.rank - 1
    rows = list(range(last))
    most = scores.reduce("maximum", [last])
    if may_be_empty:
        finite = most.differs(identity("maximum", scores.element))
        most = finite.where(most, 0)
    powers = (scores - most.spread(rows, scores)).apply("exponential")
    total = powers.reduce("add", [last])
    if may_be_empty:
        total = finite.where(total, 1)
    return powers / total.spread(rows, scores), most, total

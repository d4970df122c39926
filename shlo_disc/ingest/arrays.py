"""Arrays in StableHLO whose sizes may be known, for the front ends: numbers, indices, parts.

A size is a number or a rank-0 i64 (`size_arithmetic.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.size_arithmetic import (
    Size,
    larger,
    minus,
    pairs_of,
    plus,
    product,
    reshaped,
    shape_vector,
    size_of,
    sizes_of,
    static,
    times,
)
from shlo_disc.ir.builders import convert, create, element_of, scalar, with_element
from shlo_disc.ir.element_types import known_element_type
from shlo_disc.ir.mlir import ir


def _typed(sizes: Sequence[Size], element: ir.Type) -> ir.RankedTensorType:
    return ir.RankedTensorType.get(static(sizes), element)


def constant(value: Any, element: ir.Type | str, shape: Sequence[int] = ()) -> ir.Value:
    """A constant of a static shape, every element `value`."""
    inner = ir.Type.parse(element) if isinstance(element, str) else element
    if isinstance(inner, ir.ComplexType):
        return scalar(value, inner)
    kind = ir.RankedTensorType.get(list(shape), inner)
    attribute: Any
    if isinstance(inner, ir.IntegerType):
        attribute = ir.IntegerAttr.get(inner, int(value))
    else:
        attribute = ir.FloatAttr.get(inner, float(value))
    splat = ir.DenseElementsAttr.get_splat(kind, attribute)
    return create("stablehlo.constant", [], kind, value=splat)


_STARTS = {"add": 0, "or": 0, "multiply": 1, "and": 1}


def identity(join: str, element: ir.Type, *, is_finite: bool = False) -> ir.Value:
    """The rank-0 value with which `stablehlo.JOIN` gives its other operand.

    Those of extremes of floats are infinities, or the ends of their range (`is_finite`).
    """
    if join in _STARTS:
        return constant(_STARTS[join], element)
    sign = 1 if join == "minimum" else -1
    if isinstance(element, ir.FloatType):
        return constant(sign * (_largest_float(element) if is_finite else math.inf), element)
    kind = ir.IntegerType(element)
    if kind.is_unsigned:
        return constant((1 << kind.width) - 1 if join == "minimum" else 0, element)
    edge = 1 << (kind.width - 1)
    return constant(edge - 1 if join == "minimum" else -edge, element)


def _largest_float(element: ir.Type) -> float:
    row = known_element_type(element)
    if row is None:
        raise UnsupportedError(f"elements of type {element}")
    info: Any = ml_dtypes.finfo
    return float(info(row.dtype).max)


def converted(array: ir.Value, element: ir.Type | str) -> ir.Value:
    """`array` with elements of another type."""
    inner = ir.Type.parse(element) if isinstance(element, str) else element
    return convert(array, with_element(array.type, inner))


def broadcast_to(array: ir.Value, dims: Sequence[int], sizes: Sequence[Size]) -> ir.Value:
    """`array` in the shape `sizes`; its dimension k goes to `dims[k]`."""
    kind = _typed(sizes, element_of(array))
    if kind.has_static_shape and ir.RankedTensorType(array.type).has_static_shape:
        return create("stablehlo.broadcast_in_dim", [array], kind, broadcast_dimensions=dims)
    return create(
        "stablehlo.dynamic_broadcast_in_dim",
        [array, shape_vector(sizes)],
        kind,
        broadcast_dimensions=dims,
    )


def iota(sizes: Sequence[Size], axis: int, element: ir.Type | str) -> ir.Value:
    """The index along `axis`."""
    inner = ir.Type.parse(element) if isinstance(element, str) else element
    kind = _typed(sizes, inner)
    if kind.has_static_shape:
        return create("stablehlo.iota", [], kind, iota_dimension=axis)
    return create("stablehlo.dynamic_iota", [shape_vector(sizes)], kind, iota_dimension=axis)


def flat(array: ir.Value) -> ir.Value:
    """All elements in a row."""
    return reshaped(array, [product(sizes_of(array))])


def joined(parts: Sequence[ir.Value], axis: int) -> ir.Value:
    """The concatenation along a dimension."""
    total: Size = 0
    for part in parts:
        total = plus(total, size_of(part, axis))
    shape: list[Size] = [total if k == axis else n for k, n in enumerate(sizes_of(parts[0]))]
    kind = ir.RankedTensorType.get(static(shape), element_of(parts[0]))
    return create("stablehlo.concatenate", list(parts), kind, dimension=axis)


def reversed_along(array: ir.Value, axes: Sequence[int]) -> ir.Value:
    """`array` with the order of some dimensions reversed."""
    if not axes:
        return array
    return create("stablehlo.reverse", [array], array.type, dimensions=axes)


def sliced(array: ir.Value, starts: Sequence[Size], limits: Sequence[Size]) -> ir.Value:
    """The elements of each dimension from a start on, up to a limit."""
    kind = _typed(list(map(minus, limits, starts)), element_of(array))
    ones = [1] * kind.rank
    if all(isinstance(n, int) for n in (*starts, *limits, *sizes_of(array))):
        return create(
            "stablehlo.slice", [array], kind,
            start_indices=starts, limit_indices=limits, strides=ones,
        )  # fmt: skip
    rows = map(shape_vector, (starts, limits, ones))
    return create("stablehlo.real_dynamic_slice", [array, *rows], kind)


def first_of(array: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """The first elements of every dimension, as many as `sizes` say."""
    if all(isinstance(n, int) for n in sizes) and list(sizes) == sizes_of(array):
        return array
    return sliced(array, [0] * len(sizes), sizes)


def taken(array: ir.Value, indices: ir.Value, axis: int) -> ir.Value:
    """The entries of a dimension that a vector of indices, all within it, names."""
    sizes = sizes_of(array)
    others = [k for k in range(len(sizes)) if k != axis]
    count = size_of(indices, 0)
    kind = _typed([count if k == axis else n for k, n in enumerate(sizes)], element_of(array))
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {others}, collapsed_slice_dims = [{axis}], "
        f"start_index_map = [{axis}], index_vector_dim = 1>"
    )
    slices: list[Size] = [1 if k == axis else n for k, n in enumerate(sizes)]
    if all(isinstance(n, int) for n in slices):
        return create(
            "stablehlo.gather",
            [array, indices],
            kind,
            dimension_numbers=numbers,
            slice_sizes=static(slices),
        )
    return create(
        "stablehlo.dynamic_gather", [array, indices, shape_vector(slices)], kind,
        dimension_numbers=numbers,
    )  # fmt: skip


def windowed(array: ir.Value, starts: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """The window of these sizes that begins at a vector of indices, which data may give."""
    axes = list(range(len(sizes)))
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {axes}, start_index_map = {axes}>"
    )
    return create(
        "stablehlo.dynamic_gather",
        [array, starts, shape_vector(sizes)],
        _typed(sizes, element_of(array)),
        dimension_numbers=numbers,
        indices_are_sorted=True,
    )


def padded(
    array: ir.Value,
    pads: Sequence[tuple[Size, Size]],
    inside: Sequence[int] = (),
    value: ir.Value | None = None,
) -> ir.Value:
    """`array` with `value`, or 0, in front of and behind each dimension, and between entries."""
    between = list(inside) or [0] * len(pads)
    sizes = []
    for n, (low, high), zeros in zip(sizes_of(array), pads, between, strict=True):
        own = n if zeros == 0 else plus(n, times(larger(minus(n, 1), 0), zeros))
        sizes.append(plus(plus(low, own), high))
    rows = [[low for low, _ in pads], [high for _, high in pads], between]
    return create(
        "stablehlo.dynamic_pad",
        [array, value or constant(0, element_of(array)), *map(shape_vector, rows)],
        _typed(sizes, element_of(array)),
    )


def convolved(
    x: ir.Value,
    weight: ir.Value,
    kind: ir.RankedTensorType,
    dimensions: str,
    padding: Sequence[tuple[Size, Size]],
    *,
    strides: Sequence[int] = (),
    lhs_dilation: Sequence[int] = (),
    rhs_dilation: Sequence[int] = (),
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> ir.Value:
    """A convolution of type `kind`; `dimensions` as StableHLO writes: `[b, 0, f]x[0, i, o]->...`.

    Strides and dilations that are left out are 1.
    """
    ones = [1] * len(padding)
    attributes: dict[str, Any] = {
        "window_strides": strides or ones,
        "lhs_dilation": lhs_dilation or ones,
        "rhs_dilation": rhs_dilation or ones,
        "dimension_numbers": ir.Attribute.parse(f"#stablehlo.conv<{dimensions}>"),
        "feature_group_count": feature_groups,
        "batch_group_count": batch_groups,
    }
    ends = [n for pair in padding for n in pair]
    if not all(isinstance(n, int) for n in ends):
        return create("stablehlo.dynamic_conv", [x, weight, pairs_of(ends)], kind, **attributes)
    pairs = ", ".join(f"[{a}, {b}]" for a, b in padding)
    attributes["padding"] = ir.Attribute.parse(f"dense<[{pairs}]> : tensor<{len(padding)}x2xi64>")
    return create("stablehlo.convolution", [x, weight], kind, **attributes)

"""Arrays in StableHLO whose sizes may be known, for the front ends: numbers, indices, parts.

A size is a number or a rank-0 i64 (`size_arithmetic.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    value_of,
)
from shlo_disc.ingest.size_values import extent
from shlo_disc.ir.builders import (
    compare,
    convert,
    create,
    element_of,
    rank_of,
    reduced,
    scalar,
    scattered,
    select,
    transposed,
    while_loop,
    with_element,
)
from shlo_disc.ir.contractions import dot_numbers
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


# -- arrays with operators ------------------------------------------------------------------------

_NEUTRAL = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1}
"""Op of whole numbers -> the second operand for which it gives the first one."""


def _operator(name: str, *, is_swapped: bool = False) -> Callable[[Array, Any], Array]:
    def operator(self: Array, other: Any) -> Array:
        if is_swapped:
            return self.full(other).apply(name, self)
        is_number = isinstance(other, int) and isinstance(self.element, ir.IntegerType)
        return self if is_number and other == _NEUTRAL.get(name) else self.apply(name, other)

    return operator


def _comparison(direction: str) -> Callable[[Array, Any], Array]:
    return lambda self, other: Array(compare(direction, *_together(self, other)))


class Array(ir.Value):  # type: ignore[misc]
    """A tensor with operators; those of whole numbers are StableHLO's: `/` and `%` go towards 0.

    Beside an array, a number or a rank-0 array has its shape, and a number its element type. Sizes
    are numbers or rank-0 arrays, and have the same operators. `==` says whether two are one value.
    """

    __add__ = __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", is_swapped=True)
    __mul__ = __rmul__ = _operator("multiply")
    __truediv__ = __floordiv__ = _operator("divide")
    __rtruediv__ = __rfloordiv__ = _operator("divide", is_swapped=True)
    __mod__ = _operator("remainder")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lt__, __le__ = _comparison("LT"), _comparison("LE")
    __gt__, __ge__ = _comparison("GT"), _comparison("GE")
    equals, differs = _comparison("EQ"), _comparison("NE")
    maximum, minimum = _operator("maximum"), _operator("minimum")

    @classmethod
    def constant(cls, value: Any, element: ir.Type | str, shape: Sequence[int] = ()) -> Array:
        """A constant of a static shape, every element `value`."""
        return cls(constant(value, element, shape))

    @classmethod
    def size(cls, size: Size) -> Array:
        """A size as a rank-0 i64."""
        return cls(value_of(size))

    @classmethod
    def join(cls, parts: Sequence[ir.Value], axis: int) -> Array:
        """The concatenation along a dimension."""
        return cls(joined(parts, axis))

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return rank_of(self)

    @property
    def element(self) -> ir.Type:
        """The type of elements."""
        return element_of(self)

    @property
    def is_float(self) -> bool:
        """True for elements that are real floats."""
        return isinstance(self.element, ir.FloatType)

    @property
    def shape(self) -> list[int]:
        """The sizes as the type has them."""
        return list(ir.RankedTensorType(self.type).shape)

    @property
    def sizes(self) -> list[Any]:
        """The sizes: numbers where they are known, else rank-0 arrays of i64."""
        return [n if isinstance(n, int) else Array(n) for n in sizes_of(self)]

    def extent(self, axis: int) -> Array:
        """The size of a dimension as a rank-0 i64."""
        return Array(extent(self, axis))

    def apply(
        self, name: str, *others: Any, element: ir.Type | None = None, **attributes: Any
    ) -> Array:
        """The op `NAME`, of StableHLO without a dialect, of arrays and numbers of one type.

        `element` is the element type of the result, where it is another one.
        """
        operands = _together(self, *others)
        kind = with_element(operands[0].type, element or element_of(operands[0]))
        full = name if "." in name else f"stablehlo.{name}"
        return Array(create(full, operands, kind, **attributes))

    def __neg__(self) -> Array:
        return self.apply("negate")

    def __invert__(self) -> Array:
        return self.apply("not")

    def where(self, a: Any, b: Any) -> Array:
        """`a` where this array of truth values is true, else `b`: arrays, or one is a number."""
        element = element_of(a if isinstance(a, ir.Value) else b)
        both = (Array(v) if isinstance(v, ir.Value) else constant(v, element) for v in (a, b))
        return Array(select(self, *(v if rank_of(v) else Array(v).spread([], self) for v in both)))

    def to(self, element: ir.Type | str) -> Array:
        """The elements in another type."""
        return Array(converted(self, element))

    def full(self, value: Any) -> Array:
        """A number, or a rank-0 array, in this shape."""
        one = value if isinstance(value, ir.Value) else constant(value, self.element)
        return Array(one).spread([], self)

    def iota(self, axis: int, element: ir.Type | str = "i64") -> Array:
        """The index along `axis`, in this shape."""
        return Array(iota(sizes_of(self), axis, element))

    def expand(self, sizes: Sequence[Size], dims: Sequence[int] = ()) -> Array:
        """The array in the shape `sizes`; its dimension k goes to `dims[k]`."""
        return Array(broadcast_to(self, dims, sizes))

    def spread(self, dims: Sequence[int], like: ir.Value) -> Array:
        """The array in the shape of `like`; its dimension k goes to `dims[k]`."""
        kind = with_element(like.type, self.element)
        is_same = self.type == kind and list(dims) == list(range(kind.rank))
        return self if is_same else self.expand(sizes_of(like), dims)

    def reshape(self, sizes: Sequence[Size]) -> Array:
        """The array in the shape `sizes`; every call checks the number of elements."""
        return Array(reshaped(self, sizes))

    def flat(self) -> Array:
        """All elements in a row."""
        return Array(flat(self))

    def transpose(self, order: Sequence[int]) -> Array:
        """The array with its dimensions in this order."""
        return Array(transposed(self, order))

    def slice(self, starts: Sequence[Size], limits: Sequence[Size]) -> Array:
        """The elements of each dimension from a start on, up to a limit."""
        return Array(sliced(self, starts, limits))

    def first(self, sizes: Sequence[Size]) -> Array:
        """The first elements of every dimension, as many as `sizes` say."""
        return Array(first_of(self, sizes))

    def entry(self, place: ir.Value) -> Array:
        """The entry of a place of the first dimension, without that."""
        sizes = sizes_of(self)[1:]
        starts = shape_vector([place, *[0] * len(sizes)])
        return Array(windowed(self, starts, [1, *sizes])).reshape(sizes)

    def written(self, entry: ir.Value, place: ir.Value) -> Array:
        """The array with `entry` at a place of the first dimension."""
        row = reshaped(entry, [1, *sizes_of(entry)])
        places = [place, *[constant(0, "i64")] * (self.rank - 1)]
        return Array(create("stablehlo.dynamic_update_slice", [self, row, *places], self.type))

    def pad(self, pads: Sequence[tuple[Size, Size]], value: ir.Value) -> Array:
        """The array with `value` in front of and behind each dimension."""
        return Array(padded(self, pads, value=value))

    def reduce(self, name: str, dims: Sequence[int], start: ir.Value | None = None) -> Array:
        """The elements along `dims` joined by `stablehlo.NAME`, from `start` or its identity."""
        return Array(reduced(self, dims, name, start or identity(name, self.element)))

    def scatter(self, places: ir.Value, updates: ir.Value, join: str | None, *more: Any) -> Array:
        """As :func:`shlo_disc.ir.builders.scattered`."""
        return Array(scattered(self, places, updates, join, *more))

    def dot(
        self, other: Array, a: int, b: int, *, batch: int = 0, element: ir.Type | None = None
    ) -> Array:
        """Products summed over dimension `a`, and `b` of `other`; the first `batch` go together.

        `element` is the element type of the result, where it is another one.
        """
        dims = range(batch)
        shape = [max(self.shape[k], other.shape[k]) for k in dims]  # a number, if there is one
        for array, axis in ((self, a), (other, b)):
            shape += [n for k, n in enumerate(array.shape) if k >= batch and k != axis]
        kind = ir.RankedTensorType.get(shape, element or self.element)
        numbers = dot_numbers((dims, dims), ([a], [b]))
        return Array(
            create("stablehlo.dot_general", [self, other], kind, dot_dimension_numbers=numbers)
        )


def _together(*given: Any) -> list[Array]:
    """Arrays and numbers in the shape of the array of most dimensions."""
    like = Array(max((v for v in given if isinstance(v, ir.Value)), key=rank_of))
    return [
        Array(v) if isinstance(v, ir.Value) and rank_of(v) == like.rank else like.full(v)
        for v in given
    ]


def loop(
    states: Sequence[ir.Value],
    condition: Callable[..., ir.Value],
    step: Callable[..., Sequence[ir.Value]],
) -> list[Array]:
    """As :func:`shlo_disc.ir.builders.while_loop`, of arrays."""

    def of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *now: function(*map(Array, now))

    return list(map(Array, while_loop(states, of_arrays(condition), of_arrays(step))))

"""Pools whose last windows may reach beyond the edge (`ceil_mode`), and those of unsigned numbers.

    %p = dynamic_pad %x, low = [padding], high = [what the last window reaches beyond]
    %y = reduce_window %p, window [kernel], strides [stride]

torch-mlir pads both sides in ceil mode, or neither, and starts a maximum of u8 at 128.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from shlo_disc.ingest.arrays import constant, identity, iota, padded
from shlo_disc.ingest.size_arithmetic import (
    Size,
    larger,
    minus,
    plus,
    quotient,
    size_of,
    sizes_of,
    smaller,
    times,
    value_of,
)
from shlo_disc.ingest.size_values import binary, extent
from shlo_disc.ir.builders import compare, create, element_of, select, write_region
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, spread, typed

_BEHIND = (1 << 63) - 1
"""The index of an element that pads: larger than all others."""


def is_special_pool(arguments: Mapping[str, Any]) -> bool:
    """True for the arguments of a pool in ceil mode, or of unsigned numbers.

    And for a maximum without strides: torch-mlir takes them for 1, not for the window.
    """
    if "dilation" in arguments and not arguments["stride"]:
        return True
    dtype = arguments["self"].meta["val"].dtype
    if arguments.get("divisor_override") is not None:
        return True  # torch-mlir leaves it out, or has no lowering
    return bool(arguments["ceil_mode"]) or dtype in (torch.uint8, torch.uint16, torch.uint32)


class _Windows:
    """The windows of a pool over the last dimensions of `x`."""

    def __init__(self, call: BodyCall, x: ir.Value) -> None:
        packet = str(call.node.target.overloadpacket.__name__)
        self.count = next(n for n in (1, 2, 3) if f"pool{n}d" in packet)
        self.rank = ir.RankedTensorType(x.type).rank
        self.first = self.rank - self.count
        self.kernel = self._numbers(call["kernel_size"])
        self.stride = self._numbers(call["stride"] or call["kernel_size"])
        self.padding = self._numbers(call["padding"])
        has_dilation = "dilation" in {a.name for a in call.node.target._schema.arguments}
        self.dilation = self._numbers(call["dilation"]) if has_dilation else [1] * self.count
        self.high = [self._high(x, k, ceil=call["ceil_mode"]) for k in range(self.count)]

    def _numbers(self, given: int | Sequence[int]) -> list[int]:
        numbers = [given] if isinstance(given, int) else list(given)
        return numbers * self.count if len(numbers) == 1 else numbers

    def _high(self, x: ir.Value, k: int, *, ceil: bool) -> Size:
        """How far the last window reaches beyond the end of spatial dimension `k`, at least 0.

        The last one starts in front of the end, or in the padding before the first element.
        """
        if not ceil:
            return self.padding[k]
        size, low, stride = extent(x, self.first + k), self.padding[k], self.stride[k]
        reach = self.dilation[k] * (self.kernel[k] - 1) + 1
        free = plus(size, 2 * low - reach + stride - 1)  # rounds up
        last = smaller(quotient(free, stride), quotient(plus(size, low - 1), stride))
        return larger(minus(plus(times(last, stride), reach - low), size), 0)

    def padded(self, x: ir.Value, fill: ir.Value) -> ir.Value:
        """`x` with `fill` around it, as far as windows reach."""
        pads = [(0, 0)] * self.first + list(zip(self.padding, self.high, strict=True))
        return padded(x, pads, value=fill)

    def reduce(
        self,
        values: Sequence[ir.Value],
        starts: Sequence[ir.Value],
        join: Callable[..., list[ir.Value]],
    ) -> list[ir.Value]:
        """`values`, padded, with the elements of each window joined."""
        shapes = [ir.RankedTensorType(v.type).shape[: self.first] for v in values]
        ones, dynamic = [1] * self.first, [ir.ShapedType.get_dynamic_size()] * self.count

        def numbers(own: Sequence[int]) -> ir.Attribute:
            return ir.DenseI64ArrayAttr.get([*ones, *own])

        op = ir.Operation.create(
            "stablehlo.reduce_window",
            results=[
                ir.RankedTensorType.get([*shape, *dynamic], element_of(value))
                for shape, value in zip(shapes, values, strict=True)
            ],
            operands=[*values, *starts],
            attributes={
                "window_dimensions": numbers(self.kernel),
                "window_strides": numbers(self.stride),
                "window_dilations": numbers(self.dilation),
            },
            regions=1,
        )
        scalars = [start.type for start in starts]
        write_region(op.regions[0], scalars * 2, join)
        return list(op.results)

    def counts(self, x: ir.Value, like: ir.Value, *, with_padding: bool) -> ir.Value:
        """The numbers of elements of windows in the shape of `like`, as i64."""
        i64 = ir.IntegerType.get_signless(64)
        total = None
        for k in range(self.count):
            axis = self.first + k
            size = size_of(x, axis)
            start = iota(sizes_of(like), axis, i64)
            start = binary("multiply", start, self._full(self.stride[k], like))
            start = binary("subtract", start, self._full(self.padding[k], like))
            end = binary("add", start, self._full(self.kernel[k], like))
            limit = plus(size, self.padding[k]) if with_padding else size
            end = binary("minimum", end, spread(value_of(limit), [], like))
            if not with_padding:
                start = binary("maximum", start, self._full(0, like))
            length = binary("subtract", end, start)
            total = length if total is None else binary("multiply", total, length)
        assert total is not None
        return total

    @staticmethod
    def _full(number: int, like: ir.Value) -> ir.Value:
        return spread(constant(number, "i64"), [], like)


def max_pool(call: BodyCall) -> list[ir.Value]:
    """`aten.max_pool1d`, `max_pool2d` and `max_pool3d`."""
    windows = _Windows(call, call["self"])
    start = identity("maximum", element_of(call["self"]))
    x = windows.padded(call["self"], start)
    return windows.reduce([x], [start], lambda *pair: [binary("maximum", *pair)])


def max_pool_with_indices(call: BodyCall) -> list[ir.Value]:
    """`aten.max_pool2d_with_indices` and `max_pool3d_with_indices`.

    The index is that of the first of equal elements, in one channel, as i64.
    """
    x = call["self"]
    windows = _Windows(call, x)
    i64 = ir.IntegerType.get_signless(64)
    place = iota(sizes_of(x), windows.first, i64)
    for axis in range(windows.first + 1, windows.rank):
        place = binary("multiply", place, spread(extent(x, axis), [], place))
        place = binary("add", place, iota(sizes_of(x), axis, i64))
    starts = [identity("maximum", element_of(x)), constant(_BEHIND, i64)]
    values = [windows.padded(v, s) for v, s in zip((x, place), starts, strict=True)]
    return windows.reduce(values, starts, _larger)


def _larger(a: ir.Value, i: ir.Value, b: ir.Value, j: ir.Value) -> list[ir.Value]:
    """Of (value, index) and (value, index) that of the larger value, or NaN; else the first one."""
    is_first = compare("LT", i, j)
    takes = binary("and", compare("EQ", a, b), is_first)
    takes = binary("or", takes, compare("GT", a, b))
    if isinstance(element_of(a), ir.FloatType):
        nan, other = (compare("NE", v, v) for v in (a, b))
        both = binary("and", nan, other)
        takes = select(other, both, binary("or", takes, nan))
        is_last = create("stablehlo.not", [is_first], is_first.type)
        takes = select(both, is_last, takes)
    return [select(takes, a, b), select(takes, i, j)]


def avg_pool(call: BodyCall) -> list[ir.Value]:
    """`aten.avg_pool1d`, `avg_pool2d` and `avg_pool3d`."""
    windows = _Windows(call, call["self"])
    element = element_of(call["self"])
    zero = constant(0, element)
    x = windows.padded(call["self"], zero)
    (total,) = windows.reduce([x], [zero], lambda *pair: [binary("add", *pair)])
    names = {argument.name for argument in call.node.target._schema.arguments}
    divisor = call["divisor_override"] if "divisor_override" in names else None
    if divisor is not None:
        share = spread(constant(divisor, element), [], total)
    else:
        share = windows.counts(call["self"], total, with_padding=call["count_include_pad"])
        share = create("stablehlo.convert", [share], typed(share, element))
    return [binary("divide", total, share)]

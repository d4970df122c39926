"""Pools whose last windows may reach beyond the edge (`ceil_mode`), and those of unsigned numbers.

    %p = dynamic_pad %x, low = [padding], high = [what the last window reaches beyond]
    %y = reduce_window %p, window [kernel], strides [stride]

torch-mlir pads both sides in ceil mode, or neither, and starts a maximum of u8 at 128.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from shlo_disc.ingest.arrays import Array, identity
from shlo_disc.ingest.size_arithmetic import Size
from shlo_disc.ir.builders import write_region
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall

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

    def __init__(self, call: BodyCall, x: Array) -> None:
        packet = str(call.node.target.overloadpacket.__name__)
        self.count = next(n for n in (1, 2, 3) if f"pool{n}d" in packet)
        self.first = x.rank - self.count
        self.kernel = self._numbers(call["kernel_size"])
        self.stride = self._numbers(call["stride"] or call["kernel_size"])
        self.padding = self._numbers(call["padding"])
        self.dilation = self._numbers(call.get("dilation", 1))
        self.high = [self._high(x, k, ceil=call["ceil_mode"]) for k in range(self.count)]

    def _numbers(self, given: int | Sequence[int]) -> list[int]:
        numbers = [given] if isinstance(given, int) else list(given)
        return numbers * self.count if len(numbers) == 1 else numbers

    def _high(self, x: Array, k: int, *, ceil: bool) -> Size:
        """How far the last window reaches beyond the end of spatial dimension `k`, at least 0.

        The last one starts in front of the end, or in the padding before the first element.
        """
        if not ceil:
            return self.padding[k]
        size, low, stride = x.extent(self.first + k), self.padding[k], self.stride[k]
        reach = self.dilation[k] * (self.kernel[k] - 1) + 1
        free = size + (2 * low - reach + stride - 1)  # rounds up
        last = (free / stride).minimum((size + (low - 1)) / stride)
        return (last * stride + (reach - low) - size).maximum(0)

    def padded(self, x: Array, fill: ir.Value) -> Array:
        """`x` with `fill` around it, as far as windows reach."""
        pads = [(0, 0)] * self.first + list(zip(self.padding, self.high, strict=True))
        return x.pad(pads, fill)

    def reduce(
        self, values: Sequence[Array], starts: Sequence[ir.Value], join: Callable[..., list[Array]]
    ) -> list[Array]:
        """`values`, padded with `starts`, with the elements of each window joined."""
        values = [self.padded(v, s) for v, s in zip(values, starts, strict=True)]
        dynamic = [ir.ShapedType.get_dynamic_size()] * self.count

        def numbers(own: Sequence[int]) -> ir.Attribute:
            return ir.DenseI64ArrayAttr.get([*[1] * self.first, *own])

        op = ir.Operation.create(
            "stablehlo.reduce_window",
            results=[
                ir.RankedTensorType.get([*v.shape[: self.first], *dynamic], v.element)
                for v in values
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
        write_region(op.regions[0], scalars * 2, lambda *both: join(*map(Array, both)))
        return list(map(Array, op.results))

    def counts(self, x: Array, like: Array, *, with_padding: bool) -> Array:
        """The numbers of elements of windows in the shape of `like`, as i64."""
        total: Any = 1
        for axis, kernel, stride, pad in zip(
            range(self.first, x.rank), self.kernel, self.stride, self.padding, strict=True
        ):
            start = like.iota(axis) * stride - pad
            end = (start + kernel).minimum(x.extent(axis) + pad * with_padding)
            total = total * (end - (start if with_padding else start.maximum(0)))
        return Array(total)


def max_pool(call: BodyCall) -> list[Array]:
    """`aten.max_pool1d`, `max_pool2d` and `max_pool3d`."""
    x = call["self"]
    start = identity("maximum", x.element)
    return _Windows(call, x).reduce([x], [start], lambda a, b: [a.maximum(b)])


def max_pool_with_indices(call: BodyCall) -> list[Array]:
    """`aten.max_pool2d_with_indices` and `max_pool3d_with_indices`.

    The index is that of the first of equal elements, in one channel, as i64.
    """
    x = call["self"]
    windows = _Windows(call, x)
    place = x.iota(windows.first)
    for axis in range(windows.first + 1, x.rank):
        place = place * x.extent(axis) + x.iota(axis)
    starts = [identity("maximum", x.element), Array.constant(_BEHIND, "i64")]
    return windows.reduce([x, place], starts, _larger)


def _larger(a: Array, i: Array, b: Array, j: Array) -> list[Array]:
    """Of (value, index) and (value, index) that of the larger value, or NaN; else the first one."""
    is_first = i < j
    takes = (a.equals(b) & is_first) | (a > b)
    if a.is_float:
        nan, other = a.differs(a), b.differs(b)
        both = nan & other
        takes = both.where(~is_first, other.where(both, takes | nan))
    return [takes.where(a, b), takes.where(i, j)]


def avg_pool(call: BodyCall) -> list[Array]:
    """`aten.avg_pool1d`, `avg_pool2d` and `avg_pool3d`."""
    x, divisor = call["self"], call.get("divisor_override", None)
    windows = _Windows(call, x)
    zero = Array.constant(0, x.element)
    (total,) = windows.reduce([x], [zero], lambda a, b: [a + b])
    if divisor is None:
        counts = windows.counts(x, total, with_padding=call["count_include_pad"])
        divisor = counts.to(x.element)
    return [total / divisor]

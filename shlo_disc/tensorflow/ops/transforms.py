"""Fourier transforms over the last dimensions, at any sizes.

    %y = RFFT2D(%x, [h, w])
    ==>
    %a = dynamic_fft %x to [.., h, w], type = RFFT, along the last dimension
    %y = dynamic_fft %a, type = FFT, along the one before

Real operands are cut, or filled with zeros, to the lengths that are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import padded
from shlo_disc.ingest.complex_numbers.transforms import DYNAMIC_FFT
from shlo_disc.ingest.mixed.rewriter import Rule
from shlo_disc.ingest.size_arithmetic import (
    Size,
    minus,
    plus,
    quotient,
    size_of,
    sizes_of,
    smaller,
    static,
    value_of,
)
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.builders import create, element_of, transposed
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.shapes import front
from shlo_disc.tensorflow.ops.values import elements, result

Values = list[ir.Value]


def complex_transform(name: str, count: int) -> Rule:
    """`FFT(input)`, `IFFT2D(input)` and the like: `count` dimensions; `name` is FFT or IFFT."""

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        return [_every(name, op.operands[0], _last(op.operands[0], count))]

    return rule


def real_transform(count: int) -> Rule:
    """`RFFT(input, fft_length)` and the like: half of the last dimension."""

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        array, given = op.operands
        axes = _last(array, count)
        lengths = elements(sizes, given)
        array = _fitted(sizes, array, axes, lengths)
        found = _along("RFFT", array, axes[-1], lengths[-1], plus(quotient(lengths[-1], 2), 1),
                       ir.ComplexType.get(_real(op, element_of(array))))  # fmt: skip
        return [_every("FFT", found, axes[:-1])]

    return rule


def inverse_real_transform(count: int) -> Rule:
    """`IRFFT(input, fft_length)` and the like: from half of the last dimension."""

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        array, given = op.operands
        axes = _last(array, count)
        lengths = elements(sizes, given)
        halved = [*lengths[:-1], plus(quotient(lengths[-1], 2), 1)]
        array = _every("IFFT", _fitted(sizes, array, axes, halved), axes[:-1])
        real = _real(op, result(op).element_type)
        return [_along("IRFFT", array, axes[-1], lengths[-1], lengths[-1], real)]

    return rule


def _real(op: ir.Operation, element: ir.Type) -> ir.Type:
    if element not in (ir.F32Type.get(), ir.F64Type.get()):
        raise UnsupportedError(f"elements of type {element}; convert to float32 or float64")
    return element


def _last(array: ir.Value, count: int) -> list[int]:
    rank = ir.RankedTensorType(array.type).rank
    return list(range(rank - count, rank))


def _every(name: str, array: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Transforms between complex numbers along these dimensions."""
    for axis in reversed(axes):
        size = size_of(array, axis)
        array = _along(name, array, axis, size, size, element_of(array))
    return array


def _along(
    name: str, array: ir.Value, axis: int, length: Size, size: Size, element: ir.Type
) -> ir.Value:
    """One transform of `length`; the result has `size` along `axis`."""
    rank = ir.RankedTensorType(array.type).rank
    order = [k for k in range(rank) if k != axis] + [axis]
    array = transposed(array, order)
    kind = ir.RankedTensorType.get([*static(sizes_of(array)[:-1]), *static([size])], element)
    found = create(
        "stablehlo.custom_call",
        [array, value_of(length)],
        kind,
        call_target_name=ir.StringAttr.get(DYNAMIC_FFT),
        backend_config=ir.StringAttr.get(name),
    )
    return transposed(found, [order.index(k) for k in range(rank)])


def _fitted(
    sizes: Sizes, array: ir.Value, axes: Sequence[int], lengths: Sequence[Size]
) -> ir.Value:
    """`array` with these sizes: its first entries, or zeros behind them."""
    for axis, length in zip(axes, lengths, strict=True):
        own = size_of(array, axis)
        if own == length or (
            not isinstance(own, int)
            and not isinstance(length, int)
            and sizes.origin(own) == sizes.origin(length)
        ):
            continue
        kept = smaller(own, length)
        array = front(array, axis, kept)
        pads: list[tuple[Size, Size]] = [(0, 0)] * ir.RankedTensorType(array.type).rank
        pads[axis] = (0, minus(length, kept))
        array = padded(array, pads)
    return array

"""Fourier transforms of several dimensions as transforms of one after the other, on real planes.

    stablehlo.fft %x, type = FFT, length = [4, 8]
        ==>  disc.fft of dimension 1; disc.fft of dimension 0

Source: the StableHLO specification, `fft`. Of RFFT and IRFFT the last dimension is the real one: it
comes first, and last. The inverse transforms divide by the length of each dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc import dialect
from shlo_disc.builders import integer
from shlo_disc.mlir import ir

__all__ = ["fft_planes"]


def fft_planes(
    kind: str, lengths: Sequence[int | ir.Value], planes: Sequence[ir.Value]
) -> list[ir.Value]:
    """The planes of a `stablehlo.fft` at the insertion point.

    `kind` is FFT, IFFT, RFFT or IRFFT. `lengths` are those of the innermost dimensions, one to
    three: numbers, or rank-0 integer tensors computed from sizes. `planes` are (re, im), of RFFT
    (x,); so are the results, of IRFFT (x,). All are f32 or all are f64.
    """
    found = list(planes)
    rank = ir.RankedTensorType(found[0].type).rank
    others = range(rank - len(lengths), rank - 1)
    if kind == "RFFT":
        found = _last(kind, found)
    for axis in others:
        one = "IFFT" if kind in ("IFFT", "IRFFT") else "FFT"
        types = [plane.type for plane in found]
        found = list(dialect.Fft(one, found, types, axis).results)
    if kind == "RFFT":
        return found
    return _last(kind, found, lengths[-1] if kind == "IRFFT" else None)


def _last(
    kind: str, planes: Sequence[ir.Value], length: int | ir.Value | None = None
) -> list[ir.Value]:
    """The transform of the last dimension; `length` is that of the result of IRFFT."""
    type_ = ir.RankedTensorType(planes[0].type)
    *outer, size = type_.shape
    operands = list(planes)
    if kind == "RFFT" and not type_.is_dynamic_dim(len(outer)):
        size = size // 2 + 1
    if kind == "IRFFT":
        i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        size = ir.ShapedType.get_dynamic_size()
        if isinstance(length, int):
            size, length = length, integer(length, i32)
        operands.append(length)
    result = ir.RankedTensorType.get([*outer, size], type_.element_type)
    return list(dialect.Fft(kind, operands, [result] * (1 if kind == "IRFFT" else 2)).results)

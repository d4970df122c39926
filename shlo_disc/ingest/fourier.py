"""Fourier transforms of several dimensions as transforms of one after the other, on reals.

    stablehlo.fft %x, type = FFT, length = [4, 8]
        ==>  disc.fft of dimension 1; disc.fft of dimension 0

Source: the StableHLO specification, `fft`. Of RFFT and IRFFT the last dimension is the real one: it
comes first, and last. The inverse transforms divide by the length of each dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.ir import dialect
from shlo_disc.ir.builders import integer
from shlo_disc.ir.mlir import ir


def fft_planes(
    kind: str,
    lengths: Sequence[int | ir.Value],
    operands: Sequence[ir.Value],
    *,
    as_pairs: bool = False,
) -> list[ir.Value]:
    """The results of a `stablehlo.fft` at the insertion point.

    `kind` is FFT, IFFT, RFFT or IRFFT. `lengths` are those of the innermost dimensions, one to
    three: numbers, or rank-0 integer tensors computed from sizes. `operands` are the planes (re,
    im), of RFFT (x,), or one array of pairs where :func:`takes_pairs`; all are f32 or all are f64.
    The results are planes, of IRFFT (x,); one array of pairs if `as_pairs` and :func:`gives_pairs`.
    """
    found = list(operands)
    pairs_in = len(found) == 1 and kind != "RFFT"
    rank = ir.RankedTensorType(found[0].type).rank - pairs_in
    one = "IFFT" if kind in ("IFFT", "IRFFT") else "FFT"
    others: list[int | None] = list(range(rank - len(lengths), rank - 1))
    as_pairs = as_pairs and gives_pairs(kind, len(lengths))
    if kind == "RFFT":
        found = _half(found)
    elif kind != "IRFFT":
        others.append(None)
    for k, axis in enumerate(others):
        found = _transformed(one, found, axis, as_pairs and k == len(others) - 1)
    return _real(found, lengths[-1]) if kind == "IRFFT" else found


def takes_pairs(kind: str, dimensions: int) -> bool:
    """True if the first of the transforms may read an array of pairs."""
    return kind in ("FFT", "IFFT") or (kind == "IRFFT" and dimensions > 1)


def gives_pairs(kind: str, dimensions: int) -> bool:
    """True if the last of the transforms may write an array of pairs."""
    return kind in ("FFT", "IFFT") or (kind == "RFFT" and dimensions > 1)


def _transformed(
    kind: str, operands: Sequence[ir.Value], axis: int | None, as_pairs: bool
) -> list[ir.Value]:
    """The transform of one dimension, complex on both sides; None: of the last."""
    type_ = ir.RankedTensorType(operands[0].type)
    shape = type_.shape[:-1] if len(operands) == 1 else type_.shape
    plane = ir.RankedTensorType.get(shape, type_.element_type)
    pairs = ir.RankedTensorType.get([*shape, 2], type_.element_type)
    results = [pairs] if as_pairs else [plane, plane]
    return list(dialect.Fft(kind, operands, results, axis).results)


def _half(operands: Sequence[ir.Value]) -> list[ir.Value]:
    """The transform of the last dimension of reals: the first half of it, and one element."""
    type_ = ir.RankedTensorType(operands[0].type)
    *outer, size = type_.shape
    if not type_.is_dynamic_dim(len(outer)):
        size = size // 2 + 1
    plane = ir.RankedTensorType.get([*outer, size], type_.element_type)
    return list(dialect.Fft("RFFT", operands, [plane, plane]).results)


def _real(planes: Sequence[ir.Value], length: int | ir.Value) -> list[ir.Value]:
    """The reals of `length` elements whose transform has these planes as its half."""
    type_ = ir.RankedTensorType(planes[0].type)
    size = ir.ShapedType.get_dynamic_size()
    if isinstance(length, int):
        i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        size, length = length, integer(length, i32)
    result = ir.RankedTensorType.get([*type_.shape[:-1], size], type_.element_type)
    return list(dialect.Fft("IRFFT", [*planes, length], [result]).results)

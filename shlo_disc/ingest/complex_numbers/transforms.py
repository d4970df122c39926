"""Fourier transforms of complex arrays: `disc.fft` on the planes.

    fft %z, type = FFT, length = [8]                       ==>  disc.fft(%re, %im)
    custom_call @stablehlo.dynamic_fft(%x, %n) {RFFT}      ==>  disc.fft(%x)

The custom call is one of ours (`jax_private.py`): the lengths of `stablehlo.fft` are numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.ingest.complex_numbers.planes import Planes, is_complex
from shlo_disc.ingest.complex_numbers.rewriter import New, Rewriter
from shlo_disc.ingest.fourier import fft_planes
from shlo_disc.mlir import ir, stablehlo

__all__ = ["DYNAMIC_FFT", "dynamic_fft", "fft"]

DYNAMIC_FFT = "stablehlo.dynamic_fft"
"""The target of the custom call."""


def fft(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """A `stablehlo.fft`."""
    kind = stablehlo.FftTypeAttr(op.attributes["fft_type"]).value
    lengths = list(ir.DenseI64ArrayAttr(op.attributes["fft_length"]))
    return [_transformed(rewriter, op.operands[0], str(kind), lengths)]


def dynamic_fft(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """A transform whose lengths are operands, rank-0 integers, behind the array."""
    kind = ir.StringAttr(op.attributes["backend_config"]).value
    value, *lengths = op.operands
    return [_transformed(rewriter, value, kind, lengths)]


def _transformed(
    rewriter: Rewriter, value: ir.Value, kind: str, lengths: Sequence[int | ir.Value]
) -> New:
    planes = [value]
    if is_complex(value.type):
        z = rewriter.planes(value)
        planes = [z.re, z.im]
    found = fft_planes(kind, lengths, planes)
    return found[0] if len(found) == 1 else Planes(*found)

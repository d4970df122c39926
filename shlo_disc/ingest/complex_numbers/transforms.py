"""Fourier transforms of complex arrays: `disc.fft` on planes, or on pairs as they are in memory.

    fft %z, type = FFT, length = [8]                       ==>  disc.fft(%re, %im)
    custom_call @stablehlo.dynamic_fft(%x, %n) {RFFT}      ==>  disc.fft(%x)

Pairs are read where the program has them already, and written where nobody computes with them.
The custom call is ours (`jax_private/lowering.py`): the lengths of `stablehlo.fft` are numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.ingest.complex_numbers.planes import Planes, is_complex, planes_of
from shlo_disc.ingest.complex_numbers.rewriter import New, Rewriter
from shlo_disc.ingest.fourier import fft_planes, gives_pairs, takes_pairs
from shlo_disc.ir.mlir import ir, stablehlo

DYNAMIC_FFT = "stablehlo.dynamic_fft"
"""The target of the custom call."""


def fft(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """A `stablehlo.fft`."""
    kind = stablehlo.FftTypeAttr(op.attributes["fft_type"]).value
    lengths = list(ir.DenseI64ArrayAttr(op.attributes["fft_length"]))
    return [_transformed(rewriter, op, str(kind), lengths)]


def dynamic_fft(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """A transform whose lengths are operands, rank-0 integers, behind the array."""
    kind = ir.StringAttr(op.attributes["backend_config"]).value
    return [_transformed(rewriter, op, kind, list(op.operands)[1:])]


def _transformed(
    rewriter: Rewriter, op: ir.Operation, kind: str, lengths: Sequence[int | ir.Value]
) -> New:
    operands = [op.operands[0]]
    if is_complex(op.operands[0].type):
        z = rewriter.planes(op.operands[0])
        has_pairs = z.pairs is not None and takes_pairs(kind, len(lengths))
        operands = [z.pairs] if has_pairs else [z.re, z.im]
    only_stored = all(use.owner.name.endswith(".return") for use in op.results[0].uses)
    as_pairs = only_stored and gives_pairs(kind, len(lengths))
    found = fft_planes(kind, lengths, operands, as_pairs=as_pairs)
    if as_pairs:
        return planes_of(found[0])
    return found[0] if len(found) == 1 else Planes(*found)

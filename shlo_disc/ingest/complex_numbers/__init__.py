"""Complex numbers become pairs of real numbers: no later stage sees a complex type.

    multiply %z, %w : complex<f32>[?]
    ==>
    subtract (multiply %z.re, %w.re), (multiply %z.im, %w.im)      the real plane
    add      (multiply %z.re, %w.im), (multiply %z.im, %w.re)      the imaginary plane

A value is two tensors of its shape. `main` takes and gives arrays of pairs, the same memory.

Why     Kernels compute with real numbers, and each plane is fused, sliced and dropped by itself.
Needs   calls inlined, CHLO and the ops of `expand_ops` expanded, the sizes of arguments described.
Keeps   every result that StableHLO defines; see docs/complex.md for the error of each function.
Cost    O(ops).
Source  StableHLO spec, section "Types" and each op; C99 Annex G for special values.
"""

from __future__ import annotations

from typing import Any

from shlo_disc.ingest.complex_numbers.boundary import mark_signature, replace_arguments
from shlo_disc.ingest.complex_numbers.planes import is_complex
from shlo_disc.ingest.complex_numbers.pooling import expand_select_and_scatter
from shlo_disc.ingest.complex_numbers.rewriter import Rewriter
from shlo_disc.ingest.complex_numbers.rules import RULES
from shlo_disc.ir.mlir import terminator

__all__ = ["RULES", "is_complex", "split_complex_numbers"]


def split_complex_numbers(main: Any) -> None:
    """No value in `main` is complex; the attribute `disc.complex` marks arguments and results.

    Raises UnsupportedError for an op of complex numbers that has no rule.
    """
    expand_select_and_scatter(main)
    block = main.operation.regions[0].blocks[0]
    returned = terminator(block)
    results = [k for k, v in enumerate(returned.operands) if is_complex(v.type)]
    rewriter = Rewriter(RULES)
    replace_arguments(rewriter, main)
    rewriter.block(block)
    rewriter.finish()
    mark_signature(main, results)

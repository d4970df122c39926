"""The pass over `main` (see the package)."""

from __future__ import annotations

from typing import Any

from shlo_disc.ingest.complex_numbers.boundary import mark_signature, replace_arguments
from shlo_disc.ingest.complex_numbers.planes import is_complex
from shlo_disc.ingest.complex_numbers.pooling import expand_select_and_scatter
from shlo_disc.ingest.complex_numbers.rewriter import Rewriter
from shlo_disc.ingest.complex_numbers.rules import RULES
from shlo_disc.ir.mlir import terminator


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

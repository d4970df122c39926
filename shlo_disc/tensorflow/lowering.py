"""From the converter's text to a module that `shlo_disc.compile` takes."""

from __future__ import annotations

from shlo_disc.ingest.source import read
from shlo_disc.mlir import ir, new_context

__all__ = ["lower"]


def lower(text: str) -> ir.Module:
    """The module in `text`, with the ops that TensorFlow's converter left lowered.

    Raises UnsupportedError for one that has no lowering here.
    """
    context = new_context()
    return read(text, context, own=True)

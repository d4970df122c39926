"""Shared by the pass tests."""

from __future__ import annotations

import numpy as np

from shlo_disc.base import flags
from shlo_disc.ir.mlir import ir, new_context, stablehlo
from shlo_disc.passes.base import Pass, Pipeline


def run_pass(a_pass: Pass, text: str) -> tuple[int, str]:
    """(number of changes, printed module) after `a_pass`; the result must verify."""
    with new_context(), ir.Location.unknown(), flags.overridden(spec=1):
        module = ir.Module.parse(text)
        (record,) = Pipeline([a_pass]).run(module)
        return record.changed, str(module)


def evaluate(text: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of `main` by the StableHLO interpreter, which shares no code with us."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        (main,) = module.body.operations
        arguments = [
            ir.DenseElementsAttr.get(a, type=t.type.element_type, shape=list(a.shape))
            for a, t in zip(arrays, main.arguments, strict=True)
        ]
        return [np.array(r) for r in stablehlo.eval_module(module, arguments)]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal to the bit, signs of zero included; a NaN equals a NaN of any payload."""
    if a.dtype.kind != "f":
        return bool((a == b).all())
    nan = np.isnan(a) & np.isnan(b)
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return bool((nan | (a.view(unsigned) == b.view(unsigned))).all())

"""Values with the type that TensorFlow has found for them."""

from __future__ import annotations

from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import ir


def of_its_type(value: ir.Value, kind: ir.Type) -> ir.Value:
    """`value` with the sizes of `kind`, which every call checks."""
    return value if value.type == kind else create("tensor.cast", [value], kind)

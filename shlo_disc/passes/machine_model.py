"""What the fusion planner must know of a machine: what pays, never what is legal.

A target gives one record (`lower.target.Target.model`). Each number there says how it was measured.
Legality is the matchers' business (`records.py`): it is the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_disc.mlir import ir
from shlo_disc.ops import row_of

__all__ = ["MachineModel"]


@dataclass(frozen=True)
class MachineModel:
    """Numbers of one target; all counts are at least 1."""

    most_ops: int
    """Ops of a kernel: a bound on code size."""
    most_emitted_ops: int
    """Ops of a kernel's text, an op counted once for every index it is computed at.

    `concatenate([x, x])` computes `x` at two indices, so nested ones double the code; every
    reduction of a row computes what it reads anew.
    """
    most_inputs: int
    """Arrays that a kernel reads."""
    most_arrays: int
    """Arrays that a kernel reads or writes."""
    most_row_work_inputs: int
    """Arrays that a product and the rows behind it read: a launch passes them to both."""
    index_ops: int
    """Element-wise ops on indices that a kernel computes again rather than reads."""
    cheap_ops: int
    """Element-wise ops on data that a kernel computes again rather than reads."""
    small_elements: int
    """Elements of a result up to which sharing a launch with another kernel pays."""
    least_columns: int
    """Columns of a row in parts from which they lie in the lanes."""
    long_sum: int
    """Products from which a sum is worth cutting into parts that run at the same time."""
    tall_columns: int
    """Rows from which columns reduced in one sweep are worth cutting into pieces."""
    attention_types: frozenset[str]
    """Element types that the kernels of kind `attention` compute with."""
    stored_cost: int
    """`Op.cost` from which a value is stored and read rather than computed again."""

    def is_expensive(self, op: ir.Operation) -> bool:
        """True if storing the result of `op` beats computing it again."""
        return row_of(op).cost >= self.stored_cost

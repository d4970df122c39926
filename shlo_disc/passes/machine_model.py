"""What the fusion planner and the host program must know of a machine.

A target gives one record (`lower.target.Target.model`) of two halves. `Capabilities` say what the
target can write, `Costs` what pays: no result depends on these, and each says how it was measured.
What holds on every machine is neither: see the matchers (`records.py`) and `fusion/legality.py`.
"""

from __future__ import annotations

from shlo_disc.base.records import dataclass
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops import row_of


@dataclass(frozen=True)
class AttentionKernels:
    """Which attention a target has kernels for."""

    types: frozenset[str]
    """Element types of keys and values."""
    widest: int | None = None
    """Scores stay in registers: rows are a softmax, and head sizes are known and at most this.

    Scores and result may have more digits than keys and values. None: any rows, any head size, and
    everything has one type.
    """
    rounded: frozenset[str] = frozenset()
    """Of `types` those whose operands the kernels round to fewer digits: programs must allow it
    (`contractions.may_round`)."""


@dataclass(frozen=True)
class Capabilities:
    """What a target has kernels for; a fusion beyond that would have none."""

    attention: AttentionKernels
    """What the kernels of kind `attention` compute."""
    rows_behind_products: bool
    """True if a launch of a product may compute rows of its result, too."""
    computes_along_sums: bool
    """True if a product may compute a right operand whose neighbours in memory run along K."""
    shares_memory: bool
    """True if the host program can load from memory of the target, and store into it."""
    raises_flags: bool
    """True if kernels of kinds `loop` and `scatter` may have flags (`records.Flag`)."""


@dataclass(frozen=True)
class Costs:
    """What pays on a target; all numbers are at least 1."""

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
    """Arrays that a product and the rows behind it read."""
    index_ops: int
    """Element-wise ops on indices that a kernel computes again rather than reads."""
    cheap_ops: int
    """Element-wise ops on data that a kernel computes again rather than reads."""
    small_elements: int
    """Elements of a result up to which sharing a launch with another kernel pays."""
    least_columns: int
    """Columns of a row with several runs from which they lie in the lanes."""
    long_sum: int
    """Products from which a sum is worth splitting into pieces that run at the same time."""
    tall_columns: int
    """Rows from which columns reduced in one sweep are worth splitting into pieces."""
    chunk_ns: int
    """Nanoseconds of work that are worth giving to another thread."""
    stored_cost: int
    """`Op.cost` from which a value is stored and read rather than computed again."""

    def is_expensive(self, op: ir.Operation) -> bool:
        """True if storing the result of `op` beats computing it again."""
        return row_of(op).cost >= self.stored_cost


@dataclass(frozen=True)
class MachineModel:
    """The record of one target."""

    capabilities: Capabilities
    costs: Costs

"""The kinds of fusions: a row for each, asked by the planner, the emitters and the host program.

A new kind is a row here, its matcher, and its emitter in every target (`Target.emitters`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.base.records import dataclass
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.match_attention import AttentionRecord, match_attention
from shlo_disc.passes.match_dense import ConvRecord, DenseRecord, match_conv, match_dense
from shlo_disc.passes.match_rows import RowRecord, match_rows
from shlo_disc.passes.match_single_op import LoopRecord, SingleOpRecord, match_loop, match_single_op
from shlo_disc.passes.op_classes import own_kind
from shlo_disc.passes.region import Region

Record = AttentionRecord | ConvRecord | DenseRecord | LoopRecord | RowRecord | SingleOpRecord


class Family(Enum):
    """What a fusion is put together of."""

    SPACE = "space"
    """Any ops over one space: the planner looks at each op that joins."""
    CONTRACTION = "contraction"
    """Products or a convolution, and the work around them."""
    SINGLE_OP = "single op"
    """One op that has a kernel of its own (`Op.kind`), and what computes its operands."""
    HOST = "host"
    """Integer scalars that the host program computes: no kernel, and so no record."""


@dataclass(frozen=True)
class Kind:
    """One row of `KINDS`."""

    name: str
    """The attribute `kind` of a `disc.fusion`, and the key of its emitter."""
    family: Family
    match: Callable[[Region], Record | str] | None
    """The record of a region as a fusion of this kind, or why it has none. Family HOST: None."""
    is_swept: bool = False
    """A reduction is computed once for a row or column, in a sweep of its own. In other kernels it
    is computed again for every element that reads it."""
    is_by_element: bool = False
    """Every element of the results is computed by itself, and stored before the next is read."""
    in_place: bool = False
    """Operand 0 is copied and then some of it changed: no copy is needed if operand 0 dies here."""
    can_fail: bool = False
    """A run may end the call: a handler refuses, or there is no memory."""
    by_address: bool = False
    """The host program calls the runtime, which is given addresses of all operands."""

    @property
    def is_contraction(self) -> bool:
        """True for kinds around products and convolutions."""
        return self.family is Family.CONTRACTION

    @property
    def on_host(self) -> bool:
        """True if the host program computes the fusion: it has no emitter."""
        return self.family is Family.HOST

    @property
    def grows_by_record(self) -> bool:
        """True if ops join only when the whole has a record. What joins a fusion over a space is
        looked at by itself (`fusion/rows.py`); ops of other kinds are joined by none.
        """
        return self.is_contraction or self.in_place

    @property
    def clones_free(self) -> bool:
        """True if the kernel of one op computes the free ops (`Role.FREE`) that it reads."""
        return self.family in (Family.SPACE, Family.CONTRACTION)


_ROWS = (
    Kind("attention", Family.CONTRACTION, match_attention),
    Kind("column", Family.SPACE, match_rows, is_swept=True),
    Kind("conv", Family.CONTRACTION, match_conv),
    Kind("dense", Family.CONTRACTION, match_dense),
    Kind("dynamic_update_slice", Family.SINGLE_OP, match_single_op, in_place=True),
    Kind("ffi", Family.SINGLE_OP, match_single_op, can_fail=True, by_address=True),
    Kind("fft", Family.SINGLE_OP, match_single_op, can_fail=True, by_address=True),
    Kind("host", Family.HOST, None),
    Kind("loop", Family.SPACE, match_loop, is_by_element=True),
    Kind("rng", Family.SINGLE_OP, match_single_op),
    Kind("row", Family.SPACE, match_rows, is_swept=True),
    Kind("scan", Family.SINGLE_OP, match_single_op),
    Kind("scatter", Family.SINGLE_OP, match_single_op, in_place=True),
    Kind("select_and_scatter", Family.SINGLE_OP, match_single_op),
    Kind("sort", Family.SINGLE_OP, match_single_op),
    Kind("top_k", Family.SINGLE_OP, match_single_op),
)

KINDS = {row.name: row for row in _ROWS}


def kind_of(fusion: ir.Operation) -> Kind:
    """The row of a `disc.fusion`; raises InvalidModuleError for a kind that has none."""
    name = ir.StringAttr(fusion.attributes["kind"]).value
    if name not in KINDS:
        raise InvalidModuleError(f"{source_line(fusion)}: there is no kind of fusion {name!r}")
    return KINDS[name]


def contraction_kind(op: ir.Operation) -> str | None:
    """The kind of fusion around a contraction: `dense`, `conv`; None for other ops."""
    name = own_kind(op)
    return name if name is not None and KINDS[name].is_contraction else None

"""One record for every kind of fusion: what was matched, for the planner and the emitter alike.

    planner   match(kind, Regions.region(...))        may these ops be one fusion?
    driver    planned(fusion, shapes)                 what is where in it?

`KINDS` has one matcher for each kind. `plan-fusion` asks the matcher before it joins ops to a
fusion of a kind that `Kind.grows_by_record`. An emitter gets a `Planned`: a fusion with its record.
It reads from that which op, operand or result plays which part, and matches nothing.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.memory import element_bytes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.homes import values_given
from shlo_disc.passes.kinds import KINDS, Record, kind_of
from shlo_disc.passes.op_classes import own_kind
from shlo_disc.passes.region import Region

__all__ = ["Planned", "Record", "ffi_call_of", "match", "may_fail", "planned", "update_of"]

R_co = TypeVar("R_co", bound=Record, covariant=True)


@dataclass(frozen=True)
class Planned(Generic[R_co]):
    """A `disc.fusion` as its emitter gets it."""

    op: ir.Operation
    record: R_co
    """Which of its ops, operands and results plays which part."""
    shapes: ShapeAnalysis
    """The sizes that `record` is about."""

    @property
    def block(self) -> ir.Block:
        """The ops that the fusion computes."""
        return self.op.regions[0].blocks[0]

    @property
    def by_value(self) -> dict[int, int]:
        """Operands of one element that launches get by value, with their bytes: operand k is
        `Input(k)` of a plan. Its entry of `Launch.args` is then an address of the host's memory.
        """
        operands = {k: self.op.operands[k] for k in values_given(self.op)}
        elements = ((k, ir.RankedTensorType(v.type).element_type) for k, v in operands.items())
        return {k: element_bytes(element) for k, element in elements}


def match(kind: str, region: Region) -> Record | str:
    """The record of a region as a fusion of `kind`; or why it is none."""
    matcher = KINDS[kind].match
    if matcher is None:
        raise InternalError(f"fusions of kind {kind} have no record")
    return matcher(region)


def update_of(fusion: ir.Operation) -> ir.Operation | None:
    """The op of a `disc.fusion` that changes a part of its own operand 0; None if it has none
    (see `Kind.in_place`).
    """
    kind = kind_of(fusion)
    return _op_of_its_own(fusion, kind.name) if kind.in_place else None


def ffi_call_of(op: ir.Operation) -> ir.Operation | None:
    """The FFI call of a `disc.fusion` of kind `ffi`; None for other ops."""
    if op.name != "disc.fusion" or kind_of(op).name != "ffi":
        return None
    return _op_of_its_own(op, "ffi")


def _op_of_its_own(fusion: ir.Operation, kind: str) -> ir.Operation:
    """The op that a fusion of this kind is for: it has one, and others compute its operands.

    Raises InternalError for another number of them.
    """
    block = fusion.regions[0].blocks[0]
    found = [v.operation for v in block.operations if own_kind(v.operation) == kind]
    if len(found) != 1:
        raise InternalError(
            f"{source_line(fusion)}: a fusion of kind {kind} with {len(found)} ops of that kind"
        )
    return found[0]


def may_fail(op: ir.Operation) -> bool:
    """True if a run of the `disc.fusion` can end the call: a handler refuses, memory is not had."""
    return op.name == "disc.fusion" and kind_of(op).can_fail


def planned(fusion: ir.Operation, shapes: ShapeAnalysis) -> Planned[Any]:
    """A `disc.fusion` with the record of its kind, on these shapes.

    Raises InternalError where the planner has made a fusion that is none of its kind.
    """
    kind = kind_of(fusion).name
    found = match(kind, Region.of(fusion, shapes))
    if isinstance(found, str):
        raise InternalError(f"{source_line(fusion)}: no fusion of kind {kind}: {found}")
    return Planned(fusion, found, shapes)

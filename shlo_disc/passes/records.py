"""One record for every kind of fusion: what was matched, for the planner and the emitter alike.

    planner   match(kind, Regions.region(...))        may these ops be one fusion?
    emitter   record_of(fusion, shapes)               what is where in it?

`MATCHERS` has one function a kind. `plan-fusion` joins ops to a fusion of kind `dense`, `conv` or
`attention`, or to an update, only if the matcher gives a record of them. Emitters read from records
which op, operand or result plays which part, and do not look for it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.errors import InternalError
from shlo_disc.locations import source_line
from shlo_disc.mlir import ir
from shlo_disc.passes.match_attention import AttentionRecord, match_attention
from shlo_disc.passes.match_dense import ConvRecord, DenseRecord, match_conv, match_dense
from shlo_disc.passes.match_rows import RowRecord, match_rows
from shlo_disc.passes.match_single import LoopRecord, SingleRecord, match_loop, match_single
from shlo_disc.passes.op_classes import IN_PLACE_KINDS, own_kind
from shlo_disc.passes.region import Region

__all__ = ["MATCHERS", "Record", "ffi_call_of", "match", "may_fail", "record_of", "update_of"]

Record = AttentionRecord | ConvRecord | DenseRecord | LoopRecord | RowRecord | SingleRecord
R = TypeVar("R", bound=Record)

MATCHERS: Mapping[str, Callable[[Region], Record | str]] = {
    "attention": match_attention,
    "column": match_rows,
    "conv": match_conv,
    "dense": match_dense,
    "dynamic_update_slice": match_single,
    "ffi": match_single,
    "fft": match_single,
    "loop": match_loop,
    "rng": match_single,
    "row": match_rows,
    "scan": match_single,
    "scatter": match_single,
    "select_and_scatter": match_single,
    "sort": match_single,
    "top_k": match_single,
}
"""By kind of fusion. Kind `host` has no kernel, and so no record."""


def match(kind: str, region: Region) -> Record | str:
    """The record of a region as a fusion of `kind`; or why it is none."""
    return MATCHERS[kind](region)


def update_of(fusion: ir.Operation, shapes: ShapeAnalysis) -> ir.Operation | None:
    """The op of a `disc.fusion` that changes a part of its own operand 0; None where there is none
    (see `IN_PLACE_KINDS`).
    """
    kind = ir.StringAttr(fusion.attributes["kind"]).value
    if kind not in IN_PLACE_KINDS:
        return None
    found = match(kind, Region.of(fusion, shapes))
    return found.op if isinstance(found, SingleRecord) else None


def ffi_call_of(op: ir.Operation) -> ir.Operation | None:
    """The FFI call of a `disc.fusion` of kind `ffi`; None for other ops."""
    if op.name != "disc.fusion" or ir.StringAttr(op.attributes["kind"]).value != "ffi":
        return None
    block = op.regions[0].blocks[0]
    return next(v.operation for v in block.operations if own_kind(v.operation) == "ffi")


def may_fail(op: ir.Operation) -> bool:
    """True if a run of the `disc.fusion` can end the call: a handler refuses, memory is not had."""
    if op.name != "disc.fusion":
        return False
    return ir.StringAttr(op.attributes["kind"]).value in ("ffi", "fft")


def record_of(fusion: ir.Operation, shapes: ShapeAnalysis, type_: type[R]) -> R:
    """The record of a `disc.fusion`, of the type that its kind has.

    Raises InternalError where the planner has made a fusion that is none of its kind.
    """
    kind = ir.StringAttr(fusion.attributes["kind"]).value
    found = match(kind, Region.of(fusion, shapes))
    if not isinstance(found, type_):
        raise InternalError(f"{source_line(fusion)}: no fusion of kind {kind}: {found}")
    return found

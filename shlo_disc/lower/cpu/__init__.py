"""The CPU code generator: one emitter per kind of fusion, found in :data:`EMITTERS`."""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.cpu import loop, row
from shlo_disc.lower.cpu.attention import emit_attention
from shlo_disc.lower.cpu.conv import emit_conv
from shlo_disc.lower.cpu.dense import emit_dense
from shlo_disc.lower.cpu.loop import ELEMENTAL_OPS
from shlo_disc.lower.cpu.machine import Target
from shlo_disc.lower.cpu.rng import emit_rng
from shlo_disc.lower.cpu.scan import emit_scan
from shlo_disc.lower.cpu.scatter import emit_scatter
from shlo_disc.lower.cpu.select_and_scatter import emit_select_and_scatter
from shlo_disc.lower.cpu.sort import emit_sort
from shlo_disc.lower.cpu.top_k import emit_top_k
from shlo_disc.lower.cpu.update_slice import emit_dynamic_update_slice
from shlo_disc.lower.plan import KernelPlan
from shlo_disc.mlir import ir

__all__ = ["ELEMENTAL_OPS", "EMITTERS", "Target"]

EMITTERS: dict[str, Callable[[ir.Operation, ShapeAnalysis, Target], KernelPlan]] = {
    "attention": emit_attention,
    "column": row.emit,
    "conv": emit_conv,
    "dense": emit_dense,
    "dynamic_update_slice": emit_dynamic_update_slice,
    "loop": loop.emit,
    "rng": emit_rng,
    "row": row.emit,
    "scan": emit_scan,
    "scatter": emit_scatter,
    "select_and_scatter": emit_select_and_scatter,
    "sort": emit_sort,
    "top_k": emit_top_k,
}
"""The emitter of every kind of fusion."""

"""The op table: one row for every op, found by its name. No stage has facts of ops elsewhere.

Each stage has its own table of *rules* by the same names: shapes (`dynamic/rules*.py`), emitters of
elements (`lower/values/`), matchers and emitters of kernels (by `Op.kind`). Tests hold all of them
against this table, and docs/coverage.md is printed from it.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.base.errors import ELSEWHERE, UnsupportedError
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops import elementwise, ffi, others
from shlo_disc.ir.ops.row import Flops, Op, Role

__all__ = ["OPS", "Flops", "Op", "Role", "names", "refusal", "row_of"]

OPS: dict[str, Op] = {row.name: row for row in (*elementwise.ROWS, *others.ROWS)}
"""Every row by name."""


def row_of(op: ir.Operation) -> Op:
    """The row of `op`.

    A custom call has the row of its target, if the table has one. All calls of XLA's FFI share one
    row. An op without a row gets one that refuses it.
    """
    name = op.name
    if ffi.is_ffi_call(op):
        name = ffi.ANY_TARGET
    elif name == "stablehlo.custom_call":
        target = f"@{ir.StringAttr(op.attributes['call_target_name']).value}"
        name = target if target in OPS else name
    return OPS.get(name) or Op(name, Role.UNSUPPORTED, note="unknown")


def refusal(op: ir.Operation) -> UnsupportedError:
    """The error for an op whose row refuses it: the line, the reason, and what to do."""
    name = op.name
    if name == "stablehlo.custom_call":
        name = ir.StringAttr(op.attributes["call_target_name"]).value
    return UnsupportedError(
        f"{source_line(op)}: {name} is not compiled: {row_of(op).note}; {ELSEWHERE}"
    )


def names(where: Callable[[Op], bool]) -> frozenset[str]:
    """The names of all rows for which `where` holds."""
    return frozenset(name for name, row in OPS.items() if where(row))

"""Functions of several scalars as one of a vector.

    sin(a), cos(b), sin(c - d)    ==>    %v = sin([a, b, c - d] + [0, 1, 0] * pi / 2), three lanes

Why     A vector of sines takes as long as two of them. The code is a third as long, too, so more
        of it is in the host program and in the cache.
Needs   A kernel without lanes; a function none of whose operands waits for another one of the row.
Keeps   Every bit: a function is computed by the same operations in lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops import row_of
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Index
from shlo_disc.lower.values.math import emit_math
from shlo_disc.lower.values.math.trigonometric import sines
from shlo_disc.lower.values.typed import Mask, Register

DEAR = 20
"""Cycles of an op that more than two elements share: quotients and roots are below."""

_FEWEST = 3
"""Functions that are joined at least."""

_QUARTERS = {"sin": 0, "cos": 1}
"""Functions that are the sine of an angle and so many quarters of a turn."""


def join_functions(e: Elemental, block: ir.Block, machine: Machine) -> None:
    """Have functions of scalars in `block` computed together, as soon as one is asked for."""
    levels: dict[ir.Value, int] = {}
    rows: dict[tuple[int, str, str], list[ir.Operation]] = {}
    for view in block.operations:
        op = view.operation
        level = max((levels.get(value, 0) for value in op.operands), default=0)
        name = _function(op)
        if name is not None:
            level += 1  # above all functions that it waits for
            key = level, "sin" if name in _QUARTERS else name, element_of(op.results[0]).name
            rows.setdefault(key, []).append(op)
        levels.update(dict.fromkeys(op.results, level))
    for (_, name, _), ops in rows.items():
        most = machine.vector_bytes // element_of(ops[0].results[0]).bytes
        for first in range(0, len(ops), most):
            row = ops[first : first + most]
            if len(row) >= _FEWEST:
                for lane, op in enumerate(row):
                    e.overrides[op.results[0]] = functools.partial(_lane, e, name, row, lane)


def _function(op: ir.Operation) -> str | None:
    """The dear function of one scalar that `op` is, if it is one."""
    name = row_of(op).math
    if not name or len(op.operands) != 1 or cost.op_cycles(op) < DEAR:
        return None
    kind = ir.RankedTensorType(op.results[0].type)
    return None if kind.rank or element_of(op.results[0]).name not in ("f32", "f64") else name


def _lane(
    e: Elemental, name: str, row: Sequence[ir.Operation], lane: int, index: Index, mask: Mask | None
) -> Register:
    """The function of one lane; all are computed where that is not known here."""
    key = (e, "joined", row[0].results[0])
    known = e.b.recall(key)
    if not isinstance(known, Register):
        known = _joined(e, name, row, index, mask)
        e.b.remember(key, known)
    return e.b.extract(known, lane)


def _joined(
    e: Elemental, name: str, row: Sequence[ir.Operation], index: Index, mask: Mask | None
) -> Register:
    given = [e.value_at(op.operands[0], index, mask) for op in row]
    lanes = 1 << (len(row) - 1).bit_length()
    vector = e.b.joined([*given, *given[-1:] * (lanes - len(row))])
    if name not in _QUARTERS:
        return emit_math(name, [vector])
    quarters = [_QUARTERS[str(row_of(op).math)] for op in row]
    return sines(vector, [*quarters, *[0] * (lanes - len(row))])

"""What the compiler knows of an op: its row in the op table, and the rule of every stage."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import shlo_disc
from shlo_disc.dynamic.rules_compute import CUSTOM_CALLS
from shlo_disc.dynamic.shapes import REGION_RULES, RULES
from shlo_disc.ingest import expand_ops
from shlo_disc.ingest.complex_numbers.rules import RULES as COMPLEX
from shlo_disc.ir.ops import OPS, Op, Role
from shlo_disc.lower import work
from shlo_disc.lower.target import parse
from shlo_disc.lower.values.data_movement import DATA_MOVEMENT
from shlo_disc.lower.values.elementwise import SCALAR_OPS
from shlo_disc.lower.values.math import FUNCTIONS
from shlo_disc.lower.values.reduction import REDUCTIONS
from shlo_disc.passes.kinds import KINDS

_ROOT = Path(shlo_disc.__file__).parents[1]
_KINDS = {"b": "i1", "c": "complex", "f": "floats", "i": "signed", "u": "unsigned"}


def find(name: str) -> Op:
    """The row of an op; `stablehlo.` may be left out. ValueError for one without a row."""
    row = OPS.get(name) or OPS.get(f"stablehlo.{name}")
    if row is None:
        near = [other for other in OPS if name.rpartition(".")[2] in other]
        raise ValueError(f"{name} has no row" + (f"; similar: {', '.join(near)}" if near else ""))
    return row


def describe(row: Op) -> str:
    """The row as text: columns that differ from the default, rules with their places, coverage."""
    lines = [row.name]
    for column in dataclasses.fields(row):
        value = getattr(row, column.name)
        if column.name != "name" and value != column.default:
            lines.append(f"  {column.name:<16} {_text(value)}")
    lines += [f"  {stage:<16} {_place(rule)}" for stage, rule in _rules(row)]
    if error := _error(row):
        lines.append(f"  {'error':<16} {error}")
    lines.append(f"  {'coverage':<16} {coverage(row).strip()}")
    return "\n".join(lines)


def _error(op: Op) -> str:
    """The error of a function of floats, as the page says it; empty for other ops."""
    if op.math:
        function = FUNCTIONS[op.math]
        single, double = function.ulp
        return f"{single}, {double}" + (f" ({function.beside_zeros})" * bool(function.beside_zeros))
    if op.ulp:
        return f"{op.ulp[0]}, {op.ulp[1]}"
    is_function = op.role in (Role.ELEMENTWISE, Role.EXPANDED) and "f" in op.types
    return "exact" if op.exact_bits and is_function else ""


def coverage(op: Op) -> str:
    """The line of an op in `docs/coverage.md`."""
    refused = op.role is Role.UNSUPPORTED
    how = "refused" if refused else f"`{op.kind}` kernel" if op.kind else op.role.value
    types = "any" if set(op.types) == set(_KINDS) else ", ".join(_KINDS[k] for k in op.types)
    covered = "" if refused or op.role in (Role.EXPANDED, Role.CONTROL, Role.RETURN) else types
    return f"| `{op.name}` | {how} | {covered} | {_error(op)} | {op.note} |\n"


def _rules(row: Op) -> Iterator[tuple[str, Any]]:
    """What each stage does with the op, by the name of the stage."""
    tables: dict[str, Mapping[str, Any]] = {
        "expansion": expand_ops.RULES,
        "complex numbers": COMPLEX,
        "shape rule": {**RULES, **REGION_RULES, **{f"@{k}": f for k, f in CUSTOM_CALLS.items()}},
        "element": {**SCALAR_OPS, **DATA_MOVEMENT, **REDUCTIONS},
        "count": work.FLOPS,
    }
    for stage, table in tables.items():
        if row.name in table:
            yield stage, table[row.name]
    if row.math:
        yield "formula", FUNCTIONS[row.math].formula
    if row.kind:
        yield "matcher", KINDS[row.kind].match
        yield "emitter", parse("cpu").emitters[row.kind]


def _text(value: Any) -> str:
    if hasattr(value, "value"):
        return str(value.value)
    return _place(value) if callable(value) else str(value)


def _place(rule: Any) -> str:
    """`name, file:line` of a function; of a closure the line of what it runs."""
    rule = inspect.unwrap(rule)
    code = getattr(rule, "__code__", None)
    name = getattr(rule, "__qualname__", str(rule))
    if code is None:
        return f"{getattr(rule, '__module__', '') or 'numpy'}.{name}"
    file = Path(code.co_filename)
    path = file.relative_to(_ROOT) if file.is_relative_to(_ROOT) else file.name
    return f"{name}, {path}:{code.co_firstlineno}"

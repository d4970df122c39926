"""The op table against the rules of every stage: no half-filled row, no rule without a row."""

from __future__ import annotations

import re
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pytest
from click.testing import CliRunner
from torch_mlir import _mlir_libs

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.driver.stages import examine
from shlo_disc.dynamic.rules_compute import CUSTOM_CALLS
from shlo_disc.dynamic.shapes import REGION_RULES, RULES
from shlo_disc.ir.element_types import ELEMENT_TYPES
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.ir.ops import OPS, Flops, Op, Role, names
from shlo_disc.lower import work
from shlo_disc.lower.host import scalars
from shlo_disc.lower.target import parse
from shlo_disc.lower.values.data_movement import DATA_MOVEMENT
from shlo_disc.lower.values.elementwise import SCALAR_OPS
from shlo_disc.lower.values.math import FUNCTIONS
from shlo_disc.lower.values.reduction import REDUCTIONS
from shlo_disc.passes.kinds import KINDS
from shlo_disc.tools import op_row
from shlo_disc.tools.disc_opt import main as disc_opt
from tools import tables


def of(*roles: Role) -> frozenset[str]:
    return names(lambda row: row.role in roles)


def test_the_table_has_every_op_of_the_dialects():
    """The names in the library of the wheel that are registered ops: deprecated ones, too."""
    (library,) = Path(_mlir_libs.__file__).parent.glob("libTorchMLIRAggregateCAPI.*")
    with library.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        found = {name.decode() for name in re.findall(rb"(?:stablehlo|chlo)\.[\w-]+", data)}
    context = new_context()
    rows = {name for name in OPS if name.startswith(("stablehlo.", "chlo."))}
    assert rows == {name for name in found if context.is_registered_operation(name)}
    assert len(rows) > 150


def test_every_supported_row_has_its_rules():
    assert of(Role.ELEMENTWISE) <= {*SCALAR_OPS, *DATA_MOVEMENT}
    assert of(Role.MOVING, Role.FREE) <= set(DATA_MOVEMENT)
    assert of(Role.LOOP) <= set(REDUCTIONS)
    assert of(Role.CONTROL) <= set(REGION_RULES)
    shaped = of(Role.ELEMENTWISE, Role.MOVING, Role.FREE, Role.LOOP, Role.OWN)
    calls = {name for name in shaped if name.startswith("@")}
    assert shaped - calls <= {*RULES, *REGION_RULES}
    assert calls <= {f"@{name}" for name in CUSTOM_CALLS}
    kinds = {row.kind for row in OPS.values() if row.kind}
    assert kinds <= set(KINDS)
    assert kinds <= set(parse("cpu").emitters)


EXPANDED_BY_PASSES = ("disc.reduce_window", "stablehlo.get_dimension_size",
                      "stablehlo.optimization_barrier")  # fmt: skip
"""Expanded behind `ingest`, by passes that ask for shapes."""


def test_every_rule_has_a_row():
    rules = {*RULES, *REGION_RULES, *SCALAR_OPS, *DATA_MOVEMENT, *REDUCTIONS, *work.FLOPS}
    assert rules <= set(OPS)
    assert {f"@{name}" for name in CUSTOM_CALLS} <= set(OPS)
    # What an earlier stage expands or refuses is never asked for.
    calls = {f"@{name}" for name in CUSTOM_CALLS}
    assert of(Role.EXPANDED) & (rules | calls) == {*EXPANDED_BY_PASSES}
    assert of(Role.UNSUPPORTED) & (rules | calls) == {"stablehlo.custom_call"}


def test_columns_point_at_something():
    assert {row.math for row in OPS.values() if row.math} | {"sqrt"} == set(FUNCTIONS)
    assert names(lambda row: row.flops is Flops.OWN) == set(work.FLOPS)
    of_integers = names(
        lambda row: row.role is Role.ELEMENTWISE and not {*row.types}.isdisjoint("iu")
    )
    others = {*scalars._SAME, "disc.dim", "disc.shape", "stablehlo.constant"}
    assert names(lambda row: row.on_host) == of_integers | others


@pytest.mark.parametrize("role", [Role.OWN, Role.EXPANDED, Role.UNSUPPORTED])
def test_a_half_filled_row_is_refused(role):
    with pytest.raises(ValueError, match=r"stablehlo\.new"):
        Op("stablehlo.new", role)


def test_the_coverage_page_is_the_table():
    page = Path(__file__).parents[1] / "docs/coverage.md"
    assert page.read_text(encoding="utf-8") == tables.coverage_page()


def test_a_row_is_printed_with_its_rules():
    printed = CliRunner().invoke(disc_opt, ["--op", "reduce_window"]).output
    for pattern in (
        r"^stablehlo\.reduce_window$",
        r"role +loop$",
        r"materialized +\(0,\)$",
        r"shape rule +_reduce_window, shlo_disc/dynamic/rules_compute\.py:\d+$",
        r"element +_reduce_window, shlo_disc/lower/values/reduction\.py:\d+$",
        r"count +_reduce_window, shlo_disc/lower/work\.py:\d+$",
        r"coverage +\| `stablehlo\.reduce_window` \| loop \| any \|  \|  \|$",
    ):
        assert re.search(pattern, printed, re.MULTILINE), (pattern, printed)
    unknown = CliRunner().invoke(disc_opt, ["--op", "window"])
    assert unknown.exit_code == 2
    assert "has no row; similar: " in unknown.output
    for row in OPS.values():
        assert op_row.describe(op_row.find(row.name)).startswith(row.name)


ATTRIBUTES = {
    "stablehlo.compare": "{comparison_direction = #stablehlo<comparison_direction LT>}",
    "stablehlo.reduce_precision": "{exponent_bits = 5 : i32, mantissa_bits = 2 : i32}",
}
OPERANDS = {"stablehlo.clamp": 3, "stablehlo.select": 3}
RESULTS = {"stablehlo.compare": "i1", "stablehlo.is_finite": "i1"}
TWO = """add and atan2 compare divide maximum minimum multiply or power remainder shift_left
    shift_right_arithmetic shift_right_logical subtract xor"""
BINARY = {
    "chlo.mulhi",
    "chlo.polygamma",
    "chlo.zeta",
    *(f"stablehlo.{name}" for name in TWO.split()),
}


def program(name: str, element: str) -> str | None:
    """A function of one element-wise op on arrays of `element`; None where StableHLO has none."""
    count = OPERANDS.get(name, 2 if name in BINARY else 1)
    kind = f"tensor<?x{element}>"
    kinds = [kind] * count
    if name == "stablehlo.select":
        kinds[0] = "tensor<?xi1>"
    arguments = ", ".join(f"%a{k}: {t}" for k, t in enumerate(kinds))
    operands = ", ".join(f"%a{k}" for k in range(count))
    result = f"tensor<?x{RESULTS.get(name, element)}>"
    text = (
        f"func.func public @main({arguments}) -> {result} {{\n"
        f'  %r = "{name}"({operands}) {ATTRIBUTES.get(name, "")} '
        f": ({', '.join(kinds)}) -> {result}\n  return %r : {result}\n}}"
    )
    with new_context(), ir.Location.unknown():
        try:
            return text if ir.Module.parse(text).operation.verify() else None
        except ir.MLIRError:
            return None


@pytest.mark.parametrize("name", sorted(of(Role.ELEMENTWISE)))
def test_element_types_of_an_op_are_those_that_compile(name):
    texts = {element: program(name, element) for element in ELEMENT_TYPES}
    assert any(texts.values())
    for element, text in texts.items():
        row = ELEMENT_TYPES[element]
        if text is None:
            continue
        if row.kind in OPS[name].types:
            examine(text, raise_refused=True)
        else:
            with pytest.raises(UnsupportedError):
                examine(text, raise_refused=True)

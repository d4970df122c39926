"""Kind `host`: integer scalars in the host program, against numpy with wrap-around."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_disc
from shlo_disc.lower.host import scalars
from shlo_disc.passes.op_classes import HOST_SCALARS

TYPES = {"i8": np.int8, "ui8": np.uint8, "i16": np.int16, "i32": np.int32, "ui32": np.uint32,
         "i64": np.int64, "ui64": np.uint64}  # fmt: skip
OPS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
DIRECTIONS = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal,
              "GT": np.greater, "GE": np.greater_equal}  # fmt: skip


def values(kind):
    info = np.iinfo(kind)
    return [kind(v) for v in (0, 1, 3, info.max, info.min, info.max - 1)]


def compiled(text):
    exe = shlo_disc.compile(text)
    assert {use.kind for use in exe.host.uses} == {"host"}
    return exe


@pytest.mark.parametrize("name", TYPES)
def test_arithmetic(name):
    kind, t = TYPES[name], f"tensor<{name}>"
    lines = [f"%r{k} = stablehlo.{op} %a, %b : {t}" for k, op in enumerate(OPS)]
    types = ", ".join([t] * len(OPS))
    results = ", ".join(f"%r{k}" for k in range(len(OPS)))
    exe = compiled(
        f"func.func @main(%a: {t}, %b: {t}) -> ({types}) {{\n" + "\n".join(lines)
        + f"\nreturn {results} : {types}\n}}"
    )  # fmt: skip
    with np.errstate(over="ignore"):
        for a in values(kind):
            for b in values(kind):
                for got, op in zip(exe.run_numpy([a, b]), OPS.values(), strict=True):
                    assert got == op(a, b), (op, a, b)


@pytest.mark.parametrize("name", TYPES)
def test_comparison_and_select(name):
    kind, t = TYPES[name], f"tensor<{name}>"
    lines = []
    for k, direction in enumerate(DIRECTIONS):
        sign = "UNSIGNED" if name.startswith("u") else "SIGNED"
        lines.append(
            f"%c{k} = stablehlo.compare {direction}, %a, %b, {sign} : ({t}, {t}) -> tensor<i1>"
        )
        lines.append(f"%r{k} = stablehlo.select %c{k}, %a, %b : tensor<i1>, {t}")
    flags = ", ".join(f"%c{k}" for k in range(6)) + ", " + ", ".join(f"%r{k}" for k in range(6))
    types = ", ".join(["tensor<i1>"] * 6 + [t] * 6)
    exe = compiled(
        f"func.func @main(%a: {t}, %b: {t}) -> ({types}) {{\n" + "\n".join(lines)
        + f"\nreturn {flags} : {types}\n}}"
    )  # fmt: skip
    for a in values(kind):
        for b in values(kind):
            got = exe.run_numpy([a, b])
            for k, compare in enumerate(DIRECTIONS.values()):
                assert got[k] == compare(a, b)
                assert got[6 + k] == (a if compare(a, b) else b)


@pytest.mark.parametrize(
    ("source", "target"), [(s, t) for s in [*TYPES, "i1"] for t in TYPES if s != t]
)
def test_conversion(source, target):
    kinds = {**TYPES, "i1": np.bool_}
    head = f"func.func @main(%a: tensor<{source}>) -> tensor<{target}>"
    types = f"(tensor<{source}>) -> tensor<{target}>"
    exe = compiled(
        f"{head} {{\n%r = stablehlo.convert %a : {types}\nreturn %r : tensor<{target}>\n}}"
    )
    inputs = [np.bool_(0), np.bool_(1)] if source == "i1" else values(TYPES[source])
    for a in inputs:
        expected = np.asarray(a).astype(kinds[target])
        assert exe.run_numpy([a])[0] == expected


def test_logic_on_flags():
    ops = ("and", "or", "xor", "add", "multiply")
    lines = [f"%r{k} = stablehlo.{op} %a, %b : tensor<i1>" for k, op in enumerate(ops)]
    types = ", ".join(["tensor<i1>"] * len(ops))
    exe = compiled(
        f"func.func @main(%a: tensor<i1>, %b: tensor<i1>) -> ({types}) {{\n" + "\n".join(lines)
        + f"\nreturn {', '.join(f'%r{k}' for k in range(len(ops)))} : {types}\n}}"
    )  # fmt: skip
    for a in (False, True):
        for b in (False, True):
            got = [bool(x) for x in exe.run_numpy([np.bool_(a), np.bool_(b)])]
            assert got == [a and b, a or b, a != b, a or b, a and b]


def test_the_planner_asks_for_what_the_host_can():
    extremes = {name for name, _ in scalars._EXTREMES}
    known = {*scalars._BINARY, *extremes, *scalars._SAME, *scalars._OTHERS}
    assert known | {"disc.dim", "disc.shape", "stablehlo.constant"} == HOST_SCALARS

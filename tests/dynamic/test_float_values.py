"""Floats made from sizes are followed exactly or not at all: against NumPy at many sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shlo_disc
from shlo_disc.dynamic.arithmetic import Condition
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.relations import RELATIONS
from shlo_disc.dynamic.shapes import ShapeAnalysis, analyze
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import ir, new_context, ops_of

UNARY = {"ceil": np.ceil, "floor": np.floor, "negate": np.negative}
BINARY = {
    "add": np.add,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "subtract": np.subtract,
}
NUMBERS = (0.5, 1.0, 3.0, -2.0, 0.1, 7.0)


def followed(body: str, kind: str = "i64") -> tuple[ShapeAnalysis, tuple]:
    """The analysis of a program whose last value is `%r`, and the entries of that value."""
    text = f"""func.func @main(%x: tensor<?x?xf32>) -> tensor<{kind}> {{
  %mi = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
  %ni = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
  %m = stablehlo.convert %mi : (tensor<i32>) -> tensor<f64>
  %n = stablehlo.convert %ni : (tensor<i32>) -> tensor<f64>
{body}
  return %r : tensor<{kind}>
}}"""
    module = ingest(text, new_context())
    with module.context, ir.Location.unknown():
        analysis = analyze(module)
        (last,) = ops_of(module, "func.return")
        return analysis, analysis.entries(last.operands[0])


@st.composite
def chains(draw):
    """The text of operations on floats, and the same as a function of both sizes."""
    values = ["%m", "%n"]
    lines, steps = [], []
    for k, number in enumerate(NUMBERS):
        lines.append(f"  %k{k} = stablehlo.constant dense<{number}> : tensor<f64>")
        values.append(f"%k{k}")
    for k in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from([*UNARY, *BINARY]))
        recent = st.sampled_from([*values, *values[len(NUMBERS) + 2 :] * 4])
        operands = [draw(recent) for _ in range(1 if name in UNARY else 2)]
        lines.append(f"  %v{k} = stablehlo.{name} {', '.join(operands)} : tensor<f64>")
        values.append(f"%v{k}")
        steps.append((f"%v{k}", name, operands))
    lines.append(f"  %r = stablehlo.convert {values[-1]} : (tensor<f64>) -> tensor<i64>")

    def run(m: int, n: int) -> float:
        known = {"%m": np.float64(m), "%n": np.float64(n)}
        known |= {f"%k{k}": np.float64(number) for k, number in enumerate(NUMBERS)}
        with np.errstate(all="ignore"):
            for result, name, operands in steps:
                known[result] = (UNARY | BINARY)[name](*(known[o] for o in operands))
        return known[values[-1]]

    return "\n".join(lines), run


@settings(max_examples=150, deadline=None)
@given(chain=chains())
def test_what_is_followed_is_what_the_floats_give(chain):
    body, run = chain
    analysis, entries = followed(body)
    if entries is None or not isinstance(entries[0], Expr):
        return
    (term,) = entries
    for m, n in ((0, 0), (1, 3), (3, 1), (10, 7), (49, 2), (2**31 - 1, 3), (30, 2**31 - 1)):
        found, sizes = run(m, n), {"d0_0": m, "d0_1": n}
        allowed = all(
            RELATIONS[g.op](g.lhs.evaluate(sizes), g.rhs.evaluate(sizes)) for g in analysis.guards
        )
        if allowed:
            assert term.evaluate(sizes) == int(found), (term, m, n)


@pytest.mark.parametrize(
    ("body", "term"),
    [
        ("%q = stablehlo.divide %m, %three : tensor<f64>\n%c = stablehlo.ceil %q : tensor<f64>",
         "floordiv(d0_0 + 2, 3)"),
        ("%q = stablehlo.divide %m, %three : tensor<f64>\n%c = stablehlo.floor %q : tensor<f64>",
         "floordiv(d0_0, 3)"),
        ("%q = stablehlo.multiply %m, %half : tensor<f64>\n%c = stablehlo.ceil %q : tensor<f64>",
         "floordiv(d0_0 + 1, 2)"),
        ("%q = stablehlo.add %m, %n : tensor<f64>\n%c = stablehlo.negate %q : tensor<f64>",
         "-d0_0 - d0_1"),
        # 0.1 is no quotient of short numbers; a rounded quotient is a float like any other.
        ("%q = stablehlo.multiply %m, %tenth : tensor<f64>\n%c = stablehlo.ceil %q : tensor<f64>",
         None),
        ("%q = stablehlo.divide %m, %three : tensor<f64>\n"
         "%c = stablehlo.multiply %q, %three : tensor<f64>", None),
        ("%c = stablehlo.divide %m, %n : tensor<f64>", None),  # by 0, perhaps
    ],
)  # fmt: skip
def test_terms(body, term):
    constants = "\n".join(
        f"%{name} = stablehlo.constant dense<{number}> : tensor<f64>"
        for name, number in (("three", 3.0), ("half", 0.5), ("tenth", 0.1))
    )
    tail = "\n%r = stablehlo.convert %c : (tensor<f64>) -> tensor<i64>"
    _, entries = followed(f"{constants}\n{body}{tail}")
    assert entries in ((None,), None) if term is None else entries == (Expr.parse(term),)


def test_a_product_that_may_be_too_large_is_guarded():
    analysis, entries = followed(
        "%q = stablehlo.multiply %m, %n : tensor<f64>\n"
        "%r = stablehlo.convert %q : (tensor<f64>) -> tensor<i64>"
    )
    assert entries == (Expr.parse("d0_0*d0_1"),)
    assert [(str(g.lhs), g.op, g.rhs.value) for g in analysis.guards] == [
        ("d0_0*d0_1", "<=", 2**53)
    ]


def test_conversions_to_other_types():
    constants = "%half = stablehlo.constant dense<0.5> : tensor<f64>\n"
    _, entries = followed(
        f"{constants}%r = stablehlo.convert %half : (tensor<f64>) -> tensor<i1>", "i1"
    )
    assert entries == (True,)
    _, entries = followed("%r = stablehlo.convert %m : (tensor<f64>) -> tensor<i1>", "i1")
    assert isinstance(entries[0], Condition)
    large = "%large = stablehlo.constant dense<300.0> : tensor<f64>\n"
    _, entries = followed(
        f"{large}%r = stablehlo.convert %large : (tensor<f64>) -> tensor<i8>", "i8"
    )
    assert entries in ((None,), None)  # it does not wrap


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_floats_without_elements_are_no_sizes(element):
    compiled = shlo_disc.compile(f"""
      func.func @main(%x: tensor<?x{element}>) -> tensor<0x{element}> {{
        %e = stablehlo.constant dense<> : tensor<0x{element}>
        %f = stablehlo.floor %e : tensor<0x{element}>
        %g = stablehlo.reshape %f : (tensor<0x{element}>) -> tensor<0x1x{element}>
        %h = stablehlo.broadcast_in_dim %g, dims = [0, 1]
          : (tensor<0x1x{element}>) -> tensor<0x1x{element}>
        %i = stablehlo.reshape %h : (tensor<0x1x{element}>) -> tensor<0x{element}>
        %j = stablehlo.tanh %i : tensor<0x{element}>
        return %j : tensor<0x{element}> }}""")
    assert compiled.run_numpy([np.ones(3, {"f32": np.float32, "f64": np.float64}[element])])[
        0
    ].shape == (0,)

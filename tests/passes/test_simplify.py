"""Rules keep every bit: whole programs before and after, by the StableHLO interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shlo_disc.passes.base import named
from shlo_disc.passes.simplify import RULES, SIMPLIFY
from tests.passes.helpers import evaluate, run_pass, same_bits

SIMPLIFY_ALGEBRA = named("simplify-algebra")

TINY = np.finfo(np.float32).tiny
FLOATS = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, np.inf, -np.inf, np.nan, TINY, -TINY, TINY / 4, 1e-45, 3e38,
     -3e38, 1.5, 2.5, -2.5, 1e-30, 16777217.0], np.float32)  # fmt: skip
INTEGERS = np.array(
    [0, 1, -1, 2, -2, 127, -128, 2**31 - 1, -(2**31), 5, 64, -7, 3, 8, 9, 11, 13, 17, 19, 23],
    np.int32)  # fmt: skip
N = len(FLOATS)
assert len(INTEGERS) == N

FLOAT_CONSTANTS = ("0.0", "-0.0", "1.0", "-1.0", "2.0", "8.0", "0.125", "3.0", "0x7F800000",
                   "0xFF800000", "0x7FC00000", "1.0e-38", "1.7014118E38")  # fmt: skip
INTEGER_CONSTANTS = ("0", "1", "-1", "2", "2147483647", "-2147483648")
FLOAT_UNARY = ("abs", "ceil", "floor", "negate", "round_nearest_afz", "round_nearest_even")
FLOAT_BINARY = ("add", "divide", "maximum", "minimum", "multiply", "subtract")
INTEGER_UNARY = ("abs", "negate", "not")
INTEGER_BINARY = ("add", "and", "maximum", "minimum", "multiply", "or", "subtract", "xor")


def program(kind: str, steps: list[tuple[str, int, int]], constants: list[str]) -> str:
    """Straight-line code: value 0 is the argument, then constants, then one value a step."""
    tensor = f"tensor<{N}x{kind}>"
    lines = [f"func.func @main(%v0: {tensor}) -> {tensor} {{"]
    for number in constants:
        lines.append(f"  %v{len(lines)} = stablehlo.constant dense<{number}> : {tensor}")
    for op, a, b in steps:
        new = len(lines)
        operands = f"%v{a % new}" if b < 0 else f"%v{a % new}, %v{b % new}"
        if op == "select":
            compared = f"%v{a % new}, %v{b % new} : ({tensor}, {tensor}) -> tensor<{N}xi1>"
            lines.append(f"  %p{new} = stablehlo.compare LT, {compared}\n"
                         f"  %v{new} = stablehlo.select %p{new}, {operands} : "
                         f"tensor<{N}xi1>, {tensor}")  # fmt: skip
        else:
            lines.append(f"  %v{new} = stablehlo.{op} {operands} : {tensor}")
    lines += [f"  return %v{len(lines) - 1} : {tensor}", "}"]
    return "\n".join(lines)


def steps_of(unary: tuple[str, ...], binary: tuple[str, ...]):
    one = st.tuples(st.sampled_from(unary), st.integers(0, 20), st.just(-1))
    two = st.tuples(st.sampled_from((*binary, "select")), st.integers(0, 20), st.integers(0, 20))
    return st.lists(st.one_of(one, two), min_size=1, max_size=8)


def check_same(text: str, argument: np.ndarray) -> None:
    _, after = run_pass(SIMPLIFY, text)
    (want,), (got,) = evaluate(text, argument), evaluate(after, argument)
    assert same_bits(want, got), f"{text}\n==>\n{after}\n{want}\n{got}"


@settings(max_examples=120, deadline=None)
@given(
    steps=steps_of(FLOAT_UNARY, FLOAT_BINARY),
    constants=st.lists(st.sampled_from(FLOAT_CONSTANTS), min_size=1, max_size=3),
)
def test_any_float_program_keeps_every_bit(steps, constants):
    check_same(program("f32", steps, constants), FLOATS)


@settings(max_examples=80, deadline=None)
@given(
    steps=steps_of(INTEGER_UNARY, INTEGER_BINARY),
    constants=st.lists(st.sampled_from(INTEGER_CONSTANTS), min_size=1, max_size=3),
)
def test_any_integer_program_keeps_every_bit(steps, constants):
    check_same(program("i32", steps, constants), INTEGERS)


@pytest.mark.parametrize("number", FLOAT_CONSTANTS)
@pytest.mark.parametrize("op", FLOAT_BINARY)
@pytest.mark.parametrize("swapped", [False, True])
def test_one_float_op_with_a_constant(op, number, swapped):
    operands = (1, 0) if swapped else (0, 1)
    check_same(program("f32", [(op, *operands)], [number]), FLOATS)


def test_x_plus_zero_stays():
    text = program("f32", [("add", 0, 1)], ["0.0"])
    assert run_pass(SIMPLIFY_ALGEBRA, text)[0] == 0


@pytest.mark.parametrize("kind", ["f32", "i32"])
def test_a_square_is_a_product(kind):
    two = "2.0" if kind == "f32" else "2"
    changed, after = run_pass(SIMPLIFY_ALGEBRA, program(kind, [("power", 0, 1)], [two]))
    assert changed == 1
    assert "stablehlo.multiply %arg0, %arg0" in after


def test_a_division_whose_reciprocal_is_denormal_stays():
    text = program("f32", [("divide", 0, 1)], ["1.7014118E38"])  # 2**127
    assert run_pass(SIMPLIFY_ALGEBRA, text)[0] == 0


def test_a_second_run_finds_nothing():
    text = program(
        "f32", [("divide", 0, 1), ("maximum", 3, 2), ("negate", 4, -1)], ["8.0", "0xFF800000"]
    )
    changed, after = run_pass(SIMPLIFY, text)
    assert changed > 0
    assert run_pass(SIMPLIFY, after)[0] == 0


def test_tables_name_ops_that_exist():
    names = " ".join(RULES)
    assert all(name.startswith(("stablehlo.", "chlo.")) for name in RULES), names


@pytest.mark.parametrize(
    ("op", "expected"),
    [("exponential", np.exp), ("tanh", np.tanh), ("log_plus_one", np.log1p),
     ("rsqrt", lambda x: 1 / np.sqrt(x)), ("cbrt", np.cbrt), ("cosine", np.cos)],
)  # fmt: skip
def test_a_folded_function_is_rounded_once(op, expected):
    text = program("f32", [(op, 1, -1)], ["0.3"])
    changed, after = run_pass(SIMPLIFY, text)
    assert changed == 1
    want = np.full(N, expected(np.float64(np.float32(0.3)))).astype(np.float32)
    assert same_bits(evaluate(after, FLOATS)[0], want)

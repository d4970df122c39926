"""The shape program: solving, results, and the full text of every refusal."""

# ruff: noqa: E501 - messages and MLIR ops are one line

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shlo_disc.base.errors import InvalidModuleError, ShapeMismatchError, UnsupportedError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.program import size_symbol
from shlo_disc.dynamic.relations import parse_constraint
from shlo_disc.dynamic.shape_program import shape_program
from tests.dynamic.helpers import function, run


def program(*arguments, body="", results=None, names=None):
    """The program of a function with these argument shapes; it returns its first argument."""
    given_arguments = {}
    for index, sizes in enumerate(arguments):
        parts = [p.strip() for p in sizes.split(";") if p.strip()]
        kinds = "x".join([p if p.isdecimal() else "?" for p in parts] + ["f32"])
        raw = all(p == "?" or p.isdecimal() for p in parts)
        given_arguments[f"a{index}"] = (f"tensor<{kinds}>", None if raw else ", ".join(parts))
    results = results or [("%a0", given_arguments["a0"][0])]
    made = run(function(given_arguments, body, results))
    return shape_program(made.main, made.analysis, names or ())


def refusal(made, sizes):
    with pytest.raises(ShapeMismatchError) as error:
        made.evaluate(sizes)
    return str(error.value)


def test_symbols_in_solving_order():
    made = program("4*k + b; t", "b; 2*t + 1; t*b")
    assert made.symbol_names == ["t", "b", "k"]
    steps = {s.symbol: (s.argument, s.axis, s.scale, str(s.offset)) for s in made.steps}
    assert steps == {"t": (0, 1, 1, "0"), "b": (1, 0, 1, "0"), "k": (0, 0, 4, "b")}
    values, results = made.evaluate([(4 * 3 + 2, 5), (2, 11, 10)])
    assert values == {"t": 5, "b": 2, "k": 3}
    assert results == [(14, 5)]
    assert made.steps[0].size == size_symbol(0, 1)


@settings(max_examples=100, deadline=None)
@given(
    scale=st.integers(-4, 6).filter(bool),
    offset=st.integers(-5, 5),
    k=st.integers(1, 50),
    b=st.integers(1, 50),
)
def test_linear_sizes_are_solved(scale, offset, k, b):
    made = program(f"{scale}*k + {offset} + 2*b", "b")
    sizes = [(scale * k + offset + 2 * b,), (b,)]
    assert made.evaluate(sizes)[0] == {"b": b, "k": k}


def test_the_plainest_axis_is_read():
    made = program("4*k; k + 1; k")
    assert [(s.argument, s.axis) for s in made.steps] == [(0, 2)]
    made = program("4*k; k + 1", "4*k")
    assert [(s.argument, s.axis) for s in made.steps] == [(0, 1)]


def test_nothing_to_solve():
    made = program("3; 4")
    assert made.evaluate([(3, 4)]) == ({}, [(3, 4)])
    assert made.checks == ()


def test_empty_and_large_sizes():
    made = program("?; 4")
    assert made.evaluate([(0, 4)]) == ({"d0_0": 0}, [(0, 4)])
    assert made.evaluate([(2**40, 4)])[1] == [(2**40, 4)]


NAMES = ("mask", "ids")


@pytest.mark.parametrize(
    ("arguments", "sizes", "message"),
    [
        (
            ("b; t", "b"),
            [(8, 3), (7,)],
            "argument 1 ('ids'): dimension 0 is 7, but b = 8 (b was read from dimension 0 of "
            "argument 0 ('mask'))",
        ),
        (
            ("b; t", "2*b"),
            [(8, 3), (7,)],
            "argument 1 ('ids'): dimension 0 is 7, but 2*b = 16 (b = 8 was read from dimension 0 of "
            "argument 0 ('mask'))",
        ),
        (
            ("b; t", "b + t"),
            [(8, 3), (7,)],
            "argument 1 ('ids'): dimension 0 is 7, but b + t = 11 (b = 8 was read from dimension 0 "
            "of argument 0 ('mask'); t = 3 was read from dimension 1 of argument 0 ('mask'))",
        ),
        (
            ("4*k", "4*k"),
            [(7,), (7,)],
            "argument 0 ('mask'): dimension 0 is 7, but it must be 4*k for a whole number k",
        ),
        (
            ("b", "4*k + b"),
            [(2,), (7,)],
            "argument 1 ('ids'): dimension 0 is 7, but it must be b + 4*k for a whole number k "
            "(b = 2 was read from dimension 0 of argument 0 ('mask'))",
        ),
        (
            ("b", "3"),
            [(0,), (3,)],
            "the size b must be at least 1: 0 >= 1 does not hold (b = 0 was read from dimension 0 "
            "of argument 0 ('mask'))",
        ),
        (
            ("b; 4", "3"),
            [(2, 5), (3,)],
            "argument 0 ('mask'): dimension 1 is 5, but the program is compiled for 4 there: it "
            "takes [b, 4]",
        ),
        (
            ("b; 4", "3"),
            [(2,), (3,)],
            "argument 0 ('mask'): rank is 1, but the program takes [b, 4], rank 2",
        ),
        (("b", "3"), [(2,)], "1 arguments were given, the program takes 2"),
    ],
)
def test_messages(arguments, sizes, message):
    assert refusal(program(*arguments, names=NAMES), sizes) == message


def test_message_of_an_op():
    body = '%r = stablehlo.add %a0, %a1 : tensor<?xf32> loc("model.py":7:3)'
    made = program("?", "?", body=body, results=[("%r", "tensor<?xf32>")], names=NAMES)
    assert made.evaluate([(5,), (5,)])[1] == [(5,)]
    assert refusal(made, [(5,), (6,)]) == (
        "model.py:7: stablehlo.add needs d0_0 == d1_0: 5 == 6 does not hold (d0_0 = 5 was read from "
        "dimension 0 of argument 0 ('mask'); d1_0 = 6 was read from dimension 0 of argument 1 "
        "('ids'))"
    )


def test_guards_are_checked_in_order_after_the_sizes():
    body = (
        '"disc.guard"() {lhs = "mod(t, 4)", op = "==", rhs = "0", message = "t in fours"} : () -> ()\n'
        '"disc.guard"() {lhs = "b", op = "<=", rhs = "8", message = "few"} : () -> ()\n'
        '"disc.guard"() {lhs = "b", op = "<=", rhs = "9", message = "implied"} : () -> ()'
    )
    made = program("b; t", "b", body=body)
    assert [c.message for c in made.checks] == [
        "the size b must be at least 1",
        "the size t must be at least 1",
        "argument 1 ('args[1]'): dimension 0 must be b",
        "t in fours",
        "few",
    ]
    assert made.evaluate([(8, 4), (8,)])[0] == {"b": 8, "t": 4}
    assert refusal(made, [(9, 4), (9,)]).startswith("few: 9 <= 8 does not hold (b = 9 was read")
    assert refusal(made, [(9, 6), (9,)]).startswith("t in fours: 2 == 0 does not hold (t = 6")
    assert refusal(made, [(9, 6), (8,)]).startswith("argument 1")


def test_a_proof_never_rests_on_the_check_it_replaces():
    """Each fact used to drop a check is itself checked: no assignment slips through."""
    body = (
        "%r = stablehlo.add %a0, %a1 : tensor<?xf32>\n"
        "%s = stablehlo.add %a1, %a0 : tensor<?xf32>\n"
        "%u = stablehlo.add %a1, %a2 : tensor<?xf32>"
    )
    made = program("?", "?", "?", body=body)
    for sizes in ((3, 3, 4), (3, 4, 3), (4, 3, 3)):
        with pytest.raises(ShapeMismatchError):
            made.evaluate([(n,) for n in sizes])
    assert made.evaluate([(3,), (3,), (3,)])[1] == [(3,)]


def test_symbols_that_cannot_be_solved():
    with pytest.raises(UnsupportedError) as error:
        program("b*t; 3", "b + t")
    assert str(error.value) == (
        "the sizes b, t cannot be worked out from the argument shapes [b*t, 3], [b + t]; give one "
        "argument a dimension such as s, 4*s or s + 1 for each of them"
    )


def test_symbols_from_nowhere():
    body = '%r = "disc.shape"() {dims = ["z"]} : () -> tensor<1xi32>\n%i = stablehlo.dynamic_iota %r, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>'  # fmt: skip
    with pytest.raises(InvalidModuleError, match="the size z has z, no argument's size"):
        program("b", body=body, results=[("%i", "tensor<?xf32>")])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("b >= 4", ("b", ">=", "4")),
        ("mod(t,4) == 0", ("mod(t, 4)", "==", "0")),
        ("t % 4 == 0", ("mod(t, 4)", "==", "0")),
        ("a<b", ("a", "<", "b")),
        ("2*floordiv(t, 2) != t", ("t - mod(t, 2)", "!=", "t")),
    ],
)
def test_constraints_in_the_notation_of_jax(text, parts):
    lhs, op, rhs = parse_constraint(text)
    assert (lhs, op, rhs) == (Expr.parse(parts[0]), parts[1], Expr.parse(parts[2]))


@pytest.mark.parametrize("text", ["", "b", "b = 4", "b >= ", "a < b < c", "b => 4"])
def test_what_is_no_constraint(text):
    with pytest.raises(ValueError, match="is not a"):
        parse_constraint(text)

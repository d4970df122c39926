"""Patterns of sizes: the generated test of a call against brute force, and the sentences it
gives."""

# ruff: noqa: E501 - messages are tested by their full text

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shlo_disc import ral
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.relations import RELATIONS
from shlo_disc.jax.arguments.plan import Guard, Note, Pattern

SIZES = ["b", "t", "4*t", "b + 3", "b*t", "2*b + t", "5", "floordiv(t, 2)", "min(b, t)", "b^2"]
GUARDS = [("t", ">=", "2"), ("b", "!=", "t"), ("mod(t, 2)", "==", "0"), ("b*t", ">=", "2*b + 1")]


COMMA = re.compile(r",(?![^(]*\))")  # not inside a call


def pattern(*shapes: str, guards=()) -> Pattern:
    dims = tuple(tuple(Expr.parse(s) for s in COMMA.split(shape) if s.strip()) for shape in shapes)
    made = tuple(Guard(Expr.parse(a), r, Expr.parse(b), "because") for a, r, b in guards)
    return Pattern(tuple("xyzuvw"[: len(dims)]), dims, made)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(SIZES), max_size=3), max_size=3),
    st.lists(st.sampled_from(GUARDS), max_size=2),
    st.lists(st.lists(st.integers(0, 13), min_size=3, max_size=3), min_size=4, max_size=4),
)
def test_solve_agrees_with_brute_force(shapes, guards, actual):
    # A first leaf (b, t) makes every pattern solvable.
    texts = ["b, t", *(", ".join(shape) for shape in shapes)]
    made = pattern(*texts, guards=guards)
    concrete = [tuple(row[: len(shape)]) for row, shape in zip(actual, made.dims, strict=False)]
    expected = None
    for b, t in itertools.product(range(1, 14), repeat=2):
        env = {"b": b, "t": t}
        fits = all(
            tuple(size.evaluate(env) for size in shape) == got
            for shape, got in zip(made.dims, concrete, strict=True)
        )
        if fits and all(guard.holds(env) for guard in made.guards):
            expected = (b, t)
    assert made.solve(concrete) == expected
    assert (made.mismatch(concrete) is None) == (expected is not None)


def test_symbols_are_solved_from_sums_and_multiples():
    made = pattern("2*t + 1", "t, 3*b")
    assert made.symbols == ("b", "t")
    assert made.solve([(7,), (3, 12)]) == (4, 3)
    assert made.solve([(8,), (3, 12)]) is None
    assert made.solve([(7,), (3, 13)]) is None


def test_sizes_that_do_not_determine_their_symbols():
    assert not pattern("b*t").is_solvable
    assert pattern("b*t", "t, b").is_solvable


def test_a_size_of_zero_fits_no_symbol():
    assert pattern("b, 4").solve([(0, 4)]) is None
    assert pattern("0, t").solve([(0, 4)]) == (4,)


def test_numbers_of_more_than_64_bits_are_exact():
    made = pattern("b", "b^9", guards=[("b^30", ">=", f"{1 << 70}")])
    assert made.solve([(8,), (8**9,)]) == (8,)
    assert made.solve([(8,), (8**9 + 1,)]) is None
    assert made.solve([(5,), (5**9,)]) is None
    wide = pattern("b", guards=[(f"{1 << 64}*b", ">=", f"{1 << 66}")])
    assert wide.solve([(4,)]) == (4,)
    assert wide.solve([(3,)]) is None


def test_a_division_by_zero_fits_nothing():
    made = pattern("b, t", guards=[("floordiv(t, b - 2)", ">=", "1")])
    assert made.solve([(3, 4)]) == (3, 4)
    assert made.solve([(2, 4)]) is None
    assert made.mismatch([(2, 4)]) == (
        "floordiv(t, b - 2) >= 1 does not hold: a size is divided by 0 (b = 2 was read from "
        "dimension 0 of argument x, t = 4 was read from dimension 1 of argument x)"
    )
    sizes = pattern("b, t", "mod(t, b - 2)")
    assert sizes.solve([(2, 4), (0,)]) is None
    assert "mod(t, b - 2) divides by 0 (b = 2" in sizes.mismatch([(2, 4), (0,)])


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("values", [(-3, 2), (2, 2), (2, -3)])
def test_relations_and_signs_are_those_of_python(relation, values):
    a, b = values
    made = pattern("t", guards=[(f"{a}*t", relation, f"{b}*t")])
    assert (made.solve([(7,)]) == (7,)) == RELATIONS[relation](a * 7, b * 7)
    for text, value in ((f"mod({a}*t, {b}*t + 1)", (a * 7) % (b * 7 + 1)),
                        (f"floordiv({a}*t, {b}*t + 1)", (a * 7) // (b * 7 + 1))):  # fmt: skip
        assert pattern("t", guards=[(text, "==", str(value))]).solve([(7,)]) == (7,)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-1, 3), max_size=3),
    st.integers(-1, 2),
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.integers(-2, 2),
            st.integers(-1, 2),
            st.lists(st.integers(-1, 8), max_size=5),
        ),
        max_size=3,
    ),
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 8), max_size=4),
            st.integers(-1, 6),
            st.lists(st.integers(0, 8), max_size=4),
        ),
        max_size=2,
    ),
)
def test_the_native_pattern_refuses_what_it_cannot_run(ranks, symbols, steps, guards):
    try:
        made = ral.SizePattern(ranks, symbols, steps, guards)
    except ValueError:
        return
    found = made.solve([[2] * rank for rank in ranks])
    assert found is None or len(found) == symbols
    with pytest.raises(ValueError, match="ranks"):
        made.solve([[2] * (rank + 1) for rank in [*ranks, 0]])


MESSAGES = [
    (pattern("b", "b, t"), [(8,), (7, 2)], "argument y: dimension 0 is 7, but b = 8 (b = 8 was read from dimension 0 of argument x)"),
    (pattern("b, 5"), [(8, 6)], "argument x: dimension 1 is 6, but must be 5"),
    (pattern("4*b"), [(7,)], "argument x: dimension 0 is 7, but 4*b is a multiple of 4"),
    (pattern("4*b + 1"), [(7,)], "argument x: dimension 0 is 7, but 4*b + 1 is a multiple of 4 plus 1"),
    (pattern("b"), [(0,)], "argument x: dimension 0 is 0, but b is at least 1"),
    (pattern("b", guards=[("b", ">=", "4")]), [(3,)], "b >= 4 does not hold: 3 >= 4 is false (b = 3 was read from dimension 0 of argument x)"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "shapes", "text"), MESSAGES)
def test_mismatch_says_which_argument_and_why(made, shapes, text):
    assert made.mismatch(shapes) == text


def test_text_of_many_arrays_of_constant_sizes_is_one_line():
    four = (Expr.const(4),)
    names = ("x", *(f"w[{i}]" for i in range(20)))
    made = Pattern(names, ((Expr.parse("b"),), *[four] * 20), (), ())
    assert made.text() == "  x: (b)\n  w[0] to w[19]: 20 arrays of constant sizes"


def test_text_lists_sizes_and_reasons():
    made = Pattern(
        ("x", "y"),
        ((Expr.parse("b"), None), ()),
        (Guard(Expr.parse("b"), ">=", Expr.const(2), "the program asks", "m.py:7"),),
        (Note("d1 = 4", "int() of a size", "m.py:9"),),
    )
    assert made.text() == (
        "  x: (b, _)\n  y: ()\nassumes\n  b >= 2: the program asks (m.py:7)\n"
        "  d1 = 4: int() of a size (m.py:9)"
    )

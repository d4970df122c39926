"""Conditions of PyTorch on sizes, as constraints: terms that are numbers, and what follows."""

import itertools

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, Max, Mod

from shlo_disc.torch.sizes import Notation, Numbers

A, B = sympy.symbols("a b", positive=True, integer=True)
FUNCTIONS = {"floordiv": int.__floordiv__, "mod": int.__mod__, "max": max}


def parts(size, window):
    """What PyTorch asks where it cuts `size` in windows by a view."""
    count = FloorDiv(size, window)
    return [sympy.Eq(Mod(size, count), 0), sympy.Eq(FloorDiv(size, count), window)]


def holds(conditions, values):
    return all(bool(c.subs(values)) for c in conditions)


@pytest.mark.parametrize("window", [2, 3, 8])
def test_a_size_that_is_cut_in_windows_is_a_multiple(window):
    conditions = parts(A, window)
    follows = Numbers(conditions).multiples()
    assert follows == [sympy.Eq(Mod(A, window), 0)]
    sizes = [{A: n} for n in range(window, 20 * window)]
    assert any(holds(conditions, size) for size in sizes)
    assert all(holds(follows, size) for size in sizes if holds(conditions, size))


def test_no_multiple_follows_from_a_rounded_quotient():
    (exact, quotient) = parts(A, 4)
    assert Numbers([quotient]).multiples() == []
    assert Numbers([exact]).multiples() == []


def test_constraints_with_numbers_state_the_same():
    rows, columns = FloorDiv(A, FloorDiv(A, 4)), FloorDiv(B, FloorDiv(B, 3))
    conditions = [
        sympy.Ne(rows * columns, B),
        *parts(A, 4),
        sympy.Gt(rows * B, A),
        *parts(B, 3),
        sympy.Eq(B * Max(1, rows), A + columns * B),
        sympy.Ne(rows, B),
    ]
    texts, unstated = Notation({"a": "a", "b": "b"}, numbers=Numbers(conditions)).constraints(
        conditions
    )
    assert unstated == []
    # The terms themselves are in the constraints that make them numbers, and in no other.
    assert sum("floordiv(a, floordiv(a, 4))" in text for text in texts) == 1
    assert sum("floordiv(b, floordiv(b, 3))" in text for text in texts) == 1
    found = []
    for a, b in itertools.product(range(4, 41), range(3, 31)):
        names = FUNCTIONS | {"a": a, "b": b}
        stated = all(eval(text, names) for text in texts)
        assert stated == holds(conditions, {A: a, B: b})
        found.append(stated)
    assert any(found)

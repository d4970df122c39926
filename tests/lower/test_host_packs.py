"""Which sizes the buffer of a packed copy determines, against all small values of the symbols."""

from __future__ import annotations

import itertools

import pytest

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.host.packs import Origin

SIZES = ["1", "n", "m", "n*m", "2*n*m + 3", "n + m", "floordiv(n + 1, 2)", "n*n*m", "n*m*m*n",
         "max(n, m)", "min(n*m, 4)", "n*floordiv(n*m, 2)", "mod(n, 3)*m"]  # fmt: skip
TOLD = {
    ("n", "m"): set(SIZES),
    ("n", "7"): {"1", "n", "floordiv(n + 1, 2)"},
    ("2*n + 1",): {"1", "n", "floordiv(n + 1, 2)"},
    ("n*m",): {"1", "n*m", "2*n*m + 3", "n*m*m*n", "min(n*m, 4)"},
    ("3*n*m", "n"): {"1", "n", "n*m", "2*n*m + 3", "floordiv(n + 1, 2)", "n*n*m", "n*m*m*n",
                     "min(n*m, 4)", "n*floordiv(n*m, 2)"},
    ("n + m",): {"1", "n + m"},
    ("8",): {"1"},
}  # fmt: skip


@pytest.mark.parametrize("own", TOLD)
def test_a_size_that_is_told_has_one_value_for_equal_sizes_of_the_buffer(own):
    origin = Origin(0, tuple(map(Expr.parse, own)))
    assert {text for text in SIZES if origin.tells(Expr.parse(text))} == TOLD[own]
    for text in TOLD[own]:
        found: dict[tuple[int, ...], int] = {}
        for n, m in itertools.product(range(7), repeat=2):
            values = {"n": n, "m": m}
            sizes = tuple(size.evaluate(values) for size in origin.sizes)
            value = Expr.parse(text).evaluate(values)
            assert found.setdefault(sizes, value) == value, (text, values)

"""Equations that hold from a size on, beside all values up to 150."""

import random

import pytest

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.tails import zero_from


def size(rng: random.Random, depth: int) -> Expr:
    n = Expr.symbol("n")
    if not depth:
        return n * rng.randint(1, 2) + rng.randint(-3, 3)
    a, b = size(rng, depth - 1), size(rng, depth - 1)
    number = Expr.const(rng.randint(-5, 9))
    return rng.choice([
        lambda: a + b,
        lambda: a // rng.choice([2, 3, 4, -2]),
        lambda: a % rng.choice([2, 3, 4]),
        lambda: Expr.max(a, rng.choice([b, number])),
        lambda: Expr.min(a, rng.choice([b, number])),
    ])()  # fmt: skip


def test_what_is_shown_is_true_and_the_bound_is_the_smallest():
    rng, shown, missed = random.Random(0), 0, 0
    for _ in range(120):
        a, b = size(rng, rng.randint(1, 2)), size(rng, rng.randint(1, 2))
        if product := rng.random() < 0.3:
            a = a * size(rng, 1)
        # The last two have such bounds where one grows faster.
        for difference in (a - b, Expr.max(a, b) - a, Expr.min(a, b) - a):
            values = [difference.evaluate({"n": n}) for n in range(1, 151)]
            last = max((n for n, value in enumerate(values, 1) if value), default=0)
            found = zero_from(difference)
            shown += found is not None
            missed += found is None and last < 80 and not difference.is_const and not product
            assert found in (None, ("n", last + 1)), difference
    assert shown > 60
    assert missed == 0  # but for products inside of a minimum


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ("n - min(n, 3) - mod(n - min(n, 3) + 3, 4) + 3", "n - mod(n, 4)", ("n", 1)),
        ("floordiv(max(n - 2, 0), 2)", "floordiv(n, 2) - 1", ("n", 2)),
        ("b*n - b*min(n, 2) + 2*b", "b*n", ("n", 2)),
        ("n*max(n, 3)", "n^2", ("n", 3)),
        ("b*min(n, 2)", "b*min(n, 3)", None),
        ("min(b, n)", "n", None),
        ("floordiv(n, max(n - 3, 0))", "1", None),
        ("max(n, 5000)", "n", None),  # true from 5000 on, beyond what is tried
    ],
)
def test_sizes_as_programs_write_them(a, b, found):
    assert zero_from(Expr.parse(a) - Expr.parse(b)) == found

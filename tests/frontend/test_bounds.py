"""Bounds of symbolic sizes: true of all sizes, found in little time, no error."""

from __future__ import annotations

import itertools
import math
import random

import jax
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.jax.sizes import bounds
from shlo_disc.jax.sizes.symbolic import SizeScope, evaluate
from shlo_disc.jax.versions.symbols import methods
from shlo_disc.jax_private.sizes import DecisionByElimination, DimExpr

methods.install()

COMPARED = {  # sizes n and m, and a bound that holds at the first call only
    "a square": lambda n, m: ((n - 7) // 2) ** 2 >= 9,
    "a fourth power": lambda n, m: (n // 2 - 5) // 2 * (n // 2 - 5) // 2 * ((n - 7) // 3) ** 4 > 1,
    "a square of a minimum": lambda n, m: min(n, m) ** 2 - 9 > 0,
    "a product of unknown sign": lambda n, m: ((n - m) // 2) * (n // 2) >= 9,
    "a product of two": lambda n, m: ((n - m) // 2) * ((m - n) // 3) >= -2,
    "a square of a difference": lambda n, m: ((n - m) // 2) ** 2 >= 2,
}


@pytest.mark.parametrize("name", COMPARED)
def test_compared_sizes_are_those_of_the_call(name):
    def function(x, y):
        return x + 1 if COMPARED[name](x.shape[0], y.shape[0]) else x - 1

    f = shlo_disc.jit(function)
    for n in (20, 8, 7, 13, 2):
        args = np.zeros(n, np.float32), np.zeros(5, np.float32)
        np.testing.assert_array_equal(f(*args), jax.jit(function)(*args), f"{name}, {n}")
    assert f.cache_info().misses <= 3, f.guards()
    assert not any("Error" in guard for guard in f.guards())


def _random_size(rng: random.Random, symbols: tuple, depth: int):
    if not depth:
        return rng.choice(symbols)
    a, b = (_random_size(rng, symbols, depth - 1) for _ in range(2))
    match rng.randrange(8):
        case 0:
            return a + b * rng.randrange(1, 4)
        case 1:
            return a - b * rng.randrange(1, 4) + rng.randrange(-5, 6)
        case 2:
            return a * b
        case 3:
            return (a - rng.randrange(8)) // rng.randrange(2, 5)
        case 4:
            return (a - b) % rng.randrange(2, 7)
        case 5:
            return jax.core.max_dim(a, b)
        case 6:
            return jax.core.min_dim(a - 3, b)
        case _:
            return (a - rng.randrange(4)) ** 2


@pytest.mark.parametrize("limit", [bounds.LARGEST, 10])
def test_bounds_hold_for_all_sizes(limit, monkeypatch):
    """Those of a decision that ends early, too."""
    monkeypatch.setattr(bounds, "LARGEST", limit)
    known = 0
    for seed in range(150):
        rng = random.Random(seed)
        scope = SizeScope(["m >= n + 1"] if seed % 2 else [], {"n": 2, "m": 3})
        size = _random_size(rng, export.symbolic_shape("n, m", scope=scope), 3)
        if not isinstance(size, DimExpr):
            continue
        low, high = bounds._decided(None, size, bounds.BEST)
        known += low > -math.inf
        for n, m in itertools.product((1, 2, 3, 5, 8, 13, 30), repeat=2):
            if seed % 2 == 0 or m > n:
                value = evaluate(size, {"n": n, "m": m})
                assert low <= value <= high, (seed, n, m, value, low, high)
    assert known >= 5


def test_the_intervals_of_products_and_powers():
    ends = [-math.inf, -2, -1, 0, 1, 3, math.inf]
    intervals = [(a, b) for a, b in itertools.combinations_with_replacement(ends, 2) if abs(a + b)]
    inside = {
        (a, b): [k for k in range(-30, 31) if a <= k <= b]
        for a, b in intervals
        if a != b or abs(a) < 9
    }
    for (x, xs), exponent in itertools.product(inside.items(), (1, 2, 3)):
        powers = [k**exponent for k in xs]
        low, high = bounds.power_of(x, exponent)
        assert all(low <= k <= high for k in powers)
        assert low in (-math.inf, min(powers))
        assert high in (math.inf, max(powers))
    for (x, xs), (y, ys) in itertools.product(inside.items(), repeat=2):
        products = [a * b for a in xs for b in ys]
        low, high = bounds.product_of(x, y)
        assert all(low <= k <= high for k in products)
        assert low in (-math.inf, min(products))
        assert high in (math.inf, max(products))


def test_a_decision_ends(monkeypatch):
    """What the gradient of a U-Net asks; JAX alone tries 58 000 combinations."""
    tried = []
    original = DecisionByElimination.combine_term_with_existing

    def counted(*args, **kwargs):
        tried.append(0)
        return original(*args, **kwargs)

    monkeypatch.setattr(DecisionByElimination, "combine_term_with_existing", counted)
    half = "floordiv({0}, 2) - mod(floordiv({0}, 2), 2) - 1"
    quarter = "max(2*floordiv(floordiv({0} - 2, 2) - 1, 2) + 1, 0)"
    known = [f"c >= 2*max({half.format('a')}, 0) + 2", f"d >= 2*max({half.format('b')}, 0) + 2"]
    scope = SizeScope(known, {"a": 20, "b": 20, "c": 20, "d": 20, "n": 3})
    text = f"8*n*{quarter.format('a')}*{quarter.format('b')} + n - 1"
    (size,) = export.symbolic_shape(text, scope=scope)
    try:
        assert size >= 0
    except jax.errors.InconclusiveDimensionOperation:
        assert len(tried) >= bounds.LARGEST
    assert len(tried) <= 4 * bounds.LARGEST


def _decided(name: str) -> bool:
    scope = SizeScope([], {"n": 13})
    (n,) = export.symbolic_shape("n", scope=scope)
    with scope.asking({"n": 13}) as session:
        answer = DECIDED[name](n)
    return answer and not session.questions


DECIDED = {
    "a quarter": lambda n: n >= n // 4,
    "a quarter, rounded up": lambda n: n >= (n + 3) // 4,
    "a whole multiple": lambda n: n // 4 * 4 >= 0,
    "a multiple of a half": lambda n: n // 2 >= n // 2 // 2 * 2,
    "a padded size": lambda n: n + -n % 4 >= n,
    "what is padded": lambda n: -(-n // 4) * 4 - n < 4,
    "a third and a quarter": lambda n: n // 3 >= n // 4 - 1,
    "two ways": lambda n: (n // 2 - n // 4) >= (n // 2 + 1) // 2,
}


@pytest.mark.parametrize("name", DECIDED)
def test_orders_of_quotients_are_decided_without_the_call(name):
    assert _decided(name)

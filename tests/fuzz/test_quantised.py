"""A sample of random quantised products."""

from __future__ import annotations

from tests.fuzz.quantised import check


def test_random_products_are_exact():
    assert sum(check(seed) for seed in range(12)) >= 6

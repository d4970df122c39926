"""Sums of few terms add them first to last, each product rounded, as StableHLO says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import shlo_disc
from shlo_disc.lower.schedule.contraction import SHORT

SIZES = range(2, SHORT + 1)
PRODUCTS = """
  %p{k} = stablehlo.dot_general %a{k}, %b{k}, contracting_dims = [1] x [0]
    : (tensor<?x{k}x{t}>, tensor<{k}x20x{t}>) -> tensor<?x20x{t}>
  %q{k} = stablehlo.dot_general %a{k}, %c{k}, contracting_dims = [1] x [1]
    : (tensor<?x{k}x{t}>, tensor<20x{k}x{t}>) -> tensor<?x20x{t}>
"""
ROWS = """
  %s{k} = stablehlo.reduce(%a{k} init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<?x{k}x{t}>, tensor<{t}>) -> tensor<?x{t}>
"""


def compiled(element: str) -> Callable[..., list[np.ndarray]]:
    """Products with B along N and along K, and sums of rows, of every size, in one program."""
    body = "".join((PRODUCTS + ROWS).format(k=k, t=element) for k in SIZES)
    ins = [
        f"%a{k}: tensor<?x{k}x{element}>, %b{k}: tensor<{k}x20x{element}>, "
        f"%c{k}: tensor<20x{k}x{element}>"
        for k in SIZES
    ]
    outs = ", ".join(f"%p{k}, %q{k}, %s{k}" for k in SIZES)
    types = ", ".join(
        f"tensor<?x20x{element}>, tensor<?x20x{element}>, tensor<?x{element}>" for _ in SIZES
    )
    return shlo_disc.compile(
        f"func.func public @main({', '.join(ins)}) -> ({types}) {{\n"
        f"%zero = stablehlo.constant dense<0.0> : tensor<{element}>\n{body}\n"
        f"return {outs} : {types}\n}}"
    )


@pytest.mark.parametrize(("element", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_short_sums_are_those_of_the_specification(element: str, dtype: type) -> None:
    run, rng = compiled(element), np.random.default_rng(0)
    for rows in (1, 2, 37):
        ins, wants = [], []
        for k in SIZES:
            a, b = (rng.standard_normal(s).astype(dtype) for s in ((rows, k), (k, 20)))
            b[1::2] = b[0 : k - 1 : 2]
            a[:, 1::2] = -a[:, 0 : k - 1 : 2]  # equal products of opposite signs
            ins += [a, b, np.ascontiguousarray(b.T)]
            product, total = np.zeros((rows, 20), dtype), np.zeros(rows, dtype)
            for i in range(k):
                product = product + a[:, i : i + 1] * b[i]
                total = total + a[:, i]
            wants += [product, product, total]
        for got, want in zip(run(*ins), wants, strict=True):
            np.testing.assert_array_equal(np.asarray(got), want)

"""Programs with many kernels that differ in numbers: few kernels, and the same results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.passes import share_kernels


def layers(x, w):
    """Products with work behind them, rows, columns, comparisons: each with a number of its own."""
    for k in range(5):
        scaled = jnp.tanh(x @ w * (1 + k / 8) + (k - 3.0))
        x = scaled * jnp.where(x > k / 4, x, -1.0 - k)
        x = jax.nn.softmax(x * (k + 1.5), axis=-1) - x.mean(0) * (0.5 + k)
        x = jnp.maximum(x, k - 2.5)
    return x


def branches(x, n):
    """The numbers are integers, and one of each is an exponent or a divisor, which stay."""
    scales = [lambda x, k=k: (x * (k + 2) - k) // (k + 3) + x ** (k + 2) for k in range(6)]
    return jax.lax.switch(n, scales, x)


def compiled(function, shapes, monkeypatch, least):
    monkeypatch.setattr(share_kernels, "MIN_KERNELS", least)
    jitted = shlo_disc.jit(function)
    results = [jitted(*arguments) for arguments in shapes]
    return str(jitted.explain()), results  # while a program lives, an equal one is not compiled


def cases(function):
    r = np.random.default_rng(3)
    if function is layers:
        w = r.normal(size=(16, 16)).astype(np.float32) / 4
        return [(r.normal(size=(rows, 16)).astype(np.float32), w) for rows in (1, 5, 33)]
    return [(r.integers(-9, 9, (k, 3)).astype(np.int32), np.int32(k)) for k in range(7)]


@pytest.mark.parametrize("function", [layers, branches])
def test_results_are_the_same_to_the_bit(function, monkeypatch):
    arguments = cases(function)
    shared, found = compiled(function, arguments, monkeypatch, 4)
    apart, wanted = compiled(function, arguments, monkeypatch, 10_000)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(a).view(np.int32), np.asarray(b).view(np.int32))
    assert "shared: one kernel for" not in apart
    assert ("shared: one kernel for" in shared) == (function is layers)


def text(count: int, rows: str) -> str:
    """A chain of products, each with a scale of its own."""
    x = f"tensor<{rows}x8xf32>"
    lines = [
        f"""%p{k} = stablehlo.dot_general %h{k}, %w, contracting_dims = [1] x [0]
              : ({x}, tensor<8x8xf32>) -> {x}
            %c{k} = stablehlo.constant dense<{1 + k / 1024}> : tensor<f32>
            %s{k} = chlo.broadcast_multiply %p{k}, %c{k} : ({x}, tensor<f32>) -> {x}
            %h{k + 1} = stablehlo.tanh %s{k} : {x}"""
        for k in range(count)
    ]
    body = "\n".join(lines)
    signature = f"func.func @main(%h0: {x}, %w: tensor<8x8xf32>) -> {x}"
    return f"{signature} {{\n{body}\nreturn %h{count} : {x} }}"


@pytest.mark.parametrize("rows", ["?", "4"])
def test_more_layers_need_no_more_kernels(rows):
    few, many = (shlo_disc.compile(text(count, rows)) for count in (8, 40))
    texts = [{kernel.text for kernel in each.host.kernels} for each in (few, many)]
    assert len(texts[1]) == len(texts[0])
    r = np.random.default_rng(0)
    x = r.normal(size=(4, 8)).astype(np.float32)
    w = r.normal(size=(8, 8)).astype(np.float32) / 4
    wanted = x.astype(np.float64)
    for k in range(40):
        wanted = np.tanh(wanted @ w.astype(np.float64) * (1 + k / 1024))
    np.testing.assert_allclose(many.run_numpy([x, w])[0], wanted, rtol=2e-4, atol=2e-5)

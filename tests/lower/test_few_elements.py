"""Steps of loops on few elements: kernels without lanes, inside the host program.

The oracle is a Python loop over NumPy in float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc

Step = Callable[[Any, Any, Any], tuple[Any, Any]]
"""(jax.numpy or numpy, state, input) -> (state, result)."""


def stacked(m: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """Elements by different formulas."""
    y = y + m.stack([0.1 * (y[1] - y[0]), y[0] * (0.5 - y[2]) - x[1], x[0] * y[1] - 0.3 * y[2]])
    return y * 0.5, y


def turned(m: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """A product of quaternions, normalised."""
    a, b, c, d = y
    e, f, g = x[:3]
    y = m.stack([a - b * e - c * f, b + a * e + d * g, c + a * f - d * e, d + a * g + b * f])
    y = y / m.sqrt(m.sum(y * y))
    return y, y


def windowed(m: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """A window that moves, times taps, twice."""
    y = m.concatenate([x[:1], y[:-1]])
    taps = m.asarray([0.5, -0.25, 0.125, 2.0], x.dtype)
    return y, m.dot(y, taps) - m.sum(y[1:3] * x[1:3])


def multiplied(m: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """A matrix of the input times the state, and outer products."""
    a = m.stack([m.stack([x[0], -x[1]]), m.stack([x[1], x[0]])])
    y = m.dot(a, y) * 0.5 + 0.1
    return y, m.outer(y, x[:2]) + a.T


def compared(m: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """Choices, extrema, reversed and rolled places."""
    y = m.where(x[:3] > y, y[::-1], m.roll(y, 1))
    return m.maximum(y, x[:3]) - 0.25, m.max(y) * m.min(x)


def sines(m: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """One sine a step, of an element."""
    y = m.stack([y[1] * 0.5, -m.sin(y[0]) + x[0]])
    return y, y


STEPS: dict[str, tuple[Step, int]] = {
    "stacked": (stacked, 3),
    "turned": (turned, 4),
    "windowed": (windowed, 4),
    "multiplied": (multiplied, 2),
    "compared": (compared, 3),
    "sines": (sines, 2),
}


def _loop(step: Step) -> Callable[..., Any]:
    """A scan of rows of four columns, which are not one array: their number would be a symbol."""
    return lambda y, xs: lax.scan(lambda y, x: step(jnp, y, jnp.stack(x)), y, xs)


def _want(step: Step, y: np.ndarray, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y, results = y.astype(np.float64), []
    for x in xs.astype(np.float64):
        y, result = step(np, y, x)
        results.append(result)
    return y, np.array(results)


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_few_elements(name: str) -> None:
    step, count = STEPS[name]
    rng = np.random.default_rng(0)
    run = shlo_disc.jit(_loop(step))
    start = rng.standard_normal(count).astype(np.float32)
    for length in (7, 1, 53):
        xs = rng.standard_normal((length, 4)).astype(np.float32)
        columns = tuple(np.ascontiguousarray(xs.T))
        for got, want in zip(run(start, columns), _want(step, start, xs), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
    assert run.cache_info().misses == 1
    executable = run.lower(start, columns).compile().executable
    (loop,) = re.findall(r"scf\.while.*?\n  }\n", executable.as_text("host"), re.DOTALL)
    assert "llvm.call " not in loop, "all kernels are in the host program"
    copies = executable.as_text("host").split("func.func @inlined")[1:]
    assert copies
    assert not any(re.search(r"vector<\d+xf32>", copy) for copy in copies)


@pytest.mark.parametrize("name", ["stacked", "turned", "multiplied"])
def test_their_gradients_and_batches(name: str) -> None:
    step, count = STEPS[name]
    rng = np.random.default_rng(1)
    start = rng.standard_normal((5, count)).astype(np.float32)
    xs = tuple(rng.standard_normal((4, 5, 11)).astype(np.float32))

    def total(y: jax.Array, xs: tuple[jax.Array, ...]) -> jax.Array:
        return (_loop(step)(y, xs)[1] ** 2).sum()

    derived = jax.vmap(jax.grad(total, (0, 1)))
    results = (jax.tree.leaves(run(derived)(start, xs)) for run in (shlo_disc.jit, jax.jit))
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_the_reduction_of_large_angles_is_one_function_of_a_host_program() -> None:
    """Angles of all sizes: an angle of its own, one step of pi/2, the digits of 2/pi."""

    def step(m: Any, y: Any, x: Any) -> tuple[Any, Any]:
        near = m.cos(x[1]) * 0.5
        y = m.stack([m.sin(x[0] + y[1]), near, x[2] - m.sin(x[3] * 3 + near)])
        return y, y

    rng = np.random.default_rng(0)
    run = shlo_disc.jit(_loop(step))
    xs = (rng.choice([-1, 1], (200, 4)) * np.exp2(rng.uniform(-20, 120, (200, 4)))).astype(
        np.float32
    )
    xs[:, 0] = rng.uniform(-3, 3, 200)
    xs[:4, 1] = 0.0, -0.0, 0.7853, np.float32(np.pi / 4)
    xs[:, 3] = xs[:, 1]
    columns = tuple(np.ascontiguousarray(xs.T))
    start = np.zeros(3, np.float32)
    for got, want in zip(run(start, columns), jax.jit(_loop(step))(start, columns), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    text = run.lower(start, columns).compile().executable.as_text("host")
    functions = re.findall(r"func\.func @(inlined\d+_cold\w+)", text)
    assert len(functions) == 1
    assert text.count(f"func.call @{functions[0]}") == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "functions", [(jnp.tan, jnp.log, jnp.expm1), (jnp.tanh, lax.erf, lax.logistic)]
)
def test_functions_of_several_scalars_are_lanes_with_the_bits_of_arrays(
    functions: tuple[Callable[[Any], Any], ...], dtype: type
) -> None:
    """Sines and cosines are one row; what waits for another function is in a row of its own."""

    def values(x: Any, of: Callable[[Any, Any], Any]) -> list[Any]:
        a, b, c, d = x
        sine, cosine = of(jnp.sin, a), of(jnp.cos, b)
        later = [of(f, sine) for f in (jnp.sin, jnp.cos)]
        same = [of(f, y) for y in (a, b, c) for f in functions]
        return [sine, cosine, of(jnp.sin, c), of(jnp.cos, d), *later, of(jnp.sin, cosine), *same]

    def step(_: None, x: Any) -> tuple[None, Any]:
        return None, jnp.stack(values(x, lambda f, y: f(y)))

    rng = np.random.default_rng(0)
    numbers = rng.choice([-1, 1], (4, 300)) * np.exp2(rng.uniform(-30, 60, (4, 300)))
    numbers[:, :8] = 0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, np.pi / 4, 1.0e5
    numbers[1:] = [rng.permutation(column) for column in numbers[1:]]
    columns = tuple(numbers.astype(dtype))
    alone = {f: shlo_disc.jit(f) for f in (jnp.sin, jnp.cos, *functions)}
    run = shlo_disc.jit(lambda xs: lax.scan(step, None, xs)[1])
    with jax.enable_x64(dtype is np.float64):
        got = np.ascontiguousarray(np.asarray(run(columns)).T)
        wants = values(columns, lambda f, y: np.asarray(alone[f](y)))
        executable = run.lower(columns).compile().executable
    whole = f"i{got.itemsize}"
    for number, (mine, want) in enumerate(zip(got, wants, strict=True)):
        same = (mine.view(whole) == want.view(whole)) | (np.isnan(mine) & np.isnan(want))
        assert same.all(), (number, mine[~same], want[~same])
    text = executable.as_text("kernels") + executable.as_text("host")
    rows = re.findall(rf"vector\.from_elements ([^:]*) : vector<4xf{8 * got.itemsize}>", text)
    counts = [len(set(names.split(", "))) for names in rows]
    assert sorted(counts) == [2, 3, 4], "of a, b, c, d; of two of their sines; of a, b, c"


@pytest.mark.parametrize(("name", "joins"), [("turned", False), ("many", True), ("sines", False)])
def test_llvm_joins_scalars_to_vectors_where_they_are_many(name: str, joins: bool) -> None:
    """Its shuffles are what a step waits for: 4 of 5 steps of a gyroscope took as long as 5."""

    def many(m: Any, y: Any, x: Any) -> tuple[Any, Any]:
        y = m.concatenate([x[:1], y[:-1]])
        return y, y * x[1]

    step, count = STEPS.get(name, (many, 8))
    run = shlo_disc.jit(_loop(step))
    start, columns = np.ones(count, np.float32), (np.ones(9, np.float32),) * 4
    run(start, columns)
    text = run.lower(start, columns).compile().executable.as_text("host")
    heads = re.findall(r"func\.func @inlined\d+\(.*", text)
    assert heads
    stays = any("noimplicitfloat" in h for h in heads) and all("passthrough" in h for h in heads)
    assert stays != joins

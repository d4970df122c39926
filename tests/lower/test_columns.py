"""Columns that are stacked, computed with and taken apart again, beside `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc


def lorenz(y: Any) -> Any:
    """Of one state."""
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def lorenz_of_rows(y: Any) -> Any:
    """Of states in rows."""
    return jnp.moveaxis(lorenz(jnp.moveaxis(y, -1, 0)), 0, -1)


def runge_kutta(field: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Three steps of the classical method, the states of which are stacked."""

    def step(y: Any, _: None) -> Any:
        h = 0.02
        k1 = field(y)
        k2 = field(y + h / 2 * k1)
        k3 = field(y + h / 2 * k2)
        k4 = field(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    return lambda y: lax.scan(step, y, None, length=3)


def pendula(y: Any, rates: Any) -> Any:
    """Each with a rate of its own."""
    one = lambda y, r: runge_kutta(lambda y: jnp.stack([r * y[1], -jnp.sin(y[0])]))(y)  # noqa: E731
    return jax.vmap(one)(y, rates)


def loss(y: Any) -> Any:
    """A number to take the gradient of."""
    return (jax.vmap(runge_kutta(lorenz))(y)[1] ** 2).sum()


def boxes(middle: Any, size: Any) -> Any:
    """Areas of boxes that are made of middles and sizes."""
    b = jnp.concatenate([middle - size / 2, middle + size / 2], -1) * 2
    return (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])


def chosen(x: Any) -> Any:
    """By a comparison, and of another type."""
    y = jnp.stack([x, x * 2, x - 1], 1)
    y = jnp.where(y > 0.1, y, jnp.clip(-y, 0.0, 0.5)).astype(jnp.float16)
    return y[:, 1] + x, y[:, 0] * y[:, 2]


def also_whole(x: Any, b: Any) -> Any:
    """The stack is a result, too."""
    y = jnp.stack([x, x * 2], 1) * b
    return y[:, 0] * y[:, 1], y


def behind_a_product(x: Any, w: Any) -> Any:
    """A product and what is added to it stay one kernel."""
    y = x @ w + jnp.stack([x[:, 0], x[:, 1]], 1)
    return y[:, 0] * jnp.exp(y[:, 1])


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], Any], int]] = {
    "vmap": (jax.vmap(runge_kutta(lorenz)), lambda n: [(n, 3)], 3),
    "rows": (runge_kutta(lorenz_of_rows), lambda n: [(n, 2, 3)], 2),
    "columns": (runge_kutta(lorenz), lambda n: [(3, n)], 2),
    "pendula": (pendula, lambda n: [(n, 2), (n,)], 5),
    "gradient": (jax.grad(loss), lambda n: [(n, 3)], 99),
    "boxes": (boxes, lambda n: [(n, 2), (n, 2)], 2),
    "chosen": (chosen, lambda n: [(n,)], 2),
    "also whole": (also_whole, lambda n: [(n,), (2,)], 2),
    "behind a product": (behind_a_product, lambda n: [(n, 4), (4, 2)], 1),
}
"""Functions, the shapes of their arguments, and the number of element-wise kernels at most."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_columns_are_computed_by_themselves(name: str) -> None:
    function, shapes, most = PROGRAMS[name]
    ours, theirs = shlo_disc.jit(function), jax.jit(function)
    rng = np.random.default_rng(0)
    for n in (5, 1, 37):
        x = [rng.standard_normal(shape).astype(np.float32) for shape in shapes(n)]
        for a, b in zip(jax.tree.leaves(ours(*x)), jax.tree.leaves(theirs(*x)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
    assert ours.cache_info().misses == 1
    uses = ours.lower(*x).compile().executable.host.uses
    assert sum(use.kind == "loop" for use in uses) <= most

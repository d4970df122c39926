"""Updates at places that sizes tell, in front of and behind rolls, beside `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc


def in_a_loop(update: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A window that every element of x moves into."""
    return lambda x, v: lax.scan(lambda b, s: (update(b, s), b @ v), v, x)


def read_twice(x: Any, _: Any) -> Any:
    """The rolled array is read at the place, too."""
    rolled = jnp.roll(x, 1)
    return rolled.at[0].set(1.0) + rolled


def total(x: Any, v: Any) -> Any:
    """A number to take the gradient of."""
    return (in_a_loop(lambda b, s: jnp.roll(b, -1).at[-1].set(s))(x, v)[1] ** 2).sum()


PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], set[str]]] = {
    "first": (lambda x, v: x.at[0].set(v[0]), {"loop", "dynamic_update_slice"}),
    "last": (lambda x, v: x.at[-1].set(v[0]), {"loop", "host", "dynamic_update_slice"}),
    "perhaps outside": (lambda x, v: x.at[2].set(v[0]), {"loop", "scatter"}),
    "added": (lambda x, v: x.at[0].add(v[0]), {"loop", "scatter"}),
    "row": (lambda x, v: jnp.stack([x, x * 2]).at[1].set(v), {"loop"}),
    "column": (lambda x, v: jnp.stack([x, x * 2], 1).at[:, -1].set(v), {"loop"}),
    "of integers": (
        lambda x, v: jnp.roll((x * 9).astype(jnp.int8), 1).at[0].set(7),
        {"loop"},
    ),
    "rolled forward": (lambda x, v: jnp.roll(x, 1).at[0].set(v[0]), {"loop"}),
    "rolled back": (lambda x, v: jnp.roll(x, -1).at[-1].set(v[0]), {"loop"}),
    "rolled rows": (lambda x, v: jnp.roll(jnp.outer(x, v), -1, 1).at[:, -1].set(x), {"loop"}),
    "read twice": (read_twice, {"loop", "dynamic_update_slice"}),
    "forward in a loop": (
        in_a_loop(lambda b, s: jnp.roll(b, 1).at[0].set(s)),
        {"host", "loop", "dense"},
    ),
    "back in a loop": (
        in_a_loop(lambda b, s: jnp.roll(b, -1).at[-1].set(s)),
        {"host", "loop", "dense"},
    ),
    "gradient": (jax.grad(total, (0, 1)), {"host", "loop", "dense", "dynamic_update_slice"}),
}
"""Functions of two vectors, and the kinds of their kernels."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_updates_at_known_places(name: str) -> None:
    function, kinds = PROGRAMS[name]
    ours, theirs = shlo_disc.jit(function), jax.jit(function)
    rng = np.random.default_rng(0)
    for n in (5, 1, 2, 37):
        x, v = rng.standard_normal((2, n)).astype(np.float32)
        got, want = ours(x, v), theirs(x, v)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    assert ours.cache_info().misses == 1
    assert {use.kind for use in ours.lower(x, v).compile().executable.host.uses} <= kinds

"""Structures of results."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

import shlo_disc
from shlo_disc.jax.sizes.structure import tree_at


class Registered(NamedTuple):
    data: Any
    name: str


jax.tree_util.register_pytree_node(
    Registered, lambda r: ((r.data,), r.name), lambda name, parts: Registered(*parts, name)
)


def test_named_tuples_with_a_flattening_of_their_own_are_results():
    """As the states of `jax.example_libraries.optimizers`, which numpyro uses."""
    tree = jax.tree.structure(Registered((1, None), "adam"))
    assert tree_at(tree, {}) == tree

    f = shlo_disc.jit(lambda x: {"state": Registered((x * 2, None), "adam"), "sum": x.sum()})
    for n in (3, 5, 4):
        got = f(np.ones(n, np.float32))
        assert isinstance(got["state"], Registered)
        assert (got["state"].data[0].shape, got["state"].name) == ((n,), "adam")
    assert f.cache_info().misses == 1

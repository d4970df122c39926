"""Rows looked up in a table, at places that are computed, are normalised in one kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.models.harness import check, kernels, layer_norm, normal, rng_of

SIZES = ((50, 24, 3, 5), (1, 1, 1, 1), (300, 768, 8, 33), (7, 33, 1, 100), (12, 70000, 1, 2))
"""(rows of the table, columns, batch, length)"""


def case(rows, columns, batch, length, dtype=np.float32):
    r = rng_of(rows, columns, batch, length)
    ids = r.integers(-rows - 3, rows + 3, (batch, length)).astype(np.int32)
    table, positions = normal(r, rows, columns), normal(r, max(length, 1), columns)
    return table.astype(dtype), positions.astype(dtype), ids


def embed(table, positions, ids):
    return layer_norm(table.at[ids].get(mode="clip") + positions[: ids.shape[1]])


def indexed(table, positions, ids):
    return jax.nn.softmax(table[ids] * positions[0, 0])


def two_tables(table, positions, ids):
    x = table.at[ids].get(mode="clip") + table.at[ids // 2].get(mode="clip")
    return jnp.abs(x).sum(-1), layer_norm(x + positions[0])


@pytest.mark.parametrize("function", [embed, indexed, two_tables], ids=lambda f: f.__name__)
def test_one_kernel_at_every_size(function):
    assert kernels(function, *case(*SIZES[0])) == ["row"]
    check(function, [case(*s) for s in SIZES])


@pytest.mark.parametrize("sizes", [(9, 16, 0, 4), (9, 16, 4, 0)])
def test_nothing_to_look_up(sizes):
    check(embed, [case(*sizes)])


def test_half():
    check(embed, [case(*s, jnp.bfloat16) for s in SIZES[:3]])


def test_places_that_a_reduction_tells():
    def function(table, positions, ids):
        best = jnp.sum(ids, -1, keepdims=True) + ids
        weights = table.at[best].get(mode="clip")
        chosen = jnp.sum(weights, -1).astype(jnp.int32)
        return layer_norm(table.at[chosen].get(mode="clip") + positions[0])

    # Sums of floats decide where is read: exact ones.
    cases = [case(*SIZES[0]), case(*SIZES[3])]
    check(function, [(np.round(table), np.round(rest), ids) for table, rest, ids in cases])


def test_the_gradient_of_the_table():
    def loss(table, positions, ids):
        return jnp.sum(embed(table, positions, ids) ** 2 * positions[0])

    f = shlo_disc.jit(loss)
    for sizes in SIZES[:2]:
        args = case(*sizes)
        got, want = jax.grad(f)(*args), jax.grad(loss)(*args)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

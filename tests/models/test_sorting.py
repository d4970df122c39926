"""Sort, argsort, top-k, argmax, cumulative sums, searches and medians."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.harness import check, check_bits, normal, rng_of

SHAPES = ((3, 10), (1, 1), (2, 127), (5, 64), (1, 1000))


def values(b: int, n: int):
    return (normal(rng_of(b, n), b, n),)


def test_sort_and_argsort():
    check_bits(lambda x: (jnp.sort(x, -1), jnp.argsort(x, -1)), [values(*s) for s in SHAPES])


def test_sort_is_stable_on_equal_keys():
    cases = [(rng_of(n).integers(0, 4, n, np.int32),) for n in (10, 1, 257)]
    check_bits(lambda x: jnp.argsort(x, stable=True), cases)


def test_sort_orders_nan_last_and_signed_zeros():
    special = np.array([np.nan, -np.inf, 0.0, -0.0, np.inf, -np.nan, 3.0, -3.0], np.float32)
    cases = [(np.resize(special, n),) for n in (8, 3, 31)]
    check_bits(lambda x: (jnp.sort(x), jnp.argsort(x)), cases)


def test_sort_along_the_first_axis_descending():
    check_bits(lambda x: jnp.sort(x, axis=0, descending=True), [values(*s) for s in SHAPES])


def test_sort_of_keys_with_values():
    def by_key(keys, values):
        return jax.lax.sort((keys, values), num_keys=1)

    cases = []
    for n in (9, 1, 100):
        rng = rng_of(n)
        cases.append((rng.integers(0, 5, n, np.int32), normal(rng, n)))
    check_bits(by_key, cases)


@pytest.mark.parametrize("k", [1, 5])
def test_top_k(k):
    cases = [values(b, n) for b, n in ((3, 10), (2, 127), (5, 64), (1, 5))]
    check_bits(lambda x: jax.lax.top_k(x, k), cases)


def test_argmax_and_argmin():
    cases = [values(*s) for s in SHAPES]
    tied = np.zeros((4, 9), np.float32)
    poisoned = values(4, 9)[0].copy()
    poisoned[1, 3] = poisoned[1, 7] = np.nan
    cases += [(tied,), (poisoned,)]
    check_bits(lambda x: (x.argmax(-1), x.argmin(-1), x.argmax(0)), cases)


def test_cumulative_sum_and_product():
    def cumulative(x):
        return jnp.cumsum(x, -1), jnp.cumsum(x, 0), jnp.cumprod(1 + 0.01 * x, -1)

    check(cumulative, [values(*s) for s in SHAPES[:4]])


def test_cumulative_sum_of_integers_and_maximum():
    def cumulative(x):
        return jnp.cumsum(x, -1), jax.lax.cummax(x, axis=1), jax.lax.cummin(x, axis=0, reverse=True)

    cases = [(rng_of(*s).integers(-99, 99, s, np.int32),) for s in SHAPES[:4]]
    check_bits(cumulative, cases)


def test_upper_median():
    def median(x):
        return jax.lax.dynamic_index_in_dim(jnp.sort(x, -1), x.shape[1] // 2, 1)

    check_bits(median, [values(*s) for s in SHAPES])


def test_greedy_sampling_of_nucleus():
    """Top-p: what is kept after sorting by probability; sort, cumulative sum, scatter back."""

    def nucleus(logits):
        order = jnp.argsort(-logits, -1)
        ordered = jnp.take_along_axis(jax.nn.softmax(logits, -1), order, -1)
        kept = jnp.cumsum(ordered, -1) - ordered < 0.8
        rows = jnp.arange(logits.shape[0])[:, None]
        return jnp.zeros(logits.shape, bool).at[rows, order].set(kept)

    check_bits(nucleus, [values(*s) for s in SHAPES[:4]])

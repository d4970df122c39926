"""What JAX does not check of symbolic sizes: a program that asks about sizes, reshapes, minima."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc


def ones(*shape):
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def same_as_jax(function, *calls, misses):
    """Every call gives what plain JAX gives; `misses` compilations in all."""
    f = shlo_disc.jit(function)
    for args in calls:
        want = jax.jit(function)(*args)
        got = f(*args)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert f.cache_info().misses == misses
    return f


def test_equal_shapes_asked_by_the_program_become_a_guard():
    def f(x, y):
        return x + y if x.shape == y.shape else x * 2

    made = same_as_jax(
        f,
        (ones(3), ones(4)),
        (ones(5), ones(9)),
        (ones(5), ones(5)),
        (ones(8), ones(8)),
        (ones(1), ones(2)),
        misses=2,
    )
    assert any("d0 != d1: the program compares d0 with d1" in g for g in made.guards())
    assert any(f"test_soundness.py:{f.__code__.co_firstlineno + 1}" in g for g in made.guards())


def test_equal_sizes_in_the_first_call():
    def f(x, y):
        return x + y if x.shape == y.shape else x * 2

    same_as_jax(f, (ones(5), ones(5)), (ones(3), ones(3)), (ones(3), ones(4)), misses=2)


def test_not_equal():
    def f(x):
        return x * 2 if x.shape[0] != 4 else x

    same_as_jax(f, (ones(3),), (ones(4),), (ones(5),), (ones(4),), (ones(1),), misses=2)


def test_size_one_squeezed_by_hand():
    def f(x):
        return x.squeeze(1) if x.shape[1] == 1 else x.sum(1)

    same_as_jax(f, (ones(9, 4),), (ones(9, 1),), (ones(2, 3),), (ones(1, 1),), misses=2)


def test_comparison_with_zero_is_no_guard():
    def f(x):
        return x * 2 if x.shape[0] == 0 else x + 1

    made = same_as_jax(f, (ones(3),), (ones(1),), (ones(0),), misses=2)
    assert "!= 0" not in made.explain()


def test_remainders_asked_by_the_program():
    def f(x):
        return x[::2] if x.shape[0] % 2 == 0 else x

    same_as_jax(f, (ones(3),), (ones(4),), (ones(5),), (ones(6),), (ones(1),), misses=2)


def test_order_asked_by_the_program():
    def f(x):
        return x * 2 if x.shape[0] > 4 else x

    made = same_as_jax(f, (ones(3),), (ones(4),), (ones(5),), (ones(9),), (ones(1),), misses=2)
    assert "4 >= d0: the program asks whether d0 > 4" in made.explain()


def test_comparison_in_a_cached_helper_is_seen_every_time():
    @functools.lru_cache
    def helper(n):
        return 1 if n == 3 else 2

    def f(x):
        return x * helper(x.shape[0])

    same_as_jax(f, (ones(3),), (ones(4),), (ones(5),), (ones(3),), misses=2)


def test_sizes_in_a_container():
    def f(x):
        return x * 2 if x.shape[0] in (2, 4) else x

    same_as_jax(f, (ones(3),), (ones(4),), (ones(2),), (ones(5),), misses=3)


def test_a_reshape_with_a_remainder_raises_as_in_jax():
    def f(x):
        return x.reshape(x.shape[0] // 4, 4)

    made = same_as_jax(f, (ones(8),), (ones(12),), (ones(4),), misses=1)
    assert "d0 = 4*d1 (dimension 0 of x): reshape of (d0)" in made.explain()
    with pytest.raises(TypeError, match="cannot reshape array of shape"):
        made(ones(10))
    with pytest.raises(TypeError, match="cannot reshape array of shape"):
        shlo_disc.jit(f)(ones(10))


def test_a_reshape_that_ties_two_arguments():
    def f(x, y):
        return x.reshape(y.shape) + y

    same_as_jax(f, (ones(12), ones(3, 4)), (ones(10), ones(5, 2)), (ones(7), ones(1, 7)), misses=1)
    with pytest.raises(TypeError, match="cannot reshape array of shape"):
        shlo_disc.jit(f)(ones(12), ones(3, 5))


def test_smaller_of_two_sizes():
    def f(x, table):
        return x + table[: x.shape[0]]

    same_as_jax(f, (ones(3), ones(8)), (ones(8), ones(8)), (ones(1), ones(2)), misses=1)
    with pytest.raises((TypeError, ValueError), match="incompatible shapes for broadcasting"):
        shlo_disc.jit(f)(ones(9), ones(8))


def test_python_min_of_two_sizes():
    def f(x, y):
        n = min(x.shape[0], y.shape[0])
        return x[:n] + y[:n]

    same_as_jax(f, (ones(3), ones(8)), (ones(4), ones(5)), (ones(9), ones(5)), misses=2)


def test_numbers_made_of_sizes():
    def f(x):
        return x.sum(0) / x.shape[0] + jnp.arange(x.shape[0] * 2)[-1]

    same_as_jax(f, (ones(3, 2),), (ones(1, 5),), (ones(7, 1),), misses=1)

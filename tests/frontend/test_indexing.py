"""Indexing by traced scalars: one compilation gives at all sizes the elements `jax.jit` gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc

REAL = True  # the stand-in runs places of any type as 32 bits


def elements(x, i):
    """Every way to write an index that is a slice of constant size for JAX."""
    return {
        "first": x[i],
        "last": x[..., i],
        "part": x[i, 1:],
        "back": x[i, ::-1],
        "back from": x[i, -2::-1, None],
        "back to": x[:0:-1, i],
        "none": x[None, i, :, None],
        "get": x.at[i].get(),
        "clip": x.at[:, i].get(mode="clip"),
        "several": x[jax.ds(i, 2)],
        "several and one": x[jax.ds(i, 2), :, i],
        "steps": x[i, ::1, :2],
    }


def outcome(function, *args):
    """The result's arrays, or the class of the error."""
    try:
        return jax.tree.map(np.asarray, function(*args))
    except OverflowError as error:
        return type(error)


def assert_equal(function, types, sizes=(5, 300, 7, 200)):
    compiled, reference = shlo_disc.jit(function), jax.jit(function)
    for dtype in types:
        limits = np.iinfo(dtype)
        for n in sizes:
            x = np.arange(n * 3 * 4, dtype=np.float32).reshape(n, 3, 4)
            places = {0, 1, n - 1, n, -1, -n, limits.min, limits.max - 1, limits.max}
            for place in sorted(p for p in places if limits.min <= p <= limits.max):
                i = jnp.asarray(np.array(place, dtype))
                found, expected = outcome(compiled, x, i), outcome(reference, x, i)
                where = f"{np.dtype(dtype).name} {place} of {n}"
                if isinstance(expected, type):
                    assert found is expected, where
                else:
                    jax.tree.map(
                        lambda a, b, w=where: np.testing.assert_array_equal(a, b, w),
                        found,
                        expected,
                    )
    assert compiled.cache_info().misses == len(types)


def test_a_scalar_of_any_type_takes_the_element_jax_takes():
    assert_equal(elements, (np.int8, np.uint32, np.int32), sizes=(5, 300))


def test_64_bit_places():
    with jax.enable_x64(True):
        assert_equal(elements, (np.int64, np.uint64), sizes=(5, 7))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.at[i].set(7.0),
        lambda x, i: x[jnp.stack([i, i])],
        lambda x, i: jnp.take(x, i, axis=0, mode="wrap"),
        lambda x, i: jnp.take_along_axis(x, jnp.full((1, 1, 4), i), 0),
    ],
    ids=["set", "array", "wrap", "along"],
)
def test_sizes_that_places_of_8_bits_cannot_hold_are_refused_as_in_jax(function):
    assert_equal(function, (np.int8,), sizes=(5, 200, 127))


def test_derivatives_and_batches():
    def loss(x, i):
        return (x[i, 1:] ** 2).sum() + x[jax.ds(i, 2)].sum()

    def outer(x, i):
        return jax.grad(loss)(x, i[0]), jax.vmap(lambda k: x[k, ::-1])(i)

    compiled = shlo_disc.jit(outer)
    for n in (4, 9):
        x = np.arange(n * 3.0, dtype=np.float32).reshape(n, 3)
        i = jnp.array([-1, 2, n + 4, -n - 3], jnp.int32)
        jax.tree.map(np.testing.assert_array_equal, compiled(x, i), jax.jit(outer)(x, i))
    assert compiled.cache_info().misses == 1


def test_a_place_in_a_loop():
    def rows(x):
        def step(k, total):
            return total + x[k, :] * lax.convert_element_type(k, x.dtype)

        return lax.fori_loop(jnp.uint8(0), jnp.uint8(3), step, jnp.zeros(x.shape[1], x.dtype))

    compiled = shlo_disc.jit(rows)
    for shape in ((3, 4), (5, 2)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(compiled(x), jax.jit(rows)(x))


def places_of_sizes(x):
    """Every way to write a place that is a size of `x`, in and out of bounds."""
    n, m = x.shape
    return {
        "middle": x[n // 2],
        "last": x[..., m - 1],
        "first": x[-n, -m],
        "behind": x[n],
        "before": x[:, -m - 1],
        "both": x[n // 2, m - 1],
        "part": x[n // 2, 1:],
        "array": x[n - 1, jnp.array([0, -1])],
        "of arrays": x[jnp.array([0, n // 2])],
        "none": x[None, n // 2, ...],
        "of a slice": x[n // 2 :][(n - 1) // 3],
        "fill": x.at[n].get(mode="fill", fill_value=7.0),
        "set": x.at[n // 2].set(1.0),
        "add": x.at[n - 1, m - 1].add(1.0),
        "drop": x.at[n].mul(2.0, mode="drop"),
        "clip": x.at[:, 2 * m].add(1.0, mode="clip"),
        "median": jnp.sort(x, 0)[(n - 1) // 2],
        "batch": jax.vmap(lambda row: row[m // 2])(x),
        "derivative": jax.grad(lambda x: (x[n // 2] ** 2).sum())(x),
        "of constants": jnp.arange(20)[n],
        "rounds": lax.fori_loop(0, n // 2, lambda i, sum: sum + x[i] * x[n - 1 - i], x[0]),
    }


def test_a_size_is_a_place():
    compiled, reference = shlo_disc.jit(places_of_sizes), jax.jit(places_of_sizes)
    for n, m in [(5, 4), (8, 3), (1, 6), (17, 2)]:
        x = jnp.asarray(np.random.default_rng(n).standard_normal((n, m), np.float32))
        jax.tree.map(np.testing.assert_array_equal, compiled(x), reference(x))
    assert compiled.cache_info().misses == 1

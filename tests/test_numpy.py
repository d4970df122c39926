"""`shlo_disc.numpy`: results of their true size, beside NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
import shlo_disc.numpy as snp
from tests.refused import unchanged

REAL = True

SIZES = [(5, 3), (1, 4), (17, 1), (64, 7), (2, 2), (130, 3)]


def numbers(rows, columns, seed=0, share=0.5):
    """Integers as floats, some of them zero, so that elements repeat."""
    rng = np.random.default_rng((seed, rows, columns))
    x = rng.integers(-3, 4, (rows, columns)).astype(np.float32)
    return np.where(rng.random(x.shape) < share, x, 0)


def alike(got, want):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    for ours, theirs in zip(got, want, strict=True):
        theirs = np.asarray(theirs)
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def many(np_, x, mask):
    return {
        "nonzero": np_.nonzero(x),
        "argwhere": np_.argwhere(x),
        "flatnonzero": np_.flatnonzero(x > 1),
        "compress": np_.compress(mask, x, axis=0),
        "compress flat": np_.compress(mask, x),
        "extract": np_.extract(x != 2, x),
    }


def more(np_, x, mask):
    return {
        "unique": np_.unique(x),
        "unique all": np_.unique(x, return_index=True, return_inverse=True, return_counts=True),
        "repeat": np_.repeat(x, np_.asarray(x[:, 0] * 0 + 2, "int32") + mask, axis=0),
        "repeat flat": np_.repeat(x, abs(np_.asarray(x.ravel(), "int32"))),
    }


class _Ours:
    asarray = staticmethod(lambda x, dtype: jnp.asarray(x).astype(dtype))

    def __getattr__(self, name):
        return getattr(snp, name)


@pytest.mark.parametrize("group", [many, more])
def test_beside_numpy(group):
    f = shlo_disc.jit(lambda x, mask: group(_Ours(), x, mask))
    for at in [*SIZES, SIZES[0]]:
        x = numbers(*at)
        mask = x[:, 0] != 0
        mask[0] = True
        alike(f(x, mask), group(np, x, mask))
    assert f.cache_info().misses <= 4  # some results have 0 elements at some sizes
    before = f.cache_info().misses
    for at in SIZES:
        x = numbers(*at)
        mask = x[:, 0] != 0
        mask[0] = True
        alike(f(x, mask), group(np, x, mask))  # the same bits, whatever was called before
    assert f.cache_info().misses == before


def test_outside_of_traces_they_are_numpys():
    x = numbers(6, 4)
    alike(many(_Ours(), jnp.asarray(x), x[:, 0] != 0), many(np, x, x[:, 0] != 0))
    alike(more(_Ours(), jnp.asarray(x), x[:, 0] != 0), more(np, x, x[:, 0] != 0))
    with pytest.raises(ValueError, match="scalar"):
        snp.nonzero(jnp.float32(3))
    with pytest.raises(ValueError, match="one dimension"):
        snp.compress(x != 0, x)


def test_with_a_bound_they_are_jaxs():
    x = jnp.asarray(numbers(6, 4))
    alike(jax.jit(lambda x: snp.nonzero(x, size=9))(x), jnp.nonzero(x, size=9))
    alike(jax.jit(lambda x: snp.argwhere(x, size=9))(x), jnp.argwhere(x, size=9))
    alike(jax.jit(lambda x: snp.unique(x, size=5))(x), jnp.unique(x, size=5))
    alike(jax.jit(lambda x: snp.extract(x, x, size=5))(x), jnp.extract(x, x, size=5))
    alike(snp.repeat(x, 2, 0), jnp.repeat(x, 2, 0))
    alike(snp.repeat(x, x[:, 0] > 0, 0, total_repeat_length=4),
          jnp.repeat(x, x[:, 0] > 0, 0, total_repeat_length=4))  # fmt: skip


def test_unique_of_nan_and_of_nothing():
    x = np.array([2, np.nan, -0.0, 1, np.nan, 0.0, -np.inf], np.float32)
    f = shlo_disc.jit(lambda x: snp.unique(x, return_counts=True))
    g = shlo_disc.jit(lambda x: snp.unique(x, return_counts=True, equal_nan=False))
    for n in (7, 3, 0, 1):
        alike(f(x[:n]), np.unique(x[:n], return_counts=True))
        alike(g(x[:n]), np.unique(x[:n], return_counts=True, equal_nan=False))


def chosen(x):
    """A function whose size from data flows through products, sorts, loops and results."""
    place = snp.flatnonzero(x[:, 0] > 0)
    y = x[place]
    z = jnp.tanh(y @ y.T).sum(1)
    walked, _ = jax.lax.scan(lambda a, row: (a / 2 + row, None), jnp.zeros(x.shape[1]), y)
    return {
        "rows": y,
        "sorted": jnp.sort(z),
        "with others": jnp.concatenate([z, jnp.zeros(x.shape[0])]),
        "mean": y.sum(0) / y.shape[0],
        "walked": walked,
        "count": y.shape[0] * 2,
    }


def chosen_by_numpy(x):
    y = x[x[:, 0] > 0].astype(np.float64)
    z = np.tanh(y @ y.T).sum(1)
    walked = np.zeros(x.shape[1])
    for row in y:
        walked = walked / 2 + row
    with np.errstate(invalid="ignore"):
        mean = y.sum(0) / np.float64(len(y))
    return {
        "rows": y,
        "sorted": np.sort(z),
        "with others": np.concatenate([z, np.zeros(len(x))]),
        "mean": mean,
        "walked": walked,
        "count": 2 * len(y),
    }


def test_the_size_flows_on():
    f = shlo_disc.jit(chosen)
    for at in ((9, 4), (30, 4), (12, 2), (9, 4)):
        alike(f(numbers(*at)), chosen_by_numpy(numbers(*at)))
    assert f.cache_info().misses == 1
    nothing = -np.abs(numbers(6, 3)) - 1
    alike(f(nothing), chosen_by_numpy(nothing))
    alike(f(numbers(20, 4)), chosen_by_numpy(numbers(20, 4)))
    assert f.cache_info().misses == 2  # no elements: a program of its own, as for sizes of 0
    assert f.cache_info().currsize == 1


def loss(x):
    y = x[snp.flatnonzero(x[:, 0] > 0)]
    return jnp.tanh(y @ y.T).sum() / y.shape[0]


def loss_at(place):
    def function(x):
        y = x[place]
        return jnp.tanh(y @ y.T).sum() / len(place)

    return function


@pytest.mark.parametrize(
    "way", ["outside", "inside", pytest.param("value", marks=pytest.mark.slow)]
)
def test_gradients(way):
    f = {
        "outside": lambda: jax.grad(shlo_disc.jit(loss)),
        "inside": lambda: shlo_disc.jit(jax.grad(loss)),
        "value": lambda: lambda x: jax.value_and_grad(shlo_disc.jit(loss))(x)[1],
    }[way]()
    for at in ((9, 4), (16, 3), (31, 5)):
        x = numbers(*at)
        (place,) = np.nonzero(x[:, 0] > 0)
        alike(f(x), jax.jit(jax.grad(loss_at(place)))(x))


def test_questions_about_sizes_from_data():
    def function(x):
        place = snp.flatnonzero(x)
        if place.shape[0] > 10:
            return x[place][:10].sum()
        if place.shape[0] % 2:
            return x[place].prod()
        return -x[place].sum()

    f = shlo_disc.jit(function)
    for n in (3, 4, 30, 7, 8, 50, 6):
        x = np.linspace(0.5, 1, n, dtype=np.float32)
        alike(f(x), x[:10].sum() if n > 10 else x.prod() if n % 2 else -x.sum())
    assert f.cache_info().misses <= 5


def test_an_error_of_the_program_for_sizes_it_assumed():
    """The first trace assumes a size; an assert that it breaks is asked with the true one."""

    def function(x):
        place = snp.flatnonzero(x)
        assert place.shape[0] == 5
        return x[place].reshape(5, 1)

    f = shlo_disc.jit(function)
    alike(f(np.ones(5, np.float32)), np.ones((5, 1)))
    alike(f(np.array([0, 1, 2, 3, 4, 5], np.float32)), np.arange(1, 6)[:, None])
    with pytest.raises(AssertionError):
        f(np.ones(6, np.float32))


def test_two_sizes_and_sizes_of_sizes():
    def function(x, y):
        a, b = snp.flatnonzero(x > 0), snp.flatnonzero(y > 0)
        c = snp.flatnonzero(x[a] > 1)
        return x[a][:, None] * y[b], x[a][c], jnp.concatenate([a, b, c])

    def by_numpy(x, y):
        (a,), (b,) = np.nonzero(x > 0), np.nonzero(y > 0)
        (c,) = np.nonzero(x[a] > 1)
        return x[a][:, None] * y[b], x[a][c], np.concatenate([a, b, c])

    f = shlo_disc.jit(function)
    for n, m in ((20, 30), (11, 50), (40, 13)):
        x, y = numbers(n, 1, share=0.9)[:, 0], numbers(m, 1, 1, share=0.9)[:, 0]
        alike(f(x, y), by_numpy(x, y))
    assert f.cache_info().misses == 1


def test_with_what_xla_runs():
    def function(x):
        y = x[snp.flatnonzero(x > 0)]
        return unchanged(y) * 2, jax.pure_callback(
            np.sin, jax.ShapeDtypeStruct(y.shape, y.dtype), y
        )

    f = shlo_disc.jit(function, on_unsupported="xla")
    for n in (9, 14):
        x = numbers(n, 1, share=0.9)[:, 0]
        y = x[x > 0]
        alike(f(x), (y * 2, np.sin(y)))
    assert "pure_callback" not in f.explain().splitlines()[0]
    with pytest.raises(shlo_disc.UnsupportedError, match="requires a constant"):
        shlo_disc.jit(function)(x)


WHERE = {
    "jax.jit": lambda f, x: jax.jit(f)(x),
    "jax.jit around ours": lambda f, x: jax.jit(shlo_disc.jit(f))(x),
    "vmap": lambda f, x: shlo_disc.jit(jax.vmap(f))(x[None]),
    "scan": lambda f, x: shlo_disc.jit(lambda x: jax.lax.scan(lambda c, _: (c + f(x), 0), 0.0, x))(
        x
    ),
    "twice": lambda f, x: called_twice(jax.jit(f), x),
}


def called_twice(f, x):
    return shlo_disc.jit(lambda x: f(x) + f(x + 1))(x)


@pytest.mark.parametrize("where", WHERE)
def test_where_no_number_is_known(where):
    def function(x):
        return x[snp.flatnonzero(x)].sum()

    with pytest.raises(shlo_disc.UnsupportedError, match="size"):
        WHERE[where](function, np.ones(5, np.float32))

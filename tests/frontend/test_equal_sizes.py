"""Lengths that are equal in a call, and written differently: compared, guarded, compiled once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import sparse

import shlo_disc
from tests.cases import all_but, slow


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@jax.custom_batching.custom_vmap
def product(a, b):
    return a * b


@product.def_vmap
def _(size, batched, a, b):
    del size, batched
    return a * b, True


def loop(a, b):
    return lax.scan(lambda c, v: (jnp.sin(c) + v[0] * v[1], c), 0.0, (a, b))


NEED_EQUAL = {
    "vmap": jax.vmap(lambda u, v: u * v),
    "scan": loop,
    "length of scan": lambda a, b: lax.scan(lambda c, u: (c, u), 0.0, a, length=b.shape[0])[1],
    "map": lambda a, b: lax.map(lambda t: t[0] * t[1], (a, b)),
    "map in batches": lambda a, b: lax.map(lambda t: t[0] * t[1], (a, b), batch_size=2),
    "stack": lambda a, b: jnp.stack([a, b]),
    "lexsort": lambda a, b: jnp.lexsort((a, b)),
    "custom_vmap": jax.vmap(product),
    "associative_scan": lambda a, b: lax.associative_scan(
        lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b)
    ),
    "gradient of vmap": jax.grad(lambda a, b: jax.vmap(jnp.multiply)(a, b).sum(), (0, 1)),
    "gradient of scan": jax.grad(lambda a, b: loop(a, b)[0], (0, 1)),
    "vmap of vmap": lambda a, b: jax.vmap(lambda u: jax.vmap(lambda v, w: u * v * w)(a, b))(b),
    "carried": lambda a, b: lax.fori_loop(0, 3, lambda i, c: b + c, a),
    "branches": lambda a, b: lax.cond(a.sum() > 0, lambda: a, lambda: b),
    "vectorize": jnp.vectorize(lambda u, v: u + v),
}
"""Functions of two arrays that JAX refuses for unequal lengths."""

CALLS = ((5, 6), (16, 15), (13, 13))
"""Lengths of two arguments whose halves, rounded up, are equal."""


def halves_of(function):
    return lambda x, y: function(x[::2], y[::2])


def assert_alike(ours, theirs, *arrays):
    got, want = jax.tree.leaves(ours(*arrays)), jax.tree.leaves(theirs(*arrays))
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


FEW = {"vmap", "scan", "map in batches", "stack", "gradient of scan"}
FEW_CAUGHT = {"vmap", "scan", "stack"}
FEW_WAYS = {"frames", "halves of a half"}


@pytest.mark.parametrize("name", all_but(NEED_EQUAL.keys() - FEW, NEED_EQUAL))
def test_lengths_of_two_arguments_are_compared_and_guarded(name):
    f = shlo_disc.jit(halves_of(NEED_EQUAL[name]))
    theirs = jax.jit(halves_of(NEED_EQUAL[name]))
    for n, m in CALLS:
        assert_alike(f, theirs, normal(n), normal(m))
    assert f.cache_info().misses == 1, f.guards()
    # Unequal ones are refused as by JAX, and with its words.
    with pytest.raises((AssertionError, TypeError, ValueError)) as wanted:
        theirs(normal(9), normal(20))
    with pytest.raises(type(wanted.value)) as found:
        f(normal(9), normal(20))
    assert str(found.value).splitlines()[:1] == str(wanted.value).splitlines()[:1]


@pytest.mark.parametrize("name", all_but(NEED_EQUAL.keys() - FEW_CAUGHT, NEED_EQUAL))
@pytest.mark.parametrize("calls", [((5, 8), (8, 8), (7, 8)), ((8, 7), (5, 8))])
def test_a_refusal_that_the_program_catches_is_one_of_its_sizes(name, calls):
    def function(x, y):
        try:
            return halves_of(NEED_EQUAL[name])(x, y)
        except (AssertionError, TypeError, ValueError):
            return -x

    f = shlo_disc.jit(function)
    for n, m in calls:
        assert_alike(f, jax.jit(function), normal(n), normal(m))


TWO_WAYS = {
    "positions of chunks": lambda x: jax.vmap(lambda row, k: row.sum() * k)(
        jnp.pad(x, (0, -len_of(x) % 4)).reshape(-1, 4), jnp.arange((len_of(x) + 3) // 4)
    ),
    "frames": lambda x: lax.map(
        lambda t: t[0].sum() * t[1],
        (
            x[jnp.arange(1 + (len_of(x) - 4) // 2)[:, None] * 2 + jnp.arange(4)],
            jnp.arange(0, len_of(x) - 3, 2),
        ),
    ),
    "mask of two convolutions": lambda x: jax.vmap(jnp.multiply)(halved(halved(x)), x[::4]),
    "even and odd": lambda x: jnp.stack([x, jnp.concatenate([x[::2], x[1::2]])]),
    "halves of a half": lambda x: jnp.stack([second(second(x)), second(x[::2])]),
    "repeated": lambda x: jax.vmap(jnp.multiply)(
        jnp.repeat(x[: len_of(x) // 2], 2), x[: len_of(x) // 2 * 2]
    ),
    "strided from within": lambda x: (
        jnp.repeat(x[3::4], 4) * x[: len_of(x) // 4 * 4].reshape(-1, 4).T.reshape(-1)
    ),
}
"""One length, written in two ways, that are equal at every size."""

FROM_SOME_SIZE = {
    "border": lambda x: lax.map(
        lambda t: t[0] * t[1],
        tuple(jnp.split(jnp.concatenate([x, x[:2]])[: (len_of(x) + 2) // 2 * 2], 2)),
    ),
    "prefixes": lambda x: lax.associative_scan(
        lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]),
        (jnp.arange(0, len_of(x) - 3, 2) * 0.1, x[: (len_of(x) - 2) // 2]),
    ),
    "cut and filled": lambda x: jnp.pad(x[3:], (3, 0)) * x,
}
"""The same, equal if there are some elements."""


def len_of(x):
    return x.shape[0]


def second(x):
    return x[x.shape[0] // 2 :]


def halved(x):
    return lax.conv_general_dilated(x[None, None], jnp.ones((1, 1, 3)), (2,), [(1, 1)])[0, 0]


@pytest.mark.parametrize("name", all_but(TWO_WAYS.keys() - FEW_WAYS, TWO_WAYS))
def test_a_length_in_two_ways_is_one_length(name):
    f = shlo_disc.jit(TWO_WAYS[name], dynamic=True)
    for n in (5, 8, 23):
        assert_alike(f, jax.jit(TWO_WAYS[name]), normal(n))
    assert f.cache_info().misses == 1
    if name != "frames":  # of fewer rows than a frame: max((n - 2) // 2, 0)
        assert not any("==" in guard for guard in f.guards()), f.guards()


@pytest.mark.parametrize("name", FROM_SOME_SIZE)
def test_a_length_in_two_ways_is_one_length_from_some_size_on(name):
    f = shlo_disc.jit(FROM_SOME_SIZE[name])
    for n in (8, 5, 23, 4):  # a multiple of 4 first, which is no reason to make it one
        assert_alike(f, jax.jit(FROM_SOME_SIZE[name]), normal(n))
    assert f.cache_info().misses == 1


OUTER = {
    "rows of rows": lambda x, y: jax.vmap(lambda a: jax.vmap(lambda b: a * b + a)(y))(x),
    "columns of rows": lambda x, y: jax.vmap(lambda b: jax.vmap(lambda a: a - b)(x), out_axes=1)(y),
    "by places": lambda x, y: jnp.fromfunction(lambda i, j: i + 2 * j, x.shape + y.shape),
    "one for all": jax.vmap(lambda a, b: a * b, (0, None)),
}
"""Functions of two lengths that need not be equal."""


@pytest.mark.parametrize("name", OUTER)
@pytest.mark.parametrize("n", [5, 1])
def test_lengths_that_are_equal_by_chance_are_not_made_one(name, n):
    f = shlo_disc.jit(OUTER[name])
    for size in (n, n), (3, 8):
        assert_alike(f, jax.jit(OUTER[name]), *map(normal, size))
    assert f.cache_info().misses == 1


def test_sparse_matrices_of_any_size_are_put_together():
    def program(x):
        places = jnp.stack([jnp.arange(x.shape[0])] * 2, 1)
        matrix = sparse.BCOO((x, places), shape=(x.shape[0],) * 2)
        return sparse.bcoo_concatenate([matrix, matrix], dimension=0).todense()

    f = shlo_disc.jit(program)
    for n in (3, 1, 4):
        x = np.arange(1, n + 1, dtype=np.float32)
        np.testing.assert_array_equal(f(x), np.vstack([np.diag(x)] * 2))
    assert f.cache_info().misses == 1


def test_places_in_a_sparse_matrix_may_be_sizes():
    def half(x):
        size = x.shape[1]
        matrix = sparse.BCOO.fromdense(x, nse=3)
        part = sparse.bcoo_slice(matrix, start_indices=(0, size // 2), limit_indices=(2, size))
        return part.todense()

    f = shlo_disc.jit(half)
    for n in (5, 8):
        x = np.where(np.arange(n) == n - 1, 2.0, 0.0).astype(np.float32) * np.ones((3, 1), "f")
        assert_alike(f, jax.jit(half), x)
    assert f.cache_info().misses == 1


def test_what_is_empty_at_every_size_is_no_difference():
    def f(x):
        none = x[:, :1][-2:, 1:]  # at numbers, an operation on no elements follows
        return jnp.maximum(jnp.sum(none + x.shape[0]), x)

    g = shlo_disc.jit(f)
    for n in (3, 2, 7):
        assert_alike(g, jax.jit(f), np.ones((n, 5), np.float32))
    assert g.cache_info().misses == 1


def test_checks_of_jax_take_sizes_that_guards_make_equal():
    with jax.enable_checks(True):
        f = shlo_disc.jit(lambda x, y: lax.map(lambda t: t[0] + t[1], (x, y)), donate_argnums=0)
        for n in (3, 5):
            np.testing.assert_array_equal(f(jnp.ones(n), jnp.ones(n)), np.full(n, 2.0))


def test_batches_of_map_leave_any_number_of_rows():
    def function(x):
        return lax.map(lambda v: jnp.sin(v) * x.sum(), x, batch_size=4)

    f = shlo_disc.jit(function)
    for n in (9, 8, 4, 23):
        assert_alike(f, jax.jit(function), normal(n))
    assert f.cache_info().misses == 1


def test_numbers_as_places_of_a_slice_are_strongly_typed():
    def function(x):
        weak = jnp.arange(x.shape[0]) * 0.5
        return lax.dynamic_update_slice(weak, weak[1:], (0,))

    f = shlo_disc.jit(function)
    assert f(normal(5)).weak_type == jax.jit(function)(normal(5)).weak_type
    f(normal(8))
    assert f.cache_info().misses == 1


ARANGES = {
    "start": lambda n: jnp.arange(1.0, n + 1),
    "start of NumPy": lambda n: jnp.arange(np.float64(2), n),
    "step down": lambda n: jnp.arange(n, 0.0, -2),
    "integers": lambda n: jnp.arange(0.0, n, dtype=jnp.int32),
}
"""Calls of `jnp.arange` with a size and whole floats."""


def test_arange_takes_whole_floats():
    def function(x):
        return [way(x.shape[0]) for way in ARANGES.values()]

    f = shlo_disc.jit(function)
    for n in (5, 8, 1):
        for name, got, want in zip(
            ARANGES, f(normal(n)), jax.jit(function)(normal(n)), strict=True
        ):
            assert (got.dtype, got.weak_type) == (want.dtype, want.weak_type), name
            np.testing.assert_array_equal(got, want, name)
    assert f.cache_info().misses == 1


def test_a_message_that_a_library_writes_first_is_no_question():
    """As `chex.assert_axis_dimension` does: an error of the trace alone has the message."""
    source = """
def assert_axis_dimension(x, axis, expected):
    message = f"axis {axis} is {x.shape[axis]}, not {expected}"
    if x.shape[axis] != expected:
        raise AssertionError(message)
"""
    names = {}
    exec(compile(source, "/packages/chex/_src/asserts.py", "exec"), names)

    def function(x, y):
        names["assert_axis_dimension"](y, 0, 2 * x.shape[0])
        return y[::2] + x

    f = shlo_disc.jit(function)
    for n in (3, 5, 8):
        assert_alike(f, jax.jit(function), normal(n), normal(2 * n))
    assert f.cache_info().misses == 1, f.guards()
    with pytest.raises(AssertionError, match="axis 0 is 7, not 10"):
        f(normal(5), normal(7))


@pytest.mark.parametrize("calls", [(5, 1, 8), (1, 5)])
@pytest.mark.parametrize("transform", [jax.grad, *slow([jax.hessian])])
def test_the_order_of_products_in_the_derivative_of_a_solve_is_no_question(transform, calls):
    def likelihood(scale, y):
        kernel = scale * jnp.eye(y.shape[0]) + jnp.ones((y.shape[0],) * 2)
        z = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(kernel), y, lower=True)
        return 0.5 * z @ z

    function = transform(likelihood)
    f = shlo_disc.jit(function)
    for n in calls:
        assert_alike(f, jax.jit(function), np.float32(0.5), normal(n))
    assert f.cache_info().misses == 1, f.guards()


def test_chunks_of_one_size_by_weights_of_any():
    """`hoist-projections` leaves a slice whose sizes are numbers."""

    def function(x, w):
        def step(total, chunk):
            return total + jax.nn.logsumexp(chunk @ w, 1).sum(), None

        chunks = jnp.pad(x, ((0, -x.shape[0] % 4), (0, 0))).reshape(-1, 4, 3)
        return lax.scan(step, 0.0, chunks)[0]

    f = shlo_disc.jit(function)
    for n in (5, 8, 13):
        assert_alike(f, jax.jit(function), normal(n, 3), normal(3, n))
    assert f.cache_info().misses == 1, f.guards()

"""donate_argnums: memory taken over, arrays deleted, nobody's data changed."""

import sys
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral


def ours(function):
    """Arrays of shlo_disc, whose memory can be taken over."""
    return shlo_disc.jit(function)


def update(w, g):
    return w - 0.1 * g


def cache_step(cache, row, at):
    return jax.lax.dynamic_update_slice(cache, row, (at, 0))


def fresh(shape, value=1.0):
    return ours(lambda x: x * value)(jnp.ones(shape))


def address(array):
    return array.unsafe_buffer_pointer()


def test_an_update_is_written_where_the_donated_array_was():
    f = shlo_disc.jit(update, donate_argnums=0)
    w, g = fresh((64, 48), 3.0), jnp.ones((64, 48))
    where = address(w)
    new = f(w, g)
    assert w.is_deleted()
    assert not g.is_deleted()
    assert address(new) == where
    np.testing.assert_allclose(new, np.full((64, 48), 2.9), rtol=1e-6)
    for _ in range(3):
        new = f(new, g)
    assert address(new) == where
    np.testing.assert_allclose(new, np.full((64, 48), 2.6), rtol=1e-6)


def test_a_slice_is_updated_in_place():
    f = shlo_disc.jit(cache_step, donate_argnums=0)
    cache = fresh((1000, 64), 0.0)
    where = address(cache)
    for at in range(5):
        cache = f(cache, jnp.full((1, 64), at + 1.0), at)
        assert address(cache) == where
    np.testing.assert_array_equal(cache[:6, 0], [1, 2, 3, 4, 5, 0])
    exe = f.lower(cache, jnp.ones((1, 64)), 0).compile()
    sizes = dict.fromkeys(exe.executable.program.symbol_names, 10)
    memory = exe.memory_analysis(sizes)
    assert memory["alias_size_in_bytes"] == memory["output_size_in_bytes"]
    assert memory["peak_memory_in_bytes"] < 2 * memory["output_size_in_bytes"] + 4096


def test_memory_in_use_does_not_grow_while_training():
    f = shlo_disc.jit(lambda p, x: jax.tree.map(lambda w: w - 0.1 * x.mean(), p), donate_argnums=0)
    p = f({"a": jnp.ones(1000), "b": jnp.ones((30, 40))}, jnp.ones(3))
    p = f(p, jnp.ones(3))
    before = ral.pool_stats()["in_use_bytes"]
    for _ in range(20):
        p = f(p, jnp.ones(3))
    assert ral.pool_stats()["in_use_bytes"] <= before
    np.testing.assert_allclose(p["a"], np.full(1000, 1 - 2.2), rtol=1e-5)


def test_what_numpy_looks_at_is_not_overwritten():
    f = shlo_disc.jit(update, donate_argnums=0)
    w = fresh((64, 48), 3.0)
    seen = np.asarray(w)
    new = f(w, jnp.ones((64, 48)))
    assert w.is_deleted()
    np.testing.assert_array_equal(seen, np.full((64, 48), 3.0, np.float32))
    np.testing.assert_allclose(new, np.full((64, 48), 2.9), rtol=1e-6)


def test_what_dlpack_looks_at_is_not_overwritten():
    f = shlo_disc.jit(update, donate_argnums=0)
    w = fresh((64, 48), 3.0)
    seen = np.from_dlpack(w)
    f(w, jnp.ones((64, 48)))
    np.testing.assert_array_equal(seen, np.full((64, 48), 3.0, np.float32))


def test_arrays_of_jax_are_deleted_and_read_before():
    f = shlo_disc.jit(update, donate_argnums=0)
    w = jnp.full((64, 48), 3.0)
    new = f(w, jnp.ones((64, 48)))
    assert w.is_deleted()
    np.testing.assert_allclose(new, np.full((64, 48), 2.9), rtol=1e-6)
    # numpy arrays and numbers are left alone
    mine = np.full((64, 48), 3.0, np.float32)
    f(mine, np.ones((64, 48), np.float32))
    assert mine[0, 0] == 3.0


def test_the_same_array_twice_is_refused_and_kept():
    f = shlo_disc.jit(update, donate_argnums=0)
    w = fresh((8, 8))
    with pytest.raises(TypeError, match="is donated and is argument 1, too"):
        f(w, w)
    assert not w.is_deleted()


def test_a_deleted_array_is_refused():
    f = shlo_disc.jit(update, donate_argnums=0)
    w = fresh((8, 8))
    f(w, jnp.ones((8, 8)))
    with pytest.raises((TypeError, RuntimeError), match="deleted"):
        f(w, jnp.ones((8, 8)))


def test_by_name_negative_position_and_in_a_pytree():
    def step(p, x):
        return {"w": p["w"] + x}, x.sum()

    for options in ({"donate_argnames": "p"}, {"donate_argnums": -2}, {"donate_argnums": (0,)}):
        f = shlo_disc.jit(step, **options)
        p = {"w": fresh((32, 32))}
        where = address(p["w"])
        new, _ = f(p, jnp.ones((32, 32)))
        assert address(new["w"]) == where
        assert p["w"].is_deleted()


def test_what_is_read_later_is_not_overwritten_too_early():
    def f(x, y):
        z = x + y
        return z, x.T @ z, z[::-1] * x

    expected = [np.asarray(r) for r in f(jnp.full((32, 32), 2.0), jnp.ones((32, 32)))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = shlo_disc.jit(f, donate_argnums=0)(fresh((32, 32), 2.0), jnp.ones((32, 32)))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[::-1],
        lambda x: x.T,
        lambda x: jnp.roll(x, 1, 0),
        lambda x: x - x.mean(0),
        lambda x: jnp.where(x > 0, x, x[0, 0]),
        lambda x: x @ x,
        lambda x: jnp.sort(x, -1),
        jax.nn.softmax,
        lambda x: jnp.cumsum(x, 0),
        lambda x: x.at[jnp.array([1, 3])].add(x[5:7]),
        lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y * 2 + y.T, x),
        lambda x: (x * 2, x + 1),
        lambda x: (x.reshape(8, 128) * 2).reshape(32, 32),
    ],
)
def test_results_are_those_without_donation(function):
    data = np.random.default_rng(0).standard_normal((32, 32), np.float32)
    expected = function(jnp.asarray(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = shlo_disc.jit(function, donate_argnums=0)(ours(lambda x: x + 0)(data))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_unusable_donations_are_named_once():
    f = shlo_disc.jit(lambda x: x.sum(), donate_argnums=0)
    with pytest.warns(UserWarning, match=r"no result can use the memory of donated arguments x; "):
        f(jnp.ones((3, 4)))
    x = jnp.ones((3, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(x)
    assert not x.is_deleted()


TAKEN = {
    "unused": lambda p, q: p + 1,
    "unused though it would fit": lambda p, q: p.sum() + jnp.ones(q.shape),
    "size alone": lambda p, q: p + q.shape[0],
    "value computed for nothing": lambda p, q: (jnp.sin(q), p + 1)[1],
    "no result of its size": lambda p, q: p + q.sum(),
    "no result of its type": lambda p, q: (p, q > 0),
    "one result for two": lambda p, q: p[:1] * q,
    "result": lambda p, q: (p, q * 2),
    "the argument itself": lambda p, q: (q, p),
    "a later result": lambda p, q: (p[0] + q, q.sum(), q - 1),
    "a loop's state": lambda p, q: jax.lax.fori_loop(0, 3, lambda _, y: y * 2 + p[0], q),
    "a branch": lambda p, q: jax.lax.cond(p[0] > 0, lambda: q, lambda: q + p[0]),
}


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("numbers", [1, (0, 1)])
def test_arrays_are_deleted_that_jax_deletes(name, numbers):
    deleted = []
    for jit in (jax.jit, shlo_disc.jit):
        f = jit(TAKEN[name], donate_argnums=numbers)
        for size in (4, 6):
            p, q = jnp.ones(3), jnp.ones(size)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                f(p, q)
            deleted.append((p.is_deleted(), q.is_deleted()))
    assert deleted[:2] == deleted[2:]


def test_equal_sizes_of_a_version_are_one_size_here():
    f = shlo_disc.jit(lambda w, g: g - 0.1 * w, donate_argnums=0)
    for n in (3, 5):
        w = jnp.ones((n, 4))
        f(w, jnp.ones((n, 4)))
        assert w.is_deleted()
    assert f.cache_info().misses == 1


def outcome(function, *args):
    """The first array of the result, or None where an array was deleted."""
    try:
        return np.asarray(jax.tree.leaves(function(*args))[0])
    except (RuntimeError, ValueError) as error:
        return None if "deleted" in str(error) else error


@pytest.mark.parametrize("name", TAKEN)
def test_a_deleted_array_is_taken_where_jax_takes_it(name):
    found = []
    for jit in (jax.jit, shlo_disc.jit):
        known, new = jit(TAKEN[name]), jit(TAKEN[name])
        nested = jit(lambda tree: TAKEN[name](tree["p"], tree["q"]))
        p, q = jnp.ones(3), jnp.ones(4)
        known(p, q)
        known(p, q)
        q.delete()
        found.append(
            [
                outcome(known, p, q),
                outcome(known, np.ones(3, np.float32), q),
                outcome(new, p, q),
                outcome(nested, {"p": p, "q": q}),
            ]
        )
    assert [a is None for a in found[0]] == [a is None for a in found[1]]
    for theirs, ours in zip(*found, strict=True):
        if ours is not None:
            np.testing.assert_array_equal(ours, theirs)


def test_an_array_that_is_not_read_is_not_waited_for():
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, y: jnp.tanh(y @ y), x))
    f = shlo_disc.jit(lambda p, q: p * q.shape[0])
    p, q = jnp.ones(3), jnp.ones((400, 400))
    slow(q).block_until_ready()
    f(p, q)
    late = slow(q)
    f(p, late)
    assert not late.is_ready()


def test_static_and_donated_exclude_each_other():
    with pytest.raises(ValueError, match="cannot be static and donated"):
        shlo_disc.jit(update, static_argnums=0, donate_argnums=0)


@pytest.fixture
def eager_threads():
    """Threads give way at every chance, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(works):
    """What each function returns or raises, all started at the same moment."""
    start = threading.Barrier(len(works))
    outcomes = [None] * len(works)

    def run(k):
        start.wait()
        try:
            outcomes[k] = works[k]()
        except (TypeError, RuntimeError) as error:
            outcomes[k] = error

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_threads_that_donate_the_same_array_get_one_result(eager_threads):
    f = shlo_disc.jit(update, donate_argnums=0)
    make = ours(lambda x: x * 3.0)
    g = jnp.ones((256, 256))
    f(make(g), g)
    for _ in range(200):
        w = make(g)
        outcomes = at_once([lambda w=w: f(w, g)] * 4)
        (result,) = [x for x in outcomes if not isinstance(x, Exception)]
        errors = [x for x in outcomes if isinstance(x, Exception)]
        assert all("deleted or donated" in str(error) for error in errors)
        np.testing.assert_allclose(result, np.full((256, 256), 2.9), rtol=1e-6)


def test_a_thread_that_reads_what_another_donates_sees_it_whole(eager_threads):
    f = shlo_disc.jit(update, donate_argnums=0)
    total = ours(lambda w: jnp.sum(w * 2.0, axis=1))
    make = ours(lambda x: x * 3.0)
    g = jnp.ones((256, 256))
    f(make(g), g), total(g)
    for _ in range(200):
        w = make(g)
        new, *sums = at_once([lambda w=w: f(w, g), *[lambda w=w: total(w)] * 3])
        np.testing.assert_allclose(new, np.full((256, 256), 2.9), rtol=1e-6)
        for result in sums:
            if isinstance(result, Exception):
                assert "deleted or donated" in str(result)
            else:
                np.testing.assert_allclose(result, np.full(256, 1536.0))


def test_inside_jax_jit_nothing_is_donated():
    f = shlo_disc.jit(update, donate_argnums=0)
    w = fresh((16, 16), 3.0)
    new = jax.jit(lambda w: f(w, jnp.ones((16, 16))) + w)(w)
    np.testing.assert_allclose(new, np.full((16, 16), 5.9), rtol=1e-6)
    assert not w.is_deleted()


def test_a_profile_leaves_donated_arrays_alone():
    f = shlo_disc.jit(update, donate_argnums=0)
    w, g = fresh((64, 48), 3.0), jnp.ones((64, 48))
    assert f.profile(w, g).kernels
    assert not w.is_deleted()

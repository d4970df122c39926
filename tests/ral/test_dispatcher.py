"""The dispatcher: which calls it runs, and that the slow way sees the others."""

from __future__ import annotations

import functools
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import jax_private, ral
from shlo_disc.executables.bridge import jax_bridge
from shlo_disc.jax import function
from tests.cases import slow


def scaled(p, x):
    return {"y": p["w"] * x, "n": x.sum()}


def entries(f):
    return [entry.native.calls for entry in f._entries.values() if entry.native is not None]


def test_calls_seen_before_run_without_python():
    f = shlo_disc.jit(scaled)
    p, x = {"w": jnp.arange(6.0)}, jnp.ones(6)
    for _ in range(4):
        out = f(p, x)
    assert entries(f) == [3]
    np.testing.assert_array_equal(out["y"], np.arange(6))
    assert f.cache_info() == (3, 1, None, 1)
    f(p, x=x)  # another structure
    f(p, x=x)
    assert sorted(entries(f)) == [1, 3]


def test_numpy_arrays_and_numbers_run_without_python():
    f = shlo_disc.jit(lambda x, y: x * y)
    wide = np.arange(12, dtype=np.float32).reshape(3, 4)
    for x in (np.ones((4, 3), np.float32), wide.T, wide.T, jnp.asarray(wide.T)):
        for y in (2.0, 3, True):
            np.testing.assert_array_equal(f(x, y), np.asarray(x) * y)
    assert sorted(entries(f)) == [0, 0, 0, 2, 2, 2]
    assert f(wide, 2.0).dtype == jnp.float32
    with pytest.raises(OverflowError):
        f(wide, 1 << 40)


def test_numpy_is_converted_without_python():
    f = shlo_disc.jit(lambda x: x * 2)
    swapped = np.arange(3, dtype=">f4")
    for x in (np.arange(3.0), swapped, np.float32(3), np.float64(0.1), np.arange(6.0)[::2]):
        for _ in range(2):
            result = f(x)
            assert result.dtype == jnp.float32
            np.testing.assert_array_equal(result, np.asarray(x, np.float32) * 2)
    tokens = np.arange(12).reshape(3, 4)
    g = shlo_disc.jit(lambda table, tokens: table[tokens])
    table = jnp.arange(20.0)
    for n in (3, 2, 3, 1):
        np.testing.assert_array_equal(g(table, tokens[:n]), tokens[:n])
    assert g.cache_info() == (3, 1, None, 1)
    assert entries(g) == [1]
    with pytest.raises(TypeError, match="object"):
        f(np.array([None, 1]))


def test_an_array_of_another_class_goes_the_other_way():
    f = shlo_disc.jit(lambda x: x * 2)
    for _ in range(2):
        assert f(np.ones(3, np.float32).view(np.recarray)).dtype == jnp.float32
    assert entries(f) == []
    f(jnp.ones(3))
    f(jnp.ones(3))
    assert entries(f) == [1]


class Scale:
    """A static value, equal to others like it."""

    def __init__(self, by):
        self.by = by

    def __eq__(self, other):
        return isinstance(other, Scale) and other.by == self.by

    def __hash__(self):
        return hash(self.by)


def test_static_arguments_run_without_python():
    f = shlo_disc.jit(
        lambda x, scale, *, shift=0, power=1: (x * scale.by + shift) ** power,
        static_argnums=1,
        static_argnames=("power", "shift"),
    )
    x = np.arange(4, dtype=np.float32)
    for _ in range(3):
        for by in (2, 3):
            np.testing.assert_array_equal(f(x, Scale(by)), x * by)
        np.testing.assert_array_equal(f(x[:2], Scale(2), shift=1), x[:2] * 2 + 1)
        np.testing.assert_array_equal(f(x, Scale(2), power=2, shift=True), (x * 2 + 1) ** 2)
    assert sorted(entries(f)) == [2] * 4
    assert f.cache_info().misses == 4
    # 1 and True are equal, but of other types: another program.
    np.testing.assert_array_equal(f(x[:2], Scale(2), shift=True), x[:2] * 2 + 1)
    assert f.cache_info().misses == 5
    for _ in range(2):
        with pytest.raises(ValueError, match="static argument scale is a list, which cannot be"):
            f(x, [2])
    np.testing.assert_array_equal(f(x[:3], Scale(3)), x[:3] * 3)  # new sizes, too
    assert f.cache_info().misses == 5


def test_static_self_runs_without_python():
    class Model:
        def __init__(self, by):
            self.by = by

        @functools.partial(shlo_disc.jit, static_argnums=(0, -1))
        def apply(self, x, kind):
            return x * self.by if kind == "scaled" else x

    a, b = Model(2), Model(3)
    x = jnp.arange(3.0)
    for _ in range(3):
        np.testing.assert_array_equal(a.apply(x, "scaled"), x * 2)
        np.testing.assert_array_equal(b.apply(x, "scaled"), x * 3)
        np.testing.assert_array_equal(b.apply(x, "other"), x)
    assert entries(Model.__dict__["apply"]) == [2, 2, 2]


@pytest.mark.parametrize("implementation", ["threefry2x32", *slow(["rbg"])])
def test_typed_keys_run_without_python(implementation):
    def draw(key, x):
        key, sub = jax.random.split(key)
        return key, x + jax.random.uniform(sub, x.shape)

    f, reference = shlo_disc.jit(draw), jax.jit(draw)
    ours = theirs = jax.random.key(3, impl=implementation)
    for n in (4, 4, 2, 7, 4):
        ours, got = f(ours, jnp.zeros(n))
        theirs, want = reference(theirs, jnp.zeros(n))
        np.testing.assert_array_equal(got, want)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(theirs))
    assert f.cache_info().misses == 1
    assert entries(f) == [2]
    many = shlo_disc.jit(jax.vmap(jax.random.bits))
    for n in (3, 5, 3):
        keys = jax.random.split(jax.random.key(0, impl=implementation), n)
        np.testing.assert_array_equal(many(keys), jax.jit(jax.vmap(jax.random.bits))(keys))
    assert many.cache_info() == (2, 1, None, 1)
    assert entries(many) == [1]


def test_compiled_objects_run_without_python():
    f = shlo_disc.jit(lambda x, n: x * n, static_argnums=1)
    compiled = f.lower(jnp.ones(3), 2).compile()
    for size in (3, 4, 3, 5):
        np.testing.assert_array_equal(compiled(jnp.ones(size), 2), 2 * np.ones(size))
    assert compiled.calls.slow == 1
    with pytest.raises(TypeError, match="other types or another structure"):
        compiled(jnp.ones((3, 3)), 2)
    assert f.cache_info().misses == 1


def test_equal_types_are_one_entry_whatever_their_avals():
    f = shlo_disc.jit(lambda x: x + 1)
    arrays = [jax.device_put(np.full(3, k, np.float32)) for k in range(5)]
    arrays += [f(arrays[0]), jax.jit(lambda x: x + 0)(arrays[1]), jnp.ones((2, 3))[0]]
    for x in arrays:
        np.testing.assert_array_equal(f(x), np.asarray(x) + 1)
    assert entries(f) == [len(arrays)]


def test_more_types_than_are_remembered():
    f = shlo_disc.jit(lambda x: x + 1)
    rng = np.random.default_rng(0)
    for n in rng.permutation(5000).tolist():
        assert f(jax.device_put(np.empty(n, np.float32))).shape == (n,)
    assert f.cache_info().misses <= 3  # empty and one element may be versions of their own


def test_configuration_is_a_thread_s_own():
    f = shlo_disc.jit(lambda x: x + jnp.arange(x.shape[0]).astype(float))

    def work(wide: bool) -> None:
        with jax.enable_x64(wide):
            x = jnp.ones(3, jnp.float32)
            for _ in range(300):
                assert f(x).dtype == (jnp.float64 if wide else jnp.float32)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, wide) for wide in (True, False, True, False)]:
            future.result()


def test_a_dispatcher_must_be_initialised():
    class Broken(ral.Dispatcher):
        def __init__(self) -> None:
            pass

    with pytest.raises(TypeError):
        Broken()()


def test_shapes_dtypes_and_weak_types_are_told_apart():
    f = shlo_disc.jit(lambda x: x * 2)
    arrays = [jnp.ones(3), jnp.ones(4), jnp.ones((3, 1)), jnp.ones(3, jnp.int32), jnp.asarray(2.0)]
    for _ in range(3):
        for x in arrays:
            out = f(x)
            assert (out.shape, out.dtype) == (x.shape, x.dtype)
    assert entries(f) == [2] * 4
    assert [(found.shapes, found.calls) for found in f._found()] == [(((4,),), 3)]
    assert f(arrays[4]).weak_type == (arrays[4] * 2).weak_type


@pytest.fixture
def slow_calls(monkeypatch):
    """The shapes of the first argument of every call that Python looks at."""
    seen = []
    before = function.JitFunction._call_slowly

    def noted(self, *args, **kwargs):
        seen.append(np.shape(jax.tree.leaves((args, kwargs))[0]))
        return before(self, *args, **kwargs)

    monkeypatch.setattr(function.JitFunction, "_call_slowly", noted)
    return seen


def test_new_sizes_of_a_version_run_without_python(slow_calls):
    def f(p, x):
        half = x * 3 if x.shape[0] % 2 else x / 2
        return {"half": half, "sum": x.shape[0] + p["y"]}

    jitted, plain = shlo_disc.jit(f), jax.jit(f)
    p = {"y": jnp.ones(5)}
    for n in (4, 5, 6, 7, 9, 8, 1, 6):
        for x in (jnp.arange(4.0 * n).reshape(n, 4), np.ones((n, 2 * n), np.float32)):
            for have, want in zip(*map(jax.tree.leaves, (jitted(p, x), plain(p, x))), strict=True):
                np.testing.assert_array_equal(have, want)
    # A version of even and one of odd sizes, and the first call of NumPy arrays.
    assert slow_calls == [(5,)] * 3
    assert jitted.cache_info() == (14, 2, None, 2)
    assert len(jitted._found()) == 11
    assert jitted(p, jnp.ones((0, 4)))["half"].shape == (0, 4)  # fits none: a third version
    assert jitted.cache_info().misses == 3
    jitted.cache_clear()
    assert jitted._found() == []
    assert jitted.cache_info() == (0, 0, None, 0)


def test_sizes_that_need_more_than_64_bits_are_tested_by_python(slow_calls):
    def f(x):
        n = x.shape[0]
        return x + (1.0 if n**40 > 1 << 90 else 2.0)

    jitted, sizes = shlo_disc.jit(f), (3, 4, 5, 6, 7)
    for n in sizes:
        np.testing.assert_array_equal(jitted(jnp.zeros(n)), f(np.zeros(n)))
    assert jitted.cache_info().misses == 2
    assert (7,) in slow_calls


def test_sizes_that_make_a_guard_divide_by_zero_fit_no_version():
    def f(x, y):
        return x * 2 if x.shape[0] // (y.shape[0] - 1) > 2 else x * 3

    jitted = shlo_disc.jit(f)
    for n, m in ((8, 3), (9, 4), (4, 4)):
        np.testing.assert_array_equal(jitted(jnp.ones(n), jnp.ones(m)), f(np.ones(n), np.ones(m)))
    with pytest.raises(ZeroDivisionError):
        jitted(jnp.ones(8), jnp.ones(1))


def test_what_is_checked_at_every_shape_is_never_found(slow_calls):
    f = shlo_disc.jit(lambda x: x * (2 if isinstance(x.shape[0], int) else 3), dynamic="checked")
    for n in (2, 3, 4, 3):
        np.testing.assert_array_equal(f(jnp.ones(n)), np.full(n, 2.0))
    assert slow_calls == [(2,), (3,), (4,)]
    assert f._found() == []

    # Only the comparison sees this question: from then on every new shape is compared.
    g = shlo_disc.jit(lambda x: x * x.shape[0] if type(x.shape[0]) is int else x)
    for n in (2, 3, 4):
        np.testing.assert_array_equal(g(jnp.ones(n)), np.full(n, float(n)))
    assert g._found() == []


def test_results_with_sizes_in_their_structure_need_python(slow_calls):
    f = shlo_disc.jit(lambda x: Holder(x + 1, x.shape[0]))
    for n in (2, 3, 4):
        assert f(jnp.ones(n)).static == n
    assert slow_calls == [(2,), (3,), (4,)]


def test_sizes_found_are_forgotten_at_the_limit(monkeypatch):
    monkeypatch.setattr(function, "_MAX_ENTRIES", 6)
    f = shlo_disc.jit(lambda x: x * 2)
    for n in range(2, 10):
        f(jnp.ones(n))
    assert len(f._found()) == 7
    f(np.ones(2, np.float32))  # new for Python
    assert f._found() == []
    for n in range(2, 10):
        np.testing.assert_array_equal(f(jnp.ones(n)), np.full(n, 2.0))
    assert f.cache_info() == (16, 1, None, 1)


def test_configuration_and_disable_jit_are_respected():
    seen = []

    def f(x):
        seen.append(x)
        return x + 1

    g, x = shlo_disc.jit(f), jnp.ones(3)
    g(x)
    g(x)
    traced = len(seen)
    with jax.disable_jit():
        g(x)
    assert len(seen) == traced + 1
    assert isinstance(seen[-1], jax.Array)
    before = g.cache_info().misses
    with jax.default_matmul_precision("highest"):
        g(x)
    assert g.cache_info().misses >= before
    assert entries(g)[0] == 1


def test_errors_are_explained_as_ever():
    f = shlo_disc.jit(lambda x, y: x + y, shapes=("b, t", "b, t"))
    a = jnp.ones((2, 3))
    f(a, a)
    f(a, a)
    b = jnp.ones((2, 3))
    b.delete()
    with pytest.raises(RuntimeError, match=r"argument 1.*deleted"):
        f(a, b)
    with pytest.raises(shlo_disc.ShapeMismatchError, match=r"t = 3 was read from"):
        f(a, jnp.ones((2, 4)))
    np.testing.assert_array_equal(f(a, a), 2 * np.ones((2, 3)))


def test_inside_a_transformation_it_is_traced():
    f = shlo_disc.jit(lambda x: x * x)
    x = jnp.arange(3.0)
    f(x)
    assert jax.grad(lambda x: f(x).sum())(x)[2] == 4
    assert jax.vmap(f)(x[:, None]).shape == (3, 1)


def test_a_function_that_is_gone_takes_its_programs_along():
    f = shlo_disc.jit(lambda x: x + 3)
    f(jnp.ones(2))
    f(jnp.ones(2))
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


def test_clearing_forgets():
    f = shlo_disc.jit(lambda x: x - 1)
    x = jnp.ones(2)
    f(x)
    f(x)
    f.cache_clear()
    assert f.cache_info() == (0, 0, None, 0)
    assert entries(f) == []
    f(x)
    assert f.cache_info().misses == 1


@jax.tree_util.register_pytree_node_class
class Holder:
    """A pytree with a static field."""

    def __init__(self, weight, static):
        self.weight, self.static = weight, static

    def tree_flatten(self):
        return (self.weight,), self.static

    @classmethod
    def tree_unflatten(cls, static, children):
        return cls(*children, static)


def test_keys_that_hold_the_dispatcher_are_collected(standins, bridge):
    class Function(ral.Dispatcher):
        pass

    f = Function(
        array_type=jax_private.arrays.ArrayImpl,
        key_type=jax_private.arrays.KeyArray,
        flatten=jax.tree_util.default_registry.flatten,
        trace_context=jax_private.states.trace_context,
        usual=jax_private.states.usual_states,
        static_nums=(),
        static_names=(),
    )
    x = jnp.ones((2, 3))
    f._add((Holder(x, f),), {}, ral.DispatchEntry(standins.add1(), bridge, None, (None,)))
    np.testing.assert_array_equal(f(Holder(x, f)), x + 1)
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("results", [0, 2])
def test_an_entry_without_unflatten_is_of_one_result(standins, bridge, results):
    several = standins.pack()
    none = standins.executable("add1", [("float32", (-1, -1), "x")], [], kernels=["add1_kernel"])
    with pytest.raises(ValueError, match=f"with {results} results needs `unflatten`"):
        ral.DispatchEntry(several if results else none, bridge, None, (None, None))


def test_an_entry_keeps_its_bridge(standins):
    """Two threads that ask for a bridge at once may each get one; nobody else keeps the other."""
    bridge = jax_bridge.__wrapped__()
    entry = ral.DispatchEntry(standins.add1(), bridge, None, (None,))
    assert any(part is bridge for part in gc.get_referents(entry))

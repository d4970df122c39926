"""First calls from the store: right at their own sizes, and nothing is assumed at others."""

from __future__ import annotations

import copy
import enum
import gc
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive

import shlo_disc
from shlo_disc import cache
from shlo_disc.jax.equations.digest import NamelessError, _Digest, digest_of
from shlo_disc.lower.cpu import codegen
from shlo_disc.store.entries import current
from tests.children import at_once, python

pytestmark = pytest.mark.usefixtures("own_store")

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def entries() -> int:
    calls = cache.dir() / "v1/calls"
    return sum(path.is_file() for path in calls.rglob("*"))


def traces(f):
    """`f`, which counts how often it is traced, with symbols and with numbers."""

    def counted(*args):
        is_symbolic = any(not isinstance(n, int) for x in jax.tree.leaves(args) for n in x.shape)
        counted.symbolic += is_symbolic
        counted.concrete += not is_symbolic
        return f(*args)

    counted.symbolic = counted.concrete = 0
    return counted


def forget() -> None:
    """What this process compiled, as if it had ended."""
    gc.collect()
    jax.clear_caches()
    gc.collect()


def body(p, x):
    h = jnp.tanh(x @ p["w"]) + p["b"]
    return {"sum": h.sum(), "all": (h, jax.nn.softmax(h))}


P = {"w": np.ones((4, 5), np.float32), "b": np.arange(5, dtype=np.float32)}


def test_a_call_of_an_earlier_process_needs_one_trace_with_numbers():
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    f = traces(body)
    g = shlo_disc.jit(f)
    wanted = g(P, x)
    assert (f.symbolic, f.concrete) == (1, 1)
    assert entries() == 2  # the call, and what tells that there is one
    assert g.cache_info().loaded == 0
    del g
    forget()
    f = traces(body)
    g = shlo_disc.jit(f)
    for _ in range(3):
        found = g(P, x)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert (f.symbolic, f.concrete) == (0, 1)
    assert g.cache_info() == (2, 1, None, 1)
    assert g.cache_info().loaded == 1
    # Other sizes and derivatives need symbols, which find the same program.
    assert g(P, x[:2])["all"][0].shape == (2, 5)
    assert f.symbolic == 1
    assert g.cache_info() == (2, 1, None, 1)
    theirs = jax.grad(lambda p: body(p, X)["sum"])(P)
    for a, b in zip(
        *map(jax.tree.leaves, (jax.grad(lambda p: g(p, X)["sum"])(P), theirs)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def columns(x):
    return x.T


def version_of(f):
    (version,) = [v for family in f._families.values() for v in family.versions]
    return version


@pytest.fixture
def of_two_rows(monkeypatch):
    """The store has `columns` with kernels for 2 rows; programs may stand in."""
    monkeypatch.setenv("SHLO_DISC_COMPILE_AHEAD", "1")
    shlo_disc.jit(columns)(np.ones((2, 100), np.float32))
    assert shlo_disc.finish_compiling()
    forget()


def test_a_program_stands_in_until_the_one_for_other_short_sizes_is_compiled(of_two_rows):
    x = np.arange(300, dtype=np.float32).reshape(3, 100)
    for stands_in in (True, False):
        g = shlo_disc.jit(columns)
        first = g(x)
        version = version_of(g)
        assert version.stands_in == stands_in
        before = version.executable
        assert shlo_disc.finish_compiling()
        assert not version.stands_in
        assert (version.executable is before) != stands_in
        assert bool(g._entries) != stands_in  # the next call looks for its version again
        for result in (first, g(x), g(x)):
            np.testing.assert_array_equal(result, x.T)
        assert g.cache_info()[:2] == (2, 1)
        assert g.cache_info().loaded == 1
        del g, version, before
        forget()


def test_nothing_stands_in_for_long(of_two_rows, monkeypatch):
    x = np.ones((3, 100), np.float32)
    g = shlo_disc.jit(columns)
    jax.jit(lambda x: g(x) + 1)(x)  # knows the program for ever
    assert not version_of(g).stands_in
    monkeypatch.setenv("SHLO_DISC_COMPILE_AHEAD", "0")  # nothing is compiled later
    h = shlo_disc.jit(lambda x: x.T, name="columns")
    h(np.ones((4, 100), np.float32))
    assert not version_of(h).stands_in


def slope(p, x):
    def loss(p, h):
        for w, b in p:
            h = jax.nn.relu(h @ w + b)
        return (h**2).mean()

    return jax.grad(loss)(p, x)


def test_kernels_of_calls_near_the_first_one_are_on_disk(monkeypatch):
    monkeypatch.setenv("SHLO_DISC_COMPILE_AHEAD", "1")
    made = codegen._made
    compiled = []
    monkeypatch.setattr(codegen, "_made", lambda *a, **k: (compiled.append(a), made(*a, **k))[1])
    draw = np.random.default_rng(0).standard_normal
    p = [(draw((64, 64), np.float32) / 8, np.ones(64, np.float32)) for _ in range(3)]
    counts = []
    for rows in (2, 3, 300):
        x = draw((rows, 64), np.float32)
        g = shlo_disc.jit(slope)
        compiled.clear()
        results = g(p, x)
        counts.append(len(compiled))
        for found, wanted in zip(*map(jax.tree.leaves, (results, slope(p, x))), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        assert shlo_disc.finish_compiling()
        del g
        forget()
        shlo_disc.trim()
    assert counts[1] == 0
    assert counts[2] > 0  # a call far from the first one compiles what it needs


def test_what_is_told_of_it_is_told():
    g = shlo_disc.jit(body)
    g(P, X)
    told = json.loads(g.explain("json"))
    texts = g.guards(), g.lower(P, X).as_text()
    del g
    forget()
    g = shlo_disc.jit(body)
    g(P, X)
    assert "has not been called" not in g.explain()
    again = json.loads(g.explain("json"))
    assert (g.guards(), g.lower(P, X).as_text()) == texts
    for row in (told, again):
        (program,) = row if isinstance(row, list) else [row]
        assert program["calls"] == 1
        assert program["kernels"][0]["where"][0].startswith(__file__)
    assert shlo_disc.stats()["functions"]
    assert g.cache_info() == (0, 1, None, 1)


def test_a_function_that_remembers_sizes_is_left_with_numbers():
    """As layers that are built lazily do: in the first process, in a later one, and when edited."""
    for factor in (2.0, 2.0, 3.0):
        seen = {}

        def f(x, factor=factor, seen=seen):
            seen["n"] = x.shape[-1]
            return x * factor

        g = shlo_disc.jit(f)
        np.testing.assert_array_equal(g(X), X * factor)
        assert seen == {"n": 4}
        assert isinstance(seen["n"], int)
        del g, f
        forget()


BRANCHING = """
    import numpy as np, shlo_disc
    LIMIT = {limit}
    def f(x):
        if x.shape[0] > LIMIT:
            return x * 2
        return x * 3 + 0 * x.sum()
    g = shlo_disc.jit(f)
    print([float(g(np.ones(n, np.float32))[0]) for n in {sizes}], g.cache_info().loaded)
    """


def test_python_that_branches_on_sizes_may_have_changed(own_store):
    """A call that was kept says nothing of other sizes: its function is traced for those."""

    def run(limit, *sizes):
        return python(
            BRANCHING.format(limit=limit, sizes=sizes), SHLO_DISC_CACHE_DIR=str(own_store)
        )

    assert run(64, 8) == "[3.0] 0"
    assert run(64, 8) == "[3.0] 1"
    assert run(64, 8, 100) == "[3.0, 2.0] 1"
    assert run(4, 8, 100, 2) == "[2.0, 2.0, 3.0] 0"
    assert run(64, 8, 100, 2).startswith("[3.0, 2.0, 3.0] ")


def test_threads_that_call_at_once():
    shlo_disc.jit(body)(P, X)
    forget()
    g = shlo_disc.jit(body)
    wanted = body(P, X)["sum"]
    found: list[Any] = []
    at_once(lambda _: found.append(g(P, X)["sum"]), range(6))
    np.testing.assert_allclose(np.array(found), np.full(6, wanted), rtol=1e-5)


class Way(enum.Enum):
    UP = 1
    DOWN = 2


def programs() -> dict[str, Any]:
    """Functions of one array of 3 by 4; no two compute the same."""
    some, other = np.arange(4, dtype=np.float32), np.arange(1, 5, dtype=np.float32)
    some_key, other_key = jax.random.key(3), jax.random.key(4)
    wide_key = jax.random.key(3, impl="unsafe_rbg")

    def pooled(x, reducer, start):
        return jax.lax.reduce_window(x, start, reducer, (1, 2), (1, 2), "VALID")

    @jax.custom_jvp
    def own(x):
        return x * 5

    own.defjvps(lambda t, y, x: t)
    return {
        "sum": lambda x: x.sum(),
        "other axis": lambda x: x.sum(0),
        "doubled": lambda x: x * 2.0,
        "tripled": lambda x: x * 3.0,
        "negative zero": lambda x: x + jnp.float32(-0.0),
        "zero": lambda x: x + jnp.float32(0.0),
        "constant": lambda x: x + some,
        "other constant": lambda x: x + other,
        "wider constant": lambda x: x + other.astype(np.int32),
        "long constant": lambda x: x[0, 0] + np.arange(20, dtype=np.float32),
        "other long constant": lambda x: x[0, 0] + np.arange(1, 21, dtype=np.float32),
        "order": lambda x: (x + 1, x + 2),
        "other order": lambda x: (x + 2, x + 1),
        "scan": lambda x: jax.lax.scan(lambda c, y: (c + y, c), jnp.zeros(4), x),
        "backwards": lambda x: jax.lax.scan(lambda c, y: (c + y, c), jnp.zeros(4), x, reverse=True),
        "cond": lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
        "other cond": lambda x: jax.lax.cond(x[0, 0] > 0, jnp.cos, jnp.sin, x),
        "own derivative": own,
        "stack": lambda x: jnp.stack([x, x + 1]),
        "other stack": lambda x: jnp.stack([x, x + 1], 1),
        "split": lambda x: jnp.split(x, [1, 3], 1),
        "other split": lambda x: jnp.split(x, [1, 2], 1),
        "largest of pairs": jax.grad(lambda x: pooled(x, jax.lax.max, -np.inf).sum()),
        "least of pairs": jax.grad(lambda x: pooled(x, jax.lax.min, np.inf).sum()),
        "remat": jax.checkpoint(jnp.sin),
        "product": lambda x: x @ x.T,
        "precise product": lambda x: jax.lax.dot(x, x.T, precision="highest"),
        "gather": lambda x: x[jnp.array([0, 2])],
        "other gather": lambda x: x[jnp.array([0, 1])],
        "filled gather": lambda x: x.at[jnp.array([0, 2])].get(mode="fill", fill_value=1),
        "scatter": lambda x: x.at[jnp.array([0, 2])].add(1),
        "scatter max": lambda x: x.at[jnp.array([0, 2])].max(1),
        "sort": jnp.sort,
        "stable": lambda x: jax.lax.sort(x, is_stable=False),
        "convolution": lambda x: jax.lax.conv(x[None, None], x[None, None, :2, :2], (1, 1), "SAME"),
        "strided": lambda x: jax.lax.conv(x[None, None], x[None, None, :2, :2], (1, 2), "SAME"),
        "bfloat16": lambda x: x.astype(jnp.bfloat16),
        "float16": lambda x: x.astype(jnp.float16),
        "normal": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
        "other seed": lambda x: x + jax.random.normal(jax.random.key(1), x.shape),
        "other generator": lambda x: x + jax.random.normal(jax.random.key(0, impl="rbg"), x.shape),
        "key": lambda x: x + jax.random.normal(some_key, x.shape),
        "other key": lambda x: x + jax.random.normal(other_key, x.shape),
        "key of another generator": lambda x: x + jax.random.normal(wide_key, x.shape),
        "solve": lambda x: jnp.linalg.solve(x @ x.T + jnp.eye(3), x),
        "reduce": lambda x: jax.lax.reduce(x, np.float32(0), lambda a, b: a + b * 2, (0,)),
        "other reduce": lambda x: jax.lax.reduce(x, np.float32(0), lambda a, b: a + b * 3, (0,)),
    }


def test_equal_programs_have_equal_digests_and_no_others_have():
    def digests() -> dict[str, bytes]:
        return {n: digest_of(jax.jit(f).trace(X).jaxpr) for n, f in programs().items()}

    first = digests()
    assert len({*first.values()}) == len(first)
    jax.clear_caches()
    assert digests() == first
    double = jax.jit(lambda x: x * 2.0)
    for other in (X[:2], X.astype(np.float16), jnp.float32(1.0), 1.0):
        assert digest_of(double.trace(other).jaxpr) not in first.values()
    assert digest_of(double.trace(X).jaxpr, 1) != digest_of(double.trace(X).jaxpr, 2)


def test_equal_parameters_of_other_types_are_others():
    one = np.float32(1)
    plain = [1, True, 1.0, "1", b"1", None, Way.UP, Way.DOWN, np.dtype("f4"), one, np.float64(1)]
    rows = [(), [], (1,), [1], (True,), (1.0,), ("1",), (None,), (one,), (1, 1), [1, 1], ((1,),)]
    nested = [(1, (1,)), ((1,), 1), ((1, 1), ()), ((), (1, 1)), {"a": 1}, {"a": (1,)}, {"1": "a"}]
    arrays = [np.ones(n, kind) for n in (1, 4, 40) for kind in (np.float32, np.int32)]
    found = set()
    values = [*plain, *rows, *nested, *arrays]
    for value in values:
        digest = _Digest({})
        digest.value(value)
        found.add(digest.digest())
    assert len(found) == len(values)


def test_an_object_that_occurs_twice_counts_as_its_copy_does():
    values = [((1,), [2]), {"a": (1, Way.UP)}, Way.UP, np.dtype("f4"), np.ones(40, np.float32)]
    for value in values:
        found = []
        for pair in ((value, value), (value, copy.deepcopy(value)), (value,)):
            digest = _Digest({})
            for each in pair:
                digest.value(each)
            found.append(digest.digest())
        assert found[0] == found[1] != found[2]


def test_the_configuration_counts():
    f = jax.jit(lambda x: x + jax.random.uniform(jax.random.key(0), x.shape))
    found = {digest_of(f.trace(X).jaxpr)}
    for name, value in (
        ("jax_threefry_partitionable", False),
        ("jax_numpy_rank_promotion", "warn"),
    ):
        before = getattr(jax.config, name)
        jax.config.update(name, value)
        try:
            found.add(digest_of(f.trace(X).jaxpr))
        finally:
            jax.config.update(name, before)
    assert len(found) == 3
    assert None not in found


mine = Primitive("sin")
mine.def_abstract_eval(lambda x: x)

NAMELESS = {
    "a callback": lambda x: jax.pure_callback(np.sin, x, x),
    "a print": lambda x: [jax.debug.print("{}", x), x][1],
    "a primitive of somebody else's": mine.bind,
}


@pytest.mark.parametrize("name", NAMELESS)
def test_what_cannot_be_named_has_no_digest(name):
    with pytest.raises(NamelessError):
        digest_of(jax.jit(NAMELESS[name]).trace(X).jaxpr)


def test_a_digest_is_the_same_in_every_process():
    code = """
        import jax, numpy as np
        from shlo_disc.jax.equations.digest import digest_of
        from tests.store.test_calls import X, programs
        for f in programs().values():
            print(digest_of(jax.jit(f).trace(X).jaxpr).hex())
        """
    here = [digest_of(jax.jit(f).trace(X).jaxpr).hex() for f in programs().values()]
    assert python(code, PYTHONHASHSEED="7").split() == here


def test_calls_that_are_not_kept():
    for f, args, reason in (
        (lambda x: jax.pure_callback(np.sin, x, x), (X,), "pure_callback"),
        (lambda x: shlo_disc.numpy.nonzero(x > 0)[0], (X[0],), ""),
    ):
        for _ in range(2):
            g = shlo_disc.jit(f)
            ours, theirs = g(*args), f(*args)
            for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)
            assert "every process traces it with symbols: it " in g.explain()
            assert reason in g.explain().partition("symbols: it ")[2].partition("\n")[0]
            del g
            forget()
    assert entries() == 0


def kinds() -> dict[str, Any]:
    """Functions with arguments and options, whose calls were not kept once."""
    weights = np.random.default_rng(0).standard_normal((1 << 19, 4)).astype(np.float32)
    key = jax.random.key(7)
    return {
        "a key": (lambda k, x: jax.random.normal(k, x.shape) + x, (key, X), {}),
        "keys": (lambda k: jax.random.split(k, 3), (key,), {}),
        "keys in a structure": (lambda k, x: {"k": jax.random.split(k), "x": x * 2}, (key, X), {}),
        "a key of rbg": (
            lambda k, x: (jax.random.fold_in(k, 1), x + jax.random.uniform(k, x.shape)),
            (jax.random.key(7, impl="rbg"), X),
            {},
        ),
        "a key closed over": (lambda x: jax.random.normal(key, x.shape) + x, (X,), {}),
        "8 MiB of constants": (lambda x: weights @ x.T, (X,), {}),
        "sizes": (lambda x: x * 2, (X,), {"shapes": "a, b"}),
        "sizes and a rule": (lambda x: x * 2, (X,), {"shapes": "a, b", "constraints": ["b > a"]}),
        "sizes by name": (lambda x, y: x + y, (X, X), {"shapes": {"x": "a, b"}}),
    }


def raw(value: Any) -> bytes:
    """The elements of an array, of words where it is of keys."""
    is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value).tobytes()


@pytest.mark.parametrize("kind", kinds())
def test_calls_of_every_kind_are_kept(kind):
    found = []
    for is_second in (False, True):
        f, args, options = kinds()[kind]
        counted = traces(f) if not options else f
        g = shlo_disc.jit(counted, **options)
        results = g(*args)
        wanted = f(*args)
        assert jax.tree.structure(results) == jax.tree.structure(wanted)
        for a, b in zip(jax.tree.leaves(results), jax.tree.leaves(wanted), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
                assert raw(a) == raw(b)
            else:
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
        again = g(*args)
        found.append([raw(value) for value in jax.tree.leaves(results)])
        assert found[-1] == [raw(value) for value in jax.tree.leaves(again)]
        assert g.cache_info().loaded == is_second
        if is_second and not options:
            assert counted.symbolic == 0
        del g
        forget()
    assert found[0] == found[1]
    assert entries() == 2


def test_large_constants_are_in_no_entry(monkeypatch):
    """They are read where the function has them, and only equal ones will do."""
    rows = np.random.default_rng(0).standard_normal((1 << 18, 4)).astype(np.float32)
    of_jax = jnp.asarray(rows)
    for weights, is_kept in ((of_jax, False), (of_jax, True), (rows, True), (rows + 1, False)):
        g = shlo_disc.jit(lambda x, w=weights: (w @ x.T).sum(0))
        np.testing.assert_allclose(g(X), (np.asarray(weights) @ X.T).sum(0), rtol=1e-3, atol=1e-2)
        assert g.cache_info().loaded == is_kept
        small = np.ones((2, 4), np.float32)  # by way of the symbols
        np.testing.assert_allclose(g(small), (np.asarray(weights) @ small.T).sum(0), rtol=1e-3)
        constants = g.lower(X).compile().executable.host.constants
        of_arrays = [c for c in constants if np.shares_memory(c, np.asarray(of_jax))]
        assert len(of_arrays) == (weights is of_jax)
        if weights is of_jax:
            assert max(entry.size_bytes for entry in current().entries()) < 1 << 20
        del g
        forget()
    monkeypatch.setattr("shlo_disc.jax.equations.digest.MOST_CONSTANT_BYTES", 1 << 20)
    with pytest.raises(NamelessError, match="constants of more than"):
        digest_of(jax.jit(lambda x: x.sum() + rows).trace(X).jaxpr)


def test_numpy_arrays_may_change_after_the_call_is_loaded():
    """The entry was made with an array of JAX's, which never changes."""
    rows = np.random.default_rng(0).standard_normal((1 << 16, 4)).astype(np.float32)
    for weights in (jnp.asarray(rows.copy()), rows):
        g = shlo_disc.jit(lambda x, w=weights: (w + x.sum()).max(1))
        wanted = np.asarray(g(X))
        assert g.cache_info().loaded == (weights is rows)
        if weights is rows:
            rows[:] = 0
        np.testing.assert_array_equal(g(X), wanted)
        del g
        forget()


def test_a_call_that_comes_as_arrays_of_another_class_is_counted_once():
    for is_second in (False, True):
        g = shlo_disc.jit(lambda x: x * 2)
        for x in (X, jnp.asarray(X), X[:2]):
            np.testing.assert_array_equal(g(x), x * 2)
        info = g.cache_info()
        assert (info.misses, info.loaded, info.currsize) == (1, is_second, 1)
        assert "every process" not in g.explain()
        del g
        forget()


def test_stated_sizes_count():
    """The same function with other sizes stated is another call; broken rules are told."""
    x = np.ones((3, 3), np.float32)
    for shapes, constraints in (("a, b", ()), ("a, a", ()), ("a, b", ("a >= 3",)), (None, ())):
        g = shlo_disc.jit(lambda x: x * 2, shapes=shapes, constraints=constraints)
        np.testing.assert_array_equal(g(x), 2 * x)
        assert g.cache_info().loaded in (0, 1)
        del g
        forget()
    assert len({e for e in calls() if len(e.content()) == 32}) >= 4
    for shapes, constraints in (("a, a", ()), ("a, b", ("a >= 4",))):
        g = shlo_disc.jit(lambda x: x * 2, shapes=shapes, constraints=constraints)
        with pytest.raises(shlo_disc.ShapeMismatchError):
            g(X)
        del g
        forget()


def calls():
    return [entry for entry in current().entries() if entry.kind == "calls"]


def test_donated_arguments_are_given_up_again():
    def f(x, y):
        return x + y, y.sum()

    for is_second in (False, True):
        g = shlo_disc.jit(f, donate_argnums=0)
        x = jnp.asarray(X)
        total = g(x, jnp.asarray(X))[0]
        np.testing.assert_array_equal(total, X + X)
        assert x.is_deleted()
        assert g.cache_info().loaded == is_second
        del g
        forget()


def test_an_error_of_the_function_is_its_own():
    shlo_disc.jit(body)(P, X)
    forget()

    def f(p, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        shlo_disc.jit(f)(P, X)

"""A function takes its machine code with it; what still may run it keeps it."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.cpu import codegen, object_code
from tests.cases import all_but, slow
from tests.refused import unchanged

pytestmark = pytest.mark.usefixtures("no_recent_code")

X = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)


@contextmanager
def no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Traces(NamedTuple):
    """Weak references to a jitted function, its executables and their kernels."""

    function: weakref.ref[Any]
    executables: list[weakref.ref[Any]]

    @classmethod
    def of(cls, f: Any) -> Traces:
        versions = [v for family in f._families.values() for v in family.versions]
        return cls(weakref.ref(f), [weakref.ref(v.executable) for v in versions])

    def alive(self) -> list[bool]:
        return [r() is not None for r in (self.function, *self.executables)]


def constant() -> float:
    """Another number each time: no kernel is shared with another test."""
    constant.last += 1.0
    return constant.last


constant.last = 3.5


def simple(c):
    return lambda x: jnp.tanh(x) * c


def product(c):
    return lambda x: jax.nn.softmax(x @ x.T) * c


def loop(c):
    return lambda x: jax.lax.fori_loop(0, 3, lambda _, v: jnp.sin(v) * c, x)


def scanned(c):
    return lambda x: jax.lax.scan(lambda s, r: (s + r * c, s.sum()), x[0], x)


def tree(c):
    return lambda x: {"a": (x.sum(0), jnp.sort(x)), "b": [x * c]}


def random(c):
    def f(x):
        key = jax.random.key(0)
        return x * c + jax.random.normal(key, x.shape), jax.random.split(key)

    return f


@pytest.mark.parametrize("make", [simple, product, loop, scanned, tree, random])
def test_a_dropped_function_frees_its_code_without_the_garbage_collector(make):
    with no_garbage_collector():
        before = set(codegen._functions)
        f = shlo_disc.jit(make(constant()))
        f(X)
        f(X[:3])
        assert set(codegen._functions) > before
        traces = Traces.of(f)
        del f
        assert traces.alive() == [False, False]
        assert set(codegen._functions) <= before


def attention(x):
    scores = jnp.where(x > 0, x @ x.T @ x, -jnp.inf)
    return jax.nn.softmax(scores, -1) @ jax.nn.gelu(x.T @ x)


COMPILED = {
    "rows": lambda x: jax.nn.softmax(x, -1) - x.mean(0) + x.std(0),
    "long rows": lambda x: jnp.cumsum(jax.nn.logsumexp(jnp.outer(x, x), -1) / x.sum()),
    "attention": attention,
    "concatenation": lambda x: jnp.concatenate([x, x * 2, x[:1]], 0)[:, ::2],
    "window": lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (2, 2), (1, 2), "SAME"),
    "scatter": lambda x: x.at[x[:, 0].astype(int)].add(1.0).sum(1),
    "pool": jax.grad(
        lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (1, 1), "VALID").sum()
    ),
    "sort": lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1)),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, y: jnp.tanh(y @ y.T @ y) * i, x),
    "branches": lambda x: jax.lax.switch(2, [jnp.sin, jnp.cos, jnp.tanh], x[0]),
    "refused": lambda x: jnp.abs(unchanged(x)),
    "callback": lambda x: jax.pure_callback(np.sin, jax.typeof(x), x),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in ("attention", "rows") else n
        for n in COMPILED
    ],
)
def test_a_compilation_leaves_nothing_to_the_garbage_collector(name):
    """A context of MLIR takes four megabytes, and big ones are seldom collected."""

    def calls() -> None:
        function = COMPILED[name]
        with contextlib.suppress(shlo_disc.UnsupportedError):
            shlo_disc.jit(function)(X)
        if name in ("rows", "attention", "refused"):
            f = shlo_disc.jit(lambda x: function(x).sum(), on_unsupported="xla")
            jax.grad(f)(jnp.asarray(X))

    calls()
    with no_garbage_collector():
        before = ir.Context._get_live_count()
        calls()
        assert ir.Context._get_live_count() == before


def test_functions_with_static_and_donated_arguments_are_freed():
    with no_garbage_collector():
        c = constant()
        f = shlo_disc.jit(lambda x, y, n: x * c + y[:, ::n], static_argnums=2, donate_argnums=0)
        f(jnp.array(X), X, 1)
        f(jnp.array(X), X, -1)
        traces = Traces.of(f)
        del f
        assert traces.alive() == [False, False, False]


def test_forgotten_versions_are_freed():
    c = constant()
    f = shlo_disc.jit(lambda x: jnp.tanh(x) * c)
    f(X)
    traces = Traces.of(f)
    f.cache_clear()
    assert traces.alive() == [True, False]
    np.testing.assert_allclose(f(X), np.tanh(X) * c, 1e-6)


def test_an_executable_outlives_its_function():
    c = constant()
    f = shlo_disc.jit(lambda x: jnp.tanh(x) * c)
    executable = f.lower(X).compile().executable
    del f
    gc.collect()
    np.testing.assert_allclose(executable(X)[0], np.tanh(X) * c, 1e-6)


def test_a_static_argument_that_holds_the_function_is_collected():
    class Config:
        """Hashed by identity; part of the keys of the function's caches."""

    config, c = Config(), constant()
    f = shlo_disc.jit(lambda x, k: x * c, static_argnums=1)
    config.function = f
    f(X, config)
    traces = Traces.of(f)
    del f, config
    jax.clear_caches()  # JAX keeps static arguments of living functions, as for jax.jit
    gc.collect()
    assert traces.alive() == [False, False]


def grad_of(f):
    return jax.grad(lambda x: f(x).sum())


USES = {
    "jit": lambda f: jax.jit(lambda x: f(x) * 2),
    "grad": grad_of,
    "jit of grad": lambda f: jax.jit(grad_of(f)),
    "vmap": lambda f: jax.vmap(lambda x: f(x[None])),
    "jit of vmap of grad": lambda f: jax.jit(jax.vmap(lambda x: grad_of(f)(x[None]))),
    "scan": lambda f: jax.jit(lambda x: jax.lax.scan(lambda s, r: (s, f(r[None])), 0.0, x)),
}


@pytest.mark.parametrize("use", all_but(["jit of grad"], USES))
def test_a_function_used_inside_jax_is_freed_with_its_user(use):
    c = constant()
    outer_of = USES[use]

    def work() -> Traces:
        f = shlo_disc.jit(lambda x: jnp.tanh(x) * c)
        outer = outer_of(f)
        traces = Traces.of(f)
        first = jax.tree.leaves(outer(X))
        traces.executables.extend(Traces.of(f).executables)
        del f
        gc.collect()
        assert any(traces.alive()[1:])
        for a, b in zip(first, jax.tree.leaves(outer(X)), strict=True):
            np.testing.assert_array_equal(a, b)
        return traces

    work()
    gc.collect()
    before = set(codegen._functions)
    c = constant()
    traces = work()
    gc.collect()
    assert not any(traces.alive())
    assert set(codegen._functions) <= before


def test_a_lowered_module_keeps_the_program_it_names():
    c = constant()
    f = shlo_disc.jit(lambda x: jnp.tanh(x) * c)
    lowered = jax.jit(lambda x, f=f: f(x) + 1).lower(X)
    traces = Traces.of(f)
    del f
    jax.clear_caches()
    gc.collect()
    compiled = lowered.compile()
    del lowered
    jax.clear_caches()
    gc.collect()
    np.testing.assert_allclose(compiled(X), np.tanh(X) * c + 1, 1e-6, 1e-6)
    del compiled
    jax.clear_caches()
    gc.collect()
    assert traces.alive() == [False, False]


def test_a_call_under_way_keeps_its_code():
    c = constant()

    def slow(x):
        return jax.lax.fori_loop(0, 20_000, lambda _, v: jnp.sin(v) + c * 1e-9, x)

    x = np.linspace(0, 1, 4000, dtype=np.float32)
    functions = [shlo_disc.jit(slow)]
    want = np.asarray(functions[0](x))
    started = threading.Event()

    def call():
        call_it = functions[0]
        started.set()
        return np.asarray(call_it(x))

    def call_inside_jax():
        outer = jax.jit(lambda x, f=functions[0]: f(x))
        started.set()
        return np.asarray(outer(x))

    for run in (call, call_inside_jax):
        started.clear()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(run)
            assert started.wait(60)
            functions.clear()
            gc.collect()
            np.testing.assert_array_equal(future.result(120), want)
        functions.append(shlo_disc.jit(slow))


def test_threads_compile_call_and_drop():
    """Some of the kernels are shared between threads that drop them at different times."""
    wrong = []

    def work(seed: int) -> None:
        for k in range(3):
            c = 0.5 + (seed + k) % 3
            f = shlo_disc.jit(lambda x, c=c: jnp.tanh(x * c) + x.sum(0))
            for rows in (5, 3):
                got = np.asarray(f(X[:rows]))
                want = np.tanh(X[:rows] * np.float32(c)) + X[:rows].sum(0)
                if not np.allclose(got, want, 1e-5, 1e-5):
                    wrong.append((seed, k, rows))
            if k % 2:
                outer = jax.jit(lambda x, f=f: f(x) * 2)
                del f
                if not np.allclose(outer(X[:3]), 2 * want, 1e-5, 1e-5):
                    wrong.append((seed, k, "outer"))

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, seed) for seed in range(4)]:
            future.result(300)
    assert not wrong


# ---- memory over many functions ----------------------------------------------------------------


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def compile_and_drop(k: int) -> None:
    c = 1.5 + k
    shlo_disc.jit(lambda x: jnp.sort(jnp.tanh(x) * c, 1) @ x.T)(X)


def small(k: int) -> None:
    c = 1.5 + k
    shlo_disc.jit(lambda x: jnp.tanh(x) * c + x.sum())(X)


def the_same(k: int) -> None:
    shlo_disc.jit(lambda x: x * 2 + 1)(X)


def inside_jax(k: int) -> None:
    c = 1.5 + k
    f = shlo_disc.jit(lambda x: jnp.tanh(x) * c)
    jax.jit(lambda x: f(x) + 1)(X)


def grown(cycle: Any, warm: int, count: int) -> tuple[float, int]:
    """MiB and mappings a cycle leaves behind."""
    for k in range(warm):
        cycle(k)
    gc.collect()
    object_code._trim()
    before, places = resident_mib(), mappings()
    for k in range(warm, warm + count):
        cycle(k)
    gc.collect()
    object_code._trim()
    return resident_mib() - before, mappings() - places


@pytest.mark.unsanitized
@pytest.mark.parametrize(("cycle", "count"), [*slow([(the_same, 12)]), (small, 5)])
def test_memory_of_functions_that_are_gone(cycle, count):
    mib, places = grown(cycle, 3, count)
    # A kernel that stays takes 0.8 MiB and six mappings; every function has three.
    assert places < 20
    assert mib < 0.5 * count + 6


@pytest.mark.slow
def test_memory_of_functions_whose_code_is_kept_for_a_while():
    codegen.RECENT.resize(8 * 4096)  # eight kernels
    _, places = grown(small, 4, 5)
    assert places < 20


@pytest.mark.slow
@pytest.mark.parametrize("cycle", [the_same, compile_and_drop, inside_jax])
def test_memory_of_three_hundred_functions_that_are_gone(cycle):
    mib, places = grown(cycle, 20, 300)
    assert places < 30
    assert mib < 40  # JAX's own caches take 10 KiB a function until they are full


@pytest.mark.slow
def test_memory_of_many_calls_and_many_shapes():
    f = shlo_disc.jit(lambda x, w: {"y": jnp.tanh(x @ w) + 1, "s": x.sum()})
    x, w = jnp.ones((8, 32)), jnp.ones((32, 16))
    host = np.ones((8, 32), np.float32)

    def call(k: int) -> None:
        f(x if k % 2 else host, w)

    assert grown(call, 1000, 200_000)[0] < 5
    g = shlo_disc.jit(lambda x: jnp.tanh(x) * 2 + x.sum(-1, keepdims=True))

    def shape(k: int) -> None:
        g(np.ones((k % 200 + 1, k // 200 + 1), np.float32))

    assert grown(shape, 6000, 14_000)[0] < 20


def test_an_executable_is_of_this_process():
    made = shlo_disc.compile(
        "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }"
    )
    assert copy.copy(made) is made
    assert copy.deepcopy({"f": made})["f"] is made
    with pytest.raises(TypeError, match="is machine code of this process and cannot be pickled"):
        pickle.dumps(made)

"""Programs from the store: the same bits, and a damaged store costs time alone."""

from __future__ import annotations

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import cache
from shlo_disc.lower.cpu import object_code
from shlo_disc.store.entries import current
from tests.children import python

T = "tensor<?x?xf32>"
PROGRAM = f"""
func.func @main(%x: {T}, %w: {T}) -> ({T}, {T}, {T}) {{
  %t = stablehlo.tanh %x : {T}
  %e = stablehlo.exponential %w : {T}
  %r = stablehlo.reverse %w, dims = [1] : {T}
  return %t, %e, %r : {T}, {T}, {T}
}}"""
SHAPES = [((0, 3), (3, 2)), ((1, 1), (1, 1)), ((7, 5), (5, 3)), ((33, 65), (65, 47))]


def results(executable) -> list[bytes]:
    out = []
    for shapes in SHAPES:
        random = np.random.default_rng(0)
        arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
        out += [np.asarray(r).tobytes() for r in executable.run_numpy(arrays)]
    return out


@pytest.fixture
def place(monkeypatch, own_store):
    """A store of its own, for machine code alone."""
    monkeypatch.setenv("SHLO_DISC_CACHE", "kernels")
    return own_store


def test_loaded_code_gives_the_bits_of_compiled_code(place, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("SHLO_DISC_CACHE", "0")
        compiled = shlo_disc.compile(PROGRAM)
        assert compiled.loaded_kernels == 0
        assert not place.exists()
        wanted = results(compiled)
        kernels = len(compiled.host.kernels)
        del compiled
    assert cache.stats()["entries"] == 0
    for loaded in (0, kernels):
        before = cache.stats()
        executable = shlo_disc.compile(PROGRAM)
        now = cache.stats()
        assert executable.loaded_kernels == loaded
        assert now["loaded"] - before["loaded"] == (loaded + 1 if loaded else 0)  # and the host
        assert now["entries"] == kernels + 1
        assert results(executable) == wanted
        assert (f"({loaded} loaded)" in executable.explain()) == (loaded > 0)
        del executable
    assert cache.clear() == kernels + 1
    assert cache.stats()["entries"] == 0


def test_a_store_that_is_damaged_or_of_no_use_costs_time_alone(place):
    executable = shlo_disc.compile(PROGRAM)
    wanted = results(executable)
    kernels = len(executable.host.kernels)
    del executable
    for n, entry in enumerate(current().entries()):
        code = entry.content()
        if n % 3 == 0:
            entry.path.write_bytes(b"x" + entry.path.read_bytes()[1:])
        elif n % 3 == 1:  # whole, but no object file
            current().write(entry.key, code[: len(code) // 2])
        else:  # whole, with other functions
            current().write(
                entry.key, object_code._object_code(object_code.lowered(OTHER, ""), "k", 1)
            )
    executable = shlo_disc.compile(PROGRAM)
    assert executable.loaded_kernels == 0
    assert results(executable) == wanted
    del executable
    assert shlo_disc.compile(PROGRAM).loaded_kernels == kernels


OTHER = "func.func @k() {\nreturn\n}"


def test_a_read_only_store_is_read(place, monkeypatch):
    kernels = shlo_disc.compile(PROGRAM).loaded_kernels
    files = sorted(place.rglob("*"))

    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("shlo_disc.store.entries._replace", refuse)
    executable = shlo_disc.compile(PROGRAM)
    assert executable.loaded_kernels == len(executable.host.kernels) > kernels
    before = cache.stats()["not_stored"]
    shlo_disc.compile(PROGRAM.replace("stablehlo.tanh", "stablehlo.sine"))
    assert cache.stats()["not_stored"] > before
    assert sorted(place.rglob("*")) == files


def test_an_override_switches_it_off_for_a_block(place):
    with shlo_disc.base.flags.overridden(cache=0):
        shlo_disc.compile(PROGRAM)
    assert not place.exists()


def test_another_process_loads_what_this_one_compiled(place):
    wanted = results(shlo_disc.compile(PROGRAM))
    out = python(
        """
        import hashlib, shlo_disc
        from tests.store.test_code import PROGRAM, results
        executable = shlo_disc.compile(PROGRAM)
        print(executable.loaded_kernels == len(executable.host.kernels))
        print(hashlib.sha256(b"".join(results(executable))).hexdigest())
        """
    ).split()
    assert out == ["True", hashlib.sha256(b"".join(wanted)).hexdigest()]


def products(x, w):
    return jax.nn.gelu(x @ w), jax.nn.softmax(x @ x.T) @ x, jnp.sort(w, 1)


def derivatives(x, w):
    return jax.grad(lambda x, w: jnp.sum(jnp.tanh(x @ w) ** 2), (0, 1))(x, w)


def loops(x, w):
    return jax.lax.scan(lambda s, r: (s + jnp.sin(r), s.sum()), jnp.zeros_like(x[0]), x), w.sum(0)


def gathered(x, w):
    at = jnp.argsort(w[:, 0])
    return x[:, at], jnp.zeros_like(w).at[at].add(w), jnp.cumsum(x, 1), jax.lax.top_k(w.T, 1)


@pytest.mark.slow
@pytest.mark.parametrize("function", [products, derivatives, loops, gathered])
def test_loaded_programs_give_the_bits_of_compiled_ones(place, function):
    def run():
        f = shlo_disc.jit(function)
        out = []
        for shapes in SHAPES[1:]:
            random = np.random.default_rng(0)
            arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
            out += [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(f(*arrays))]
        return out

    with shlo_disc.base.flags.overridden(cache=0):
        wanted = run()
    assert not cache.stats()["entries"]
    assert run() == wanted
    before = cache.stats()
    assert before["entries"] > 0
    assert run() == wanted
    now = cache.stats()
    assert now["loaded"] - before["loaded"] == before["entries"]
    assert now["missing"] == before["missing"]

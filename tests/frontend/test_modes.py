"""The modes of a family: the table of transitions, and functions that go through it."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.jax.calls import compiler
from shlo_disc.jax.versions.modes import Event, Mode, next_mode
from tests.refused import unchanged

REAL = True

X = np.linspace(1, 2, 6, dtype=np.float32)

AFTER = """
WHOLE    NEEDS_NUMBERS  NUMBERS  NUMBERS
WHOLE    REFUSED        PARTS    error
WHOLE    CALL_REFUSED   BY_JAX   error
NUMBERS  NEEDS_NUMBERS  error    error
NUMBERS  REFUSED        PARTS    error
NUMBERS  CALL_REFUSED   BY_JAX   error
PARTS    NEEDS_NUMBERS  error    error
PARTS    REFUSED        error    error
PARTS    CALL_REFUSED   BY_JAX   error
BY_JAX   NEEDS_NUMBERS  error    error
BY_JAX   REFUSED        error    error
BY_JAX   CALL_REFUSED   BY_JAX   error
"""
"""Mode, event, the mode after it, and the same where `on_unsupported="error"`."""


def test_the_table_of_transitions():
    lines = []
    for mode, event in product(Mode, Event):
        ends = [next_mode(mode, event, may_use_xla=xla) for xla in (True, False)]
        names = ["error" if end is None else end.name for end in ends]
        lines.append(f"{mode.name:8} {event.name:14} {names[0]:8} {names[1]}")
    print("\n".join(lines))
    assert lines == AFTER.strip().splitlines()


@pytest.mark.parametrize("may_use_xla", [True, False])
def test_a_mode_never_goes_back(may_use_xla):
    order = list(Mode)
    for mode, event in product(Mode, Event):
        after = next_mode(mode, event, may_use_xla=may_use_xla) or mode
        assert order.index(after) >= order.index(mode)


def noisy(x):
    return jnp.tanh(unchanged(jnp.sin(x)))


def modes(f) -> list[Mode]:
    return [family.mode for family in f._families.values()]


def test_a_function_that_is_compiled_stays_whole():
    f = shlo_disc.jit(lambda x: x * 2)
    f(X)
    f(X[:4])
    assert modes(f) == [Mode.WHOLE]


def test_a_refused_program_runs_in_parts_until_it_is_forgotten():
    f = shlo_disc.jit(noisy, on_unsupported="xla")
    for _ in range(2):
        np.testing.assert_allclose(f(X), noisy(X), rtol=1e-5)
        assert modes(f) == [Mode.PARTS]
        f.cache_clear()
    with pytest.raises(shlo_disc.UnsupportedError):
        (g := shlo_disc.jit(noisy, on_unsupported="error"))(X)
    assert modes(g) == [Mode.WHOLE]


@pytest.mark.parametrize("on_unsupported", ["xla", "error"])
def test_numbers_come_before_parts(monkeypatch, on_unsupported):
    compiled = compiler._compile

    def refusing(lowered, shapes=None, **options):
        if shapes is None or not all(size in ("3", "4", "6") for row in shapes for size in row):
            raise shlo_disc.UnsupportedError("refused on purpose")
        return compiled(lowered, shapes, **options)

    monkeypatch.setattr(compiler, "_compile", refusing)
    f = shlo_disc.jit(lambda x: jnp.tanh(x) * 3, on_unsupported=on_unsupported)
    for n in (6, 4):
        np.testing.assert_allclose(f(X[:n]), np.tanh(X[:n]) * 3, rtol=1e-5)
        assert modes(f) == [Mode.NUMBERS]
    if on_unsupported == "error":
        with pytest.raises(shlo_disc.UnsupportedError, match="refused on purpose"):
            f(X[:5])
        assert modes(f) == [Mode.NUMBERS]
        return
    for n in (5, 3, 4):
        np.testing.assert_allclose(f(X[:n]), np.tanh(X[:n]) * 3, rtol=1e-5)
        assert modes(f) == [Mode.PARTS]


def test_versions_of_a_mode_that_was_left_are_made_anew(caplog):
    """Both were traced before one was refused, as by two threads."""
    f = shlo_disc.jit(noisy, dynamic=False, on_unsupported="xla")
    for x in (X, X[:4]):
        f.lower(x)
    assert modes(f) == [Mode.WHOLE]
    for x in (X, X[:4]):
        np.testing.assert_allclose(f(x), noisy(x), rtol=1e-5)
    assert modes(f) == [Mode.PARTS]
    assert "as jax.jit runs it" not in caplog.text


def test_a_call_that_is_refused_is_left_to_jax():
    state = jax.new_ref(jnp.zeros(6))

    def count(x):
        state[...] += x
        return state[...] * 2

    f = shlo_disc.jit(count, on_unsupported="xla")
    for k in (1, 2):
        np.testing.assert_allclose(f(X), X * 2 * k)
        assert modes(f) == [Mode.BY_JAX]
    assert f.cache_info() == (0, 0, None, 0)
    assert f.statistics()["by_xla"]
    with pytest.raises(shlo_disc.UnsupportedError, match=r"jax\.Ref"):
        f.lower(X)

"""SHLO_DISC_CACHE=verify: what is found on disk is compiled once more, and compared."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import shlo_disc
from shlo_disc import cache
from shlo_disc.dynamic.expr import Expr
from shlo_disc.executables.codec import from_bytes, to_bytes
from shlo_disc.executables.record import PartsRecord
from shlo_disc.store.entries import current
from tests.store.test_calls import forget
from tests.store.test_programs import LAYER, POSITIVE, SMALL

pytestmark = pytest.mark.usefixtures("own_store")

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def verifies(monkeypatch):
    """From when it is called on."""

    def begin() -> None:
        forget()
        monkeypatch.setenv("SHLO_DISC_CACHE", "verify")

    return begin


def of_kind(kind):
    return [entry for entry in current().entries() if entry.kind == kind]


def double(x):
    return x * 2.0 + 1.0


def triple(x):
    return x * 3.0 + 1.0


@pytest.mark.parametrize("text", [LAYER, POSITIVE])
def test_a_store_that_is_right_is_right(verifies, text):
    shlo_disc.compile(text)
    verifies()
    before = cache.stats()
    made = shlo_disc.compile(text)
    programs = made.programs if isinstance(made, shlo_disc.DataSizedExecutable) else [made]
    assert not any(program.was_loaded for program in programs)
    now = cache.stats()
    assert [now[name] - before[name] for name in ("loaded", "stored", "programs_loaded")] == [0] * 3


def test_calls_that_are_right_are_right(verifies):
    shlo_disc.jit(double)(X)
    verifies()
    g = shlo_disc.jit(double)
    np.testing.assert_array_equal(g(X), double(X))
    assert g.cache_info().loaded == 0


def test_code_with_a_right_checksum(verifies):
    shlo_disc.compile(SMALL)
    verifies()
    for entry in of_kind("kernels"):
        code = bytearray(entry.content())
        code[-1] ^= 1
        current().write(entry.key, bytes(code))
    with pytest.raises(shlo_disc.CacheMismatchError, match=r"v1/kernels/.*machine code"):
        shlo_disc.compile(SMALL)


def test_the_code_of_another_text(verifies):
    """It would run, and give wrong results."""
    shlo_disc.compile(SMALL, shapes=[["a", "b"], ["c", "d"]])
    before = {entry.key: entry.content() for entry in of_kind("kernels")}
    shlo_disc.compile(SMALL.replace("negate", "abs"), shapes=[["a", "b"], ["c", "d"]])
    (new,) = (
        e for e in of_kind("kernels") if e.key not in before and b"prepare" not in e.content()
    )
    verifies()
    for key, content in before.items():
        if b"prepare" not in content:
            current().write(key, new.content())
    with pytest.raises(shlo_disc.CacheMismatchError, match="v1/kernels/"):
        shlo_disc.compile(SMALL, shapes=[["a", "b"], ["c", "d"]])


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda r: replace(r, weak_results=(True, True)), "weak_results"),
        (lambda r: replace(r, host=replace(r.host, unread_arguments=(0,))), "host"),
        (lambda r: replace(r, name="other"), "its steps"),
    ],
)
def test_a_record_with_a_right_checksum(verifies, change, part):
    shlo_disc.compile(SMALL)
    (entry,) = of_kind("programs")
    verifies()
    current("programs").write(entry.key, to_bytes(change(from_bytes(entry.content()))))
    with pytest.raises(shlo_disc.CacheMismatchError, match=f"v1/programs/.*{part}"):
        shlo_disc.compile(SMALL)


def test_a_record_of_several_programs(verifies):
    shlo_disc.compile(POSITIVE)
    (entry,) = of_kind("programs")
    record = from_bytes(entry.content())
    assert isinstance(record, PartsRecord)
    verifies()
    current("programs").write(entry.key, to_bytes(replace(record, arguments=2)))
    with pytest.raises(shlo_disc.CacheMismatchError, match=r"v1/programs/.*steps"):
        shlo_disc.compile(POSITIVE)


def test_sizes_that_are_said_to_matter(verifies):
    shlo_disc.jit(double)(X)
    (entry,) = of_kind("sizes")
    (program,) = of_kind("programs")
    content = program.content()
    jax.clear_caches()
    verifies()
    # The entry of the other key has to exist to be found.
    for key in _other_keys(entry):
        current("programs").write(key, content)
    with pytest.raises(shlo_disc.CacheMismatchError, match="v1/sizes/"):
        shlo_disc.jit(double)(X)


def _other_keys(entry):
    from shlo_disc.driver.kept import Place, _with_short

    sizes = (Expr.symbol("a"),)
    current("sizes").write(entry.key, to_bytes((entry.key, sizes)))
    return [_with_short(Place(entry.key, (), {"a": n}), sizes).key for n in range(9)]


def test_a_call_with_the_program_of_another(verifies):
    programs = []
    for f in (double, triple):
        f.__name__ = "f"
        shlo_disc.jit(f)(X)
        forget()
        (key,) = {e.content() for e in of_kind("calls") if _is_program(e.content())} - {*programs}
        programs.append(key)
    verifies()
    call = next(e for e in of_kind("calls") if e.content() == programs[0])
    current("calls").write(call.key, programs[1])
    with pytest.raises(
        shlo_disc.CacheMismatchError, match=f"v1/calls/../{call.key.hex()}.*results"
    ):
        shlo_disc.jit(double)(X)


def _is_program(key):
    return any(entry.key == key for entry in of_kind("programs"))


def test_a_function_that_changed_at_other_sizes_is_no_mistake(verifies):
    def of(limit):
        def f(x):
            return x * 2.0 if x.shape[0] < limit else x * 3.0

        return f

    shlo_disc.jit(of(10))(X)
    verifies()
    g = shlo_disc.jit(of(20))
    np.testing.assert_array_equal(g(X), X * 2)
    np.testing.assert_array_equal(g(np.ones((15, 4), np.float32)), np.full((15, 4), 2.0))


def test_donated_arguments(verifies):
    for begin in (lambda: None, verifies):
        begin()
        x = jax.numpy.asarray(X)
        g = shlo_disc.jit(double, donate_argnums=0)
        np.testing.assert_array_equal(g(x), double(X))
        assert x.is_deleted()
        del g
        forget()

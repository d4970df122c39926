"""Programs that an earlier process compared with a trace at numbers: when the trace is spared."""

from __future__ import annotations

import functools
import gc
import threading
import types
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import cache
from shlo_disc.jax.versions import python_code
from shlo_disc.jax.versions.python_code import code_of
from tests.children import python

pytestmark = pytest.mark.usefixtures("own_store")

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
ROWS = np.linspace(-1, 1, 400, dtype=np.float32).reshape(100, 4)


class Process:
    """A function in a process of its own, as far as the store can tell."""

    def __init__(self, function, **options):
        gc.collect()
        jax.clear_caches()
        gc.collect()
        self.function, self.jitted = function, shlo_disc.jit(function, **options)

    def __call__(self, x, *rest):
        found = self.jitted(x, *rest)
        np.testing.assert_allclose(found, self.function(x, *rest), rtol=1e-5, atol=1e-6)
        return self

    @property
    def traces(self) -> tuple[int, int]:
        """How many had symbols, and numbers."""
        found = Counter(self.jitted.statistics()["traces"])
        return found["symbols"], found["numbers"]


def layer(scale=2.0, shift=0.5):
    def body(x):
        return jnp.tanh(x * scale) + jnp.float32(shift)

    return body


def test_other_first_sizes_need_no_trace_with_numbers():
    assert Process(layer())(X).traces == (1, 1)
    before = cache.stats()
    assert Process(layer())(X[:2]).traces == (1, 0)
    after = cache.stats()
    assert after["confirmed_loaded"] == before["confirmed_loaded"] + 1
    assert after["confirmed_missing"] == before["confirmed_missing"]
    # Known sizes need a trace with numbers alone, and so do sizes that come again.
    assert Process(layer())(X).traces == (0, 1)
    assert Process(layer())(X[:2]).traces == (1, 1)
    process = Process(layer())(X[:2])
    rows = [row for row in shlo_disc.stats()["functions"] if row["name"] == "body"]
    assert rows == [process.jitted.statistics()]
    assert rows[0]["traces"] == {"numbers": 1}


def test_other_sizes_behind_known_ones_need_none_either():
    Process(layer())(X)
    process = Process(layer())(X)
    assert process.traces == (0, 1)
    assert process(X[:2])(ROWS).traces == (1, 1)


def test_another_program_is_compared():
    Process(layer())(X)
    assert Process(layer(scale=3.0))(ROWS[:4]).traces == (1, 1)
    assert Process(layer(shift=1.5))(ROWS[:5]).traces == (1, 1)
    assert Process(layer(), name="another")(ROWS[:6]).traces == (1, 1)
    assert Process(layer())(ROWS[:7].astype(np.int32)).traces == (1, 1)
    with jax.default_matmul_precision("highest"):
        assert Process(layer())(ROWS[:8]).traces == (1, 1)
    assert Process(layer())(ROWS[:9]).traces == (1, 0)


@pytest.mark.parametrize("limit", [64, 2])
def test_sizes_that_answer_a_question_otherwise_are_compared(limit):
    def f(x):
        return x * 2 if x.shape[0] > limit else x * 3

    Process(f)(X)
    assert Process(f)(X[:3, :2]).traces == (1, 0)
    other = ROWS if limit == 64 else X[:2]
    assert Process(f)(other).traces[1] == 1


def test_sizes_that_ask_without_a_change_of_the_program_are_compared():
    """The guard is of another version, whose program is the same."""

    def f(x):
        return x * 2 if x.shape[0] > 64 else x * 2.0

    Process(f)(X)
    assert Process(f)(X[:2]).traces == (1, 0)
    assert Process(f)(ROWS).traces == (1, 1)


SCALE = 2.0


class Model:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return x * (self.scale if isinstance(x.shape[0], int) else 2.0)


def of_numbers(kind: str, scale: float, monkeypatch: Any) -> Any:
    """A function that multiplies by `scale` where it knows that sizes are numbers, else by 2."""
    if kind == "closed over":
        return lambda x: x * (scale if isinstance(x.shape[0], int) else 2.0)
    if kind == "a default":
        return lambda x, own=scale: x * (own if isinstance(x.shape[0], int) else 2.0)
    if kind == "a global":
        monkeypatch.setitem(globals(), "SCALE", scale)
        return lambda x: x * (SCALE if isinstance(x.shape[0], int) else 2.0)
    if kind == "a method":
        return Model(scale).__call__
    if kind == "an object":
        return Model(scale)
    if kind == "in a list":
        models = [{"a": Model(scale)}]
        return lambda x: 1 * models[0]["a"](x)
    if kind == "inside a wrapper":
        inner = jax.jit(Model(scale).__call__)
        return functools.wraps(layer)(lambda x: 1 * inner(x))
    assert kind == "partial"
    return functools.partial(lambda own, x: x * (own if x.shape[0].__class__ is int else 2.0),
                             scale)  # fmt: skip


KINDS = ("closed over", "a default", "a global", "a method", "an object", "in a list",
         "inside a wrapper", "partial")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_function_does_for_numbers_alone_is_compared(kind, monkeypatch):
    """The program with symbols is the same, and says nothing of it."""
    Process(of_numbers(kind, 2.0, monkeypatch), name="f")(X)
    assert Process(of_numbers(kind, 2.0, monkeypatch), name="f")(X[:2]).traces == (1, 0)
    assert Process(of_numbers(kind, 3.0, monkeypatch), name="f")(ROWS).traces[1] > 0


def test_functions_of_one_file_are_not_one():
    def f(x):
        return x * 2.0

    first = f

    def f(x):
        return x * (3.0 if isinstance(x.shape[0], int) else 2.0)

    Process(first)(X)
    assert Process(f)(X[:2]).traces[1] > 0


def test_static_arguments_count():
    def f(x, own):
        return x * (own if isinstance(x.shape[0], int) else 2.0)

    Process(f, static_argnums=1)(X, 2.0)
    assert Process(f, static_argnums=1)(X[:2], 2.0).traces == (1, 0)
    assert Process(f, static_argnums=1)(ROWS, 3.0).traces[1] > 0


MODEL = """
import shlo_disc, numpy as np
from {helper} import scale
def f(x):
    return x * (scale() if isinstance(x.shape[0], int) else 2.0)
def run(rows):
    g = shlo_disc.jit(f)
    y = g(np.ones((rows, 4), np.float32))
    return float(y[0, 0]), *sorted(g.statistics()["traces"].items())
"""


def test_an_edited_file_is_compared(own_store, tmp_path):
    """A module that the function reads, which says something else for numbers alone."""
    code = """
        import os, sys
        sys.path.insert(0, os.environ["AT"])
        import model
        print(model.run(int(os.environ["ROWS"])))
        """
    (tmp_path / "model.py").write_text(MODEL.format(helper="helper"))
    helper = tmp_path / "helper.py"

    def run(rows, scale):
        text = f"def scale():\n    return {scale}\n"
        if not helper.exists() or helper.read_text() != text:
            helper.write_text(text)
        variables = {"AT": str(tmp_path), "ROWS": str(rows), "PYTHONDONTWRITEBYTECODE": "1"}
        return python(code, SHLO_DISC_CACHE_DIR=str(own_store), **variables)

    assert run(3, 2.0) == "(2.0, ('numbers', 1), ('symbols', 1))"
    assert run(5, 2.0) == "(2.0, ('symbols', 1))"
    assert run(7, 3.0).startswith("(3.0, ('numbers', ")


def test_a_function_that_remembers_sizes_is_left_with_numbers():
    for rows in (3, 2, 1):
        seen = {}

        def f(x, seen=seen):
            seen["n"] = x.shape[0]
            return x * 2

        assert Process(f)(X[:rows]).traces == (1, 1)
        assert type(seen["n"]) is int


def test_who_asks_for_comparisons_has_them(monkeypatch):
    Process(layer())(X)
    assert Process(layer(), dynamic="checked")(X[:2]).traces[1] == 1
    monkeypatch.setenv("SHLO_DISC_CACHE", "verify")
    assert Process(layer())(X[:1]).traces[1] == 1


def test_programs_that_call_back_are_compared():
    def f(x):
        return jax.pure_callback(np.sin, x, x)

    for rows in (3, 2):
        assert Process(f)(X[:rows]).traces[1] == 1


def test_derivatives_need_none():
    Process(layer())(X)
    process = Process(layer())
    found = jax.grad(lambda x: process.jitted(x).sum())(X[:2])
    np.testing.assert_allclose(found, jax.grad(lambda x: layer()(x).sum())(X[:2]), rtol=1e-5)


def test_what_has_no_name_has_no_digest(monkeypatch):
    typed_in = types.FunctionType(compile("lambda: 1", "<stdin>", "eval").co_consts[0], {})
    lock, many = threading.Lock(), [[k] for k in range(python_code._MOST)]
    recursive: list[Any] = []
    recursive.append(recursive)
    (size,) = jax.export.symbolic_shape("n")
    for value in (typed_in, lock, many, [size], {"shape": (size, 4)}, {object()}):
        assert code_of(lambda value=value: value) is None
    assert code_of(recursive) is not None
    monkeypatch.setattr(python_code.sys.modules["__main__"], "__file__", None, raising=False)
    monkeypatch.setattr(python_code.sys, "argv", ["ipython"])
    assert code_of(layer()) is None


def test_a_digest_of_code_tells_values_apart():
    values = [1, 1.0, True, "1", b"1", None, (1,), [1], {1: 2}, {2: 1}, {1, 2}, {1, 3}, [[1], [1]],
              np.float32(1), np.float64(1), np.ones(3), np.ones(3, np.int32), np.ones((1, 3)),
              jnp, np, Model, Model(1), Model(2), Model(1).__call__, len, np.add, jax.nn.gelu,
              layer(1), layer(2), functools.partial(layer, 1), np.dtype("f4"), slice(1, 2),
              jax.tree.structure([1]), jax.tree.structure({"a": 1})]  # fmt: skip
    assert len({code_of(value) for value in values}) == len(values)
    twice = [1]
    assert code_of([twice, twice]) != code_of([[1], [1]]) is not None


def test_a_digest_of_code_is_the_same_in_every_process():
    code = """
        from tests.store.test_confirmations import layer, Model
        from shlo_disc.jax.versions.python_code import code_of
        print(code_of(layer(), {"b", "a"}, Model(3)).hex())
        """
    assert python(code, PYTHONHASHSEED="7") == python(code, PYTHONHASHSEED="8")


def pattern_of(process: Process) -> str:
    (family,) = process.jitted._families.values()
    return family.versions[0].pattern.text()


def product(x, w):
    return jnp.tanh(x @ w).reshape(-1, int(w.shape[1]) // 2)


def test_a_later_process_knows_which_sizes_are_constants():
    """The first trace finds out that the program needs one as a number, and is repeated."""
    w = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    first = Process(product)(X, w)
    assert first.traces[0] > 1
    before = cache.stats()["choices_loaded"]
    later = Process(product)(ROWS, w)
    assert later.traces == (1, 0)
    assert cache.stats()["choices_loaded"] == before + 1
    assert pattern_of(later) == pattern_of(first)
    # Another number is another version, as in one process.
    assert Process(product)(X, w[:, :4]).traces[0] == first.traces[0]


@pytest.mark.parametrize("rows", [3, 5, 100])
def test_a_known_choice_serves_calls_that_fit_it(rows):
    """A size that only short calls need as a number stays a symbol in others."""

    def f(x):
        return jnp.tanh(x).reshape(int(x.shape[1]), -1) if x.shape[0] < 4 else x * 2

    first = Process(f)(X)
    assert first.traces[0] > 1
    alone = Process(f, name="alone")(ROWS[:rows])
    assert pattern_of(Process(f)(ROWS[:rows])) == pattern_of(alone)


def test_a_choice_is_not_that_of_another_function():
    def of(divisor):
        def f(x):
            width = int(x.shape[1]) if divisor == 2 else x.shape[1]
            return x.reshape(-1, width) * divisor

        return f

    first = Process(of(2))(X)
    assert first.traces[0] > 1
    other = Process(of(3))(ROWS)
    assert "(d0, d1)" in pattern_of(other)
    assert "(d0, 4)" in pattern_of(first)


def test_a_choice_is_compared_once_it_is_doubted(monkeypatch):
    """SHLO_DISC_CACHE=verify uses none."""
    w = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    first = Process(product)(X, w)
    monkeypatch.setenv("SHLO_DISC_CACHE", "verify")
    assert Process(product)(ROWS, w).traces[0] == first.traces[0]

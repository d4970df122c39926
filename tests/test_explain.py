"""explain(): kernels, variants, reasons and memory of a compiled program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc


def mlp(x, w, u):
    return jax.nn.softmax(jnp.tanh(x @ w) @ u)


ARRAYS = [np.ones(s, np.float32) for s in ((5, 8), (8, 24), (24, 7))]


def executable():
    f = shlo_disc.jit(mlp)
    f(*ARRAYS)
    return f, f.lower(*ARRAYS).compile().executable


def test_every_kernel_has_its_kind_source_line_and_variants():
    _, exe = executable()
    text = exe.explain()
    lines = text.split("kernels:\n")[1].splitlines()
    kinds = [line.split()[1] for line in lines if line[:4].strip().isdigit()]
    assert kinds == ["dense", "dense", "row"]
    assert text.startswith("mlp: 3 kernels, ")
    assert text.count("test_explain.py:") >= 3
    assert "dense_packed where operand 1 is kept packed, else (dense_direct if d0 <= " in text


def test_memory_is_a_formula_and_a_number():
    _, exe = executable()
    few = exe.explain({"d0": 10, "d1": 8, "d2": 24, "d3": 7})
    many = exe.explain({"d0": 1000, "d1": 8, "d2": 24, "d3": 7})

    def number(text):
        return int(text.split(" bytes = ")[1].split(" at ")[0].replace(",", ""))

    assert number(few) >= 10 * 24 * 4  # what lies between the products
    assert number(many) >= 1000 * 24 * 4
    assert number(many) < 3 * 1000 * 24 * 4
    with pytest.raises(KeyError):
        exe.explain({"d0": 10})


def test_a_function_explains_its_compiled_versions():
    f, exe = executable()
    assert exe.explain() in f.explain()
    assert f.explain().startswith("version 1 of mlp")


def test_neighbours_that_are_not_fused_say_why():
    def f(x):
        y = jnp.exp(x)
        return y.sum(0), jnp.sort(y, 1), y + y.sum(0)

    g = shlo_disc.jit(f)
    g(np.ones((4, 6), np.float32))
    assert "not fused with" in g.explain()

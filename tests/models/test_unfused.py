"""A fusion no kernel can be written for is planned again as smaller ones; the program compiles.

Emitters are broken on purpose: they refuse whatever computes more than a few ops.
"""

import functools
import importlib
import itertools
import logging
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError, UnsupportedError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.target import EMITTERS
from shlo_disc.lower.plan import Kernel, KernelPlan, Launch
from shlo_disc.lower.target import parse
from shlo_disc.passes.op_classes import FREE
from tests.models.harness import layer_norm, normal, rng_of

NO_WORK = FREE | {"disc.shape", "disc.yield", "stablehlo.constant"}


def ops_in(fusion):
    return sum(
        view.operation.name not in NO_WORK for view in fusion.regions[0].blocks[0].operations
    )


def step(h, x):
    gates = jnp.split(h @ jnp.tile(x[None], (h.shape[-1], 2)) / 64.0, 2, -1)
    h = jnp.tanh(gates[0]) * jax.nn.sigmoid(gates[1]) + h
    return h, h


def program(x, w):
    """Something of every kind: x [b, t, n], w [n, n]."""
    b, t, n = x.shape
    attended = jax.nn.softmax(jnp.einsum("btn,bsn->bts", x, x) / 4.0) @ x
    normal_ = layer_norm(attended @ w + x)
    gelu = jax.nn.gelu(normal_ @ w)
    dequantised = x @ (w * 0.5 + 1.0).T
    convolution = functools.partial(
        jax.lax.conv_general_dilated, window_strides=(1,), padding="SAME",
        dimension_numbers=("NWC", "WIO", "NWC"),
    )  # fmt: skip
    pixels = jax.nn.relu(convolution(gelu, jnp.stack([w, w, w])) + x)
    columns = gelu - gelu.mean((0, 1))
    rows = columns.at[:, jnp.arange(t) // 2].add(x * 0.25 + 1.0)
    placed = jax.lax.dynamic_update_slice(rows, x[:, -1:] * 0.5 + 1.0, (0, 0, 0))
    state, states = jax.lax.scan(step, jnp.zeros((b, n)), placed[0])
    mask = jnp.where(jnp.arange(t)[:, None] % 2 == 0, placed, 0.5)
    found, _ = jax.lax.top_k(mask.reshape(b, -1), 1)
    ordered = jnp.sort(states.sum(0) + found, axis=-1)
    return layer_norm(mask), pixels, ordered, state, dequantised, jnp.exp(-jnp.abs(mask)).max()


def arguments(b, t, n=8):
    return normal(rng_of(b, t), b, t, n), normal(rng_of(n), n, n, scale=0.3)


SHAPES = ((2, 5), (3, 9))


def refuse(monkeypatch, kind, most, error):
    """The emitter of `kind` refuses what computes more than `most` ops."""
    emit = EMITTERS[kind]

    def emit_few(fusion, machine):
        if ops_in(fusion.op) > most:
            raise error
        return emit(fusion, machine)

    monkeypatch.setitem(EMITTERS, kind, emit_few)


_NUMBERS = itertools.count()


@functools.cache
def expected(function, shape):
    return jax.tree.leaves(jax.jit(function)(*arguments(*shape)))


def check(function=program):
    """`function` is right at all shapes; its executable."""
    number = float(next(_NUMBERS))

    def another(x, w):  # executables of equal programs are shared
        return function(x, w), number

    f = shlo_disc.jit(another)
    with flags.overridden(split=1):
        for shape in SHAPES:
            got = jax.tree.leaves(f(*arguments(*shape))[0])
            for ours, theirs in zip(got, expected(function, shape), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)
        assert f.cache_info().misses == 1
        return f.lower(*arguments(*SHAPES[0])).compile().executable


KINDS = (
    "attention", "column", "conv", "dense", "dynamic_update_slice", "loop", "row", "scatter",
)  # fmt: skip
"""Kinds of fusions that may compute several ops."""


def test_nothing_is_refused_unless_an_emitter_is_broken():
    executable = check()
    assert executable.unfused == ()
    assert set(KINDS) <= {kernel["kind"] for kernel in executable.describe()["kernels"]}
    assert "planned again" not in executable.explain()


@pytest.mark.parametrize(
    "kind", [kind if kind == "row" else pytest.param(kind, marks=pytest.mark.slow)
             for kind in KINDS]
)  # fmt: skip
def test_every_kind_may_be_refused(monkeypatch, caplog, kind):
    refuse(monkeypatch, kind, 1, InternalError(f"broken {kind}"))
    with caplog.at_level(logging.WARNING, "shlo_disc"):
        executable = check()
    assert {unfused.kind for unfused in executable.unfused} == {kind}
    assert all(unfused.parts > 1 for unfused in executable.unfused)
    told = [record.message for record in caplog.records if f"broken {kind}" in record.message]
    assert len(told) == len(set(map(str, executable.unfused)))
    assert "test_unfused.py:" in told[0]
    for one in executable.describe()["unfused"]:
        assert one["reason"] == f"broken {kind}"
    parts = [k for k in executable.describe()["kernels"] if any("part of" in w for w in k["why"])]
    assert len(parts) == sum(unfused.parts for unfused in executable.unfused)
    text = executable.explain()
    assert f"of kind {kind} at " in text
    assert f"part of {executable.unfused[0].name} of kind {kind}" in text


ERRORS = (
    KeyError("x"), AssertionError("y"), RecursionError("deep"), UnsupportedError("not covered"),
    IndexError(), InternalError("broken"), ValueError("z"), TypeError("t"),
)  # fmt: skip


@pytest.mark.slow
def test_all_kinds_by_all_sorts_of_mistakes(monkeypatch):
    for kind, error in zip(KINDS, ERRORS, strict=True):
        refuse(monkeypatch, kind, 1, error)
    executable = check()
    assert {unfused.kind for unfused in executable.unfused} == set(KINDS)
    assert all(
        sum(n for op, n in kernel["ops"].items() if op not in NO_WORK) <= 1
        for kernel in executable.describe()["kernels"]
    )


def test_a_kernel_that_does_not_compile(monkeypatch, tmp_path):
    emit = EMITTERS["row"]

    def emit_nonsense(fusion, machine):
        plan = emit(fusion, machine)
        if ops_in(fusion.op) == 1:
            return plan
        launch = Launch(Kernel("nonsense", "func.func @KERNEL() { nonsense }"), (), (),
                        Expr.const(1), Expr.const(1))  # fmt: skip
        return KernelPlan((launch, *plan.steps), plan.workspaces)

    monkeypatch.setitem(EMITTERS, "row", emit_nonsense)
    with flags.overridden(dump=tmp_path):
        executable = check(lambda x, _: layer_norm(x))
    assert {unfused.kind for unfused in executable.unfused} == {"row"}
    (dumped,) = tmp_path.glob("another-*/refused-*.mlir")
    told, text = dumped.read_text().split("func.func @KERNEL")
    assert "nonsense" in told
    assert all(line.startswith("// ") for line in told.splitlines())
    assert text == "() { nonsense }"


def test_a_host_program_that_does_not_compile(monkeypatch, tmp_path):
    def refused(_):
        raise InternalError("broken host")

    broken = replace(parse("cpu"), compile_host=refused)
    monkeypatch.setattr(
        importlib.import_module("shlo_disc.driver.stages"), "parse", lambda _: broken
    )
    with (
        flags.overridden(dump=tmp_path),
        pytest.raises(InternalError, match="broken host") as raised,
    ):
        shlo_disc.jit(lambda x: x * 1.375)(np.ones(3, np.float32))
    (dumped,) = tmp_path.glob("*/refused-host.mlir")
    assert dumped.read_text().startswith("// broken host\n")
    assert "func.func @run" in dumped.read_text()
    assert raised.value.__notes__ == [f"its text is {dumped}"]


def test_a_mistake_is_an_error_in_tests(monkeypatch):
    refuse(monkeypatch, "row", 1, KeyError("missing"))
    with pytest.raises(InternalError, match=r"of kind row .*harness.py:\d+.*KeyError"):
        shlo_disc.jit(layer_norm)(*arguments(*SHAPES[0])[:1])


def test_what_the_flag_says():
    with flags.overridden(spec=0, split=""):
        assert flags.split()
    with flags.overridden(spec=1, split=""):
        assert not flags.split()
    with flags.overridden(spec=1, split=1):
        assert flags.split()
    with flags.overridden(spec=0, split=0):
        assert not flags.split()


def test_one_op_with_no_kernel_is_an_error(monkeypatch):
    refuse(monkeypatch, "sort", 0, KeyError("missing"))
    with (
        flags.overridden(split=1),
        pytest.raises(InternalError, match=r"sort of kind sort .*test_unfused.py:\d+.*KeyError"),
    ):
        shlo_disc.jit(lambda x: jnp.sort(x * 2.0, axis=-1))(*arguments(*SHAPES[0])[:1])


def test_memory_is_planned_for_the_parts(monkeypatch):
    """Donated arguments, states of loops and updates in place, all planned a second time."""

    def function(x, w):
        def body(i, carry):
            x, total = carry
            x = x.at[:, i].set(jnp.tanh(x[:, i] @ w) * 0.5)
            return x, total + x.sum(1)

        return jax.lax.fori_loop(0, x.shape[1], body, (x, x[:, 0] * 2.0))

    for kind in KINDS:
        refuse(monkeypatch, kind, 1, ValueError(kind))
    f = shlo_disc.jit(function)
    donating = shlo_disc.jit(lambda x: jnp.tanh(x * 2.0 + 1.0), donate_argnums=0)
    with flags.overridden(split=1):
        for shape in SHAPES:
            x, w = arguments(*shape)
            for ours, theirs in zip(f(x, w), jax.jit(function)(x, w), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)
            given = f(x, w)[0]
            expected = np.tanh(np.asarray(given) * 2.0 + 1.0)
            np.testing.assert_allclose(donating(given), expected, rtol=1e-5, atol=1e-6)
            assert given.is_deleted()

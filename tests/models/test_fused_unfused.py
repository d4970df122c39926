"""Random programs of ops that fuse: every operation alone gives what the fused kernels give.

Each example builds a StableHLO graph through JAX over a few arrays of symbolic sizes, compiles it
twice (`SHLO_DISC_FUSION`), and compares at sizes it was not traced with, and with XLA.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shlo_disc
from shlo_disc.base import flags

SHAPES = ((3, 5, 8), (1, 1, 1), (4, 17, 33), (2, 64, 7))
"""(b, t, n) of the calls; the first one traces."""


def matrix(v, b, t, n):
    """Values as [B, T, N], whatever shape they have."""
    return jnp.broadcast_to(v, (b, t, n))


def weight(v):
    """[N, N], of moderate size."""
    return jnp.tanh(v[0].T @ v[0]) / 8.0


def gates(v):
    """A product read in two bands."""
    w = weight(v)
    a, b = jnp.split(v @ jnp.concatenate([w, w * 0.5], 1), 2, -1)
    return jnp.tanh(a) * jax.nn.sigmoid(b) + v


def stacked(v):
    """The state of a loop as its result."""

    def step(h, x):
        h = jnp.tanh(h * 0.5 + x)
        return h, h

    return jax.lax.scan(step, v[:, 0], v.swapaxes(0, 1))[1].swapaxes(0, 1)


UNARY = {
    "gates": gates,
    "stacked": stacked,
    "projection": lambda v: v @ weight(v),
    "rows added": lambda v: v.at[:, jnp.zeros(2, jnp.int32)].add(v[:, :1] * 0.25),
    "row replaced": lambda v: v.at[:, 0].set(v[:, -1] * 0.5),
    "tanh": jnp.tanh,
    "negative": jnp.negative,
    "square": lambda v: v * v,
    "exp": lambda v: jnp.exp(-jnp.abs(v)),
    "relu": jax.nn.relu,
    "reverse": lambda v: v[:, ::-1],
    "shift": lambda v: jnp.concatenate([v[:, 1:], v[:, :1]], 1),
    "pad and cut": lambda v: jnp.pad(v, ((0, 0), (1, 0), (0, 0)))[:, :-1],
    "transpose twice": lambda v: (v.transpose(0, 2, 1) * 2.0).transpose(0, 2, 1),
    "reshape": lambda v: (v.reshape(-1, v.shape[-1]) + 1.0).reshape(v.shape),
    "integers": lambda v: (v * 4.0).astype(jnp.int32).astype(jnp.float32),
    "mask": lambda v: jnp.where(jnp.arange(v.shape[1])[:, None] % 2 == 0, v, 0.5),
}
REDUCING = {
    "normalised product": lambda v: jax.nn.softmax(v @ weight(v) + v, -1),
    "row sum": lambda v: v.sum(-1, keepdims=True) / 8.0,
    "row maximum": lambda v: v.max(-1, keepdims=True),
    "column mean": lambda v: v.mean(1, keepdims=True),
    "whole maximum": lambda v: v.max(),
    "softmax": lambda v: jax.nn.softmax(v, -1),
    "softmax of columns": lambda v: jax.nn.softmax(v, 1),
    "batch mean": lambda v: v.mean((0, 1), keepdims=True),
    "channels centred": lambda v: v - v.mean((0, 2), keepdims=True),
    "scaled in other dimensions": lambda v: (
        (v - v.max((0, 1))).reshape(-1, v.shape[-1]) * 0.5
    ).reshape(v.shape),
    "centred": lambda v: v - v.mean(-1, keepdims=True),
}
BINARY = {
    "add": jnp.add,
    "subtract": jnp.subtract,
    "multiply": lambda a, b: a * jnp.tanh(b),
    # The same from both sides where they are equal: rounding decides there.
    "select": lambda a, b: jnp.where(a > b, a - b, (b - a) * 0.5),
    "product": lambda a, b: jnp.einsum("btn,bsn->bts", a, b) @ b / 64.0,
    "attention": lambda a, b: jax.nn.softmax(jnp.einsum("btn,bsn->bts", a, b) / 8.0) @ b,
}


@st.composite
def programs(draw):
    """A list of steps: (op, operands by number, 0 and 1 are the arguments)."""
    steps = []
    for position in range(draw(st.integers(2, 9))):
        kind = draw(st.sampled_from((UNARY, UNARY, REDUCING, BINARY)))
        name = draw(st.sampled_from(sorted(kind)))
        operands = [draw(st.integers(0, position + 1)) for _ in range(1 + (kind is BINARY))]
        steps.append((name, operands))
    outputs = draw(st.lists(st.integers(2, len(steps) + 1), min_size=1, max_size=3, unique=True))
    return steps, outputs


def function_of(program):
    steps, outputs = program
    ops = UNARY | REDUCING | BINARY

    def function(x, bias):
        b, t, n = x.shape
        values = [x, bias]
        for name, operands in steps:
            whole = [matrix(values[k], b, t, n) for k in operands]
            values.append(ops[name](*whole))
        return [values[k] for k in outputs]

    return function


def arrays(b, t, n):
    rng = np.random.default_rng(b * 1000 + t * 10 + n)
    return rng.standard_normal((b, t, n), np.float32), rng.standard_normal(n, np.float32)


def compiled(function, fusion):
    f = shlo_disc.jit(function)
    with flags.overridden(fusion=fusion):
        f(*arrays(*SHAPES[0]))
    return f


def check(program):
    function = function_of(program)
    fused, single = compiled(function, 1), compiled(function, 0)
    for shape in SHAPES:
        x = arrays(*shape)
        with flags.overridden(fusion=0):
            apart = single(*x)
        for a, b, c in zip(fused(*x), apart, function(*map(jnp.asarray, x)), strict=True):
            assert a.shape == b.shape == c.shape
            # Sums in another order, through up to nine ops; integers may round the other way.
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
            np.testing.assert_allclose(a, c, rtol=2e-4, atol=2e-4)


def settled(program):
    """Rounding to integers amplifies any difference before it: only on the arguments."""
    return all(name != "integers" or operands[0] < 2 for name, operands in program[0])


COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much],
}


@settings(max_examples=4, **COMMON)
@given(programs().filter(settled))
@pytest.mark.slow
def test_fused_and_unfused_agree(program):
    check(program)


@pytest.mark.slow
@settings(max_examples=300, **COMMON)
@given(programs().filter(settled))
def test_fused_and_unfused_agree_on_many(program):
    check(program)


def test_without_fusion_every_op_is_a_kernel():
    def f(x):
        return jnp.tanh(x * 2.0) + 1.0

    counts = []
    for fusion in (1, 0):
        with flags.overridden(fusion=fusion):
            g = shlo_disc.jit(f)
            g(np.ones((3, 4), np.float32))
            counts.append(g.lower(np.ones((3, 4), np.float32)).as_text("disc").count("disc.fusion"))
    assert counts == [1, 3]

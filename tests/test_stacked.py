"""What loops stack: the result of every kind of kernel and call, at its place in the stack.

The planner has a value computed where a `dynamic_update_slice` would put it. So each kind of
fusion, each library call (also in place of any operand) and control flow is the source of a
stacked result, in loops of every form. The oracle is `jax.jit`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from tests.cases import all_but

Array = jax.Array
Function = Callable[[Array], Any]
N = 4


def _positive(v: Array) -> Array:
    return v @ v.T + jnp.eye(N)


def _heads(v: Array) -> Array:
    return jnp.stack([v, v + 1])


def _conv(v: Array) -> Array:
    image = v[None, None]
    return lax.conv_general_dilated(image, image[..., :2, :2], (1, 1), "SAME")[0, 0]


SOURCES: dict[str, Function] = {
    "attention": lambda v: jax.nn.softmax(_heads(v) @ jnp.swapaxes(_heads(v), 1, 2)) @ _heads(v),
    "cholesky": lambda v: jnp.linalg.cholesky(_positive(v)),
    "column": lambda v: jnp.sin(v) - jnp.sin(v).mean(0),
    "cond": lambda v: lax.cond(v[0, 0] > 0, jnp.sin, lambda x: x @ x, v),
    "conv": _conv,
    "copy": lambda v: v.T,
    "dense": lambda v: v @ jnp.cos(v) + 1,
    "eigh": lambda v: jnp.linalg.eigh(_positive(v))[0],
    "fft": lambda v: jnp.fft.rfft(v).real + jnp.fft.rfft(v).imag,
    "fft of complex": jnp.fft.fft,
    "gather": lambda v: v[jnp.argsort(v[0])],
    "integers": lambda v: jnp.argmax(v, 1),
    "inverse": lambda v: jnp.linalg.inv(v + N * jnp.eye(N)),
    "loop": jnp.sin,
    "lu": lambda v: jax.scipy.linalg.lu(v + N * jnp.eye(N)),
    "lu and pivots": lambda v: lax.linalg.lu(v)[:2],
    "nothing": lambda v: v,
    "qr": lambda v: jnp.abs(jnp.linalg.qr(_positive(v))[1]),
    "random bits": lambda v: jax.random.bits(jax.random.key(v[0, 0].astype(np.uint32)), (N,)),
    "reduce_window": lambda v: lax.reduce_window(v, -jnp.inf, lax.max, (2, 2), (1, 1), "SAME"),
    "row": jax.nn.softmax,
    "scalar": lambda v: v.sum(),
    "scan": lambda v: jnp.cumsum(v, 0),
    "scatter": lambda v: v.at[jnp.array([2, 0])].add(v[:2]),
    "slogdet": jnp.linalg.slogdet,
    "solve": lambda v: jnp.linalg.solve(v + N * jnp.eye(N), v[0]),
    "solve several": lambda v: jnp.linalg.solve(v + N * jnp.eye(N), jnp.sin(v)),
    "sort": lambda v: jnp.sort(v, 0),
    "sort of two": lambda v: lax.sort((v[0], v[1]), num_keys=1),
    "svd": lambda v: jnp.linalg.svd(v, compute_uv=False),
    "top_k": lambda v: lax.top_k(v, 2),
    "triangular solve": lambda v: jax.scipy.linalg.solve_triangular(_positive(v), v[0] * 2),
    "tridiagonal solve": lambda v: lax.linalg.tridiagonal_solve(
        v[0].at[0].set(0), v[1] + 9, v[2].at[-1].set(0), v
    ),
    "update": lambda v: lax.dynamic_update_slice(v, v[:1] * 2, (1, 0)),
    "while": lambda v: lax.while_loop(lambda c: (c < 9).any(), lambda c: c + 1 + c**2, v),
}


def _leaf(found: Any) -> Array:
    return sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(found))


def _carried(f: Function, xs: Array) -> Any:
    """The result is stacked, and a part of the next step's argument."""

    def step(carry: Any, v: Array) -> tuple[Any, Any]:
        found = f(v + 1e-3 * _leaf(carry))
        return found, found

    start = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(f, xs[0]))
    return lax.scan(step, start, xs)


def _filled(f: Function, xs: Array) -> Any:
    stacks = jax.tree.map(
        lambda a: jnp.zeros((xs.shape[0], *a.shape), a.dtype), jax.eval_shape(f, xs[0])
    )

    def step(i: Array, stacks: Any) -> Any:
        return jax.tree.map(lambda stack, a: stack.at[i].set(a), stacks, f(xs[i]))

    return lax.fori_loop(0, xs.shape[0], step, stacks)


def _reverse(f: Function, xs: Array) -> Any:
    return lax.scan(lambda c, v: (c + 1, (f(v * c), c)), 1.0, xs, reverse=True)


def _branch_around(f: Function, xs: Array) -> Any:
    zeros = jax.tree.map(
        lambda a: jnp.zeros((xs.shape[0], *a.shape), a.dtype), jax.eval_shape(f, xs[0])
    )
    return lax.cond(xs[0, 0, 0] > -9, lambda: lax.map(f, xs), lambda: zeros)


def _branch_inside(f: Function, xs: Array) -> Any:
    def one(v: Array) -> Any:
        zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(f, v))
        return lax.cond(v[0, 0] > 0, lambda: f(v), lambda: zeros)

    return lax.map(one, xs)


def _and_more(f: Function, xs: Array) -> Any:
    """The result is read by others, too."""

    def one(v: Array) -> Any:
        found = f(v)
        return found, jax.tree.map(lambda a: a + a.dtype.type(1), found), _leaf(found)

    return lax.map(one, xs)


LOOPS: dict[str, Callable[[Function, Array], Any]] = {
    "map": lax.map,
    "carried": _carried,
    "filled": _filled,
    "reverse": _reverse,
    "nested": lambda f, xs: lax.map(lambda v: lax.map(lambda k: f(v + k), jnp.arange(3.0)), xs),
    "branch around": _branch_around,
    "branch inside": _branch_inside,
    "more readers": _and_more,
    "vmap of map": lambda f, xs: jax.vmap(lambda k: lax.map(lambda v: f(v + k), xs))(
        jnp.arange(2.0)
    ),
    "map of vmap": lambda f, xs: lax.map(lambda v: jax.vmap(f)(_heads(v)), xs),
    "gradient": lambda f, xs: jax.grad(lambda xs: _leaf(lax.map(f, xs)))(xs),
    "gradient of scan": lambda f, xs: jax.grad(lambda xs: _leaf(_carried(f, xs)))(xs),
    "gradient of nested": lambda f, xs: jax.grad(
        lambda xs: _leaf(lax.map(lambda v: lax.map(lambda k: f(v + k), jnp.arange(2.0)), xs))
    )(xs),
}

NO_GRADIENT = {"integers", "lu and pivots", "nothing", "random bits", "while"}
"""Of integers, of what JAX does not derive, or zero."""


DEFAULT = {
    "branch around": "qr", "branch inside": "svd", "carried": "cholesky", "filled": "inverse",
    "gradient of nested": "triangular solve", "gradient of scan": "triangular solve",
    "map": "tridiagonal solve", "map of vmap": "lu and pivots", "more readers": "solve",
    "nested": "eigh", "reverse": "lu", "vmap of map": "solve several",
}  # fmt: skip
"""A call for every loop, chosen to compile fast; "gradient of nested" has a "gradient" in it."""
KEPT = {(source, loop) for loop, source in DEFAULT.items()} | {
    ("slogdet", "map"),
    ("scatter", "carried"),
    ("while", "nested"),
}
EVERY = [*product(SOURCES, LOOPS)]
CASES = all_but({*EVERY} - KEPT, EVERY)
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Options for XLA: references are compiled for one call."""


@pytest.mark.parametrize(("source", "loop"), CASES)
def test_loop_stacks_what(source: str, loop: str) -> None:
    if source in NO_GRADIENT and "gradient" in loop:
        loop = "map"

    def function(xs: Array) -> Any:
        return LOOPS[loop](SOURCES[source], xs)

    compiled = shlo_disc.jit(function)
    for n in (5, 1):
        xs = np.random.default_rng(n).uniform(0.5, 2, (n, N, N)).astype(np.float32)
        xs[0, 0, 0] *= -1
        want = jax.jit(function).lower(xs).compile(compiler_options=FAST)(xs)
        found = compiled(xs)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)

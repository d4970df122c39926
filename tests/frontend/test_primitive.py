"""Calls inside JAX's transformations: against plain JAX, at several sizes, every program compiled
once."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.jax.derived.derived import linearized
from tests.cases import all_but
from tests.children import forked

RNG = np.random.default_rng(1)


def F(*shape):
    return jnp.asarray(RNG.standard_normal(shape).astype(np.float32))


def function(w, x):
    return jnp.tanh(x @ w).sum(0)


def loss(f):
    return lambda w, x: (f(w, x) ** 2).sum()


def scanned(f):
    def run(w, xs):
        return jax.lax.scan(lambda c, x: (c + f(w, x).sum(), f(w, x)), 0.0, xs)

    return run


TRANSFORMATIONS = {
    "jit": lambda f: jax.jit(lambda w, x: f(w, x) + 1),
    "eval_shape": lambda f: lambda w, x: jnp.zeros(jax.eval_shape(f, w, x).shape),
    "grad": lambda f: jax.grad(loss(f), (0, 1)),
    "grad of one": lambda f: jax.grad(loss(f)),
    "jit of grad": lambda f: jax.jit(jax.value_and_grad(loss(f), (0, 1))),
    "jvp": lambda f: lambda w, x: jax.jvp(f, (w, x), (w + 1, x - 1)),
    "jvp of one": lambda f: lambda w, x: jax.jvp(lambda w: f(w, x), (w,), (w + 1,)),
    "vjp": lambda f: lambda w, x: jax.vjp(f, w, x)[1](jnp.ones(w.shape[1])),
    "jacrev": lambda f: jax.jacrev(f, 1),
    "jacfwd": jax.jacfwd,
    "hessian": lambda f: jax.hessian(loss(f)),
    "linearize": lambda f: lambda w, x: jax.linearize(f, w, x)[1](w, x),
    "checkpoint": lambda f: jax.grad(lambda w, x: jax.checkpoint(f)(w, x).sum()),
    "vmap": lambda f: lambda w, x: jax.vmap(f, (None, 0))(w, jnp.stack([x, x + 1])),
    "vmap in the middle": lambda f: (
        lambda w, x: jax.vmap(f, (1, None), 1)(jnp.stack([w, w * 2, w], 1), x)
    ),
    "vmap of vmap": lambda f: (
        lambda w, x: jax.vmap(jax.vmap(f, (None, 0)), (0, None))(
            jnp.stack([w, w * 2]), jnp.stack([x, x, x])
        )
    ),
    "vmap of nothing": lambda f: lambda w, x: jax.vmap(f, (None, 0))(w, jnp.zeros((0, *x.shape))),
    "vmap of grad": lambda f: (
        lambda w, x: jax.vmap(jax.grad(loss(f)), (None, 0))(w, jnp.stack([x, x + 1]))
    ),
    "grad of vmap": lambda f: jax.grad(
        lambda w, x: jax.vmap(f, (None, 0))(w, jnp.stack([x, x])).sum()
    ),
    "scan": lambda f: lambda w, x: scanned(f)(w, jnp.stack([x, x * 2])),
    "grad of scan": lambda f: jax.grad(lambda w, x: scanned(f)(w, jnp.stack([x, x * 2]))[0]),
    "cond": lambda f: lambda w, x: jax.lax.cond(x.sum() > 0, f, lambda w, x: f(w, x) * 2, w, x),
    "while": lambda f: lambda w, x: jax.lax.fori_loop(0, 3, lambda k, w: w + f(w, x), w),
}


def compare(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


LIKE_GRAD = ("jit of grad", "vjp")
"""All transformations are under `jax.jit` here."""


@pytest.mark.parametrize("name", all_but(LIKE_GRAD, TRANSFORMATIONS))
def test_transformation(name, standin):
    transform = TRANSFORMATIONS[name]
    f = shlo_disc.jit(function)
    compilations = set()
    for k, n, b in ((4, 5, 3), (1, 2, 2)):
        w, x = F(k, n), F(b, k)
        compare(jax.jit(transform(f))(w, x), jax.jit(transform(function))(w, x))
        compilations.add(len(standin))
    assert len(compilations) == 1


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap of grad", "linearize", "scan"])
def test_transformation_outside_jit(name):
    transform = TRANSFORMATIONS[name]
    w, x = F(4, 5), F(3, 4)
    compare(transform(shlo_disc.jit(function))(w, x), jax.jit(transform(function))(w, x))


def test_one_equation_in_a_jaxpr():
    f = shlo_disc.jit(function)
    jaxpr = jax.make_jaxpr(lambda w, x: f(w, x) + 1)(F(4, 5), F(3, 4))
    assert [equation.primitive.name for equation in jaxpr.eqns] == ["shlo_disc_call", "add"]


def test_one_custom_call_in_a_module(monkeypatch):
    from shlo_disc.jax.derived import primitive

    def call(executable, results, sizes):
        return jax.ffi.ffi_call("shlo_disc.call", results)

    monkeypatch.setattr(primitive, "_ffi_call", call)
    f = shlo_disc.jit(function)
    text = jax.jit(lambda w, x: f(w, x) + 1).lower(F(4, 5), F(3, 4)).as_text()
    assert text.count("stablehlo.custom_call @shlo_disc.call") == 1
    assert "dot_general" not in text


def test_several_results_integers_and_constants():
    table = jnp.arange(12.0).reshape(4, 3)

    def f(x, ids, scale):
        return {"y": table[ids] * x * scale, "n": ids + 1, "s": x.sum()}

    def objective(f):
        return lambda x, ids, scale: (f(x, ids, scale)["y"] ** 2).sum() + f(x, ids, scale)["s"]

    g = shlo_disc.jit(f)
    for n in (5, 2):
        x, ids = F(n, 3), jnp.arange(n) % 4
        compare(jax.jit(g)(x, ids, 2.0), f(x, ids, 2.0))
        for transform in (
            lambda h: jax.jit(jax.grad(objective(h), (0, 2))),
            lambda h: jax.jit(jax.vmap(h, (0, 0, None))),
        ):
            compare(transform(g)(x, ids, 2.0), transform(f)(x, ids, 2.0))


def test_weights_are_not_copied_into_residuals():
    f = shlo_disc.jit(lambda w, x: jnp.sin(x @ w))
    program = f.lower(F(4, 5), F(3, 4)) and next(iter(f._families.values())).versions[0].program
    linear = linearized(program, (True, True), ())
    assert len(linear.forward.out_avals) < 1 + len(linear._sources)
    assert ("argument", 0) in linear._sources


def test_a_program_without_an_argument_that_shows_its_sizes():
    f = shlo_disc.jit(jnp.sum)
    for n in (3, 8):
        compare(jax.grad(f)(F(n)), jnp.ones(n))
        compare(jax.jit(jax.grad(f))(F(n)), jnp.ones(n))


def test_a_gradient_given_to_jit_is_traced_through():
    g = shlo_disc.jit(jax.grad(loss(function)))
    for k, n, b in ((4, 5, 3), (2, 2, 2)):
        w, x = F(k, n), F(b, k)
        compare(g(w, x), jax.grad(loss(function))(w, x))
    assert g.cache_info().misses == 1


def test_functions_inside_functions_are_inlined(standin):
    inner = shlo_disc.jit(jnp.sin, name="inner")
    outer = shlo_disc.jit(lambda x: inner(x) + inner(x[:1]))
    for n in (7, 3):
        x = F(n, 5)
        compare(outer(x), jnp.sin(x) + jnp.sin(x[:1]))
    assert inner.cache_info().misses == 0
    assert len(standin) == 1


def test_inside_an_export_with_symbolic_sizes():
    f = shlo_disc.jit(function)
    specs = export.symbolic_args_specs((F(4, 5), F(3, 4)), ("k, n", "b, k"))
    exported = export.export(jax.jit(f))(*specs)
    w, x = F(2, 3), F(6, 2)
    compare(exported.call(w, x), function(w, x))


def test_statements_hold_in_a_trace_too():
    f = shlo_disc.jit(lambda x, y: (x, y), shapes=("b", "b"))
    with pytest.raises(
        shlo_disc.ShapeMismatchError, match="argument y: dimension 0 is 3, but b = 2"
    ):
        jax.jit(f)(F(2), F(3))


SHARDED = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, PartitionSpec as P, NamedSharding
from tests.frontend import conftest
conftest.use_standin(setattr)
import shlo_disc

def f(w, x):
    return jnp.tanh(x @ w)

w, x = jnp.ones((3, 2)), jnp.arange(24.0).reshape(8, 3) / 10
want = jax.grad(lambda w: f(w, x).sum())(w)
mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))
xs, ws = jax.device_put(x, NamedSharding(mesh, P("i"))), jax.device_put(w, NamedSharding(mesh, P()))
for check in (False, True):
    g = jax.shard_map(
        shlo_disc.jit(f), mesh=mesh, in_specs=(P(), P("i")), out_specs=P("i"), check_vma=check
    )
    np.testing.assert_allclose(jax.jit(g)(ws, xs), f(w, x), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda w: g(w, xs).sum())(ws), want, rtol=1e-4)
print("fine")
"""


def test_shard_map_and_its_gradient():
    # The number of devices is fixed when JAX starts.
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    assert forked(SHARDED, 120, XLA_FLAGS=flags) == "fine"


def test_results_without_a_batch():
    """`out_axes=None` wants results that no batched argument changes to have no batch."""

    def parts(x, y):
        double = jax.jit(lambda a, b: (a * 2, b))(y, x)
        return jnp.sin(x) + y, jax.checkpoint(jnp.cos)(y), jax.nn.relu(y), double

    f = shlo_disc.jit(parts)
    axes, out = (0, None), (0, None, None, (None, 0))
    for size in (3, 2, 0):
        x, y = np.ones((size, 4), np.float32), np.ones(4, np.float32)
        expected = jax.vmap(parts, axes, out)(x, y)
        for batch in (jax.vmap(f, axes, out), jax.jit(jax.vmap(f, axes, out))):
            jax.tree.map(np.testing.assert_allclose, batch(x, y), expected)
    assert f.cache_info().misses <= 2  # the batches, and the function itself for the empty one

"""Axes with names (`vmap`, `shard_map`) around a function, in it, and in the user's rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, PartitionSpec

import shlo_disc
from shlo_disc.jax_private.jaxprs import named_axes
from tests.cases import slow


def F(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def around(x):
    """Every value to its neighbour along the axis `i`."""
    size = lax.axis_size("i")
    return lax.ppermute(x, "i", [(k, (k + 1) % size) for k in range(size)])


def fixed(x):
    """Two rows; JAX cannot lower the derivative of its all_to_all in a batch."""
    return lax.stop_gradient(jnp.outer(x[:2], x))


COLLECTIVES = {
    "psum": lambda x: x * lax.psum(jnp.sin(x), "i"),
    "pmean": lambda x: x - lax.pmean(x * x, "i"),
    "pmax": lambda x: x - lax.pmax(lax.stop_gradient(x), "i"),
    "all_gather": lambda x: x * jnp.tanh(lax.all_gather(x, "i")).sum(0),
    "all_to_all": lambda x: x + lax.all_to_all(fixed(x), "i", 0, 0).sum(0),
    "psum_scatter": lambda x: x + lax.psum_scatter(jnp.outer(x[:2], x), "i"),
    "ppermute": lambda x: x * around(jnp.sin(x)),
    "axis_index": lambda x: x**2 * lax.axis_index("i"),
    "in a loop": lambda x: lax.fori_loop(0, 2, lambda k, c: c + around(c) * k, x),
    "in a branch": lambda x: lax.cond(x[0] > 0, lambda c: lax.psum(c, "i"), jnp.sin, x) + x,
}


def outer_programs(f):
    """What JAX does around `f` of a vector, with an axis `i` of two."""

    def total(x):
        return f(x).sum()

    def batch(g):
        return jax.vmap(g, axis_name="i")

    return [
        batch(f)(F(2, 3)),
        jax.jit(jax.grad(lambda x: (batch(f)(x) ** 2).sum()))(F(2, 3)),
        batch(jax.grad(total))(F(2, 3)),
        jax.vmap(batch(f), axis_name="j")(F(4, 2, 3)),
        jax.vmap(jax.vmap(f), axis_name="i")(F(2, 4, 3)),
        jax.vmap(f, axis_name="i", spmd_axis_name="s")(F(2, 3)),
    ]


def close(a, b):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), a, b)


@pytest.mark.parametrize("function", COLLECTIVES.values(), ids=COLLECTIVES)
def test_a_function_with_a_collective_is_part_of_the_program_around(function, caplog):
    f = shlo_disc.jit(function)
    close(outer_programs(f), outer_programs(jax.jit(function)))
    (told,) = caplog.messages
    assert "runs as a part of the program around it" in told
    assert "the axis name 'i'" in told


def test_a_collective_over_several_axes():
    def both(jit):
        f = jit(lambda x: x * lax.psum(x, ("i", "j")) + lax.axis_index("j"))
        return jax.vmap(jax.vmap(f, axis_name="i"), axis_name="j")(F(4, 2, 3))

    close(both(shlo_disc.jit), both(jax.jit))


def test_the_size_of_an_axis_is_a_number():
    f = shlo_disc.jit(lambda x: x * lax.axis_size("i") * lax.psum(1, "i"))
    for n in (2, 3, 2):
        close(jax.vmap(f, axis_name="i")(F(n, 3)), F(n, 3) * n * n)
    assert "runs as a part" not in f.explain()


def test_an_axis_of_its_own_needs_no_other_program(standin):
    def centred(x):
        return jax.vmap(lambda row: row - lax.pmean(row, "i"), axis_name="i")(x)

    f = shlo_disc.jit(centred)
    for n in (4, 2):
        close(f(F(n, 3)), jax.jit(centred)(F(n, 3)))
        close(jax.vmap(f, axis_name="i")(F(2, n, 3)), jax.vmap(centred)(F(2, n, 3)))
    assert len(standin) == 2  # alone, and in a batch
    assert "runs as a part" not in f.explain()


def summed_gradient():
    @jax.custom_vjp
    def function(x):
        return jnp.tanh(x)

    def backward(x, slope):
        return (lax.psum(slope * x, "i") + slope,)

    function.defvjp(lambda x: (jnp.tanh(x), x), backward)
    return function


def moved_tangent():
    @jax.custom_jvp
    def function(x):
        return jnp.tanh(x)

    @function.defjvp
    def _(primals, tangents):
        return function(*primals), around(tangents[0]) * lax.psum(primals[0], "i")

    return function


@pytest.mark.parametrize("rule", [summed_gradient, *slow([moved_tangent])])
def test_rules_of_the_user_may_have_collectives(rule):
    """The function has none: its derivatives are parts of the program around it."""
    function = rule()

    def programs(jit):
        f = jit(lambda x: function(x * 2) * 3)

        def slope(x):
            return jax.grad(lambda x: f(x).sum())(x)

        def squares(x):
            return (jax.vmap(f, axis_name="i")(x) ** 2).sum()

        return [
            jax.vmap(f, axis_name="i")(F(2, 3)),
            *(jax.vmap(slope, axis_name="i")(F(n, 3)) for n in (2, 3)),
            *(jax.grad(squares)(F(n, 3)) for n in (2, 3)),
            jax.jit(jax.vmap(jax.jit(slope), axis_name="i"))(F(2, 3)),
        ]

    close(programs(shlo_disc.jit), programs(jax.jit))


def test_under_shard_map():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("i")

    def programs(jit):
        captured = lambda x: jit(lambda y: jnp.tanh(y) * x.sum())(x * 2)  # noqa: E731
        functions = [jit(lambda x: around(x) * lax.psum(x, "i")), captured]
        found = []
        for function in functions:
            for check in (True, False):
                f = jax.shard_map(
                    function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=check
                )
                found += [jax.jit(f)(F(4, 3)), jax.grad(lambda x, f=f: (f(x) ** 2).sum())(F(4, 3))]
        return found

    close(programs(shlo_disc.jit), programs(jax.jit))


def test_rules_with_collectives_under_shard_map():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("i")
    rules = [summed_gradient(), moved_tangent()]

    def programs(jit):
        for rule in rules:
            f = jit(lambda x, rule=rule: rule(x * 2) * 3)
            slope = jax.grad(lambda x, f=f: f(x).sum())
            mapped = jax.shard_map(slope, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
            yield jax.jit(mapped)(F(4, 3))

    close([*programs(shlo_disc.jit)], [*programs(jax.jit)])


def test_names_of_scopes_change_nothing():
    def programs(jit):
        scoped = jit(jax.named_scope("inner")(lambda x: jnp.sin(x) * 2))
        with jax.named_scope("outer"):
            inside = jax.grad(lambda x: scoped(x).sum())(F(3))
        named = jit(jax.named_call(jnp.sin, name="called"))
        return inside, named(F(3)), jax.named_call(scoped, name="around")(F(3))

    close(programs(shlo_disc.jit), programs(jax.jit))


def test_the_axes_that_a_jaxpr_needs():
    def axes_of(function):
        return named_axes(jax.make_jaxpr(function, axis_env=[("i", 2)])(F(2, 3)))

    for name, function in COLLECTIVES.items():
        assert axes_of(lambda x, f=function: f(x[0])) == {"i"}, name
    assert axes_of(jnp.sin) == frozenset()
    assert axes_of(jax.vmap(lambda r: r - lax.pmean(r, "k"), axis_name="k")) == frozenset()

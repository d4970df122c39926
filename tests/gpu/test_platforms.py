"""`lax.platform_dependent` takes the branch of the device that runs the program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from shlo_disc.executables.devices import stand_in_for

pytest.importorskip("llvmlite")


def marked(x):
    return lax.platform_dependent(x, cpu=lambda x: x * 2, cuda=lambda x: x * 3, default=jnp.sin)


def among_rocm(x):
    return lax.platform_dependent(
        x, cpu=lambda x: x * 2, rocm=lambda x: x * 5, default=jnp.negative
    )


def elsewhere(x):
    return lax.platform_dependent(x, tpu=jnp.sin, rocm=jnp.cos)


def in_a_loop(x):
    return lax.fori_loop(0, 3, lambda _, y: marked(y) + 1, x)


def in_a_branch(x):
    return lax.cond(x.sum() > 0, marked, jnp.negative, x)


PROGRAMS = {
    "alone": (marked, lambda x: 3 * x),
    "default": (among_rocm, lambda x: -x),
    "vmap": (jax.vmap(marked), lambda x: 3 * x),
    "loop": (in_a_loop, lambda x: 27 * x + 13),
    "branch": (in_a_branch, lambda x: 3 * x),
    "gradient": (jax.grad(lambda x: marked(x).sum()), lambda x: 3 + 0 * x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_call_takes_the_branch_of_its_device(stand_in, gpu, name):
    function, expected = PROGRAMS[name]
    f = shlo_disc.jit(function)
    for size in (4, 7):
        x = jnp.arange(1.0, size)
        np.testing.assert_array_equal(f(x), expected(x))


def test_transformations_take_it_too(stand_in, gpu):
    f = shlo_disc.jit(marked)
    x = jnp.arange(1.0, 5)
    np.testing.assert_array_equal(jax.jit(lambda x: f(x) + 1)(x), 3 * x + 1)
    np.testing.assert_array_equal(jax.grad(lambda x: f(x).sum())(x), 3 + 0 * x)
    np.testing.assert_array_equal(jax.vmap(f)(x), 3 * x)


def test_one_program_runs_on_both(stand_in):
    x = jnp.arange(1.0, 5)
    inside = jax.vmap(shlo_disc.jit(marked))
    np.testing.assert_array_equal(inside(x), 2 * x)
    stand_in.library.stand_in_strict(0)
    with stand_in_for(jax.devices("cpu")[0], "cuda"):
        np.testing.assert_array_equal(inside(x), 3 * x)
    np.testing.assert_array_equal(inside(x), 2 * x)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_a_platform_without_a_branch_is_named(stand_in, request, place):
    if place == "cuda":
        request.getfixturevalue("gpu")
    with pytest.raises(NotImplementedError, match=f"no branch for {place}.*has rocm, tpu"):
        shlo_disc.jit(elsewhere)(jnp.ones(3))

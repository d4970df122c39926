"""Functions without a result: every call gives their empty structure, the first and the later."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc

REAL = True
"""Most results here are compared with the structure that the function builds, not with XLA's."""

EMPTY = [None, (), [], {}, ((), []), {"a": None, "b": [{}]}]


@pytest.mark.parametrize("result", EMPTY, ids=repr)
def test_a_function_without_a_result_gives_its_empty_structure(result):
    f = shlo_disc.jit(lambda x: result)
    for array in (np.ones, jnp.ones):
        for size in (5, 7, 1, 0):
            for _ in range(3):  # the dispatcher runs the later ones without Python
                assert f(array(size, jnp.float32)) == result
    assert f.cache_info().currsize == 2  # one of them for the size of 0


@pytest.mark.parametrize("result", EMPTY, ids=repr)
def test_no_result_of_other_arguments(result):
    x = jnp.ones(4)
    without = shlo_disc.jit(lambda: result)
    static = shlo_disc.jit(lambda x, flag: result, static_argnums=1)
    donated = shlo_disc.jit(lambda x, y: result, donate_argnums=0)
    several = shlo_disc.jit(lambda tree, key: result)
    nothing = shlo_disc.jit(lambda tree: result)
    for _ in range(3):
        assert without() == result
        assert static(x, True) == static(x, False) == result
        assert donated(jnp.ones(3), x) == result
        assert several({"w": x, "n": 2}, jax.random.key(0)) == result
        assert nothing(result) == result


@pytest.mark.parametrize("result", EMPTY, ids=repr)
def test_no_result_under_transformations(result):
    f = shlo_disc.jit(lambda x: result)
    x = jnp.ones((3, 4))
    for _ in range(2):
        assert jax.jit(lambda x: (f(x), x.sum()))(x) == (result, 12)
        assert jax.jit(f)(x) == result
        assert jax.vmap(f)(x) == result
        assert jax.jvp(f, (x,), (x,)) == (result, result)


@pytest.mark.parametrize("empty", [[], None, {}], ids=repr)
def test_one_result_in_a_container_stays_in_it(empty):
    f = shlo_disc.jit(lambda x: ([x], empty, (x * 2,)))
    alone = shlo_disc.jit(lambda x: [x + 1])
    for size in (3, 3, 3, 6):
        (first,), nothing, (second,) = f(jnp.ones(size))
        assert nothing == empty
        np.testing.assert_array_equal(second, 2 * first)
        (one,) = alone(np.ones(size, np.float32))
        np.testing.assert_array_equal(one, np.full(size, 2))


def test_a_key_alone_is_a_key():
    f = shlo_disc.jit(lambda k, x: jax.random.fold_in(k, x.shape[0]))
    for size in (3, 3, 5):
        key = f(jax.random.key(1), jnp.ones(size))
        assert key == jax.random.fold_in(jax.random.key(1), size)


def test_a_program_without_a_result():
    e = shlo_disc.compile("func.func @main(%a: tensor<?xf32>) { return }")
    for size in (4, 5, 0):
        assert list(e(np.ones(size, np.float32))) == []
        assert list(e.run_numpy([np.ones(size, np.float32)])) == []

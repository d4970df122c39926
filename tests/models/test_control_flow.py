"""lax.cond, lax.switch and nests of control flow over dynamic shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.models.harness import check, check_bits, normal, rng_of

SIZES = (5, 1, 64, 97)


def test_cond_on_data():
    def rectify(x):
        return jax.lax.cond(x.sum() > 0, jnp.tanh, lambda v: v * 0.1 - 1.0, x)

    cases = [(np.abs(normal(rng_of(n), n)) * sign,) for n in SIZES for sign in (1, -1)]
    check(rectify, [(x.astype(np.float32),) for (x,) in cases])


def test_switch_clamps_its_index():
    def branch(i, x):
        choices = (lambda v: v + 1.0, lambda v: v * v, jnp.flip)
        return jax.lax.switch(i, choices, x)

    cases = [(np.int32(i), normal(rng_of(n), n)) for n in SIZES for i in (-5, 0, 1, 2, 9)]
    check(branch, cases)


def test_branches_with_several_results_and_captured_values():
    def branch(flag, x, y):
        def yes(_):
            return x @ y, y.sum(0), jnp.int32(1)

        def no(_):
            return x @ y * 2.0, x.sum(0) @ y, jnp.int32(2)

        return jax.lax.cond(flag, yes, no, None)

    cases = []
    for n in (5, 1, 33):
        rng = rng_of(n)
        cases += [(np.bool_(f), normal(rng, n, 6), normal(rng, 6, 4)) for f in (True, False)]
    check(branch, cases)


def test_what_one_branch_reads_is_computed_where_that_branch_is_taken():
    @shlo_disc.jit
    def sum_of_one(flag, x, w):
        y = jnp.tanh(x @ w)
        return jax.lax.cond(flag, (y * 2).sum, x.sum)

    for n in (64, 5, 97):
        x, w = normal(rng_of(n), n, 16), normal(rng_of(n + 1), 16, n)
        for flag, kinds in ((True, {"dense", "row"}), (False, {"row"})):
            want = (2 * np.tanh(x @ w)).sum() if flag else x.sum()
            np.testing.assert_allclose(sum_of_one(np.bool_(flag), x, w), want, rtol=1e-4, atol=1e-4)
            times = sum_of_one.profile(np.bool_(flag), x, w).kernels
            assert {kernel.kind for kernel in times if kernel.launches} == kinds
    assert sum_of_one.cache_info().misses == 1


def test_branch_that_returns_its_argument():
    def maybe(flag, x):
        return jax.lax.cond(flag, lambda v: v, lambda v: -v, x)

    cases = [(np.bool_(f), normal(rng_of(n), n)) for n in SIZES for f in (True, False)]
    check_bits(maybe, cases)


def test_branches_whose_sizes_are_equal_in_this_call():
    def half_or_largest(flag, x):
        return jax.lax.cond(flag, lambda v: v, lambda v: v.max(0, keepdims=True), x[::2])

    function = shlo_disc.jit(half_or_largest)
    for n in (1, 2):  # (n + 1) // 2 is 1
        x = normal(rng_of(n), n)
        for flag in (True, False):
            np.testing.assert_array_equal(function(flag, x), half_or_largest(flag, x))
    assert function.cache_info().misses == 1
    with pytest.raises(TypeError, match="cond branches"):
        function(True, normal(rng_of(3), 3))


def test_cond_inside_a_scan():
    def run(x):
        def step(total, item):
            i, row = item
            total = jax.lax.cond(i % 2 == 0, lambda t: t + row, lambda t: t * row, total)
            return total, total.max()

        steps = jnp.arange(x.shape[0])
        return jax.lax.scan(step, jnp.ones(x.shape[1:], x.dtype), (steps, x))

    check(run, [(normal(rng_of(t, n), t, n),) for t, n in ((4, 7), (1, 1), (9, 32))])


def test_scan_inside_a_while_loop():
    def run(x):
        def body(state):
            i, v = state
            _, sums = jax.lax.scan(lambda c, e: (0.5 * c + e, c), jnp.float32(0) * v[0], v)
            return i + 1, jnp.tanh(sums + v)

        return jax.lax.while_loop(lambda s: s[0] < 3, body, (0, x))[1]

    check(run, [(normal(rng_of(n), n),) for n in (6, 1, 41)])


def test_newton_iteration_per_element_by_vmap():
    def root(a):
        def body(state):
            return 0.5 * (state[0] + a / state[0]), state[1] + 1

        return jax.lax.while_loop(lambda s: jnp.abs(s[0] * s[0] - a) > 1e-4 * a, body, (a, 0))[0]

    cases = [(np.abs(normal(rng_of(n), n)).astype(np.float32) + 0.5,) for n in SIZES]
    check(jax.vmap(root), cases, truth=np.sqrt)


@pytest.mark.parametrize("rounds", [(0, 0), (0, 2), (2, 0), (3, 1)])
@pytest.mark.parametrize("between", [False, True])
def test_a_value_that_comes_through_loops_of_no_rounds_is_kept(rounds, between):
    """Without a round a loop's result is where its start is, from loop to loop."""

    def program(seed, x, first, second):
        start = jnp.tanh(seed).astype(jnp.float16).sum()
        one = jax.lax.fori_loop(0, first, lambda i, _: start, start)
        other = jnp.cumsum(x) if between else x
        two = jax.lax.fori_loop(0, second, lambda i, _: start, one)
        y = jax.lax.cummax(other * other)
        return two, y + 1, jnp.sort(y) * 2, jnp.cumsum(y), two * 2

    seed, x = np.float32(0.5), np.arange(5, dtype=np.float32)
    sizes = [np.int32(n) for n in rounds]
    for a, b in zip(
        shlo_disc.jit(program)(seed, x, *sizes), jax.jit(program)(seed, x, *sizes), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6)

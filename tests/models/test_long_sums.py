"""Products with long sums and few results: cut along K, the parts added up."""

import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.lower.cpu.machine import host_machine
from shlo_disc.lower.plan import If, Launch


def taken(steps, sizes):
    """The launches at these sizes, in order, were nothing kept packed."""
    found = []
    for step in steps:
        if isinstance(step, Launch):
            found.append(step)
        elif isinstance(step, If):
            found += taken(step.then if step.condition.holds(sizes) else step.otherwise, sizes)
        else:
            found += taken(step.otherwise, sizes)
    return found


TWO = np.ones((2, 1, 1), np.float32)
STEP = np.arange(2, dtype=np.float32)[:, None, None]

FUNCTIONS = {
    "product": lambda x, w, _: x @ w,
    "with work behind": lambda x, w, bias: jnp.tanh(x @ w / 64.0 + bias),
    "transposed": lambda x, w, bias: (x @ w + bias).T,
    "in batches": lambda x, w, _: (x[None] * TWO) @ (w[None] + STEP),
    "of the first": lambda x, w, bias: x.T.T @ w - bias,
}  # fmt: skip
SHAPES = [(1, 1), (3, 5), (2, 33), (6, 16), (1, 100)]
DEPTHS = [0, 8, 4096, 4100, 8192, 8224]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_float64(name):
    function = FUNCTIONS[name]
    f = shlo_disc.jit(function)
    for m, n in SHAPES:
        for k in DEPTHS:
            rng = np.random.default_rng(k + m)
            x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
            bias = rng.standard_normal(n, np.float32)
            exact = np.asarray(function(*(a.astype(np.float64) for a in (x, w, bias))))
            np.testing.assert_allclose(f(x, w, bias), exact, rtol=1e-4, atol=1e-5 * k + 1e-5)


def test_integers_are_exact():
    f = shlo_disc.jit(lambda x, w: jnp.einsum("mk,kn->mn", x, w, preferred_element_type=jnp.int32))
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, s).astype(np.int8) for s in ((3, 8192), (8192, 7)))
    np.testing.assert_array_equal(f(x, w), x.astype(np.int32) @ w.astype(np.int32))


@pytest.mark.skipif(host_machine().cores < 2, reason="one core has nothing to share")
def test_the_cut_is_taken_where_it_pays():
    f = shlo_disc.jit(lambda x, w: x @ w)
    x, w = jnp.ones((3, 50)), jnp.ones((50, 5))
    f(x, w)
    exe = f.lower(x, w).compile().executable
    (use,) = exe.host.uses

    def kernels(m, k, n):
        sizes, _ = exe.program.evaluate([(m, k), (k, n)])
        return [launch.kernel.name for launch in taken(use.plan.steps, sizes)]

    assert kernels(3, 8192, 5)[-1] == "dense_sum"
    assert "dense_sum" not in kernels(3, 1024, 5)
    assert "dense_sum" not in kernels(3, 8193, 5)
    assert "dense_sum" not in kernels(2000, 8192, 500)
    # The block for the parts stays small where there are many results.
    memory = exe.memory_analysis(exe.program.evaluate([(2000, 8192), (8192, 500)])[0])
    assert memory["temp_size_in_bytes"] < 4 << 20

"""Rule `shared-rows`: what shares a kernel, what does not, and the results against XLA."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

import shlo_disc


def test_rows_of_one_value_share_a_kernel():
    def function(x):
        return x.max(-1), (x * x).sum(-1), x - x.mean(-1, keepdims=True), x.sum(0)

    shape = export.symbolic_shape("b-1,n")  # b - 1 may be 0
    exported = export.export(jax.jit(function))(jax.ShapeDtypeStruct(shape, jnp.float32))
    executable = shlo_disc.compile(exported)
    planned = executable.as_text("disc")
    assert planned.count('kind = "row"') == 1, planned
    assert "rows of one value, which is read once" in planned
    rng = np.random.default_rng(0)
    for b, n in ((0, 5), (1, 1), (7, 13), (64, 257)):
        x = rng.normal(size=(b, n)).astype("f4")
        x[:1, :1] = (np.nan, np.inf, -0.0)[b % 3]
        wanted = jax.jit(function)(x)  # XLA
        for got, want in zip(executable.run_numpy([x]), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-4)


def test_other_rows_stay_apart():
    def function(x):
        return x.max(-1), x.sum((0, 1))

    shape = export.symbolic_shape("b,n")
    exported = export.export(jax.jit(function))(jax.ShapeDtypeStruct(shape, jnp.float32))
    executable = shlo_disc.compile(exported)
    planned = executable.as_text("disc")
    assert planned.count('kind = "row"') == 2, planned

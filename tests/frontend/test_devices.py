"""Calls where JAX has several devices, in a process of four CPU devices, beside `jax.jit`."""

from __future__ import annotations

import textwrap

import pytest

from tests.children import python

REAL = True

PRELUDE = """
    import logging
    import numpy as np
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec as P
    import shlo_disc

    a, b, *_ = jax.devices()
    x = np.arange(12, dtype=np.float32).reshape(4, 3)

    def function(x):
        return {"y": jnp.tanh(x) @ jnp.ones((3, 2)), "sum": x.sum()}

    f, g = shlo_disc.jit(function), jax.jit(function)

    def alike(*args, f=f, g=g):
        got, want = f(*args), g(*args)
        for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert ours.dtype == theirs.dtype
            assert ours.sharding.is_equivalent_to(theirs.sharding, ours.ndim), (
                ours.sharding, theirs.sharding)
            assert ours.committed == theirs.committed
            if not jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5)
        return got
"""

CHECKS = {
    "sharded arguments run as under jax.jit": """
        mesh = jax.make_mesh((4,), ("i",))
        spread = jax.device_put(x, NamedSharding(mesh, P("i")))
        alike(spread)
        assert f.cache_info().misses == 0
        assert "argument x is spread over 4 devices" in f.explain()
        alike(x)
        assert f.cache_info().misses == 1
        alike(spread)  # of a shape that is compiled now
        alike(jax.device_put(x[:3], NamedSharding(mesh, P())))
        assert f.cache_info().misses == 1
    """,
    "results follow the default device": """
        alike(x)
        for device in (b, a, b):
            with jax.default_device(device):
                got = alike(x)
                assert got["y"].devices() == {device}
                alike(jnp.asarray(x))
                alike(jax.device_put(x, a))  # committed
                alike(jax.device_put(x, b))
        with jax.default_device("cpu"):
            alike(x)
        alike(x[:2])
        assert f.cache_info().misses == 1
        split = lambda k: jax.random.split(k)
        with jax.default_device(b):
            alike(jax.random.key(0), f=shlo_disc.jit(split), g=jax.jit(split))
    """,
    "committed arguments decide": """
        alike(jax.device_put(x, b))
        alike(jax.device_put(x, a))
        add = lambda x, y: x + y
        ours, theirs = shlo_disc.jit(add), jax.jit(add)
        alike(jax.device_put(x, b), x, f=ours, g=theirs)
        alike(jax.device_put(x, b), jnp.asarray(x), f=ours, g=theirs)
        errors = []
        for h in (ours, theirs):
            try:
                h(jax.device_put(x, b), jax.device_put(x, a))
            except ValueError as error:
                errors.append(str(error)[:40])
        assert len(errors) == 2 and errors[0] == errors[1], errors
    """,
    "NaN is found on another device": """
        h = shlo_disc.jit(lambda x: jnp.log(x - 5))
        with jax.default_device(b), jax.debug_nans(True):
            try:
                h(x)
            except FloatingPointError:
                pass
            else:
                raise AssertionError("not found")
    """,
}


@pytest.mark.parametrize("name", CHECKS)
def test_devices(name):
    code = textwrap.dedent(PRELUDE) + textwrap.dedent(CHECKS[name])
    python(
        code, timeout=300, XLA_FLAGS="--xla_force_host_platform_device_count=4"
    )  # an assertion that fails ends the process

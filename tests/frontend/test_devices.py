"""Calls where JAX has several devices, in a process of four CPU devices, beside `jax.jit`."""

import textwrap

from tests.frontend.test_sharded import in_one_process

REAL = True

PRELUDE = """
    import logging
    import numpy as np
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
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
    "sharded arguments run in blocks": """
        mesh = jax.make_mesh((4,), ("i",))
        spread = jax.device_put(x, NamedSharding(mesh, P("i")))
        alike(spread)
        assert f.cache_info().misses == 1
        assert "runs as jax.jit" not in f.explain()
        alike(x)
        alike(spread)
        alike(jax.device_put(x[:3], NamedSharding(mesh, P())))
        assert f.cache_info().misses == 1
    """,
    "what has no blocks runs as under jax.jit": """
        mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))
        sort = lambda x: jnp.sort(x, 0)
        ours = shlo_disc.jit(sort)
        for n in (4, 8, 8):
            spread = jax.device_put(np.ones((n, 3), np.float32), NamedSharding(mesh, P("i")))
            alike(spread, f=ours, g=jax.jit(sort))
        assert ours.cache_info().misses == 0
        assert ours.explain().count("argument x is spread over 4 devices") == 1
    """,
    "a function that places arrays runs as under jax.jit": """
        mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))
        def placed(x):
            return jax.lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P("i")))
        def mapped(x):
            total = lambda x: jax.lax.psum(x, "i")
            return jax.shard_map(total, mesh=mesh, in_specs=P("i"), out_specs=P())(x)
        for function in (placed, mapped):
            ours, theirs = shlo_disc.jit(function), jax.jit(function)
            alike(x, f=ours, g=theirs)
            alike(jax.device_put(x, NamedSharding(mesh, P("i"))), f=ours, g=theirs)
            alike(x, f=jax.jit(lambda x: ours(x) + 1), g=jax.jit(lambda x: theirs(x) + 1))
            assert "places arrays on several devices" in ours.explain()
            assert ours.cache_info().misses == 0
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
    "what is not used may be anywhere": """
        mesh = jax.make_mesh((4,), ("i",))
        places = [a, b, NamedSharding(mesh, P("i"))]
        values = [jnp.ones(4), *(jax.device_put(jnp.ones(4), place) for place in places)]
        functions = [lambda p, q: p + 1, lambda p, q: p * q.shape[0], lambda p, q: p + q]
        for number, function in enumerate(functions):
            ours, theirs = shlo_disc.jit(function), jax.jit(function)
            for p in values:
                for q in values:
                    try:
                        theirs(p, q)
                    except ValueError:
                        assert number == 2
                        try:
                            ours(p, q)
                        except ValueError:
                            continue
                        raise AssertionError("taken")
                    alike(p, q, f=ours, g=theirs)
                    alike(p, q, f=ours, g=theirs)
            # what is not used does not even make a call one of several devices
            if number < 2:
                found = ours(values[1], values[3])
                assert found.devices() == {a} and found.committed
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


def test_devices():
    prelude = textwrap.dedent(PRELUDE)
    in_one_process({name: prelude + textwrap.dedent(code) for name, code in CHECKS.items()})

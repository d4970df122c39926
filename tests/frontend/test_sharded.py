"""Programs on four CPU devices beside `jax.jit`: values, shardings, and what devices exchange."""

import os
import re
import textwrap
from pathlib import Path

import pytest

from tests.children import forked

REAL = True

PRELUDE = """
    import numpy as np
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
    import shlo_disc

    line = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))
    square = jax.make_mesh((2, 2), ("i", "j"), axis_types=(AxisType.Auto,) * 2)
    random = np.random.default_rng(0)

    def F(*shape):
        return random.standard_normal(shape).astype(np.float32)

    def on(mesh, x, *spec):
        return jax.device_put(x, NamedSharding(mesh, P(*spec)))

    def alike(got, want, atol=1e-5):
        assert jax.tree.structure(got) == jax.tree.structure(want)
        for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert ours.dtype == theirs.dtype
            assert ours.sharding.is_equivalent_to(theirs.sharding, ours.ndim), (
                ours.sharding, theirs.sharding)
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=atol)

    def exchanged(jitted, *args):
        text = jitted.lower(*args).compile().as_text()
        kinds = ("all-gather", "all-reduce", "all-to-all", "collective-permute")
        return {kind for kind in kinds if f" {kind}(" in text or f" {kind}-start(" in text}

    def check(function, rows, exchange=(), misses=1, around=lambda f: f, f=None):
        '''Beside jax.jit, inside an outer jit, for each row of arguments.'''
        f = f or shlo_disc.jit(function)
        ours, theirs = jax.jit(lambda *x: around(f)(*x)), jax.jit(lambda *x: around(function)(*x))
        for args in rows:
            alike(ours(*args), theirs(*args))
        assert exchanged(ours, *rows[0]) == set(exchange), exchanged(ours, *rows[0])
        assert f.cache_info().misses == misses, f.cache_info()
"""

CHECKS = {
    "blocks along parallel dimensions": """
        def scaled(x):
            return jnp.tanh(x) * 2, x.T.reshape(x.shape[1], -1)

        f = shlo_disc.jit(scaled)
        for rows in (
            [(on(line, F(b, 4), "i"),) for b in (8, 12)],
            [(on(line, F(8, 4), None, "i"),)],
            [(on(square, F(8, 4), "j", "i"),)],
            [(on(square, F(8, 4), ("j", "i")),)],
            [(on(square, F(8, 4), "j"),)],
            [(on(line, F(3, 5)),)],
        ):
            check(scaled, rows, f=f)
        rows = [(on(square, F(b, 3), "i"), on(square, F(3, 8), None, "j")) for b in (8, 6)]
        check(lambda x, w: jnp.tanh(x @ w), rows)

        def attention(q, k, v):
            mask = jnp.tril(jnp.ones((q.shape[1], k.shape[1])))
            scores = jnp.where(mask > 0, jnp.einsum("bqhd,bkhd->bhqk", q, k), -1e9)
            return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

        qkv = [on(square, F(2, t, 4, 8), "i", None, "j") for t in (5, 6, 6)]
        check(attention, [qkv])
    """,
    "sums over blocks": """
        def mixed(w, x):
            return x @ w, x.sum(0), (x @ w).mean()

        rows = [(F(3, 5), on(line, F(b, 3), "i")) for b in (8, 12)]
        check(mixed, rows, ["all-reduce"])
        contracted = [(on(square, F(4, 5), "j"), on(square, F(6, 4), "i", "j"))]
        check(lambda w, x: jnp.tanh(x @ w), contracted, ["all-reduce"], misses=2)
        check(lambda x: (x - x.mean(0)) ** 2, [(on(line, F(8, 3), "i"),)], ["all-reduce"], misses=2)
    """,
    "what cannot be split is gathered": """
        sort, x = shlo_disc.jit(lambda x: jnp.sort(x, 0)), on(line, F(8, 3), "i")
        np.testing.assert_array_equal(jax.jit(lambda x: sort(x))(x), np.sort(x, 0))
        assert exchanged(jax.jit(lambda x: sort(x)), x) == {"all-gather"}
        halves = lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(line, P("i")))
        for shape in ((6, 4), (8, 4), (2, 3)):  # 6 rows on 4 devices
            for function in (lambda x: jnp.tanh(x) * 2, lambda x: x.sum(0)):
                f = shlo_disc.jit(function)
                x = F(*shape)
                ours, theirs = jax.jit(lambda x: f(halves(x * 2))), jax.jit(
                    lambda x: function(halves(x * 2)))
                np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5)
    """,
    "results asked for in blocks": """
        f = shlo_disc.jit(lambda x: x.sum())
        spec = NamedSharding(line, P("i"))
        ours = jax.jit(jax.grad(lambda x: f(x)), out_shardings=spec)
        alike(ours(F(8, 4)), jax.jit(jax.grad(lambda x: x.sum()), out_shardings=spec)(F(8, 4)))
        assert exchanged(ours, F(8, 4)) == set()
    """,
    "one device has no partitioner": """
        f = shlo_disc.jit(lambda x: jnp.tanh(x) * 2)
        text = jax.jit(lambda x: f(x)).lower(F(8, 4)).as_text()
        assert "CustomSPMDPartitioning" not in text and "shlo_disc" in text
        many = jax.ShapeDtypeStruct((16, 4), np.float32, sharding=NamedSharding(
            jax.sharding.AbstractMesh((8,), ("i",)), P("i")))
        lowered = jax.jit(lambda x: f(x)).trace(many).lower(lowering_platforms=("cpu",))
        assert "CustomSPMDPartitioning" not in lowered.as_text()
    """,
    "GSPMD": """
        jax.config.update("jax_use_shardy_partitioner", False)
        rows = [(on(square, F(8, 4), "i"), on(square, F(4, 8), None, "j"))]
        check(lambda x, w: jnp.tanh(x @ w), rows)
        check(lambda x: x.mean(), [(on(line, F(8, 4), "i"),)], ["all-reduce"])
        jax.config.update("jax_use_shardy_partitioner", True)
    """,
    "explicit meshes": """
        line = jax.make_mesh((4,), ("i",))
        square = jax.make_mesh((2, 2), ("i", "j"))

        def types(function, f, args, around=lambda f: f):
            seen = []

            def outer(f):
                def run(*args):
                    result = around(f)(*args)
                    seen.append(str(jax.tree.map(jax.typeof, result)))
                    return result
                return jax.jit(run)(*args)

            alike(outer(f), outer(function))
            assert seen[0] == seen[1], seen

        def loss(w, x):
            return ((jnp.tanh(x @ w) - 1) ** 2).mean()

        with jax.set_mesh(line):
            f = shlo_disc.jit(loss)
            for b in (8, 12):
                args = on(line, F(3, 5)), on(line, F(b, 3), "i")
                types(loss, f, args)
                types(loss, f, args, lambda f: jax.value_and_grad(f, (0, 1)))
            add = lambda x, y: jnp.tanh(x) + y
            types(add, shlo_disc.jit(add), (on(line, F(8, 3), "i"), on(line, F(8, 3))))
            batched = shlo_disc.jit(jnp.dot)
            args = on(line, F(8, 3, 4), "i"), on(line, F(8, 4, 2), "i")
            types(jnp.dot, batched, args, jax.vmap)
            placed = lambda x: jax.sharding.reshard(x * 2, P(None, "i"))
            types(placed, shlo_disc.jit(placed), (on(line, F(8, 4)),))
            errors = []
            sort = lambda x: jnp.sort(x, 0)
            for g in (jax.jit(sort), jax.jit(lambda x: shlo_disc.jit(sort)(x))):
                try:
                    g(on(line, F(8, 3), "i"))
                except Exception as error:
                    errors.append((type(error), str(error)))
            assert len(errors) == 2 and errors[0] == errors[1], errors
        with jax.set_mesh(square):
            product = lambda w, x: jnp.tanh(x @ w)
            args = on(square, F(8, 4), None, "j"), on(square, F(8, 8), "i")
            types(product, shlo_disc.jit(product), args)
    """,
    "manual axes of an outer shard_map": """
        f = shlo_disc.jit(lambda x, w: jnp.tanh(x @ w))

        def program(f):
            def run(x, w):
                return f(x, w) + jax.lax.psum(x.sum(), "i")
            return jax.jit(jax.shard_map(
                run, mesh=square, in_specs=(P("i"), P()), out_specs=P("i"), axis_names={"i"}))

        for b in (8, 6):
            x, w = F(b, 4), F(4, 4)
            alike(program(f)(x, w), program(lambda x, w: jnp.tanh(x @ w))(x, w))
        assert f.cache_info().misses == 1
    """,
}


def in_one_process(checks, more="", **environment):
    """Run `PRELUDE`, `more` and each check, in a process of four devices; a check says its name."""
    bodies = [
        f"def check_{k}():\n{textwrap.indent(textwrap.dedent(code), '    ')}\n"
        f"print({name!r}, file=sys.stderr)\ncheck_{k}()\n"
        for k, (name, code) in enumerate(checks.items())
    ]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    code = "".join(["import sys\n", *map(textwrap.dedent, (PRELUDE, more)), *bodies])
    return forked(code, timeout=500, **{"XLA_FLAGS": flags, **environment})


@pytest.mark.slow
def test_sharded():
    page = (Path(__file__).parents[2] / "docs/devices.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    documented = "\n".join(f"exec({block!r}, {{}})" for block in blocks)
    # An assertion that fails ends the process.
    in_one_process({**CHECKS, "docs/devices.md": documented})

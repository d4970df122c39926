"""Training steps on several devices beside `jax.jit`: in one process of four, and in two of one.

Data-parallel: devices have parts of the batch. Tensor-parallel: they have columns of the first
weights and rows of the second. We compile once, whatever the batch.
"""

import socket
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.children import python
from tests.frontend.test_sharded import in_one_process

REAL = True

STEPS = """
def loss(params, x, y):
    up, down, bias = params
    return ((jnp.tanh(x @ up) @ down + bias - y) ** 2).mean()

def step(loss, params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

def params():
    random = np.random.default_rng(1)
    shapes = (6, 8), (8, 4), (4,)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]

def batch(rows):
    random = np.random.default_rng(rows)
    return [random.standard_normal((rows, n)).astype(np.float32) for n in (6, 4)]

SPECS = {  # of parameters, then of x and y
    "data": ([P(), P(), P()], P("i"), P("i")),
    "tensor": ([P(None, "i"), P("i"), P()], P(), P()),
    "both": ([P(None, "j"), P("j"), P()], P("i"), P("i")),
}

def placed(mesh, specs, values):
    return jax.tree.map(lambda x, s: jax.device_put(x, NamedSharding(mesh, s)), values, specs)
"""

CHECKS = {
    "a step that is ours": """
        whole = lambda params, x, y: step(loss, params, x, y)
        ours, theirs = shlo_disc.jit(whole), jax.jit(whole)
        for name, mesh in (("data", line), ("both", square), ("tensor", line)):
            before = ours.cache_info().misses
            state, other = [placed(mesh, SPECS[name][0], params()) for _ in "ab"]
            for rows in (8, 12, 16):
                x, y = placed(mesh, list(SPECS[name][1:]), batch(rows))
                got, want = ours(state, x, y), theirs(other, x, y)
                alike(got, want)
                state, other = got[1], want[1]
            if name == "data":
                assert exchanged(jax.jit(ours), state, x, y) == {"all-reduce"}
                assert ours.cache_info().misses == 2  # to the gradients, and the rest
        assert "runs as jax.jit" not in ours.explain()
    """,
    "a loss that is ours, in a step of JAX": """
        f = shlo_disc.jit(loss)
        ours = jax.jit(lambda params, x, y: step(f, params, x, y))
        theirs = jax.jit(lambda params, x, y: step(loss, params, x, y))
        for name in ("data", "tensor"):
            for rows in (8, 12):
                args = placed(line, SPECS[name][0], params()), *placed(
                    line, list(SPECS[name][1:]), batch(rows))
                alike(ours(*args)[0], theirs(*args)[0])
                jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
                             ours(*args), theirs(*args))
            if name == "data":
                assert f.cache_info().misses == 2  # with what the gradient needs, and the gradient
                assert exchanged(ours, *args) == {"all-reduce"}
    """,
    "explicit axes": """
        mesh = jax.make_mesh((4,), ("i",))
        f = shlo_disc.jit(loss)
        ours = jax.jit(lambda params, x, y: step(f, params, x, y))
        theirs = jax.jit(lambda params, x, y: step(loss, params, x, y))
        with jax.set_mesh(mesh):
            for rows in (8, 12):
                args = placed(mesh, SPECS["data"][0], params()), *placed(
                    mesh, list(SPECS["data"][1:]), batch(rows))
                alike(ours(*args), theirs(*args))
        assert f.cache_info().misses == 2
    """,
    "shard_map": """
        def program(loss):
            def local(params, x, y):
                value, new = step(lambda *a: jax.lax.pmean(loss(*a), "i"), params, x, y)
                return value, new
            specs = ([P()] * 3, P("i"), P("i"))
            out = P(), [P()] * 3
            return jax.jit(jax.shard_map(local, mesh=line, in_specs=specs, out_specs=out))

        f = shlo_disc.jit(loss)
        ours, theirs = program(f), program(loss)
        for rows in (8, 12, 20):
            alike(ours(params(), *batch(rows)), theirs(params(), *batch(rows)))
        assert f.cache_info().misses == 2
    """,
}


@pytest.mark.slow
def test_training_on_four_devices():
    in_one_process({name: STEPS + textwrap.dedent(code) for name, code in CHECKS.items()})


TWO = """
import sys
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize("localhost:{port}", 2, {index})
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import shlo_disc
{steps}
assert len(jax.devices()) == 2 and len(jax.local_devices()) == 1
mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))

def placed(specs, values):
    def put(x, spec):
        return jax.make_array_from_callback(x.shape, NamedSharding(mesh, spec), lambda at: x[at])
    return jax.tree.map(put, values, specs)

whole = lambda params, x, y: step(loss, params, x, y)
ours, theirs = shlo_disc.jit(whole), jax.jit(whole)
f = shlo_disc.jit(loss)
inner = jax.jit(lambda params, x, y: step(f, params, x, y))
for name in ("data", "tensor"):
    for rows in (4, 6):
        args = placed(SPECS[name][0], params()), *placed(list(SPECS[name][1:]), batch(rows))
        want = theirs(*args)
        for got in (ours(*args), *([inner(*args)] if name == "data" else [])):
            for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
                a, b = a.addressable_data(0), b.addressable_data(0)
                if a.shape == b.shape:
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    if name == "data":
        assert ours.cache_info().misses == f.cache_info().misses == 2
assert "runs as jax.jit" not in ours.explain()
print("done")
"""


@pytest.mark.slow
def test_training_in_two_processes():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    codes = [TWO.format(port=port, index=index, steps=STEPS) for index in (0, 1)]
    flags = "--xla_force_host_platform_device_count=1"
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(python, code, 400, XLA_FLAGS=flags) for code in codes]
        assert [run.result().splitlines()[-1] for run in runs] == ["done", "done"]

"""Calls that come again are graphs of the driver."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral
from shlo_disc.base.errors import DeviceError
from tests.children import forked

pytest.importorskip("llvmlite")


def steps(x):
    """Several kernels, each of which reads what the one in front has made."""
    for _ in range(3):
        x = jnp.cumsum(x) - x.sum()
    return x


def expected(x):
    """The same of 32-bit integers, by NumPy."""
    for _ in range(3):
        x = np.cumsum(x, dtype=x.dtype) - x.sum(dtype=x.dtype)
    return x


def compiled(function):
    x = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), jnp.int32)
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(x)
    return shlo_disc.compile(exported, target="cuda:sm_90")


def test_calls_of_the_same_memory_and_sizes(stand_in):
    program, rng = compiled(steps), np.random.default_rng(0)
    launches, graphs = None, stand_in.count("graphs")
    for count in (50, 50, 50, 300, 50, 300, 300, *[50] * 13):
        x = rng.integers(-9, 9, count).astype("i4")
        before = [stand_in.count(name) for name in ("launches", "graphs", "early")]
        (y,) = program.run_numpy([x])
        np.testing.assert_array_equal(y, expected(x))
        found = [stand_in.count(name) - was for name, was in zip(
            ("launches", "graphs", "early"), before, strict=True)]  # fmt: skip
        launches = launches or found[0]
        assert found[0] == launches > 3
        assert found[2] == (0 if found[1] else launches)  # kernels of a graph do not overlap
    assert stand_in.count("graphs") > graphs + 3  # blocks of the pool take turns
    assert program.gpu_calls == (20, 0, stand_in.count("graphs") - graphs)
    assert not stand_in.errors


def test_a_program_that_reads_memory_is_none(stand_in):
    def function(x):
        return jax.lax.while_loop(lambda s: s.sum() < 100, lambda s: jnp.cumsum(s * 2), x)

    program, graphs = compiled(function), stand_in.count("graphs")
    for scale in (1, 1, 30, 1, 7):
        x = np.full(5, scale, "i4")
        (y,) = program.run_numpy([x])
        np.testing.assert_array_equal(y, function(jnp.asarray(x)))
    assert stand_in.count("graphs") == graphs
    assert program.gpu_calls == (5, 0, 0)


def test_failures_of_a_graph_lose_nothing(stand_in):
    program, x = compiled(steps), np.ones(40, "i4")
    want = expected(x)

    def is_right():
        return np.array_equal(program.run_numpy([x])[0], want)

    assert is_right()
    gc.collect()
    held = ral.gpu_pool_stats("cuda")["in_use_bytes"]
    for step in range(6):
        graphs = stand_in.count("graphs")
        if step % 2:
            stand_in.library.stand_in_fault(step % 3, 700)
        else:
            stand_in.library.stand_in_refuse_launch(step % 3, 701)
        with pytest.raises(DeviceError, match=r"refuses|has failed"):
            program.run_numpy([x])
        stand_in.library.stand_in_reset()
        assert is_right()
        assert is_right()
        assert stand_in.count("graphs") >= graphs
    gc.collect()
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] == held
    assert not stand_in.pending


def test_many_sizes_keep_few_graphs(stand_in):
    program, graphs = compiled(steps), stand_in.count("graphs")
    for count in [*range(1, 40), *range(1, 40)]:
        for _ in range(3):
            x = np.ones(count, "i4")
            (y,) = program.run_numpy([x])
            np.testing.assert_array_equal(y, expected(x))
    assert stand_in.count("graphs") > graphs
    assert not stand_in.errors


def test_the_environment_can_forbid_it():
    forked(
        """
        import numpy as np
        from tests.gpu.stand_in import StandIn
        from tests.gpu.test_graphs import compiled, steps
        driver = StandIn.started()
        program = compiled(steps)
        for _ in range(4):
            program.run_numpy([np.ones(9, "i4")])
        assert driver.count("launches") > 12
        assert driver.count("graphs") == 0
        """,
        SHLO_DISC_GPU_GRAPHS="0",
    )

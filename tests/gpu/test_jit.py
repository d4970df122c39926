"""`shlo_disc.jit` on a GPU: a CPU device of JAX stands for it, the driver is the stand-in."""

from __future__ import annotations

import gc
import os
import textwrap
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral
from shlo_disc.base.errors import DeviceError
from shlo_disc.jax.calls.runs import CALLS_BEFORE_XLA
from shlo_disc.jax.calls.under_jax import by_xla
from shlo_disc.jax.function import JitFunction
from tests.children import forked
from tests.refused import unchanged
from tests.test_weight_only import arrays, by_groups, in_halves_of_bytes

pytest.importorskip("llvmlite")


def softmax(x):
    return jax.nn.softmax(x * 2.0, axis=-1)


def test_one_compilation_serves_every_shape(stand_in, gpu):
    f = shlo_disc.jit(softmax)
    launches = stand_in.count("launches")
    for shape in ((3, 5), (4, 7), (1, 1), (2, 33), (5, 3)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        e = np.exp(2.0 * x.astype(float))
        want = e / e.sum(-1, keepdims=True)
        np.testing.assert_allclose(f(jnp.asarray(x)), want, rtol=2e-6, atol=1e-7)
    assert f.cache_info().misses <= 2  # sizes of 1 may have their own
    assert stand_in.count("launches") > launches
    assert not stand_in.errors


def test_the_second_call_takes_no_python(stand_in, gpu):
    f = shlo_disc.jit(lambda x: x + 1)
    for count in (3, 300, 70):
        for _ in range(3):
            np.testing.assert_array_equal(f(jnp.zeros(count)), np.ones(count))
    slow = []
    f._call_slowly = slow.append
    np.testing.assert_array_equal(f(jnp.zeros(300)), np.ones(300))
    np.testing.assert_array_equal(f(jnp.zeros(81)), np.ones(81))  # a new size
    assert slow == []


def test_sizes_that_come_again_go_through_xla(stand_in, gpu, monkeypatch):
    """Its calls do not wait for the device. The results are of the same types."""
    through = []
    call_through = JitFunction._call_through

    def spy(self, *args, **kwargs):
        through.append(args)
        return call_through(self, *args, **kwargs)

    monkeypatch.setattr(JitFunction, "_call_through", spy)

    def function(x, *, scale):
        return {"sum": x.sum(), "two": 2.0, "scaled": x * scale}

    f = shlo_disc.jit(function)
    launches = stand_in.count("launches")
    for count in (5, 300):
        x = jnp.arange(count, dtype=jnp.float32)
        found = [f(x, scale=3.0) for _ in range(CALLS_BEFORE_XLA + 3)]
        found += [f(np.asarray(x), scale=3.0) for _ in range(CALLS_BEFORE_XLA + 2)]
        for each in found:
            np.testing.assert_array_equal(each["scaled"], np.asarray(x) * 3)
            assert (float(each["sum"]), float(each["two"])) == (x.sum(), 2.0)
            assert jax.tree.map(jax.typeof, each) == jax.tree.map(jax.typeof, found[0])
            assert not each["scaled"].committed
    assert f.cache_info().misses == 1
    assert stand_in.count("launches") >= launches + 2 * len(found)
    assert 4 <= len(through) <= 10
    assert f"{len(through)} enqueued by XLA" in f.explain()

    placed = jax.device_put(jnp.arange(5.0), gpu)
    assert f(placed, scale=3.0)["scaled"].committed
    assert not stand_in.errors


def test_conditions_in_explain_are_short():
    x = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n,n"), jnp.bfloat16)
    exported = jax.export.export(jax.jit(jnp.matmul), platforms=["cpu"])(x, x)
    program = shlo_disc.compile(exported, target="cuda:sm_90a")
    text = program.explain()
    assert "if its estimated time is least" in text
    assert "n <= 16" in text
    assert all(len(line) < 1500 for line in text.splitlines())
    assert len(program.explain(format="json")) > 4 * len(text)  # it has all


def test_denormals_through_xla(stand_in, gpu):
    """XLA's threads flush them to zero: what the stand-in runs there does not."""
    f, x = shlo_disc.jit(lambda x: x * 0.5), np.float32([1e-40, -3e-39, 1.0])
    for _ in range(CALLS_BEFORE_XLA + 3):
        np.testing.assert_array_equal(f(jnp.asarray(x)), x * np.float32(0.5))


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_donation_through_xla(stand_in, gpu):
    """Results are written where donated arguments were, without a copy."""

    def step(state, x):
        return {"w": state["w"] - x, "n": state["n"] + 1}, (x * x).sum()

    f, plain = shlo_disc.jit(step, donate_argnums=0), jax.jit(step)
    compiled = f.lower({"w": jnp.zeros(4), "n": jnp.int32(0)}, jnp.ones(4)).compile()
    for call in (f, compiled):
        for count in (4, 300):
            state = {"w": jnp.zeros(count), "n": jnp.int32(0)}
            want, x = jax.tree.map(jnp.copy, state), jnp.arange(count, dtype=jnp.float32)
            for number in range(CALLS_BEFORE_XLA + 4):
                launches, before = stand_in.count("launches"), state
                place = state["w"].unsafe_buffer_pointer()
                state, loss = call(state, x)
                want, other = plain(want, x)
                assert before["w"].is_deleted()
                if number > CALLS_BEFORE_XLA + 1:  # the state is XLA's
                    assert state["w"].unsafe_buffer_pointer() == place
                assert not x.is_deleted()
                np.testing.assert_array_equal(state["w"], want["w"])
                np.testing.assert_allclose(loss, other, rtol=1e-6)
                assert jax.tree.map(jax.typeof, state) == jax.tree.map(jax.typeof, want)
                assert stand_in.count("launches") > launches
            assert int(state["n"]) == CALLS_BEFORE_XLA + 4
    assert f.cache_info().misses == 1
    assert "_in_place" in vars(f)
    assert not stand_in.errors


@pytest.mark.filterwarnings("ignore:.*donated:UserWarning")
def test_donated_arrays_without_a_result_of_their_size(stand_in, gpu):
    f = shlo_disc.jit(lambda x, y: (x.sum(), y * 2), donate_argnums=(0, 1))
    for _ in range(CALLS_BEFORE_XLA + 3):
        x, y = jnp.ones(9), jnp.arange(5.0)
        total, doubled = f(x, y)
        assert float(total) == 9
        np.testing.assert_array_equal(doubled, np.arange(5.0) * 2)
        assert y.is_deleted()
    assert not stand_in.errors


def test_a_compiled_version_goes_through_xla(stand_in, gpu):
    x = jnp.arange(6.0).reshape(2, 3)
    compiled = shlo_disc.jit(softmax).lower(x).compile()
    launches = stand_in.count("launches")
    for count in range(CALLS_BEFORE_XLA + 3):
        np.testing.assert_allclose(compiled(x), softmax(x), rtol=2e-6)
        assert stand_in.count("launches") == launches + count + 1
    with pytest.raises(TypeError, match="compiled for other types"):
        compiled(x[0])


def test_what_xla_cannot_run_is_run_directly():
    def fails(text):
        def call(x):
            raise jax.errors.JaxRuntimeError(text)

        return call

    asked = []
    text = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes."
    assert by_xla(fails(text), (5,), {}, lambda *given: asked.append(given)) is None
    assert asked == [((5,), {})]
    with pytest.raises(DeviceError, match=r"^f: refused$"):
        by_xla(fails("INTERNAL: shlo_disc: f: refused"), (5,), {}, fails)


def test_a_function_whose_calls_went_through_xla_is_collected(stand_in, gpu):
    f = shlo_disc.jit(lambda x: x * 2)
    for _ in range(CALLS_BEFORE_XLA + 2):
        f(jnp.ones(3))
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


def test_tasks_with_memory_of_their_own_over_nothing(stand_in, gpu):
    for axis in (0, 1):
        f = shlo_disc.jit(lambda v, axis=axis: jnp.sort(v, axis=axis))
        for rows, columns in ((0, 3), (3, 0), (1, 2)):
            x = jnp.ones((rows, columns))
            np.testing.assert_array_equal(f(x), x)
    assert not stand_in.errors


def test_results_are_of_the_device(stand_in, gpu):
    f = shlo_disc.jit(lambda x, y: (x * y, 2.0))
    a, b = f(jnp.arange(8.0), np.arange(8, dtype="f4"))
    assert a.devices() == {gpu}
    assert not a.committed
    assert b.weak_type
    c, _ = f(jax.device_put(a, gpu), a)
    assert c.committed
    np.testing.assert_array_equal(c, np.arange(8) ** 4)


def test_donation(stand_in, gpu):
    f = shlo_disc.jit(lambda x: x * 3, donate_argnums=0)
    x = jnp.ones(100)
    y = f(x)
    assert x.is_deleted()
    at = y.unsafe_buffer_pointer()
    z = f(y)
    assert y.is_deleted()
    assert z.unsafe_buffer_pointer() == at
    np.testing.assert_array_equal(z, np.full(100, 9))
    w = jax.jit(lambda a: a + 1, donate_argnums=0)(z)
    np.testing.assert_array_equal(w, np.full(100, 10))


def test_loops_conditions_and_gradients(stand_in, gpu):
    def steps(x):
        return jax.lax.while_loop(lambda s: s[0] < 100, lambda s: (s[0] * 2 + 1, s[1] + 1), (x, 0))

    f = shlo_disc.jit(steps)
    for start in (3, 50, 200):
        x = jnp.int32(start)
        assert tuple(map(int, f(x))) == tuple(map(int, steps(x)))

    def scan(w, xs):
        return jax.lax.scan(lambda h, x: (jnp.tanh(w * h + x), h), jnp.zeros(xs.shape[1]), xs)

    g = shlo_disc.jit(scan)
    w = jnp.asarray(0.5)
    for shape in ((3, 4), (5, 2)):
        xs = jnp.asarray(np.random.default_rng(1).standard_normal(shape), "float32")
        for got, want in zip(g(w, xs), scan(w, xs), strict=True):
            np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-6)

    def loss(w, x):
        return jnp.sum(jnp.tanh(jnp.dot(x, w, precision="highest")) ** 2)

    grad = shlo_disc.jit(jax.grad(loss))
    x, w = jnp.ones((3, 4)) * 0.1, jnp.ones((4, 5)) * 0.2
    np.testing.assert_allclose(grad(w, x), jax.grad(loss)(w, x), rtol=3e-6)


def test_inside_transformations_of_jax(stand_in, gpu):
    f = shlo_disc.jit(lambda x: jnp.sin(x) * 2)
    launches = stand_in.count("launches")
    x = jnp.linspace(0.0, 1.0, 12)
    np.testing.assert_allclose(jax.jit(lambda a: f(a) + 1)(x), jnp.sin(x) * 2 + 1, rtol=2e-6)
    np.testing.assert_allclose(
        jax.grad(lambda a: f(a).sum())(x), jnp.cos(x) * 2, rtol=2e-6, atol=1e-6
    )
    np.testing.assert_allclose(
        jax.vmap(f)(x.reshape(3, 4)), jnp.sin(x.reshape(3, 4)) * 2, rtol=2e-6
    )
    assert stand_in.count("launches") >= launches + 3


def test_parts_between_those_that_xla_runs(stand_in, gpu):
    def function(x):
        product = jnp.sin(x) @ jnp.sin(x).T + 9.0 * jnp.eye(x.shape[0])
        return unchanged(product).sum() + x.sum()

    f = shlo_disc.jit(function, on_unsupported="xla")
    launches = stand_in.count("launches")
    for shape in ((3, 8), (2, 6)):
        x = jnp.linspace(0.0, 1.0, shape[0] * shape[1]).reshape(shape)
        y = np.asarray(x, float)
        want = (np.sin(y) @ np.sin(y).T).sum() + 9 * len(y) + y.sum()
        np.testing.assert_allclose(f(x), want, rtol=2e-5)
    assert stand_in.count("launches") >= launches + 4
    assert "rng_uniform" in f.explain().partition("\n")[0]  # a part that XLA runs


def test_typed_keys_and_stages(stand_in, gpu):
    def function(key, x):
        return jax.random.normal(key, x.shape) + x

    f = shlo_disc.jit(function)
    for seed, shape in ((0, (3, 4)), (1, (5, 2))):
        given = jax.random.key(seed), jnp.ones(shape)
        np.testing.assert_allclose(f(*given), function(*given), rtol=1e-5, atol=1e-6)
    compiled = f.lower(*given).compile()
    np.testing.assert_allclose(compiled(*given), function(*given), rtol=1e-5, atol=1e-6)
    assert ".target sm_90" in compiled.as_text("ptx")


def test_a_compiled_program_takes_arrays_of_both(stand_in, gpu):
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.add %x, %x : tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    program = shlo_disc.compile(text, target="cuda:sm_90")
    (y,) = program(jnp.ones(5))
    assert y.devices() == {gpu}
    (z,) = program(np.ones(7, "f4"))
    assert z.devices() == {gpu}
    (w,) = program.run_numpy([np.ones(9, "f4")])
    for got, count in ((y, 5), (z, 7), (w, 9)):
        np.testing.assert_array_equal(got, np.full(count, 2))


def test_a_refused_launch_is_not_left_to_xla(stand_in, gpu):
    f = shlo_disc.jit(lambda x: x + 2)
    f(jnp.ones(10))
    stand_in.library.stand_in_refuse_launch(0, 701)
    with pytest.raises(DeviceError, match=r"refuses kernel .*test_jit\.py"):
        f(jnp.ones(10))
    ral.gpu_pool_trim("cuda")
    stand_in.memory(10)
    with pytest.raises(MemoryError, match="XLA_PYTHON_CLIENT_MEM_FRACTION"):
        f(jnp.ones(10))


def on_two_devices(body: str) -> None:
    """Run `body`, where JAX has two CPU devices: `gpu` stands for a GPU inside `stand_in_for`."""
    head = """
        import jax, jax.numpy as jnp, numpy as np
        import shlo_disc
        from shlo_disc.executables.devices import stand_in_for
        from tests.gpu.stand_in import StandIn
        driver = StandIn.started()
        driver.library.stand_in_strict(0)
        gpu, cpu = jax.devices("cpu")[:2]
        ones = np.ones(9, "f4")
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    forked(textwrap.dedent(head) + textwrap.dedent(body), XLA_FLAGS=flags)


def test_numpy_and_uncommitted_arrays_go_to_the_default_device():
    on_two_devices("""
        f = shlo_disc.jit(lambda x: x - 1)
        with stand_in_for(gpu, "cuda"):
            for x in (ones, jnp.ones(9), jax.device_put(ones, gpu)):
                launches = driver.count("launches")
                y = f(x)
                assert not y.any()
                assert y.devices() == {gpu}
                assert driver.count("launches") == launches + 1
            with jax.default_device(cpu):
                there = jnp.ones(9)
                assert f(ones).devices() == {cpu}
            assert not there.committed
            assert there.devices() == {cpu}
            assert f.cache_info().misses == 2
            for _ in range(2):
                # XLA, which runs sizes that came before, takes both devices for GPUs.
                f = shlo_disc.jit(lambda x: x - 1)
                launches = driver.count("launches")
                y = f(there)  # moved, as by jax.jit
                assert y.devices() == {gpu}
                assert not y.committed
                assert driver.count("launches") == launches + 1
                z = f(jax.device_put(ones, cpu))
                assert z.devices() == {cpu}
                assert z.committed
                assert driver.count("launches") == launches + 1
    """)


def test_calls_that_come_again_stay_on_the_default_device():
    on_two_devices("""
        f = shlo_disc.jit(lambda x: x - 1)
        with stand_in_for(cpu, "cuda"), jax.default_device(cpu):
            for _ in range(6):
                launches = driver.count("launches")
                assert f(ones).devices() == {cpu}
                assert driver.count("launches") == launches + 1
    """)


def test_several_devices_are_the_error_of_jax():
    on_two_devices("""
        add = lambda x, y: x + y
        f = shlo_disc.jit(add)
        x, y = jax.device_put(ones, gpu), jax.device_put(ones, cpu)
        said = []
        with stand_in_for(gpu, "cuda"):
            for call in (jax.jit(add), f):
                try:
                    call(x, y)
                except ValueError as error:
                    said.append(str(error))
        assert len(said) == 2, said
        assert all("incompatible devices" in text for text in said), said
    """)


def test_tensor_maps_are_made_for_each_call(stand_in, gpu):
    """Of one operand twice: the driver encodes each address with its sizes, once."""
    f, before = shlo_disc.jit(lambda x: x @ x.T), stand_in.count("maps")
    for m, k in ((456, 72), (520, 0), (456, 8), (504, 136)):
        x = jnp.asarray(np.random.default_rng(m).integers(-3, 4, (m, k)), "bfloat16")
        for _ in range(2):
            exact = np.asarray(x, np.float32)
            np.testing.assert_array_equal(f(x), (exact @ exact.T).astype(x.dtype))
    assert stand_in.count("maps") - before == 6  # no launch sums nothing
    stand_in.library.stand_in_refuse_maps(1)
    with pytest.raises(DeviceError, match=r"refuses a tensor map of kernel dense_\w+.*ERROR"):
        f(x[:, :64])
    assert not stand_in.errors


@pytest.mark.slow
def test_callbacks_into_python(stand_in, gpu, caplog):
    """Operands are copied to the host, and results back; effects keep their order."""
    rows = []

    def step(c, row):
        jax.debug.callback(lambda v: rows.append(float(v)), c, ordered=True)
        shape = jax.ShapeDtypeStruct(row.shape, row.dtype)
        return c + row.sum(), jax.pure_callback(lambda v: np.asarray(v) * 3, shape, row)

    f = shlo_disc.jit(lambda x: jax.lax.scan(step, jnp.float32(0), x * 2))
    for n in (3, 2, 3):  # the third call is one that XLA would run
        x, rows[:] = np.arange(n * 4, dtype=np.float32).reshape(n, 4), []
        total, found = f(jnp.asarray(x))
        np.testing.assert_allclose(found, x * 6)
        sums = np.cumsum(x.sum(1) * 2)
        assert rows == [0.0, *sums[:-1]]
        assert total == sums[-1]
    assert f.cache_info().misses == 1
    assert not caplog.messages


@pytest.mark.parametrize("program", [by_groups, in_halves_of_bytes])
def test_weights_are_dequantised_in_the_product(stand_in, gpu, program):
    f = shlo_disc.jit(program)
    for k, n, rows in ((64, 40, 1), (32, 33, 5)):
        w, scale = arrays(k, n, "int8")
        depth = 2 * k if program is in_halves_of_bytes else k
        x = jnp.asarray(np.random.default_rng(0).normal(size=(rows, depth)), jnp.float32)
        np.testing.assert_allclose(f(x, w, scale), program(x, w, scale), rtol=1e-3, atol=1e-2)
    assert "dense" in f.explain()
    assert not stand_in.errors

"""Calls of XLA FFI handlers in programs for GPUs: on the stream, or on the host with copies."""

from __future__ import annotations

import ctypes
import gc
import json
import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral
from shlo_disc.base.errors import DeviceError, ForeignCallError, UnsupportedError
from shlo_disc.executables.devices import stand_in_for
from shlo_disc.ffi.targets import ffi_target
from shlo_disc.report.peak import peak
from tests.children import at_once, forked
from tests.gpu.stand_in import StandIn, shared_library

pytest.importorskip("llvmlite")

F32 = jnp.float32
ILLEGAL_ADDRESS = 700


@pytest.fixture(scope="module")
def handlers():
    """The handlers of `handlers.c`, registered under `test_gpu_ffi.NAME`."""
    driver = StandIn.started().library
    source = Path(__file__).with_name("handlers.c")
    library = ctypes.CDLL(str(shared_library(source, jax.ffi.include_dir())))
    library.handlers_driver(driver.cuMemcpyDtoDAsync_v2, driver.cuMemsetD32Async)
    library.handlers_type.restype = library.handlers_type_info.restype = ctypes.c_void_p
    library.handlers_states.restype = ctypes.c_int64
    jax.devices("cpu")
    for name in ("rolled", "marked", "told", "greedy"):
        for platform in ("CUDA", "ROCM"):
            register(library, name, platform)
    for name in ("halved", "bumped"):
        register(library, name, "cpu")
    ids = {"type_id": library.handlers_type(), "type_info": library.handlers_type_info()}
    capsules = {key: jax.ffi.pycapsule(ctypes.c_void_p(value)) for key, value in ids.items()}
    jax.ffi.register_ffi_type("test_gpu_ffi.Filled", capsules, platform="CUDA")
    stages = {"instantiate": library.filled_instantiate, "execute": library.filled}
    found = {stage: jax.ffi.pycapsule(function) for stage, function in stages.items()}
    jax.ffi.register_ffi_target("test_gpu_ffi.filled", found, platform="CUDA")
    return library


def register(library, name, platform):
    capsule = jax.ffi.pycapsule(getattr(library, name))
    jax.ffi.register_ffi_target(f"test_gpu_ffi.{name}", capsule, platform=platform)


def like(x, *shape):
    return jax.ShapeDtypeStruct(shape or x.shape, x.dtype)


def call(name, *results, **options):
    return jax.ffi.ffi_call(
        f"test_gpu_ffi.{name}", results if len(results) > 1 else results[0], **options
    )


def rolled(x):
    return call("rolled", like(x))(x)


def halved(x):
    return call("halved", like(x), jax.ShapeDtypeStruct((), F32), vmap_method="sequential")(x)


def values(*shape):
    return np.arange(np.prod(shape), dtype="f4").reshape(shape)


# ---- handlers of the GPU's platform -----------------------------------------------------------


def test_a_handler_of_cuda_takes_its_place_on_the_stream(stand_in, gpu, handlers):
    """It and what is around it is enqueued; one compilation serves all sizes."""
    f = shlo_disc.jit(lambda x: rolled(rolled(x * 2) + 1) * 3)
    for shape in ((3, 4), (1, 7), (64, 5), (3, 4), (2, 1)):
        for _ in range(4):  # by the runtime, then by XLA
            x = values(*shape)
            want = (np.roll(np.roll(x * 2, -1, 0) + 1, -1, 0)) * 3
            np.testing.assert_array_equal(f(jnp.asarray(x)), want)
    assert f.cache_info().misses == 1
    assert not stand_in.errors


def test_the_host_does_not_wait_for_a_handler_of_cuda(stand_in, gpu, handlers):
    f = shlo_disc.jit(lambda x: rolled(x + 1) * 2)
    x = jnp.asarray(values(5, 3))
    f(x)
    waits = stand_in.count("waits")
    f(x)
    assert stand_in.count("waits") == waits + 1, "at the end of the call alone"


def test_scratch_memory_goes_back_to_the_pool(stand_in, gpu, handlers):
    f = shlo_disc.jit(rolled)
    for n in (3, 1000, 3):
        x = jnp.asarray(values(n, 3))
        np.testing.assert_array_equal(f(x), np.roll(values(n, 3), -1, 0))
    del x
    gc.collect()
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] == 0


def test_what_a_handler_asks_of_the_runtime(stand_in, gpu, handlers):
    f = shlo_disc.jit(call("told", jax.ShapeDtypeStruct((4,), jnp.int32)))
    np.testing.assert_array_equal(f(jnp.ones(5)), [0, 3, 1, 1])
    g = shlo_disc.jit(lambda x: call("greedy", like(x))(x))
    with pytest.raises(ForeignCallError, match="memory is freed that was not allocated here"):
        g(jnp.ones(5))


def test_results_of_handlers_of_cuda_in_the_memory_of_operands(stand_in, gpu, handlers):
    def marked(x):
        return call("marked", like(x), input_output_aliases={0: 0})(x)

    f = shlo_disc.jit(lambda x: (marked(marked(x) * 2), marked(x), x))
    for n in (1, 3, 301):
        x = values(n) + 1
        want = x.copy()
        want[0] = 100
        for _ in range(4):
            once, twice = want.copy(), want * 2
            twice[0] = 100
            for got, expected in zip(f(jnp.asarray(x)), (twice, once, x), strict=True):
                np.testing.assert_array_equal(got, expected)
    g = shlo_disc.jit(marked, donate_argnums=0)
    for _ in range(4):
        x = jnp.asarray(values(3) + 1)
        np.testing.assert_array_equal(g(x), [100, 2, 3])
        assert x.is_deleted()


def native_call(name):
    """A call of a vector, for an executable that is made by hand."""
    target = ffi_target(f"test_gpu_ffi.{name}", "here", "cuda")
    return ral.ForeignCall(
        target=target.name,
        where="here",
        handlers=target.addresses,
        operands=[(np.dtype("f4"), 1)],
        results=[(np.dtype("f4"), 1)],
        attributes=[],
        on_device=target.platform == "cuda",
    )


@pytest.mark.parametrize("second", ["marked", "bumped"])
def test_misaligned_buffers(stand_in, programs, handlers, second):
    """A handler gets aligned copies; where operand and result are one, so are their copies."""
    stand_in.kernel("shifted")(lambda launch: None)
    exe = programs.executable(
        "shifted",
        [("float32", (-1,), "x")],
        [("float32", 1)],
        foreign=[native_call("rolled"), native_call(second)],
    )
    for n in (2, 5, 1000):
        x = values(n)
        (y,) = exe.run_gpu([x])
        want = np.roll(x[1:], -1)
        want[0] = 100 if second == "marked" else want[0] + 100
        np.testing.assert_array_equal(y, [0, *want])
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] == 0


def test_programs_of_the_cpu_call_no_handlers_of_gpus(handlers):
    with pytest.raises(ValueError, match="calls no handlers of GPUs"):
        ral.Executable(
            name="f",
            prepare=ral.KernelCell(1),
            run=ral.KernelCell(1),
            kernels=[],
            constants=[],
            arguments=[],
            results=[],
            symbols=0,
            foreign=[native_call("rolled")],
        )


def test_states_of_handlers_of_cuda(stand_in, gpu, handlers):
    def filled(x):
        return call("filled", jax.ShapeDtypeStruct(x.shape, jnp.int32))(x, value=np.int32(5))

    before = handlers.handlers_states()
    f = shlo_disc.jit(lambda x: filled(x) + 1)
    for n in (1, 5):
        np.testing.assert_array_equal(f(jnp.ones(n)), np.full(n, 6))
    assert handlers.handlers_states() > before
    jax.clear_caches()
    del f
    gc.collect()
    assert handlers.handlers_states() == before


def test_a_handler_of_rocm(stand_in, handlers):
    """Nothing but the call: kernels would need an emulator."""
    stand_in.library.stand_in_strict(0)
    with stand_in_for(jax.devices("cpu")[0], "rocm"):
        x = values(3, 4)
        f = shlo_disc.jit(rolled)
        np.testing.assert_array_equal(f(jnp.asarray(x)), np.roll(x, -1, 0))
        g = shlo_disc.jit(halved)
        for got, want in zip(g(jnp.asarray(x)), (x / 2, x.sum()), strict=True):
            np.testing.assert_array_equal(got, want)
    gc.collect()


# ---- handlers of the host ---------------------------------------------------------------------


def test_a_handler_of_the_host_gets_copies(stand_in, gpu, handlers, caplog):
    def program(x):
        y, total = halved(x + 1)
        z, _ = halved(y * 4)
        return z + 1, total

    f = shlo_disc.jit(program)
    with caplog.at_level(logging.WARNING, "shlo_disc"):
        for shape in ((3, 4), (1, 1), (64, 5), (3, 4)):
            for _ in range(4):
                x = values(*shape)
                z, total = f(jnp.asarray(x))
                np.testing.assert_array_equal(z, x + 2)
                np.testing.assert_array_equal(total, (x + 1).sum())
    assert f.cache_info().misses == 1
    told = [r.getMessage() for r in caplog.records if "run on the host" in r.getMessage()]
    assert len(told) == 1, told
    assert "have no handlers for CUDA" in told[0]
    assert told[0].count("@test_gpu_ffi.halved (") == 1, "calls of one line"
    assert not stand_in.errors


@pytest.mark.parametrize("name", ["rolled", "halved"])
def test_such_a_program_is_no_graph(stand_in, gpu, handlers, name):
    """The same memory and sizes, time after time: a graph would call no handler."""
    called = rolled if name == "rolled" else (lambda x: halved(x)[0])
    by_numpy = (lambda x: np.roll(x, -1)) if name == "rolled" else (lambda x: x / 2)

    def steps(x, f, cumsum):
        for _ in range(3):
            x = cumsum(f(x) + 1)
        return x

    f = shlo_disc.jit(lambda x: steps(x, called, jnp.cumsum))
    exe = f.lower(jax.ShapeDtypeStruct((9,), F32)).compile().executable
    graphs = stand_in.count("graphs")
    for k in range(12):
        x = values(9) + k
        np.testing.assert_allclose(exe.run_numpy([x])[0], steps(x, by_numpy, np.cumsum), rtol=1e-6)
    assert stand_in.count("graphs") == graphs


def test_empty_arrays(stand_in, gpu, handlers):
    """A handler is not called if all results are empty; `rolled` would divide by zero."""
    f = shlo_disc.jit(lambda x: (halved(x + 1), rolled(x) + 1))
    for n in (3, 0, 2):
        x = values(n, 2)
        (y, total), z = f(jnp.asarray(x))
        np.testing.assert_array_equal(y, (x + 1) / 2)
        np.testing.assert_array_equal(total, (x + 1).sum())
        np.testing.assert_array_equal(z, np.roll(x, -1, 0) + 1)
    g = shlo_disc.jit(jnp.linalg.slogdet)
    for shape in ((0, 3, 3), (2, 0, 0), (2, 3, 3)):
        a = np.broadcast_to(np.eye(shape[-1], dtype="f4") * 2, shape)
        for got, want in zip(g(jnp.asarray(a)), np.linalg.slogdet(a), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_results_of_handlers_of_the_host_in_the_memory_of_operands(stand_in, gpu, handlers):
    def bumped(x):
        return call("bumped", like(x), input_output_aliases={0: 0})(x)

    f = shlo_disc.jit(lambda x: (bumped(bumped(x * 2)), bumped(x), x))
    for n in (1, 3, 301):
        x, first = values(n) + 1, np.eye(1, n, dtype="f4")[0] * 100
        for _ in range(4):
            for got, want in zip(f(jnp.asarray(x)), (x * 2 + 2 * first, x + first, x), strict=True):
                np.testing.assert_array_equal(got, want)
    g = shlo_disc.jit(bumped, donate_argnums=0)
    for _ in range(4):
        x = jnp.asarray(values(3))
        np.testing.assert_array_equal(g(x), [100, 1, 2])
        assert x.is_deleted()


def test_control_flow_and_scalars_of_the_host(stand_in, gpu, handlers):
    """Counters are at home on the host; the handler gets one, and what it gives is asked for."""

    def program(x, n):
        def step(i, y):
            z, _ = halved(jnp.asarray(i, F32))
            return halved(y + z)[0] + 1

        y = jax.lax.fori_loop(0, n, step, x)
        y = jax.lax.cond(halved(y)[1] > 40, lambda v: halved(v)[0], lambda v: v * 3, y)
        y = jax.lax.while_loop(lambda v: halved(v)[1] > 9, lambda v: halved(v)[0], y)
        return jax.lax.scan(lambda c, v: (c + halved(v)[0], halved(c)[0]), jnp.zeros(()), y)

    f, g = shlo_disc.jit(program), jax.jit(program)
    for count, n in ((3, 1), (9, 3), (1, 4)):
        got, want = f(jnp.asarray(values(count)), n), g(values(count), n)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert f.cache_info().misses == 1


def test_a_program_is_explained(stand_in, gpu, handlers, monkeypatch):
    f = shlo_disc.jit(lambda x: rolled(halved(x)[0]))
    f(jnp.asarray(values(3, 4)))
    note = "@test_gpu_ffi.halved: runs on the host, which waits for the GPU"
    assert f.explain().count("runs on the host") == 1
    assert note in f.explain()
    assert note in f.explain("html")
    (version,) = [p for p in [json.loads(f.explain("json"))] if "kernels" in p]
    assert [k["on_host"] for k in version["kernels"]] == [["test_gpu_ffi.halved"], []]
    on_cpu = shlo_disc.jit(lambda x: halved(x)[0])
    exe = on_cpu.lower(jax.ShapeDtypeStruct((3,), F32)).compile().executable
    assert exe.on_host == (frozenset() if exe.target.platform == "cpu" else {"test_gpu_ffi.halved"})
    monkeypatch.setattr("shlo_disc.report.profile.peak", lambda _: peak("cpu"))  # not interpreted
    text = str(f.lower(values(3, 4)).compile().executable.profile(values(3, 4), calls=2))
    assert "@test_gpu_ffi.halved" in text


# ---- linear algebra ---------------------------------------------------------------------------


def symmetric(n, seed=0):
    a = np.random.default_rng(seed).standard_normal((n, n))
    return (a @ a.T + n * np.eye(n)).astype("f4")


def cholesky(a, b):
    return jsl.cho_solve((jnp.linalg.cholesky(a), True), b)


def eigenvectors(a, b):
    w, v = jnp.linalg.eigh(a)
    return (v * w) @ v.T, b


def singular(a, b):
    u, s, v = jnp.linalg.svd(b, full_matrices=False)
    return (u * s) @ v, s


LINEAR = {
    "cholesky": (cholesky, np.linalg.solve),
    "solve": (jnp.linalg.solve, np.linalg.solve),
    "qr": (lambda a, b: jnp.abs(jnp.linalg.qr(b)[1]), lambda a, b: np.abs(np.linalg.qr(b)[1])),
    "eigh": (eigenvectors, lambda a, b: (a, b)),
    "svd": (singular, lambda a, b: (b, np.linalg.svd(b)[1])),
    "lu": (lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b), np.linalg.solve),
    "triangular": (
        lambda a, b: jsl.solve_triangular(a, b, lower=True),
        lambda a, b: np.linalg.solve(np.tril(a), b),
    ),
}


@pytest.fixture
def exact():
    """Products of all digits."""
    with jax.default_matmul_precision("highest"):
        yield


@pytest.mark.parametrize("name", LINEAR)
def test_linear_algebra(stand_in, gpu, exact, name):
    ours, theirs = LINEAR[name]
    f = shlo_disc.jit(ours)
    for n in (4, 3, 9, 1):
        a, b = symmetric(n), np.random.default_rng(n).standard_normal((n, 3)).astype("f4")
        got, want = f(jnp.asarray(a), jnp.asarray(b)), theirs(a.astype("f8"), b.astype("f8"))
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-4)
    assert f.cache_info().misses <= 2, "sizes of 1 may have their own"
    assert not stand_in.errors


def test_gradients_and_transformations_of_jax(stand_in, gpu, exact):
    def log_likelihood(a, y):
        factor = jnp.linalg.cholesky(a)
        z = jsl.solve_triangular(factor, y, lower=True)
        return -0.5 * z @ z - jnp.log(jnp.diagonal(factor)).sum()

    f = shlo_disc.jit(log_likelihood)
    both = jax.grad(f, (0, 1))
    for n in (3, 6):
        a, y = symmetric(n), values(n) + 1
        inverse = np.linalg.inv(np.asarray(a, float))
        solved = inverse @ np.asarray(y, float)
        want = (np.outer(solved, solved) - inverse) / 2, -solved  # a is symmetric
        for g, w in zip(both(a, y), want, strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(jax.jit(f)(a, y), log_likelihood(a, y), rtol=1e-5)

    def steps(a, ys):
        return jax.lax.scan(lambda c, y: (c + f(a, y), None), jnp.zeros(()), ys)[0]

    a, ys = symmetric(3), values(2, 3)
    want = sum(log_likelihood(a, y) for y in ys)
    np.testing.assert_allclose(jax.jit(steps)(a, ys), want, rtol=1e-5)


def test_a_matrix_that_is_not_positive_definite(stand_in, gpu):
    """A result of LAPACK tells: NaN, as from JAX."""
    f = shlo_disc.jit(jnp.linalg.cholesky)
    assert np.isnan(np.asarray(f(jnp.asarray(-symmetric(4))))[np.tril_indices(4)]).all()
    np.testing.assert_allclose(f(jnp.asarray(symmetric(5))), np.linalg.cholesky(symmetric(5)), 1e-4)


# ---- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["halved", "told"])
def test_an_error_names_the_line_and_spoils_nothing(stand_in, gpu, handlers, name):
    if name == "halved":
        f = shlo_disc.jit(lambda x: halved(x - 2)[0] + 1)
        good, bad = jnp.asarray(values(9) + 2), jnp.ones(13)
        want, why = values(9) / 2 + 1, "an element is negative"
    else:
        f = shlo_disc.jit(lambda x: call("told", jax.ShapeDtypeStruct((4,), jnp.int32))(x) + 1)
        good, bad, want, why = jnp.ones(9), jnp.ones(13), [1, 4, 2, 2], "13 elements"
    for _ in range(3):
        np.testing.assert_array_equal(f(good), want)
        with pytest.raises(ForeignCallError) as caught:
            f(bad)
        text = str(caught.value)
        assert "test_foreign.py:" in text, text
        assert f"@test_gpu_ffi.{name} failed: {why} (INVALID_ARGUMENT)" in text
    inside = jax.jit(lambda x: f(x) * 1)
    np.testing.assert_array_equal(inside(good), want)
    with pytest.raises(Exception, match=rf"INVALID_ARGUMENT.*@test_gpu_ffi.{name}: {why}"):
        jax.block_until_ready(inside(bad))
    exe = f.lower(good).compile().executable
    with pytest.raises(ForeignCallError, match=why):
        exe.run_numpy([np.asarray(bad)])
    np.testing.assert_array_equal(exe.run_numpy([np.asarray(good)])[0], want)


def test_an_error_ends_a_loop(stand_in, gpu, handlers):
    def program(x):
        return jax.lax.while_loop(lambda y: jnp.max(y) < 1, lambda y: halved(y)[0] * 0, x)

    f = shlo_disc.jit(program)
    np.testing.assert_array_equal(f(jnp.ones(3)), np.ones(3))
    with pytest.raises(ForeignCallError, match="an element is negative"):
        f(jnp.full(3, -1.0))


def test_failures_of_the_device_around_a_handler(stand_in, gpu, handlers):
    f = shlo_disc.jit(lambda x: halved(x * 2)[0])
    x = jnp.asarray(values(20))
    np.testing.assert_array_equal(f(x), values(20))
    stand_in.library.stand_in_fault(0, ILLEGAL_ADDRESS)
    with pytest.raises(
        DeviceError, match=r"when operands of @test_gpu_ffi.halved \(.*\) are copied to the host"
    ):
        f(x)
    stand_in.library.stand_in_reset()
    stand_in.library.stand_in_strict(0)
    np.testing.assert_array_equal(f(x), values(20))


def test_scratch_memory_runs_out(stand_in, gpu, handlers):
    f = shlo_disc.jit(rolled)
    x = jnp.asarray(values(4000, 3))
    f(x)
    gc.collect()
    ral.gpu_pool_trim("cuda")
    stand_in.memory(stand_in.count("bytes") + 60_000)  # enough for the result
    with pytest.raises(ForeignCallError, match="no stream, or no memory"):
        f(x)
    stand_in.memory(1 << 30)
    np.testing.assert_array_equal(f(x), np.roll(values(4000, 3), -1, 0))


def test_a_target_of_no_platform_is_refused(stand_in, gpu, handlers):
    f = shlo_disc.jit(lambda x: call("nowhere", like(x))(x))
    with pytest.raises(
        UnsupportedError,
        match=r"test_foreign.py:\d+.*@test_gpu_ffi.nowhere: no FFI target of this name is "
        r"registered for CUDA or for the CPU.*platform='CUDA'",
    ):
        f(jnp.ones(3))


# ---- compiling --------------------------------------------------------------------------------


def test_compiling_for_another_machine_needs_no_gpu():
    said = forked(
        """
        text = '''
          func.func @main(%a: tensor<?x?xf32> {disc.shape = ["n", "n"]}) -> tensor<?x?xf32> {
            %l = stablehlo.cholesky %a, lower = true : tensor<?x?xf32>
            return %l : tensor<?x?xf32>
          }'''
        import shlo_disc
        exe = shlo_disc.compile(text, target="cuda:sm_90")
        assert exe.on_host == {"lapack_spotrf_ffi"}
        print(exe.explain())
        """,
        SHLO_DISC_CUDA_LIBRARY="/nowhere/libcuda.so",
    )
    assert "@lapack_spotrf_ffi: runs on the host" in said


def test_targets_registered_before_shlo_disc_is_imported():
    forked(
        """
        import ctypes, jax
        function = ctypes.pythonapi.PyList_New
        jax.ffi.register_ffi_target("early", jax.ffi.pycapsule(function), platform="CUDA")
        jax.ffi.register_ffi_target("early_gpu", jax.ffi.pycapsule(function), platform="gpu")
        from shlo_disc.ffi.targets import ffi_target
        for name in ("early", "early_gpu"):
            target = ffi_target(name, "here", "cuda")
            assert target.platform == "cuda"
            assert target.addresses[3] == ctypes.cast(function, ctypes.c_void_p).value
        """
    )


def test_from_eight_threads(stand_in, gpu, handlers):
    f = shlo_disc.jit(lambda x: rolled(halved(x + 1)[0]) * 2)
    g = shlo_disc.jit(lambda x: halved(x)[0])

    def work(seed: int) -> None:
        for k in range(12):
            x = values(seed + 1, k % 5 + 1)
            np.testing.assert_array_equal(f(jnp.asarray(x)), np.roll(x + 1, -1, 0))
            with pytest.raises(ForeignCallError, match="an element is negative"):
                g(jnp.asarray(x - 1))

    at_once(work, range(8))

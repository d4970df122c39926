"""Programs for GPUs as custom calls: under jax.jit on the stand-in, and in frames of XLA's ABI."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shlo_disc import ral
from shlo_disc.executables.bridge import register_ffi_target
from tests.children import at_once, forked
from tests.gpu.stand_in import Launch, memory, shared_library
from tests.gpu.test_runtime import add1

EXECUTE = 3
ILLEGAL_ADDRESS = 700
OUT_OF_RESOURCES = 701
_fingerprints = itertools.count(1 << 40)


@pytest.fixture
def added(stand_in, programs):
    """The executable y = x + 1, on arrays of JAX's CPU."""
    register_ffi_target()
    stand_in.library.stand_in_strict(0)
    stand_in.kernel("add1", 8, 8, 8, 8)(add1)
    return programs.add1()


def registered(exe: ral.Executable) -> int:
    fingerprint = next(_fingerprints)
    exe.register_ffi(fingerprint)
    return fingerprint


def call(exe: ral.Executable):
    fingerprint = np.int64(registered(exe))

    def run(x):
        result = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.ffi.ffi_call(ral.FFI_TARGET, result)(x, executable=fingerprint)

    return run


def test_inside_jit(stand_in, added):
    f = jax.jit(lambda x: call(added)(x * 2) + 1)
    launches = stand_in.count("launches")
    for count in (0, 1, 300, 1000):
        x = jnp.arange(count, dtype="float32")
        np.testing.assert_array_equal(f(x), 2 * x + 2)
    assert stand_in.count("launches") == launches + 3
    assert not stand_in.pending


def test_inside_scan_and_vmap_of_calls(added):
    inner = call(added)
    f = jax.jit(lambda x: jax.lax.scan(lambda c, _: (inner(c), None), x, length=7)[0])
    np.testing.assert_array_equal(f(jnp.zeros(20)), np.full(20, 7))


def test_errors_are_those_of_the_device(stand_in, added):
    f = jax.jit(call(added))
    x = jnp.ones(20)
    np.testing.assert_array_equal(f(x), x + 1)
    stand_in.library.stand_in_refuse_launch(0, OUT_OF_RESOURCES)
    with pytest.raises(
        Exception, match=r"INTERNAL: shlo_disc: add1: .* refuses kernel add1_kernel"
    ):
        jax.block_until_ready(f(x))
    stand_in.library.stand_in_fault(0, ILLEGAL_ADDRESS)
    with pytest.raises(Exception, match="has failed, which shows at the end of the call"):
        jax.block_until_ready(f(x))
    stand_in.library.stand_in_reset()
    stand_in.library.stand_in_strict(0)
    ral.gpu_pool_trim("cuda")
    stand_in.memory(100)
    with pytest.raises(
        Exception, match="RESOURCE_EXHAUSTED: shlo_disc: add1: temporary memory take"
    ):
        jax.block_until_ready(f(x))
    stand_in.library.stand_in_reset()
    stand_in.library.stand_in_strict(0)
    with pytest.raises(Exception, match=r"x\.shape"):
        jax.block_until_ready(jax.jit(call(added))(jnp.ones(13)))
    np.testing.assert_array_equal(f(x), x + 1)


def test_from_eight_threads(added):
    f = jax.jit(lambda x: call(added)(x) * 1)

    def work(seed: int) -> None:
        x = jnp.full(20 + seed, float(seed))
        for _ in range(20):
            assert (np.asarray(f(x)) == seed + 1).all()

    at_once(work, range(8))


def test_a_program_for_a_gpu_does_not_run_on_the_cpu():
    # Without the switch of the tests.
    said = forked(
        """
        import os
        import numpy as np
        import jax, jax.numpy as jnp
        from shlo_disc import ral
        from shlo_disc.executables.bridge import register_ffi_target
        from tests.gpu.conftest import Programs
        register_ffi_target()
        exe = Programs().add1()
        exe.register_ffi(7)
        call = jax.ffi.ffi_call(ral.FFI_TARGET, jax.ShapeDtypeStruct((3,), "float32"))
        try:
            jax.block_until_ready(jax.jit(lambda x: call(x, executable=np.int64(7)))(jnp.ones(3)))
        except Exception as error:
            print(error)
        """,
        SHLO_DISC_GPU_HOST_MEMORY="0",
    )
    assert (
        "INVALID_ARGUMENT: shlo_disc: add1 is compiled for sm_80, the call runs on the CPU" in said
    )


class Frame:
    """Calls the handler of GPUs as XLA does, with a stream and scratch memory of its own."""

    def __init__(self, driver: ctypes.CDLL) -> None:
        source = Path(__file__).with_name("xla_frame.c")
        self.library = ctypes.CDLL(str(shared_library(source, jax.ffi.include_dir())))
        self.driver = driver
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        handlers = ral.ffi_handler(on_gpu=True)
        self.stages = {
            0: ctypes.c_void_p(pointer(handlers["instantiate"], None)),
            EXECUTE: ctypes.c_void_p(pointer(handlers["execute"], None)),
        }
        self._made: list[ctypes.c_void_p] = []
        self.stream = self._new("cuStreamCreate", 0)
        self.set()

    def set(self, *, ordinal: int = 0, refuses_scratch: bool = False) -> None:
        self.library.frame_set(self.stream, ordinal, refuses_scratch)

    def _new(self, function: str, argument: int) -> ctypes.c_void_p:
        made, popped = ctypes.c_void_p(), ctypes.c_void_p()
        context = ctypes.c_void_p()
        self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.driver.cuCtxPushCurrent_v2(context)
        take = ctypes.c_size_t(argument)
        assert getattr(self.driver, function)(ctypes.byref(made), take) == 0
        self.driver.cuCtxPopCurrent_v2(ctypes.byref(popped))
        return made

    def wait(self) -> None:
        context, popped = ctypes.c_void_p(), ctypes.c_void_p()
        self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.driver.cuCtxPushCurrent_v2(context)
        self.driver.cuStreamSynchronize(self.stream)
        self.driver.cuCtxPopCurrent_v2(ctypes.byref(popped))

    def array(self, values: np.ndarray) -> np.ndarray:
        """Memory of the device with these values."""
        address = self._new("cuMemAlloc_v2", values.nbytes or 1).value
        made = memory(address, values.shape, values.dtype)
        made[:] = values
        return made

    def call(self, stage: int, fingerprint: int, x: np.ndarray, y: np.ndarray) -> str:
        text = ctypes.create_string_buffer(1024)
        code = self.library.frame_call(
            self.stages[stage], stage, ctypes.c_int64(fingerprint), ctypes.c_void_p(x.ctypes.data),
            ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(len(x)), text, ctypes.c_int64(len(text)),
        )  # fmt: skip
        return f"{code}: {text.value.decode()}" if code else ""


def test_the_handler_of_gpus_gives_work_to_the_stream_of_xla(stand_in, programs):
    frame = Frame(stand_in.library)
    stand_in.library.stand_in_strict(0)
    ran: list[Launch] = []
    stand_in.kernel("add1", 8, 8, 8, 8)(lambda launch: (add1(launch), ran.append(launch)))
    exe = programs.add1()
    fingerprint = registered(exe)
    x = frame.array(np.arange(1000, dtype="float32"))
    y = frame.array(np.zeros(1000, "float32"))
    assert frame.call(0, fingerprint, x, y) == ""
    pool = ral.gpu_pool_stats("cuda")["in_use_bytes"]
    for turn in range(3):
        assert frame.call(EXECUTE, fingerprint, x, y) == ""
        assert len(ran) == turn  # nothing has been waited for
        assert frame.library.frame_scratch_held() == 0  # given back in the order of the stream
        frame.wait()
        np.testing.assert_array_equal(y, x + 1)
        x[:] += 1
    assert frame.library.frame_scratch_most() == 4000 + 256
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] == pool
    frame.set(refuses_scratch=True)
    assert frame.call(EXECUTE, fingerprint, x, y) == "8: no scratch"
    frame.set(ordinal=5)
    assert "13: shlo_disc: add1: there is no device cuda:5" in frame.call(
        EXECUTE, fingerprint, x, y
    )


def test_the_handler_of_gpus_refuses_programs_of_the_cpu(stand_in):
    frame = Frame(stand_in.library)
    cell = ral.KernelCell(1)
    exe = ral.Executable(
        name="f",
        prepare=cell,
        run=cell,
        kernels=[],
        constants=[],
        arguments=[(np.dtype("f4"), (-1,), "x")],
        results=[(np.dtype("f4"), 1, False)],
        symbols=1,
    )
    fingerprint = registered(exe)
    x = frame.array(np.zeros(3, "f4"))
    assert frame.call(0, fingerprint, x, x) == ""
    assert frame.call(EXECUTE, fingerprint, x, x) == (
        "3: shlo_disc: f is compiled for the CPU, the call runs on a GPU"
    )

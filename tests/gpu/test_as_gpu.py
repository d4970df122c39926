"""Random programs and functions of JAX on the stand-in driver: a sample, and what must be found."""

import ctypes
import mmap
import os

import jax
import numpy as np
import pytest

from tests.functions import check as functions
from tests.fuzz import batches, facts
from tests.fuzz.check import check
from tests.fuzz.facts import Facts
from tests.fuzz.generate import generate
from tests.fuzz.program import Argument, Block, Program, Step, Value
from tests.fuzz.text import check as text_check
from tests.fuzz.text.generate import generate as generate_text
from tests.gpu import as_gpu as ours
from tests.gpu.as_gpu import TARGET, AsGpu, as_gpu, with_all_digits
from tests.gpu.stand_in import StandIn
from tests.gpu.stand_in.host_memory import allocated, mapped, of_others
from tests.ptx.interpreter import PtxFault

pytest.importorskip("llvmlite")

SAMPLE = (7, 8)
"""Small programs; the second has products in tf32."""


@pytest.fixture
def asks(monkeypatch):
    """The environment asks for a GPU; the driver."""
    for name in ("JAX_PLATFORMS", "SHLO_DISC_SPEC", "XLA_FLAGS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    batches.prepare()
    monkeypatch.setenv(TARGET, "cuda:sm_90a")
    return StandIn.started()


def one_step(text, *, all_digits=True, shapes=((2, 3), (5, 3)), error=0.0):
    """A program of one argument and one step."""
    step = Step(("v2",), text, ("x1",))
    value = Value("v2", "float32", shapes, Facts(1, error))
    argument = Argument("x1", "float32", shapes, "normal", 0)
    block = Block((step,), ("v2",))
    return Program(0, False, (argument,), block, {"v2": value}, all_digits=all_digits)


def test_a_right_program_runs_there(asks):
    launches, graphs = asks.count("launches"), asks.count("graphs")
    text = "jnp.cumsum(jnp.cumsum(jnp.cumsum(jnp.cumsum(jnp.sign($0), 0), 1), 0), 1)"
    outcome = check(one_step(text))
    assert (outcome.failure, outcome.compilations) == (None, 1)
    assert asks.count("launches") > launches
    assert asks.count("graphs") > graphs


def test_an_access_out_of_bounds_is_a_fault(asks, monkeypatch):
    """In the calls from the second turn on, whose arrays have bounds."""
    set_bounds = AsGpu.set_bounds

    def shorter(self, arrays):
        set_bounds(self, arrays)
        self.driver.arrays = {at: size - 4 for at, size in self.driver.arrays.items()}

    monkeypatch.setattr(AsGpu, "set_bounds", shorter)
    failure = check(one_step("jnp.abs($0)")).failure
    assert (failure.kind, failure.signature.partition(" ")[0]) == ("fault", "PtxFault:")


def break_launches(monkeypatch, first, found):
    """From number `first` on launches do what `found` does."""
    calls, interpret = [], StandIn._interpret

    def broken(self, symbol, launch):
        calls.append(symbol)
        return (interpret if len(calls) < first else found)(self, symbol, launch)

    monkeypatch.setattr(StandIn, "_interpret", broken)


def fails(self, symbol, launch):
    raise PtxFault(f"{symbol}: thread 17 reads 4 bytes at 0x7f00 outside of its arrays")


@pytest.mark.parametrize("first", [1, 2, 5, 10])
def test_a_fault_of_any_call_is_found(asks, monkeypatch, first):
    """Of the first two calls at a size, of those through XLA, of graphs."""
    break_launches(monkeypatch, first, fails)
    failure = check(one_step("jnp.abs($0)")).failure
    assert failure.kind == "fault"
    assert failure.signature.endswith("thread # reads # bytes at # outside of its arrays")


def test_results_that_change_between_turns_are_found(asks, monkeypatch):
    break_launches(monkeypatch, 8, lambda self, symbol, launch: None)
    assert check(one_step("jnp.abs($0)")).failure.kind == "unstable"


def test_a_wrong_result_of_a_module_is_found(asks, monkeypatch):
    seed = next(s for s in range(100) if generate_text(s).block.steps and s not in (0,))
    assert text_check.check(generate_text(seed)).failure is None
    break_launches(monkeypatch, 1, fails)
    assert text_check.check(generate_text(seed)).failure.kind == "fault"


def test_products_are_rounded_where_a_program_says_so(asks):
    text, shapes = "$0 @ $0.T", ((16, 64), (40, 64))
    assert check(one_step(text, shapes=shapes, error=2.0**-16)).failure is None
    rough = one_step(text, shapes=shapes, error=2.0**-16, all_digits=False)
    assert check(rough).failure.kind == "difference"
    rough = one_step(text, shapes=shapes, error=64 * 8 * 2.0**-10, all_digits=False)
    assert check(rough).failure is None


def test_what_tf32_keeps():
    kept = Facts(4, 0, 3)
    assert facts.narrowed(kept) is kept
    for exact in (Facts(4, 0, None), Facts(4, 0, 10)):
        narrow = facts.narrowed(exact)
        assert narrow.error == 4 * 2.0**-11
        assert narrow.grain is None


def test_modules_keep_all_digits():
    text = """func.func public @main(%x: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3x3xf32>) {
      %a = stablehlo.dot %x, %x : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
      %b = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], algorithm = <
        lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32,
        lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,
        allow_imprecise_accumulation = false> :
        (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
      return %a, %b : tensor<3x3xf32>, tensor<3x3xf32>
    }"""
    digits = with_all_digits(text)
    assert digits.count("HIGHEST") == 2
    assert "tf32" in digits


def test_functions(asks, monkeypatch):
    launches = asks.count("launches")
    found = functions.check("jax.numpy.cumsum")
    assert (found.state, found.compilations) == ("one compilation", 1)
    assert asks.count("launches") >= launches + 4 * functions.CALLS_ON_GPU
    break_launches(monkeypatch, 1, fails)
    found = functions.check("jax.numpy.cumsum")
    assert found.state == "fault"
    assert "thread 17" in found.message


def test_nothing_is_asked_without_a_target(monkeypatch):
    monkeypatch.delenv(TARGET, raising=False)
    with as_gpu() as gpu:
        assert gpu is None
    assert ours.asked() == ""


def test_another_target_than_that_of_the_driver(stand_in):
    with as_gpu("cuda:sm_90a") as gpu:
        assert gpu.target == "cuda:sm_90a"
    with (
        pytest.raises(ValueError, match="the stand-in is cuda:sm_90a, and not cuda:sm_75"),
        as_gpu("cuda:sm_75"),
    ):
        pass


def test_every_second_program_for_a_gpu_is_long(asks, monkeypatch):
    def longest(seeds):
        arguments = (a for seed in seeds for a in generate(seed).arguments)
        return max(size for a in arguments for shape in a.shapes for size in shape)

    assert longest((0, 2, 4)) <= 33
    assert longest((1, 3, 5)) > 100
    monkeypatch.delenv(TARGET)
    assert longest((1, 3, 5)) <= 33


def test_what_is_mapped_behind_an_address():
    libc, page = ctypes.CDLL(None), mmap.PAGESIZE
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    private, rights = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
    first = libc.mmap(None, 10 * page, rights, private, -1, 0)
    assert mapped(first, 10 * page) == 10 * page
    assert libc.munmap(first + 7 * page, page) == 0
    for at, most in ((0, 10 * page), (5000, 1 << 26), (0, 100), (7 * page - 1, 9)):
        assert mapped(first + at, most) == min(most, 7 * page - at)
    assert mapped(first + 7 * page, 50) == 0
    assert libc.munmap(first, 7 * page) == libc.munmap(first + 8 * page, 2 * page) == 0


ROUNDED = 24 + 32
"""Bytes that malloc may add: it rounds up, and leaves no rest smaller than the least block."""


def test_what_malloc_gave():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    for size in (1, 24, 25, 1000, 100_000, 1_000_000):
        address = libc.malloc(size)
        ctypes.memset(address, 0xFF, size)
        found = allocated(address)
        assert size <= found < size + (4096 if size == 1_000_000 else ROUNDED)  # it may be pages
        assert size < 100 or not allocated(address + 16)
        libc.free(address)


def test_what_malloc_gave_at_the_start_of_a_page():
    libc = ctypes.CDLL(None)
    libc.aligned_alloc.restype = ctypes.c_void_p
    libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    address = libc.aligned_alloc(mmap.PAGESIZE, 2 * mmap.PAGESIZE)
    assert 0 <= allocated(address) - 2 * mmap.PAGESIZE < ROUNDED
    libc.free(address)


def test_results_of_xla_have_bounds():
    for result in jax.jit(lambda x: (x * 2, x[:5], x.sum()))(np.ones((7, 9), "f4")):
        address = result.unsafe_buffer_pointer()
        ((_, size),) = of_others({address}, set(), {}, True)
        assert result.nbytes <= size < result.nbytes + ROUNDED
        ((_, size),) = of_others({address}, set(), {address: 3}, True)
        assert size == 3
        assert not list(of_others({0, 16, 400, 1 << 47, 2**64 - 16}, set(), {}, True))
        assert not list(of_others({address}, {(address - 64, 128)}, {}, True))


def test_a_sample_of_random_programs(asks):
    outcomes = dict(batches.check_seeds(SAMPLE, 1))
    assert [o.failure for o in outcomes.values()] == [None] * len(SAMPLE)

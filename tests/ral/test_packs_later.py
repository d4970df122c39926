"""Packed weights that the first call does without: who makes them, and of what."""

import gc
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from shlo_disc import ral
from shlo_disc.base.errors import InternalError
from tests.ral.test_pack_cache import DIRECT, FILL, READY, status
from tests.ral.test_tensors import array_of, tensor_of

WAITS = 3

pytestmark = pytest.mark.usefixtures("no_packs")


class Program:
    """x + 2 w, whose packed copy of w is 2 w and may wait; the jobs that it has handed over."""

    def __init__(self, standins, bridge, name="pack_later", **options):
        self.jobs = []
        later = options.pop("pack_later", self.jobs.append)
        given = [("float32", (-1,), "x"), ("float32", (-1,), "w")]
        is_constant = name != "pack_later"
        self.native = standins.executable(
            name,
            given[:1] if is_constant else given,
            [("float32", 1, False), ("int32", 0, False)],
            pack_layouts=["later"],
            packable=[] if is_constant else [1],
            kernels=options.pop("kernels", ["twice_kernel"]),
            pack_later=later,
            **options,
        )
        self.bridge = bridge

    def status(self, x, w):
        return status(self.native, self.bridge, x, w)

    def pack(self):
        (job,) = self.jobs
        self.jobs.clear()
        while job():
            pass


def arrays(n=5):
    return jnp.ones(n), jnp.arange(float(n))


def test_what_the_first_call_did_without_is_made_once(standins, bridge):
    program, (x, w) = Program(standins, bridge), arrays()
    assert [program.status(x, w) for _ in range(3)] == [WAITS, DIRECT, DIRECT]
    assert ral.pack_stats()["packs"] == 0
    program.pack()
    assert [program.status(x, w) for _ in range(2)] == [READY, READY]
    assert ral.pack_stats()["packs"] == 1
    # From then on calls make what is missing.
    other = jnp.arange(5.0)
    assert [program.status(x, other) for _ in range(3)] == [DIRECT, FILL, READY]
    assert not program.jobs


def test_copies_of_other_programs_are_used_meanwhile(standins, bridge):
    one, two, (x, w) = Program(standins, bridge), Program(standins, bridge), arrays()
    assert [one.status(x, w), two.status(x, w)] == [WAITS, WAITS]
    one.pack()
    assert two.status(x, w) == READY
    two.pack()
    assert ral.pack_stats()["packs"] == 1


def test_a_copy_whose_kernel_was_not_compiled_is_never_read(standins, bridge):
    cell, trials = ral.KernelCell(), itertools.count()

    def make_kernel(index, at_other_sizes):
        assert (index, at_other_sizes) == (0, False)
        if next(trials) == 0:
            raise RuntimeError("no compiler")
        cell.address = standins.address("twice_kernel")

    program = Program(standins, bridge, kernels=[cell], make_kernel=make_kernel, symbols=1)
    x, w = arrays(13)
    with pytest.raises(InternalError, match="pack_later: kernel 0: no compiler"):
        program.native.call(bridge, [x, w])
    assert [program.status(x, w) for _ in range(2)] == [DIRECT, DIRECT]
    # Copies of other arrays are made.
    other = jnp.ones(13)
    assert [program.status(x, other) for _ in range(3)] == [DIRECT, FILL, READY]


def test_what_cannot_wait_is_made_at_once(standins, bridge):
    program, (x, w) = Program(standins, bridge), arrays(13)
    assert [program.status(x, w) for _ in range(2)] == [FILL, READY]
    assert not program.jobs


def test_memory_of_the_call_is_not_read_after_it(standins, bridge):
    program, (x, w) = Program(standins, bridge), arrays(19)
    assert program.status(x, w) == WAITS
    program.pack()
    assert ral.pack_stats()["packs"] == 0
    assert [program.status(x, w) for _ in range(2)] == [FILL, READY]


@pytest.mark.parametrize("deleted", [False, True])
def test_arrays_that_are_gone_are_not_packed(standins, bridge, deleted):
    program, (x, w) = Program(standins, bridge), arrays()
    assert program.status(x, w) == WAITS
    if deleted:
        w.delete()
    else:
        del w
        gc.collect()
    program.pack()
    assert ral.pack_stats()["packs"] == 0
    v = jnp.arange(5.0)
    assert [program.status(x, v) for _ in range(3)] == [DIRECT, FILL, READY]


def test_calls_pack_when_the_job_is_dropped(standins, bridge):
    program, (x, w) = Program(standins, bridge), arrays()
    assert program.status(x, w) == WAITS
    program.jobs.clear()
    assert [program.status(x, w) for _ in range(2)] == [FILL, READY]


def test_a_job_ends_with_the_program(standins, bridge):
    program, (x, w) = Program(standins, bridge), arrays()
    assert program.status(x, w) == WAITS
    (job,) = program.jobs
    del program
    gc.collect()
    assert not job()
    assert ral.pack_stats()["packs"] == 0


def test_a_job_that_cannot_be_handed_over_is_told(standins, bridge):
    def refuse(job):
        raise RuntimeError("no thread")

    program, (x, w) = Program(standins, bridge, pack_later=refuse), arrays()
    with pytest.raises(RuntimeError, match="no thread"):
        program.status(x, w)
    assert program.status(x, w) == FILL


def test_constants_wait_too(standins, bridge):
    constants = [np.arange(6, dtype="f4")]
    program = Program(standins, bridge, "pack_constant_later", constants=constants)

    def call():
        y, answer = program.native.call(bridge, [jnp.ones(6)])
        np.testing.assert_array_equal(np.asarray(y), 1 + 2 * np.arange(6))
        return int(answer)

    assert [call(), call()] == [WAITS, DIRECT]
    program.pack()
    assert call() == READY


@pytest.mark.parametrize("changed", [False, True])
def test_weights_with_versions_wait_too(standins, bridge, tensors, changed):
    program = Program(standins, bridge)
    weights = ral.Weights(lambda array: object())
    call = ral.TensorCall(program.native, ral.TensorBridge(tensors.Tensor), weights, versioned=[1])
    memory = np.arange(5, dtype="f4")
    w = tensor_of(tensors.Tensor, memory)

    def answer(version):
        y, told = call([np.ones(5, "f4"), w], [version])
        np.testing.assert_array_equal(array_of(y, "f4"), 1 + 2 * memory)
        return int(array_of(told, "i4")[()])

    assert answer(0) == WAITS
    if changed:
        memory += 1
        program.pack()  # of elements that no call has at this version
        assert [answer(1) for _ in range(3)] == [DIRECT, FILL, READY]
    else:
        program.pack()
        assert answer(0) == READY


def test_copies_of_weights_with_strides_do_not_wait(standins, bridge, tensors):
    program = Program(standins, bridge)
    weights = ral.Weights(lambda array: object())
    call = ral.TensorCall(program.native, ral.TensorBridge(tensors.Tensor), weights, versioned=[1])
    w = tensor_of(tensors.Tensor, np.arange(10, dtype="f4")[::2])
    answers = [call([np.ones(5, "f4"), w], [0])[1] for _ in range(2)]
    assert [int(array_of(told, "i4")[()]) for told in answers] == [FILL, READY]

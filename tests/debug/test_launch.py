"""Kernels that break their contract are found, and the process that found them lives on."""

import faulthandler
import random

import numpy as np
import pytest

from shlo_disc.debug import launch
from shlo_disc.debug.launch import KernelFault, chunks, run_plan
from shlo_disc.debug.memory import FILL, Guarded
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.plan import Input, Kernel, KernelPlan, Launch, Output, Workspace
from tests.lower.helpers import _compiled_all as compiled

ONE = Expr.const(1)
N = Expr.symbol("n")
F32 = np.dtype(np.float32)

HEAD = """
func.func @KERNEL(%args: !llvm.ptr, %params: !llvm.ptr, %lo: i64, %hi: i64, %scratch: !llvm.ptr) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %from = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %place = llvm.getelementptr %args[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %to = llvm.load %place : !llvm.ptr -> !llvm.ptr
"""
# Element i + OFFSET of the first buffer goes to element i + SHIFT of the second.
COPY = HEAD + """
  scf.for %i = %lo to %hi step %one : i64 {
    %off = arith.constant OFFSET : i64
    %shift = arith.constant SHIFT : i64
    %j = arith.addi %i, %off : i64
    %k = arith.addi %i, %shift : i64
    %source = llvm.getelementptr %from[%j] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %value = llvm.load volatile %source : !llvm.ptr -> f32
    %target = llvm.getelementptr %to[%k] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    llvm.store volatile %value, %target : f32, !llvm.ptr
  }
  return
}
"""  # fmt: skip
# Task i waits until the counter is i, and leaves i + 1 there; the last value is the result.
IN_TURN = HEAD + """
  scf.for %i = %lo to %hi step %one : i64 {
    scf.while : () -> () {
      %count = llvm.load %from atomic acquire {alignment = 8 : i64} : !llvm.ptr -> i64
      %wait = arith.cmpi ne, %count, %i : i64
      scf.condition(%wait)
    } do {
      scf.yield
    }
    %next = arith.addi %i, %one : i64
    llvm.store volatile %next, %to : i64, !llvm.ptr
    llvm.store %next, %from atomic release {alignment = 8 : i64} : i64, !llvm.ptr
  }
  return
}
"""  # fmt: skip


def copying(offset, shift, *args):
    text = COPY.replace("OFFSET", str(offset)).replace("SHIFT", str(shift))
    return KernelPlan((Launch(Kernel("copy", text), args or (Input(0), Output(0)), (), N, ONE),))


def run(plan, n, x=None):
    x = np.arange(n, dtype=F32) if x is None else x
    return run_plan(plan, {"n": n}, [x], [((n,), F32)], compiled)


@pytest.mark.parametrize("n", [0, 1, 7, 1024, 5000])
def test_a_kernel_that_keeps_to_its_buffers(n):
    (y,) = run(copying(0, 0), n)
    assert (y == np.arange(n)).all()


@pytest.mark.parametrize("n", [1, 7, 1024])
@pytest.mark.parametrize("offset_shift", [(1, 0), (0, 1)])
def test_an_element_too_many_is_an_error_that_names_the_kernel(n, offset_shift):
    said = rf"kernel copy, tasks \d+ to {n - 1}: read or wrote outside its buffers"
    with pytest.raises(KernelFault, match=said):
        run(copying(*offset_shift), n)


def test_a_write_in_front_of_a_result_is_an_error():
    with pytest.raises(KernelFault, match=r"copy or one before it wrote in front of Output"):
        run(copying(0, -1), 5)


def test_a_write_to_an_operand_is_an_error():
    plan = copying(0, 0, Workspace(0), Input(0))
    plan = KernelPlan(plan.steps, (N * 4,))
    with pytest.raises(KernelFault, match="copy or one before it wrote to operand 0"):
        run(plan, 5)


@pytest.mark.parametrize("ordered", [True, False])
def test_tasks_that_wait_for_others_need_an_ordered_launch(monkeypatch, ordered):
    monkeypatch.setattr(launch, "LIMIT_S", 60.0 if ordered else 0.3)
    counter = Workspace(0)
    step = Launch(
        Kernel("turns", IN_TURN), (counter, Output(0)), (), N, ONE,
        zeroed=((counter, Expr.const(8)),), ordered=ordered,
    )  # fmt: skip
    plan = KernelPlan((step, step), (Expr.const(8),))
    results = [((), np.dtype(np.int64))]
    if ordered:
        (last,) = run_plan(plan, {"n": 100}, [], results, compiled)
        assert last == 100
    else:
        with pytest.raises(KernelFault, match=r"kernel turns, tasks \d+ to \d+: no end after"):
            run_plan(plan, {"n": 100}, [], results, compiled)


def test_handlers_of_faults_are_kept():
    was = faulthandler.is_enabled()
    faulthandler.enable()
    try:
        with pytest.raises(KernelFault):
            run(copying(1, 0), 3)
        assert faulthandler.is_enabled()
    finally:
        if not was:
            faulthandler.disable()


@pytest.mark.parametrize("extent", [1, 2, 3, 11, 12, 13, 1000])
def test_chunks_are_all_tasks_once(extent):
    orders = set()
    for seed in range(20):
        parts = chunks(extent, False, random.Random(seed))
        orders.add(tuple(parts))
        tasks = [task for lo, hi in parts for task in range(lo, hi)]
        assert sorted(tasks) == list(range(extent))
        ordered = chunks(extent, True, random.Random(seed))
        assert [task for lo, hi in ordered for task in range(lo, hi)] == list(range(extent))
    assert (len(orders) > 1) == (extent > 1)


@pytest.mark.parametrize("size", [0, 1, 63, 4096, 4097])
def test_memory_is_filled_and_watched(size):
    room = Guarded(size, align=64)
    assert room.address % 64 == 0
    assert (room.bytes == FILL).all()
    room.bytes[:] = 0
    assert room.is_intact()

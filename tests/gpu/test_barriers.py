"""Barriers of a block: as many in LLVM's text as were written, each at its own place."""

from __future__ import annotations

import re

import pytest

from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.codegen import llvm
from shlo_disc.lower.plan import text_of
from shlo_disc.lower.target import parse
from shlo_disc.lower.values.typed import IndexValue, Mask

pytest.importorskip("llvmlite")


@pytest.mark.parametrize("name", ["cuda:sm_80", "rocm:gfx942", "rocm:gfx1100"])
def test_a_barrier_in_front_of_a_loop_and_one_at_its_end_stay_two(name: str) -> None:
    """Only some threads have work in the loop; as one barrier both would be the loop's head."""
    machine = parse(name).machine
    b = GroupBuilder(machine, THREADS, THREADS)
    room, limit = b.shared("i32", THREADS), b.param(5)
    has_work = b.thread < limit
    with b.if_(has_work):
        room.store(b.constant(1, "i32"), b.thread)
    b.barrier_of_block()

    def goes_on(carried: list[IndexValue]) -> Mask:
        return carried[0] < limit

    def step(carried: list[IndexValue]) -> list[IndexValue]:
        double = carried[0] + carried[0]
        with b.if_(has_work):
            room.store(room.load(carried[0], readonly=False), b.thread)
        b.barrier_of_block()
        return [double]

    b.while_([b.index(1)], goes_on, step)
    source, _ = b.finish()
    assert text_of(source).count("gpu.barrier") == 2
    calls = re.findall(
        r"call void @llvm\.(?:amdgcn\.s\.barrier|nvvm\.barrier)", llvm([source], machine)
    )
    assert len(calls) == 2

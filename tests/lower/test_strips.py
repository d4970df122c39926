"""Every strip-mined loop visits each element once, in order, and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from shlo_disc.debug.launch import run_plan
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.builder import CpuBuilder
from shlo_disc.lower.cpu.machine import host_machine
from shlo_disc.lower.kernels.strips import masked_strips, strips, whole_strips
from shlo_disc.lower.plan import Input, Kernel, KernelPlan, Launch, Output
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, vector_type
from tests.lower.helpers import _compiled_all as compiled

LANES = 4
ONE = Expr.const(1)
FIRST, LAST = Expr.symbol("first"), Expr.symbol("last")
SIZES = [(0, 0), (0, 1), (0, 3), (0, 4), (0, 5), (0, 8), (2, 2), (2, 5), (3, 14), (1, 17)]


class Sums:
    """Adds one to each element from `first` to `last`; lane i carries the sum of its elements."""

    def __init__(self) -> None:
        self.b = b = CpuBuilder(host_machine())
        self.x, self.y, self.sums = b.memref(0, "f32"), b.memref(1, "f32"), b.memref(2, "f32")
        self.zero = b.constant(0, vector_type(LANES, "f32"))
        self.first, self.last = b.param(FIRST), b.param(LAST)

    def step(self, at: IndexValue, mask: Mask | None, carried: list[Register]) -> list[Register]:
        if mask is None:
            value = self.x.vector_load(at, LANES)
            self.y.vector_store(value + 1.0, at)
        else:
            value = self.x.masked_load(at, mask, self.zero)
            self.y.masked_store(value + 1.0, at, mask)
        return [carried[0] + value]

    def write(self, loops: Callable[[Sums], list[Register]]) -> Callable[[int, int], None]:
        """A check of the kernel that `loops` writes, at `first` and `last`."""
        with self.b.loop(self.b.lo, self.b.hi):
            (total,) = loops(self)
            self.sums.vector_store(total, 0)
        text, params = self.b.finish()
        args = (Input(0), Output(0), Output(1))
        launch = Launch(Kernel("strips", text), args, params, ONE, ONE)

        def check(first: int, last: int) -> None:
            x = np.arange(1, last + 1, dtype=np.float32)
            results = [((last,), x.dtype), ((LANES,), x.dtype)]
            sizes = {"first": first, "last": last}
            y, sums = run_plan(KernelPlan((launch,)), sizes, [x], results, compiled)
            np.testing.assert_array_equal(y[first:], x[first:] + 1)
            want = [x[first + lane :: LANES].sum() for lane in range(LANES)]
            np.testing.assert_array_equal(sums, want)

        return check


def one_by_one(s: Sums, at: IndexValue, total: Register) -> list[Register]:
    """What whole strips leave, with scalars: lane 0 first."""
    lanes = s.b.iota(LANES)
    with s.b.loop(at, s.last, 1, [total]) as loop:
        value = s.x.load(loop.index)
        MemRef.of(s.y).store(value + 1.0, loop.index)
        own = lanes.equals(s.b.broadcast(loop.index - at, LANES))
        wide = s.b.select(own, s.b.broadcast(value, LANES), s.zero)
        loop.yield_(loop.args[0] + wide)
    return loop.results


def whole_then_scalars(s: Sums) -> list[Register]:
    end, carried = whole_strips(
        s.b, s.first, s.last, LANES, lambda at, sums: s.step(at, None, sums), [s.zero]
    )
    return one_by_one(s, end, carried[0])


LOOPS = {
    "strips": lambda s: strips(s.b, s.first, s.last, LANES, s.step, [s.zero]),
    "masked": lambda s: masked_strips(s.b, s.first, s.last, LANES, s.step, [s.zero]),
    "whole": whole_then_scalars,
}


@pytest.mark.parametrize("name", LOOPS)
def test_each_element_once(name):
    check = Sums().write(LOOPS[name])
    for first, last in SIZES:
        check(first, last)


def test_a_divisible_extent_has_no_masked_vector():
    s = Sums()
    strips(s.b, s.first, s.last, LANES, s.step, [s.zero], divisible=True)
    text, _ = s.b.finish()
    assert "scf.for" in text
    assert "masked" not in text


def test_from_zero_no_difference_is_written():
    s = Sums()
    whole_strips(s.b, 0, s.last, LANES, lambda at, sums: s.step(at, None, sums), [s.zero])
    text, _ = s.b.finish()
    assert text.count("arith.subi") == 1


def test_a_body_that_carries_nothing_returns_nothing():
    s = Sums()

    def step(at: IndexValue, mask: Mask | None, carried: list[Register]) -> None:
        assert carried == []
        s.step(at, mask, [s.zero])

    assert strips(s.b, s.first, s.last, LANES, step) == []
    text, _ = s.b.finish()
    assert "iter_args" not in text
    assert "scf.yield" not in text


@pytest.mark.parametrize("lanes", [8, 32])
@pytest.mark.parametrize("count", [1, 3, 7, 8])
def test_known_lanes_are_loaded_and_stored_in_runs(lanes: int, count: int) -> None:
    """A masked store is slow on AVX2, and the load of a next step waits for it."""
    b = CpuBuilder(replace(host_machine(), vector_bytes=32))
    x, y = b.memref(0, "f32"), b.memref(1, "f32")
    with b.loop(b.lo, b.hi):
        mask, one = b.mask(count, lanes), b.constant(1, vector_type(lanes, "f32"))
        y.masked_store(x.masked_load(0, mask, one) + 1.0, 0, mask)
    text, params = b.finish()
    assert "vector.masked" not in text
    launch = Launch(Kernel("runs", text), (Input(0), Output(0)), params, ONE, ONE)
    operand = np.arange(count, dtype=np.float32)
    result = ((count,), operand.dtype)
    (found,) = run_plan(KernelPlan((launch,)), {}, [operand], [result], compiled)
    np.testing.assert_array_equal(found, operand + 1)


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 3, 4, 2**31, 2**32 + 1, 2**40])
def test_a_mask_has_the_first_lanes_of_any_count(count):
    b = CpuBuilder(host_machine())
    y, n = b.memref(0, "f32"), b.param(LAST)
    one, zero = (b.constant(value, vector_type(LANES, "f32")) for value in (1, 0))
    with b.loop(b.lo, b.hi):
        y.vector_store(b.select(b.mask(n, LANES), one, zero), 0)
    text, params = b.finish()
    launch = Launch(Kernel("mask", text), (Output(0),), params, ONE, ONE)
    results = [((LANES,), np.dtype(np.float32))]
    (got,) = run_plan(KernelPlan((launch,)), {"last": count}, [], results, compiled)
    np.testing.assert_array_equal(got, np.arange(LANES) < count)

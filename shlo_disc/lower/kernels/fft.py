"""Kind `fft`: one dimension, a launch for each factor of its length, an element a task.

The length n is taken apart into factors: of what is left, the largest divisor up to 16, or else the
smallest prime. Let p be the factor of a stage, s the product of the factors before it, and
m = n / (s p). Let w be exp(-2 pi i / n), or its inverse. The stage computes, for j < m and k < p,

    y[q + s (p j + k)] = sum over t < p of x[q + s (j + m t)] w ** (s k (j + m t))

This is Stockham's order, in which no bits are reversed.
Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, 1992, section 1.7.

One task finds the factors first. Sizes decide which stages are launched: those past the last factor
compute nothing. The powers of w are a table, computed in f64. Work is n times the sum of the
factors, so a length with a large prime costs n times that prime.

Arrays between the stages hold n x 2 elements a transform, real parts first, in the order of the
operand's dimensions. A transform of reals is one of complex numbers here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir import attributes as attr
from shlo_disc.ir import dialect
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.plan import Buffer, Condition, If, KernelPlan, Launch, Step, Workspace
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.math.trigonometric import sin_cos_of_pi
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

LARGEST_FACTOR = 16

MOST_STAGES = 18
"""Enough for every array that has less than 2 ** 37 elements; see :func:`least_length`."""

_FACTOR, _LEFT, _BEFORE = range(3)
"""What the table of stages has of each: its factor p (1: none), m p, and s."""

_FACTORS, _POWERS, _VALUES = Workspace(0), Workspace(1), Workspace(2)


def least_length(stage: int) -> int:
    """The least length with a stage of this number.

    The factors of two stages in a row have a product above 16, or they would be one factor.
    """
    pairs, single = divmod(stage + 1, 2)
    return int((LARGEST_FACTOR + 1) ** pairs) * (2 if single else 1)


def emit_fft(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of a `disc.fft`."""
    return _Fft(SingleOp.of(fusion, machine)).plan()


class _Fft:
    def __init__(self, single: SingleOp) -> None:
        op, self.single = single.op, single
        self.kind = attr.text(op, "kind")
        self.pairs_in, self.pairs_out = dialect.fft_pairs(op)
        self.element = element_of(op.operands[0])
        self.operands = list(op.operands)[: 1 if self.kind == "RFFT" or self.pairs_in else 2]
        self.results, self.unread = single.places(list(op.results))
        # Where one side is real, the length is that side's.
        real = op.results[0] if self.kind == "IRFFT" else op.operands[0]
        sizes = single.shape(real)[: -1 if self.pairs_in else None]
        axis = dialect.fft_dimension(op)
        self.length, self.inner = sizes[axis], Expr.product(sizes[axis + 1 :])
        self.outer = Expr.product(sizes[:axis])
        self.count = Expr.product(sizes)
        self.is_inverse = self.kind in ("IFFT", "IRFFT")

    def plan(self) -> KernelPlan:
        """All launches."""
        first = len(self.unread)
        self._places = {
            place: Workspace(place.index + first) for place in (_FACTORS, _POWERS, _VALUES)
        }
        _, longest = self.single.shapes.constraints.bounds(self.length)
        steps: list[Step] = [self._factors(), self._powers(), self._read()]
        for stage in range(MOST_STAGES):
            least = least_length(stage)
            if longest is not None and longest < least:
                break
            long = Condition(self.length, ">=", Expr.const(least))
            steps.append(If(long, (self._stage(stage),), ()))
        steps.append(self._write())
        pair = 2 * self.element.bytes
        sizes = (
            Expr.const((3 * MOST_STAGES + 1) * 8),
            self.length * pair,
            self.count * (2 * pair),
        )
        return KernelPlan(tuple(steps), (*self.unread, *sizes))

    # ---------------------------------------------------------------- tables

    def _factors(self) -> Launch:
        e = self.single.kernel(0)
        b, table = e.b, self._memory(e, _FACTORS, "i64")
        with b.loop(b.lo, b.hi, 1, hint="task"):
            left, before = b.param(self.length, opaque=True), b.index(1)
            stages = b.index(0)
            for stage in range(MOST_STAGES):
                factor = _factor(e, left)
                for what, value in ((_FACTOR, factor), (_LEFT, left), (_BEFORE, before)):
                    table.store(b.cast("arith.index_cast", value, "i64"), 3 * stage + what)
                stages = b.select(factor > 1, stages + 1, stages)
                left, before = left // factor, before * factor
            table.store(b.cast("arith.index_cast", stages, "i64"), 3 * MOST_STAGES)
        return self.single.launch(e, "fft_factors", Expr.const(1), Expr.const(2000))

    def _powers(self) -> Launch:
        """The powers of w: cosines, and then sines with the sign of the direction."""
        e = self.single.kernel(0)
        b, table = e.b, self._memory(e, _POWERS)
        n = b.param(self.length, opaque=True)
        with _each(b) as k:
            quarters, rest = k * 4 // n, k * 4 % n
            sine, cosine = sin_cos_of_pi(_float(b, rest, "f64") / _float(b, n + n, "f64"))
            odd, past_half = (quarters % 2).equals(1), quarters > 1
            sine, cosine = b.select(odd, cosine, sine), b.select(odd, -sine, cosine)
            sine = b.select(past_half, -sine, sine)
            cosine = b.select(past_half, -cosine, cosine)
            table.store(self._rounded(cosine), k)
            table.store(self._rounded(sine if self.is_inverse else -sine), n + k)
        return self._launch(e, "fft_powers", self.length)

    # ---------------------------------------------------------------- elements

    def _read(self) -> Launch:
        """The operands as the first of the arrays between the stages."""
        e = self.single.kernel(0)
        b, values = e.b, self._memory(e, _VALUES)
        count = b.param(self.count, opaque=True)
        with _each(b) as at:
            real, imaginary = self._operand(e, at)
            values.store(real, at)
            values.store(imaginary, count + at)
        return self._launch(e, "fft_read", self.count)

    def _operand(self, e: Elemental, at: IndexValue) -> list[Register]:
        b, single = e.b, self.single
        if self.pairs_in:
            return [single.read(e, self.operands[0], at + at + part) for part in range(2)]
        if self.kind == "RFFT":
            return [single.read(e, self.operands[0], at), b.constant(0.0, self.element.storage)]
        if self.kind != "IRFFT":
            return [single.read(e, plane, at) for plane in self.operands]
        # The other half is the first one, mirrored and conjugate.
        n = b.param(self.length, opaque=True)
        row, k = at // n, at % n
        is_other = k + k > n
        place = row * (n // 2 + 1) + b.select(is_other, n - k, k)
        real, imaginary = (single.read(e, plane, place) for plane in self.operands)
        return [real, b.select(is_other, -imaginary, imaginary)]

    def _stage(self, number: int) -> Launch:
        e = self.single.kernel(0)
        b = e.b
        table, powers = self._memory(e, _FACTORS, "i64"), self._memory(e, _POWERS)
        values = self._memory(e, _VALUES)
        n, count = b.param(self.length, opaque=True), b.param(self.count, opaque=True)
        factor, left, before = (
            b.to_index("arith.index_cast", table.load(3 * number + what, readonly=False))
            for what in (_FACTOR, _LEFT, _BEFORE)
        )
        source, target = (count * 2 * ((number + k) % 2) for k in range(2))
        with _each(b) as at, b.if_(factor > 1):
            inner = b.param(self.inner)
            column, whole = at % inner, at // inner
            row, i = whole // n, whole % n
            q, rest = i % before, i // before
            k, j = rest % factor, rest // factor
            m = left // factor
            first = source + (row * n + q + before * j) * inner + column
            step = before * m * inner
            zero = b.constant(0.0, self.element.storage)

            def term(t: IndexValue) -> list[Register]:
                power = k * (j + m * t) % left * before
                x, y = (
                    values.load(first + step * t + part * count, readonly=False)
                    for part in range(2)
                )
                c, s = (powers.load(power + part * n, readonly=False) for part in range(2))
                return [x * c - y * s, x * s + y * c]

            # Two levels: the error of a sum of p terms grows with LARGEST_FACTOR + p / that.
            with b.loop(0, factor, LARGEST_FACTOR, [zero, zero], hint="block") as block:
                end = b.min(block.index + LARGEST_FACTOR, factor)
                with b.loop(block.index, end, 1, [zero, zero], hint="t") as loop:
                    loop.yield_(*(a + x for a, x in zip(loop.args, term(loop.index), strict=True)))
                block.yield_(*(a + x for a, x in zip(block.args, loop.results, strict=True)))
            for part, total in enumerate(block.results):
                values.store(total, target + at + part * count)
        return self._launch(e, f"fft_stage_{number}", self.count)

    def _write(self) -> Launch:
        """The last of the arrays between the stages as results."""
        e = self.single.kernel(0)
        b = e.b
        table, values = self._memory(e, _FACTORS, "i64"), self._memory(e, _VALUES)
        n, count = b.param(self.length, opaque=True), b.param(self.count, opaque=True)
        stages = b.to_index("arith.index_cast", table.load(3 * MOST_STAGES, readonly=False))
        first = stages % 2 * count * 2
        total = self.count
        if self.kind == "RFFT":
            total = self.outer * (self.length // 2 + 1)
        with _each(b) as at:
            place, is_there = at, None
            if self.kind == "RFFT":
                half = n // 2 + 1
                place = at // half * n + at % half
                is_there = n > 0
            parts = [
                self._result(e, values, first + place + part * count, is_there)
                for part in range(1 if self.kind == "IRFFT" else 2)
            ]
            memories = [self._output(e, place) for place in self.results]
            for part, value in enumerate(parts):
                if self.pairs_out:
                    memories[0].store(value, at + at + part)
                else:
                    memories[part].store(value, at)
        return self._launch(e, "fft_write", total)

    def _result(
        self, e: Elemental, values: MemRef, at: IndexValue, is_there: Mask | None
    ) -> Register:
        """A part of an element; 0 for a transform of no elements."""
        b = e.b
        if is_there is not None:
            return b.load_if(is_there, values, at, 0)
        value = values.load(at, readonly=False)
        if not self.is_inverse:
            return value
        n = b.param(self.length, opaque=True)
        return value / _float(b, n, self.element.storage)

    # ---------------------------------------------------------------- kernels

    def _memory(self, e: Elemental, place: Workspace, storage: str = "") -> MemRef:
        return self._output(e, self._places[place], storage)

    def _output(self, e: Elemental, place: Buffer, storage: str = "") -> MemRef:
        return e.b.memref(e.arguments.slot(place), storage or self.element.storage)

    def _launch(self, e: Elemental, name: str, count: Expr) -> Launch:
        return self.single.launch(e, name, count, Expr.const(20))

    def _rounded(self, value: Register) -> Register:
        """An f64 as an element."""
        return value if self.element.bits == 64 else value.cast("arith.truncf", "f32")


@contextlib.contextmanager
def _each(b: KernelBuilder) -> Iterator[IndexValue]:
    """A loop over the tasks of a kernel, each of which is an element."""
    with b.loop(b.lo, b.hi, 1, hint="at") as loop:
        yield loop.index


def _float(b: KernelBuilder, value: IndexValue, element: str) -> Register:
    return b.cast("arith.sitofp", b.cast("arith.index_cast", value, "i64"), element)


def _factor(e: Elemental, n: IndexValue) -> IndexValue:
    """The factor of the next stage, of what is left of the length: 1 if nothing is."""
    b = e.b
    factor = b.index(1)
    for divisor in range(2, LARGEST_FACTOR + 1):
        factor = b.select((n % divisor).equals(0), b.index(divisor), factor)

    def is_no_divisor(carried: list[IndexValue]) -> Mask:
        (at,) = carried
        return (at * at <= n) & (n % at).differs(0)

    has_none = factor.equals(1) & (n > 1)
    with b.if_(has_none, IndexValue) as branch:
        start = b.index(LARGEST_FACTOR + 1)
        (at,) = b.while_([start], is_no_divisor, lambda carried: [carried[0] + 2])
        branch.yield_(b.select(at * at <= n, at, n))
        with branch.otherwise():
            branch.yield_(factor)
    return branch.results[0]

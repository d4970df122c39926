"""Kind `rng`: `rng_bit_generator`, elements in tasks; the numbers are `values/random_bits.py`."""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.plan import KernelPlan, Launch, Output
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.random_bits import RandomBits, Word, three_fry_cipher
from shlo_disc.lower.values.typed import IndexValue, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

_ELEMENTS, _BLOCKS = 512, 128
"""Elements of ThreeFry, and blocks of Philox, that a core takes at once: a few microseconds."""


def emit_rng(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of an `rng_bit_generator` or a call of @stablehlo.dynamic_rng_bit_generator."""
    return KernelPlan(tuple(_Rng(SingleOp.of(fusion, machine)).steps()))


class _Rng:
    def __init__(self, single: SingleOp) -> None:
        self.single, self.bits = single, RandomBits(single.op, single.shapes)

    def steps(self) -> list[Launch]:
        state, bits = self.single.results
        out = []
        if bits is not None:
            out.append(self._philox(bits) if self.bits.is_philox else self._three_fry(bits))
        if state is not None:
            out.append(self._new_state(state))
        return out

    def _word(self, e: Elemental) -> Word:
        """Reads the words of the state (i64)."""
        return lambda k: self.single.read(e, self.bits.state, e.b.index(k))

    def _store(self, e: Elemental, output: Output, value: Register, at: IndexValue) -> None:
        """Element `at`, from 32 or 64 bits."""
        value = self.bits.stored(value)
        e.b.memref(e.arguments.slot(output), self.bits.element.storage).store(value, at)

    def _three_fry(self, output: Output) -> Launch:
        e, count = self.single.kernel(0), self.bits.count
        b, run = e.b, self.single.machine.run(_ELEMENTS)
        cipher = three_fry_cipher(self._word(e))
        n = b.param(count, opaque=True)
        element = self.bits.three_fry(b, cipher)
        first = b.lo * run
        with b.loop(first, b.min(b.hi * run, n), 1, hint="j") as loop:
            self._store(e, output, element(loop.index), loop.index)
        return self.single.launch(
            e, "three_fry", ceil_div(count, run), Expr.min(count, Expr.const(run)) * 12
        )

    def _philox(self, output: Output) -> Launch:
        e, blocks = self.single.kernel(0), self.bits.blocks
        b, run = e.b, self.single.machine.run(_BLOCKS)
        elements = self.bits.philox(self._word(e))
        n = b.param(self.bits.count, opaque=True)
        first = b.lo * run
        last = b.min(b.hi * run, b.param(blocks, opaque=True))
        with b.loop(first, last, 1, hint="j") as loop:
            values = elements(loop.index)
            start = loop.index * self.bits.per_block
            for k, value in enumerate(values):
                at = start + k
                with b.if_(at < n):
                    self._store(e, output, value, at)
        return self.single.launch(
            e, "philox", ceil_div(blocks, run), Expr.min(blocks, Expr.const(run)) * 30
        )

    def _new_state(self, output: Output) -> Launch:
        e = self.single.kernel(0)
        b = e.b
        words = self.bits.new_state(b, self._word(e))
        memory = b.memref(e.arguments.slot(output), self.bits.state_element.storage)
        with b.loop(b.lo, b.hi, 1, hint="task"):
            for k, word in enumerate(words):
                memory.store(word, k)
        return self.single.launch(e, "rng_state", Expr.const(1), Expr.const(20))

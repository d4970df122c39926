"""Kind `rng`: `rng_bit_generator` with the bits XLA gives on a CPU.

Both algorithms are counters put through a block cipher, so every element is computed on its own.
Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011); the assignment of
counters to elements is that of XLA's `xla/hlo/builder/lib/prng.cc`.
"""

from __future__ import annotations

from shlo_disc.dynamic import attributes as attr
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.single_op import Single
from shlo_disc.lower.plan import KernelPlan, Launch, Output
from shlo_disc.lower.schedule.iteration_space import ceil_div
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of, unsupported
from shlo_disc.mlir import ir, stablehlo

__all__ = ["emit_rng"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def emit_rng(fusion: ir.Operation, shapes: ShapeAnalysis, machine: Machine) -> KernelPlan:
    """The plan of an `rng_bit_generator` or a call of @stablehlo.dynamic_rng_bit_generator."""
    return KernelPlan(tuple(_Rng(Single.of(fusion, shapes, machine)).steps()))


def _u32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


class _Words:
    """32-bit arithmetic on registers of any number of lanes."""

    def __init__(self, b: KernelBuilder, lanes: int) -> None:
        self.b, self.lanes = b, lanes

    def add(self, x: str, y: str) -> str:
        return self.b.op("arith.addi", x, y)

    def xor(self, x: str, y: str) -> str:
        return self.b.op("arith.xori", x, y)

    def constant(self, value: int, like: str) -> str:
        return self.b.constant(_u32(value), self.b.type_of(like))

    def rotate(self, x: str, by: int) -> str:
        left = self.b.op("arith.shli", x, self.constant(by, x))
        right = self.b.op("arith.shrui", x, self.constant(32 - by, x))
        return self.b.op("arith.ori", left, right)

    def halves(self, x: str) -> tuple[str, str]:
        """(low, high) words of 64 bits."""
        b = self.b
        high = b.op("arith.shrui", x, b.constant(32, b.type_of(x)))
        return b.cast("arith.trunci", x, "i32"), b.cast("arith.trunci", high, "i32")

    def join(self, low: str, high: str) -> str:
        b = self.b
        wide = b.cast("arith.extui", high, "i64")
        shifted = b.op("arith.shli", wide, b.constant(32, b.type_of(wide)))
        return b.op("arith.ori", b.cast("arith.extui", low, "i64"), shifted)


def three_fry(w: _Words, counter: tuple[str, str], key: tuple[str, str]) -> tuple[str, str]:
    """Threefry-2x32, 20 rounds."""
    keys = [*key, w.xor(w.xor(key[0], key[1]), w.constant(_PARITY, key[0]))]
    x, y = w.add(counter[0], keys[0]), w.add(counter[1], keys[1])
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x = w.add(x, y)
            y = w.xor(x, w.rotate(y, rotation))
        x = w.add(x, keys[(block + 1) % 3])
        y = w.add(w.add(y, keys[(block + 2) % 3]), w.constant(block + 1, y))
    return x, y


def philox(w: _Words, counter: list[str], key: tuple[str, str]) -> list[str]:
    """Philox-4x32, 10 rounds."""
    b = w.b

    def product(x: str, by: int) -> tuple[str, str]:
        wide = b.cast("arith.extui", x, "i64")
        return w.halves(b.op("arith.muli", wide, b.constant(by, b.type_of(wide))))

    x, (k0, k1) = counter, key
    for _ in range(10):
        low0, high0 = product(x[0], _MULTIPLIERS[0])
        low1, high1 = product(x[2], _MULTIPLIERS[1])
        x = [w.xor(w.xor(high1, x[1]), k0), low1, w.xor(w.xor(high0, x[3]), k1), low0]
        k0, k1 = w.add(k0, w.constant(_WEYL[0], k0)), w.add(k1, w.constant(_WEYL[1], k1))
    return x


class _Rng:
    def __init__(self, single: Single) -> None:
        self.single, op = single, single.op
        self.state = op.operands[0]
        self.state_element = element_of(self.state)
        self.element = element_of(op.results[1])
        if self.element.kind == "b" or self.state_element.bits != 64:
            unsupported(op, "no such bits or state", "draw integers from a 64-bit state")
        self.sizes = single.shape(op.results[1])
        self.count = Expr.product(self.sizes)
        words = single.shape(self.state)[0]
        self.words = words.value if words.is_const else 0
        algorithm = self._algorithm()
        self.is_philox = algorithm != "THREE_FRY"  # DEFAULT is Philox on XLA's CPU
        if self.words not in ((2, 3) if self.is_philox else (2,)):
            advice = "use 2 words for THREE_FRY, 2 or 3 for PHILOX"
            unsupported(op, f"a state of {words} words for {algorithm}", advice)

    def _algorithm(self) -> str:
        op = self.single.op
        name = "rng_algorithm"
        if name in op.attributes:
            return str(stablehlo.RngAlgorithmAttr(op.attributes[name]).value)
        return attr.text(op, name)

    def steps(self) -> list[Launch]:
        state, bits = self.single.results
        out = []
        if bits is not None:
            out.append(self._philox(bits) if self.is_philox else self._three_fry(bits))
        if state is not None:
            out.append(self._new_state(state))
        return out

    # ---------------------------------------------------------------- shared

    def _word(self, e: Elemental, k: int) -> str:
        """Word `k` of the state (i64)."""
        return self.single.read(e, self.state, e.b.constant(k, "index"))

    def _store(self, e: Elemental, output: Output, value: str, at: str) -> None:
        """Element `at`, from 32 or 64 bits."""
        b = e.b
        target = self.element.register
        if int(b.type_of(value)[1:]) > self.element.bits:
            value = b.cast("arith.trunci", value, f"i{self.element.bits}")
        if b.type_of(value) != target:
            value = b.bitcast(value, target)
        b.store(value, b.memref(e.arguments.slot(output), self.element.storage), at)

    # ---------------------------------------------------------------- Threefry

    def _split(self, b: KernelBuilder) -> tuple[str, str]:
        """(size, elements after it) of the dimension XLA halves: the first even one, else the
        largest.
        """
        size, inner = b.constant(1, "index"), b.constant(1, "index")
        if not self.sizes:
            return size, inner
        found, largest = b.constant(False, "i1"), b.constant(0, "index")
        after = [Expr.product(self.sizes[d + 1 :]) for d in range(len(self.sizes))]
        for here, rest in zip(self.sizes, after, strict=True):
            n, m = b.param(here), b.param(rest)
            even = b.cmpi("eq", b.rem(n, 2), b.constant(0, "index"))
            larger = b.cmpi("sgt", n, largest)
            better = b.op("arith.ori", even, larger)
            take = b.op("arith.andi", b.op("arith.xori", found, b.constant(True, "i1")), better)
            size, inner = b.select(take, n, size), b.select(take, m, inner)
            largest = b.select(take, n, largest)
            found = b.op("arith.ori", found, even)
        return size, inner

    def _three_fry(self, output: Output) -> Launch:
        e = self.single.kernel(0)
        b, w = e.b, _Words(e.b, 0)
        key = w.halves(self._word(e, 0))
        counter = self._word(e, 1)

        def cipher(at: str) -> tuple[str, str]:
            number = b.op("arith.addi", counter, b.cast("arith.index_cast", at, "i64"))
            return three_fry(w, w.halves(number), key)

        n = b.param(self.count, opaque=True)
        size, inner = self._split(b)
        size, inner = b.max(size, 1), b.max(inner, 1)
        half = b.div(b.add(size, 1), 2)
        first = b.mul(b.lo, 512)
        with b.loop(first, b.min(b.mul(b.hi, 512), n), 1, hint="j") as loop:
            at = loop.index
            if self.element.bits == 64:
                self._store(e, output, w.join(*cipher(at)), at)
            else:
                rest, column = b.div(at, inner), b.rem(at, inner)
                outer, middle = b.div(rest, size), b.rem(rest, size)
                row = b.add(b.mul(outer, half), b.div(middle, 2))
                low, high = cipher(b.add(b.mul(row, inner), column))
                odd = b.cmpi("ne", b.rem(middle, 2), b.constant(0, "index"))
                self._store(e, output, b.select(odd, high, low), at)
        return self.single.launch(
            e, "three_fry", ceil_div(self.count, 512), Expr.min(self.count, Expr.const(512)) * 12
        )

    # ---------------------------------------------------------------- Philox

    def _philox(self, output: Output) -> Launch:
        e = self.single.kernel(0)
        b, w = e.b, _Words(e.b, 0)
        key = w.halves(self._word(e, 0))
        # A state of two words has its key as the upper half of the counter, too.
        low, high = self._word(e, 1), self._word(e, 2 if self.words > 2 else 0)
        per_block = 2 if self.element.bits == 64 else 4
        n = b.param(self.count, opaque=True)
        blocks = ceil_div(self.count, per_block)
        first = b.mul(b.lo, 128)
        last = b.min(b.mul(b.hi, 128), b.param(blocks, opaque=True))
        with b.loop(first, last, 1, hint="j") as loop:
            number = b.op("arith.addi", low, b.cast("arith.index_cast", loop.index, "i64"))
            carried = b.op("arith.addi", high, b.constant(1, "i64"))
            top = b.select(b.cmpi("ult", number, low), carried, high)
            x = philox(w, [*w.halves(number), *w.halves(top)], key)
            values = [w.join(x[0], x[1]), w.join(x[2], x[3])] if per_block == 2 else x
            start = b.mul(loop.index, per_block)
            for k, value in enumerate(values):
                at = b.add(start, k)
                with b.if_(b.cmpi("slt", at, n)):
                    self._store(e, output, value, at)
        return self.single.launch(
            e, "philox", ceil_div(blocks, 128), Expr.min(blocks, Expr.const(128)) * 30
        )

    # ---------------------------------------------------------------- the state

    def _new_state(self, output: Output) -> Launch:
        e = self.single.kernel(0)
        b = e.b
        words = [self._word(e, k) for k in range(self.words)]
        if self.is_philox:
            steps = b.param(ceil_div(self.count, 2 if self.element.bits == 64 else 4))
        elif self.element.bits == 64:
            steps = b.param(self.count)
        else:
            size, inner = self._split(b)
            outer = b.div(b.param(self.count), b.max(b.mul(size, inner), 1))
            steps = b.mul(b.mul(outer, b.div(b.add(size, 1), 2)), inner)
        advanced = b.op("arith.addi", words[1], b.cast("arith.index_cast", steps, "i64"))
        if len(words) > 2:
            more = b.op("arith.addi", words[2], b.constant(1, "i64"))
            words[2] = b.select(b.cmpi("ult", advanced, words[1]), more, words[2])
        words[1] = advanced
        memory = b.memref(e.arguments.slot(output), self.state_element.storage)
        with b.loop(b.lo, b.hi, 1, hint="task"):
            for k, word in enumerate(words):
                b.store(word, memory, k)
        return self.single.launch(e, "rng_state", Expr.const(1), Expr.const(20))

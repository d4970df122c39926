"""Random bits: the numbers of `rng_bit_generator`, element by element, as XLA gives them on a CPU.

Both algorithms are counters put through a block cipher, so every element is computed on its own.
Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011); the assignment of
counters to elements is that of XLA's `xla/hlo/builder/lib/prng.cc`.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.dynamic import attributes as attr
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elements import element_of, unsupported
from shlo_disc.mlir import ir, stablehlo

__all__ = ["Cipher", "RandomBits", "Word", "three_fry_cipher"]

Word = Callable[[int], str]
"""Writes word k of the state: a register of i64."""
Cipher = Callable[[str], tuple[str, str]]
"""Writes the two words (i32) that belong to a number (index)."""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def _u32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


class _Words:
    """32-bit arithmetic on registers of any number of lanes."""

    def __init__(self, b: KernelBuilder) -> None:
        self.b = b

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


def _three_fry(w: _Words, counter: tuple[str, str], key: tuple[str, str]) -> tuple[str, str]:
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


def _philox(w: _Words, counter: list[str], key: tuple[str, str]) -> list[str]:
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


def three_fry_cipher(b: KernelBuilder, word: Word) -> Cipher:
    """Threefry of the counter in the state plus a number, with the key in the state."""
    w = _Words(b)
    key = w.halves(word(0))
    counter = word(1)

    def cipher(at: str) -> tuple[str, str]:
        number = b.op("arith.addi", counter, b.cast("arith.index_cast", at, "i64"))
        return _three_fry(w, w.halves(number), key)

    return cipher


class RandomBits:
    """One `rng_bit_generator`, or one call of @stablehlo.dynamic_rng_bit_generator.

    Raises UnsupportedError for a state or an element type that neither algorithm has.
    """

    def __init__(self, op: ir.Operation, shapes: ShapeAnalysis) -> None:
        self.op = op
        self.state = op.operands[0]
        self.state_element = element_of(self.state)
        self.element = element_of(op.results[1])
        if self.element.kind == "b" or self.state_element.bits != 64:
            unsupported(op, "no such bits or state", "draw integers from a 64-bit state")
        self.sizes = tuple(shapes.shape(op.results[1]))
        self.count = Expr.product(self.sizes)
        words = shapes.shape(self.state)[0]
        self.words = words.value if words.is_const else 0
        algorithm = self._algorithm()
        self.is_philox = algorithm != "THREE_FRY"  # DEFAULT is Philox on XLA's CPU
        if self.words not in ((2, 3) if self.is_philox else (2,)):
            advice = "use 2 words for THREE_FRY, 2 or 3 for PHILOX"
            unsupported(op, f"a state of {words} words for {algorithm}", advice)

    def _algorithm(self) -> str:
        name = "rng_algorithm"
        if name in self.op.attributes:
            return str(stablehlo.RngAlgorithmAttr(self.op.attributes[name]).value)
        return attr.text(self.op, name)

    @property
    def per_block(self) -> int:
        """Elements that Philox gives at once."""
        return 2 if self.element.bits == 64 else 4

    @property
    def blocks(self) -> Expr:
        """How often Philox is computed."""
        return (self.count + self.per_block - 1) // self.per_block

    def stored(self, b: KernelBuilder, value: str) -> str:
        """32 or 64 random bits as an element lies in memory."""
        target = self.element.register
        if int(b.type_of(value)[1:]) > self.element.bits:
            value = b.cast("arith.trunci", value, f"i{self.element.bits}")
        return value if b.type_of(value) == target else b.bitcast(value, target)

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

    def three_fry(self, b: KernelBuilder, cipher: Cipher) -> Callable[[str], str]:
        """What writes the bits of the element at a flat index: 32, or 64 for such elements."""
        size, inner = self._split(b)
        size, inner = b.max(size, 1), b.max(inner, 1)
        half = b.div(b.add(size, 1), 2)

        def bits(at: str) -> str:
            if self.element.bits == 64:
                return _Words(b).join(*cipher(at))
            rest, column = b.div(at, inner), b.rem(at, inner)
            outer, middle = b.div(rest, size), b.rem(rest, size)
            row = b.add(b.mul(outer, half), b.div(middle, 2))
            low, high = cipher(b.add(b.mul(row, inner), column))
            odd = b.cmpi("ne", b.rem(middle, 2), b.constant(0, "index"))
            return b.select(odd, high, low)

        return bits

    # ---------------------------------------------------------------- Philox

    def philox(self, b: KernelBuilder, word: Word) -> Callable[[str], list[str]]:
        """What writes the bits of the `per_block` elements of a block (index)."""
        w = _Words(b)
        key = w.halves(word(0))
        # A state of two words has its key as the upper half of the counter, too.
        low, high = word(1), word(2 if self.words > 2 else 0)

        def bits(block: str) -> list[str]:
            number = b.op("arith.addi", low, b.cast("arith.index_cast", block, "i64"))
            carried = b.op("arith.addi", high, b.constant(1, "i64"))
            top = b.select(b.cmpi("ult", number, low), carried, high)
            x = _philox(w, [*w.halves(number), *w.halves(top)], key)
            return [w.join(x[0], x[1]), w.join(x[2], x[3])] if self.per_block == 2 else x

        return bits

    # ---------------------------------------------------------------- the state

    def new_state(self, b: KernelBuilder, word: Word) -> list[str]:
        """The words of the state after all elements were drawn."""
        words = [word(k) for k in range(self.words)]
        if self.is_philox:
            steps = b.param(self.blocks)
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
        return words

"""Random bits: the numbers of `rng_bit_generator`, element by element, as XLA gives them on a CPU.

Both algorithms are counters put through a block cipher, so every element is computed on its own.
Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011); the assignment of
counters to elements is that of XLA's `xla/hlo/builder/lib/prng.cc`.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.mlir import ir, stablehlo
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elements import element_of, unsupported
from shlo_disc.lower.values.typed import IndexValue, Register

Word = Callable[[int], Register]
"""Writes word k of the state: a register of i64."""
Cipher = Callable[[IndexValue], tuple[Register, Register]]
"""Writes the two words (i32) that belong to a number (index)."""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def _u32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


def _rotate(x: Register, by: int) -> Register:
    return (x << by) | (x >> (32 - by))


def _halves(x: Register) -> tuple[Register, Register]:
    """(low, high) words of 64 bits."""
    return x.cast("arith.trunci", "i32"), (x >> 32).cast("arith.trunci", "i32")


def _join(low: Register, high: Register) -> Register:
    """64 bits of two words."""
    return low.cast("arith.extui", "i64") | (high.cast("arith.extui", "i64") << 32)


def _three_fry(
    counter: tuple[Register, Register], key: tuple[Register, Register]
) -> tuple[Register, Register]:
    """Threefry-2x32, 20 rounds."""
    keys = [*key, key[0] ^ key[1] ^ _u32(_PARITY)]
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x = x + y
            y = x ^ _rotate(y, rotation)
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + (block + 1)
    return x, y


def _philox(counter: list[Register], key: tuple[Register, Register]) -> list[Register]:
    """Philox-4x32, 10 rounds."""

    def product(x: Register, by: int) -> tuple[Register, Register]:
        return _halves(x.cast("arith.extui", "i64") * by)

    x, (k0, k1) = counter, key
    for _ in range(10):
        low0, high0 = product(x[0], _MULTIPLIERS[0])
        low1, high1 = product(x[2], _MULTIPLIERS[1])
        x = [high1 ^ x[1] ^ k0, low1, high0 ^ x[3] ^ k1, low0]
        k0, k1 = k0 + _u32(_WEYL[0]), k1 + _u32(_WEYL[1])
    return x


def _advanced(word: Register, by: IndexValue) -> Register:
    """A word of the state plus a number."""
    return word + word.b.cast("arith.index_cast", by, "i64")


def _carried(low: Register, before: Register, high: Register) -> Register:
    """The upper word of a counter whose lower word was `before` and is now `low`."""
    b = low.b
    return b.select(b.cmpi("ult", low, before), high + 1, high)


def three_fry_cipher(word: Word) -> Cipher:
    """Threefry of the counter in the state plus a number, with the key in the state."""
    key, counter = _halves(word(0)), word(1)
    return lambda at: _three_fry(_halves(_advanced(counter, at)), key)


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
        """Number of Philox blocks."""
        return ceil_div(self.count, self.per_block)

    def stored(self, value: Register) -> Register:
        """32 or 64 random bits as an element lies in memory."""
        target = self.element.register
        if value.element_bits > self.element.bits:
            value = value.cast("arith.trunci", f"i{self.element.bits}")
        return value if value.type == target else value.b.bitcast(value, target)

    # ---------------------------------------------------------------- Threefry

    def _split(self, b: KernelBuilder) -> tuple[IndexValue, IndexValue]:
        """(size, elements after it) of the dimension XLA halves: the first even one, else the
        largest.
        """
        size, inner = b.index(1), b.index(1)
        if not self.sizes:
            return size, inner
        found, largest = b.flags(False), b.index(0)
        after = [Expr.product(self.sizes[d + 1 :]) for d in range(len(self.sizes))]
        for here, rest in zip(self.sizes, after, strict=True):
            n, m = b.param(here), b.param(rest)
            even = (n % 2).equals(0)
            take = ~found & (even | (n > largest))
            size, inner = b.select(take, n, size), b.select(take, m, inner)
            largest = b.select(take, n, largest)
            found = found | even
        return size, inner

    def three_fry(self, b: KernelBuilder, cipher: Cipher) -> Callable[[IndexValue], Register]:
        """What writes the bits of the element at a flat index: 32, or 64 for such elements."""
        size, inner = self._split(b)
        size, inner = b.max(size, 1), b.max(inner, 1)
        half = (size + 1) // 2

        def bits(at: IndexValue) -> Register:
            if self.element.bits == 64:
                return _join(*cipher(at))
            rest, column = at // inner, at % inner
            outer, middle = rest // size, rest % size
            low, high = cipher((outer * half + middle // 2) * inner + column)
            return b.select((middle % 2).differs(0), high, low)

        return bits

    # ---------------------------------------------------------------- Philox

    def philox(self, word: Word) -> Callable[[IndexValue], list[Register]]:
        """What writes the bits of the `per_block` elements of a block (index)."""
        key = _halves(word(0))
        # A state of two words has its key as the upper half of the counter, too.
        low, high = word(1), word(2 if self.words > 2 else 0)

        def bits(block: IndexValue) -> list[Register]:
            number = _advanced(low, block)
            top = _carried(number, low, high)
            x = _philox([*_halves(number), *_halves(top)], key)
            return [_join(x[0], x[1]), _join(x[2], x[3])] if self.per_block == 2 else x

        return bits

    # ---------------------------------------------------------------- the state

    def new_state(self, b: KernelBuilder, word: Word) -> list[Register]:
        """The words of the state after all elements were drawn."""
        words = [word(k) for k in range(self.words)]
        if self.is_philox:
            steps = b.param(self.blocks)
        elif self.element.bits == 64:
            steps = b.param(self.count)
        else:
            size, inner = self._split(b)
            outer = b.param(self.count) // b.max(size * inner, 1)
            steps = outer * ((size + 1) // 2) * inner
        advanced = _advanced(words[1], steps)
        if len(words) > 2:
            words[2] = _carried(advanced, words[1], words[2])
        words[1] = advanced
        return words

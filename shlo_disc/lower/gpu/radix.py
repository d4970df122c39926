"""Digits of keys, and stable ranks of the elements of a tile by one digit.

Each thread of a warp has an element. Ballots, one for each bit of the digit, tell which threads
have the same digit. Those in front of a thread are its rank among the 32 or 64. Each warp has a
counter for each digit, which stands for the elements that came before. No atomic operation is
needed, and equal digits keep their order. When all are ranked, the counters of all warps are added
up, digit by digit and warp by warp.

Source: A. Adinets, D. Merrill, "Onesweep: a faster least significant digit radix sort for GPUs"
(2022), section 3.2, on ranks. Its tiles wait for each other; these do not.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.sorted_rows import RadixKey
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register

DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS
"""Digits: as many as threads of a block, each of which adds up the counters of one."""

assert DIGITS == THREADS


def passes(key: RadixKey) -> int:
    """Digits of a key, at most."""
    return -(-key.bits // DIGIT_BITS)


def pass_count(key: RadixKey) -> Expr:
    """Digits of the largest key."""
    count = Expr.const(passes(key))
    if key.most is None:
        return count
    count = Expr.const(1)
    for number in range(1, passes(key)):
        count = count + Expr.min(key.most // (1 << DIGIT_BITS * number), 1)
    return count


def last_digit(key: RadixKey) -> int:
    """A digit that none of a key is above."""
    return (1 << min(key.bits, DIGIT_BITS)) - 1


def digit(e: Elemental, key: RadixKey, element: Register, number: IndexValue) -> Register:
    """Digit `number` of the key of `element`, counted from the lowest, as i32."""
    b = e.b
    word = key.of(e, element)
    bits = word.element_bits
    if passes(key) > 1:
        word = word >> b.cast("arith.index_cast", number * DIGIT_BITS, word.type)
    if bits > 32:
        word = word.cast("arith.trunci", "i32")
    elif bits < 32:
        word = word.cast("arith.extui", "i32")
    return word & DIGITS - 1


def exclusive(
    b: GroupBuilder, values: Sequence[Register], room: MemRef
) -> tuple[list[Register], list[Register]]:
    """Sums of the i32 `values` of all threads in front of this one, and of all threads.

    `room`: of the block's warps, an i32 for each value. There is one barrier, behind what is stored
    in it.
    """
    warp, warps = b.machine.warp, b.threads // b.machine.warp
    lane, own = b.thread % warp, b.thread // warp
    zero = b.constant(0, "i32")
    fronts, totals = [zero] * len(values), list(values)
    distance = 1
    while distance < warp:
        is_later = (lane // distance % 2).equals(1)
        others = [b.from_lane(total, distance) for total in totals]
        fronts = [
            front + b.select(is_later, other, zero)
            for front, other in zip(fronts, others, strict=True)
        ]
        totals = [total + other for total, other in zip(totals, others, strict=True)]
        distance *= 2
    with b.if_(lane.equals(0)):
        for k, total in enumerate(totals):
            room.store(total, own + k * warps)
    b.barrier_of_block()
    whole = []
    for k in range(len(values)):
        total = zero
        for number in range(warps):
            found = room.load(k * warps + number, readonly=False)
            fronts[k] = fronts[k] + b.select(own > number, found, zero)
            total = total + found
        whole.append(total)
    return fronts, whole


class Ranks:
    """Ranks of the elements of a block's tile; see the module.

    A thread's next element is as many places behind as a warp has threads. The elements of a warp
    are in front of those of the next warp.
    """

    def __init__(self, b: GroupBuilder, bits: int) -> None:
        """`bits`: of a digit that may be set."""
        self.b, self.bits = b, min(bits, DIGIT_BITS)
        machine = b.machine
        self.warps = b.threads // machine.warp
        self.offset = b.shared_offset(self.warps * DIGITS * 4)
        self.counts = b.shared_at("i32", self.offset, self.warps * DIGITS)
        self.sums = b.shared("i32", 2 * self.warps)
        self.lane, self.warp = b.thread % machine.warp, b.thread // machine.warp
        self.word = f"i{machine.warp}"
        one = b.constant(1, self.word)
        self.before = (one << b.cast("arith.index_cast", self.lane, self.word)) - one
        """The threads of the warp in front of this one."""

    def clear(self) -> None:
        """Set the counters of the own warp to zero; its threads see that."""
        warp = self.b.machine.warp
        for k in range(DIGITS // warp):
            at = self.warp * DIGITS + self.lane + k * warp
            self.counts.store(self.b.constant(0, "i32"), at)
        self.b.barrier_of_warp()

    def rank(self, digit: Register) -> Register:
        """What :meth:`place` needs of an element: its digit, and above that its rank in the warp.

        Elements that came before have lower ranks, in program order and lane by lane. All threads
        of the warp must come here.
        """
        b = self.b
        peers = b.constant(-1, self.word)
        for k in range(self.bits):
            is_set = (digit & (1 << k)).differs(0)
            votes = b.ballot(is_set)
            peers = peers & b.select(is_set, votes, ~votes)
        before, count = self._ones(peers & self.before), self._ones(peers)
        at = self._counter(digit)
        old = self.counts.load(at, readonly=False)
        b.barrier_of_warp()
        with b.if_(before.equals(0)):
            self.counts.store(old + count, at)
        b.barrier_of_warp()
        return (old + before << DIGIT_BITS) | digit

    def add(self, digit: Register) -> None:
        """Count an element, without a rank."""
        at = self.b.cast("arith.index_cast", self._counter(digit) * 4 + self.offset, "i32")
        self.b.add_shared(self.b.constant(1, "i32"), self.b.shared_base + at)

    def of_digit(self) -> list[Register]:
        """What each warp has counted of the digit that is the thread's number."""
        return [
            self.counts.load(self.b.thread + k * DIGITS, readonly=False) for k in range(self.warps)
        ]

    def finish(self, total: Register | None = None) -> list[Register]:
        """Add up the counters, for :meth:`place`, when all threads have ranked their elements.

        Returns where the elements of the thread's digit begin in the tile, and the sum of the
        `total`s of the digits below. A barrier must follow before :meth:`place`.
        """
        b = self.b
        b.join()
        b.barrier_of_block()
        counts = self.of_digit()
        own = b.constant(0, "i32")
        before = []
        for count in counts:
            before.append(own)
            own = own + count
        fronts, _ = exclusive(b, [own] if total is None else [own, total], self.sums)
        for k, front in enumerate(before):
            self.counts.store(front + fronts[0], b.thread + k * DIGITS)
        return fronts

    def place(self, rank: Register) -> IndexValue:
        """Where an element of :meth:`rank` goes in the tile."""
        first = self.counts.load(self._counter(rank & DIGITS - 1), readonly=False)
        return self.b.to_index("arith.index_castui", first + (rank >> DIGIT_BITS))

    def _counter(self, digit: Register) -> IndexValue:
        return self.warp * DIGITS + self.b.to_index("arith.index_castui", digit)

    def _ones(self, word: Register) -> Register:
        count = self.b.op("math.ctpop", word)
        return count if self.word == "i32" else count.cast("arith.trunci", "i32")

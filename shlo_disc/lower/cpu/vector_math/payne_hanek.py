"""Huge arguments modulo pi/2 (Payne and Hanek, 1983), entered only when a lane needs it."""

from __future__ import annotations

import math

from shlo_disc.lower.cpu.text import lanes_of
from shlo_disc.lower.cpu.vector_math.arith import Arith

__all__ = ["reduce_large"]

_WORDS = 6
"""32-bit words of 2/pi used: 192 bits, of which 53 meet the argument's, 62 may cancel and 34
may be zeros in front."""


def _two_over_pi_words() -> list[int]:
    """2/pi in 32-bit words after the point, most significant first: enough for 2^1024."""
    bits = 32 * 40
    guard = 64
    # Machin: pi = 16 atan(1/5) - 4 atan(1/239), in fixed point.
    one = 1 << (bits + guard)

    def atan_inverse(n: int) -> int:
        total, term, k = 0, one // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term //= n * n
            k += 2
        return total

    pi = 16 * atan_inverse(5) - 4 * atan_inverse(239)
    value = (2 * one * one // pi) >> guard
    return [(value >> (bits - 32 * (i + 1))) & 0xFFFFFFFF for i in range(bits // 32)]


def reduce_large(
    a: Arith, x: str, limit: float, small: tuple[str, str, str]
) -> tuple[str, str, str]:
    """(quadrant, r, rest) of x: `small` where |x| <= limit, else by exact integer arithmetic.

    |x| = m 2^e with a 53-bit integer m. The words of 2/pi from weight 2^(-e+2) on, times m, give
    the quadrant and 2^-64 of the fraction; earlier words only add multiples of 4.
    """
    b = a.b
    finite = a.lt(a.abs(x), math.inf)
    huge = a.both(b.cmpf("ogt", a.abs(x), a.c(limit)), finite)
    lanes = lanes_of(a.type)
    if lanes:
        kind = f"vector<{lanes}xi1>"
        some = b.define(f"vector.reduction <or>, {huge} : {kind} into i1", "i1", [huge])
    else:
        some = huge
    with b.if_(some) as branch:
        k, r = _reduce(a, a.where(huge, x, 1.0))
        branch.yield_(
            b.select(huge, k, small[0]), b.select(huge, r, small[1]), a.where(huge, 0.0, small[2])
        )
        with branch.otherwise():
            branch.yield_(*small)
    quadrant, head, rest = branch.results
    return quadrant, head, rest


def _reduce(a: Arith, x: str) -> tuple[str, str]:
    b = a.b
    # Two words of zeros in front: the arguments that come here start at 2^20, where e is -32.
    words = [0, 0, *_two_over_pi_words()]
    bits = a.bits(a.abs(x))
    exponent = a.iop("shrui", bits, a.mantissa)
    m = a.iop("ori", a.iop("andi", bits, (1 << 52) - 1), 1 << 52)
    e = a.iop("subi", exponent, 1075)
    # Bit position of 2/pi from which words matter: e - 2, plus the zeros; 0 for lanes not asked.
    p = a.iop("maxsi", a.iop("addi", e, 62), 0)
    first, shift = a.iop("shrui", p, 5), a.iop("andi", p, 31)
    picked = []
    for offset in range(_WORDS + 1):
        value = a.i(words[offset])
        for start in range(1, 33):
            here = b.cmpi("eq", first, a.i(start))
            value = b.select(here, a.i(words[start + offset]), value)
        picked.append(value)
    # Shift left by `shift` bits: aligned 32-bit words of 2/pi * 2^(e-2) modulo 1.
    back = a.iop("subi", a.i(32), shift)
    aligned = []
    for i in range(_WORDS):
        up = a.iop("shli", picked[i], shift)
        down = a.iop("shrui", picked[i + 1], back)
        aligned.append(a.iop("andi", a.iop("ori", up, down), 0xFFFFFFFF))
    # frac(m w) with m = mh 2^32 + ml: schoolbook product, carries above the point dropped.
    ml, mh = a.iop("andi", m, 0xFFFFFFFF), a.iop("shrui", m, 32)
    columns: list[list[str]] = [[] for _ in range(_WORDS + 2)]
    for i in range(_WORDS):
        position = _WORDS - 1 - i
        for factor, place in ((ml, position), (mh, position + 1)):
            product = a.iop("muli", aligned[i], factor)
            columns[place].append(a.iop("andi", product, 0xFFFFFFFF))
            columns[place + 1].append(a.iop("shrui", product, 32))
    digits = []
    carry = a.i(0)
    for position in range(_WORDS):
        total = carry
        for part in columns[position]:
            total = a.iop("addi", total, part)
        digits.append(a.iop("andi", total, 0xFFFFFFFF))
        carry = a.iop("shrui", total, 32)
    # x 2/pi modulo 4 is 4 frac(m w): the top two bits are the quadrant, the rest the fraction.
    top = a.iop("ori", a.iop("shli", digits[-1], 32), digits[-2])
    next_ = a.iop("ori", a.iop("shli", digits[-3], 32), digits[-4])
    quadrant = a.iop("shrui", top, 62)
    fraction = a.iop("ori", a.iop("shli", top, 2), a.iop("shrui", next_, 62))
    # Round to nearest: fraction >= 1/2 belongs to the next quadrant; a signed view does that.
    up = a.iop("shrui", fraction, 63)
    quadrant = a.iop("addi", quadrant, up)
    rest = a.iop("shli", next_, 2)
    high = b.cast("arith.sitofp", fraction, "f64")
    low = b.cast("arith.uitofp", rest, "f64")
    scale = math.pi / 2 * 2.0**-64
    scale_low = 6.123233995736766e-17 * 2.0**-64
    r = a.fma(high, scale, a.fma(high, scale_low, a.mul(low, scale * 2.0**-64)))
    minus = b.cmpi("slt", a.bits(x), a.i(0))
    r = a.where(minus, a.neg(r), r)
    quadrant = b.select(minus, a.iop("subi", a.i(0), quadrant), quadrant)
    return quadrant, r

"""Float arithmetic on a kernel text, short enough to read formulas in."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.lower.cpu.text import Text, element_type, like

__all__ = ["Arith"]

_BITS = {"f32": ("i32", 23, 127), "f64": ("i64", 52, 1023)}


class Arith:
    """Operations of one float type (`f32`, `f64` or a vector of them) on a text builder."""

    def __init__(self, b: Text, type_: str) -> None:
        self.b = b
        self.type = type_
        self.element = element_type(type_)
        integer, self.mantissa, self.bias = _BITS[self.element]
        self.int = like(type_, integer)

    def c(self, value: float) -> str:
        """A float constant."""
        return self.b.constant(value, self.type)

    def i(self, value: int) -> str:
        """An integer constant of the same width."""
        width = 32 if self.element == "f32" else 64
        return self.b.constant(value - (1 << width) if value >> (width - 1) else value, self.int)

    def _v(self, value: str | float) -> str:
        return value if isinstance(value, str) else self.c(value)

    def add(self, x: str | float, y: str | float) -> str:
        """X + y."""
        return self.b.op("arith.addf", self._v(x), self._v(y))

    def sub(self, x: str | float, y: str | float) -> str:
        """X - y."""
        return self.b.op("arith.subf", self._v(x), self._v(y))

    def mul(self, x: str | float, y: str | float) -> str:
        """X * y."""
        return self.b.op("arith.mulf", self._v(x), self._v(y))

    def div(self, x: str | float, y: str | float) -> str:
        """X / y."""
        return self.b.op("arith.divf", self._v(x), self._v(y))

    def fma(self, x: str | float, y: str | float, z: str | float) -> str:
        """X * y + z, rounded once."""
        return self.b.op("math.fma", self._v(x), self._v(y), self._v(z))

    def neg(self, x: str) -> str:
        """-x, the sign flipped."""
        return self.b.op("arith.negf", x)

    def abs(self, x: str) -> str:
        """|x|."""
        return self.b.op("math.absf", x)

    def sqrt(self, x: str) -> str:
        """The square root, correctly rounded."""
        return self.b.op("math.sqrt", x)

    def copysign(self, x: str, sign: str) -> str:
        """|x| with the sign of `sign`."""
        return self.b.op("math.copysign", x, sign)

    def rint(self, x: str) -> str:
        """The nearest integer, ties to even."""
        return self.b.op("math.roundeven", x)

    def lt(self, x: str, y: str | float) -> str:
        """X < y, false for NaN."""
        return self.b.cmpf("olt", x, self._v(y))

    def gt(self, x: str, y: str | float) -> str:
        """X > y, false for NaN."""
        return self.b.cmpf("ogt", x, self._v(y))

    def eq(self, x: str, y: str | float) -> str:
        """X == y, false for NaN."""
        return self.b.cmpf("oeq", x, self._v(y))

    def nan(self, x: str) -> str:
        """Is x NaN?"""
        return self.b.cmpf("uno", x, x)

    def both(self, p: str, q: str) -> str:
        """P and q."""
        return self.b.op("arith.andi", p, q)

    def either(self, p: str, q: str) -> str:
        """P or q."""
        return self.b.op("arith.ori", p, q)

    def where(self, condition: str, x: str | float, y: str | float) -> str:
        """Condition ? x : y."""
        return self.b.select(condition, self._v(x), self._v(y))

    def clamp(self, x: str, low: float, high: float) -> str:
        """X between two numbers; NaN becomes one of them."""
        x = self.where(self.gt(x, low), x, low)
        return self.where(self.lt(x, high), x, high)

    def poly(self, x: str, coefficients: Sequence[float]) -> str:
        """Horner's rule, lowest power first."""
        result = self.c(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, c)
        return result

    def bits(self, x: str) -> str:
        """The representation as an integer."""
        return self.b.bitcast(x, self.int)

    def of_bits(self, bits: str) -> str:
        """The float with that representation."""
        return self.b.bitcast(bits, self.type)

    def iop(self, name: str, x: str, y: str | int) -> str:
        """`arith.<name>` of two integers."""
        return self.b.op(f"arith.{name}", x, y if isinstance(y, str) else self.i(y))

    def split_round(self, x: str) -> tuple[str, str]:
        """(round(x) as float, as integer) for |x| < 2^21, by adding and taking off 1.5 * 2^m.

        No conversion instruction, so that NaN gives a number nobody uses instead of poison.
        """
        magic = 1.5 * 2.0**self.mantissa
        shifted = self.add(x, magic)
        whole = self.iop("subi", self.bits(shifted), self.bits(self.c(magic)))
        return self.sub(shifted, magic), whole

    def scale(self, x: str, k: str) -> str:
        """X * 2^k for an integer k with |k| < 2 * bias, rounding once into the denormals."""
        half = self.iop("shrsi", k, 1)
        rest = self.iop("subi", k, half)
        return self.mul(self.mul(x, self.power_of_two(half)), self.power_of_two(rest))

    def power_of_two(self, k: str) -> str:
        """2^k for an integer -bias < k <= bias."""
        return self.of_bits(self.iop("shli", self.iop("addi", k, self.bias), self.mantissa))

    def int_to_float(self, k: str) -> str:
        """The float of a small integer (|k| < 2^20)."""
        magic = 1.5 * 2.0**self.mantissa
        return self.sub(self.of_bits(self.iop("addi", k, self.bits(self.c(magic)))), magic)

"""Registers with operators, so that the formulas of this package read as formulas.

A `Num` is an SSA name of a float, integer or i1 register (scalar or vector); operators emit one
instruction each, Python numbers become constants of the other operand's type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.lower.values.builder import KernelBuilder, element_type, lanes_of, like

__all__ = ["Num", "fma", "horner", "select", "squared"]


class Num:
    """One register; see the module."""

    __slots__ = ("b", "name")

    def __init__(self, b: KernelBuilder, name: str) -> None:
        self.b, self.name = b, name

    # ---------------------------------------------------------------- what it is

    @property
    def type(self) -> str:
        """The MLIR type."""
        return self.b.type_of(self.name)

    @property
    def dtype(self) -> str:
        """The element type: f32, f64, i32, i64, i1."""
        return element_type(self.type)

    @property
    def lanes(self) -> int:
        """Lanes; 0 of a scalar."""
        return lanes_of(self.type)

    @property
    def is_float(self) -> bool:
        """Whether it holds floats."""
        return self.dtype.startswith("f")

    @property
    def is_double(self) -> bool:
        """Whether it holds f64."""
        return self.dtype == "f64"

    def constant(self, value: float) -> Num:
        """`value` in the type of this register."""
        return Num(self.b, self.b.constant(value, self.type))

    def same(self, other: Num | float) -> Num:
        """`other` as a register."""
        return other if isinstance(other, Num) else self.constant(other)

    # ---------------------------------------------------------------- arithmetic

    def _op(self, float_op: str, int_op: str, other: Num | float) -> Num:
        name = float_op if self.is_float else int_op
        return Num(self.b, self.b.op(name, self.name, self.same(other).name))

    def __add__(self, other: Num | float) -> Num:
        return self._op("arith.addf", "arith.addi", other)

    def __sub__(self, other: Num | float) -> Num:
        return self._op("arith.subf", "arith.subi", other)

    def __mul__(self, other: Num | float) -> Num:
        return self._op("arith.mulf", "arith.muli", other)

    def __truediv__(self, other: Num | float) -> Num:
        return self._op("arith.divf", "arith.divf", other)

    def __radd__(self, other: float) -> Num:
        return self.constant(other) + self

    def __rsub__(self, other: float) -> Num:
        return self.constant(other) - self

    def __rmul__(self, other: float) -> Num:
        return self.constant(other) * self

    def __rtruediv__(self, other: float) -> Num:
        return self.constant(other) / self

    def __neg__(self) -> Num:
        if self.is_float:
            return Num(self.b, self.b.op("arith.negf", self.name))
        return self.constant(0) - self

    def __and__(self, other: Num | int) -> Num:
        return self._op("arith.andi", "arith.andi", other)

    def __or__(self, other: Num | int) -> Num:
        return self._op("arith.ori", "arith.ori", other)

    def __xor__(self, other: Num | int) -> Num:
        return self._op("arith.xori", "arith.xori", other)

    def __invert__(self) -> Num:
        return self ^ (1 if self.dtype == "i1" else -1)

    def __lshift__(self, other: Num | int) -> Num:
        return self._op("arith.shli", "arith.shli", other)

    def __rshift__(self, other: Num | int) -> Num:
        """Logical; see :meth:`sar`."""
        return self._op("arith.shrui", "arith.shrui", other)

    def sar(self, other: Num | int) -> Num:
        """Arithmetic shift right."""
        return self._op("arith.shrsi", "arith.shrsi", other)

    # ---------------------------------------------------------------- float functions

    def _unary(self, name: str) -> Num:
        return Num(self.b, self.b.op(name, self.name))

    def abs(self) -> Num:
        """The magnitude."""
        return self._unary("math.absf")

    def rint(self) -> Num:
        """The nearest integer, ties to even."""
        return self._unary("math.roundeven")

    def sqrt(self) -> Num:
        """The square root, correctly rounded."""
        return self._unary("math.sqrt")

    def copysign(self, sign: Num) -> Num:
        """The magnitude of this with the sign of `sign`."""
        return Num(self.b, self.b.op("math.copysign", self.name, sign.name))

    def at_most(self, high: float) -> Num:
        """`high` where this is larger; NaN stays (one instruction: minps(high, x))."""
        limit = self.constant(high)
        return select(limit < self, limit, self)

    def at_least(self, low: float) -> Num:
        """`low` where this is smaller; NaN stays."""
        limit = self.constant(low)
        return select(limit > self, limit, self)

    # ---------------------------------------------------------------- comparison (ordered, signed)

    def _compare(self, float_predicate: str, int_predicate: str, other: Num | float) -> Num:
        right = self.same(other).name
        if self.is_float:
            return Num(self.b, self.b.cmpf(float_predicate, self.name, right))
        return Num(self.b, self.b.cmpi(int_predicate, self.name, right))

    def __lt__(self, other: Num | float) -> Num:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Num | float) -> Num:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Num | float) -> Num:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Num | float) -> Num:
        return self._compare("oge", "sge", other)

    def equals(self, other: Num | float) -> Num:
        """Equal (false for NaN)."""
        return self._compare("oeq", "eq", other)

    def differs(self, other: Num | float) -> Num:
        """Not equal (true for NaN)."""
        return self._compare("une", "ne", other)

    def is_nan(self) -> Num:
        """NaN."""
        return Num(self.b, self.b.cmpf("uno", self.name, self.name))

    # ---------------------------------------------------------------- bits and conversion

    def bits(self) -> Num:
        """The bits of floats as integers of the same width."""
        return Num(self.b, self.b.bitcast(self.name, like(self.type, "i" + self.dtype[1:])))

    def floats(self) -> Num:
        """Bits as floats of the same width."""
        return Num(self.b, self.b.bitcast(self.name, like(self.type, "f" + self.dtype[1:])))

    def cast(self, name: str, element: str) -> Num:
        """A conversion: `arith.sitofp`, `arith.extf`, ..."""
        return Num(self.b, self.b.cast(name, self.name, element))

    def choose(self, easy: Num, fast: Callable[[Num], Num], general: Callable[[Num], Num]) -> Num:
        """`fast` of this register when every lane is `easy`, else `general` of it: a branch.

        A scalar goes the general way: a branch costs as much as what it saves there.
        """
        if not self.lanes:
            return general(self)
        text = self.b
        with text.if_((~easy).any().name) as branch:
            branch.yield_(general(self).name)
            with branch.otherwise():
                branch.yield_(fast(self).name)
        return Num(text, branch.results[0])

    def any(self) -> Num:
        """Whether any lane of an i1 register is true, as scalar."""
        if not self.lanes:
            return self
        right = f"vector.reduction <or>, {self.name} : {self.type} into i1"
        return Num(self.b, self.b.define(right, "i1", [self.name]))


def fma(a: Num, b: Num | float, c: Num | float) -> Num:
    """A * b + c, rounded once."""
    name = a.b.op("math.fma", a.name, a.same(b).name, a.same(c).name)
    return Num(a.b, name)


def select(condition: Num, a: Num | float, b: Num | float) -> Num:
    """`a` where `condition`, else `b`; at least one of them is a register."""
    like_ = a if isinstance(a, Num) else b
    if not isinstance(like_, Num):
        raise TypeError("select wants at least one register")
    text = condition.b
    return Num(text, text.select(condition.name, like_.same(a).name, like_.same(b).name))


def squared(x: Num) -> Num:
    """x^2, but not below 2^-60: powers of it must not become (slow) denormals, and polynomials in
    it no longer change there.
    """
    return (x * x).at_least(2.0**-60)


def horner(x: Num, coefficients: Sequence[float]) -> Num:
    """A polynomial, lowest power first; long ones in two interleaved halves for latency."""
    if len(coefficients) >= 8:
        square = x * x
        even, odd = (_chain(square, coefficients[k::2]) for k in (0, 1))
        return fma(odd, x, even)
    return _chain(x, coefficients)


def _chain(x: Num, coefficients: Sequence[float]) -> Num:
    result = x.constant(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c)
    return result

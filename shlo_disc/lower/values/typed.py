"""Typed SSA values, with operators: what kernels and host programs are written with.

==============  =================================================================================
`IndexValue`    an `index`, or lanes of it: sizes and places in memory
`Register`      an element, or lanes of elements: floats and integers
`Mask`          an `i1`, or lanes of it: what a comparison gives and what selects lanes
`MemRef`        a flat memref, `memref<?xf32>`
`Pointer`       an `!llvm.ptr`
==============  =================================================================================

Every value knows its builder, its SSA name, its MLIR type and the region that defines it. An
operator writes one operation; Python numbers become constants of the other operand's type. The type
checker tells indices, elements, masks and memory apart; MLIR checks element type and lanes.

    row, n = task.index, b.param(size)
    value = x.load(row * n + col)                # MemRef.load wants an IndexValue
    y.store(b.select(value < 0.0, -value, value), row * n + col)

`==` compares Python objects, as values are keys of tables; `x.equals(y)` writes a comparison.
Indices are signed in comparisons, and non-negative in `//` and `%`. Integer registers are signed
in comparisons.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from shlo_disc.base.errors import InternalError

if TYPE_CHECKING:
    from shlo_disc.lower.values.builder import KernelBuilder
    from shlo_disc.lower.values.text import TextBuilder

_COMPOSED = ("v", "m")
"""What names of types begin with that have elements; no other type does."""


class _Made(str):
    """A type that is made of an element type, which it knows."""

    __slots__ = ("element", "lanes")

    element: str
    lanes: int


def _made(text: str, element: str, lanes: int) -> _Made:
    made = _Made(text)
    made.element, made.lanes = element, lanes
    return made


@functools.cache
def _parts(type_: str) -> tuple[str, int]:
    """(element type, lanes) of a scalar, vector or memref type."""
    if isinstance(type_, _Made):
        return type_.element, type_.lanes
    if type_[:1] in _COMPOSED:
        raise InternalError(f"{type_} was not made by vector_type or memref_type")
    return type_, 0


def element_type(type_: str) -> str:
    """`f32` of `vector<16xf32>`, of `memref<?xf32>` and of `f32`."""
    return _parts(type_)[0]


def lanes_of(type_: str) -> int:
    """16 of `vector<16xf32>`; 0 of a scalar type."""
    return _parts(type_)[1]


@functools.cache
def vector_type(lanes: int, element: str) -> str:
    """`vector<16xf32>`; the element itself when `lanes` is 0.

    Values have no types of lanes but of this function: nobody reads them from a text.
    """
    return _made(f"vector<{lanes}x{element}>", element, lanes) if lanes else element


@functools.cache
def memref_type(element: str) -> str:
    """`memref<?xf32>`."""
    return _made(f"memref<?x{element}>", element, 0)


def like(type_: str, element: str) -> str:
    """`element` with as many lanes as `type_`."""
    return vector_type(lanes_of(type_), element)


class Value:
    """One SSA value; see the module."""

    __slots__ = (
        "b",
        "constant_lanes",
        "depth",
        "element",
        "is_constant",
        "known",
        "lanes",
        "name",
        "type",
    )

    def __init__(self, b: TextBuilder, name: str, type_: str, depth: int) -> None:
        self.b = b
        self.name = name
        self.type = type_
        """The MLIR type, e.g. `vector<16xf32>`."""
        self.depth = depth
        """Number of regions that enclose the definition."""
        self.element, self.lanes = _parts(type_)
        self.is_constant = False
        self.constant_lanes: tuple[float, ...] | None = None
        """Every lane of a vector constant, the value of a flag; None of any other value."""
        self.known: int | None = None
        """The value of a scalar constant of type `index`."""

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name} : {self.type})"

    @classmethod
    def of(cls, value: Value | None) -> Self:
        """`value`, which must be one of this class (TypeError)."""
        if not isinstance(value, cls):
            raise TypeError(f"{value!r} is no {cls.__name__}")
        return value

    @classmethod
    def each_of(cls, values: Iterable[Value]) -> list[Self]:
        """`values`, all of this class (TypeError): what a loop carries may be of several."""
        return [cls.of(value) for value in values]

    @property
    def element_bits(self) -> int:
        """Bits of an integer or float element; ValueError of any other."""
        return int(self.element.lstrip("bfi"))

    def like(self, element: str) -> str:
        """The type of `element` in as many lanes as this has."""
        return vector_type(self.lanes, element)


class Pointer(Value):
    """An `!llvm.ptr`."""

    __slots__ = ()


class IndexValue(Value):
    """An `index` or lanes of it; operators fold constants and accept ints."""

    __slots__ = ()

    def constant(self, value: int) -> IndexValue:
        """`value` in as many lanes as this has."""
        return self.b.index_constant(value, self.lanes)

    def __add__(self, other: IndexLike) -> IndexValue:
        return self.b.add(self, other)

    def __radd__(self, other: int) -> IndexValue:
        return self.b.add(other, self)

    def __sub__(self, other: IndexLike) -> IndexValue:
        return self.b.sub(self, other)

    def __rsub__(self, other: int) -> IndexValue:
        return self.b.sub(other, self)

    def __mul__(self, other: IndexLike) -> IndexValue:
        return self.b.mul(self, other)

    def __rmul__(self, other: int) -> IndexValue:
        return self.b.mul(other, self)

    def __floordiv__(self, other: IndexLike) -> IndexValue:
        return self.b.div(self, other)

    def __mod__(self, other: IndexLike) -> IndexValue:
        return self.b.rem(self, other)

    def ceil_div(self, by: int) -> IndexValue:
        """The quotient rounded up, of non-negative `self` and positive `by`."""
        return (self + (by - 1)) // by

    def round_up(self, by: int) -> IndexValue:
        """The next multiple of `by`."""
        return self.ceil_div(by) * by

    def round_down(self, by: IndexLike) -> IndexValue:
        """The multiple of `by` before or at this."""
        return self - self % by

    def __lt__(self, other: IndexLike) -> Mask:
        return self.b.compare_indices("slt", self, other)

    def __le__(self, other: IndexLike) -> Mask:
        return self.b.compare_indices("sle", self, other)

    def __gt__(self, other: IndexLike) -> Mask:
        return self.b.compare_indices("sgt", self, other)

    def __ge__(self, other: IndexLike) -> Mask:
        return self.b.compare_indices("sge", self, other)

    def equals(self, other: IndexLike) -> Mask:
        """True if both are equal."""
        return self.b.compare_indices("eq", self, other)

    def differs(self, other: IndexLike) -> Mask:
        """True if they are not equal."""
        return self.b.compare_indices("ne", self, other)


IndexLike = IndexValue | int
"""What index arithmetic accepts."""


class Register(Value):
    """An element or lanes of elements; see the module."""

    __slots__ = ()

    def constant(self, value: float) -> Self:
        """`value` in the type of this register."""
        return self.of(self.b.constant(value, self.type))

    def same(self, other: Register | float) -> Register:
        """`other` as a register."""
        return other if isinstance(other, Register) else self.constant(other)

    @property
    def is_float(self) -> bool:
        """True if it holds floats."""
        return self.element[0] in "fb"

    @property
    def is_double(self) -> bool:
        """True if it holds f64."""
        return self.element == "f64"

    # ---------------------------------------------------------------- arithmetic

    def _op(self, float_op: str, int_op: str, other: Self | float) -> Self:
        name = float_op if self.is_float else int_op
        right = other if isinstance(other, Register) else self.constant(other)
        return self.of(self.b.op(name, self, right))

    def __add__(self, other: Self | float) -> Self:
        return self._op("arith.addf", "arith.addi", other)

    def __sub__(self, other: Self | float) -> Self:
        return self._op("arith.subf", "arith.subi", other)

    def __mul__(self, other: Self | float) -> Self:
        return self._op("arith.mulf", "arith.muli", other)

    def __truediv__(self, other: Self | float) -> Self:
        return self._op("arith.divf", "arith.divf", other)

    def __radd__(self, other: float) -> Self:
        return self.constant(other) + self

    def __rsub__(self, other: float) -> Self:
        return self.constant(other) - self

    def __rmul__(self, other: float) -> Self:
        return self.constant(other) * self

    def __rtruediv__(self, other: float) -> Self:
        return self.constant(other) / self

    def __neg__(self) -> Self:
        if self.is_float:
            return self.of(self.b.op("arith.negf", self))
        return self.constant(0) - self

    def __and__(self, other: Self | int) -> Self:
        return self._op("arith.andi", "arith.andi", other)

    def __or__(self, other: Self | int) -> Self:
        return self._op("arith.ori", "arith.ori", other)

    def __xor__(self, other: Self | int) -> Self:
        return self._op("arith.xori", "arith.xori", other)

    def __invert__(self) -> Self:
        return self ^ (1 if self.element == "i1" else -1)

    def __lshift__(self, other: Self | int) -> Self:
        return self._op("arith.shli", "arith.shli", other)

    def __rshift__(self, other: Self | int) -> Self:
        """Logical; see :meth:`sar`."""
        return self._op("arith.shrui", "arith.shrui", other)

    def sar(self, other: Self | int) -> Self:
        """Arithmetic shift right."""
        return self._op("arith.shrsi", "arith.shrsi", other)

    # ---------------------------------------------------------------- float functions

    def abs(self) -> Self:
        """The magnitude."""
        return self.of(self.b.op("math.absf", self))

    def rint(self) -> Self:
        """The nearest integer, ties to even."""
        return self.of(self.b.op("math.roundeven", self))

    def sqrt(self) -> Self:
        """The square root, correctly rounded."""
        return self.of(self.b.op("math.sqrt", self))

    def copysign(self, sign: Self) -> Self:
        """The magnitude of this with the sign of `sign`."""
        return self.of(self.b.op("math.copysign", self, sign))

    def at_most(self, high: float) -> Self:
        """`high` where this is larger; NaN stays (one instruction: minps(high, x))."""
        limit = self.constant(high)
        return self.b.select(limit < self, limit, self)

    def at_least(self, low: float) -> Self:
        """`low` where this is smaller; NaN stays."""
        limit = self.constant(low)
        return self.b.select(limit > self, limit, self)

    # ---------------------------------------------------------------- comparison (ordered, signed)

    def _compare(self, float_predicate: str, int_predicate: str, other: Register | float) -> Mask:
        right = self.same(other)
        if self.is_float:
            return self.b.cmpf(float_predicate, self, right)
        return self.b.cmpi(int_predicate, self, right)

    def __lt__(self, other: Register | float) -> Mask:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Register | float) -> Mask:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Register | float) -> Mask:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Register | float) -> Mask:
        return self._compare("oge", "sge", other)

    def equals(self, other: Register | float) -> Mask:
        """Equal (false for NaN)."""
        return self._compare("oeq", "eq", other)

    def differs(self, other: Register | float) -> Mask:
        """Not equal (true for NaN)."""
        return self._compare("une", "ne", other)

    def is_nan(self) -> Mask:
        """NaN."""
        return self.b.cmpf("uno", self, self)

    # ---------------------------------------------------------------- bits and conversion

    def bits(self) -> Register:
        """The bits of floats as integers of the same width."""
        return self.b.bitcast(self, self.like(f"i{self.element_bits}"))

    def floats(self) -> Register:
        """Bits as floats of the same width."""
        return self.b.bitcast(self, self.like(f"f{self.element_bits}"))

    def cast(self, name: str, element: str) -> Register:
        """A conversion: `arith.sitofp`, `arith.extf`, ..."""
        return self.b.cast(name, self, element)


class Mask(Register):
    """An `i1` or lanes of it; `&`, `|`, `^` and `~` combine masks."""

    __slots__ = ("possible",)

    def __init__(self, b: TextBuilder, name: str, type_: str, depth: int) -> None:
        super().__init__(b, name, type_, depth)
        self.possible: tuple[bool, ...] | None = None
        """The lanes that may be on, where others are known to be off."""

    def any(self) -> Mask:
        """True if any lane is true, as scalar."""
        return self.b.reduce_mask("or", self)

    def all(self) -> Mask:
        """True if every lane is true, as scalar."""
        return self.b.reduce_mask("and", self)


class MemRef(Value):
    """A flat memref; places in it are indices. See the builder's methods of the same names."""

    __slots__ = ()

    b: KernelBuilder

    def load(self, index: IndexLike, readonly: bool = True) -> Register:
        """One element."""
        return self.b.load(self, index, readonly)

    def store(self, value: Register, index: IndexLike) -> None:
        """Write one element."""
        self.b.store(value, self, index)

    def vector_load(
        self, index: IndexLike, lanes: int, readonly: bool = True, aligned: bool = False
    ) -> Register:
        """`lanes` consecutive elements."""
        return self.b.vector_load(self, index, lanes, readonly, aligned)

    def vector_store(self, value: Register, index: IndexLike, aligned: bool = False) -> None:
        """Write consecutive elements."""
        self.b.vector_store(value, self, index, aligned)

    def masked_load(
        self, index: IndexLike, mask: Mask, other: Register, readonly: bool = True
    ) -> Register:
        """Consecutive elements where `mask`, lanes of `other` elsewhere."""
        return self.b.masked_load(self, index, mask, other, readonly)

    def masked_store(self, value: Register, index: IndexLike, mask: Mask) -> None:
        """Write consecutive elements where `mask`."""
        self.b.masked_store(value, self, index, mask)

    def prefetch(self, index: IndexLike) -> None:
        """Ask for an element's cache line."""
        self.b.prefetch(self, index)

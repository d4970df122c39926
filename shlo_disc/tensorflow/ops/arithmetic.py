"""Arithmetic of arrays of one shape and of numbers, written with Python's operators."""

from __future__ import annotations

from typing import TypeAlias

from shlo_disc.base.records import dataclass
from shlo_disc.ingest.arrays import broadcast_to, constant
from shlo_disc.ingest.size_arithmetic import sizes_of
from shlo_disc.ir.builders import compare, create, element_of, select
from shlo_disc.ir.mlir import ir

_Operand: TypeAlias = "Array | float"


@dataclass(frozen=True)
class Array:
    """An array of floats."""

    value: ir.Value

    def filled(self, number: float) -> Array:
        """An array of this shape and type with `number` everywhere."""
        element = element_of(self.value)
        return Array(broadcast_to(constant(number, element), [], sizes_of(self.value)))

    def _with(self, name: str, other: _Operand, *, is_first: bool = True) -> Array:
        right = other if isinstance(other, Array) else self.filled(other)
        pair = (self, right) if is_first else (right, self)
        return Array(create(f"stablehlo.{name}", [a.value for a in pair], self.value.type))

    def __add__(self, other: _Operand) -> Array:
        return self._with("add", other)

    def __sub__(self, other: _Operand) -> Array:
        return self._with("subtract", other)

    def __rsub__(self, other: float) -> Array:
        return self._with("subtract", other, is_first=False)

    def __mul__(self, other: _Operand) -> Array:
        return self._with("multiply", other)

    def __truediv__(self, other: _Operand) -> Array:
        return self._with("divide", other)

    def most(self, other: _Operand) -> Array:
        """The larger one of each two elements."""
        return self._with("maximum", other)

    def least(self, other: _Operand) -> Array:
        """The smaller one of each two elements."""
        return self._with("minimum", other)

    def of(self, name: str) -> Array:
        """`stablehlo.NAME` of every element."""
        return Array(create(f"stablehlo.{name}", [self.value], self.value.type))

    def compared(self, direction: str, other: _Operand) -> ir.Value:
        """`EQ`, `LT`, ... of each two elements."""
        right = other if isinstance(other, Array) else self.filled(other)
        return compare(direction, self.value, right.value)


def chosen(condition: ir.Value, then: Array, otherwise: _Operand) -> Array:
    """`then` where `condition` is true."""
    other = otherwise if isinstance(otherwise, Array) else then.filled(otherwise)
    return Array(select(condition, then.value, other.value))

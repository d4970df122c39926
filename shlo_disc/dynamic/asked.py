"""What rules ask of the shape analysis, and tell it: all that they know of it.

`ShapeAnalysis` is the only class that answers. Rules are called by it, so they import this module
alone.
"""

# ruff: noqa: D102 - the docstrings are those of `ShapeAnalysis`
from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple, Protocol

from shlo_disc.dynamic.arithmetic import Entry, SizeArithmetic
from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.mlir import ir

Shape = tuple[Expr, ...]
Entries = tuple[Entry, ...]


class IntegerType(NamedTuple):
    """A small integer tensor type: static sizes, bits, signedness, number of elements."""

    shape: tuple[int, ...]
    width: int
    is_unsigned: bool
    elements: int


class Asked(Protocol):
    """The analysis as rules see it; `ShapeAnalysis` says what each method does."""

    constraints: Constraints
    arithmetic: SizeArithmetic

    @property
    def sized(self) -> Container[ir.Value]: ...
    def shape(self, value: ir.Value) -> Shape: ...
    def scalar(self, value: ir.Value) -> Expr | None: ...
    def contents(self, value: ir.Value) -> tuple[Expr, ...] | None: ...
    def elements(self, value: ir.Value) -> tuple[Expr, ...] | None: ...
    def entries(self, value: ir.Value) -> Entries | None: ...
    def declared(self, value: ir.Value) -> list[int]: ...
    def parsed(self, text: ir.Attribute) -> Expr: ...
    def sizes_operand(self, op: ir.Operation, index: int) -> Shape: ...
    def same_shape(self, op: ir.Operation, values: Sequence[ir.Value]) -> Shape: ...
    def require_equal(self, op: ir.Operation, a: Expr, b: Expr) -> Expr: ...
    def require(
        self, op: ir.Operation, lhs: Expr, relation: str, rhs: Expr, message: str = ""
    ) -> None: ...
    def fitted(self, op: ir.Operation, entry: Expr, kind: IntegerType) -> Expr: ...

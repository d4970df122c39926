"""Typed SSA values of host programs, and the operations on them: `Operations`.

The type checker tells addresses, integers, flags and floats apart; MLIR checks widths. Only this
module and `writer.py` know MLIR's syntax.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

__all__ = [
    "ADDRESS",
    "Address",
    "Flag",
    "HostValue",
    "Integer",
    "Operations",
    "Real",
    "Scalar",
    "integer",
]

ADDRESS = "!llvm.ptr"
"""The MLIR type of addresses."""


@dataclass(frozen=True)
class HostValue(ABC):
    """One SSA value of a host program; equal ones have one name."""

    name: str

    @property
    @abstractmethod
    def type(self) -> str:
        """The MLIR type."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Address(HostValue):
    """An `!llvm.ptr`: memory of the host or of the target."""

    @property
    def type(self) -> str:
        """The MLIR type."""
        return ADDRESS


@dataclass(frozen=True)
class Flag(HostValue):
    """An `i1`."""

    @property
    def type(self) -> str:
        """The MLIR type."""
        return "i1"


@dataclass(frozen=True)
class Real(HostValue):
    """An `f64`."""

    @property
    def type(self) -> str:
        """The MLIR type."""
        return "f64"


@dataclass(frozen=True)
class Integer(HostValue):
    """An integer; sizes and offsets have 64 bits."""

    bits: int = 64

    @property
    def type(self) -> str:
        """The MLIR type."""
        return f"i{self.bits}"


Scalar = Integer | Flag
"""What the host program computes of the program's own values."""

V = TypeVar("V", bound=HostValue)


class Operations(ABC):
    """Writes operations without side effects, and loads; see `HostWriter` for the two places.

    `hint` is for the SSA name of the result.
    """

    @abstractmethod
    def define(self, make: Callable[[str], V], right: str, hint: str = "") -> V:
        """The value of `right`, an operation without its result."""

    def binary(self, name: str, a: V, b: V, hint: str = "") -> V:
        """`name` of two values of one type, which the result has, too."""
        return self.define(_like(a), f"{name} {a}, {b} : {a.type}", hint)

    def add(self, a: Integer, b: Integer, hint: str = "") -> Integer:
        """The sum; it wraps."""
        return self.binary("arith.addi", a, b, hint)

    def subtract(self, a: Integer, b: Integer, hint: str = "") -> Integer:
        """The difference; it wraps."""
        return self.binary("arith.subi", a, b, hint)

    def multiply(self, a: Integer, b: Integer, hint: str = "") -> Integer:
        """The product; it wraps."""
        return self.binary("arith.muli", a, b, hint)

    def at_most(self, a: Integer, b: Integer, hint: str = "") -> Integer:
        """The smaller one, both signed."""
        return self.binary("arith.minsi", a, b, hint)

    def at_least(self, a: Integer, b: Integer, hint: str = "") -> Integer:
        """The larger one, both signed."""
        return self.binary("arith.maxsi", a, b, hint)

    def both(self, a: Flag, b: Flag, hint: str = "") -> Flag:
        """True if both are."""
        return self.binary("arith.andi", a, b, hint)

    def either(self, a: Flag, b: Flag, hint: str = "") -> Flag:
        """True if one of them is."""
        return self.binary("arith.ori", a, b, hint)

    def compare(self, predicate: str, a: Scalar, b: Scalar, hint: str = "") -> Flag:
        """`arith.cmpi` of two integers: "eq", "slt", ..."""
        return self.define(Flag, f"arith.cmpi {predicate}, {a}, {b} : {a.type}", hint)

    def compare_reals(self, predicate: str, a: Real, b: Real) -> Flag:
        """`arith.cmpf`: "ole", ..."""
        return self.define(Flag, f"arith.cmpf {predicate}, {a}, {b} : f64")

    def differ(self, a: Address, b: Address, hint: str) -> Flag:
        """True if these are two places."""
        return self.define(Flag, f'llvm.icmp "ne" {a}, {b} : {ADDRESS}', hint)

    def select(self, flag: Flag, yes: V, no: V, hint: str = "") -> V:
        """`yes` where `flag` is true, else `no`."""
        return self.define(_like(yes), f"arith.select {flag}, {yes}, {no} : {yes.type}", hint)

    def resized(self, name: str, value: Scalar, bits: int, hint: str = "") -> Integer:
        """`value` as an integer of `bits`: `arith.trunci`, `arith.extsi`, ..."""
        right = f"{name} {value} : {value.type} to i{bits}"
        return self.define(integer(bits), right, hint)

    def truncated(self, name: str, value: Integer, hint: str = "") -> Flag:
        """The lowest bit of `value`: `arith.trunci`, `llvm.trunc`."""
        return self.define(Flag, f"{name} {value} : {value.type} to i1", hint)

    def real(self, value: Integer) -> Real:
        """A signed integer in f64, rounded."""
        return self.define(Real, f"arith.sitofp {value} : {value.type} to f64")

    def load(self, address: Address, bits: int = 64, hint: str = "") -> Integer:
        """The integer at an address of the host's memory."""
        make = integer(bits)
        return self.define(make, f"llvm.load {address} : {ADDRESS} -> i{bits}", hint)

    def load_address(self, address: Address, hint: str = "") -> Address:
        """The address that is stored at `address`."""
        return self.define(Address, f"llvm.load {address} : {ADDRESS} -> {ADDRESS}", hint)

    def offset(self, base: Address, offset: Integer, hint: str = "") -> Address:
        """The address `offset` bytes behind `base`."""
        right = f"llvm.getelementptr {base}[{offset}] : ({ADDRESS}, {offset.type}) -> {ADDRESS}, i8"
        return self.define(Address, right, hint)


def integer(bits: int) -> Callable[[str], Integer]:
    """Makes integers of `bits`."""
    return lambda name: Integer(name, bits)


def _like(value: V) -> Callable[[str], V]:
    """Makes values of the type of `value`."""
    return lambda name: replace(value, name=name)

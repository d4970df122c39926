"""Text of host functions: sizes in i64, addresses, calls through the runtime context.

Everything that depends on symbols only (sizes, arena offsets, parameter arrays) is computed
once in the function's entry; the body holds launches and control flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.monomial import Atom
from shlo_disc.lower.host.values import (
    ADDRESS,
    Address,
    Flag,
    HostValue,
    Integer,
    Operations,
    Real,
    integer,
)

__all__ = [
    "CONSTANTS",
    "CONTEXT",
    "FAILED",
    "FFT",
    "FOREIGN",
    "KERNELS",
    "PACKED",
    "PACKED_DONE",
    "PARALLEL_FOR",
    "HostWriter",
]

PARALLEL_FOR, PACKED, PACKED_DONE, KERNELS, CONSTANTS = 1, 2, 3, 4, 5
FOREIGN, FAILED, FFT = 7, 8, 9
"""Fields of `disc_context` (`ral/include/disc_ral.h`)."""

CONTEXT = Address("%ctx")
"""The `disc_context` of a call."""

_PREDICATES = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}

V = TypeVar("V", bound=HostValue)


class _Entry(Operations):
    """Operations in the entry: equal ones give one value."""

    def __init__(self, writer: HostWriter) -> None:
        self.lines: list[str] = []
        self._writer = writer
        self._known: dict[str, HostValue] = {}

    def define(self, make: Callable[[str], V], right: str, hint: str = "") -> V:
        """See `Operations`."""
        known = self._known.get(right)
        if known is None:
            known = self._known[right] = make(self._writer.fresh(hint or "e"))
            self.lines.append(f"{known} = {right}")
        found = make(known.name)
        assert found == known, f"{right} gives no {type(found).__name__}"
        return found


class _Body(Operations):
    """Operations in the body, in order."""

    def __init__(self, writer: HostWriter) -> None:
        self.lines: list[str] = []
        self._writer = writer

    def define(self, make: Callable[[str], V], right: str, hint: str = "") -> V:
        """See `Operations`."""
        value = make(self._writer.fresh(hint or "v"))
        self.lines.append(f"{value} = {right}")
        return value


class HostWriter:
    """Builds one host function over i64 symbols.

    `symbols` is the array of symbols, `order` the names of those in it. Operations on values of the
    entry may be written there (`entry`), all others where they are needed (`body`).
    """

    def __init__(self, symbols: Address, order: Sequence[str]) -> None:
        self.entry = _Entry(self)
        self.body = _Body(self)
        self._count = 0
        self._sizes: dict[Expr, Integer] = {}
        self._named: dict[str, Integer] = {}
        self._arrays: dict[str, Address] = {}
        self._symbols = symbols
        self._index = {name: k for k, name in enumerate(order)}

    def fresh(self, hint: str) -> str:
        """A new SSA name."""
        self._count += 1
        return f"%{hint}{self._count}"

    # ---------------------------------------------------------------- constants and sizes

    def const(self, value: int, bits: int = 64) -> Integer:
        """An integer constant."""
        return self.entry.define(integer(bits), f"arith.constant {value} : i{bits}", "c")

    def flag(self, value: bool) -> Flag:
        """A constant flag."""
        return self.entry.define(Flag, f"arith.constant {'true' if value else 'false'}", "c")

    def real(self, value: float) -> Real:
        """A constant in f64."""
        return self.entry.define(Real, f"arith.constant {value:.1f} : f64")

    def null(self) -> Address:
        """The address of nothing."""
        return self.entry.define(Address, f"llvm.mlir.zero : {ADDRESS}")

    def define(self, symbol: str, value: Integer) -> None:
        """Make `value` (in the entry) that of `symbol`."""
        self._named[symbol] = value

    def size(self, expr: Expr | int) -> Integer:
        """The value of a symbolic size, computed in the entry."""
        if isinstance(expr, int):
            return self.const(expr)
        known = self._sizes.get(expr)
        if known is None:
            known = self._sizes[expr] = self._polynomial(expr)
        return known

    def _polynomial(self, expr: Expr) -> Integer:
        total: Integer | None = None
        for monomial, coefficient in expr.terms:
            term: Integer | None = None
            for atom, power in monomial:
                factor = self._atom(atom)
                for _ in range(power):
                    term = self._multiply(term, factor)
            if coefficient != 1 or term is None:
                term = self._multiply(term, self.const(coefficient))
            total = term if total is None else self.entry.add(total, term)
        return self.const(0) if total is None else total

    def _multiply(self, a: Integer | None, b: Integer) -> Integer:
        return b if a is None else self.entry.multiply(a, b)

    def _atom(self, atom: Atom) -> Integer:
        if not atom.op:
            return self.symbol(atom.key)
        a, b = (self.size(arg) for arg in atom.args)
        if atom.op == "min":
            return self.entry.at_most(a, b)
        if atom.op == "max":
            return self.entry.at_least(a, b)
        quotient, rest = self.floor_division(a, b)
        return quotient if atom.op == "floordiv" else rest

    def floor_division(self, a: Integer, b: Integer) -> tuple[Integer, Integer]:
        """Floor quotient and remainder; a divisor of 0 (an impossible size) counts as 1."""
        e, zero, one = self.entry, self.const(0), self.const(1)
        b = e.select(e.compare("eq", b, zero), one, b)
        q = e.binary("arith.divsi", a, b)
        r = e.binary("arith.remsi", a, b)
        nonzero = e.compare("ne", r, zero)
        opposite = e.compare("slt", e.binary("arith.xori", r, b), zero)
        adjust = e.both(nonzero, opposite)
        q_less, r_more = e.subtract(q, one), e.add(r, b)
        return e.select(adjust, q_less, q), e.select(adjust, r_more, r)

    def symbol(self, name: str) -> Integer:
        """The value of a symbol."""
        known = self._named.get(name)
        if known is None:
            address = self.element_address(self._symbols, self._index[name], "i64")
            known = self._named[name] = self.entry.load(address, hint="s")
        return known

    def compare(self, left: Integer, op: str, right: Integer) -> Flag:
        """`left op right` of two entry values."""
        return self.entry.compare(_PREDICATES[op], left, right)

    def aligned(self, expr: Expr | int) -> Integer:
        """`expr` bytes rounded up to a multiple of 64."""
        grown = self.entry.add(self.size(expr), self.const(63))
        return self.entry.binary("arith.andi", grown, self.const(-64))

    # ---------------------------------------------------------------- addresses

    def element_address(self, base: Address, index: int, element: str = ADDRESS) -> Address:
        """Address of element `index` of the entry value `base`, an array of `element`."""
        right = f"llvm.getelementptr {base}[{index}] : ({ADDRESS}) -> {ADDRESS}, {element}"
        return self.entry.define(Address, right, "a")

    def pointer(self, base: Address, index: int) -> Address:
        """Address `index` of the entry value `base`, an array of addresses."""
        return self.entry.load_address(self.element_address(base, index), "p")

    def context(self, field: int) -> Address:
        """Address `field` of the `disc_context`."""
        return self.pointer(CONTEXT, field)

    def blocks(
        self, base: Address, offset: Integer, sizes: Sequence[Expr]
    ) -> tuple[list[Address], Integer]:
        """The addresses of blocks of `sizes` bytes in `base`, and the offset behind the last one.

        The first begins at `offset`, each other one a multiple of 64 bytes behind it.
        """
        addresses = []
        for size in sizes:
            addresses.append(self.entry.offset(base, offset, "p"))
            offset = self.entry.add(offset, self.aligned(size))
        return addresses, offset

    def array(self, count: int, element: str, tag: str) -> Address:
        """Stack memory for `count` elements, shared by all users of the same tag."""
        right = (
            f"llvm.alloca {self.const(max(count, 1))} x {element} "
            f'{{alignment = 8 : i64, tag = "{tag}"}} : (i64) -> {ADDRESS}'
        )
        return self.entry.define(Address, right)

    def sizes_array(self, values: Sequence[Expr]) -> Address:
        """An array of i64 filled in the entry; equal lists share one."""
        tag = "sizes " + ", ".join(map(str, values))
        known = self._arrays.get(tag)
        if known is None:
            known = self._arrays[tag] = self.array(len(values), "i64", tag)
            for index, value in enumerate(values):
                stored = self.size(value)
                address = self.element_address(known, index, "i64")
                self.entry.lines.append(_store(stored, address))
        return known

    # ---------------------------------------------------------------- the body: side effects

    def comment(self, text: str) -> None:
        """A comment, which other writers of this text look for."""
        self._line(f"// {text}")

    def store(self, value: HostValue, address: Address) -> None:
        """Store into the host's memory."""
        self._line(_store(value, address))

    def store_element(self, value: HostValue, base: Address, index: int) -> None:
        """Store into element `index` of an array of values of this type."""
        self.store(value, self.element_address(base, index, value.type))

    def copy_bytes(self, destination: Address, source: Address, count: Integer) -> None:
        """Copy within the host's memory: the two places are one, or do not overlap."""
        self._intrinsic("llvm.intr.memcpy", destination, source, count)

    def set_bytes(self, address: Address, value: Integer, count: Integer) -> None:
        """Set bytes of the host's memory to `value` (i8)."""
        self._intrinsic("llvm.intr.memset", address, value, count)

    def call(self, function: Address, *operands: HostValue) -> None:
        """Call a function that has no result."""
        self._line(_call(function, operands, "()"))

    def call_for(self, bits: int, function: Address, *operands: HostValue, hint: str) -> Integer:
        """Call a function that gives an integer of `bits`."""
        return self.body.define(integer(bits), _call(function, operands, f"i{bits}"), hint)

    def _intrinsic(self, name: str, *operands: HostValue) -> None:
        types = ", ".join(operand.type for operand in operands)
        given = ", ".join(map(str, operands))
        self._line(f'"{name}"({given}) <{{isVolatile = false}}> : ({types}) -> ()')

    def _line(self, text: str) -> None:
        self.body.lines.append(text)

    # ---------------------------------------------------------------- the body: control flow

    @contextmanager
    def if_(self, flag: Flag) -> Iterator[None]:
        """What is written inside runs where `flag` is true; see :meth:`otherwise`."""
        self._line(f"scf.if {flag} {{")
        yield
        self._line("}")

    def otherwise(self) -> None:
        """What follows inside the innermost `if_` runs where its flag is false."""
        self._line("} else {")

    def while_(
        self, inits: Sequence[Address], hints: Sequence[str]
    ) -> tuple[list[Address], list[Address]]:
        """Begin a loop that carries addresses, with its condition: (carried, results).

        `condition` and then `end_while` must follow. `hints` are for the names in the condition.
        """
        result = self.fresh("loop")
        names = [Address(self.fresh(hint)) for hint in hints]
        heads = ", ".join(f"{n} = {i}" for n, i in zip(names, inits, strict=True))
        types = _types(names)
        into = f"{result}:{len(inits)} = " if inits else ""
        self._line(f"{into}scf.while ({heads}) : ({types}) -> ({types}) {{")
        return names, [Address(f"{result}#{k}") for k in range(len(inits))]

    def condition(self, go: Flag, carried: Sequence[Address]) -> list[Address]:
        """End the condition of a loop and begin its body, which gets the carried addresses."""
        tail = f" {', '.join(map(str, carried))} : {_types(carried)}" if carried else ""
        self._line(f"scf.condition({go}){tail}")
        self._line("} do {")
        inner = [Address(self.fresh("b")) for _ in carried]
        self._line("^bb0(" + ", ".join(f"{a}: {a.type}" for a in inner) + "):")
        return inner

    def end_while(self, following: Sequence[Address]) -> None:
        """End the body of a loop; the next iteration carries `following`."""
        given = ", ".join(map(str, following))
        self._line(f"scf.yield {given} : {_types(following)}" if following else "scf.yield")
        self._line("}")

    def switch(self, number: Integer) -> None:
        """A `case` for each number must follow, then one for None: all others."""
        right = f"arith.index_cast {number} : {number.type} to index"
        index = self.fresh("branch")
        self._line(f"{index} = {right}")
        self._line(f"scf.index_switch {index}")

    @contextmanager
    def case(self, number: int | None) -> Iterator[None]:
        """A branch of the `switch` before."""
        self._line("default {" if number is None else f"case {number} {{")
        yield
        self._line("scf.yield")
        self._line("}")

    def function(self, signature: str, result: Integer | None = None) -> str:
        """The finished function, which returns `result`."""
        returned = "" if result is None else f" {result} : {result.type}"
        lines = [*self.entry.lines, *self.body.lines, f"func.return{returned}"]
        return signature + " {\n" + "\n".join("  " + line for line in lines) + "\n}\n"


def _store(value: HostValue, address: Address) -> str:
    return f"llvm.store {value}, {address} : {value.type}, {ADDRESS}"


def _call(function: Address, operands: Sequence[HostValue], result: str) -> str:
    types = ", ".join(operand.type for operand in operands)
    given = ", ".join(map(str, operands))
    return f"llvm.call {function}({given}) : {ADDRESS}, ({types}) -> {result}"


def _types(values: Sequence[HostValue]) -> str:
    return ", ".join(value.type for value in values)

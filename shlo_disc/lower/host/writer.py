"""Text of host functions: sizes in i64, pointers, calls through the runtime context.

Everything that depends on symbols only (sizes, arena offsets, parameter arrays) is computed
once in the function's entry; the body holds launches and control flow.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.monomial import Atom

__all__ = [
    "CONSTANTS",
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

_EXTREMES = {"min": "arith.minsi", "max": "arith.maxsi"}
_PREDICATES = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


class HostWriter:
    """Builds one host function over i64 symbols.

    `symbols` is the name of the SSA pointer to the symbol array, `order` the symbols in it.
    """

    def __init__(self, symbols: str, order: Sequence[str]) -> None:
        self.entry: list[str] = []
        self.body: list[str] = []
        self._lines = self.body
        self._count = 0
        self._cache: dict[str, str] = {}
        self._symbols = symbols
        self._index = {name: k for k, name in enumerate(order)}

    def fresh(self, hint: str = "v") -> str:
        """A new SSA name."""
        self._count += 1
        return f"%{hint}{self._count}"

    def line(self, text: str) -> None:
        """Append a line to the body."""
        self.body.append(text)

    def once(self, text: str, hint: str = "e") -> str:
        """The SSA name of `text`, an op without side effects, computed in the entry."""
        name = self._cache.get(text)
        if name is None:
            name = self._cache[text] = self.fresh(hint)
            self.entry.append(f"{name} = {text}")
        return name

    def const(self, value: int) -> str:
        """An i64 constant."""
        return self.once(f"arith.constant {value} : i64", "c")

    def define(self, symbol: str, name: str) -> None:
        """Make SSA name `name` (i64, in the entry) the value of `symbol`."""
        self._cache[f"symbol {symbol}"] = name

    def size(self, expr: Expr | int) -> str:
        """The i64 value of a symbolic size, computed in the entry."""
        if isinstance(expr, int):
            return self.const(expr)
        key = f"size {expr}"
        name = self._cache.get(key)
        if name is None:
            name = self._cache[key] = self._polynomial(expr)
        return name

    def _polynomial(self, expr: Expr) -> str:
        total: str | None = None
        for monomial, coefficient in expr.terms:
            term: str | None = None
            for atom, power in monomial:
                factor = self._atom(atom)
                for _ in range(power):
                    term = self._multiply(term, factor)
            if coefficient != 1 or term is None:
                term = self._multiply(term, self.const(coefficient))
            total = term if total is None else self.once(f"arith.addi {total}, {term} : i64")
        return self.const(0) if total is None else total

    def _multiply(self, a: str | None, b: str) -> str:
        return b if a is None else self.once(f"arith.muli {a}, {b} : i64")

    def _atom(self, atom: Atom) -> str:
        if not atom.op:
            return self.symbol(atom.key)
        a, b = (self.size(arg) for arg in atom.args)
        if atom.op in _EXTREMES:
            return self.once(f"{_EXTREMES[atom.op]} {a}, {b} : i64")
        quotient, rest = self.floor_division(a, b)
        return quotient if atom.op == "floordiv" else rest

    def floor_division(self, a: str, b: str) -> tuple[str, str]:
        """Floor quotient and remainder; a divisor of 0 (an impossible size) counts as 1."""
        zero, one = self.const(0), self.const(1)
        is_zero = self.once(f"arith.cmpi eq, {b}, {zero} : i64")
        b = self.once(f"arith.select {is_zero}, {one}, {b} : i64")
        q = self.once(f"arith.divsi {a}, {b} : i64")
        r = self.once(f"arith.remsi {a}, {b} : i64")
        nonzero = self.once(f"arith.cmpi ne, {r}, {zero} : i64")
        signs = self.once(f"arith.xori {r}, {b} : i64")
        opposite = self.once(f"arith.cmpi slt, {signs}, {zero} : i64")
        adjust = self.once(f"arith.andi {nonzero}, {opposite} : i1")
        q_less = self.once(f"arith.subi {q}, {one} : i64")
        r_more = self.once(f"arith.addi {r}, {b} : i64")
        return (
            self.once(f"arith.select {adjust}, {q_less}, {q} : i64"),
            self.once(f"arith.select {adjust}, {r_more}, {r} : i64"),
        )

    def symbol(self, name: str) -> str:
        """The i64 value of a symbol."""
        key = f"symbol {name}"
        known = self._cache.get(key)
        if known is None:
            address = self.element_address(self._symbols, self._index[name], "i64")
            known = self._cache[key] = self.once(f"llvm.load {address} : !llvm.ptr -> i64", "s")
        return known

    def compare(self, left: str, op: str, right: str) -> str:
        """The i1 `left op right` of two entry values."""
        return self.once(f"arith.cmpi {_PREDICATES[op]}, {left}, {right} : i64")

    def aligned(self, expr: Expr | int) -> str:
        """`expr` bytes rounded up to a multiple of 64."""
        grown = self.once(f"arith.addi {self.size(expr)}, {self.const(63)} : i64")
        return self.once(f"arith.andi {grown}, {self.const(-64)} : i64")

    def element_address(self, base: str, index: int, element: str = "!llvm.ptr") -> str:
        """Address of element `index` of the entry value `base`, an array of `element`."""
        return self.once(
            f"llvm.getelementptr {base}[{index}] : (!llvm.ptr) -> !llvm.ptr, {element}", "a"
        )

    def pointer(self, base: str, index: int) -> str:
        """Pointer `index` of the entry value `base`, an array of pointers."""
        address = self.element_address(base, index)
        return self.once(f"llvm.load {address} : !llvm.ptr -> !llvm.ptr", "p")

    def context(self, field: int) -> str:
        """Pointer `field` of the `disc_context`."""
        return self.pointer("%ctx", field)

    def offset(self, base: str, offset: str) -> str:
        """The address `offset` bytes (i64) into the entry value `base`."""
        return self.once(
            f"llvm.getelementptr {base}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8", "p"
        )

    def blocks(self, base: str, offset: str, sizes: Sequence[Expr]) -> tuple[list[str], str]:
        """The addresses of blocks of `sizes` bytes in `base`, and the offset behind the last one.

        The first begins at `offset`, each other one a multiple of 64 bytes behind it.
        """
        addresses = []
        for size in sizes:
            addresses.append(self.offset(base, offset))
            offset = self.once(f"arith.addi {offset}, {self.aligned(size)} : i64")
        return addresses, offset

    def store(self, value: str, base: str, index: int, element: str) -> None:
        """Store into element `index` of an array, in the body."""
        address = self.element_address(base, index, element)
        self.line(f"llvm.store {value}, {address} : {element}, !llvm.ptr")

    def array(self, count: int, element: str, tag: str) -> str:
        """Stack memory for `count` elements, shared by all users of the same tag."""
        return self.once(
            f"llvm.alloca {self.const(max(count, 1))} x {element} "
            f'{{alignment = 8 : i64, tag = "{tag}"}} : (i64) -> !llvm.ptr'
        )

    def sizes_array(self, values: Sequence[Expr]) -> str:
        """An array of i64 filled in the entry; equal lists share one."""
        tag = "sizes " + ", ".join(map(str, values))
        known = self._cache.get(tag)
        if known is None:
            known = self._cache[tag] = self.array(len(values), "i64", tag)
            for index, value in enumerate(values):
                stored = self.size(value)
                address = self.element_address(known, index, "i64")
                self.entry.append(f"llvm.store {stored}, {address} : i64, !llvm.ptr")
        return known

    def function(self, signature: str, result: str = "") -> str:
        """The finished function; `result` is what it returns, e.g. `%x : i64`."""
        lines = [*self.entry, *self.body, f"func.return {result}".rstrip()]
        return signature + " {\n" + "\n".join("  " + line for line in lines) + "\n}\n"

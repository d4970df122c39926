"""Text of host functions: sizes in i64, addresses, calls through the runtime context.

A host function is written as kernels are (`values/text.py`), in two regions. What depends on
symbols only (sizes, arena offsets, parameter arrays) is pure and rises to the function's *entry*,
where it is computed once. Its *body* holds launches, control flow, and reads of memory.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from operator import itemgetter
from typing import ClassVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.monomial import Atom, Monomial
from shlo_disc.lower.host.record import Mark, Part, PlanCall
from shlo_disc.lower.values.text import TextBuilder, indented
from shlo_disc.lower.values.typed import IndexValue, Mask, Pointer, Register, Value

PARALLEL_FOR, PACKED, PACKED_DONE, KERNELS, CONSTANTS = 1, 2, 3, 4, 5
FOREIGN, FAILED, FFT = 7, 8, 9
GPU_LAUNCH, GPU_COPY, GPU_ZERO, GPU_READ, GPU_WRITE, KERNEL = range(10, 16)
"""Fields of `disc_context` (`ral/include/disc_ral.h`)."""

INLINED = "inlined"
"""What names of functions begin with that LLVM inlines into the host program."""

ADDRESS = "!llvm.ptr"
"""The MLIR type of addresses: of the host's memory, or of the target's."""

_PREDICATES = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


class HostWriter(TextBuilder):
    """Builds one host function over i64 symbols.

    `symbols` is the array of symbols (an argument of the function), `order` the names of those in
    it. `is_natural` says which terms of them are proved to be at least 0.
    """

    leaves_branches: ClassVar[bool] = True

    def __init__(
        self,
        symbols: str,
        order: Sequence[str],
        is_natural: Callable[[Expr], bool] = lambda _: False,
    ) -> None:
        super().__init__()
        self.is_natural = is_natural
        self._arguments: dict[str, Pointer] = {}
        self._sizes: dict[Expr, Register] = {}
        self._named: dict[str, Register] = {}
        self._arrays: dict[tuple[Expr | int | None, ...], Pointer] = {}
        self._symbols = self.argument(symbols)
        self._index = {name: k for k, name in enumerate(order)}
        self._asked: dict[tuple[Mask | None, int], None] = {}
        """What :meth:`ask` was given."""
        self._open(barrier=False)

    def argument(self, name: str) -> Pointer:
        """An argument of the function, which is an address."""
        return self._arguments.setdefault(name, Pointer(self, f"%{name}", ADDRESS, 0))

    def number(self, name: str) -> Register:
        """An argument of the function, which is an i64."""
        return Register(self, f"%{name}", "i64", 0)

    @property
    def the_context(self) -> Pointer:
        """The `disc_context` of a call."""
        return self.argument("ctx")

    # ---------------------------------------------------------------- constants and sizes

    def const(self, value: int, bits: int = 64) -> Register:
        """An integer constant of more than one bit."""
        return self.constant(value, f"i{bits}")

    def null(self) -> Pointer:
        """The address of nothing."""
        return self.define(Pointer, f"llvm.mlir.zero : {ADDRESS}", ADDRESS, [])

    def define_symbol(self, symbol: str, value: Register) -> None:
        """Make `value` (in the entry) that of `symbol`."""
        self._named[symbol] = value

    def size(self, expr: Expr | int) -> Register:
        """The value of a symbolic size, computed in the entry."""
        if isinstance(expr, int):
            return self.const(expr)
        known = self._sizes.get(expr)
        if known is None:
            known = self._sizes[expr] = polynomial(expr.terms, self._atom, self.const)
        return known

    def _atom(self, atom: Atom) -> Register:
        if not atom.op:
            return self.symbol(atom.key)
        a, b = (self.size(arg) for arg in atom.args)
        if atom.op == "min":
            return self.smaller(a, b)
        if atom.op == "max":
            return self.larger(a, b)
        is_positive = _is_positive(atom.args[1])
        if not is_positive:
            b = self._divisor(b)
        if self.is_natural(atom.args[0]) and (is_positive or self.is_natural(atom.args[1] - 1)):
            return self.op("arith.divui" if atom.op == "floordiv" else "arith.remui", a, b)
        quotient, rest = self._floor_division(a, b)
        return quotient if atom.op == "floordiv" else rest

    def smaller(self, a: Register, b: Register) -> Register:
        """The smaller one of two signed integers."""
        return self.op("arith.minsi", a, b)

    def larger(self, a: Register, b: Register) -> Register:
        """The larger one of two signed integers."""
        return self.op("arith.maxsi", a, b)

    def floor_division(self, a: Register, b: Register) -> tuple[Register, Register]:
        """Floor quotient and remainder; a divisor of 0 (an impossible size) counts as 1."""
        return self._floor_division(a, self._divisor(b))

    def _divisor(self, b: Register) -> Register:
        return self.select(b.equals(0), self.const(1), b)

    def _floor_division(self, a: Register, b: Register) -> tuple[Register, Register]:
        q, r = self.op("arith.divsi", a, b), self.op("arith.remsi", a, b)
        adjust = r.differs(0) & ((r ^ b) < 0)
        return self.select(adjust, q - 1, q), self.select(adjust, r + b, r)

    def symbol(self, name: str) -> Register:
        """The value of a symbol."""
        known = self._named.get(name)
        if known is None:
            address = self.element_address(self._symbols, self._index[name], "i64")
            known = self._named[name] = self.loaded_size(address)
        return known

    def compare(self, left: Register, op: str, right: Register) -> Mask:
        """`left op right` of two signed integers."""
        return self.cmpi(_PREDICATES[op], left, right)

    def aligned(self, expr: Expr | int) -> Register:
        """`expr` bytes rounded up to a multiple of 64."""
        return (self.size(expr) + 63) & -64

    # ---------------------------------------------------------------- addresses

    def element_address(
        self, base: Pointer, index: int | Register, element: str = ADDRESS
    ) -> Pointer:
        """Address of element `index` of `base`, an array of `element`."""
        if isinstance(index, Register):
            types = f"({ADDRESS}, {index.type}) -> {ADDRESS}, {element}"
            right = f"llvm.getelementptr {base}[{index}] : {types}"
            return self.define(Pointer, right, ADDRESS, [base, index], "a")
        right = f"llvm.getelementptr {base}[{index}] : ({ADDRESS}) -> {ADDRESS}, {element}"
        return self.define(Pointer, right, ADDRESS, [base], "a")

    def offset(self, base: Pointer, offset: Register) -> Pointer:
        """The address `offset` bytes behind `base`."""
        right = f"llvm.getelementptr {base}[{offset}] : ({ADDRESS}, {offset.type}) -> {ADDRESS}, i8"
        return self.define(Pointer, right, ADDRESS, [base, offset], "p")

    def pointer(self, base: Pointer, index: int | Register) -> Pointer:
        """Address `index` of `base`, an array of addresses that do not change."""
        address = self.element_address(base, index)
        right = f"llvm.load {address} : {ADDRESS} -> {ADDRESS}"
        return self.define(Pointer, right, ADDRESS, [address], "p")

    def loaded_size(self, address: Pointer) -> Register:
        """The i64 at `address`, which does not change."""
        return self.define(
            Register, f"llvm.load {address} : {ADDRESS} -> i64", "i64", [address], "s"
        )

    def context(self, field: int) -> Pointer:
        """Address `field` of the `disc_context`."""
        return self.pointer(self.the_context, field)

    def differ(self, a: Pointer, b: Pointer) -> Mask:
        """True if these are two places."""
        return self.define(Mask, f'llvm.icmp "ne" {a}, {b} : {ADDRESS}', "i1", [a, b], "differ")

    def blocks(
        self, base: Pointer, offset: Register, sizes: Sequence[Expr]
    ) -> tuple[list[Pointer], Register]:
        """The addresses of blocks of `sizes` bytes in `base`, and the offset behind the last one.

        The first begins at `offset`, each other one a multiple of 64 bytes behind it.
        """
        addresses = []
        for size in sizes:
            addresses.append(self.offset(base, offset))
            offset = offset + self.aligned(size)
        return addresses, offset

    def array(self, count: int, element: str, tag: str) -> Pointer:
        """Stack memory for `count` elements, shared by all users of the same tag."""
        right = (
            f"llvm.alloca {self.const(max(count, 1))} x {element} "
            f'{{alignment = 8 : i64, tag = "{tag}"}} : (i64) -> {ADDRESS}'
        )
        return self.define(Pointer, right, ADDRESS, [])

    def sizes_array(self, values: Sequence[Expr], site: int | None = None) -> Pointer:
        """An array of i64 filled in the entry; equal lists share one, those of a site aside."""
        key = (*values, site)
        known = self._arrays.get(key)
        if known is None:
            tag = f"sizes {len(self._arrays)}"
            known = self._arrays[key] = self.array(len(values), "i64", tag)
            for index, value in enumerate(values):
                stored = self.size(value)
                address = self.element_address(known, index, "i64")
                self._regions[0].lines.append(_store(stored, address))
        return known

    # ---------------------------------------------------------------- memory, calls

    def load(self, address: Pointer, bits: int = 64, hint: str = "v") -> Register:
        """The integer of more than one bit that is at an address of the host's memory now."""
        type_ = f"i{bits}"
        right = f"llvm.load {address} : {ADDRESS} -> {type_}"
        return self.define(Register, right, type_, [address], hint, pure=False)

    def load_address(self, address: Pointer, hint: str) -> Pointer:
        """The address that is stored at `address` now."""
        right = f"llvm.load {address} : {ADDRESS} -> {ADDRESS}"
        return self.define(Pointer, right, ADDRESS, [address], hint, pure=False)

    def mark(self, mark: Mark) -> None:
        """A mark of a launch, and a comment for readers."""
        self.emit(f"// {'launched' if mark.ends else 'launch'} {mark}")
        self._regions[-1].lines.append(mark)

    def store(self, value: Value, address: Pointer) -> None:
        """Store into the host's memory."""
        self.emit(_store(value, address))

    def store_element(self, value: Value, base: Pointer, index: int) -> None:
        """Store into element `index` of an array of values of this type."""
        self.store(value, self.element_address(base, index, value.type))

    def copy_bytes(self, destination: Pointer, source: Pointer, count: Register) -> None:
        """Copy within the host's memory: the two places are one, or do not overlap."""
        self._intrinsic("llvm.intr.memcpy", destination, source, count)

    def set_bytes(self, address: Pointer, value: Register, count: Register) -> None:
        """Set bytes of the host's memory to `value` (i8)."""
        self._intrinsic("llvm.intr.memset", address, value, count)

    def call(self, function: Pointer, *operands: Value) -> None:
        """Call a function that has no result."""
        self.emit(_call(function, operands, "()"))

    def call_plan(self, function: int, entry: int, *operands: Value) -> None:
        """Call the function of a plan, which is an entry of the kernel table."""
        address = self.load_address(self.pointer(self.context(KERNELS), entry), "plan")
        types = ", ".join(operand.type for operand in operands)
        given = ", ".join(map(str, operands))
        by_table = "".join(indented([_call(address, operands, "()")])) + "\n"
        self._regions[-1].lines.append(PlanCall(function, by_table, f"({given}) : ({types})"))

    def call_symbol(self, name: str, *operands: Value) -> None:
        """Call a function of the host program that has no result."""
        types = ", ".join(operand.type for operand in operands)
        self.emit(f"func.call @{name}({', '.join(map(str, operands))}) : ({types}) -> ()")

    def call_for(self, bits: int, function: Pointer, *operands: Value, hint: str) -> Register:
        """Call a function that gives an integer of `bits`."""
        type_ = f"i{bits}"
        right = _call(function, operands, type_)
        return self.define(Register, right, type_, operands, hint, pure=False)

    def call_for_address(self, function: Pointer, *operands: Value, hint: str) -> Pointer:
        """Call a function that gives an address."""
        right = _call(function, operands, ADDRESS)
        return self.define(Pointer, right, ADDRESS, operands, hint, pure=False)

    def _intrinsic(self, name: str, *operands: Value) -> None:
        types = ", ".join(operand.type for operand in operands)
        given = ", ".join(map(str, operands))
        self.emit(f'"{name}"({given}) <{{isVolatile = false}}> : ({types}) -> ()')

    # ---------------------------------------------------------------- control flow, the end

    def ask(self, kernel: int, when: Mask | None) -> None:
        """Have a kernel compiled in front of the body, which does not run if that fails.

        `when`: the calls that need it, by sizes; None: all.
        """
        self._asked[when, kernel] = None

    def _ask(self) -> None:
        """Write in front of the body what :meth:`ask` was given."""
        body = self._close().lines
        self._open(barrier=False)
        make = self.context(KERNEL)
        for when, asked in itertools.groupby(self._asked, key=itemgetter(0)):
            with nullcontext() if when is None else self.if_(when):
                for _, kernel in asked:
                    self.call_for_address(make, self.the_context, self.const(kernel), hint="k")
        with self.if_(self.goes_on()):
            self._regions[-1].lines += body

    def goes_on(self) -> Mask:
        """False once a step has failed: the call ends, and what it computes does not matter."""
        failed = self.element_address(self.the_context, FAILED, "i64")
        return self.load(failed, hint="failed").equals(0)

    def switch(self, number: Register) -> None:
        """A `case` for each number must follow, then one for None: all others."""
        right = f"arith.index_cast {number} : {number.type} to index"
        index = self.define(IndexValue, right, "index", [number], "branch")
        self.emit(f"scf.index_switch {index}")

    @contextmanager
    def case(self, number: int | None) -> Iterator[None]:
        """A branch of the `switch` before."""
        self._open(barrier=False)
        yield
        inside = [*self._close().lines, "scf.yield"]
        self.emit("default {" if number is None else f"case {number} {{")
        self._regions[-1].lines += [inside, "}"]

    def forget(self) -> None:
        """As of kernels: values refer to the writer, which knows of facts about the module."""
        super().forget()
        self.is_natural = lambda _: False

    def function(self, signature: str, result: Register | None = None) -> str:
        """The finished function, which returns `result` and has no marks."""
        (text,) = self.parts(signature, result)
        assert isinstance(text, str)
        return text

    def parts(self, signature: str, result: Register | None = None) -> list[Part]:
        """The finished function, which returns `result`: text, with marks between the lines."""
        if self._asked:
            self._ask()
        returned = "" if result is None else f" {result} : {result.type}"
        entry, body = self._regions
        lines = [*self._entry, *entry.lines, *body.lines, f"func.return{returned}"]
        self.forget()
        found: list[Part] = []
        text: list[str] = []
        for line in [signature + " {", *indented(lines), "}\n"]:
            if isinstance(line, Mark | PlanCall):
                found += ["\n".join([*text, ""]), line]
                text = []
            else:
                text.append(line)
        return [*found, "\n".join(text)]


def _store(value: Value, address: Pointer) -> str:
    return f"llvm.store {value}, {address} : {value.type}, {ADDRESS}"


def _call(function: Pointer, operands: Sequence[Value], result: str) -> str:
    types = ", ".join(operand.type for operand in operands)
    given = ", ".join(map(str, operands))
    return f"llvm.call {function}({given}) : {ADDRESS}, ({types}) -> {result}"


def polynomial(
    terms: Sequence[tuple[Monomial, int]],
    value: Callable[[Atom], Register],
    const: Callable[[int], Register],
) -> Register:
    """The sum of `terms`; a factor of several of them multiplies their sum."""
    shared = _most_shared(terms) if len(terms) > 1 else None
    if shared is not None:
        inside = [(_without(shared, m), c) for m, c in terms if shared in dict(m)]
        outside = [(m, c) for m, c in terms if shared not in dict(m)]
        product = value(shared) * polynomial(inside, value, const)
        return product + polynomial(outside, value, const) if outside else product
    total: Register | None = None
    for monomial, coefficient in terms:
        term: Register | None = None
        for atom, power in monomial:
            factor = value(atom)
            for _ in range(power):
                term = factor if term is None else term * factor
        if term is None:
            term = const(coefficient)
        elif coefficient != 1:
            term = term * const(coefficient)
        total = term if total is None else total + term
    return const(0) if total is None else total


def _most_shared(terms: Sequence[tuple[Monomial, int]]) -> Atom | None:
    """The first of the factors that most terms have; None if no two terms share one."""
    terms_with = Counter(atom for monomial, _ in terms for atom, _ in monomial)
    atom, count = max(terms_with.items(), key=itemgetter(1), default=(None, 0))
    return atom if count > 1 else None


def _without(factor: Atom, monomial: Monomial) -> Monomial:
    """`monomial / factor`."""
    left = ((atom, power - (atom is factor)) for atom, power in monomial)
    return tuple((atom, power) for atom, power in left if power)


def _is_positive(size: Expr) -> bool:
    """Whether `size` is at least 1 whatever its symbols are: a division by it cannot trap."""
    if size.is_const:
        return size.value > 0
    if len(size.terms) > 1:
        return False
    ((monomial, coefficient),) = size.terms
    return coefficient > 0 and all(_is_positive_atom(atom) for atom, _ in monomial)


def _is_positive_atom(atom: Atom) -> bool:
    if atom.op == "max":
        return any(map(_is_positive, atom.args))
    return atom.op == "min" and all(map(_is_positive, atom.args))

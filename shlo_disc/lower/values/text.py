"""MLIR text while it is written: names, regions, control flow, operations on scalars and lanes.

Kernels (`KernelBuilder`) and host programs (`HostWriter`) are written with it. A *pure* operation
is put into the outermost region where its operands live, so loop-invariant code leaves its loop
while it is written. An operation written twice gives one value. Names are counted, never random:
equal functions have equal texts.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from operator import itemgetter
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

from shlo_disc.base.records import dataclass
from shlo_disc.ir.element_types import ELEMENT_TYPES, FLOATS
from shlo_disc.lower.values.typed import (
    IndexLike,
    IndexValue,
    Mask,
    Register,
    Value,
    element_type,
    lanes_of,
    vector_type,
)

V = TypeVar("V", bound=Value)


def _kind(element: str) -> type[Value]:
    """The class of values of `element`."""
    return IndexValue if element == "index" else Mask if element == "i1" else Register


def _literal(value: float | bool, element: str) -> str:
    """`value` as MLIR prints a constant of type `element`, exact for every float and NaN."""
    if element == "i1":
        return "true" if value else "false"
    if not element.startswith(("f", "bf")):
        return str(int(value))
    value = float(value)
    if math.isfinite(value):
        mantissa, _, exponent = repr(value).partition("e")
        mantissa += "" if "." in mantissa else ".0"
        return f"{mantissa}e{exponent}" if exponent else mantissa
    sign = math.copysign(1.0, value) < 0
    bits, form = ELEMENT_TYPES[element].bits, FLOATS[element]
    pattern = form.quiet_nan if math.isnan(value) else form.infinity
    return f"0x{pattern | (sign << (bits - 1)):0{bits // 4}X}"


Lines = list[Any]
"""Lines of text, lists of those that are indented, and what else a builder puts between them."""


def indented(lines: Lines, indent: str = "  ") -> list[Any]:
    """The lines with what is in front of them, and what is no text as it is."""
    found: list[Any] = []
    for line in lines:
        if isinstance(line, str):
            found.append(indent + line)
        elif isinstance(line, list):
            found += indented(line, indent + "  ")
        else:
            found.append(line)
    return found


@dataclass
class _Region:
    """The lines of one open region."""

    barrier: int
    """The depth pure operations may rise to: outside, they would be computed where the region of
    that depth is not entered.
    """
    lines: Lines = field(default_factory=list)


class Loop(Generic[V]):
    """An `scf.for` being written."""

    def __init__(self, index: IndexValue, args: list[V]) -> None:
        self.index = index
        self.args = args
        """The carried values inside the body."""
        self.results: list[V] = []
        """The carried values after the loop; filled when it is closed."""
        self.yielded: tuple[V, ...] = ()

    def yield_(self, *values: V) -> None:
        """What the next iteration (or the end) sees as `args`."""
        self.yielded = values


class If(Generic[V]):
    """An `scf.if` being written; `with branch.otherwise():` writes the other side."""

    def __init__(self, text: TextBuilder) -> None:
        self.text = text
        self.results: list[V] = []
        self.yielded: tuple[V, ...] = ()
        self.else_lines: Lines | None = None
        self.else_yielded: tuple[V, ...] = ()
        self.then_lines: Lines = []
        self.in_else = False

    def yield_(self, *values: V) -> None:
        """The results of the side being written."""
        if self.in_else:
            self.else_yielded = values
        else:
            self.yielded = values

    @contextlib.contextmanager
    def otherwise(self) -> Iterator[None]:
        """Write the side taken when the condition is false (inside the `if_` block, last)."""
        barrier = not self.text.leaves_branches
        self.then_lines = self.text._close().lines
        self.text._open(barrier)
        self.in_else = True
        yield
        self.else_lines = self.text._close().lines
        self.text._open(barrier)


class TextBuilder:
    """A function under construction; see the module."""

    leaves_branches: ClassVar[bool] = False
    """Pure operations rise out of branches and loops, too, and run always."""
    predicts_branches: ClassVar[bool] = False
    """True if a branch of a scalar costs less than the operations that it saves."""
    saturates: bool = True
    """True if the code generator has instructions for `llvm.fptosi.sat` of vectors."""
    rounds_to_bf16: ClassVar[bool] = False
    """True if the code generator rounds f32 to bf16 as IEEE 754 does, and better than integers."""

    @property
    def halves(self) -> tuple[str, ...]:
        """Floats of 16 bits that are added, subtracted, multiplied and compared for their maximum
        and minimum by single instructions. Results have the bits of f32 arithmetic rounded once.
        """
        return ()

    def __init__(self) -> None:
        self._regions = [_Region(0)]
        self._at_end: list[Callable[[], object]] = []
        self._entry: list[str] = []
        self._counts: dict[str, int] = {}
        self._constants: dict[tuple[str, str], Value] = {}
        self._indices: dict[int, IndexValue] = {}
        """Scalar constants."""
        self._pure: dict[str, tuple[_Region, Value]] = {}
        """Pure operations, each with the region that has it, which may be closed by now."""
        self._remembered: dict[object, list[tuple[int, _Region, object]]] = {}
        """What :meth:`remember` keeps, by depth; regions may be closed by now."""

    # ---------------------------------------------------------------- names and regions

    def fresh(self, kind: type[V], hint: str, type_: str, depth: int | None = None) -> V:
        """A new value, defined in the current region (or at `depth`) by a line the caller emits."""
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        name = f"%{hint}_{count}" if count else f"%{hint}"
        return kind(self, name, type_, len(self._regions) - 1 if depth is None else depth)

    def emit(self, line: str) -> None:
        """Append a line (of a side effect, or defining fresh names) to the current region."""
        self._regions[-1].lines.append(line)

    def define(
        self,
        kind: type[V],
        right: str,
        type_: str,
        operands: Sequence[Value],
        hint: str = "v",
        pure: bool = True,
    ) -> V:
        """The value of `right`, an operation without its result; see the module on purity."""
        regions = self._regions
        if not pure:
            value = self.fresh(kind, hint, type_)
            regions[-1].lines.append(f"{value.name} = {right}")
            return value
        if (known := self._pure.get(right)) is not None:
            region, before = known
            if before.depth < len(regions) and regions[before.depth] is region:
                return cast("V", before)
        depth = regions[-1].barrier
        for operand in operands:
            depth = max(depth, operand.depth)
        value, region = self.fresh(kind, hint, type_, depth), regions[depth]
        region.lines.append(f"{value.name} = {right}")
        self._pure[right] = region, value
        return value

    def barrier(self) -> int:
        """The depth pure operations may rise to."""
        return self._regions[-1].barrier

    def recall(self, key: object) -> object | None:
        """What :meth:`remember` stored in a region that is still open."""
        regions, found = self._regions, self._remembered.get(key, [])
        while found:
            depth, region, value = found[-1]
            if depth < len(regions) and regions[depth] is region:
                return value
            found.pop()
        return None

    def remember(self, key: object, value: object, depth: int | None = None) -> None:
        """Keep `value` under `key` while the region at `depth` (now: the current) is open."""
        depth = len(self._regions) - 1 if depth is None else depth
        found = self._remembered.setdefault(key, [])
        found.append((depth, self._regions[depth], value))
        if len(found) > 1:
            found.sort(key=itemgetter(0))

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Write another turn of a loop behind one: what is found in it is no longer known then."""
        pure, remembered = dict(self._pure), {k: [*v] for k, v in self._remembered.items()}
        yield
        self._pure, self._remembered = pure, remembered

    def _open(self, barrier: bool) -> None:
        self._regions.append(_Region(len(self._regions) if barrier else self.barrier()))

    def _close(self) -> _Region:
        return self._regions.pop()

    def _enter(self, kind: type[V], hint: str, right: str, type_: str) -> V:
        """A value defined at the function's entry, in front of everything else."""
        value = self.fresh(kind, hint, type_, 0)
        self._entry.append(f"{value.name} = {right}")
        return value

    def outlined(
        self, name: str, function: Callable[[Register], tuple[Register, ...]], value: Register
    ) -> tuple[Register, ...]:
        """`function(value)` of a scalar, for regions that hardly ever run.

        A target that can call functions has `function` once, under `name` and the type of `value`.
        """
        return function(value)

    def unlikely(self, condition: Mask) -> Mask:
        """A scalar `condition` that hardly ever holds: code for it is not in the way of the rest.

        It holds for the text of branches alone; the value is the same.
        """
        right = f"llvm.intr.expect {condition}, {self.flags(False)} : i1"
        return self.define(Mask, right, "i1", [condition])

    @overload
    def loop(
        self,
        lo: IndexLike,
        hi: IndexLike,
        step: IndexLike = 1,
        *,
        hint: str = "i",
        barrier: bool = False,
    ) -> AbstractContextManager[Loop[Value]]: ...

    @overload
    def loop(
        self,
        lo: IndexLike,
        hi: IndexLike,
        step: IndexLike,
        init: Sequence[V],
        hint: str = "i",
        barrier: bool = False,
    ) -> AbstractContextManager[Loop[V]]: ...

    @contextlib.contextmanager
    def loop(
        self,
        lo: IndexLike,
        hi: IndexLike,
        step: IndexLike = 1,
        init: Sequence[Value] = (),
        hint: str = "i",
        barrier: bool = False,
    ) -> Iterator[Loop[Any]]:
        """Write an `scf.for` over index; call `yield_` in it when it carries values.

        `barrier` keeps pure operations inside (when the loop may run zero times and they read
        memory that then does not exist).
        """
        lo, hi, step = self.index(lo), self.index(hi), self.index(step)
        self._open(barrier)
        types = [v.type for v in init]
        index = self.fresh(IndexValue, hint, "index")
        loop = Loop(index, [self.fresh(type(v), "acc", v.type) for v in init])
        yield loop
        lines = self._close().lines
        if len(loop.yielded) != len(init):
            raise ValueError(f"the loop carries {len(init)} values, {len(loop.yielded)} yielded")
        head = f"scf.for {index.name} = {lo.name} to {hi.name} step {step.name}"
        if init:
            left, loop.results = self._results("for", init)
            pairs = ", ".join(f"{a} = {v}" for a, v in zip(loop.args, init, strict=True))
            head = f"{left}{head} iter_args({pairs}) -> ({', '.join(types)})"
            lines.append(f"scf.yield {_names(loop.yielded)} : {', '.join(types)}")
        self._regions[-1].lines += [head + " {", lines, "}"]

    @overload
    def if_(self, condition: Mask) -> AbstractContextManager[If[Register]]: ...

    @overload
    def if_(self, condition: Mask, kind: type[V]) -> AbstractContextManager[If[V]]: ...

    @contextlib.contextmanager
    def if_(self, condition: Mask, kind: type[Value] = Register) -> Iterator[If[Any]]:
        """Write an `scf.if`; each side calls `yield_` when there are results, of class `kind`."""
        self._open(barrier=not self.leaves_branches)
        branch: If[Value] = If(self)
        yield branch
        rest = self._close().lines
        then, other = branch.then_lines, branch.else_lines
        if other is None:
            then = rest
        elif rest:
            raise ValueError("nothing may follow the otherwise block")
        head = f"scf.if {condition}"
        types = [kind.of(v).type for v in branch.yielded]
        if types != (other_types := [v.type for v in branch.else_yielded]):
            raise ValueError(f"the sides of an if yield {types} and {other_types}")
        if types:
            left, branch.results = self._results("if", branch.yielded)
            head = f"{left}{head} -> ({', '.join(types)})"
            end = f" : {', '.join(types)}"
            then = [*then, f"scf.yield {_names(branch.yielded)}{end}"]
            other = [*(other or ()), f"scf.yield {_names(branch.else_yielded)}{end}"]
        lines = self._regions[-1].lines
        lines += [head + " {", then]
        if other:
            lines += ["} else {", other]
        lines.append("}")

    def either(
        self,
        condition: Mask,
        then: Callable[[], Sequence[V] | None],
        otherwise: Callable[[], Sequence[V] | None],
    ) -> list[V]:
        """Write an `scf.if` of both sides; the results of the one that runs."""
        with self.if_(condition, Value) as branch:
            branch.yield_(*(then() or ()))
            with branch.otherwise():
                branch.yield_(*(otherwise() or ()))
        return cast("list[V]", branch.results)

    def while_(
        self,
        init: Sequence[V],
        go_on: Callable[[list[V]], Mask],
        step: Callable[[list[V]], list[V]],
    ) -> list[V]:
        """Write an `scf.while`: carried values after the last `step`; `go_on` gives a scalar."""
        kinds = ", ".join(v.type for v in init)
        left, results = self._results("while", init)
        barrier = not self.leaves_branches
        self._open(barrier)
        before = [self.fresh(type(v), "w", v.type) for v in init]
        condition = go_on(before)
        carried = f" {_names(before)} : {kinds}" if init else ""
        first = [*self._close().lines, f"scf.condition({condition}){carried}"]
        self._open(barrier)
        after = [self.fresh(type(v), "w", v.type) for v in init]
        yielded = step(after)
        carried = f" {_names(yielded)} : {kinds}" if init else ""
        second = [*self._close().lines, f"scf.yield{carried}"]
        pairs = ", ".join(f"{a} = {v}" for a, v in zip(before, init, strict=True))
        block = ", ".join(f"{a}: {a.type}" for a in after)
        self._regions[-1].lines += [
            f"{left}scf.while ({pairs}) : ({kinds}) -> ({kinds}) {{",
            first,
            "} do {",
            f"^bb0({block}):",
            second,
            "}",
        ]
        return results

    def _results(self, hint: str, like: Sequence[V]) -> tuple[str, list[V]]:
        """Results with the types of `like` of one operation, and what is left of it in its line."""
        if not like:
            return "", []
        stem = self.fresh(type(like[0]), hint, like[0].type)
        if len(like) == 1:
            return f"{stem} = ", [stem]
        names = [f"{stem}#{i}" for i in range(len(like))]
        made = [type(v)(self, n, v.type, stem.depth) for n, v in zip(names, like, strict=True)]
        return f"{stem}:{len(like)} = ", made

    # ---------------------------------------------------------------- operations

    def constant(self, value: float | bool, type_: str) -> Register:
        """A scalar or splat constant at the function's entry; non-finite floats are exact.

        Raises TypeError for indices: see :meth:`index`.
        """
        return Register.of(self._constant(value, type_))

    def flags(self, value: bool, lanes: int = 0) -> Mask:
        """A mask with the same value in every lane."""
        return Mask.of(self._constant(value, vector_type(lanes, "i1")))

    def _constant(self, value: float | bool, type_: str) -> Value:
        element, lanes = element_type(type_), lanes_of(type_)
        literal = _literal(value, element)
        if (known := self._constants.get((literal, type_))) is not None:
            return known
        is_index = type_ == "index"
        hint = f"c{literal}".replace("-", "m") if is_index else "cst"
        body = f"dense<{literal}>" if lanes else literal
        suffix = "" if type_ == "i1" else f" : {type_}"
        made = self._enter(_kind(element), hint, f"arith.constant {body}{suffix}", type_)
        self._constants[literal, type_] = made
        made.is_constant = True
        if is_index:
            made.known = int(value)
        if element == "i1":
            made.constant_lanes = (float(value),) * max(lanes, 1)
        return made

    def op(self, name: str, *operands: V, type_: str = "", attrs: str = "") -> V:
        """An operation whose operands and result have one type: `arith.addf %a, %b : T`.

        `attrs` goes in front of the colon (`fastmath<contract>`).
        """
        first = operands[0]
        type_ = type_ or first.type
        if len(operands) == 2 and not attrs:
            right = f"{name} {first.name}, {operands[1].name} : {type_}"
        else:
            right = f"{name} {_names(operands)}{' ' if attrs else ''}{attrs} : {type_}"
        return self.define(type(first), right, type_, operands)

    def intrinsic(self, name: str, *operands: Register, type_: str) -> Register:
        """A call of an LLVM intrinsic that returns `type_`."""
        types = ", ".join(v.type for v in operands)
        right = f'llvm.call_intrinsic "{name}"({_names(operands)}) : ({types}) -> {type_}'
        return self.define(Register, right, type_, operands)

    def cast(self, name: str, operand: Value, element: str) -> Register:
        """`name %x : T to E`, as many lanes as the operand has; E is no index."""
        return Register.of(self._cast(name, operand, element))

    def to_index(self, name: str, operand: Register) -> IndexValue:
        """`name %x : T to index`, as many lanes as the operand has."""
        return IndexValue.of(self._cast(name, operand, "index"))

    def _cast(self, name: str, operand: Value, element: str) -> Value:
        type_ = operand.like(element)
        right = f"{name} {operand} : {operand.type} to {type_}"
        return self.define(_kind(element), right, type_, [operand])

    def bitcast(self, operand: Register, type_: str) -> Register:
        """The same bits as another type (`vector.bitcast` where the number of lanes changes)."""
        name = "arith" if operand.lanes == lanes_of(type_) else "vector"
        right = f"{name}.bitcast {operand} : {operand.type} to {type_}"
        kind = Mask if element_type(type_) == "i1" else Register
        return self.define(kind, right, type_, [operand])

    def cmpi(self, predicate: str, a: V, b: V) -> Mask:
        """`arith.cmpi`: eq ne slt sle sgt sge ult ule ugt uge."""
        return self._compare("arith.cmpi", predicate, a, b)

    def cmpf(self, predicate: str, a: Register, b: Register) -> Mask:
        """`arith.cmpf`: oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno."""
        return self._compare("arith.cmpf", predicate, a, b)

    def _compare(self, name: str, predicate: str, a: Value, b: Value) -> Mask:
        right = f"{name} {predicate}, {a}, {b} : {a.type}"
        return self.define(Mask, right, a.like("i1"), [a, b])

    def select(self, condition: Mask, a: V, b: V) -> V:
        """`arith.select`, scalar or lane-wise condition."""
        if a is b:
            return a
        types = f"{condition.type}, {a.type}" if condition.lanes else a.type
        right = f"arith.select {condition}, {a}, {b} : {types}"
        return self.define(type(a), right, a.type, [condition, a, b])

    def reduce_mask(self, how: str, mask: Mask) -> Mask:
        """The lanes of a mask joined by `how` ("and", "or"); a scalar is left alone."""
        if not mask.lanes:
            return mask
        return self.define(
            Mask, f"vector.reduction <{how}>, {mask} : {mask.type} into i1", "i1", [mask]
        )

    # ---------------------------------------------------------------- the end

    def index_constant(self, value: int, lanes: int) -> IndexValue:
        """An index constant in every lane."""
        return IndexValue.of(self._constant(value, vector_type(lanes, "index")))

    def dense(self, values: Sequence[float | bool], element: str) -> Register:
        """A vector constant with one value a lane."""
        return Register.of(self._dense(values, element))

    def dense_index(self, values: Sequence[int]) -> IndexValue:
        """An index constant with one value a lane."""
        return IndexValue.of(self._dense(values, "index"))

    def dense_mask(self, values: Sequence[bool]) -> Mask:
        """A constant mask."""
        return Mask.of(self._dense(values, "i1"))

    def _dense(self, values: Sequence[float | bool], element: str) -> Value:
        literal = ", ".join(_literal(v, element) for v in values)
        type_ = vector_type(len(values), element)
        if (known := self._constants.get((literal, type_))) is None:
            right = f"arith.constant dense<[{literal}]> : {type_}"
            known = self._enter(_kind(element), "cst", right, type_)
            self._constants[literal, type_] = known
            known.is_constant = True
            known.constant_lanes = tuple(values)
        return known

    def broadcast(self, scalar: V, lanes: int) -> V:
        """The scalar in every lane; a vector and `lanes` 0 are left alone."""
        if scalar.lanes or not lanes:
            return scalar
        type_ = vector_type(lanes, scalar.type)
        right = f"vector.broadcast {scalar} : {scalar.type} to {type_}"
        return self.define(type(scalar), right, type_, [scalar])

    def bf16_to_f32(self, value: Register) -> Register:
        """The f32 of floats whose bits are in i16."""
        bits = value.cast("arith.extui", "i32") << 16
        return self.bitcast(bits, bits.like("f32"))

    def bf16_quotient(self, a: Register, b: Register) -> Register:
        """An f32 that rounds to the bf16 next to `a / b`, for f32 with the values of bf16."""
        return a / b

    def signed(self, size: Register, sign: Register) -> Register:
        """`size`, whose own sign is +, with the sign of `sign`."""
        return size.copysign(sign)

    def ordinary_quotient(self, a: Register, b: Register) -> Register:
        """`a / b`, correctly rounded, where no step of a division leaves the normal numbers.

        So it is for |b| of 2^-60 to 2^60 if |a| is likewise. `a` may also be +0, and any denormal
        if `b` is a power of two that is at least 1. NaNs are handed on.
        """
        return a / b

    def has_ldexp(self, type_: str) -> bool:
        """True if `x * 2^n` on `type_` is one instruction of the target; see
        `math/exponential.py`.
        """
        return False

    def unchosen(self, value: Register) -> Register:
        """`value`, of which LLVM does not see that it is a choice of two values.

        Where one of them was loaded from the place that the choice is stored to, LLVM stores the
        other one under a mask.
        """
        return value

    def joined(self, elements: Sequence[Register]) -> Register:
        """Scalars of one type as the lanes of a vector."""
        type_ = vector_type(len(elements), elements[0].type)
        names = ", ".join(map(str, elements))
        return self.define(Register, f"vector.from_elements {names} : {type_}", type_, elements)

    def extract(self, vector: V, lane: IndexLike) -> V:
        """One lane: `lane` is an int, or an index known at run time."""
        operands: list[Value] = [vector]
        operands += [lane] if isinstance(lane, IndexValue) else []
        right = f"vector.extract {vector}[{lane}] : {vector.element} from {vector.type}"
        return self.define(type(vector), right, vector.element, operands)

    def insert(self, value: V, vector: V, lane: IndexValue) -> V:
        """`vector` with one lane replaced."""
        right = f"vector.insert {value}, {vector}[{lane}] : {value.type} into {vector.type}"
        return self.define(type(vector), right, vector.type, [value, vector, lane])

    def shuffle(self, a: V, b: V, lanes: Sequence[int]) -> V:
        """`vector.shuffle`: lanes of a, then of b."""
        type_ = vector_type(len(lanes), a.element)
        right = f"vector.shuffle {a}, {b} {list(lanes)} : {a.type}, {b.type}"
        return self.define(type(a), right, type_, [a, b])

    # ---------------------------------------------------------------- index arithmetic

    def index(self, value: IndexLike) -> IndexValue:
        """An int as index constant; an index is left alone."""
        if not isinstance(value, int):
            return value
        known = self._indices.get(value)
        if known is None:
            known = self._indices[value] = self.index_constant(value, 0)
        return known

    def _pair(
        self, a: IndexLike, b: IndexLike
    ) -> tuple[IndexValue, IndexValue, int | None, int | None]:
        """Both operands as values of one (scalar or vector) index type, and what they are."""
        a = self.index(a) if isinstance(a, int) else a
        b = self.index(b) if isinstance(b, int) else b
        va, vb = a.known, b.known
        if a.lanes != b.lanes:
            lanes = max(a.lanes, b.lanes)
            a, b = self.broadcast(a, lanes), self.broadcast(b, lanes)
        return a, b, va, vb

    def add(self, a: IndexLike, b: IndexLike) -> IndexValue:
        """The sum on index (or lanes of index); folds constants and zero."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb is not None and not x.lanes:
            return self.index(va + vb)
        return x if vb == 0 else y if va == 0 else self.op("arith.addi", x, y)

    def sub(self, a: IndexLike, b: IndexLike) -> IndexValue:
        """The difference on index."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb is not None and not x.lanes:
            return self.index(va - vb)
        return x if vb == 0 else self.op("arith.subi", x, y)

    def mul(self, a: IndexLike, b: IndexLike) -> IndexValue:
        """The product on index."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb is not None and not x.lanes:
            return self.index(va * vb)
        if 0 in (va, vb) and not x.lanes:
            return self.index(0)
        return x if vb == 1 else y if va == 1 else self.op("arith.muli", x, y)

    def div(self, a: IndexLike, b: IndexLike) -> IndexValue:
        """The quotient of non-negative a and positive b."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb and not x.lanes:
            return self.index(va // vb)
        return x if vb == 1 else self.op("arith.divui", x, y)

    def rem(self, a: IndexLike, b: IndexLike) -> IndexValue:
        """The remainder of non-negative a and positive b."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb and not x.lanes:
            return self.index(va % vb)
        return self.op("arith.remui", x, y)

    def min(self, a: IndexLike, b: IndexLike) -> IndexValue:
        """The smaller, signed."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb is not None and not x.lanes:
            return self.index(min(va, vb))
        return self.op("arith.minsi", x, y)

    def max(self, a: IndexLike, b: IndexLike) -> IndexValue:
        """The larger, signed."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb is not None and not x.lanes:
            return self.index(max(va, vb))
        return self.op("arith.maxsi", x, y)

    def compare_indices(self, predicate: str, a: IndexLike, b: IndexLike) -> Mask:
        """`arith.cmpi` of indices."""
        x, y, _, _ = self._pair(a, b)
        return self.cmpi(predicate, x, y)

    # ---------------------------------------------------------------- the end

    def at_end(self, forget: Callable[[], object]) -> None:
        """Have `forget` called when the text is finished, or given up."""
        self._at_end.append(forget)

    def forget(self) -> None:
        """Forget what is known of values. Nothing can be written afterwards.

        What writes a text and what the text remembers refer to each other, and to the MLIR module:
        these circles are cut, so that the module is freed without Python's collector.
        """
        self._pure.clear()
        self._remembered.clear()
        while self._at_end:
            self._at_end.pop()()


def _names(values: Iterable[Value]) -> str:
    return ", ".join([v.name for v in values])

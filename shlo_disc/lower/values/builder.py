"""The text of one kernel while it is written: SSA names, regions, constants, sizes.

Every name knows its type and the region that defines it. A *pure* operation is put into the
outermost region where its operands live, so loop-invariant code leaves its loop while it is
written, and an operation written twice gives one name. Names are counted, never random: equal
kernels have equal texts and are compiled once.

    b = KernelBuilder()
    x, n = b.memref(0, "f32"), b.param(size)
    with b.loop(b.lo, b.hi, 1) as task:
        with b.loop(0, n, 1, init=[zero], hint="j") as col:
            v = b.load(x, b.add(b.mul(task.index, n), col.index))
            col.yield_(b.op("arith.addf", col.args[0], v))
        b.store(col.results[0], y, task.index)
    text, params = b.finish()
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from shlo_disc.dynamic.expr import Expr

__all__ = ["If", "KernelBuilder", "Loop", "element_type", "lanes_of", "vector_type"]

_STRUCT = "!llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>"
_VECTOR = re.compile(r"vector<(\d+)x(\w+)>")


def element_type(type_: str) -> str:
    """`f32` of `vector<16xf32>` and of `f32`."""
    match = _VECTOR.fullmatch(type_)
    return match[2] if match else type_


def lanes_of(type_: str) -> int:
    """16 of `vector<16xf32>`; 0 of a scalar type."""
    match = _VECTOR.fullmatch(type_)
    return int(match[1]) if match else 0


def vector_type(lanes: int, element: str) -> str:
    """`vector<16xf32>`; the element itself when `lanes` is 0."""
    return f"vector<{lanes}x{element}>" if lanes else element


def like(type_: str, element: str) -> str:
    """`element` with as many lanes as `type_`."""
    return vector_type(lanes_of(type_), element)


def _literal(value: float | bool, element: str) -> str:
    """`value` as MLIR prints a constant of type `element`, exact for every float and NaN."""
    if element == "i1":
        return "true" if value else "false"
    if not element.startswith(("f", "bf")):
        return str(int(value))
    value = float(value)
    if math.isfinite(value):
        text = repr(value)
        mantissa, _, exponent = text.partition("e")
        mantissa += "" if "." in mantissa else ".0"
        return f"{mantissa}e{exponent}" if exponent else mantissa
    sign = math.copysign(1.0, value) < 0
    bits, exponent_bits = {"f64": (64, 11), "f32": (32, 8), "f16": (16, 5), "bf16": (16, 8)}[
        element
    ]
    pattern = ((1 << exponent_bits) - 1) << (bits - 1 - exponent_bits)
    if math.isnan(value):
        pattern |= 1 << (bits - 2 - exponent_bits)
    return f"0x{pattern | (sign << (bits - 1)):0{bits // 4}X}"


@dataclass
class _Region:
    """The lines of one open region, and the pure operations already in it."""

    barrier: bool
    """Pure operations must not leave it: they would be computed when it is not entered."""
    lines: list[str] = field(default_factory=list)
    known: dict[object, object] = field(default_factory=dict)


@dataclass
class Loop:
    """An `scf.for` being written."""

    index: str
    args: list[str]
    """The carried values inside the body."""
    results: list[str] = field(default_factory=list)
    """The carried values after the loop; filled when it is closed."""
    yielded: tuple[str, ...] = ()

    def yield_(self, *values: str) -> None:
        """What the next iteration (or the end) sees as `args`."""
        self.yielded = values


@dataclass
class If:
    """An `scf.if` being written; `with branch.otherwise():` writes the other side."""

    text: KernelBuilder
    results: list[str] = field(default_factory=list)
    yielded: tuple[str, ...] = ()
    else_lines: list[str] | None = None
    else_yielded: tuple[str, ...] = ()
    then_lines: list[str] = field(default_factory=list)
    in_else: bool = False

    def yield_(self, *values: str) -> None:
        """The results of the side being written."""
        if self.in_else:
            self.else_yielded = values
        else:
            self.yielded = values

    @contextlib.contextmanager
    def otherwise(self) -> Iterator[None]:
        """Write the side taken when the condition is false (inside the `if_` block, last)."""
        self.then_lines = self.text._close().lines
        self.text._open(barrier=True)
        self.in_else = True
        yield
        self.else_lines = self.text._close().lines
        self.text._open(barrier=True)


class KernelBuilder:
    """A kernel function under construction; see the module's example."""

    def __init__(self) -> None:
        self._regions = [_Region(barrier=True)]
        self._at_end: list[Callable[[], object]] = []
        self._entry: list[str] = []
        self._counts: dict[str, int] = {}
        self._types: dict[str, str] = {}
        self._depths: dict[str, int] = {}
        self._constants: dict[tuple[str, str], str] = {}
        self._constant_names: set[str] = set()
        self._values: dict[str, int] = {}
        self._lanes: dict[str, tuple[float, ...]] = {}
        self._params: dict[Expr, str] = {}
        self._memrefs: dict[tuple[object, ...], str] = {}
        for name, type_ in (
            ("%args", "!llvm.ptr"),
            ("%params", "!llvm.ptr"),
            ("%scratch", "!llvm.ptr"),
        ):
            self._types[name] = type_
            self._depths[name] = 0
        self.lo = self._enter("lo_", "arith.index_cast %lo : i64 to index", "index")
        """The first task, as index."""
        self.hi = self._enter("hi_", "arith.index_cast %hi : i64 to index", "index")
        """One past the last task, as index."""

    # ---------------------------------------------------------------- names and regions

    def fresh(self, hint: str = "v", type_: str = "") -> str:
        """A new SSA name, defined in the current region by a line the caller emits."""
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        name = f"%{hint}_{count}" if count else f"%{hint}"
        self._types[name] = type_
        self._depths[name] = len(self._regions) - 1
        return name

    def type_of(self, name: str) -> str:
        """The type of an SSA name."""
        return self._types[name]

    def is_constant(self, name: str) -> bool:
        """Whether `name` came from :meth:`constant` or :meth:`dense`."""
        return name in self._constant_names

    def depth_of(self, name: str) -> int:
        """How many regions enclose the definition of `name`."""
        return self._depths[name]

    def value_of(self, name: str) -> int | None:
        """The value of an index constant, None of anything else."""
        return self._values.get(name)

    def emit(self, line: str) -> None:
        """Append a line (of a side effect, or defining fresh names) to the current region."""
        self._regions[-1].lines.append(line)

    def define(
        self, right: str, type_: str, operands: Sequence[str], hint: str = "v", pure: bool = True
    ) -> str:
        """The name of `right`, an operation without its result; see the module on purity."""
        depth = len(self._regions) - 1
        if pure:
            depth = max((self._depths[o] for o in operands), default=0)
            depth = max(depth, self.barrier())
            for region in self._regions[: depth + 1]:
                if (known := region.known.get(right)) is not None:
                    return str(known)
        name = self.fresh(hint, type_)
        self._depths[name] = depth
        self._regions[depth].lines.append(f"{name} = {right}")
        if pure:
            self._regions[depth].known[right] = name
        return name

    def barrier(self) -> int:
        """The depth pure operations may rise to."""
        return max(i for i, region in enumerate(self._regions) if region.barrier)

    def recall(self, key: object) -> object | None:
        """What :meth:`remember` stored in a region that is still open."""
        for region in reversed(self._regions):
            if (known := region.known.get(key)) is not None:
                return known
        return None

    def remember(self, key: object, value: object, depth: int | None = None) -> None:
        """Keep `value` under `key` while the region at `depth` (now: the current) is open."""
        self._regions[-1 if depth is None else depth].known[key] = value

    def _open(self, barrier: bool) -> None:
        self._regions.append(_Region(barrier))

    def _close(self) -> _Region:
        return self._regions.pop()

    def _enter(self, hint: str, right: str, type_: str) -> str:
        """A name defined at the function's entry, in front of everything else."""
        name = self.fresh(hint, type_)
        self._depths[name] = 0
        self._entry.append(f"{name} = {right}")
        return name

    @contextlib.contextmanager
    def loop(
        self,
        lo: str | int,
        hi: str | int,
        step: str | int = 1,
        init: Sequence[str] = (),
        hint: str = "i",
        barrier: bool = False,
    ) -> Iterator[Loop]:
        """Write an `scf.for` over index; call `yield_` in it when it carries values.

        `barrier` keeps pure operations inside (when the loop may run zero times and they read
        memory that then does not exist).
        """
        lo, hi, step = self.index(lo), self.index(hi), self.index(step)
        self._open(barrier)
        types = [self._types[v] for v in init]
        loop = Loop(self.fresh(hint, "index"), [self.fresh("acc", t) for t in types])
        yield loop
        lines = self._close().lines
        if len(loop.yielded) != len(init):
            raise ValueError(f"the loop carries {len(init)} values, {len(loop.yielded)} yielded")
        head, tail = f"scf.for {loop.index} = {lo} to {hi} step {step}", []
        if init:
            loop.results = self._results("for", types)
            pairs = ", ".join(f"{a} = {v}" for a, v in zip(loop.args, init, strict=True))
            head = f"{self._left(loop.results)} = {head} iter_args({pairs}) -> ({', '.join(types)})"
            tail = [f"  scf.yield {', '.join(loop.yielded)} : {', '.join(types)}"]
        self._regions[-1].lines += [head + " {", *("  " + line for line in lines), *tail, "}"]

    @contextlib.contextmanager
    def if_(self, condition: str, types: Sequence[str] | None = None) -> Iterator[If]:
        """Write an `scf.if`; each side calls `yield_` when there are results.

        Their types are what is yielded; `types` may say them again as a check.
        """
        self._open(barrier=True)
        branch = If(self)
        yield branch
        rest = self._close().lines
        then, other = branch.then_lines, branch.else_lines
        if other is None:
            then = rest
        elif rest:
            raise ValueError("nothing may follow the otherwise block")
        head = f"scf.if {condition}"
        given = [self._types[v] for v in branch.yielded]
        other_types = [self._types[v] for v in branch.else_yielded]
        if given != other_types or (types is not None and list(types) != given):
            raise ValueError(f"the sides of an if yield {given} and {other_types}")
        types = given
        if types:
            branch.results = self._results("if", types)
            head = f"{self._left(branch.results)} = {head} -> ({', '.join(types)})"
            end = f" : {', '.join(types)}"
            then = [*then, f"scf.yield {', '.join(branch.yielded)}{end}"]
            other = [*(other or ()), f"scf.yield {', '.join(branch.else_yielded)}{end}"]
        lines = self._regions[-1].lines
        lines += [head + " {", *("  " + line for line in then)]
        if other:
            lines += ["} else {", *("  " + line for line in other)]
        lines.append("}")

    @contextlib.contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """Any other operation with one region: `head` ends with `{`; nothing rises out of it."""
        self._open(barrier=True)
        yield
        lines = self._close().lines
        self._regions[-1].lines += [head, *("  " + line for line in lines), tail]

    def while_(
        self,
        init: Sequence[str],
        go_on: Callable[[list[str]], str],
        step: Callable[[list[str]], list[str]],
    ) -> list[str]:
        """Write an `scf.while`: carried values after the last `step`; `go_on` gives a scalar i1."""
        types = [self._types[v] for v in init]
        kinds = ", ".join(types)
        results = self._results("while", types)
        self._open(barrier=True)
        before = [self.fresh("w", t) for t in types]
        condition = go_on(before)
        first = [*self._close().lines, f"scf.condition({condition}) {', '.join(before)} : {kinds}"]
        self._open(barrier=True)
        after = [self.fresh("w", t) for t in types]
        yielded = step(after)
        second = [*self._close().lines, f"scf.yield {', '.join(yielded)} : {kinds}"]
        pairs = ", ".join(f"{a} = {v}" for a, v in zip(before, init, strict=True))
        block = ", ".join(f"{a}: {t}" for a, t in zip(after, types, strict=True))
        self._regions[-1].lines += [
            f"{self._left(results)} = scf.while ({pairs}) : ({kinds}) -> ({kinds}) {{",
            *("  " + line for line in first),
            "} do {",
            f"^bb0({block}):",
            *("  " + line for line in second),
            "}",
        ]
        return results

    def _results(self, hint: str, types: Sequence[str]) -> list[str]:
        stem = self.fresh(hint, types[0])
        if len(types) == 1:
            return [stem]
        names = [f"{stem}#{i}" for i in range(len(types))]
        for name, type_ in zip(names, types, strict=True):
            self._types[name] = type_
            self._depths[name] = len(self._regions) - 1
        return names

    @staticmethod
    def _left(results: Sequence[str]) -> str:
        return results[0] if len(results) == 1 else f"{results[0].split('#')[0]}:{len(results)}"

    # ---------------------------------------------------------------- operations

    def constant(self, value: float | bool, type_: str) -> str:
        """A scalar or splat constant at the function's entry; non-finite floats are exact."""
        literal = _literal(value, element_type(type_))
        if (known := self._constants.get((literal, type_))) is not None:
            return known
        is_index = type_ == "index"
        hint = f"c{literal}".replace("-", "m") if is_index else "cst"
        body = f"dense<{literal}>" if lanes_of(type_) else literal
        suffix = "" if type_ == "i1" else f" : {type_}"
        name = self._enter(hint, f"arith.constant {body}{suffix}", type_)
        self._constants[literal, type_] = name
        self._constant_names.add(name)
        if is_index:
            self._values[name] = int(value)
        return name

    def dense(self, values: Sequence[float | bool], element: str) -> str:
        """A vector constant with one value a lane."""
        literal = ", ".join(_literal(v, element) for v in values)
        type_ = vector_type(len(values), element)
        if (known := self._constants.get((literal, type_))) is None:
            known = self._enter("cst", f"arith.constant dense<[{literal}]> : {type_}", type_)
            self._constants[literal, type_] = known
            self._constant_names.add(known)
            self._lanes[known] = tuple(values)
        return known

    def lanes_known(self, name: str) -> tuple[float, ...] | None:
        """Every lane of a constant of :meth:`dense`; None of any other value."""
        return self._lanes.get(name)

    def op(self, name: str, *operands: str, type_: str = "", attrs: str = "") -> str:
        """An operation whose operands and result have one type: `arith.addf %a, %b : T`.

        `attrs` goes in front of the colon (`fastmath<contract>`).
        """
        type_ = type_ or self._types[operands[0]]
        attrs = f" {attrs}" if attrs else ""
        return self.define(f"{name} {', '.join(operands)}{attrs} : {type_}", type_, operands)

    def cast(self, name: str, operand: str, element: str) -> str:
        """`name %x : T to E`, as many lanes as the operand has."""
        source = self._types[operand]
        type_ = like(source, element)
        return self.define(f"{name} {operand} : {source} to {type_}", type_, [operand])

    def bitcast(self, operand: str, type_: str) -> str:
        """The same bits as another type (`vector.bitcast` where the number of lanes changes)."""
        source = self._types[operand]
        name = "arith" if lanes_of(source) == lanes_of(type_) else "vector"
        return self.define(f"{name}.bitcast {operand} : {source} to {type_}", type_, [operand])

    def cmpi(self, predicate: str, a: str, b: str) -> str:
        """`arith.cmpi`: eq ne slt sle sgt sge ult ule ugt uge."""
        return self._compare("arith.cmpi", predicate, a, b)

    def cmpf(self, predicate: str, a: str, b: str) -> str:
        """`arith.cmpf`: oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno."""
        return self._compare("arith.cmpf", predicate, a, b)

    def _compare(self, name: str, predicate: str, a: str, b: str) -> str:
        type_ = self._types[a]
        right = f"{name} {predicate}, {a}, {b} : {type_}"
        return self.define(right, like(type_, "i1"), [a, b])

    def select(self, condition: str, a: str, b: str) -> str:
        """`arith.select`, scalar or lane-wise condition."""
        if a == b:
            return a
        type_, of = self._types[a], self._types[condition]
        types = f"{of}, {type_}" if lanes_of(of) else type_
        return self.define(
            f"arith.select {condition}, {a}, {b} : {types}", type_, [condition, a, b]
        )

    def broadcast(self, scalar: str, lanes: int) -> str:
        """The scalar in every lane; a vector and `lanes` 0 are left alone."""
        source = self._types[scalar]
        if lanes_of(source) or not lanes:
            return scalar
        type_ = vector_type(lanes, source)
        return self.define(f"vector.broadcast {scalar} : {source} to {type_}", type_, [scalar])

    def has_ldexp(self, type_: str) -> bool:
        """Is `x * 2^n` on `type_` one instruction? A target says so; see `math/exponential.py`."""
        return False

    def extract(self, vector: str, lane: int) -> str:
        """One lane, known now."""
        type_ = self._types[vector]
        right = f"vector.extract {vector}[{lane}] : {element_type(type_)} from {type_}"
        return self.define(right, element_type(type_), [vector])

    def shuffle(self, a: str, b: str, lanes: Sequence[int]) -> str:
        """`vector.shuffle`: lanes of a, then of b."""
        ta, tb = self._types[a], self._types[b]
        type_ = vector_type(len(lanes), element_type(ta))
        right = f"vector.shuffle {a}, {b} {list(lanes)} : {ta}, {tb}"
        return self.define(right, type_, [a, b])

    # ---------------------------------------------------------------- index arithmetic

    def index(self, value: str | int) -> str:
        """`value` as the name of an index."""
        return self.constant(value, "index") if isinstance(value, int) else value

    def _pair(self, a: str | int, b: str | int) -> tuple[str, str, int | None, int | None]:
        """Both operands as names of one (scalar or vector) index type, and their values."""
        a, b = self.index(a), self.index(b)
        lanes = max(lanes_of(self._types[a]), lanes_of(self._types[b]))
        va, vb = self._values.get(a), self._values.get(b)
        return self.broadcast(a, lanes), self.broadcast(b, lanes), va, vb

    def add(self, a: str | int, b: str | int) -> str:
        """The sum on index (or lanes of index); ints welcome; folds constants and zero."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb is not None and not lanes_of(self._types[x]):
            return self.index(va + vb)
        return x if vb == 0 else y if va == 0 else self.op("arith.addi", x, y)

    def sub(self, a: str | int, b: str | int) -> str:
        """The difference on index."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb is not None and not lanes_of(self._types[x]):
            return self.index(va - vb)
        return x if vb == 0 else self.op("arith.subi", x, y)

    def mul(self, a: str | int, b: str | int) -> str:
        """The product on index."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb is not None and not lanes_of(self._types[x]):
            return self.index(va * vb)
        if 0 in (va, vb) and not lanes_of(self._types[x]):
            return self.index(0)
        return x if vb == 1 else y if va == 1 else self.op("arith.muli", x, y)

    def div(self, a: str | int, b: str | int) -> str:
        """The quotient of non-negative a and positive b."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb and not lanes_of(self._types[x]):
            return self.index(va // vb)
        return x if vb == 1 else self.op("arith.divui", x, y)

    def rem(self, a: str | int, b: str | int) -> str:
        """The remainder of non-negative a and positive b."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb and not lanes_of(self._types[x]):
            return self.index(va % vb)
        return self.op("arith.remui", x, y)

    def min(self, a: str | int, b: str | int) -> str:
        """The smaller, signed."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb is not None and not lanes_of(self._types[x]):
            return self.index(min(va, vb))
        return self.op("arith.minsi", x, y)

    def max(self, a: str | int, b: str | int) -> str:
        """The larger, signed."""
        x, y, va, vb = self._pair(a, b)
        if va is not None and vb is not None and not lanes_of(self._types[x]):
            return self.index(max(va, vb))
        return self.op("arith.maxsi", x, y)

    # ---------------------------------------------------------------- memory

    def param(self, size: Expr | int, opaque: bool = False) -> str:
        """A symbolic size as index: a kernel parameter, or a constant when it is one.

        `opaque` makes a constant a parameter too: as the bound of a loop it would be unrolled
        fully, which costs more compile time than it saves.
        """
        if isinstance(size, int):
            size = Expr.const(size)
        if size.is_const and not opaque:
            return self.constant(size.value, "index")
        if size not in self._params:
            self._params[size] = self._load_param(len(self._params))
        return self._params[size]

    def _load_param(self, number: int) -> str:
        at = self._enter(
            "p",
            f"llvm.getelementptr %params[{number}] : (!llvm.ptr) -> !llvm.ptr, i64",
            "!llvm.ptr",
        )
        raw = self._enter("n", f"llvm.load {at} : !llvm.ptr -> i64", "i64")
        return self._enter("n", f"arith.index_cast {raw} : i64 to index", "index")

    def pointer(self, arg: int) -> str:
        """The data pointer of launch argument `arg`."""
        key = ("pointer", arg)
        if key not in self._memrefs:
            at = "%args"
            if arg:
                right = f"llvm.getelementptr %args[{arg}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr"
                at = self._enter("p", right, "!llvm.ptr")
            right = f"llvm.load {at} : !llvm.ptr -> !llvm.ptr"
            self._memrefs[key] = self._enter("p", right, "!llvm.ptr")
        return self._memrefs[key]

    def memref(self, arg: int, element: str) -> str:
        """Launch argument `arg` as `memref<?xELEMENT>`."""
        return self.memref_at(self.pointer(arg), element)

    def scratch(self, element: str, offset_bytes: str | int = 0) -> str:
        """The worker's scratch memory from `offset_bytes` on, as `memref<?xELEMENT>`."""
        offset = self.index(offset_bytes)
        if self._values.get(offset) == 0:
            return self.memref_at("%scratch", element)
        raw = self.define(f"arith.index_cast {offset} : index to i64", "i64", [offset])
        right = f"llvm.getelementptr %scratch[{raw}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
        return self.memref_at(self.define(right, "!llvm.ptr", [raw]), element)

    def memref_at(self, pointer: str, element: str) -> str:
        """The memory from `pointer` on as `memref<?xELEMENT>` (its size is never asked for)."""
        type_ = f"memref<?x{element}>"
        one = self._raw_constant(1)
        value = self.define(f"llvm.mlir.poison : {_STRUCT}", _STRUCT, [])
        fields = [("0", pointer), ("1", pointer), ("2", self._raw_constant(0)), ("3, 0", one)]
        for place, part in [*fields, ("4, 0", one)]:
            right = f"llvm.insertvalue {part}, {value}[{place}] : {_STRUCT}"
            value = self.define(right, _STRUCT, [part, value])
        right = f"builtin.unrealized_conversion_cast {value} : {_STRUCT} to {type_}"
        return self.define(right, type_, [value], hint="m")

    def _raw_constant(self, value: int) -> str:
        return self.define(f"llvm.mlir.constant({value} : i64) : i64", "i64", [])

    def load(self, memory: str, index: str | int, readonly: bool = True) -> str:
        """One element. `readonly`: nothing in this kernel writes it, so the load may move."""
        index, type_ = self.index(index), self._types[memory]
        right = f"memref.load {memory}[{index}] : {type_}"
        return self.define(right, _pointee(type_), [memory, index], pure=readonly)

    def store(self, value: str, memory: str, index: str | int) -> None:
        """Write one element."""
        self.emit(f"memref.store {value}, {memory}[{self.index(index)}] : {self._types[memory]}")

    def vector_load(self, memory: str, index: str | int, lanes: int, readonly: bool = True) -> str:
        """`lanes` consecutive elements, no alignment asked for."""
        index, type_ = self.index(index), self._types[memory]
        vector = vector_type(lanes, _pointee(type_))
        right = f"vector.load {memory}[{index}] : {type_}, {vector}"
        return self.define(right, vector, [memory, index], pure=readonly)

    def vector_store(self, value: str, memory: str, index: str | int) -> None:
        """Write consecutive elements."""
        types = f"{self._types[memory]}, {self._types[value]}"
        self.emit(f"vector.store {value}, {memory}[{self.index(index)}] : {types}")

    def prefetch(self, memory: str, index: str | int) -> None:
        """Ask for an element's cache line in L2; the index may be out of bounds."""
        type_ = self._types[memory]
        self.emit(
            f"memref.prefetch {memory}[{self.index(index)}], read, locality<2>, data : {type_}"
        )

    def masked_load(
        self, memory: str, index: str | int, mask: str, other: str, readonly: bool = True
    ) -> str:
        """Consecutive elements where `mask`, lanes of `other` elsewhere (memory not touched)."""
        index, type_, vector = self.index(index), self._types[memory], self._types[other]
        right = (
            f"vector.maskedload {memory}[{index}], {mask}, {other} : "
            f"{type_}, {self._types[mask]}, {vector} into {vector}"
        )
        return self.define(right, vector, [memory, index, mask, other], pure=readonly)

    def masked_store(self, value: str, memory: str, index: str | int, mask: str) -> None:
        """Write consecutive elements where `mask`."""
        types = ", ".join(self._types[v] for v in (memory, mask, value))
        self.emit(f"vector.maskedstore {memory}[{self.index(index)}], {mask}, {value} : {types}")

    def gather(
        self,
        memory: str,
        index: str | int,
        offsets: str,
        mask: str,
        other: str,
        readonly: bool = True,
    ) -> str:
        """Elements at `index + offsets` (lanes of index or iN) where `mask`, else `other`."""
        index, vector = self.index(index), self._types[other]
        right = (
            f"vector.gather {memory}[{index}] [{offsets}], {mask}, {other} : "
            f"{self._types[memory]}, {self._types[offsets]}, {self._types[mask]}, {vector} "
            f"into {vector}"
        )
        operands = [memory, index, offsets, mask, other]
        return self.define(right, vector, operands, pure=readonly)

    def scatter(self, value: str, memory: str, index: str | int, offsets: str, mask: str) -> None:
        """Write lanes at `index + offsets` where `mask`, in lane order."""
        types = ", ".join(self._types[v] for v in (memory, offsets, mask, value))
        self.emit(
            f"vector.scatter {memory}[{self.index(index)}] [{offsets}], {mask}, {value} : {types}"
        )

    def mask(self, count: str | int, lanes: int) -> str:
        """True in the first `count` lanes."""
        count = self.index(count)
        type_ = vector_type(lanes, "i1")
        return self.define(f"vector.create_mask {count} : {type_}", type_, [count], hint="mask")

    def iota(self, lanes: int, element: str = "index") -> str:
        """0, 1, 2, ... lane by lane."""
        return self.dense(range(lanes), element)

    # ---------------------------------------------------------------- the end

    def at_end(self, forget: Callable[[], object]) -> None:
        """Have `forget` called when the text is finished, or given up."""
        self._at_end.append(forget)

    def forget(self) -> None:
        """Forget what is known of values. Nothing can be written afterwards.

        What writes a text and what the text remembers refer to each other, and to the MLIR module:
        these circles are cut, so that the module is freed without Python's collector.
        """
        self._regions[0].known.clear()
        while self._at_end:
            self._at_end.pop()()

    def finish(self) -> tuple[str, tuple[Expr, ...]]:
        """The text of the function, and the sizes it expects as params, in order. Nothing can be
        written afterwards.
        """
        if len(self._regions) != 1:
            raise ValueError("a region is still open")
        head, *first = self.head()
        lines = [*first, *self._entry, *self._regions[0].lines, "return"]
        self.forget()
        return "\n".join([head, *("  " + line for line in lines), "}\n"]), tuple(self._params)

    def head(self) -> list[str]:
        """The lines that open the function and define %args, %params, %lo, %hi and %scratch.

        A target whose kernels are called otherwise (see `plan.Kernel`) overrides this.
        """
        return [
            "func.func @KERNEL(%args: !llvm.ptr, %params: !llvm.ptr, %lo: i64, %hi: i64, "
            "%scratch: !llvm.ptr) {"
        ]


def _pointee(memref: str) -> str:
    """`f32` of `memref<?xf32>`."""
    return memref[len("memref<?x") : -1]

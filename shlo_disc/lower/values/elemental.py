"""The value of any tensor of a fusion at any index, as registers.

`Elemental.value_at(value, index, mask)` emits what computes one element (uniform index) or one
element a lane, recursively from the consumer to the operands of the fusion. It is memoised by
(value, index, mask) as long as the result is in scope. Lanes off in `mask` touch no memory and may
hold anything. An index that is the same in all lanes gives a scalar register.

The design is XLA's elemental IR emitter (`xla/service/elemental_ir_emitter.cc`), with lanes and
symbolic sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import numpy as np

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import ELEMENT_TYPES, ElementType
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.lower.plan import Buffer, Input, Kernel, KernelText, Launch, Output
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elements import element_of, unsupported, wrap
from shlo_disc.lower.values.elementwise import SCALAR_OPS, emit_scalar
from shlo_disc.lower.values.index import Group, Index, Ix, Space
from shlo_disc.lower.values.pairs import load_pairs
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, vector_type

Rule = Callable[["Elemental", ir.Operation, ir.Value, Index, Mask | None], Register]
"""How an op that moves or loops computes one element: (emitter, op, result, index, mask)."""


@functools.cache
def _rule(name: str) -> Rule | None:
    """The rule of the op `name`, if it has one: the modules of rules need this one."""
    from shlo_disc.lower.values.data_movement import DATA_MOVEMENT  # noqa: PLC0415

    if name in DATA_MOVEMENT:
        return DATA_MOVEMENT[name]
    from shlo_disc.lower.values.reduction import REDUCTIONS  # noqa: PLC0415

    return REDUCTIONS.get(name)


_LARGEST_INDEX = 2**63 - 1

_CLOSE = 4
"""Vectors that are loaded whole and sorted, at most, where lanes are near each other."""


Size = Expr | int
Made = tuple[KernelText, tuple[Expr, ...]]
"""What :meth:`KernelBuilder.finish` gives."""


class Arguments:
    """The pointers a kernel takes, in order of first use."""

    def __init__(self, buffers: Iterable[Buffer] = ()) -> None:
        self.buffers: list[Buffer] = [*buffers]
        self._slots: dict[Buffer, int] = {}

    def slot(self, buffer: Buffer) -> int:
        """The position of `buffer` among the launch arguments."""
        if buffer not in self._slots:
            self._slots[buffer] = self.add(buffer)
        return self._slots[buffer]

    def add(self, buffer: Buffer) -> int:
        """A position of its own for `buffer`, which may have others."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def launch(
        self, made: Made, name: str, extent: Expr, cost: Size = 1, scratch: Size = 0
    ) -> Launch:
        """A finished kernel over these arguments and `extent` tasks; see `Launch`."""
        kernel, numbers = Kernel(name, made[0]), (Expr.of(cost), Expr.of(scratch))
        return Launch(kernel, tuple(self.buffers), made[1], extent, *numbers)


@dataclass(frozen=True)
class Read:
    """A read of an operand with a step between lanes."""

    value: ir.Value
    index: Index
    is_close: bool
    """The step is a small constant: whole vectors are loaded."""


class Elemental:
    """Emits values of one fusion into one kernel."""

    def __init__(
        self,
        b: KernelBuilder,
        space: Space,
        shapes: ShapeAnalysis,
        block: ir.Block,
        arguments: Arguments,
    ) -> None:
        self.b, self.space, self.shapes, self.arguments = b, space, shapes, arguments
        self.lanes = space.lanes
        self.block = block
        self.inputs = {argument: i for i, argument in enumerate(block.arguments)}
        self.overrides: dict[ir.Value, Callable[[Index, Mask | None], Register | None]] = {}
        """Values that may be had elsewhere (a row scalar, a scratch row); None: compute it."""
        self.reads: list[Read] = []
        """Operands read with a step between lanes."""
        self.piece = 0
        """Which part of the results is computed: the same value at the same index may be another
        one in each (`lower/cpu/pieces.py`, `short_factors.py`)."""
        self.unrolls = False
        """Reductions of a known number of elements are written out."""
        self.tail: Mask | None = None
        """The mask of the loop's last, partial vector: at least its first lane is on."""
        b.at_end(self._forget)

    def _forget(self) -> None:
        self.overrides = {}

    # ---------------------------------------------------------------- questions

    def shape(self, value: ir.Value) -> tuple[Expr, ...]:
        """The symbolic sizes of a value."""
        return tuple(self.shapes.shape(value))

    def source(self, value: ir.Value) -> ir.Operation | None:
        """What computes `value`, looking through the operands of the fusion."""
        if value in self.inputs:
            value = self.block.owner.operands[self.inputs[value]]
        return producer(value)

    def constants(self, value: ir.Value) -> tuple[Expr, ...] | None:
        """The elements of an integer tensor known from sizes or constants; None of any other."""
        if value in self.inputs:
            value = self.block.owner.operands[self.inputs[value]]
        op = producer(value)
        if op is not None and op.name in ("disc.shape", "disc.sizes"):
            return tuple(Expr.parse(ir.StringAttr(d).value) for d in op.attributes["dims"])
        if op is not None and op.name == "disc.dim":
            return (Expr.parse(ir.StringAttr(op.attributes["dim"]).value),)
        found = self.shapes.contents(value)
        return None if found is None else tuple(found)

    # ---------------------------------------------------------------- values

    def value_at(self, value: ir.Value, index: Index, mask: Mask | None = None) -> Register:
        """The register of `value` at `index`; see the module."""
        known = self._recall(value, index, mask)
        if known is not None:
            return known
        # Element-wise chains are walked with a stack of our own: they can be long.
        stack = [value]
        while stack:
            top = stack[-1]
            if self._recall(top, index, mask) is not None:
                stack.pop()
                continue
            op = None if top in self.overrides or top in self.inputs else producer(top)
            if op is not None and op.name in SCALAR_OPS and not _changes_width(op):
                waiting = [
                    v
                    for v in op.operands
                    if self._at(op, v, index) is index
                    and self._recall(v, index, mask) is None
                    and _is_scalar_op(v)
                    and v not in self.overrides
                ]
                if waiting:
                    stack += waiting
                    continue
                args = [self.value_at(v, self._at(op, v, index), mask) for v in op.operands]
                result = emit_scalar(self.b, op, args)
            else:
                result = self._other(top, op, index, mask)
            self.remember(top, index, mask, result)
            stack.pop()
        return cast("Register", self._recall(value, index, mask))

    def store_all(self, roots: Sequence[ir.Value], mask: Mask | None) -> None:
        """Compute `roots` at the current place of the tile space, then store them as results."""
        end = len(self.space.factors)
        shapes = map(self.shape, roots)
        indices = [self.space.root(shape, 0, end) if shape else () for shape in shapes]
        values = [self.value_at(*one, mask) for one in zip(roots, indices, strict=True)]
        place = self.space.force(self.space.flat_lazy(0, end))
        for k, (root, value) in enumerate(zip(roots, values, strict=True)):
            self.store(Output(k), element_of(root), value, place, mask)

    def remember(
        self, value: ir.Value, index: Index, mask: Mask | None, register: Register
    ) -> None:
        """Let :meth:`value_at` give `register` where it can be read."""
        self.b.remember((self, self.piece, value, index, mask), register, register.depth)

    def _recall(self, value: ir.Value, index: Index, mask: Mask | None) -> Register | None:
        """The register of `value` at `index`, if it was computed where it can be read here."""
        known = self.b.recall((self, self.piece, value, index, mask))
        return cast("Register | None", known)

    def _at(self, op: ir.Operation, operand: ir.Value, index: Index) -> Index:
        """The index of an element-wise op's operand: rank-0 ones of select and clamp are shared."""
        rank = ir.ShapedType(operand.type).rank
        return () if rank == 0 and ir.ShapedType(op.results[0].type).rank else index

    def _other(
        self, value: ir.Value, op: ir.Operation | None, index: Index, mask: Mask | None
    ) -> Register:
        if value in self.overrides:
            found = self.overrides[value](index, mask)
            if found is not None:
                return found
        if value in self.inputs:
            source = self.source(value)
            if source is None or source.name != "disc.dim":
                pair = self._of_pair(value, index, mask)
                if pair is not None:
                    return pair
                at = self.space.linear(index)
                far = at.vector is not None and at.offsets is None
                if far or abs(at.stride) > 1:
                    self.reads.append(Read(value, index, not far and abs(at.stride) <= _CLOSE))
                return self.load(Input(self.inputs[value]), element_of(value), at, mask)
            op = source
        op = op or producer(value)
        if op is None:
            raise InternalError(f"a value of a fusion has no producer: {value}")
        if op.name in SCALAR_OPS and not _changes_width(op):
            args = [self.value_at(v, self._at(op, v, index), mask) for v in op.operands]
            return emit_scalar(self.b, op, args)
        if (rule := _rule(op.name)) is None:
            unsupported(
                op, "not computed element by element", "see ELEMENTAL_OPS for what a loop may hold"
            )
        return rule(self, op, value, index, mask)

    def remember_clamped(self, register: Register, size: Expr, clamped: IndexValue) -> None:
        """Let :meth:`clamped` give the nearest index from 0 to `size - 1` of an integer."""
        depth = max(register.depth, clamped.depth)
        self.b.remember((self, "clamped", register, size), clamped, depth)

    def clamped(self, register: Register, element: ElementType, last: Expr) -> IndexValue:
        """The nearest index from 0 to `last` of an integer register."""
        known = self.b.recall((self, "clamped", register, last + 1))
        if known is not None:
            return cast("IndexValue", known)
        top = self.b.param(last)
        return self.b.max(self.b.min(self.to_index(register, element), top), 0)

    def scalar(self, value: ir.Value, mask: Mask | None = None) -> IndexValue:
        """A rank-0 integer tensor as index."""
        if (known := self.constants(value)) is not None:
            return self.b.param(as_index(known[0]))
        return self.to_index(self.value_at(value, (), None), element_of(value))

    def entry(self, value: ir.Value, k: int) -> IndexValue | Expr:
        """Element `k` of a rank-1 integer tensor: an Expr, or the name of an index."""
        if (known := self.constants(value)) is not None:
            return as_index(known[k])
        at = self.space.uniform(self.b.index(k))
        index = (Group(self.shape(value), at),)
        return self.to_index(self.value_at(value, index, None), element_of(value))

    def to_index(self, register: Register, element: ElementType) -> IndexValue:
        """An integer register as index (scalar or lanes).

        An index has 63 bits and a sign: unsigned integers beyond that become the largest index,
        which every clamp and every check of bounds treats alike.
        """
        register = wrap(self.b, register, element)
        if element.bits == 64 and not element.is_signed:
            most = register.constant(_LARGEST_INDEX)
            register = self.b.op("arith.minui", register, most)
        name = "arith.index_cast" if element.is_signed else "arith.index_castui"
        return self.b.to_index(name, register)

    def from_index(self, ix: Ix, element: ElementType) -> Register:
        """An index as integer register of `element` (wraps)."""
        target = element.register
        if ix.is_uniform:
            return self.b.cast("arith.index_cast", ix.base, target)
        if ix.vector is not None:
            return self.b.cast("arith.index_cast", ix.vector, target)
        base = self.b.broadcast(self.b.cast("arith.index_cast", ix.base, target), self.lanes)
        steps = self.b.dense([ix.stride * k for k in range(self.lanes)], target)
        return base + steps

    # ---------------------------------------------------------------- masks

    def both(self, a: Mask | None, b: Mask | None) -> Mask | None:
        """Lanes on in both masks (None: all are)."""
        if a is None or b is None:
            return a if b is None else b
        for flag, other in ((a, b), (b, a)):
            if not flag.lanes and flag.constant_lanes is not None:
                return other if flag.constant_lanes[0] else flag
        first, second = a.constant_lanes, b.constant_lanes
        if first is not None and second is not None:
            return self.b.dense_mask([bool(x and y) for x, y in zip(first, second, strict=True)])
        lanes = max(a.lanes, b.lanes)
        mask = self.b.broadcast(a, lanes) & self.b.broadcast(b, lanes)
        first, second = _possible(a), _possible(b)
        if first is not None or second is not None:
            anywhere = (True,) * lanes
            both = zip(first or anywhere, second or anywhere, strict=True)
            mask.possible = tuple(x and y for x, y in both)
        return mask

    def unless(self, mask: Mask) -> Mask:
        """The other lanes."""
        known = mask.constant_lanes
        if known is not None:
            return self.b.dense_mask([not lane for lane in known])
        true = mask.constant(True)
        return mask ^ true

    def below(self, ix: Ix, size: IndexValue) -> Mask:
        """0 <= index < size, for any signed index (one unsigned comparison)."""
        base, most = ix.base.known, size.known
        if ix.offsets is not None and base is not None and most is not None:
            return self.b.dense_mask([0 <= base + o < most for o in ix.offsets])
        if ix.is_uniform and base is not None and most is not None:
            return self.b.flags(0 <= base < most)
        x = self.space.name_of(ix)
        return self.b.cmpi("ult", x, self.b.broadcast(size, x.lanes))

    def at_least(self, ix: Ix, low: IndexValue) -> Mask:
        """Index >= low, signed."""
        x = self.space.name_of(ix)
        return x >= self.b.broadcast(low, x.lanes)

    def choose(self, condition: Mask, a: Register, b: Register) -> Register:
        """Select where any of the three may be scalar."""
        text = self.b
        lanes = max(v.lanes for v in (condition, a, b))
        return text.select(condition, text.broadcast(a, lanes), text.broadcast(b, lanes))

    def branch(
        self,
        condition: Mask,
        then: Callable[[], Register],
        otherwise: Callable[[], Register],
        lanes: int,
    ) -> Register:
        """One of two values by a scalar condition; only the chosen one is computed."""
        b = self.b
        return b.either(
            condition,
            lambda: [b.broadcast(then(), lanes)],
            lambda: [b.broadcast(otherwise(), lanes)],
        )[0]

    def width(self, index: Index, mask: Mask | None) -> int:
        """Lanes a value at `index` has at most."""
        uniform = all(self.space.force(g.at).is_uniform for g in index)
        return 0 if uniform and (mask is None or mask == self.tail) else self.lanes

    # ---------------------------------------------------------------- memory

    def load(self, buffer: Buffer, element: ElementType, at: Ix, mask: Mask | None) -> Register:
        """One element a lane (or one for all) of a dense buffer; masked-off lanes read nothing."""
        memory = self.b.memref(self.arguments.slot(buffer), element.storage)
        return self.as_register(self.load_from(memory, at, mask, readonly=True), element)

    def load_from(self, memory: MemRef, at: Ix, mask: Mask | None, readonly: bool) -> Register:
        """Like :meth:`load` from a memref, as it lies in memory."""
        b, lanes = self.b, self.lanes
        storage = memory.element
        if at.is_uniform:
            if mask is None or mask == self.tail:
                return memory.load(at.base, readonly)
            return self._guarded_load(memory, at.base, mask)
        vector = vector_type(lanes, storage)
        if mask is not None:
            mask = b.broadcast(mask, lanes)
        if at.vector is None and at.stride in (1, -1):
            first = at.base if at.stride == 1 else at.base - (lanes - 1)
            order = list(range(lanes - 1, -1, -1))
            if mask is None:
                aligned = at.stride == 1 and at.multiple % lanes == 0
                loaded = memory.vector_load(first, lanes, readonly, aligned)
            else:
                on = mask if at.stride == 1 else b.shuffle(mask, mask, order)
                loaded = memory.masked_load(first, on, b.constant(0, vector), readonly)
            return loaded if at.stride == 1 else b.shuffle(loaded, loaded, order)
        close = self._load_close(memory, at, mask, readonly)
        if close is not None:
            return close
        on = b.flags(True, lanes) if mask is None else mask
        if at.vector is None:
            offsets = b.dense_index([at.stride * k for k in range(lanes)])
            return b.gather(memory, at.base, offsets, on, b.constant(0, vector), readonly)
        return b.gather(memory, 0, at.vector, on, b.constant(0, vector), readonly)

    def _load_close(
        self, memory: MemRef, at: Ix, mask: Mask | None, readonly: bool
    ) -> Register | None:
        """A load of lanes that are known to be near each other, from whole vectors; else None.

        Nothing in front of the first or behind the last lane that is on is read. Where it is not
        known which are on, no lane that is off.
        """
        b, lanes = self.b, self.lanes
        on = (True,) * lanes if mask is None else _possible(mask) or (True,) * lanes
        guard = None if mask is None or mask.constant_lanes is not None else mask
        offsets = at.offsets or tuple(at.stride * lane for lane in range(lanes))
        if not any(on) or (at.vector is not None and at.offsets is None):
            return None
        wanted = [offset for offset, is_on in zip(offsets, on, strict=True) if is_on]
        if guard is not None and len(set(wanted)) < len(wanted):
            return None
        low, span = min(wanted), max(wanted) - min(wanted) + 1
        if span > _CLOSE * lanes:
            return None
        starts = [low + k * lanes for k in range(ceil_div(span, lanes))]
        if span >= lanes:
            starts[-1] = low + span - lanes
        found: Register | None = None
        for start in starts:
            first = at.base + start
            if guard is not None:
                lane_of = {o - start: n for n, o in enumerate(offsets) if on[n]}
                order = [lane_of.get(n, lanes) for n in range(lanes)]
                near = b.shuffle(guard, b.flags(False, lanes), order)
                nothing = b.constant(0, vector_type(lanes, memory.element))
                loaded = memory.masked_load(first, near, nothing, readonly)
            elif span >= lanes:
                loaded = memory.vector_load(first, lanes, readonly)
            else:
                zero = b.constant(0, memory.element)
                near = b.dense_mask([n < span for n in range(lanes)])
                loaded = memory.masked_load(first, near, b.broadcast(zero, lanes), readonly)
            # Lanes of later vectors are picked later, those that are off are anything.
            here = [is_on and o >= start for o, is_on in zip(offsets, on, strict=True)]
            order = [
                lanes + o - start if mine and o - start < lanes else n
                for n, (o, mine) in enumerate(zip(offsets, here, strict=True))
            ]
            found = b.shuffle(loaded if found is None else found, loaded, order)
        return found

    def _guarded_load(self, memory: MemRef, index: IndexValue, mask: Mask) -> Register:
        """A scalar load that reads memory only when some lane wants it (else any valid address)."""
        size = memory.element_bits // 8
        return self.b.load_if(mask.any(), memory, index, size)

    def as_register(self, loaded: Register, element: ElementType) -> Register:
        """An element as it lies in memory, as values are carried."""
        if element.kind != "b":
            return loaded
        return loaded.differs(0)

    def store(
        self, buffer: Buffer, element: ElementType, value: Register, at: Ix, mask: Mask | None
    ) -> None:
        """Write one element a lane, or one element when `at` is uniform."""
        memory = self.b.memref(self.arguments.slot(buffer), element.storage)
        if element.kind == "b":
            value = self.b.cast("arith.extui", value, "i8")
        self.store_to(memory, value, at, mask)

    def store_to(self, memory: MemRef, value: Register, at: Ix, mask: Mask | None) -> None:
        """Like :meth:`store` into a memref, as it lies in memory."""
        b = self.b
        if at.is_uniform:
            memory.store(value, at.base)
            return
        value = b.broadcast(value, self.lanes)
        if at.vector is None and at.stride == 1:
            if mask is None:
                memory.vector_store(value, at.base, at.multiple % self.lanes == 0)
            else:
                memory.masked_store(value, at.base, b.broadcast(mask, self.lanes))
            return
        mask = b.flags(True, self.lanes) if mask is None else b.broadcast(mask, self.lanes)
        b.scatter(value, memory, 0, self.space.lanes_of(at), mask)

    def _of_pair(self, value: ir.Value, index: Index, mask: Mask | None) -> Register | None:
        """An element of an operand of pairs, loaded together with the other one of its pair."""
        if not index or not self.lanes:
            return None
        *outer, last = index
        plane = None if last.at.start is None else last.at.start.known
        sizes = last.sizes
        if len(sizes) != 1 or not sizes[0].is_const or sizes[0].value != 2:
            return None
        if plane is None or not last.at.is_uniform:
            return None
        key = (self, self.piece, value, tuple(outer), mask, "pair")
        known = cast("list[Register] | None", self.b.recall(key))
        if known is None:
            at = self.space.linear(tuple(outer))
            buffer = Input(self.inputs[value])
            known = load_pairs(self, buffer, element_of(value), at, mask)
            if known is None:
                return None
            self.b.remember(key, known, max(register.depth for register in known))
        return known[plane]

    # ---------------------------------------------------------------- splat constants

    def splat(self, op: ir.Operation) -> Register:
        """The register of a splat constant."""
        attribute, element = op.attributes["value"], element_of(op.results[0])
        if not (isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat):
            raise InternalError(f"a dense constant inside a fusion must be an operand of it: {op}")
        value = attribute.get_splat_value()
        if isinstance(value, ir.FloatAttr):
            if element.is_narrow:
                return self.b.constant(_bits_of(value.value, element.name), element.register)
            return self.b.constant(value.value, element.register)
        if isinstance(value, ir.BoolAttr):
            return self.b.flags(bool(value.value))
        return self.b.constant(int(ir.IntegerAttr(value).value), element.register)


def _bits_of(value: float, name: str) -> int:
    """The bits of a narrow float as a signed integer of its register's width."""
    row = ELEMENT_TYPES[name]
    return int(np.array(value, row.dtype).view(f"int{8 * row.bytes}"))


def as_index(number: Expr) -> Expr:
    """A known element of an integer tensor as `Elemental.to_index` has unknown ones."""
    is_beyond = number.is_const and number.value > _LARGEST_INDEX
    return Expr.const(_LARGEST_INDEX) if is_beyond else number


def _possible(mask: Mask) -> tuple[bool, ...] | None:
    """The lanes that may be on; None: any."""
    known = mask.constant_lanes
    return mask.possible if known is None else tuple(bool(lane) for lane in known)


def _is_scalar_op(value: ir.Value) -> bool:
    op = producer(value)
    return op is not None and op.name in SCALAR_OPS


def _changes_width(op: ir.Operation) -> bool:
    """A bitcast_convert between element widths: it moves indices too."""
    if op.name != "stablehlo.bitcast_convert":
        return False
    return bool(element_of(op.operands[0]).bits != element_of(op.results[0]).bits)


def emit_region(e: Elemental, block: ir.Block, args: Sequence[Register]) -> list[Register]:
    """The results of a region of scalars (the body of a reduce) on registers.

    `args` are scalars where an op of the region is not computed in lanes (`takes_lanes`).
    """
    return _Region(e).results(block, args)


def emit_value(
    e: Elemental, block: ir.Block, args: Sequence[Register], value: ir.Value
) -> Register:
    """`value` of a region of scalars, as :func:`emit_region` computes its results."""
    return _Region(e).value(block, args, value)


class _Region:
    """The values of one call of a region."""

    def __init__(self, e: Elemental) -> None:
        self.e = e
        self.known: dict[ir.Value, Register] = {}

    def results(self, block: ir.Block, args: Sequence[Register]) -> list[Register]:
        """What `block` returns."""
        self.known.update(zip(block.arguments, args, strict=True))
        for view in block.operations:
            op = view.operation
            if op.name == "stablehlo.return":
                return [self._value(v) for v in op.operands]
            self._compute(op)
        raise InternalError("a region without stablehlo.return")

    def value(self, block: ir.Block, args: Sequence[Register], value: ir.Value) -> Register:
        """`value`, which `block` has before it returns."""
        self.known.update(zip(block.arguments, args, strict=True))
        for view in block.operations:
            if value in self.known:
                break
            self._compute(view.operation)
        return self._value(value)

    def _value(self, value: ir.Value) -> Register:
        if value in self.known:
            return self.known[value]
        return self.e.value_at(value, (), None)

    def _compute(self, op: ir.Operation) -> None:
        """Make the results of `op` known; arrays are computed where an element is read."""
        if op.name in _CONTROL_FLOW:
            if len(op.results):
                results = _CONTROL_FLOW[op.name](self, op)
                self.known.update(zip(op.results, results, strict=True))
        elif any(ir.ShapedType(result.type).rank for result in op.results):
            return
        elif op.name == "stablehlo.constant":
            self.known[op.results[0]] = self.e.splat(op)
        elif any(ir.ShapedType(operand.type).rank for operand in op.operands):
            self._element(op)
        elif op.name in SCALAR_OPS:
            operands = [self._value(v) for v in op.operands]
            self.known[op.results[0]] = emit_scalar(self.e.b, op, operands)
        elif op.name in ("stablehlo.reshape", "stablehlo.broadcast_in_dim"):
            self.known[op.results[0]] = self._value(op.operands[0])
        else:
            self._element(op)

    def _element(self, op: ir.Operation) -> None:
        """The scalars that `op` computes from arrays."""
        e = self.e
        inner = Elemental(e.b, e.space, e.shapes, e.block, e.arguments)
        inner.overrides = {**e.overrides, **{v: _given(r) for v, r in self.known.items()}}
        for result in op.results:
            self.known[result] = inner.value_at(result, (), None)

    def _while(self, op: ir.Operation) -> list[Register]:
        condition, body = (region.blocks[0] for region in op.regions)
        return self.e.b.while_(
            [self._carried(v) for v in op.operands],
            lambda args: Mask.of(self.results(condition, args)[0]),
            lambda args: self.results(body, args),
        )

    def _carried(self, value: ir.Value) -> Register:
        if ir.ShapedType(value.type).rank:
            op = next(iter(value.uses)).owner.operation
            unsupported(
                op, "carries an array inside a region of scalars", "carry its elements one by one"
            )
        return self._value(value)

    def _if(self, op: ir.Operation) -> list[Register]:
        return self._branch(self._flag(op.operands[0]), op, 0, lambda: self._side(op, 1))

    def _case(self, op: ir.Operation) -> list[Register]:
        def branch(number: int) -> list[Register]:
            if number == len(op.regions) - 1:
                return self._side(op, number)
            is_this = self._value(op.operands[0]).equals(number)
            return self._branch(is_this, op, number, lambda: branch(number + 1))

        return branch(0)

    def _flag(self, value: ir.Value) -> Mask:
        return Mask.of(self._value(value))

    def _side(self, op: ir.Operation, number: int) -> list[Register]:
        return self.results(op.regions[number].blocks[0], [])

    def _branch(
        self,
        condition: Mask,
        op: ir.Operation,
        number: int,
        otherwise: Callable[[], list[Register]],
    ) -> list[Register]:
        """Branch `number` of `op` where the condition holds."""
        return self.e.b.either(condition, lambda: self._side(op, number), otherwise)


_CONTROL_FLOW: dict[str, Callable[[_Region, ir.Operation], list[Register]]] = {
    "stablehlo.case": _Region._case,
    "stablehlo.if": _Region._if,
    "stablehlo.while": _Region._while,
}


def _given(register: Register) -> Callable[[Index, Mask | None], Register | None]:
    return lambda index, mask: register

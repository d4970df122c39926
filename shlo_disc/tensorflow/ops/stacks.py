"""Lists that grow in loops, as gradients of loops have them: lists of the length that is needed.

    %l = EmptyTensorList %shape, %most           %l = TensorListReserve %shape, min(%n, %most)
    %r = while(%i = 0, %l) : %i < %n {           %r = while(%i = 0, %l) : %i < %n {
      TensorListPushBack %l, %x }          ==>     TensorListSetItem %l, %i, %x }
    while(%j = 0, %m = %r) {                     while(%j = 0, %m = %r) {
      %m2, %y = TensorListPopBack %m }             %y = TensorListGetItem %m, %r.i - 1 - %j }

No step changes some elements, such as weights and shapes. They are computed in front of the loops,
and their lists have no entries. Each step of the first loop writes one element, each of the second
takes one. So the place of an element follows from the counters of the loops, and no list has a
length of its own. A loop may end early: its counter tells how many elements there are.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.ingest.arrays import constant
from shlo_disc.ingest.size_values import scalar_type
from shlo_disc.ir.builders import convert, create, number_of
from shlo_disc.ir.comparisons import comparison
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, clone, ir, ops_of, producer, replace, terminator
from shlo_disc.tensorflow.ops.lists import Copies
from shlo_disc.tensorflow.ops.typed import of_its_type

STACKS = ("EmptyTensorList", "TensorListPopBack", "TensorListPushBack")
"""Operations that :func:`place_stacks` rewrites."""


def place_stacks(module: ir.Module, prefix: str) -> None:
    """Rewrite every list that begins empty; `prefix` stands before the names of operations.

    Raises UnsupportedError for a list that no counter of a loop bounds, or that is used otherwise.
    """
    for op in ops_of(module, f"{prefix}EmptyTensorList"):
        _Stack(op, prefix).place()
    for name in STACKS:
        for op in ops_of(module, f"{prefix}{name}"):
            raise UnsupportedError(f"{source_line(op)}: {name}: {_ADVICE}")


_ADVICE = (
    "a list that grows is lowered where each step of a loop with a counter adds or takes one "
    "element; give the list its size, or the loop its maximum_iterations"
)


@dataclass(frozen=True)
class _Loop:
    """A `stablehlo.while`."""

    op: ir.Operation

    @property
    def body(self) -> ir.Block:
        return self.op.regions[1].blocks[0]

    def given(self, index: int) -> ir.Value:
        """What a step makes of a carried value."""
        return terminator(self.body).operands[index]

    def is_kept(self, index: int) -> bool:
        return bool(self.given(index) == self.body.arguments[index])

    def counters(self) -> list[int]:
        """The carried values that are the number of steps so far."""
        return [k for k, value in enumerate(self.op.operands) if self._counts(k, value)]

    def _counts(self, index: int, start: ir.Value) -> bool:
        kind = ir.RankedTensorType(start.type)
        if kind.rank or not isinstance(kind.element_type, ir.IntegerType):
            return False
        step = producer(self.given(index))
        if step is None or step.name != "stablehlo.add" or number_of(start) != 0:
            return False
        own = self.body.arguments[index]
        return any(
            a == own and number_of(b) == 1
            for a, b in (tuple(step.operands), tuple(step.operands)[::-1])
        )

    def bounds(self) -> Iterator[ir.Value]:
        """Numbers of steps that the loop does not exceed, computed at the insertion point."""
        block = self.op.regions[0].blocks[0]
        todo = [terminator(block).operands[0]]
        counters = [block.arguments[k] for k in self.counters()]
        while todo:
            op = producer(todo.pop())
            if op is None:
                continue
            if op.name == "stablehlo.and":
                todo += op.operands
            elif op.name == "stablehlo.compare":
                bound = _bound(op, counters)
                found = None if bound is None else self._outside(bound)
                if found is not None:
                    yield found

    def _outside(self, value: ir.Value) -> ir.Value | None:
        """A value of the condition that no step changes, in front of the loop; else None."""
        owner = value.owner
        if isinstance(owner, ir.Block):
            if owner != self.op.regions[0].blocks[0]:
                return value
            index = ir.BlockArgument(value).arg_number
            return self.op.operands[index] if self.is_kept(index) else None
        op = owner.operation
        if op.block != self.op.regions[0].blocks[0]:
            return value
        if op.regions:
            return None
        known = {}
        for operand in op.operands:
            outer = self._outside(operand)
            if outer is None:
                return None
            known[operand] = outer
        return clone(op, known).results[ir.OpResult(value).result_number]


def _bound(op: ir.Operation, counters: list[ir.Value]) -> ir.Value | None:
    """`n` of a comparison `counter < n`."""
    left, right = op.operands
    direction = comparison(op)
    if direction == "LT" and left in counters:
        return right
    return left if direction == "GT" and right in counters else None


class _Stack:
    """A list that begins empty."""

    def __init__(self, op: ir.Operation, prefix: str) -> None:
        self.op = op
        self.prefix = prefix

    def place(self) -> None:
        """Rewrite it, with the operations that add and take elements."""
        array = self.op.results[0]
        loop, index = self._only_loop(array)
        push = self._user(loop, index, "TensorListPushBack")
        with at(loop.op):
            fixed = None if push is None else _Fixed(self.op, loop).of(push.operands[1])
            if push is None or fixed is not None:
                count = constant(0, scalar_type(32).element_type)
            else:
                count = self._capacity(loop)
            reserved = ir.Operation.create(
                f"{self.prefix}TensorListReserve",
                results=[array.type],
                operands=[self.op.operands[0], count, *([] if fixed is None else [fixed])],
            )
        array.replace_all_uses_with(reserved.results[0])
        self.op.erase()
        counter = loop.counters()[0]
        if push is not None:
            self._write(push, loop.body.arguments[counter], fixed)
        if list(loop.op.results[index].uses):
            second, place = self._only_loop(loop.op.results[index])
            if pop := self._user(second, place, "TensorListPopBack"):
                self._read(pop, second, loop.op.results[counter], fixed)

    def _refused(self) -> UnsupportedError:
        return UnsupportedError(f"{source_line(self.op)}: EmptyTensorList: {_ADVICE}")

    def _only_loop(self, array: ir.Value) -> tuple[_Loop, int]:
        """The one loop that carries the list, and where."""
        uses = list(array.uses)
        if len(uses) != 1 or uses[0].owner.operation.name != "stablehlo.while":
            raise self._refused()
        loop = _Loop(uses[0].owner.operation)
        if not loop.counters():
            raise self._refused()
        return loop, int(uses[0].operand_number)

    def _capacity(self, loop: _Loop) -> ir.Value:
        kind = scalar_type(32)
        most = self.op.operands[1]
        bounds = [convert(bound, kind) for bound in loop.bounds()]
        if not bounds:
            if (number_of(most) or 0) < 0:
                raise self._refused()
            bounds = [convert(most, kind)]
        found = constant(0, kind.element_type)
        least = bounds[0]
        for bound in bounds[1:]:
            least = create("stablehlo.minimum", [least, bound], kind)
        return create("stablehlo.maximum", [least, found], kind)

    def _user(self, loop: _Loop, index: int, name: str) -> ir.Operation | None:
        """The one operation of a body that uses the list; None where it is handed on as it is."""
        users = [use.owner.operation for use in loop.body.arguments[index].uses]
        if len(users) == 1 and users[0].name == f"{self.prefix}{name}":
            if loop.given(index) == users[0].results[0] and users[0].block == loop.body:
                return users[0]
        elif users and all(user.name == "stablehlo.return" for user in users):
            return None
        raise self._refused()

    def _write(self, op: ir.Operation, place: ir.Value, fixed: ir.Value | None) -> None:
        array, item = op.operands
        if fixed is not None:
            replace(op, array)
            return
        with at(op):
            written = ir.Operation.create(
                f"{self.prefix}TensorListSetItem",
                results=[op.results[0].type],
                operands=[array, place, item],
            )
        replace(op, *written.results)

    def _read(self, op: ir.Operation, loop: _Loop, total: ir.Value, fixed: ir.Value | None) -> None:
        array, shape = op.operands
        kind = total.type
        with at(op):
            if fixed is not None:
                replace(op, array, of_its_type(fixed, op.results[1].type))
                return
            steps = convert(loop.body.arguments[loop.counters()[0]], kind)
            one = constant(1, ir.RankedTensorType(kind).element_type)
            last = create("stablehlo.subtract", [total, one], kind)
            place = create("stablehlo.subtract", [last, steps], kind)
            read = ir.Operation.create(
                f"{self.prefix}TensorListGetItem",
                results=[op.results[1].type],
                operands=[array, place, shape],
            )
        replace(op, array, *read.results)


_OF_SHAPE = ("shape.shape_of", "stablehlo.get_dimension_size", "tensor.dim")
"""Operations that read the shape of a value, and not its elements."""


class _Fixed:
    """At the insertion point, in front of a loop, what no step of the loop changes."""

    def __init__(self, op: ir.Operation, loop: _Loop) -> None:
        self._loop = loop
        self._shapes = Copies(op, loop.op)
        self._known: dict[ir.Value, ir.Value | None] = {}

    def of(self, value: ir.Value) -> ir.Value | None:
        """`value` in front of the loop; None for one that a step may change."""
        if value not in self._known:
            self._known[value] = self._made(value)
        return self._known[value]

    def _made(self, value: ir.Value) -> ir.Value | None:
        owner = value.owner
        if isinstance(owner, ir.Block):
            if owner != self._loop.body:
                return value
            index = ir.BlockArgument(value).arg_number
            return self._loop.op.operands[index] if self._loop.is_kept(index) else None
        op = owner.operation
        if op.block != self._loop.body:
            return value
        number = ir.OpResult(value).result_number
        if op.name in _OF_SHAPE:  # carried values keep their shapes
            known = {op.operands[0]: self._shapes.of(op.operands[0])}
            known |= {v: self.of(v) for v in list(op.operands)[1:]}
        else:
            known = {v: self.of(v) for v in op.operands}
        found = {key: fixed for key, fixed in known.items() if fixed is not None}
        if len(op.regions) or len(found) < len(known):
            return None
        return clone(op, found).results[number]

"""Which results may be written into the memory of donated arguments; part of plan-buffers.

A result may take the buffer of an argument of equal type and size that is dead when the result is
written. No op after the writer of the result reads the argument. The writer may change the argument
in place (an update of a slice, a scatter), or read element i only to compute element i. Of complex
numbers (`dialect.COMPLEX`) element i may be pair i: a vector of a kernel holds whole pairs.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import Protocol

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir, reads, terminator
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.op_classes import ELEMENTWISE, is_splat_constant
from shlo_disc.passes.place import At, Place


class _Liveness(Protocol):
    place: dict[ir.Value, Place]

    def root(self, value: ir.Value) -> ir.Value: ...
    def last_use(self, root: ir.Value) -> int | None: ...
    def is_dead_after(self, root: ir.Value, position: int) -> bool: ...
    def start(self, op: ir.Operation) -> int: ...
    def changes_operand(self, op: ir.Operation) -> bool: ...


def is_donated(func: ir.Operation, index: int) -> bool:
    """True if the caller gives up argument `index` of `main`."""
    if "arg_attrs" not in func.attributes:
        return False
    attributes = ir.DictAttr(ir.ArrayAttr(func.attributes["arg_attrs"])[index])
    return "disc.donated" in attributes


def donated_reuses(
    func: ir.Operation, shapes: ShapeAnalysis, live: _Liveness
) -> list[tuple[int, int]]:
    """Pairs (argument, result); every argument and every result at most once."""
    block = func.regions[0].blocks[0]
    donated = [k for k in range(len(block.arguments)) if is_donated(func, k)]
    if not donated:
        return []
    numbers = {block.arguments[k]: k for k in donated}
    kinds = _Kinds(shapes)
    free: dict[int, list[int]] = defaultdict(list)
    """Arguments of a kind, the first to die last."""
    for argument, k in sorted(numbers.items(), key=lambda a: (live.last_use(a[0]) or 0, a[1])):
        free[kinds.of(argument)].append(k)
    for waiting in free.values():
        waiting.reverse()
    taken: set[int] = set()
    pairs: list[tuple[int, int]] = []
    for index, value in enumerate(terminator(block).operands):
        root = live.root(value)
        owner = root.owner
        if isinstance(owner, ir.Block) or live.place.get(root) != Place(At.RESULT, index):
            continue
        writer = owner.operation
        if writer.name != "disc.fusion" or writer.block != block:
            continue
        kind = kinds.of(root)
        read = sorted({numbers.get(live.root(operand), -1) for operand in writer.operands} - {-1})
        # What is changed in place saves a copy; the rest only memory.
        chosen = next(
            (
                k
                for k in (*read, *_dying(free[kind], taken, {*read}))
                if k not in taken
                and kinds.of(block.arguments[k]) == kind
                and _dead(block.arguments[k], writer, live, shapes)
            ),
            None,
        )
        if chosen is not None:
            pairs.append((chosen, index))
            taken.add(chosen)
    return pairs


def _dying(free: list[int], taken: set[int], read: set[int]) -> list[int]:
    """The first argument to die that is not `taken`, nor `read` by the writer of a result."""
    while free and free[-1] in taken:
        free.pop()
    return next(([k] for k in reversed(free) if k not in taken and k not in read), [])


_COMPARED = 64
"""Types with which one of another formula is compared."""


class _Kinds:
    """Numbers of types: equal for values that have equal element types and counts."""

    def __init__(self, shapes: ShapeAnalysis) -> None:
        self._shapes = shapes
        self._known: dict[tuple[ir.Type, Expr], int] = {}

    def of(self, value: ir.Value) -> int:
        """The number of the type of `value`."""
        facts = self._shapes.constraints
        element = ir.RankedTensorType(value.type).element_type
        count = facts.canonical(Expr.product(self._shapes.shape(value)))
        number = self._known.get((element, count))
        if number is None:
            same = (
                known
                for (other, size), known in islice(self._known.items(), _COMPARED)
                if other == element and facts.equal(size, count)
            )
            number = self._known[element, count] = next(same, len(self._known))
        return number


def _dead(argument: ir.Value, writer: ir.Operation, live: _Liveness, shapes: ShapeAnalysis) -> bool:
    """True if `writer` may write its result over the argument."""
    if not live.is_dead_after(argument, live.start(writer)):
        return False
    places = [k for k, value in enumerate(writer.operands) if live.root(value) == argument]
    if not places:
        return True
    if live.changes_operand(writer):
        return places == [0]
    # An alias in another shape has other indices.
    same = all(writer.operands[k] == argument for k in places)
    return same and all(
        _only_own_element(writer, k) or _only_own_pair(writer, k, shapes) for k in places
    )


def _only_own_element(fusion: ir.Operation, operand: int) -> bool:
    """True if element i of the one result needs element i of the operand, and no other."""
    if not kind_of(fusion).is_by_element or len(fusion.results) != 1:
        return False
    block = fusion.regions[0].blocks[0]
    if block.arguments[operand].type != fusion.results[0].type:
        return False
    depends = {block.arguments[operand]}
    for view in block.operations:
        op = view.operation
        if not len(op.results) or is_splat_constant(op):
            continue
        if any(value in depends for value in reads(op)):
            if op.name not in ELEMENTWISE:
                return False
            # Scalars of select and clamp are read for every element.
            if any(
                value in depends
                and value.type != op.results[0].type
                and not ir.RankedTensorType(value.type).rank
                for value in op.operands
            ):
                return False
            depends.update(op.results)
    return True


def _only_own_pair(fusion: ir.Operation, operand: int, shapes: ShapeAnalysis) -> bool:
    """True if pair i of the one result, along a last dimension of size 2, needs pair i only.

    Values that depend on the operand are pairs, columns (a last dimension of size 1) or planes
    (none), all of the same leading sizes. Slices, reshapes and a concatenation turn one into
    another; other ops keep what they read.
    """
    if not kind_of(fusion).is_by_element or len(fusion.results) != 1:
        return False
    block = fusion.regions[0].blocks[0]
    pairs = shapes.shape(block.arguments[operand])
    if not pairs or not pairs[-1].is_const or pairs[-1].value != 2:
        return False
    plane, column = pairs[:-1], (*pairs[:-1], Expr.const(1))
    depends = {block.arguments[operand]: pairs}
    for view in block.operations:
        op = view.operation
        read = [value for value in reads(op) if value in depends]
        if not read or not len(op.results):
            continue
        before, after = depends[read[0]], shapes.shape(op.results[0])
        if op.name in ELEMENTWISE:
            known = before == after and all(depends[value] == after for value in read)
        elif op.name in ("stablehlo.slice", "stablehlo.real_dynamic_slice"):
            known = (before, after) == (pairs, column)
        elif op.name in _RESHAPES:
            known = len(read) == 1 and {before, after} <= {plane, column}
        else:
            known = op.name == "stablehlo.concatenate" and (before, after) == (column, pairs)
        if not known:
            return False
        depends[op.results[0]] = after
    last = terminator(block)
    return depends.get(last.operands[0], pairs) == pairs and shapes.shape(last.operands[0]) == pairs


_RESHAPES = frozenset({"stablehlo.reshape", "stablehlo.dynamic_reshape"})

"""Where an update of a larger array may be computed: at its place in that array.

A `dynamic_update_slice` in place whose update is contiguous there needs no kernel: what computes
the update writes it where it belongs. In a loop that stacks its results (`disc.stacked`), a later
step also reads such a value where the step before stored it. So a state that is a result, too,
as in a recurrent layer, is written once.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

from shlo_disc.dynamic.memory import element_bytes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.ir.mlir import ir, producer, terminator
from shlo_disc.passes.homes import is_on_host
from shlo_disc.passes.op_classes import is_host_scalar, is_integer_scalar
from shlo_disc.passes.place import At, Place
from shlo_disc.passes.places import Mode, set_stored
from shlo_disc.passes.records import ffi_call_of, update_of


class _Planner(Protocol):
    shapes: ShapeAnalysis

    @property
    def is_far(self) -> bool: ...

    held: dict[ir.Value, list[ir.Value]]
    place: dict[ir.Value, Place]
    carries: dict[ir.Value, list[Mode]]
    stored: list[ir.Operation]

    def root(self, value: ir.Value) -> ir.Value: ...
    def start(self, op: ir.Operation) -> int: ...
    def uses_between(self, root: ir.Value, begin: int, end: int) -> int: ...
    def last_use(self, root: ir.Value) -> int | None: ...


def place_updates(block: ir.Block, loop: ir.Operation | None, live: _Planner) -> None:
    """Give the results that are updates in `block` the place `update`, and the
    `dynamic_update_slice` they are for the attribute `disc.stored`.

    `loop`: the `while` whose body the block is; what it carries in place is planned already.
    """
    changes: _Changes | None = None
    for view in list(block.operations):
        op = view.operation
        update = update_of(op) if op.name == "disc.fusion" else None
        if update is not None and update.name == "stablehlo.dynamic_update_slice":
            changes = _changes(block, live) if changes is None else changes
            _place(op, update, loop, changes, live)


_Changes = dict[ir.Value, list[int]]
"""Where the ops of a block start that may write into a buffer, in place or step by step."""


def _place(
    op: ir.Operation,
    update: ir.Operation,
    loop: ir.Operation | None,
    changes: _Changes,
    live: _Planner,
) -> None:
    if live.place.get(op.results[0]) != Place(At.INPLACE):
        return
    inner = op.regions[0].blocks[0]
    arguments = list(inner.arguments)
    if update.operands[1] not in arguments or not is_run(update, live.shapes):
        return
    value = op.operands[arguments.index(update.operands[1])]
    root, container = live.root(value), live.root(op.operands[0])
    maker = producer(root)
    if maker is None or maker.name != "disc.fusion" or maker.block != op.block:
        return
    carried = _carried(root, loop, live)
    own = live.place.get(root)
    if own is not None and own not in [Place(At.NEXT, k) for k in carried]:
        return
    stack = _stack_of(container, loop)
    if carried and stack is None:
        return
    scalars = [v for v in op.operands if v not in (op.operands[0], value)]
    if not all(map(is_integer_scalar, scalars)) or not _is_arithmetic(update, inner):
        return
    if live.is_far and not all(map(is_on_host, scalars)):
        return  # the host program would wait for them; a kernel does not
    if live.is_far and not _is_at_whole_accesses(update, live.shapes):
        return
    if not all(_is_before(v, maker, live) for v in (op.operands[0], container, *scalars)):
        return
    if not _is_quiet(root, container, maker, op, changes, live):
        return
    number = len(live.stored)
    live.stored.append(op)
    live.place[root] = Place(At.UPDATE, number)
    set_stored(op, number)
    if loop is not None and stack is not None:
        _read_where_stored(carried, stack, loop, live)


_ACCESS_BYTES = 16
"""Kernels of GPUs count on arrays that begin at multiples of so many bytes."""


def _is_at_whole_accesses(update: ir.Operation, shapes: ShapeAnalysis) -> bool:
    """True if every place where the update may begin is a multiple of `_ACCESS_BYTES`."""
    sizes, window = (shapes.shape(update.operands[k]) for k in (0, 1))
    each = element_bytes(ir.RankedTensorType(update.operands[0].type).element_type)
    return all(
        shapes.constraints.equal(size, part)
        or shapes.constraints.divisible(stride * each, _ACCESS_BYTES)
        for size, part, stride in zip(sizes, window, dense_strides(sizes), strict=True)
    )


def is_run(update: ir.Operation, shapes: ShapeAnalysis) -> bool:
    """True if the update is one run of neighbouring elements of what it is written into."""
    sizes, window = (shapes.shape(update.operands[k]) for k in (0, 1))
    d = len(sizes)
    while d and shapes.constraints.equal(sizes[d - 1], window[d - 1]):
        d -= 1
    return all(size.is_one for size in window[: max(d - 1, 0)])


def _carried(root: ir.Value, loop: ir.Operation | None, live: _Planner) -> list[int]:
    """Which values of the next step `root` is."""
    if loop is None:
        return []
    last = terminator(loop.regions[1].blocks[0])
    return [k for k, value in enumerate(last.operands) if live.root(value) == root]


def _stack_of(container: ir.Value, loop: ir.Operation | None) -> int | None:
    """The carried value `container` is, where every step writes a slice of its own into it."""
    if loop is None or "disc.stacked" not in loop.attributes:
        return None
    arguments = loop.regions[1].blocks[0].arguments
    stacked = ir.DenseI64ArrayAttr(loop.attributes["disc.stacked"])
    return next((k for k in stacked if arguments[k] == container), None)


def _is_before(value: ir.Value, maker: ir.Operation, live: _Planner) -> bool:
    """True if `value` is computed when `maker` runs."""
    source = producer(value)
    if source is None or source.block != maker.block or source.name == "stablehlo.constant":
        return True
    return live.start(source) < live.start(maker)


def _is_arithmetic(update: ir.Operation, inner: ir.Block) -> bool:
    """True if everything else in the fusion is integer arithmetic on scalars."""
    return all(
        view.operation == update
        or view.operation.name in ("disc.yield", "disc.shape")
        or is_host_scalar(view.operation)
        for view in inner.operations
    )


def _is_quiet(
    root: ir.Value,
    container: ir.Value,
    maker: ir.Operation,
    op: ir.Operation,
    changes: _Changes,
    live: _Planner,
) -> bool:
    """True if nothing reads or writes `container` between `maker` and `op`, and nothing writes it
    after `op` as long as the value is read.
    """
    begin, end = live.start(maker), live.start(op)
    source = producer(container)
    if (container.owner if source is None else source.block) != op.block:
        return False
    if live.uses_between(container, begin, end):
        return False
    last = live.last_use(root)
    writers = changes.get(container, [])
    following = bisect_right(writers, end)
    return following == len(writers) or last is None or writers[following] > last


def _changes(block: ir.Block, live: _Planner) -> _Changes:
    changes: _Changes = {}
    for view in block.operations:
        op = view.operation
        if op.name in ("stablehlo.case", "stablehlo.if"):
            written = op.results
        elif op.name in ("disc.fusion", "stablehlo.while") and len(op.results):
            written = op.operands
            if op.name == "disc.fusion" and ffi_call_of(op) is None:
                written = list(written)[:1]
        else:
            continue
        for container in {live.root(value) for value in written}:
            changes.setdefault(container, []).append(live.start(op))
    return changes


def _read_where_stored(carried: list[int], stack: int, loop: ir.Operation, live: _Planner) -> None:
    """The carried values are read in carried value `stack`, by what follows the loop too."""
    root = live.root(loop.results[stack])
    for k in carried:
        live.carries[loop.results[0]][k] = Mode.STORED
        live.held[root].append(loop.results[k])

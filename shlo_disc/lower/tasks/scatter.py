"""Kind `scatter`: copy the operands, then apply the updates in the order of their indices.

Updates that share a place are combined in row-major order of the index tensor, so results do not
depend on the number of threads. Tasks are what cannot meet: batching dimensions and pieces of the
contiguous part of the update window whose position no index changes. A window that does not lie
inside the operand entirely is skipped as a whole. XLA does so, and JAX's `mode="drop"` relies on
it; the StableHLO specification speaks of elements.

The copy of the first operand is the first step of the plan (`KernelPlan.copies_operand`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.indexing import scatter_numbers
from shlo_disc.lower.plan import Buffer, Input, KernelPlan, Launch
from shlo_disc.lower.tasks.machine import TaskMachine
from shlo_disc.lower.tasks.single_op import SingleOp, digits, offset
from shlo_disc.lower.tasks.strips import strips
from shlo_disc.lower.values.elemental import Elemental, emit_region
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Group, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.mlir import reads
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned
from shlo_disc.scalar_regions import takes_lanes

__all__ = ["emit_scatter"]

_Body = Callable[[dict[int, IndexValue]], None]

_CHUNK = 512
"""Elements of a task along the contiguous run; every task reads all indices."""


def emit_scatter(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of a `scatter`: all dimension numbers, operands and update computations."""
    scatter = _Scatter(SingleOp.of(fusion, machine))
    places, workspaces = scatter.single.places(list(scatter.single.op.results))
    copies = [scatter.single.copy(v, p) for v, p in zip(scatter.operands, places, strict=True)]
    launch = scatter.launch(places)
    first = scatter.operands[0]
    others = reads(scatter.single.op)[1:]
    in_place = (
        scatter.single.results[0] is not None
        and scatter.single.results[0].index == 0
        and Input(0) in copies[0].args
        and first not in others
    )
    return KernelPlan((*copies, launch), workspaces, copies_operand=in_place)


class _Scatter:
    def __init__(self, single: SingleOp) -> None:
        self.single = single
        values = list(single.op.operands)
        count = len(single.op.results)
        self.operands, self.indices = values[:count], values[count]
        self.updates = values[count + 1 :]
        numbers = scatter_numbers(single.op)
        self.sizes = single.shape(self.operands[0])
        self.update_sizes = single.shape(self.updates[0])
        self.index_sizes = single.shape(self.indices)
        self.vector_dim = numbers.index_vector_dim
        self.indexed = numbers.indexed_dims
        kept = numbers.kept_dims(len(self.sizes))
        self.window = dict(zip(numbers.window_dims, kept, strict=True))
        """Update dimension to operand dimension."""
        self.scattered = [d for d in range(len(self.update_sizes)) if d not in self.window]
        """Update dimensions that run over the indices, in the order of the indices' own."""
        index_dims = numbers.place_dims(len(self.index_sizes))
        of_index = dict(zip(index_dims, self.scattered, strict=True))
        self.batching = {
            of_index[i]: d
            for i, d in zip(numbers.index_batching_dims, numbers.batching_dims, strict=True)
        }
        """Update dimension to operand dimension, where indices and operand go together."""
        self.run = self._run()

    def _run(self) -> int:
        """Update dimensions from here on are one contiguous run that no index moves.

        No run where elements are computed one by one.
        """
        if not takes_lanes(self.single.op):
            return len(self.update_sizes)
        same = self.single.shapes.constraints.equal
        rank, cut = len(self.update_sizes), len(self.update_sizes)
        for distance in range(1, min(rank, len(self.sizes)) + 1):
            d, o = rank - distance, len(self.sizes) - distance
            if self.window.get(d) != o or o in self.indexed:
                break
            if distance > 1 and not same(self.update_sizes[d + 1], self.sizes[o + 1]):
                break
            cut = d
        return cut

    def launch(self, places: Sequence[Buffer]) -> Launch:
        """The updates."""
        single, run = self.single, self.run
        elements = [element_of(v) for v in self.operands]
        lanes = single.machine.lanes(max(x.bytes for x in elements))
        if run == len(self.update_sizes):
            lanes = 0  # one element at a time
        e = single.kernel(lanes)
        b = e.b
        length = Expr.product(self.update_sizes[run:])
        chunk = single.machine.run(_CHUNK)
        pieces = ceil_div(length, chunk)
        batch = sorted(self.batching)
        task_sizes = [*(self.update_sizes[d] for d in batch), pieces]
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            *where, piece = digits(b, task.index, task_sizes)
            index = dict(zip(batch, where, strict=True))
            first = piece * chunk
            last = b.min(first + chunk, b.param(length, opaque=True))
            free = [d for d in self.scattered if d not in self.batching]
            moved = [d for d in range(run) if d in self.window]

            def window(index: dict[int, IndexValue]) -> None:
                starts = self._starts(e, index)
                with b.if_(self._inside(e, starts)):
                    apply = functools.partial(self._apply, e, places)
                    self._over(e, moved, index, lambda i: apply(i, starts, first, last))

            self._over(e, free, index, window)
        updates = Expr.product(self.update_sizes[d] for d in (*free, *moved))
        bytes_ = sum(x.bytes for x in elements)
        cost = updates * (Expr.min(length, Expr.const(chunk)) * bytes_ // 8 + 8) + 20
        extent = Expr.product(task_sizes)
        return single.launch(e, "scatter", extent, cost)

    def _over(
        self, e: Elemental, rest: Sequence[int], index: dict[int, IndexValue], body: _Body
    ) -> None:
        """Loops over the dimensions `rest` of the update, around `body`."""
        if not rest:
            body(index)
            return
        with e.b.loop(0, e.b.param(self.update_sizes[rest[0]], opaque=True), 1) as loop:
            self._over(e, rest[1:], {**index, rest[0]: loop.index}, body)

    def _starts(self, e: Elemental, index: dict[int, IndexValue]) -> dict[int, IndexValue]:
        """Where the window starts in the indexed operand dimensions."""
        b = e.b
        at = [index[d] for d in self.scattered]
        starts = {}
        for k, o in enumerate(self.indexed):
            place = list(at)
            if self.vector_dim < len(self.index_sizes):
                place.insert(self.vector_dim, b.index(k))
            flat = offset(b, place, dense_strides(self.index_sizes))
            register = self.single.read(e, self.indices, flat)
            starts[o] = e.to_index(register, element_of(self.indices))
        return starts

    def _inside(self, e: Elemental, starts: dict[int, IndexValue]) -> Mask:
        """True if the whole window lies in the operand."""
        b = e.b
        extents = {o: self.update_sizes[d] for d, o in self.window.items()}
        inside = b.flags(True)
        for o, start in starts.items():
            room = b.param(self.sizes[o]) - b.param(extents.get(o, Expr.const(1)))
            # Two signed comparisons: `room` is negative where the operand is empty.
            within = (start >= 0) & (start <= room)
            inside = inside & within
        return inside

    def _apply(
        self,
        e: Elemental,
        places: Sequence[Buffer],
        index: dict[int, IndexValue],
        starts: dict[int, IndexValue],
        first: IndexValue,
        last: IndexValue,
    ) -> None:
        """One run of the update into the operand."""
        b = e.b
        target = [b.index(0)] * len(self.sizes)
        for d, o in (*self.window.items(), *self.batching.items()):
            if d < self.run or d in self.batching:
                target[o] = index[d]
        for o, start in starts.items():
            target[o] = start + target[o]
        place = offset(b, target, dense_strides(self.sizes))
        source = offset(
            b, [index[d] for d in range(self.run)], dense_strides(self.update_sizes)[: self.run]
        )
        if not e.lanes:
            self._combine(e, places, Ix(place), Ix(source), None)
            return

        def step(at: IndexValue, mask: Mask | None, _: list[Register]) -> None:
            self._combine(e, places, Ix(place + at, 1), Ix(source + at, 1), mask)

        strips(b, first, last, e.lanes, step)

    def _combine(
        self, e: Elemental, places: Sequence[Buffer], to: Ix, source: Ix, mask: Mask | None
    ) -> None:
        """`operand = computation(operand, update)` for the elements of one vector."""
        b = e.b
        elements = [element_of(v) for v in self.operands]
        memories = [
            b.memref(e.arguments.slot(p), x.storage) for p, x in zip(places, elements, strict=True)
        ]
        old = [
            e.as_register(e.load_from(m, to, mask, readonly=False), x)
            for m, x in zip(memories, elements, strict=True)
        ]
        group = (Group(self.update_sizes, source),) if self.update_sizes else ()
        new = [e.value_at(v, group, mask) for v in self.updates]
        args = [b.broadcast(v, e.lanes) for v in (*old, *new)]
        results = emit_region(e, self.single.op.regions[0].blocks[0], args)
        for memory, element, result in zip(memories, elements, results, strict=True):
            if element.kind == "b":
                result = b.cast("arith.extui", result, "i8")
            e.store_to(memory, result, to, mask)

"""Kind `select_and_scatter` (the gradient of max-pooling): fill with the initial value, then
scatter. Each source element is combined with the selected element of its window.

Windows may overlap, so the source is taken in row-major order; tasks are the elements of the
dimensions without a window (batch, channels).
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.scalar_regions import takes_lanes
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.single_op import SingleOp, digits, offset
from shlo_disc.lower.plan import KernelPlan, Launch, Output
from shlo_disc.lower.values.elemental import Elemental, emit_region
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register, Value
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned


def emit_select_and_scatter(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of a `select_and_scatter`."""
    single = SingleOp.of(fusion, machine)
    operand, _, init = list(single.op.operands)
    result = Output(0)
    element = element_of(operand)

    def initial(e: Elemental, at: Ix, mask: Mask | None) -> Register:
        return e.value_at(init, (), None)

    count = Expr.product(single.shape(operand))
    fill = single.fill(result, element, count, initial, "fill")
    return KernelPlan((fill, _Scatter(single).launch(result)))


class _Scatter:
    def __init__(self, single: SingleOp) -> None:
        self.single, op = single, single.op
        self.operand, self.source = op.operands[0], op.operands[1]
        self.sizes, self.source_sizes = single.shape(self.operand), single.shape(self.source)
        rank = len(self.sizes)
        self.window = attr.integers_or(op, "window_dimensions", rank, 1)
        self.stride = attr.integers_or(op, "window_strides", rank, 1)
        self.low = [low for low, _ in attr.pairs(op, "padding", rank)]
        plain = [
            w == s == 1 and p == (0, 0)
            for w, s, p in zip(
                self.window, self.stride, attr.pairs(op, "padding", rank), strict=True
            )
        ]
        self.free = [d for d in range(rank) if plain[d]]
        self.moving = [d for d in range(rank) if not plain[d]]

    def launch(self, result: Output) -> Launch:
        """All source elements."""
        e = self.single.kernel(0)
        b = e.b
        free_sizes = [self.source_sizes[d] for d in self.free]
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            where = digits(b, task.index, free_sizes)
            self._nest(e, result, self.moving, dict(zip(self.free, where, strict=True)))
        steps = Expr.product(self.source_sizes[d] for d in self.moving)
        area = 1
        for w in self.window:
            area *= w
        extent = Expr.product(free_sizes)
        return self.single.launch(e, "select_and_scatter", extent, steps * (area * 3 + 10) + 20)

    def _nest(
        self, e: Elemental, result: Output, rest: Sequence[int], index: dict[int, IndexValue]
    ) -> None:
        b = e.b
        if not rest:
            self._one(e, result, [index[d] for d in range(len(self.sizes))])
            return
        with b.loop(0, b.param(self.source_sizes[rest[0]], opaque=True), 1) as loop:
            self._nest(e, result, rest[1:], {**index, rest[0]: loop.index})

    def _best(
        self,
        e: Elemental,
        rest: Sequence[int],
        place: dict[int, IndexValue],
        inside: Mask,
        best: list[Value],
    ) -> list[Value]:
        """(is there one, value, place) of the element chosen in the part of a window whose
        dimensions `rest` begin at `place`; `best` is that of the parts before.
        """
        b = e.b
        if rest:
            d = rest[0]
            with b.loop(0, self.window[d], 1, best, hint="w") as loop:
                at = place[d] + loop.index
                within = b.cmpi("ult", at, b.param(self.sizes[d]))
                ok = inside & within
                loop.yield_(*self._best(e, rest[1:], {**place, d: at}, ok, loop.args))
            return loop.results
        found, value, flat = Mask.of(best[0]), Register.of(best[1]), IndexValue.of(best[2])
        here = offset(b, [place[d] for d in range(len(self.sizes))], dense_strides(self.sizes))
        with b.if_(inside, Value) as branch:
            candidate = self.single.read(e, self.operand, here)
            select = self.single.op.regions[0].blocks[0]

            def keeps() -> Mask:
                return Mask.of(emit_region(e, select, [value, candidate])[0])

            if takes_lanes(self.single.op):
                keep = found & keeps()
            else:  # before the first element there is no value, on which a loop might never end
                with b.if_(found, Mask) as known:
                    known.yield_(keeps())
                    with known.otherwise():
                        known.yield_(b.flags(False))
                (keep,) = known.results
            branch.yield_(
                b.flags(True),
                b.select(keep, value, candidate),
                b.select(keep, flat, here),
            )
            with branch.otherwise():
                branch.yield_(*best)
        return branch.results

    def _one(self, e: Elemental, result: Output, source: list[IndexValue]) -> None:
        """One source element: choose in its window, then combine."""
        b, op = e.b, self.single.op
        element = element_of(self.operand)
        corner = [
            at * stride - low for at, stride, low in zip(source, self.stride, self.low, strict=True)
        ]
        nothing = b.constant(0, element.register)
        start: list[Value] = [b.flags(False), nothing, b.index(0)]
        place = dict(enumerate(corner))
        found, _, chosen = self._best(e, self.moving, place, b.flags(True), start)
        with b.if_(Mask.of(found)):
            flat = IndexValue.of(chosen)
            memory = b.memref(e.arguments.slot(result), element.storage)
            old = e.as_register(memory.load(flat, readonly=False), element)
            at = offset(b, source, dense_strides(self.source_sizes))
            update = self.single.read(e, self.source, at)
            (new,) = emit_region(e, op.regions[1].blocks[0], [old, update])
            if element.kind == "b":
                new = b.cast("arith.extui", new, "i8")
            memory.store(new, flat)

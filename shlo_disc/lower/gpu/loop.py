"""Kind `loop`: every element of the results on its own, as many neighbours a thread as one access.

A task is a vector of neighbouring elements of the innermost factor; the last one of a row may be
partial. Operands read across that factor go through tiles (`tiles.py`). Indices and values are
`lower/values/`, as on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.gpu.access import access_lanes
from shlo_disc.lower.gpu.builder import GpuBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.tiles import tiled
from shlo_disc.lower.gpu.variants import assuming_divisible
from shlo_disc.lower.kernels.names import fusion_name
from shlo_disc.lower.kernels.odometer import digits_of
from shlo_disc.lower.kernels.written import Written, written
from shlo_disc.lower.plan import Condition, If, KernelPlan, Launch
from shlo_disc.lower.schedule.iteration_space import shape_tile_space
from shlo_disc.lower.schedule.transposed_operands import worthwhile
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.index import Ix, Space
from shlo_disc.lower.values.reduction import REDUCTIONS
from shlo_disc.lower.values.typed import Mask
from shlo_disc.passes.match_single_op import LoopRecord
from shlo_disc.passes.records import Planned


def emit(fusion: Planned[LoopRecord], machine: Machine) -> KernelPlan:
    """The plan of a `loop` fusion.

    Raises UnsupportedError for an op or element type no rule covers.
    """
    block, record, shapes = fusion.block, fusion.record, fusion.shapes
    if not record.roots:
        return KernelPlan(())
    # An element that takes a loop of its own is enough for a thread.
    is_heavy = any(view.operation.name in REDUCTIONS for view in block.operations)
    lanes = 0 if is_heavy else access_lanes(block, record.roots, machine, alone=True)
    lanes = 0 if lanes == 1 else lanes

    def write(factors: Sequence[Expr], within: int = 1) -> Written:
        return _Loop(fusion, machine, factors, lanes, within).written()

    sizes = [size for size in record.space if not size.is_one]
    equal = shapes.constraints.equal
    factors, within, done = shape_tile_space(sizes, write, lanes, equal, lambda _: False, 4)
    if within > 1:
        factors = [*factors[:-2], factors[-2] * factors[-1]]
    name = fusion_name(fusion.op, "loop")
    staged = [] if within > 1 else worthwhile(done.crossed, factors)
    if staged:
        return KernelPlan((tiled(fusion, machine, factors, staged, lanes),))
    inner = factors[-1] if factors else Expr.const(1)

    def launch_of(written: Written, lanes: int) -> Launch:
        tasks = Expr.product(factors[:-1]) * ceil_div(inner, max(1, lanes))
        return written.arguments.launch(written.made, name, tasks)

    is_whole = shapes.constraints.divisible(inner, max(1, lanes))
    if len(factors) == 1 or within > 1 or is_whole:
        return KernelPlan((launch_of(done, lanes),))
    # Where rows do not begin at whole accesses, neighbours are for neighbouring threads.
    by_element = launch_of(_Loop(fusion, machine, factors, 0).written(), 0)
    if inner.is_const:
        return KernelPlan((by_element,))
    known = replace(fusion, shapes=assuming_divisible(shapes, inner, lanes))
    by_access = launch_of(_Loop(known, machine, factors, lanes).written(), lanes)
    condition = Condition(inner % lanes, "==", Expr.const(0))
    return KernelPlan((If(condition, (by_access,), (by_element,)),))


class _Loop:
    """Writes the kernel over `factors`; `within`: the size of the last factor where lanes run over
    the last two.
    """

    def __init__(
        self,
        fusion: Planned[LoopRecord],
        machine: Machine,
        factors: Sequence[Expr],
        lanes: int,
        within: int = 1,
    ) -> None:
        self.roots, self.lanes, self.within = fusion.record.roots, lanes, within
        b, shapes = GpuBuilder(machine), fusion.shapes
        self.b, self.space = b, Space(b, shapes.constraints, factors, lanes)
        self.e = Elemental(b, self.space, shapes, fusion.block, Arguments())
        self.factors = list(factors)
        if within > 1:
            self.factors = [*factors[:-2], factors[-2] * factors[-1]]

    def written(self) -> Written:
        """The kernel, finished."""
        b = self.b
        with b.if_(b.lo < b.hi):
            if self.lanes and self.factors:
                self._vector()
            else:
                self._element()
        return written(self.e)

    def _element(self) -> None:
        b = self.b
        if self.factors:
            sizes = [b.param(factor) for factor in self.factors]
            self.space.tiles = [Ix(digit) for digit in digits_of(b, b.lo, sizes)]
        self.space.flats[0, len(self.factors)] = b.lo
        self.e.store_all(self.roots, None)

    def _vector(self) -> None:
        b, lanes, size = self.b, self.lanes, self.factors[-1]
        n = b.param(size)
        sizes = [*(b.param(factor) for factor in self.factors[:-1]), n.ceil_div(lanes)]
        *rows, piece = digits_of(b, b.lo, sizes)
        first = piece * lanes

        def store(mask: Mask | None) -> None:
            ix = Ix(first, 1, multiple=lanes)
            self.space.tiles = [*(Ix(d) for d in rows), ix]
            if self.within > 1:
                lane, within = range(lanes), self.within
                outer = self.space.steps(first // within, [k // within for k in lane])
                inner = self.space.steps(b.index(0), [k % within for k in lane], multiple=0)
                self.space.tiles = [*self.space.tiles[:-1], outer, inner]
                self.space.columns = (len(rows), ix)
            self.e.tail = mask
            self.e.store_all(self.roots, mask)

        if self.space.divisible(size, lanes):
            store(None)
            return
        b.either(first + lanes <= n, lambda: store(None), lambda: store(b.mask(n - first, lanes)))

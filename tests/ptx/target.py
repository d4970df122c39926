"""The emitter of `loop` fusions for PTX: a task is one element of the results.

It is what `lower/cpu/loop.py` is for the CPU, without lanes, chunks and staging. All that computes
values and indices is `lower/values/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.plan import Kernel, KernelPlan, Launch, Output
from shlo_disc.lower.schedule.iteration_space import shape_tile_space
from shlo_disc.lower.values import data_movement, reduction  # noqa: F401 - they fill the rules
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix, Space
from shlo_disc.mlir import ir
from shlo_disc.passes.match_single_op import LoopRecord
from shlo_disc.passes.records import Planned
from tests.ptx.builder import PtxBuilder

__all__ = ["emit_loop"]


@dataclass
class _Written:
    text: str
    params: tuple[Expr, ...]
    arguments: Arguments
    space: Space


def emit_loop(fusion: Planned[LoopRecord], machine: object) -> KernelPlan:
    """The plan of a `loop` fusion; `machine` is not asked anything."""
    block, record, shapes = fusion.block, fusion.record, fusion.shapes

    def write(factors: Sequence[Expr], within: int = 1) -> _Written:
        assert within == 1, "there are no lanes"
        return _write(block, record.roots, shapes, factors)

    sizes = [size for size in record.space if not size.is_one]
    factors, _, done = shape_tile_space(sizes, write, 0, shapes.constraints.equal, lambda _: False)
    kernel = Kernel("loop", done.text)
    extent = Expr.product(factors)
    buffers = tuple(done.arguments.buffers)
    return KernelPlan((Launch(kernel, buffers, done.params, extent, Expr.const(1)),))


def _write(
    block: ir.Block, roots: Sequence[ir.Value], shapes: ShapeAnalysis, factors: Sequence[Expr]
) -> _Written:
    b, arguments = PtxBuilder(), Arguments()
    space = Space(b, shapes.constraints, factors, 0)
    e = Elemental(b, space, shapes, block, arguments)
    with b.if_(b.cmpi("slt", b.lo, b.hi)):
        rest, digits = b.lo, []
        for factor in reversed(factors[1:]):
            radix = space.positive(factor)
            digits.insert(0, b.rem(rest, radix))
            rest = b.div(rest, radix)
        if factors:
            digits.insert(0, rest)
        space.tiles = [Ix(digit) for digit in digits]
        space.flats[0, len(factors)] = b.lo
        for k, root in enumerate(roots):
            shape = e.shape(root)
            index = space.root(shape, 0, len(factors)) if shape else ()
            at = space.force(space.flat_lazy(0, len(factors)))
            e.store(Output(k), element_of(root), e.value_at(root, index), at, None)
    text, params = b.finish()
    return _Written(text, params, arguments, space)

"""Kernels whose indices have 32 bits: no 64-bit products and divisions, and fewer registers.

Emitters write `index`, which is lowered to i64. A kernel whose signature says that `index` has 32
bits is lowered to i32; addresses are extended, so memory may have more bytes. Such a kernel is
right while every size and every element number in it is below 2^31. Sizes prove that, or the host
program asks for them and has the other kernel for larger ones. A second kernel takes time to
compile, so it is there only where it pays.

Measured on an H200 at 8192 x 8192, 64 and 32 bits, in microseconds:

    transposes through tiles   bf16: 106.2 and 78.2 (416 and 184 instructions); f32: 133.8 and 134.6
    broadcasts, element-wise   within 3 % of each other, as memory is what takes the time
    sums of columns            f32: 69.2 and 70.6 (52 and 40 registers); bf16: 39.1 and 39.2
    softmax, layer-norm        bf16: 2 % less; f32: up to 4 % more
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.images import signed
from shlo_disc.lower.plan import All, Condition, If, Launch, Step
from shlo_disc.passes.records import Planned

_KINDS = ("loop", "column")
"""Kinds of fusions whose kernels compute all their addresses in `index`, and gain by it."""

MOST = (1 << 31) - (1 << 20)
"""Elements of an array, at most. Threads behind the last element compute numbers beyond."""

_LEAVE_ARRAYS = (
    "stablehlo.convolution",
    "stablehlo.dot_general",
    "stablehlo.dynamic_pad",
    "stablehlo.reduce_window",
    "stablehlo.select_and_scatter",
)
"""Ops that compute places outside of their arrays, behind strides and dilations."""


def narrowed(fusion: Planned[Any], steps: tuple[Step, ...], kind: str) -> tuple[Step, ...]:
    """`steps`, whose launches have kernels of 32-bit indices where that is right and pays."""
    if kind not in _KINDS or any(map(_leaves_arrays, fusion.block.operations)):
        return steps
    counts = _counts(fusion.block, fusion.shapes)
    narrower = _Narrower(counts, fusion.shapes.constraints, kind == "loop")
    return tuple(map(narrower.step, steps))


def _leaves_arrays(view: ir.OpView) -> bool:
    op = view.operation
    if op.name == "stablehlo.pad":
        return any(ir.DenseI64ArrayAttr(op.attributes["interior_padding"]))
    return op.name in _LEAVE_ARRAYS


def _counts(block: ir.Block, shapes: ShapeAnalysis) -> tuple[Expr, ...]:
    """The numbers of elements of all values of a fusion."""
    values = [*block.arguments, *(r for view in block.operations for r in view.operation.results)]
    return tuple(dict.fromkeys(Expr.product(shapes.shape(value)) for value in values))


@dataclass(frozen=True)
class _Narrower:
    """Rewrites the launches of one fusion."""

    counts: tuple[Expr, ...]
    """Elements of every array and of everything computed in between."""
    facts: Constraints
    may_choose: bool

    def step(self, step: Step) -> Step:
        """`step` with narrow kernels."""
        if isinstance(step, If):
            then, otherwise = (tuple(map(self.step, s)) for s in (step.then, step.otherwise))
            return If(step.condition, then, otherwise)
        if not isinstance(step, Launch):
            return step
        source = signed(step.kernel.source)
        if not source.signature.fits_32_bits:
            return step
        sizes = self._undecided((*self.counts, *step.params, step.extent))
        # An element-wise kernel with transposes through tiles has shared memory.
        if sizes and not (self.may_choose and source.signature.has_shared):
            return step
        narrow = replace(source, signature=replace(source.signature, index_bits=32))
        launch = replace(step, kernel=replace(step.kernel, source=narrow))
        if not sizes:
            return launch
        conditions = tuple(Condition(size, "<=", Expr.const(MOST)) for size in sizes)
        chosen = conditions[0] if len(conditions) == 1 else All(conditions)
        return If(chosen, (launch,), (step,))

    def _undecided(self, sizes: Iterable[Expr]) -> list[Expr]:
        """Those of `sizes` of which a call must ask whether they are at most `MOST`."""
        left: list[Expr] = []
        for size in sorted(dict.fromkeys(sizes), key=lambda e: (-len(e.symbols()), str(e))):
            _, most = self.facts.bounds(size)
            if most is not None and most <= MOST:
                continue
            if not any(self.facts.at_least(other, size) for other in left):
                left = [other for other in left if not self.facts.at_least(size, other)]
                left.append(size)
        return left

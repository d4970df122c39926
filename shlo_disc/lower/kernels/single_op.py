"""What the emitters of fusions with one op share: operands, results, copies, fills."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.strips import strips
from shlo_disc.lower.plan import Buffer, Launch, Output, Workspace
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Group, Ix, Space
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.match_single_op import Flag, SingleOpRecord
from shlo_disc.passes.records import Planned

COPY_CHUNK = 16384
"""Elements a task copies: a few microseconds."""


@dataclass
class SingleOp:
    """The op of a single-op fusion: sort, scatter, top_k, ..."""

    block: ir.Block
    """What the fusion computes: `op`, and what that reads."""
    op: ir.Operation
    shapes: ShapeAnalysis
    machine: TaskMachine
    results: list[Output | None]
    """Where each result of the op goes; None when nobody reads it."""
    flags: tuple[Flag, ...] = ()

    @staticmethod
    def of(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> SingleOp:
        """The op of `fusion` that has an emitter of its own."""
        record = fusion.record
        results = [None if number is None else Output(number) for number in record.results]
        return SingleOp(fusion.block, record.op, fusion.shapes, machine, results, record.flags)

    def shape(self, value: ir.Value) -> tuple[Expr, ...]:
        """The symbolic sizes of an operand or result of the op."""
        return tuple(self.shapes.shape(value))

    def kernel(self, lanes: int, b: KernelBuilder | None = None) -> Elemental:
        """A new kernel; `lanes` of vectors it reads, `b` if tasks are not for threads alone."""
        b = self.machine.builder() if b is None else b
        space = Space(b, self.shapes.constraints, [], lanes)
        return Elemental(b, space, self.shapes, self.block, Arguments())

    def launch(
        self, e: Elemental, name: str, extent: Expr, cost: Expr, scratch: Expr | int = 0
    ) -> Launch:
        """The finished kernel of `e` over `extent` tasks."""
        return e.arguments.launch(e.b.finish(), name, extent, cost, scratch)

    def places(self, values: Sequence[ir.Value]) -> tuple[list[Buffer], tuple[Expr, ...]]:
        """A buffer for each result of the op, in a workspace when nobody reads it: (buffers,
        bytes of the workspaces).
        """
        buffers: list[Buffer] = []
        sizes: list[Expr] = []
        for place, value in zip(self.results, values, strict=True):
            if place is None:
                buffers.append(Workspace(len(sizes)))
                sizes.append(Expr.product(self.shape(value)) * element_of(value).bytes)
            else:
                buffers.append(place)
        return buffers, tuple(sizes)

    def read(self, e: Elemental, value: ir.Value, flat: IndexValue) -> Register:
        """Element `flat` of an operand (a scalar register)."""
        sizes = self.shape(value)
        index = (Group(sizes, e.space.uniform(flat)),) if sizes else ()
        return e.value_at(value, index, None)

    def copy(self, source: ir.Value, target: Buffer) -> Launch:
        """A launch that copies an operand of the op (or repeats a constant) into a buffer."""
        element = element_of(source)

        def body(e: Elemental, at: Ix, mask: Mask | None) -> Register:
            group = Group(self.shape(source), at)
            return e.value_at(source, (group,) if self.shape(source) else (), mask)

        return self.fill(target, element, Expr.product(self.shape(source)), body, "copy")

    def fill(
        self,
        target: Buffer,
        element: ElementType,
        count: Expr,
        body: Callable[[Elemental, Ix, Mask | None], Register],
        name: str,
    ) -> Launch:
        """A launch that writes `body(kernel, flat index, mask)` to a buffer."""
        lanes = self.machine.lanes(element.bytes)
        chunk = self.machine.moved(COPY_CHUNK, lanes)
        e = self.kernel(lanes)
        b = e.b
        n = b.param(count, opaque=True)
        first = b.lo * chunk
        last = b.min(b.hi * chunk, n)

        def step(at: IndexValue, mask: Mask | None, _: list[Register]) -> None:
            ix = Ix(at, 1, multiple=lanes)
            value = body(e, ix, mask)
            e.store(target, element, b.broadcast(value, lanes), ix, mask)

        strips(b, first, last, lanes, step)
        cost = Expr.min(count, Expr.const(chunk)) * element.bytes // 10 + 10
        return self.launch(e, name, ceil_div(count, chunk), cost)


def digits(b: KernelBuilder, number: IndexValue, sizes: Sequence[Expr]) -> list[IndexValue]:
    """`number` in mixed radix `sizes` (the first is not reduced)."""
    out: list[IndexValue] = []
    rest = number
    for k in range(len(sizes) - 1, 0, -1):
        size = sizes[k]
        if size.is_const and size.value == 1:
            out.insert(0, b.index(0))
            continue
        radix = b.max(b.param(size), 1)
        out.insert(0, rest % radix)
        rest = rest // radix
    return [rest, *out] if sizes else []


def offset(b: KernelBuilder, index: Sequence[IndexValue], steps: Sequence[Expr]) -> IndexValue:
    """The sum of index times step."""
    total = b.index(0)
    for at, step in zip(index, steps, strict=True):
        total = total + at * b.param(step)
    return total

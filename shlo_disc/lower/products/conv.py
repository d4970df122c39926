"""Kind `conv`: a convolution as a contraction with overlapping strides, through products.

    out[n, o, x] = sum over t, i of padded[n, i, x * stride + t * rhs_dilation] * kernel[t, i, o]

Padding needs a copy of the input, with the zeros written out. Every window is then inside the array
and strides say the rest: no im2col. Groups are batch axes. A dilated input is convolved in phases
where that is possible; else its zeros are written out, too.

Source: StableHLO specification, `convolution`; M. Dukhan, "The indirect convolution algorithm"
(2019), for the idea of a GEMM whose rows are found through a table of offsets.
"""

from __future__ import annotations

from dataclasses import replace

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.ir.convolutions import conv_numbers
from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.odometer import odometer
from shlo_disc.lower.plan import Buffer, Input, KernelPlan, Launch, Output, Step, Workspace
from shlo_disc.lower.products.request import MakePlanner, Request
from shlo_disc.lower.schedule.contraction import Dense
from shlo_disc.lower.schedule.convolution import (
    Phase,
    Window,
    convolution_problem,
    phase_shape,
    phases_of,
)
from shlo_disc.lower.values.elemental import Arguments
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.typed import IndexValue, Mask, vector_type
from shlo_disc.passes.match_dense import ConvRecord, Sums
from shlo_disc.passes.records import Planned

COPY = -1
"""Stands for the number of the operand that is a padded copy: one value may be both operands."""


def emit_conv(
    fusion: Planned[ConvRecord], machine: TaskMachine, make_planner: MakePlanner
) -> KernelPlan:
    """The plan of a `conv` fusion: one stablehlo.convolution, perhaps with transposes and
    element-wise ops behind it. `make_planner` plans its products.

    Raises UnsupportedError for an element type that is not compiled.
    """
    block, record, shapes = fusion.block, fusion.record, fusion.shapes
    op, root = record.sums.op, record.root
    inputs = list(block.arguments)
    window = Window.of(op, shapes)
    lhs, rhs = (inputs.index(v) for v in op.operands[:2])
    element = element_of(op.operands[0])
    window, phases = phases_of(op, window, shapes)
    steps: tuple[Step, ...] = ()
    workspaces: tuple[Expr, ...] = ()
    image: Buffer = Input(lhs)
    number = lhs
    if window.is_padded:
        number = COPY
        sizes = window.padded_sizes
        bytes_ = Expr.product(sizes) * element.bytes
        # The kernel reads whole vectors of no padding; room for one keeps a zero size valid.
        workspaces, image = (bytes_ + 64,), Workspace(0)
        steps = (_pad(window, element, Input(lhs), image, machine),)
    made = element_of(root)
    out: Output | Workspace = Output(0)
    if len(phases) > 1:
        out = Workspace(len(workspaces))
        room = Expr.product(phase_shape(record.sums, phases[0], shapes)) * made.bytes
        workspaces = (*workspaces, room + 64)
    for phase in phases:
        problem = convolution_problem(record.sums, window, phase, shapes, number, rhs)
        dense = Dense(problem, record.sums, root)
        buffers: dict[int, Buffer] = {number: image, rhs: Input(rhs)}
        a, b = buffers[problem.a_input], buffers[problem.b_input]
        request = replace(
            Request.of(dense, block, shapes, machine, out), label="conv", a_buffer=a, b_buffer=b,
            # The image is another one in every call.
            keep_b=problem.b_input == rhs, panels=Workspace(len(workspaces)),
        )  # fmt: skip
        planner = make_planner(request)
        if not phase.is_zero:
            steps += planner.steps()
        if planner.panel_bytes is not None:
            workspaces = (*workspaces, planner.panel_bytes)
        if len(phases) > 1:
            steps += (_spread(record.sums, phase, shapes, made, out, machine),)
    return KernelPlan(steps, workspaces)


def _spread(
    sums: Sums,
    phase: Phase,
    shapes: ShapeAnalysis,
    element: ElementType,
    source: Buffer,
    machine: TaskMachine,
) -> Launch:
    """Write the results of a phase to their places; a task is a line of them.

    They are zeros where no tap meets an element; `source` is not read then.
    """
    sizes, whole = phase_shape(sums, phase, shapes), shapes.shape(sums.total)
    last = len(sizes) - 1
    spatial = {sums.order.index(d): i for i, d in enumerate(conv_numbers(sums.op).output.spatial)}
    steps = [phase.step[spatial[d]] if d in spatial else 1 for d in range(last + 1)]
    places = {f"place{d}": Expr.const(phase.place[i]) for d, i in spatial.items()}
    named = places | {f"p{d}": size for d, size in enumerate(sizes)}
    named |= {f"s{d}": size for d, size in enumerate(whole)}
    named |= {f"stride{d}": stride for d, stride in enumerate(dense_strides(whole))}
    b = machine.sized(named)
    x, out = b.memref(0, element.storage), b.memref(1, element.storage)
    lanes = machine.lanes(element.bytes)
    nothing = b.constant(0, vector_type(lanes, element.storage))
    zero = b.constant(0, element.storage)
    width = b.size(f"p{last}")

    def put(d: int, at: IndexValue) -> IndexValue:
        """The place in the result of the `at`-th one along a dimension."""
        return at * steps[d] + b.size(f"place{d}") if d in spatial else at

    def task(number: IndexValue, digits: list[IndexValue]) -> None:
        line, base = number * width, b.index(0)
        exists = b.flags(True)
        for d in range(last):
            at = put(d, digits[d])
            exists = exists & (at < b.size(f"s{d}"))
            base = base + at * b.size(f"stride{d}")
        with b.if_(exists):
            if steps[last] == 1:
                with b.loop(0, width, lanes, hint="j") as j:
                    mask = b.mask(width - j.index, lanes)
                    read = x.masked_load(line + j.index, mask, nothing, readonly=False)
                    value = nothing if phase.is_zero else read
                    out.masked_store(value, base + j.index, mask)
                return
            first = b.size(f"place{last}")
            count = (b.size(f"s{last}") - first).ceil_div(steps[last])
            with b.loop(0, count, 1, hint="i") as i:
                value = zero if phase.is_zero else x.load(line + i.index, readonly=False)
                out.store(value, base + put(last, i.index))

    outer = [b.size(f"p{d}") for d in range(last)]
    odometer(b, outer or [b.index(1)], task)
    work = sizes[last] * element.bytes // 8 + 10
    lines = Expr.product(sizes[:last])
    return Arguments([source, Output(0)]).launch(b.finish(), "conv_spread", lines, work)


def _pad(
    window: Window, element: ElementType, source: Buffer, to: Buffer, machine: TaskMachine
) -> Launch:
    """Write the input with the zeros of padding and dilation; a task is a line of the result."""
    sizes, padded = window.sizes, window.padded_sizes
    last = len(sizes) - 1
    spatial = {d: i for i, d in enumerate(window.spatial)}
    named = {f"p{d}": size for d, size in enumerate(padded)}
    named |= {f"s{d}": size for d, size in enumerate(sizes)}
    named |= {f"stride{d}": stride for d, stride in enumerate(dense_strides(sizes))}
    named |= {f"low{d}": window.low[i] for d, i in spatial.items()}
    b = machine.sized(named)
    x, out = b.memref(0, element.storage), b.memref(1, element.storage)
    lanes = machine.lanes(element.bytes)
    nothing = b.constant(0, vector_type(lanes, element.storage))
    size, width = b.size(f"s{last}"), b.size(f"p{last}")

    def inside(d: int, at: IndexValue) -> tuple[Mask, IndexValue]:
        """(whether an index of the padded input is one of the input, that index)."""
        dilation = window.lhs_dilation[spatial[d]]
        shifted = at - b.size(f"low{d}")
        index = b.op("arith.divsi", shifted, b.index(dilation))
        ok = shifted >= 0
        ok = ok & (index < b.size(f"s{d}"))
        if dilation != 1:
            ok = ok & (index * dilation).equals(shifted)
        return ok, index

    def task(number: IndexValue, digits: list[IndexValue]) -> None:
        line, base = number * width, b.index(0)
        exists = b.flags(True)
        for d in range(last):
            at = digits[d]
            if d in spatial:
                ok, at = inside(d, at)
                exists = exists & ok
            base = base + at * b.size(f"stride{d}")
        low = b.size(f"low{last}") if last in spatial else b.index(0)
        dilation = window.lhs_dilation[spatial[last]] if last in spatial else 1
        count = b.select(exists, size, b.index(0))
        if dilation == 1:
            with b.loop(0, width, lanes, hint="j") as j:
                index = j.index - low
                below = b.mask(count - index, lanes)
                above = b.mask(0 - index, lanes)
                outside = ~above
                mask = below & outside
                value = x.masked_load(base + index, mask, nothing)
                out.masked_store(value, line + j.index, b.mask(width - j.index, lanes))
            return
        with b.loop(0, width, lanes, hint="j") as j:
            mask = b.mask(width - j.index, lanes)
            out.masked_store(nothing, line + j.index, mask)
        with b.loop(0, count, 1, hint="i") as i:
            at = i.index * dilation + low
            with b.if_(b.cmpi("ult", at, width)):
                out.store(x.load(base + i.index), line + at)

    outer = [b.size(f"p{d}") for d in range(last)]
    odometer(b, outer or [b.index(1)], task)
    work = padded[last] * element.bytes // 8 + 10
    return Arguments([source, to]).launch(b.finish(), "conv_pad", Expr.product(padded[:last]), work)

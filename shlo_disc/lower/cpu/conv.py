"""Kind `conv`: a convolution as a contraction with overlapping strides, through the dense kernel.

    out[n, o, x] = sum over t, i of padded[n, i, x * stride + t * rhs_dilation] * kernel[t, i, o]

Only padding and lhs dilation need a copy of the input, with the zeros written out; with that every
window is inside the array and strides say the rest: no im2col. Groups are batch axes.

Source: StableHLO specification, `convolution`; M. Dukhan, "The indirect convolution algorithm"
(2019), for the idea of a GEMM whose rows are found through a table of offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.lower.cpu.dense import Planner
from shlo_disc.lower.cpu.dense.epilogue import Epilogue
from shlo_disc.lower.cpu.dense.operands import Finish
from shlo_disc.lower.cpu.loop import odometer
from shlo_disc.lower.cpu.machine import Target
from shlo_disc.lower.cpu.sized_builder import SizedBuilder
from shlo_disc.lower.plan import Buffer, Input, Kernel, KernelPlan, Launch, Step, Workspace
from shlo_disc.lower.schedule.contraction import (
    Axis,
    Dense,
    Problem,
    compute_element,
    normalized,
)
from shlo_disc.lower.values.builder import vector_type
from shlo_disc.lower.values.elemental import Arguments
from shlo_disc.lower.values.elements import Element, element_of, unsupported
from shlo_disc.mlir import ir, stablehlo
from shlo_disc.passes.match_dense import ConvRecord, Sums
from shlo_disc.passes.records import record_of

__all__ = ["emit_conv"]

ZERO, ONE = Expr.const(0), Expr.const(1)


def emit_conv(fusion: ir.Operation, shapes: ShapeAnalysis, target: Target) -> KernelPlan:
    """The plan of a `conv` fusion: one stablehlo.convolution or dynamic_conv, perhaps with
    transposes and element-wise ops behind it.

    Raises UnsupportedError for an element type that is not compiled and for padding computed from
    data.
    """
    block = fusion.regions[0].blocks[0]
    record = record_of(fusion, shapes, ConvRecord)
    op, root = record.sums.op, record.root
    inputs = list(block.arguments)
    window = _Window.of(op, fusion, inputs, shapes)
    lhs, rhs = (inputs.index(v) for v in op.operands[:2])
    element = element_of(op.operands[0])
    steps: tuple[Step, ...] = ()
    workspaces: tuple[Expr, ...] = ()
    image: Buffer = Input(lhs)
    if window.is_padded:
        sizes = window.padded_sizes
        bytes_ = Expr.product(sizes) * element.bytes
        # The kernel reads whole vectors of no padding; room for one keeps a zero size valid.
        workspaces, image = (bytes_ + 64,), Workspace(0)
        steps = (_pad(window, element, Input(lhs), image, target),)
    problem = _problem(record.sums, window, shapes, lhs, rhs)
    dense = Dense(problem, record.sums, root)

    def finish(arguments: Arguments, lanes: int) -> Finish:
        return Epilogue(dense, block, shapes, arguments, lanes)

    buffers: dict[int, Buffer] = {lhs: image, rhs: Input(rhs)}
    planner = Planner(
        problem,
        shapes,
        target,
        a_buffer=buffers[problem.a_input],
        b_buffer=buffers[problem.b_input],
        finish=finish if root != dense.total else None,
        result=element_of(root),
        label="conv",
        # The image is another one in every call.
        keep_b=problem.b_input == rhs,
    )
    steps += planner.steps()
    return KernelPlan(steps, workspaces)


@dataclass(frozen=True)
class _Window:
    """The attributes of a convolution; by spatial dimension, in their order."""

    sizes: tuple[Expr, ...]
    """Of the input, all dimensions."""
    spatial: tuple[int, ...]
    """The spatial dimensions of the input."""
    strides: tuple[int, ...]
    low: tuple[Expr, ...]
    high: tuple[Expr, ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    reversal: tuple[bool, ...]

    @staticmethod
    def of(
        op: ir.Operation, fusion: ir.Operation, inputs: Sequence[ir.Value], shapes: ShapeAnalysis
    ) -> _Window:
        numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        spatial = tuple(numbers.input_spatial_dimensions)
        rank = len(spatial)

        def array(name: str) -> tuple[int, ...]:
            if name not in op.attributes:
                return (1,) * rank
            return tuple(int(x) for x in ir.DenseI64ArrayAttr(op.attributes[name]))

        reversal = (False,) * rank
        if "window_reversal" in op.attributes:
            reversal = tuple(
                bool(x) for x in ir.DenseBoolArrayAttr(op.attributes["window_reversal"])
            )
        padding = [ZERO] * (2 * rank)
        if op.name == "stablehlo.dynamic_conv":
            value = op.operands[2]
            found = shapes.elements(value)
            if found is None and value in inputs:
                found = shapes.elements(fusion.operands[inputs.index(value)])
            if found is None:
                unsupported(
                    op,
                    "padding computed from data",
                    "compute it from shapes, or pad with jnp.pad first",
                )
            padding = list(found)
        elif "padding" in op.attributes:
            attribute = ir.DenseIntElementsAttr(op.attributes["padding"])
            padding = [Expr.const(int(attribute[i])) for i in range(2 * rank)]
        return _Window(
            tuple(shapes.shape(op.operands[0])),
            spatial,
            array("window_strides"),
            tuple(padding[0::2]),
            tuple(padding[1::2]),
            array("lhs_dilation"),
            array("rhs_dilation"),
            reversal,
        )

    @property
    def is_padded(self) -> bool:
        """Does the input need a copy with zeros (or with its edges cut off)?"""
        return any(x != 0 for x in (*self.low, *self.high)) or any(
            d != 1 for d in self.lhs_dilation
        )

    @property
    def padded_sizes(self) -> tuple[Expr, ...]:
        """Sizes of that copy."""
        sizes = list(self.sizes)
        for i, d in enumerate(self.spatial):
            dilated = Expr.max((sizes[d] - 1) * self.lhs_dilation[i] + 1, 0)
            sizes[d] = Expr.max(dilated + self.low[i] + self.high[i], 0)
        return tuple(sizes)


def _problem(sums: Sums, window: _Window, shapes: ShapeAnalysis, lhs: int, rhs: int) -> Problem:
    """The contraction; `lhs`, `rhs`: operand numbers of the fusion."""
    op = sums.op
    n = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    groups = ir.IntegerAttr(op.attributes["feature_group_count"]).value
    batch_groups = ir.IntegerAttr(op.attributes["batch_group_count"]).value
    sizes = window.padded_sizes if window.is_padded else window.sizes
    kernel, out = shapes.shape(op.operands[1]), shapes.shape(op.results[0])
    ps, ks = dense_strides(sizes), dense_strides(kernel)
    stored = dense_strides(shapes.shape(sums.total))
    cs = [stored[sums.order.index(d)] for d in range(len(sums.order))]
    image_batch, image_feature = n.input_batch_dimension, n.input_feature_dimension
    in_feature, out_feature = n.kernel_input_feature_dimension, n.kernel_output_feature_dimension
    c_batch, c_feature = n.output_batch_dimension, n.output_feature_dimension
    parts = groups * batch_groups
    columns = kernel[out_feature] // parts
    rows = out[c_batch]
    batch = []
    for count, a_step in (
        (groups, ps[image_feature] * kernel[in_feature]),
        (batch_groups, ps[image_batch] * rows),
    ):
        steps = (a_step, ks[out_feature] * columns, cs[c_feature] * columns)
        batch.append(Axis(Expr.const(count), *steps))
    m = [Axis(rows, a=ps[image_batch], c=cs[c_batch])]
    k = []
    first = ZERO
    for i, d in enumerate(window.spatial):
        kd, od = n.kernel_spatial_dimensions[i], n.output_spatial_dimensions[i]
        m.append(Axis(out[od], a=ps[d] * window.strides[i], c=cs[od]))
        b_step = ks[kd]
        if window.reversal[i]:
            first = first + (kernel[kd] - 1) * b_step
            b_step = -b_step
        k.append(Axis(kernel[kd], a=ps[d] * window.rhs_dilation[i], b=b_step))
    k.append(Axis(kernel[in_feature], a=ps[image_feature], b=ks[in_feature]))
    a, b, c = (element_of(v) for v in (*op.operands[:2], op.results[0]))
    return normalized(
        Problem(
            batch=tuple(batch),
            m=tuple(m),
            n=(Axis(columns, b=ks[out_feature], c=cs[c_feature]),),
            k=tuple(k),
            a_input=lhs,
            b_input=rhs,
            a=a,
            b=b,
            c=c,
            compute=compute_element(op, a, b, c),
            b_first=first,
        ),
        shapes,
    )


def _pad(window: _Window, element: Element, source: Buffer, to: Buffer, target: Target) -> Launch:
    """Write the input with the zeros of padding and dilation; a task is a line of the result."""
    sizes, padded = window.sizes, window.padded_sizes
    last = len(sizes) - 1
    spatial = {d: i for i, d in enumerate(window.spatial)}
    named = {f"p{d}": size for d, size in enumerate(padded)}
    named |= {f"s{d}": size for d, size in enumerate(sizes)}
    named |= {f"stride{d}": stride for d, stride in enumerate(dense_strides(sizes))}
    named |= {f"low{d}": window.low[i] for d, i in spatial.items()}
    b = SizedBuilder(named)
    x, out = b.memref(0, element.storage), b.memref(1, element.storage)
    lanes = target.lanes(element.bytes)
    nothing = b.constant(0, vector_type(lanes, element.storage))
    size, width = b.size(f"s{last}"), b.size(f"p{last}")

    def inside(d: int, at: str) -> tuple[str, str]:
        """(whether an index of the padded input is one of the input, that index)."""
        dilation = window.lhs_dilation[spatial[d]]
        shifted = b.sub(at, b.size(f"low{d}"))
        index = b.op("arith.divsi", shifted, b.constant(dilation, "index"))
        ok = b.cmpi("sge", shifted, b.constant(0, "index"))
        ok = b.op("arith.andi", ok, b.cmpi("slt", index, b.size(f"s{d}")))
        if dilation != 1:
            ok = b.op("arith.andi", ok, b.cmpi("eq", b.mul(index, dilation), shifted))
        return ok, index

    def task(number: str, digits: list[str]) -> None:
        line, base = b.mul(number, width), b.constant(0, "index")
        exists = b.constant(True, "i1")
        for d in range(last):
            at = digits[d]
            if d in spatial:
                ok, at = inside(d, at)
                exists = b.op("arith.andi", exists, ok)
            base = b.add(base, b.mul(at, b.size(f"stride{d}")))
        low = b.size(f"low{last}") if last in spatial else b.constant(0, "index")
        dilation = window.lhs_dilation[spatial[last]] if last in spatial else 1
        count = b.select(exists, size, b.constant(0, "index"))
        if dilation == 1:
            with b.loop(0, width, lanes, hint="j") as j:
                index = b.sub(j.index, low)
                below = b.mask(b.sub(count, index), lanes)
                above = b.mask(b.sub(0, index), lanes)
                outside = b.op("arith.xori", above, b.constant(True, b.type_of(above)))
                mask = b.op("arith.andi", below, outside)
                value = b.masked_load(x, b.add(base, index), mask, nothing)
                b.masked_store(
                    value, out, b.add(line, j.index), b.mask(b.sub(width, j.index), lanes)
                )
            return
        with b.loop(0, width, lanes, hint="j") as j:
            mask = b.mask(b.sub(width, j.index), lanes)
            b.masked_store(nothing, out, b.add(line, j.index), mask)
        with b.loop(0, count, 1, hint="i") as i:
            at = b.add(b.mul(i.index, dilation), low)
            with b.if_(b.cmpi("ult", at, width)):
                b.store(b.load(x, b.add(base, i.index)), out, b.add(line, at))

    outer = [b.size(f"p{d}") for d in range(last)]
    odometer(b, outer or [b.constant(1, "index")], task)
    text, params = b.finish()
    lines = Expr.product(padded[:last])
    return Launch(
        Kernel("conv_pad", text),
        (source, to),
        params,
        lines,
        padded[last] * element.bytes // 8 + 10,
    )

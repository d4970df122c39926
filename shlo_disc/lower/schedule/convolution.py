"""A convolution as a contraction whose left operand has overlapping strides.

    out[n, o, x] = sum over t, i of padded[n, i, x * stride + t * rhs_dilation] * kernel[t, i, o]

Source: StableHLO specification, `convolution`.
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_disc.convolutions import conv_numbers
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.lower.schedule.contraction import Axis, Problem, compute_element, normalized
from shlo_disc.lower.values.elements import element_of
from shlo_disc.mlir import ir
from shlo_disc.passes.match_dense import Sums

__all__ = ["Window", "convolution_problem"]

ZERO, ONE = Expr.const(0), Expr.const(1)


@dataclass(frozen=True)
class Window:
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
    def of(op: ir.Operation, shapes: ShapeAnalysis) -> Window:
        """The window of `op`, a convolution."""
        spatial = conv_numbers(op).input.spatial
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
        if "padding" in op.attributes:
            attribute = ir.DenseIntElementsAttr(op.attributes["padding"])
            padding = [Expr.const(int(attribute[i])) for i in range(2 * rank)]
        return Window(
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
        """True if the input needs a copy with zeros, or with its edges cut off."""
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


def convolution_problem(
    sums: Sums, window: Window, shapes: ShapeAnalysis, lhs: int, rhs: int
) -> Problem:
    """The contraction; `lhs`, `rhs`: operand numbers of the fusion."""
    op = sums.op
    n = conv_numbers(op)
    groups = ir.IntegerAttr(op.attributes["feature_group_count"]).value
    batch_groups = ir.IntegerAttr(op.attributes["batch_group_count"]).value
    sizes = window.padded_sizes if window.is_padded else window.sizes
    kernel, out = shapes.shape(op.operands[1]), shapes.shape(op.results[0])
    ps, ks = dense_strides(sizes), dense_strides(kernel)
    stored = dense_strides(shapes.shape(sums.total))
    cs = [stored[sums.order.index(d)] for d in range(len(sums.order))]
    image_batch, image_feature = n.input.batch, n.input.feature
    in_feature, out_feature = n.kernel_input_feature, n.kernel_output_feature
    c_batch, c_feature = n.output.batch, n.output.feature
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
        kd, od = n.kernel_spatial[i], n.output.spatial[i]
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

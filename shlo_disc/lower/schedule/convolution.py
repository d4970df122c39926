"""A convolution as a contraction whose left operand has overlapping strides.

    out[n, o, x] = sum over t, i of padded[n, i, x * stride + t * rhs_dilation] * kernel[t, i, o]

Of an input with zeros between its elements, results at every n-th place have other taps of the
window that meet elements, always the same. Each such phase is a convolution without these zeros:

    lhs_dilation 2, low padding 1, window 3
        out[2 * q]     = input[q] * kernel[1]
        out[2 * q + 1] = input[q] * kernel[0] + input[q + 1] * kernel[2]

Source: StableHLO specification, `convolution`; for phases, polyphase filters.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.ir.contractions import may_round
from shlo_disc.ir.convolutions import comes_in_phases, conv_numbers, window_numbers
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.schedule.contraction import Axis, Problem, compute_element, normalized, swapped
from shlo_disc.lower.values.elements import element_of
from shlo_disc.passes.match_dense import Sums

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
            window_numbers(op, "window_strides"),
            tuple(padding[0::2]),
            tuple(padding[1::2]),
            window_numbers(op, "lhs_dilation"),
            window_numbers(op, "rhs_dilation"),
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


@dataclass(frozen=True)
class Phase:
    """Results at places `place + step * q`, q from 0 on; all by spatial dimension."""

    place: tuple[int, ...]
    step: tuple[int, ...]
    sizes: tuple[Expr, ...]
    """How many places are computed; in some phases the last is beyond the result."""
    first: tuple[int, ...]
    """The first tap of the window that meets an element; others follow at every `step`-th."""
    taps: tuple[Expr, ...]
    """How many there are."""
    shift: tuple[int, ...]
    """Where the window of q = 0 begins in the padded input."""

    @property
    def is_zero(self) -> bool:
        """True if no tap meets an element."""
        return any(taps == ZERO for taps in self.taps)


def phases_of(
    op: ir.Operation, window: Window, shapes: ShapeAnalysis
) -> tuple[Window, tuple[Phase, ...]]:
    """The phases of `op`, and the window of the input that all of them read.

    One phase is the whole convolution, of any other kind than :func:`comes_in_phases` says.
    """
    numbers, rank = conv_numbers(op), len(window.spatial)
    kernel, out = shapes.shape(op.operands[1]), shapes.shape(op.results[0])
    sizes = tuple(out[d] for d in numbers.output.spatial)
    taps = tuple(kernel[d] for d in numbers.kernel_spatial)
    none = (0,) * rank
    if not comes_in_phases(op):
        return window, (Phase(none, (1,) * rank, sizes, none, taps, none),)
    low, high = list(window.low), list(window.high)
    along = []
    for i, step in enumerate(window.lhs_dilation):
        if step == 1:
            along.append([(0, step, sizes[i], 0, taps[i], 0)])
            continue
        before, count = low[i].value, ceil_div(sizes[i], step)
        firsts = [(before - place) % step for place in range(step)]
        met = [max(-(-(taps[i].value - first) // step), 0) for first in firsts]
        starts = [(place + first - before) // step for place, first in enumerate(firsts)]
        least = min(starts)
        ends = [start + n - 1 - least for start, n in zip(starts, met, strict=True) if n]
        low[i] = Expr.const(-least)
        high[i] = count + max(ends, default=0) + least - window.sizes[window.spatial[i]]
        along.append([
            (place, step, count, first, Expr.const(n), start - least)
            for place, (first, n, start) in enumerate(zip(firsts, met, starts, strict=True))
        ])  # fmt: skip
    plain = replace(window, low=tuple(low), high=tuple(high), lhs_dilation=(1,) * rank)
    return plain, tuple(Phase(*zip(*each, strict=True)) for each in itertools.product(*along))


def phase_shape(sums: Sums, phase: Phase, shapes: ShapeAnalysis) -> tuple[Expr, ...]:
    """The sizes of the results of a phase, in the order in which `sums` are stored."""
    sizes = list(shapes.shape(sums.op.results[0]))
    for d, size in zip(conv_numbers(sums.op).output.spatial, phase.sizes, strict=True):
        sizes[d] = size
    return tuple(sizes[d] for d in sums.order)


def convolution_problem(
    sums: Sums, window: Window, phase: Phase, shapes: ShapeAnalysis, lhs: int, rhs: int
) -> Problem:
    """The contraction of a phase, its results dense; `lhs`, `rhs`: operand numbers of the fusion.

    `window`: that of the input, whose elements have no zeros between them, or of which the copy
    with zeros is read.
    """
    op = sums.op
    n = conv_numbers(op)
    groups = ir.IntegerAttr(op.attributes["feature_group_count"]).value
    batch_groups = ir.IntegerAttr(op.attributes["batch_group_count"]).value
    sizes = window.padded_sizes if window.is_padded else window.sizes
    kernel, stored = shapes.shape(op.operands[1]), phase_shape(sums, phase, shapes)
    ps, ks = dense_strides(sizes), dense_strides(kernel)
    dense = dense_strides(stored)
    cs = [dense[sums.order.index(d)] for d in range(len(sums.order))]
    image_batch, image_feature = n.input.batch, n.input.feature
    in_feature, out_feature = n.kernel_input_feature, n.kernel_output_feature
    c_batch, c_feature = n.output.batch, n.output.feature
    parts = groups * batch_groups
    columns = kernel[out_feature] // parts
    rows = shapes.shape(op.results[0])[c_batch]
    batch = []
    for count, a_step in (
        (groups, ps[image_feature] * kernel[in_feature]),
        (batch_groups, ps[image_batch] * rows),
    ):
        steps = (a_step, ks[out_feature] * columns, cs[c_feature] * columns)
        batch.append(Axis(Expr.const(count), *steps))
    m = [Axis(rows, a=ps[image_batch], c=cs[c_batch])]
    k = []
    a_first = b_first = ZERO
    for i, d in enumerate(window.spatial):
        kd, od = n.kernel_spatial[i], n.output.spatial[i]
        m.append(Axis(phase.sizes[i], a=ps[d] * window.strides[i], c=cs[od]))
        a_first = a_first + ps[d] * phase.shift[i]
        b_step, tap = ks[kd], Expr.const(phase.first[i])
        if window.reversal[i]:
            tap, b_step = kernel[kd] - 1 - tap, -b_step
        b_first = b_first + tap * ks[kd]
        b_step = b_step * phase.step[i]
        k.append(Axis(phase.taps[i], a=ps[d] * window.rhs_dilation[i], b=b_step))
    k.append(Axis(kernel[in_feature], a=ps[image_feature], b=ks[in_feature]))
    a, b, c = (element_of(v) for v in (*op.operands[:2], op.results[0]))
    apart = _has_places_apart(rows, columns) and ps[image_batch] == ks[out_feature] == ONE
    if apart:
        m, batch = m[:1], [*batch, *m[1:]]
    problem = Problem(
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
        a_first=a_first,
        b_first=b_first,
        may_round=may_round(op),
    )
    return normalized(swapped(problem) if apart else problem, shapes, may_swap=not apart)


FEWEST_COLUMNS = 16
MOST_RESULTS = 1 << 15
"""Of a product for each place of the result: at least so many columns, at most so many results.

Measured for the gradient of a kernel of 3 x 3 from 8 images, two cores of an EPYC with AVX-512. One
product for all places takes 8.1 ms of 64 features, 4.9 of 128, 4.3 of 256. One for each takes 4.8,
4.1 and 5.9: results that are nine elements apart cost more than rows read in place save."""


def _has_places_apart(rows: Expr, columns: Expr) -> bool:
    """True if every place of the result is a product of its own, with the image on the right.

    That is for the gradient of a kernel, whose batch and features both lie side by side.
    """
    if not (rows.is_const and columns.is_const):
        return False
    return rows.value >= FEWEST_COLUMNS and rows.value * columns.value <= MOST_RESULTS

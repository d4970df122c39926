"""Panels of B from the kernel of a convolution, whose taps lie side by side in memory.

    w: [o, i, 3, 3]    K = (tap, i)    B[(t, i), o] = w[o, i, t]

One along K is nine elements away in memory, and one along N thousands. Copied in the order of K,
every line of memory is read nine times. So squares of neighbours in memory are transposed in
registers: lanes are elements of memory before, columns of the panel behind.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.operands import Gemm
from shlo_disc.lower.cpu.dense.repack import load_as, transpose
from shlo_disc.lower.kernels.sized import Written
from shlo_disc.lower.schedule.contraction import Axis, Problem
from shlo_disc.lower.values.typed import IndexValue, Register

LONGEST = 64
"""Elements of memory from the first tap to the last, at most: their stores are unrolled."""


@dataclass(frozen=True)
class Taps:
    """Where the elements of B along K are."""

    digits: tuple[tuple[int, ...], ...]
    """Of every tap, the index along each of its axes."""
    offsets: tuple[int, ...]
    """Of every tap, from the lowest one in memory."""
    weights: tuple[Expr, ...]
    """Of every axis of the taps, the number of elements along K from one to the next."""
    other: Axis
    """The axis of K that is no tap's."""
    other_weight: Expr
    lowest: Expr
    """Offset of the lowest element in memory; `end` is behind the highest."""
    end: Expr


def taps_of(problem: Problem) -> Taps | None:
    """The taps of B; None where it has none, or moves with the batch."""
    if len(problem.k) < 2 or problem.bands > 1 or any(x.b != 0 for x in problem.batch):
        return None
    if len(problem.n) != 1 or any(not x.b.is_const for x in problem.k if x.size.is_const):
        return None
    axes = [k for k, x in enumerate(problem.k) if x.size.is_const]
    axes.sort(key=lambda k: abs(problem.k[k].b.value))
    chosen: list[int] = []
    span = 1
    for k in axes:
        more = (problem.k[k].size.value - 1) * abs(problem.k[k].b.value)
        if problem.k[k].size.value and span + more <= LONGEST:
            chosen.append(k)
            span += more
    rest = [k for k in range(len(problem.k)) if k not in chosen]
    if len(rest) > 1 or not chosen:
        return None
    chosen.sort()
    sizes = [x.size for x in problem.k]
    weight = {k: Expr.product(sizes[k + 1 :]) for k in range(len(sizes))}
    steps = [problem.k[k].b.value for k in chosen]
    digits = tuple(itertools.product(*(range(sizes[k].value) for k in chosen)))
    found = [sum(d * s for d, s in zip(tap, steps, strict=True)) for tap in digits]
    least = min(found)
    other = problem.k[rest[0]] if rest else Axis(Expr.const(1))
    (n,) = problem.n
    lowest, end = problem.b_first + least, problem.b_first + (max(found) + 1)
    for axis in (n, other):
        reach = axis.b * Expr.max(axis.size - 1, 0)
        lowest, end = lowest + Expr.min(reach, 0), end + Expr.max(reach, 0)
    if lowest != problem.b_first + least:
        return None
    return Taps(
        digits,
        tuple(offset - least for offset in found),
        tuple(weight[k] for k in chosen),
        other,
        weight[rest[0]] if rest else Expr.const(1),
        lowest,
        end,
    )


def tap_pack_kernel(gemm: Gemm, taps: Taps, sizes: dict[str, Expr]) -> Written:
    """The kernel that writes all panels of B; arguments (B, panels), a task a panel."""
    own = {f"weight{k}": weight for k, weight in enumerate(taps.weights)}
    own |= {"lowest": taps.lowest, "end": taps.end}
    own |= {"others": taps.other.size, "apart": taps.other.b, "weight": taps.other_weight}
    b = SizedBuilder(gemm.machine, sizes | own)
    source, panels = b.memref(0, gemm.b.element.storage), b.memref(1, gemm.copied)
    lanes, columns = gemm.tile.lanes, gemm.tile.columns
    last, end = b.size("N") - 1, b.size("end")
    weights = [b.size(f"weight{k}") for k in range(len(taps.weights))]
    rows = [_total(b, weights, digits) for digits in taps.digits]

    def square(starts: Sequence[IndexValue], inside: IndexValue) -> list[Register]:
        """The columns of a square of memory; beyond the end there are zeros."""

        def read(start: IndexValue, *, whole: bool) -> Register:
            mask = None if whole else b.mask(end - start, lanes)
            return load_as(b, source, gemm.b.element, start, lanes, gemm.compute, mask)

        found = b.either(
            inside + lanes <= end,
            lambda: [read(start, whole=True) for start in starts],
            lambda: [read(start, whole=False) for start in starts],
        )
        return transpose(b, found)

    with b.loop(b.lo, b.hi, 1, hint="task") as task:
        n, to = task.index * columns, task.index * b.size("K") * columns
        with b.loop(0, b.size("others"), 1, hint="other") as other:
            base = b.size("lowest") + other.index * b.size("apart")
            line = to + other.index * b.size("weight") * columns
            with b.loop(0, columns, lanes, hint="u") as u:
                # Beyond the last column the last one is read again.
                each = [b.min(n + u.index + i, last) for i in range(lanes)]
                starts = [base + x * b.size("br0") for x in each]
                for first in range(0, max(taps.offsets) + 1, lanes):
                    here = [k for k, at in enumerate(taps.offsets) if 0 <= at - first < lanes]
                    if not here:
                        continue
                    read = square([start + first for start in starts], starts[-1] + first)
                    for k in here:
                        value = read[taps.offsets[k] - first]
                        panels.vector_store(value, line + rows[k] * columns + u.index)
    return b.finish()


def _total(b: SizedBuilder, weights: Sequence[IndexValue], digits: Sequence[int]) -> IndexValue:
    total = b.index(0)
    for weight, digit in zip(weights, digits, strict=True):
        total = total + weight * digit
    return total

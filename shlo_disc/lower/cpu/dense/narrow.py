"""Contractions with one row and one column per batch entry: there is no tile to hold in registers.

`lanes`: the result runs along a batch axis (depthwise convolution, sums of element-wise products):
a vector holds neighbours along that axis. `inner product`: both operands run along K: a
vector holds neighbours along K.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.repack import as_number, load_as
from shlo_disc.lower.cpu.dense.tile_writer import multiply_add
from shlo_disc.lower.kernels.odometer import odometer
from shlo_disc.lower.kernels.strips import masked_strips, whole_strips
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.products.request import Request
from shlo_disc.lower.schedule.contraction import Axis
from shlo_disc.lower.values.elemental import Arguments
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, vector_type

ONE = Expr.const(1)
SHALLOW = 64
"""Products up to which one row is better computed from B in place than copied into panels."""
TOGETHER = 4
"""Vectors along a row at once: as many chains of dependent sums."""
CHAINS = 4
"""Accumulators of an inner product: latency 4, and loads bound it to one product a cycle."""


def narrow_launch(request: Request) -> Launch | None:
    """A kernel for a problem whose N has size 1; None where the general kernel does better."""
    p = request.problem
    shallow = p.depth.is_const and p.depth.value <= SHALLOW and len(p.k) > 1
    if _is(p.rows, 1) and not _is(p.columns, 1) and shallow and p.n[-1].c == ONE:
        return _Writer(request).lanes([*p.batch, *p.n[:-1]], p.n[-1])
    if not _is(p.columns, 1):
        return None
    axes = [x for x in (*p.batch, *p.m) if not _is(x.size, 1)]
    writer = _Writer(request)
    if _is(p.rows, 1) and len(p.k) == 1 and all(s == ONE for s in (p.k[0].a, p.k[0].b)):
        return writer.inner_product(axes) if request.finish is None else None
    along = [x for x in axes if x.c == ONE]
    if len(along) != 1:
        return None
    return writer.lanes([x for x in axes if x.c != ONE], along[0])


def _is(size: Expr, value: int) -> bool:
    return bool(size.is_const and size.value == value)


class _Writer:
    def __init__(self, request: Request) -> None:
        p = self.p = request.problem
        self.request, self.arguments = request, Arguments(request.args)
        self.width = request.machine.lanes(p.compute.bytes)
        sizes = {"a_first": p.a_first, "b_first": p.b_first, "K": p.depth}
        for i, axis in enumerate(p.k):
            sizes |= {f"k{i}": axis.size, f"ka{i}": axis.a, f"kb{i}": axis.b}
        self.sizes = sizes

    def _open(self, axes: Sequence[Axis], along: Axis | None = None) -> SizedBuilder:
        p = self.p
        for i, axis in enumerate(axes):
            self.sizes |= {f"s{i}": axis.size, f"a{i}": axis.a, f"b{i}": axis.b, f"c{i}": axis.c}
        if along is not None:
            self.sizes |= {"V": along.size, "va": along.a, "vb": along.b}
        b = self.b = SizedBuilder(self.request.machine, self.sizes)
        self.a_in, self.b_in = b.memref(0, p.a.storage), b.memref(1, p.b.storage)
        self.c_out = b.memref(2, self.request.result.storage)
        return b

    def _bases(self, axes: Sequence[Axis], digits: Sequence[IndexValue]) -> list[IndexValue]:
        """Offsets in A, B and C of a place on the outer axes."""
        b, bases = self.b, []
        for array in "abc":
            first = getattr(self.p, f"{array}_first", 0)
            base = b.size(f"{array}_first") if first != 0 else b.index(0)
            for i, axis in enumerate(axes):
                if getattr(axis, array) != 0:
                    base = base + digits[i] * b.size(f"{array}{i}")
            bases.append(base)
        return bases

    # ---------------------------------------------------------------- lanes

    def lanes(self, axes: Sequence[Axis], along: Axis) -> Launch:
        """A task is a run of the result along `along`: several vectors at a time, so that their
        sums do not wait for each other, then one masked vector at a time.
        """
        b = self._open(axes, along)
        size, wide = b.size("V"), self.width * TOGETHER

        def task(_: IndexValue, digits: list[IndexValue]) -> None:
            a, other, c = self._bases(axes, digits)

            def vector(v: IndexValue, lanes: int, mask: Mask | None) -> None:
                zero = b.constant(0, vector_type(lanes, self.p.compute.register))
                (total,) = self._sum(0, a, other, v, mask, along, [zero])
                here = [(axis, Ix(at)) for axis, at in zip(axes, digits, strict=False)]
                here.append((along, Ix(v, 1, multiple=lanes)))
                value = self.request.stored(b, self.arguments, total, here, mask)
                if mask is None:
                    self.c_out.vector_store(value, c + v)
                else:
                    self.c_out.masked_store(value, c + v, mask)

            end = whole_strips(b, 0, size, wide, lambda v, _: vector(v, wide, None), hint="v")[0]
            masked_strips(
                b, end, size, self.width, lambda v, mask, _: vector(v, self.width, mask), hint="v"
            )

        odometer(b, [b.size(f"s{i}") for i in range(len(axes))] or [b.index(1)], task)
        return self._launch("lanes", axes, ceil_div(along.size, self.width) * self.p.depth + 10)

    def _launch(self, way: str, axes: Sequence[Axis], work: Expr) -> Launch:
        name, tasks = f"{self.request.label}_{way}", Expr.product(x.size for x in axes)
        return self.arguments.launch(self.b.finish(), name, tasks, work)

    def _sum(
        self,
        level: int,
        a: IndexValue,
        other: IndexValue,
        v: IndexValue,
        mask: Mask | None,
        along: Axis,
        init: list[Register],
    ) -> list[Register]:
        """A loop for every axis of K, around one product."""
        b, k = self.b, self.p.k
        if level == len(k):
            lanes = init[0].lanes
            x = self._along(self.a_in, self.p.a, a, v, "va", along.a, mask, lanes)
            y = self._along(self.b_in, self.p.b, other, v, "vb", along.b, mask, lanes)
            return [multiply_add(b, x, y, init[0], self.p.compute, self.p.is_short)]
        with b.loop(0, b.size(f"k{level}"), 1, init, hint="k") as loop:
            next_a = a + loop.index * b.size(f"ka{level}")
            next_b = other + loop.index * b.size(f"kb{level}")
            loop.yield_(*self._sum(level + 1, next_a, next_b, v, mask, along, loop.args))
        return loop.results

    def _along(
        self,
        memory: MemRef,
        element: ElementType,
        at: IndexValue,
        v: IndexValue,
        name: str,
        stride: Expr,
        mask: Mask | None,
        lanes: int,
    ) -> Register:
        """One element a lane from `at + v * stride` on."""
        b, compute = self.b, self.p.compute
        if stride == ONE:
            return load_as(b, memory, element, at + v, lanes, compute, mask)
        if stride == 0:
            one = convert(b, memory.load(at), as_number(element), compute)
            return b.broadcast(one, lanes)
        step = b.size(name)
        offsets = b.iota(lanes) * b.broadcast(step, lanes)
        start = at + v * step
        nothing = b.constant(0, vector_type(lanes, element.storage))
        on = b.flags(True, lanes) if mask is None else mask
        raw = b.gather(memory, start, offsets, on, nothing)
        return convert(b, raw, as_number(element), compute)

    # ---------------------------------------------------------------- inner product

    def inner_product(self, axes: Sequence[Axis]) -> Launch:
        """A task is one element of the result."""
        b, p = self._open(axes), self.p
        vector = vector_type(self.width, p.compute.register)
        depth, step = b.size("K"), self.width * CHAINS

        def products(
            a: IndexValue, other: IndexValue, k: IndexValue, mask: Mask | None, sums: list[Register]
        ) -> list[Register]:
            out = []
            for i, total in enumerate(sums):
                at = k + i * self.width
                x, y = (
                    load_as(b, m, e, base + at, self.width, p.compute, mask)
                    for m, e, base in ((self.a_in, p.a, a), (self.b_in, p.b, other))
                )
                out.append(multiply_add(b, x, y, total, p.compute, p.is_short))
            return out

        def task(_: IndexValue, digits: list[IndexValue]) -> None:
            a, other, c = self._bases(axes, digits)
            zeros = [b.constant(0, vector)] * CHAINS
            end, sums = whole_strips(
                b, 0, depth, step, lambda k, sums: products(a, other, k, None, sums), zeros, "k"
            )
            while len(sums) > 1:
                half = len(sums) // 2
                sums = [x + y for x, y in zip(sums[:half], sums[half:], strict=True)]
            (total,) = masked_strips(
                b, end, depth, self.width, functools.partial(products, a, other), sums, "k"
            )
            lanes = self.width
            while lanes > 1:
                lanes //= 2
                low = b.shuffle(total, total, range(lanes))
                total = low + b.shuffle(total, total, range(lanes, 2 * lanes))
            value = self.request.stored(b, self.arguments, b.extract(total, 0), (), None)
            self.c_out.store(value, c)

        odometer(b, [b.size(f"s{i}") for i in range(len(axes))] or [b.index(1)], task)
        return self._launch("inner", axes, p.depth // 4 + 10)

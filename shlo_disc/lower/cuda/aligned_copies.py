"""Copies of operands whose rows do not begin at multiples of 16 bytes, for tensor maps of them.

A copy keeps the order of dimensions in memory. Its lines are as long as whole chunks of 16 bytes;
nothing reads what is behind the last element of a line. Copies take the time of reading and writing
an operand, which is little beside a large product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.gpu.builder import SizedGpuBuilder
from shlo_disc.lower.plan import Launch, Workspace
from shlo_disc.lower.schedule.contraction import Axis, Problem
from shlo_disc.lower.values.elemental import Arguments

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import MatrixProduct

ZERO, ONE = Expr.const(0), Expr.const(1)


class AlignedCopy:
    """The copy of one operand, from element `first` of a workspace on."""

    def __init__(self, plan: MatrixProduct, array: str, first: Expr, memory: Workspace) -> None:
        self.plan, self.array, self.first, self.memory = plan, array, first, memory
        p = plan.p
        self.along_k = plan.contiguous(array) == f"{array}k"
        rows = p.rows if array == "a" else p.columns * p.bands
        self.inner, self.outer = (p.depth, rows) if self.along_k else (rows, p.depth)
        self.line = ceil_div(self.inner, plan.chunk) * plan.chunk
        """Elements from one line to the next."""
        self.axes = [i for i, axis in enumerate(p.batch) if getattr(axis, array) != 0]
        """Batch axes along which the operand moves."""
        self.elements = self.line * self.outer * Expr.product(p.batch[i].size for i in self.axes)

    def problem(self, p: Problem) -> Problem:
        """`p`, which reads the copy."""
        array = self.array

        def moved(axis: Axis, stride: Expr) -> Axis:
            return replace(axis, a=stride) if array == "a" else replace(axis, b=stride)

        batch, stride = list(p.batch), self.line * self.outer
        for i in reversed(self.axes):
            batch[i] = moved(batch[i], stride)
            stride = stride * batch[i].size
        k, rows = (ONE, self.line) if self.along_k else (self.line, ONE)
        p = replace(p, batch=tuple(batch), k=(moved(p.k[0], k),))
        if array == "a":
            return replace(p, m=(moved(p.m[0], rows),), a_first=self.first)
        return replace(p, n=(moved(p.n[0], rows),), b_first=self.first)

    def launch(self) -> Launch:
        """What makes the copy: each thread a chunk."""
        plan, array, lanes = self.plan, self.array, self.plan.chunk
        element = (plan.p.a if array == "a" else plan.p.b).storage
        named = plan.sizes() | {"copy_first": self.first}
        b, arguments = SizedGpuBuilder(plan.machine, named), Arguments()
        source = plan.a_buffer if array == "a" else plan.b_buffer
        source_memory = b.memref(arguments.slot(source), element)
        to = b.memref(arguments.slot(self.memory), element)
        rows = "m" if array == "a" else "bn"
        inner, outer = ("depth", rows) if self.along_k else (rows, "depth")
        stride = f"{array}{'r' if self.along_k else 'k'}0"
        chunks = b.size(inner).ceil_div(lanes)
        with b.loop(b.lo, b.hi, 1, hint="chunk") as loop:
            number = loop.index
            rest, column = number // b.max(chunks, 1), number % b.max(chunks, 1) * lanes
            rest, row = rest // b.max(b.size(outer), 1), rest % b.max(b.size(outer), 1)
            base = row * b.size(stride) + b.size(f"{array}_first")
            for i in reversed(self.axes):
                size = b.max(b.size(f"batch{i}"), 1)
                base = base + rest % size * b.size(f"batch{i}{array}")
                rest = rest // size
            last = b.size(inner) - 1
            found = [source_memory.load(base + b.min(column + e, last)) for e in range(lanes)]
            to.vector_store(b.joined(found), number * lanes + b.size("copy_first"), aligned=True)
        return arguments.launch(b.finish(), f"{plan.label}_aligned_{array}", self.elements // lanes)

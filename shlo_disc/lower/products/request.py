"""A product as the planner of a target is asked for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.plan import Buffer, Input, Output, Step, Workspace
from shlo_disc.lower.products.epilogue import BandEpilogue, Epilogue
from shlo_disc.lower.products.prologue import Prologue
from shlo_disc.lower.schedule.contraction import Axis, Dense, Problem, Steps, steps
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Arguments
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import Mask, Register


@dataclass(frozen=True)
class Request:
    """A product to plan.

    What makes an epilogue or a prologue is given a kernel's arguments, to which it adds its own,
    and the lanes of a vector.
    """

    problem: Problem
    shapes: ShapeAnalysis
    machine: Any
    """The target's."""
    out: Output | Workspace
    result: ElementType
    """What is stored to `out`."""
    finish: Callable[[Arguments, int], Epilogue] | None = None
    """What becomes of the sums; None: they are converted."""
    finish_bands: Callable[[Arguments, int], BandEpilogue] | None = None
    """Stores the results of a problem that has bands."""
    fill: Callable[[Arguments, int], Prologue] | None = None
    """Computes B where it is no operand."""
    label: str = "dense"
    a_buffer: Buffer | None = None
    """Where A is read when not from its operand; likewise `b_buffer`."""
    b_buffer: Buffer | None = None
    keep_b: bool = True
    """B may be the same in several calls, and worth keeping as panels between them."""
    panels: Workspace | None = None
    """Memory that the product may use; None: there is none."""

    @classmethod
    def of(
        cls,
        dense: Dense,
        block: ir.Block,
        shapes: ShapeAnalysis,
        machine: Any,
        out: Output | Workspace,
    ) -> Request:
        """The product `dense` of a fusion, with what is in front of it and behind it."""
        p, is_banded = dense.problem, dense.bands is not None
        finish = partial(Epilogue, dense, block, shapes)
        return cls(
            p, shapes, machine, out, element_of(dense.root),
            finish=None if is_banded or dense.root == dense.total else finish,
            finish_bands=partial(BandEpilogue, dense, block, shapes) if is_banded else None,
            fill=partial(Prologue, p, block, shapes) if p.b_value is not None else None,
        )  # fmt: skip

    @functools.cached_property
    def walks(self) -> dict[str, Steps]:
        """The steps of A and B ("a", "b") along their rows and along K ("r", "k")."""
        p, shapes = self.problem, self.shapes
        return {
            "ar": steps(p.m, "a", shapes),
            "ak": steps(p.k, "a", shapes),
            "br": steps(p.n, "b", shapes),
            "bk": steps(p.k, "b", shapes),
        }

    @property
    def args(self) -> tuple[Buffer, Buffer, Output | Workspace]:
        """Where A, B and C are."""
        p = self.problem
        # What is computed is read from nowhere: any buffer will do.
        b = self.b_buffer or (Input(p.b_input) if p.b_value is None else self.out)
        return self.a_buffer or Input(p.a_input), b, self.out

    def stored(
        self,
        b: KernelBuilder,
        arguments: Arguments,
        sums: Register,
        axes: Sequence[tuple[Axis, Ix]],
        mask: Mask | None,
    ) -> Register:
        """What `sums` are in memory; `axes`, `mask`: see `Epilogue.at`."""
        p = self.problem
        if self.finish is None:
            value = convert(b, sums, p.compute, p.c)
        else:
            value = self.finish(arguments, sums.lanes).at(b, sums, axes, mask)
        return b.cast("arith.extui", value, "i8") if self.result.kind == "b" else value


class Planner(Protocol):
    """Plans one product."""

    @property
    def panel_bytes(self) -> Expr | None:
        """What the workspace `panels` takes; None where the product does not use it."""

    def steps(self) -> tuple[Step, ...]:
        """The launches."""


MakePlanner = Callable[[Request], Planner]
"""A target's planner of products."""

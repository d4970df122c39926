"""The host program: sizes, guards, arena, control flow and launches as two native functions.

`prepare` and `run` are described in `ral/include/disc_ral.h`. Both are emitted as MLIR text
(`func`, `arith`, `scf`, `llvm`) and compiled like the kernels. Without loops they are straight-line
code that runs once a call, and are not optimised; else they are, if not hard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.later import Later, imported_later
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.program import ShapeProgram
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, terminator
from shlo_disc.lower.constants import constant_bytes
from shlo_disc.lower.host.foreign import can_fail
from shlo_disc.lower.host.frame import Frame
from shlo_disc.lower.host.launches import Tables
from shlo_disc.lower.host.plan_calls import PlanCalls
from shlo_disc.lower.host.plans import Kept, Plans
from shlo_disc.lower.host.prepare import prepare
from shlo_disc.lower.host.record import HostDetails, HostProgram, Part, PlanFunction
from shlo_disc.lower.host.scalars import emit_scalars
from shlo_disc.lower.host.writer import CONSTANTS
from shlo_disc.lower.plan import SMALL_STEPS, Kernel, KernelPlan
from shlo_disc.lower.refused import Refused
from shlo_disc.lower.speculate import Likely
from shlo_disc.lower.target import Target
from shlo_disc.passes.homes import is_on_host
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.op_classes import RESHAPES
from shlo_disc.passes.place import At
from shlo_disc.passes.places import places_of, reuses_of, scalars_of

write_case = imported_later("shlo_disc.lower.host.control_flow", "write_case")
write_while = imported_later("shlo_disc.lower.host.control_flow", "write_while")


def emit_host(
    func: ir.Operation,
    shapes: ShapeAnalysis,
    program: ShapeProgram,
    target: Target,
    likely: Likely | None = None,
    written: Callable[[Kernel | PlanFunction, bool], object] | None = None,
    kept: Kept | None = None,
) -> HostProgram:
    """The host program of `func`, a `main` annotated by plan-buffers.

    `likely`: values of symbols to have kernels for (see `lower.speculate`). `written` is given each
    kernel and each function of a plan as soon as it is known, and whether the first call needs it.
    `kept`: plans that earlier processes made.

    Raises Refused with the fusions no kernel could be written for, and ValueError when `likely`
    names no symbol of the program.
    """
    run = _Run(func, shapes, program, target, likely or {}, written, kept)
    run_parts = run.emit()
    if run.refused:
        raise Refused(run.refused)
    tables, plans = run.tables, run.plan_calls
    arena = run.frame.arena_sizes
    prepare_text = prepare(program, arena, list(plans.workspaces))
    details = HostDetails(
        parts=(prepare_text, *run_parts, tables.copies()),
        functions=tuple(plans.functions),
        kernels=tuple(tables.kernels.values()),
        uses=tuple(run.frame.record.uses),
        sites=tuple(tables.sites),
        arena=tuple(arena),
        workspaces=tuple(plans.workspaces),
    )
    return HostProgram(
        details=Later.of(details),
        table=tables.numbers(),
        unasked_kernels=tuple(sorted(tables.unasked)),
        packing_kernels=tuple(tables.packing),
        short_sizes=tuple(sorted(run.plans.short, key=str)),
        constants=tuple(run.constants),
        constant_types=tuple(run.constant_types),
        pack_keys=tuple(tables.pack_slots),
        packed_arguments=frozenset(tables.packed_arguments),
        unread_arguments=run.unread(),
        reuses=tuple(run.reuses),
        foreign=tuple(tables.foreign),
    )


_WITHOUT_TEXT = ("disc.guard", "disc.shape", "stablehlo.constant")


class _Run:
    """Writes the function `run`, block by block."""

    def __init__(
        self,
        func: ir.Operation,
        shapes: ShapeAnalysis,
        program: ShapeProgram,
        target: Target,
        likely: Likely,
        written: Callable[[Kernel | PlanFunction, bool], object] | None,
        kept: Kept | None,
    ) -> None:
        self.program = program
        self.reuses = reuses_of(func)
        slots = ir.ArrayAttr(func.attributes["disc.arena"])
        self.frame = Frame(
            func,
            shapes,
            target.memory,
            program.symbol_names,
            [Expr.parse(ir.StringAttr(s).value) for s in slots],
            scalars_of(func),
        )
        self.tables = Tables(written)
        self.plan_calls = PlanCalls(self.frame, self.tables, kept)
        self.constants: list[npt.NDArray[np.uint8]] = []
        self.constant_types: list[tuple[str, tuple[int, ...]]] = []
        self.refused: list[tuple[ir.Operation, Exception]] = []
        """Fusions no kernel could be written for; the text is of no use then."""
        self.plans = Plans(shapes, target, likely, kept)
        self._main = func.regions[0].blocks[0]
        self._can_fail = target.memory.can_fail or can_fail(func)

    def emit(self) -> list[Part]:
        """The text of `run`, with marks; fills the tables."""
        frame, block = self.frame, self._main
        for index, argument in enumerate(block.arguments):
            frame.pointers.argument(
                argument, index, frame.w.pointer(frame.w.argument("args"), index)
            )
            frame.origins.argument(argument, index)
            frame.record.argument(argument, index)
        self._block(block)
        last = terminator(block)
        for index, value in enumerate(last.operands):
            frame.copy(frame.result(index), value)
        has_small_steps = 2 * self.tables.copies_in_loops > self.tables.launches_in_loops
        return frame.w.parts(
            "func.func @run(%ctx: !llvm.ptr, %args: !llvm.ptr, %results: !llvm.ptr, "
            "%symbols: !llvm.ptr, %arena: !llvm.ptr)"
            + (f" attributes {{{SMALL_STEPS}}}" if has_small_steps else "")
        )

    def unread(self) -> tuple[int, ...]:
        """The arguments whose memory neither the text of `run` nor the runtime uses."""
        used = self.frame.pointers.used | self.tables.packed_arguments
        used |= {*self.program.size_arguments}
        return tuple(k for k in range(len(self._main.arguments)) if k not in used)

    def _block(self, block: ir.Block) -> None:
        frame = self.frame
        # An update that is stored by an earlier fusion reads its starts there (`update_address`).
        for view in block.operations:
            if view.operation.name == "stablehlo.constant":
                self._constant(view.operation)
        for view in block.operations:
            op = view.operation
            if op.name == "disc.fusion":
                self._fusion(op)
            elif op.name in RESHAPES:
                for facts in (frame.pointers, frame.record, frame.origins):
                    facts.same(op.results[0], op.operands[0])
            elif op.name == "disc.empty":
                if places_of(op):  # else nobody reads it
                    frame.put_results(op)
            elif op.name == "stablehlo.while":
                write_while(frame, op, self._block, self._can_fail)
            elif op.name in ("stablehlo.case", "stablehlo.if"):
                write_case(frame, op, self._block)
            elif not op.name.endswith(".return") and op.name not in _WITHOUT_TEXT:
                raise UnsupportedError(f"{source_line(op)}: {op.name} cannot run on the host")

    def _constant(self, op: ir.Operation) -> None:
        frame, index = self.frame, len(self.constants)
        if is_on_host(op.results[0]):
            number = int.from_bytes(constant_bytes(op).tobytes(), "little")
            frame.pointers.put(op.results[0], frame.constant(number))
            return
        kind = ir.RankedTensorType(op.results[0].type)
        self.constants.append(constant_bytes(op))
        self.constant_types.append((element_type(kind.element_type).name, tuple(kind.shape)))
        frame.pointers.put(op.results[0], frame.w.pointer(frame.w.context(CONSTANTS), index))
        frame.origins.constant(op.results[0], index)
        frame.record.constant(op.results[0], index)

    def _fusion(self, op: ir.Operation) -> None:
        frame, kind = self.frame, kind_of(op)
        frame.put_results(op)
        if kind.on_host or "disc.stored" in op.attributes:
            if kind.on_host:
                emit_scalars(frame.w, frame.memory, op, frame.pointers)
            frame.record.fusion(op, "host", KernelPlan(()), ())
            return
        try:
            plan, decisions = self.plans.of(op, kind.name)
        except MemoryError:
            raise
        except Exception as error:  # whatever it is, the fusion may be planned again
            self.refused.append((op, error))
            return
        plan = replace(plan, steps=frame.origins.possible(plan.steps, op))
        frame.record.fusion(op, kind.name, plan, tuple(map(str, decisions)))
        self._steps(op, plan)
        frame.origins.derive(op, kind, plan)

    def _steps(self, op: ir.Operation, plan: KernelPlan) -> None:
        w, write = self.frame.w, self.plan_calls.write
        copied_to = places_of(op)[0].at if plan.copies_operand else None
        if copied_to == At.INPLACE:
            plan = replace(plan, steps=plan.steps[1:])
        elif copied_to == At.RESULT and self.reuses:
            # A donated argument may be where the result is: then there is nothing to copy.
            pointers = self.frame.pointers
            here, there = pointers[op.operands[0]], pointers[op.results[0]]
            with w.if_(w.differ(here, there)):
                write(replace(plan, steps=plan.steps[:1]), op)
            plan = replace(plan, steps=plan.steps[1:])
        write(plan, op)

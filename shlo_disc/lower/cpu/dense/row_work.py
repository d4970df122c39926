"""Row work behind a product (layer-norm, softmax of logits) in the product's own launch.

The tasks of the product come first, then one task for every core, in which rows are taken a few at
a time. Rows wait until all blocks of columns of their block of rows are there, which other cores
are at work on: no core is woken again, none waits for the last block of the product while there are
finished rows, and these are in cache.

Source: the fix-up of tiles by whoever comes last in M. Osama et al., "Stream-K: work-centric
parallel decomposition for dense matrix-matrix multiplication on the GPU" (2023), with waiting in
place of the last. The launch is ordered (`Launch.ordered`): what a task waits for is being done by
another thread, or done.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.builder import CpuBuilder
from shlo_disc.lower.cpu.dense.tiles import Blocks
from shlo_disc.lower.cpu.lanes import choose_row_lanes
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.row_writer import RowWriter, write_rows
from shlo_disc.lower.plan import Kernel, Launch, Output, Workspace
from shlo_disc.lower.schedule.row_reduction import Plan, plan_rows
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Index
from shlo_disc.lower.values.typed import Mask, Register
from shlo_disc.mlir import ir
from shlo_disc.passes.match_rows import RowRecord

__all__ = ["RowWork"]

GROUP = 16384
"""Elements of the rows that are taken at once, about: some microseconds of work."""


@dataclass(frozen=True)
class RowWork:
    """The row work of a dense fusion; `given` is computed by the product and stored in `memory`."""

    record: RowRecord
    block: ir.Block
    shapes: ShapeAnalysis
    machine: Machine
    outputs: Sequence[Output]
    """Where the roots of the row work go."""
    given: ir.Value
    memory: Output | Workspace

    def behind(self, product: Launch, at: Blocks, *, rows_first: bool) -> Launch:
        """`product`, which is cut into tasks as `at` says, and the row work as one launch.

        `rows_first`: tasks are counted along rows first.
        """
        rows = self._rows
        *_, columns = self.shapes.shape(self.given)
        own = {
            "tasks": product.extent,
            "n_count": at.n_count,
            "blocks": at.m_count,
            "m_block": at.m,
            "rows": rows.extent,
            "group": Expr.max(GROUP // Expr.max(columns, 1), 4),
            # Without columns there are no tasks to wait for.
            "needed": at.n_count * Expr.min(product.extent, 1),
            "order": Expr.const(rows_first),
            "arg_count": Expr.const(len(product.args)),
            "param_count": Expr.const(len(product.params)),
        }
        loads = "".join(_LOAD.format(name=name, place=k) for k, name in enumerate(own))
        pause = _PAUSE if "sse2" in self.machine.features else ""
        counters = Workspace(1 if isinstance(self.memory, Workspace) else 0)
        text = _WRAPPER.replace("LOADS", loads).replace("OWN", str(len(own)))
        text = text.replace("PAUSE", pause)
        return replace(
            product,
            kernel=Kernel(f"{product.kernel.name}_then_rows", text),
            calls=(product.kernel, rows.kernel),
            args=(counters, *product.args, *rows.args),
            params=(*own.values(), *product.params, *rows.params),
            extent=product.extent + self.machine.cores,
            cost=product.cost + rows.cost,
            scratch_bytes=Expr.max(product.scratch_bytes, rows.scratch_bytes),
            zeroed=(counters, (at.m_count + 1) * 8),
            ordered=True,
        )

    def workspaces(self) -> tuple[Expr, ...]:
        """Bytes of what the product leaves, where it is no result, and of the counters."""
        sizes = self.shapes.shape(self.given)
        counters = (Expr.product(sizes[:-1]) + 2) * 8
        if isinstance(self.memory, Output):
            return (counters,)
        return Expr.product(sizes) * element_of(self.given).bytes, counters

    @functools.cached_property
    def _rows(self) -> Launch:
        """The row work by itself: every variant of the product calls it."""
        plan = plan_rows(self.record, self.block, self.shapes, cost.op_cycles)
        lanes = choose_row_lanes(plan, self.machine)

        def write(factors: Sequence[Expr]) -> RowWriter:
            b = CpuBuilder(self.machine)
            return _Behind(plan, factors, lanes, b, self.outputs, self.memory).write()

        writer = write_rows(plan, self.shapes, write)
        time = cost.of_rows(self.block, self.shapes, plan.cols, self.machine)
        return writer.launch("rows", time)


class _Behind(RowWriter):
    """Rows of what a product has left in memory."""

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[Expr],
        lanes: int,
        b: CpuBuilder,
        outputs: Sequence[Output],
        memory: Output | Workspace,
    ) -> None:
        super().__init__(plan, factors, lanes, b)
        self.outputs = outputs
        (given,) = plan.given
        element = element_of(given)

        def load(index: Index, mask: Mask | None) -> Register | None:
            if not self.is_element(index):
                return None
            storage = self.b.memref(self.arguments.slot(memory), element.storage)
            at = self.space.flat(0, self.end)
            register = self.e.load_from(storage, at, mask, readonly=False)
            if element.kind != "b":
                return register
            return register.differs(0)

        self.e.overrides[given] = load


_PAUSE = 'llvm.call_intrinsic "llvm.x86.sse2.pause"() : () -> ()'

_LOAD = """\
  %at_{name} = llvm.getelementptr %params[{place}] : (!llvm.ptr) -> !llvm.ptr, i64
  %{name} = llvm.load %at_{name} : !llvm.ptr -> i64
"""

_WRAPPER = """\
func.func @KERNEL(%args: !llvm.ptr, %params: !llvm.ptr, %lo: i64, %hi: i64, %scratch: !llvm.ptr) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
LOADS  %product = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %row_place = llvm.getelementptr %args[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %row_work = llvm.load %row_place : !llvm.ptr -> !llvm.ptr
  %own_args = llvm.getelementptr %args[3] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %own_params = llvm.getelementptr %params[OWN] : (!llvm.ptr) -> !llvm.ptr, i64
  %rows_first = arith.cmpi ne, %order, %zero : i64
  %place = llvm.getelementptr %args[2] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %ticket = llvm.load %place : !llvm.ptr -> !llvm.ptr
  %done = llvm.getelementptr %ticket[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %end = arith.minsi %hi, %tasks : i64
  %has_tasks = arith.cmpi slt, %lo, %end : i64
  scf.if %has_tasks {
    llvm.call %product(%own_args, %own_params, %lo, %end, %scratch)
        : !llvm.ptr, (!llvm.ptr, !llvm.ptr, i64, i64, !llvm.ptr) -> ()
    scf.for %task = %lo to %end step %one : i64 {
      %along = arith.remui %task, %blocks : i64
      %across = arith.divui %task, %n_count : i64
      %block = arith.select %rows_first, %along, %across : i64
      %count = llvm.getelementptr %done[%block] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %before = llvm.atomicrmw add %count, %one acq_rel : !llvm.ptr, i64
    }
  }
  %has_rows = arith.cmpi sgt, %hi, %tasks : i64
  scf.if %has_rows {
    %row_args = llvm.getelementptr %own_args[%arg_count]
        : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.ptr
    %row_params = llvm.getelementptr %own_params[%param_count]
        : (!llvm.ptr, i64) -> !llvm.ptr, i64
    scf.while : () -> () {
      %number = llvm.atomicrmw add %ticket, %one acq_rel : !llvm.ptr, i64
      %first = arith.muli %number, %group : i64
      %some = arith.cmpi slt, %first, %rows : i64
      scf.if %some {
        %full = arith.addi %first, %group : i64
        %behind = arith.minsi %full, %rows : i64
        %last = arith.subi %behind, %one : i64
        %from = arith.divui %first, %m_block : i64
        %upto = arith.divui %last, %m_block : i64
        %beyond = arith.addi %upto, %one : i64
        scf.for %block = %from to %beyond step %one : i64 {
          %count = llvm.getelementptr %done[%block] : (!llvm.ptr, i64) -> !llvm.ptr, i64
          scf.while : () -> () {
            %there = llvm.load %count atomic acquire {alignment = 8 : i64} : !llvm.ptr -> i64
            %wait = arith.cmpi slt, %there, %needed : i64
            scf.condition(%wait)
          } do {
            PAUSE
            scf.yield
          }
        }
        llvm.call %row_work(%row_args, %row_params, %first, %behind, %scratch)
            : !llvm.ptr, (!llvm.ptr, !llvm.ptr, i64, i64, !llvm.ptr) -> ()
      }
      scf.condition(%some)
    } do {
      scf.yield
    }
  }
  return
}
"""

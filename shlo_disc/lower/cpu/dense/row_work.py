"""Row work behind a product (layer-norm, softmax of logits) in the product's own launch.

The tasks of the product come first, then one task for every core, in which rows are taken a few at
a time. Rows wait until other cores have computed all blocks of columns of their block of rows. No
core is woken again, and none waits for the last block of the product while there are finished rows.
Finished rows are in cache.

Source: the fix-up of tiles by whoever comes last in M. Osama et al., "Stream-K: work-centric
parallel decomposition for dense matrix-matrix multiplication on the GPU" (2023), with waiting in
place of the last. The launch is ordered (`Launch.ordered`): what a task waits for is being done by
another thread, or done.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.builder import CpuBuilder, SizedBuilder
from shlo_disc.lower.cpu.dense.tiles import Blocks
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.row_lanes import choose_row_lanes
from shlo_disc.lower.kernels.row_writer import RowWriter, write_rows
from shlo_disc.lower.kernels.sized import Written, written_late
from shlo_disc.lower.plan import Kernel, Launch, Output, Workspace
from shlo_disc.lower.schedule.row_reduction import Storage, plan_rows
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, MemRef, Pointer
from shlo_disc.passes.match_rows import RowRecord

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
        text, params = written_late(_in_one_launch, self.machine, own)
        counters = Workspace(1 if isinstance(self.memory, Workspace) else 0)
        return replace(
            product,
            kernel=Kernel(f"{product.kernel.name}_then_rows", text),
            args=(product.kernel, rows.kernel, counters, *product.args, *rows.args),
            params=(*params, *product.params, *rows.params),
            extent=product.extent + self.machine.cores,
            cost=product.cost + rows.cost,
            scratch_bytes=Expr.max(product.scratch_bytes, rows.scratch_bytes),
            zeroed=((counters, (at.m_count + 1) * 8),),
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
        plan = plan_rows(self.record, self.block, self.shapes, Storage(cost.op_cycles))
        lanes = choose_row_lanes(plan, self.machine)
        storage = element_of(self.given).storage

        def write(factors: Sequence[Expr]) -> RowWriter:
            b = CpuBuilder(self.machine)
            w = RowWriter(plan, factors, lanes, b)
            w.outputs = self.outputs

            def where() -> tuple[MemRef, Ix]:
                memory = b.memref(w.arguments.slot(self.memory), storage)
                return memory, w.space.flat(0, w.end)

            w.override(self.given, where)
            return w.write()

        writer = write_rows(plan, self.shapes, write)
        time = cost.of_rows(self.block, plan.cols, self.machine)
        return writer.launch("rows", time)


def _in_one_launch(machine: Machine, given: Mapping[str, Expr]) -> Written:
    """The kernel that runs a product's tasks, and rows when what they read is there.

    Its arguments are the addresses of both kernels, the counters, then the arguments of the product
    and of the rows. Its parameters are `given`, then those of the product and of the rows. The
    counters are the number of the next group of rows, then of every block of rows the finished
    tasks of the product.
    """
    b = SizedBuilder(machine, given, in_order=True)
    sizes = {name: b.size(name) for name in given}
    product, row_work, ticket = (b.pointer(k) for k in range(3))
    args, params = b.place(b.args, 3, "!llvm.ptr"), b.place(b.params, len(sizes), "i64")
    done = b.place(ticket, 1, "i64")
    end = b.min(b.hi, sizes["tasks"])
    with b.if_(b.lo < end):
        b.call(product, args, params, b.lo, end)
        with b.loop(b.lo, end, hint="task") as task:
            along, across = task.index % sizes["blocks"], task.index // sizes["n_count"]
            block = b.select(sizes["order"].differs(0), along, across)
            b.fetch_add(b.place(done, block, "i64"))
    with b.if_(b.hi > sizes["tasks"]):
        row_args = b.place(args, sizes["arg_count"], "!llvm.ptr")
        row_params = b.place(params, sizes["param_count"], "i64")

        def take() -> IndexValue:
            """The first row of the next group."""
            return b.fetch_add(ticket) * sizes["group"]

        def work(taken: list[IndexValue]) -> list[IndexValue]:
            (first,) = taken
            behind = b.min(first + sizes["group"], sizes["rows"])
            beyond = (behind - 1) // sizes["m_block"] + 1
            with b.loop(first // sizes["m_block"], beyond, hint="block") as block:
                _wait(b, b.place(done, block.index, "i64"), sizes["needed"])
            b.call(row_work, row_args, row_params, first, behind)
            return [take()]

        b.while_([take()], lambda taken: taken[0] < sizes["rows"], work)
    return b.finish()


def _wait(b: CpuBuilder, counter: Pointer, needed: IndexValue) -> None:
    """Wait until other threads have raised `counter` to `needed`."""

    def again(_: list[IndexValue]) -> list[IndexValue]:
        b.pause()
        return [b.load_acquire(counter)]

    b.while_([b.load_acquire(counter)], lambda seen: seen[0] < needed, again)

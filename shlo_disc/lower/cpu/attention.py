"""Kind `attention`: a product, row reductions over it, and a product with what comes out.

    S[batch, m, n] = Q[batch, m, :] . K[batch, n, :]      the scores
    P = rows(S)                                           scale, mask, softmax: any row program
    C[batch, m, e] = sum over n of P[batch, m, n] * V[batch, n, e]

One kernel: a task is a run of rows of one batch entry. It packs K and V into panels, once for all
its neighbours of the same batch entry. Blocks of rows then go through all three stages while their
scores stay in L2. Another, where a batch entry has few rows, reads K and V in place, one row after
the other (`attention_few.py`). Rows are whole: the row program is the one of kind `row`, in place
over the scores, with any reduction. Nothing of size m x n reaches memory.

Source: the three-stage tile is FlashAttention's (Dao et al., 2022) without the online softmax,
which saves on-chip memory that a CPU has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.attention_few import FEW_ROWS, FewRows, reads_in_place
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.gemm import Writer, copy_panel
from shlo_disc.lower.cpu.dense.operands import Gemm, Operand
from shlo_disc.lower.cpu.dense.plan import Scratch, is_unit
from shlo_disc.lower.cpu.dense.tiles import K_BLOCK_BYTES, choose_tile
from shlo_disc.lower.cpu.dense.walk import walk
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.row_lanes import choose_row_lanes
from shlo_disc.lower.kernels.odometer import split
from shlo_disc.lower.kernels.row_writer import RowWriter, write_rows
from shlo_disc.lower.plan import Condition, If, Input, KernelPlan, Launch, Output, Step
from shlo_disc.lower.products.epilogue import Epilogue
from shlo_disc.lower.schedule.attention import Attention, take_apart
from shlo_disc.lower.schedule.contraction import (
    Axis,
    Dense,
    Problem,
    compute_element,
)
from shlo_disc.lower.schedule.row_reduction import Plan, Storage, plan_rows
from shlo_disc.lower.values.elemental import Arguments
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Index, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register
from shlo_disc.passes.match_attention import AttentionRecord
from shlo_disc.passes.records import Planned

ZERO, ONE = Expr.const(0), Expr.const(1)

SCORE_BYTES = 400 * 1024
"""Scores a task holds at once: they, a panel of K and one of V stay in L2."""

MOST_STEPS = 4
"""Row blocks are 1 to 4 times the rows that both register tiles divide. Larger ones would read
panels of K and V from L1 as often."""

TASKS_PER_CORE = 4


def emit_attention(fusion: Planned[AttentionRecord], machine: Machine) -> KernelPlan:
    """The plan of an `attention` fusion, planned by `plan-fusion`.

    Raises UnsupportedError for an element type no rule covers.
    """
    block, shapes = fusion.block, fusion.shapes
    problem, *others = take_apart(fusion.record, shapes)
    blocks = _Blocks(block, problem, shapes, machine)
    if not reads_in_place(blocks.score, blocks.mix):
        return KernelPlan((blocks.launch(),))
    rows: Step = _Rows(block, problem, shapes, machine).launch()
    for heads in others[:1]:
        # One position, and many heads that share keys: these are read once for all of them.
        shared = _Blocks(block, heads, shapes, machine).launch()
        rows = If(_few(heads), (rows,), (shared,))
    return KernelPlan((If(_few(problem), (rows,), (blocks.launch(),)),))


def _few(problem: Attention) -> Condition:
    return Condition(problem.m.size, "<=", Expr.const(FEW_ROWS))


class _Scores(RowWriter):
    """The row program over scores in scratch memory, the weights written over them."""

    def __init__(
        self, plan: Plan, factors: Sequence[Expr], lanes: int, b: SizedBuilder, arguments: Arguments
    ) -> None:
        super().__init__(plan, factors, lanes, b, arguments)
        self.line: IndexValue
        self.before: MemRef
        """Where scores are read."""
        self.after: MemRef
        """Where weights are written."""
        (scores,) = plan.given
        self.e.overrides[scores] = self._score

    def _score(self, index: Index, mask: Mask | None) -> Register:
        if not self.is_element(index):
            raise InternalError("an attention reads its scores at another place")
        return self.e.load_from(self.before, self._place(), mask, readonly=False)

    def _place(self) -> Ix:
        return self.space.add(self.space.tiles[-1], self.line)

    def result(self, k: int) -> tuple[MemRef, Ix]:
        return self.after, self._place()

    def row(self, number: IndexValue, line: IndexValue) -> None:
        """One row: its flat number and where its scores are."""
        b, space = self.b, self.space
        sizes = (b.param(space.factors[k]) for k in range(self.rank - 1, 0, -1))
        self.digits = [Ix(d) for d in split(b, number, sizes)[: self.rank]]
        self.line = line
        space.flats = {(0, self.rank): number} if self.rank else {}
        space.tiles = [*self.digits, space.zero()]
        overrides = dict(self.e.overrides)
        for sweep in self.plan.sweeps:
            self.sweep(sweep)
        self.e.overrides = overrides


def _reads_again(plan: Plan) -> bool:
    """True if a sweep reads scores over which an earlier one has written."""
    (scores,) = plan.given
    written = [n for n, s in enumerate(plan.sweeps) if any(k.output is not None for k in s.stores)]
    if not written:
        return False
    stored = {item.value for item in plan.materialised}
    for sweep in plan.sweeps[min(written) + 1 :]:
        wanted = [plan.roots[k] for k in sweep.outputs]
        for op in (*sweep.simple, *sweep.general):
            wanted += list(op.operands)[: len(op.operands) // 2]
        if any(_reaches(v, scores, set(stored)) for v in wanted):
            return True
    return False


def _reaches(value: ir.Value, scores: ir.Value, seen: set[ir.Value]) -> bool:
    """True if `value` is computed from `scores` other than by a reduction or through values in
    `seen`.
    """
    if value == scores:
        return True
    if value in seen or isinstance(value.owner, ir.Block):
        return False
    seen.add(value)
    op = value.owner.operation
    if op.name == "stablehlo.reduce":
        return False
    return any(_reaches(v, scores, seen) for v in op.operands)


class _Kernel:
    """What both kernels of a fusion have: their operands, and the row program between products."""

    def __init__(
        self, block: ir.Block, problem: Attention, shapes: ShapeAnalysis, machine: Machine
    ) -> None:
        self.shapes, self.machine = shapes, machine
        self.block = block
        a = self.at = problem
        record = self.record = problem.record
        inputs = list(self.block.arguments)
        views = record.queries, record.keys, record.values
        q, k, v = (element_of(x.base) for x in views)
        p = self.compute = element_of(record.score.total)
        compute_element(record.mix.op, p, v, element_of(record.mix.op.results[0]))
        moves = [tuple(bool(getattr(x, n) != ZERO) for x in a.batch) for n in ("q", "k", "v")]
        mine = Operand("s_a", q, 1, 1, is_unit(a.m.size, a.m.q), is_unit(a.depth, a.q_depth),
                       moves[0], record.queries.first != ZERO)  # fmt: skip
        keys = Operand("s_b", k, 1, 1, is_unit(a.keys, a.k_key), is_unit(a.depth, a.k_depth),
                       moves[1], record.keys.first != ZERO)  # fmt: skip
        weights = Operand("v_a", p, 1, 1, False, True, (False,) * len(a.batch))
        values = Operand("v_b", v, 1, 1, is_unit(a.width, a.v_width), is_unit(a.keys, a.v_key),
                         moves[2], record.values.first != ZERO)  # fmt: skip
        in_place = q.storage == p.register and mine.k_unit
        self.arguments = Arguments()
        places = [Input(inputs.index(x.base)) for x in views]
        self.arguments.buffers = [*places, Output(0)]
        self.score = Gemm(
            mine, keys, p, p, choose_tile(a.keys, p, machine), "direct" if in_place else "scratch",
            "packed", c_unit=True, machine=machine,
        )  # fmt: skip
        tile = choose_tile(a.width, p, machine)
        finish = None
        if record.root != record.mix.total:
            finish = Epilogue(self._dense(p, v), self.block, shapes, self.arguments, tile.lanes)
        self.mix = Gemm(
            weights, values, element_of(record.root), p, tile, "direct", "packed", c_unit=True,
            machine=machine, finish=finish,
        )  # fmt: skip
        self.plan = plan_rows(record.rows, self.block, shapes, Storage(cost.op_cycles))
        self.lanes = choose_row_lanes(self.plan, machine)
        self.separate = _reads_again(self.plan)
        self.batches = Expr.product(x.size for x in a.batch)
        self.scratch = Scratch()
        self.sizes: dict[str, Expr] = {}
        self._measure()

    def _dense(self, p: ElementType, v: ElementType) -> Dense:
        """What the epilogue must know of the second product."""
        a = self.at
        problem = Problem(
            batch=tuple(Axis(x.size, b=x.v, c=x.c) for x in a.batch),
            m=(Axis(a.m.size, c=a.m.c),),
            n=(Axis(a.width, b=a.v_width, c=ONE),),
            k=(Axis(a.keys, a=ONE, b=a.v_key),),
            a_input=-1,
            b_input=list(self.block.arguments).index(self.record.values.base),
            a=p,
            b=v,
            c=element_of(self.record.mix.total),
            compute=p,
        )
        return Dense(problem, self.record.mix, self.record.root)

    def _measure(self) -> None:
        """The numbers the text takes as parameters."""
        a = self.at
        self.padded = ceil_div(a.keys, self.score.tile.columns) * self.score.tile.columns
        self.sizes |= {
            "s_M": a.m.size, "s_N": a.keys, "s_K": a.depth, "s_c_m": self.padded,
            "s_ar0": a.m.q, "s_ak0": a.q_depth, "s_br0": a.k_key, "s_bk0": a.k_depth,
            "v_M": a.m.size, "v_N": a.width, "v_K": a.keys, "v_c_m": a.m.c, "v_c_n": ONE,
            "v_ar0": self.padded, "v_br0": a.v_width, "v_bk0": a.v_key, "row_m": a.m.row,
            "s_a_first": self.record.queries.first, "s_b_first": self.record.keys.first,
            "v_b_first": self.record.values.first,
        }  # fmt: skip
        for i, x in enumerate(a.batch):
            self.sizes |= {f"s_s{i}": x.size, f"s_a{i}": x.q, f"s_b{i}": x.k, f"v_b{i}": x.v,
                           f"v_c{i}": x.c, f"row{i}": x.row}  # fmt: skip

    def _hold(self, rows: Expr | int) -> None:
        """Scratch memory for the scores of so many rows."""
        size = self.padded * rows * self.compute.bytes
        self.sizes["scores"] = self.scratch.take(size)
        if self.separate:
            self.sizes["weights"] = self.scratch.take(size)

    def _factors(self) -> list[Expr]:
        """The row dimensions the row program needs apart (see `write_rows`)."""

        def write(factors: Sequence[Expr]) -> _Scores:
            b = SizedBuilder(self.machine, {})
            rows = _Scores(self.plan, factors, self.lanes, b, Arguments())
            rows.before = rows.after = b.scratch(self.compute.storage)
            with b.loop(b.lo, b.hi, 1, hint="row") as loop:
                rows.row(loop.index, loop.index)
            return rows

        rows = write_rows(self.plan, self.shapes, write)
        rows.b.forget()
        return rows.space.factors[:-1]

    def _begin(self) -> None:
        """The text up to its tasks: where everything is."""
        factors = self._factors()
        b = self.b = SizedBuilder(self.machine, self.sizes)
        storage = self.compute.storage
        score, mix = self.score, self.mix
        s = self.s = Writer(score, b, "s_")
        v = self.v = Writer(mix, b, "v_")
        s.a_in = s.a_mem = b.memref(0, score.a.element.storage)
        self.k_in = b.memref(1, score.b.element.storage)
        self.v_in = b.memref(2, mix.b.element.storage)
        v.c_out = v.sums = b.memref(3, mix.c.storage)
        s.c_out = s.sums = b.scratch(storage, b.size("scores"))
        v.a_mem = b.scratch(storage, b.size("weights")) if self.separate else s.c_out
        rows = self.r = _Scores(self.plan, factors, self.lanes, b, self.arguments)
        rows.before, rows.after = s.c_out, v.a_mem
        rows.first_scratch = self.scratch.total

    def _launch(self, name: str, tasks: Expr, time: Expr) -> Launch:
        """The finished kernel: so many tasks of `time` nanoseconds."""
        a = self.at
        some = Expr.min(a.m.size, 1) * Expr.min(a.width, 1)
        scratch = self.scratch.total + self.r.scratch_bytes()
        return self.arguments.launch(self.b.finish(), name, tasks * some, time, scratch)

    def _row_time(self) -> Expr:
        a = self.at
        return a.keys * (a.depth + a.width) // 80 + a.keys // 2 + 20

    def _row(self, m: IndexValue, first: IndexValue) -> None:
        """The row work on row `m` of scores that begin at row `first`."""
        b = self.b
        flat = self.row_base + m * b.size("row_m")
        self.r.row(flat, (m - first) * self.s.size("c_m"))

    def _batch(self, batch: IndexValue) -> None:
        """Where a batch entry begins in every array."""
        b, s, v = self.b, self.s, self.v
        digits = s.batch_digits = v.batch_digits = s.digits_of(batch)
        s.a_base = s.batch_offset("a", self.score.a.batch, self.score.a.first)
        s.b_base = v.b_base = b.index(0)
        self.k_base = s.batch_offset("b", self.score.b.batch, self.score.b.first)
        self.v_base = v.batch_offset("b", self.mix.b.batch, self.mix.b.first)
        v.c_base = v.batch_offset("c", (True,) * len(digits))
        self.row_base = b.index(0)
        for axis, digit in enumerate(digits):
            self.row_base = self.row_base + digit * b.size(f"row{axis}")


class _Rows(_Kernel):
    """A row after the other, keys and values in place; a task is a batch entry."""

    def launch(self) -> Launch:
        """The kernel and how it is run."""
        self._hold(1)
        self._begin()
        b, s, v, a = self.b, self.s, self.v, self.at
        few = FewRows(s, v, self.k_in, self.v_in)
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            self._batch(task.index)
            with b.loop(0, s.size("M"), 1, hint="row") as row:
                s.c_base = v.a_base = 0 - row.index * s.size("c_m")
                few.scores(row.index, self.k_base)
                self._row(row.index, row.index)
                few.mix(row.index, self.v_base)
        reading = a.keys * (a.depth + a.width) // 8
        time = a.m.size * self._row_time() + reading + 100
        return self._launch("attention_rows", self.batches, time)


class _Blocks(_Kernel):
    """Blocks of rows over panels of keys and values; a task is a run of rows of a batch entry."""

    def _measure(self) -> None:
        super()._measure()
        a, item, sizes, scratch = self.at, self.compute.bytes, self.sizes, self.scratch
        score, mix = self.score, self.mix
        e = ceil_div(a.width, mix.tile.columns) * mix.tile.columns
        unit = _common(score.tile.rows, mix.tile.rows)
        fit = Expr.const(SCORE_BYTES) // (Expr.max(self.padded, 1) * (unit * item))
        rows = Expr.max(Expr.min(fit, MOST_STEPS), 1) * unit
        # Enough tasks for all cores, but as few as that: each packs K and V.
        share = (a.m.size * self.batches) // (TASKS_PER_CORE * self.machine.cores)
        per_task = Expr.max(ceil_div(Expr.min(share, a.m.size), rows), 1) * rows
        self.tasks_of_batch = Expr.max(ceil_div(a.m.size, per_task), 1)
        k_block = _even(a.depth, K_BLOCK_BYTES // item)
        n_block = _even(a.keys, K_BLOCK_BYTES // item)
        sizes |= {"TASKS": self.tasks_of_batch, "PER_TASK": per_task, "ROWS": rows,
                  "s_KC": k_block, "v_KC": n_block}  # fmt: skip
        sizes["k_scratch"] = scratch.take(self.padded * a.depth * item)
        sizes["v_scratch"] = scratch.take(e * a.keys * item)
        self._hold(rows)
        if score.a_mode == "scratch":
            lanes = score.tile.lanes
            sizes["s_a_row"] = ceil_div(k_block, lanes) * lanes
            sizes["s_a_scratch"] = scratch.take(rows * sizes["s_a_row"] * item)
        if not mix.c_holds_sums:
            many = sizes["v_many"] = Expr.min(Expr.max(ceil_div(a.keys, n_block) - 1, 0), 1)
            sizes["v_c_row"] = many * (e - mix.tile.columns) + mix.tile.columns
            room = many * (rows - mix.tile.rows) + mix.tile.rows
            sizes["v_c_scratch"] = scratch.take(room * sizes["v_c_row"] * item)

    def launch(self) -> Launch:
        """The kernel and how it is run."""
        self._begin()
        b, s, v, a, storage = self.b, self.s, self.v, self.at, self.compute.storage
        s.b_mem = b.scratch(storage, b.size("k_scratch"))
        v.b_mem = b.scratch(storage, b.size("v_scratch"))
        if self.score.a_mode == "scratch":
            s.a_mem = b.scratch(storage, b.size("s_a_scratch"))
        if not self.mix.c_holds_sums:
            v.sums = b.scratch(storage, b.size("v_c_scratch"))
            v.g = replace(v.g, part=v.part())
        with b.loop(b.lo, b.hi, 1, [b.index(-1)], hint="task") as task:
            task.yield_(self._task(task.index, task.args[0]))
        packing = a.keys * (a.depth + a.width) // 4
        time = self.sizes["PER_TASK"] * self._row_time() + packing + 100
        return self._launch("attention", self.batches * self.tasks_of_batch, time)

    def _task(self, task: IndexValue, packed: IndexValue) -> IndexValue:
        """One task; returns the number of the K and V that are packed after it."""
        b, s = self.b, self.s
        tasks = b.size("TASKS")
        batch, part = task // tasks, task % tasks
        self._batch(batch)
        first = part * b.size("PER_TASK")
        last = b.min(first + b.size("PER_TASK"), s.size("M"))
        return self._blocks(first, last, packed)

    def _blocks(self, first: IndexValue, last: IndexValue, packed: IndexValue) -> IndexValue:
        """Blocks of rows over panels of K and V."""
        b, s, v = self.b, self.s, self.v
        number = self._number()
        with b.if_(packed.differs(number)):
            self._pack(s, self.k_in)
            self._pack(v, self.v_in)
        c_base = v.c_base
        with b.loop(first, last, b.size("ROWS"), hint="rows") as block:
            m0 = block.index
            m1 = b.min(m0 + b.size("ROWS"), last)
            # Rows are numbered from the start of the batch entry, scores from that of the block.
            s.c_base = v.a_base = 0 - m0 * s.size("c_m")
            self._product(s, m0, m1)
            with b.loop(m0, m1, 1, hint="row") as row:
                self._row(row.index, m0)
            v.c_base = c_base
            self._product(v, m0, m1)
        return number

    def _number(self) -> IndexValue:
        """A number for the K and V of this batch entry."""
        b = self.b
        number = b.index(0)
        for axis, digit in enumerate(self.s.batch_digits):
            if self.score.b.batch[axis] or self.mix.b.batch[axis]:
                number = number * self.s.size(f"s{axis}") + digit
        return number

    def _pack(self, writer: Writer, memory: MemRef) -> None:
        """All panels of K (V)."""
        b, columns = self.b, writer.g.tile.columns
        base = self.k_base if writer is self.s else self.v_base
        depth, zero = writer.size("K"), b.index(0)
        along_k = walk(b, writer.g.b, "k", zero, depth)
        with b.loop(0, writer.size("N"), columns, hint="panel") as panel:
            to = panel.index * depth
            copy_panel(
                b, writer.g, memory, base, panel.index, writer.size("N"), along_k, depth,
                writer.b_mem, to,
            )  # fmt: skip

    def _product(self, writer: Writer, m0: IndexValue, m1: IndexValue) -> None:
        """The rows from `m0` to `m1` of one product, all blocks of K."""
        b, zero = self.b, self.b.index(0)
        with b.loop(0, b.max(writer.size("K"), 1), writer.size("KC"), hint="k0") as kb:
            depth = b.min(writer.size("K") - kb.index, writer.size("KC"))
            if writer.g.a_mode == "scratch":
                writer.copy_a(m0, m1, kb.index, depth)
            writer.block(m0, m1, zero, writer.size("N"), kb.index, depth)


def _common(a: int, b: int) -> int:
    """The smallest multiple of both that is 24 or more."""
    unit = next(n for n in range(max(a, b), a * b + 1) if n % a == 0 and n % b == 0)
    return unit * ceil_div(24, unit)


def _even(size: Expr, limit: int) -> Expr:
    """Blocks of `size` of about `limit`, all of one size; at least 1."""
    count = Expr.max(ceil_div(Expr.max(size - limit // 2, 0), limit), 1)
    return Expr.max(ceil_div(size, count), 1)

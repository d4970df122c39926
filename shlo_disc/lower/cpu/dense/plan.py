"""From a problem to launches: which variants there are and which sizes take which."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shlo_disc.base.later import imported_later
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.cpu.dense.gemm import Product, pack_kernel, write_gemm
from shlo_disc.lower.cpu.dense.inner_products import (
    GROUP,
    HEIGHTS,
    dots_scratch_bytes,
    write_dots,
)
from shlo_disc.lower.cpu.dense.narrow import narrow_launch
from shlo_disc.lower.cpu.dense.operands import Gemm, Operand
from shlo_disc.lower.cpu.dense.repack import PAIR
from shlo_disc.lower.cpu.dense.split import combine_launch, split_steps
from shlo_disc.lower.cpu.dense.taps import tap_pack_kernel, taps_of
from shlo_disc.lower.cpu.dense.tile_writer import CHAINS
from shlo_disc.lower.cpu.dense.tiles import (
    MATRIX_K_BLOCK,
    MATRIX_ROOM,
    MATRIX_ROWS,
    Blocks,
    at_least_one,
    blocks,
    choose_tile,
    matrix_tile,
)
from shlo_disc.lower.cpu.dense.words import words_of
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.plan import (
    All,
    Buffer,
    Condition,
    If,
    Launch,
    Pack,
    Packed,
    Part,
    Step,
    Workspace,
)
from shlo_disc.lower.products.prologue import runs_along_k
from shlo_disc.lower.products.request import Request
from shlo_disc.lower.schedule.contraction import Axis, Problem, Steps
from shlo_disc.lower.values.elemental import Arguments

if TYPE_CHECKING:
    from shlo_disc.lower.cpu.dense.row_work import RowWork

batches_launch = imported_later("shlo_disc.lower.cpu.dense.batches", "batches_launch")
small_launch = imported_later("shlo_disc.lower.cpu.dense.small", "small_launch")
when_small = imported_later("shlo_disc.lower.cpu.dense.small", "when_small")

ONE = Expr.const(1)

FEW_ROWS = 4
"""Tiles of rows up to which B is read in place when that is possible. A copy costs as much as about
one more tile; reads in place are slower, since each row is in a page of its own."""

FEWEST_ROWS = 2
"""Rows up to which B is read in place although panels of it may be kept, where its columns run
along K. Sums are then of another order, so sizes alone decide. Time in place against kept panels,
and against panels made in the call. One row takes 0.6 to 1.0 and 0.4 to 0.6, two rows 0.8 to 1.2
and 0.6 to 0.7. Measured on two cores of a Sapphire Rapids, B of 768 x 768 to 768 x 30000."""

IN_PLACE_ROWS = 7
"""Rows, fewer than a register tile has, up to which the same holds where B is neither shallow nor
large. With a whole tile panels are at their best. Time in place against kept panels, and against
panels made in the call. Tiles of 6 rows: three rows 0.98 to 1.1 and 0.5 to 0.6, four 0.75 to 0.85
and 0.4 to 0.5. Five take 0.9 to 1.0 and 0.4 to 0.6, six 1.16 and 0.6. Tiles of 8 rows: four 1.04 to
1.1 and 0.45 to 0.6, others 0.7 to 1.03 and 0.45 to 0.65. Measured on one core of an EPYC with
AVX-512, B of 256 x 768 to 768 x 3072."""

FEW_COLUMNS = 24
"""Columns up to which they become rows: inner products with rows of A in place. A tile of 48
columns has no use for most of its lanes then. Time against the tile, 2048 x 768 x n of f32: 0.1 for
one column, 0.17 for 7, 0.4 for 16. Measured on one core of an EPYC with AVX-512."""

MANY_COLUMNS = 16
"""Rows of a result of few columns from which on that is so: they are in the lanes then."""

IN_PLACE_DEPTH = 256
"""Products in a sum from which on it holds. Adding up the lanes costs as much as 16 products a sum:
with 64, three rows take 1.2 of the time with kept panels."""

IN_PLACE_BYTES = 9 << 20
"""Bytes of B up to which it holds: what is in L3 and in reach of the TLB. Kept panels lie in huge
pages and are read in one run. In place takes up to 1.3 of their time with 12 MiB, and 2 to 4 with
36 MiB. Panels made in the call then cost little: memory is slower than the copy."""

FEW_ENOUGH_TO_WAIT = 512
"""Rows up to which the first call does without panels that are kept; they are made after it. The
panels of BERT-base take 80 ms, and five times that in memory new to the machine. A call of 256 rows
without them takes 60 ms more."""

LARGE_ENOUGH_TO_WAIT = 1 << 20
"""Bytes of such panels. Smaller ones take less time than the kernel that does without them."""


class Planner:
    """Plans one problem.

    `rows`: row work behind it. `may_use_words`: see `words.py`.
    """

    panel_bytes: Expr | None = None
    """What a call without panels takes of `Request.panels` to make them, known after :meth:`steps`;
    None: it makes none there."""

    def __init__(
        self, request: Request, *, rows: RowWork | None = None, may_use_words: bool = True
    ) -> None:
        p = self.p = request.problem
        machine: Machine = request.machine
        self.label, self.rows = request.label, rows
        self.request, self.machine, self.fill = request, machine, request.fill
        self.a_buffer, self.b_buffer, self.out = request.args
        self.m, self.n, self.depth = p.rows, p.columns, p.depth
        self.walks = walks = request.walks
        a = _operand("a", p.a, walks["ar"], walks["ak"], p.batch, p.a_first)
        b = _operand("b", p.b, walks["br"], walks["bk"], p.batch, p.b_first)
        words = words_of(p, machine) if may_use_words else None
        has_tiles = words is not None and bool(words.tiles)
        self.tile = matrix_tile(machine) if has_tiles else choose_tile(self.n, p.compute, machine)
        apart = walks["ak"][-1][1]
        if a.k_steps == 1 and apart == PAIR:  # what is farther apart is copied
            a = replace(a, k_apart=PAIR)
        near = a.k_unit or a.k_apart > 1
        in_place = words is None and p.a.storage == p.compute.register and near
        self.b_readable = self.fill is None and b.row_run and b.k_steps == 1
        """B's columns are neighbours in memory."""
        self.b_in_place = self.b_readable and p.b.storage == p.compute.register
        self.gemm = Gemm(
            a=a if in_place else replace(a, k_apart=1),
            b=b,
            c=request.result,
            compute=p.compute,
            tile=self.tile,
            a_mode="direct" if in_place else "scratch",
            b_mode="packed",
            c_unit=is_unit(self.n, p.n[-1].c),
            machine=machine,
            bands=p.bands,
            then_rows=rows is not None,
            short=p.is_short,
            words=words,
        )
        self.steps_of_k = self.depth if words is None else ceil_div(self.depth, words.count)
        if has_tiles:
            self.steps_of_k = ceil_div(self.steps_of_k, MATRIX_ROWS) * MATRIX_ROWS
        self.run = walks["ak"][-1][0]
        self.blocks = self._blocks()

    def _blocks(self) -> Blocks:
        gemm = self.gemm
        if gemm.has_tiles:
            run, cores = Expr.const(MATRIX_ROWS), self.machine.cores
            return blocks(self.p, self.tile, cores, self.steps_of_k, run, MATRIX_K_BLOCK)
        run = self.run if gemm.a_mode == "direct" and gemm.a.k_steps > 1 else ONE
        if self.fill is not None and runs_along_k(self.p):  # whole vectors
            run = run * self.tile.lanes
        return blocks(self.p, self.tile, self.machine.cores, self.steps_of_k, run)

    # ---------------------------------------------------------------- steps

    def steps(self) -> tuple[Step, ...]:
        """The launches, with the choices that are left to the sizes of a call."""
        if self.fill is None and self.p.bands == 1 and self.rows is None:
            narrow = narrow_launch(self.request)
            if narrow is not None:
                return (narrow,)
        if self.fill is not None and runs_along_k(self.p):
            scratch = (self._launch("scratch"),)
            if self.gemm.short:
                return scratch
            few = Condition(self.m, "<=", Expr.const(HEIGHTS[self.machine.vector_registers][0]))
            return _if((few,), (self._dots(),), scratch)
        if self.fill is not None:
            plain = self
            if self.gemm.has_tiles:
                plain = Planner(self.request, rows=self.rows, may_use_words=False)
            one_tile = Condition(self.m, "<=", Expr.const(plain.tile.rows))
            return _if((one_tile,), plain._in_registers("computed"), (self._launch("scratch"),))
        if any(self.gemm.b.batch):
            return self._unless_few((self._launch("scratch"),))
        if self.request.keep_b:
            return self._kept()
        return (self._launch("scratch"),)

    def in_batches(self) -> Launch | None:
        """The kernel of `batches.py` where it does better."""
        if self.fill is not None or self.p.bands != 1 or self.rows is not None:
            return None
        launch: Launch | None = batches_launch(self.request)
        return launch

    def unless_small(self, otherwise: tuple[Step, ...]) -> tuple[Step, ...]:
        """The kernel of `small.py` where it does better than `otherwise`."""
        small = when_small(self.p, self.tile)
        if small is None or _never(small):
            return otherwise
        return _if(small, (small_launch(self.request),), otherwise)

    def split(self, steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], tuple[Expr, ...]]:
        """`steps` with a variant for long sums of few results (`split.py`), and its blocks."""
        p, at = self.p, self.blocks
        if self.fill is not None:
            return steps, ()

        def partial(cut: Problem) -> tuple[Step, ...]:
            request = replace(
                self.request, problem=cut, label=f"{self.label}_part", keep_b=False,
                out=Workspace(0), result=cut.c, finish=None,
            )  # fmt: skip
            return Planner(request).steps()

        def combine(parts: int) -> Launch:
            return combine_launch(self.request, self.gemm, self._sizes(), parts)

        tasks = p.batches * at.m_count * at.n_count
        return split_steps(p, self.machine, steps, tasks, partial, combine)

    def _unless_few(self, otherwise: tuple[Step, ...]) -> tuple[Step, ...]:
        """B in place where too few rows would pay for a copy of it."""
        if self.b_in_place or self._is_widened:
            rows = self.tile.rows * (FEW_ROWS if self.b_in_place else 1)
            few = Condition(self.m, "<=", Expr.const(rows))
            return _if((few,), self._in_registers("direct"), otherwise)
        if self._are_runs:
            few = Condition(self.m, "<=", Expr.const(1 if self.gemm.has_tiles else self.tile.rows))
            return _if((few,), (self._dots(),), otherwise)
        return otherwise

    def _in_registers(self, b_mode: str) -> tuple[Step, ...]:
        """B as it is read or computed, and one row on a tile that reads whole cache lines of it."""
        launch = (self._launch(b_mode),)
        if self.b_in_place:
            return launch
        wide = copy.copy(self)
        wide.tile = replace(self.tile, rows=1, vectors=CHAINS)
        wide.gemm = replace(self.gemm, tile=wide.tile)
        wide.blocks = wide._blocks()
        return _if((Condition(self.m, "<=", ONE),), (wide._launch(b_mode),), launch)

    @property
    def _is_widened(self) -> bool:
        """True if B could be read in place but for its type, which is not computed in."""
        return self.b_readable and not self.b_in_place and self.gemm.words is None

    @property
    def _are_runs(self) -> bool:
        """True if the rows of A and the columns of B are runs along K, at even distances."""
        a, b = self.gemm.a, self.gemm.b
        if self.p.bands > 1 or self.gemm.short:
            return False
        return self.fill is None and a.k_run and b.k_run and a.row_steps == 1 and b.row_steps == 1

    def unless_many_rows(self, otherwise: tuple[Step, ...]) -> tuple[Step, ...]:
        """B in place where there are few rows, else `otherwise`.

        For operands in each other's place: of many rows and few columns, see `FEW_COLUMNS`.
        """
        b = self.gemm.b
        limit = FEW_ROWS * self.tile.rows if self.b_readable else FEW_COLUMNS
        some = [
            Condition(self.m, "<=", Expr.const(limit)),
            Condition(self.n, ">=", Expr.const(MANY_COLUMNS)),
        ]
        if self.b_readable:
            return _if(some, (self._launch("direct"),), otherwise)
        if self.gemm.short or not (b.k_run and b.row_steps == 1):
            return otherwise
        copied = Expr.const(self.machine.l2_bytes // 4)
        some.append(Condition(self.m * self.depth * self.p.compute.bytes, "<=", copied))
        return _if(some, (self._dots(),), otherwise)

    def _dots(self) -> Launch:
        """Inner products, B in place."""
        p, at, lanes = self.p, self.blocks, self.tile.lanes
        arguments, finish = Arguments(self.request.args), self.request.finish
        done = finish(arguments, min(GROUP, lanes)) if finish is not None else None
        fill = None if self.fill is None else self.fill(arguments, lanes)
        registers, a = self.machine.vector_registers, self.gemm.a
        a_mode = "direct" if a.k_run and a.row_steps == 1 else "scratch"
        gemm = replace(self.gemm, a_mode=a_mode, b_mode="direct", words=None)
        gemm = replace(gemm, finish=done, fill=fill)
        sizes, scratch = self._sizes() | {"K": self.depth}, Scratch()
        scratch.take(Expr.const(0 if done is None else dots_scratch_bytes(registers)))
        if a_mode == "scratch":
            sizes["a_row"] = ceil_div(self.depth, lanes) * lanes
            sizes["a_scratch"] = scratch.take(at.m * sizes["a_row"] * p.compute.bytes)
            if self._has_tables(a):
                sizes["table_k"] = scratch.take(self.depth * 8)
                sizes["table_r"] = scratch.take(at.m * 8)
        product = write_dots(gemm, sizes, self.label)
        time = at.n * (self.m * (self.depth // (2 * lanes) + 2) + self.depth // lanes) + 50
        return self._launched(product, "dots", arguments, time, scratch.total, gemm)

    def _launched(
        self, product: Product, way: str, arguments: Arguments, time: Expr, room: Expr, g: Gemm
    ) -> Launch:
        """The launch of a kernel of `g`, and the row work behind it where there is some."""
        at, some = self.blocks, Expr.min(self.m, 1) * Expr.min(self.n, 1)
        extent, name = self.p.batches * at.m_count * at.n_count * some, f"{self.label}_{way}"
        launch = arguments.launch(product.made, name, extent, time, room)
        launch = replace(launch, args=(*product.called, *launch.args))
        if self.rows is None:
            return launch
        return self.rows.behind(launch, at, rows_first=g.rows_first)

    def _kept(self) -> tuple[Step, ...]:
        """B as panels that are kept, unless even then too few rows would pay for it."""
        pack = (self._pack(),)
        if self._is_widened:
            one_or_two = Condition(self.p.batches * self.m, "<=", Expr.const(FEWEST_ROWS))
            return _if((one_or_two,), self._in_registers("direct"), pack)
        if self.b_in_place or not self._are_runs:
            return pack
        p, dots = self.p, (self._dots(),)
        rows = p.batches * self.m
        few = (
            Condition(rows, "<=", Expr.const(min(IN_PLACE_ROWS, self.tile.rows - 1))),
            Condition(self.depth, ">=", Expr.const(IN_PLACE_DEPTH)),
            Condition(self.n * self.depth * p.b.bytes, "<=", Expr.const(IN_PLACE_BYTES)),
        )
        if self.gemm.has_tiles:
            return _if((Condition(rows, "<=", ONE),), dots, pack)
        fewest = (Condition(rows, "<=", Expr.const(FEWEST_ROWS)),)
        return _if(fewest, dots, _if(few, dots, pack))

    def _with_own_panels(self) -> Launch:
        """For calls without the panels that others have: the same sums, from panels of its own.

        A panel a task while rows are few: it is read from L1 or L2 just after it was made.
        """
        if self.b_in_place or not self._are_runs:
            return self._launch("scratch")
        narrow = copy.copy(self)
        panels, per_task = ceil_div(self.n, self.tile.columns), self.blocks.n // self.tile.columns
        per_task = Expr.min(per_task, Expr.max((self.m - self.tile.rows) * per_task, 1))
        narrow.blocks = replace(
            self.blocks,
            n=per_task * self.tile.columns,
            n_count=at_least_one(ceil_div(panels, per_task)),
        )
        return narrow._launch("scratch")

    def _pack(self) -> Pack:
        """B as panels, kept by the runtime where it can; else few rows read it in place."""
        p, tile = self.p, self.tile
        in_band = ceil_div(self.n, tile.columns)
        panels = in_band * p.bands
        sizes = self._sizes() | {"panels": in_band}
        # The tables of `walk`, where it needs them.
        sizes |= {"table_k": Expr.const(0), "table_r": self.depth * 8}
        taps = taps_of(p) if self.gemm.words is None else None
        if taps is None:
            made = pack_kernel(self.gemm, sizes)
        else:
            made = tap_pack_kernel(self.gemm, taps, sizes)
        # One nanosecond for about four elements.
        time = self.depth * (tile.columns // 4) + 50
        tables = self.depth * 8 + tile.columns * 8 if self._has_tables(self.gemm.b) else 0
        arguments = Arguments([self.b_buffer, Packed(p.b_input)])
        fill = arguments.launch(made, f"{self.label}_pack", panels, time, tables)
        packed = (self._launch("packed"),)
        room = panels * tile.columns * self.panel_rows * p.compute.bytes
        scratch: tuple[Step, ...] = (self._with_own_panels(),)
        own = self.request.panels
        if taps is not None and own is not None:
            here = replace(fill, args=(self.b_buffer, own))
            scratch, self.panel_bytes = (here, self._launch("packed", own)), room
        never = self._unless_few(scratch)
        otherwise = never if self.b_in_place or self._is_widened else scratch
        walks = [self.walks["br"], self.walks["bk"]]
        layout = tuple(size for walk in walks for step in walk for size in step)
        key = (
            f"{p.bands} bands, {tile.columns} columns of {p.compute.register} from {p.b.name}, "
            f"{len(walks[0])} and {len(walks[1])} steps"
        )
        if self.gemm.words is not None:
            of_tiles = f", for {self.gemm.words.tiles}" if self.gemm.has_tiles else ""
            key = f"words of {self.gemm.words.count} with notes{of_tiles}, {key}"
        elements = self.n * p.bands * self.depth
        part = Part(p.b_input, key, (*layout, p.b_first), room, fill, elements)
        few = Condition(p.batches * self.m, "<=", Expr.const(FEW_ENOUGH_TO_WAIT))
        large = Condition(room, ">=", Expr.const(LARGE_ENOUGH_TO_WAIT))
        return Pack((part,), packed, otherwise, never, All((few, large)))

    # ---------------------------------------------------------------- one launch

    def _launch(self, b_mode: str, b_buffer: Buffer | None = None) -> Launch:
        p, tile, at, request = self.p, self.tile, self.blocks, self.request
        if b_buffer is None:
            b_buffer = Packed(p.b_input) if b_mode == "packed" else self.b_buffer
        arguments = Arguments([self.a_buffer, b_buffer, self.out])
        makers = {name: getattr(request, name) for name in ("finish", "finish_bands", "fill")}
        made = {name: f(arguments, tile.lanes) for name, f in makers.items() if f is not None}
        gemm = replace(self.gemm, b_mode=b_mode, **made)
        sizes = self._sizes()
        item = p.compute.bytes
        scratch = Scratch()
        apart = {"direct": self.n, "packed": self.panel_rows * tile.columns}
        block_rows = at.k if gemm.words is None else at.k + 1
        sizes["b_band"] = apart.get(b_mode, block_rows * tile.columns)
        if b_mode == "scratch":
            scratch.take(at.n * block_rows * item * p.bands)
        if gemm.a_mode == "scratch":
            sizes["a_row"] = ceil_div(at.k, tile.lanes) * tile.lanes
            note = 0 if gemm.words is None else 1
            if gemm.has_tiles:  # no multiple of 4096 bytes, with which 6 % are lost
                sizes["a_row"] = (ceil_div(at.k, 2 * MATRIX_ROWS) * 2 + 1) * MATRIX_ROWS
                sizes["tiles"] = scratch.take(Expr.const(MATRIX_ROOM))
            sizes["a_scratch"] = scratch.take((at.m * sizes["a_row"] + note) * item)
        if not gemm.c_holds_sums:
            many = sizes["many"] = Expr.min(at.k_count - 1, 1)
            sizes["c_row"] = many * (at.n - tile.columns) + tile.columns
            room = many * (at.m - tile.rows) + tile.rows
            sizes["c_band"] = room * sizes["c_row"]
            sizes["c_scratch"] = scratch.take(sizes["c_band"] * item * p.bands)
        copied = [gemm.b] if b_mode == "scratch" else []
        if self._has_tables(gemm.a) or any(self._has_tables(x) for x in copied):
            sizes["table_k"] = scratch.take(at.k * 8)
            sizes["table_r"] = scratch.take(Expr.max(at.m, tile.columns) * 8)
        product = write_gemm(gemm, sizes, self.label)
        time, room = self._cost(gemm), scratch.total
        return self._launched(product, b_mode, arguments, time, room, gemm)

    @property
    def panel_rows(self) -> Expr:
        """Rows of a panel of all of K."""
        return self.depth if self.gemm.words is None else self.steps_of_k + self.blocks.k_count

    @staticmethod
    def _has_tables(operand: Operand) -> bool:
        return operand.row_steps > 1 or operand.k_steps > 1

    def _sizes(self) -> dict[str, Expr]:
        p, at = self.p, self.blocks
        sizes = {
            "M": self.m, "N": self.n, "K": self.steps_of_k,
            "K_elements": self.depth, "K_panel": self.panel_rows,
            "MC": at.m, "NC": at.n, "KC": at.k, "MB": at.m_count, "NB": at.n_count,
            "c_m": p.m[-1].c, "c_n": p.n[-1].c,
            "a_first": p.a_first, "b_first": p.b_first, "a_run": self.run,
        }  # fmt: skip
        for i, axis in enumerate(p.batch):
            sizes |= {f"s{i}": axis.size, f"a{i}": axis.a, f"b{i}": axis.b, f"c{i}": axis.c}
        for name, walk in self.walks.items():
            for i, (size, stride) in enumerate(walk):
                sizes |= {f"{name}s{i}": size, f"{name}{i}": stride}
        return sizes

    def _cost(self, gemm: Gemm) -> Expr:
        """Nanoseconds of a task: arithmetic, or the traffic of B where rows are few."""
        at, tile = self.blocks, self.tile
        # A step of the register tile takes half a cycle per accumulator at 3 GHz (three cycles for
        # 64-bit integers); few rows cost no less than B's trip from L3, a nanosecond a vector.
        slow = 1 if gemm.words else {"i64": 6, "i32": 3}.get(gemm.compute.register, 1)
        per_step = max(1, tile.rows * tile.vectors * slow // 6)
        if gemm.has_tiles:  # 1200 Gop/s of bf16, 2400 of 8-bit integers
            per_step = 3
        panels = at.n // tile.columns * self.p.bands
        rows = Expr.min(at.m, at_least_one(self.m))
        tiles = ceil_div(rows, tile.rows)
        depth = at.k * at.k_count
        return panels * tiles * (depth * per_step + 20) + panels * depth + 100


class Scratch:
    """Places in a worker's scratch memory, one after the other, at multiples of 64."""

    def __init__(self) -> None:
        self.total = Expr.const(0)

    def take(self, size: Expr) -> Expr:
        """The offset of a new place of `size` bytes."""
        offset = self.total
        self.total = offset + ceil_div(size, 64) * 64
        return offset


def _operand(
    array: str, element: ElementType, rows: Steps, k: Steps, batch: tuple[Axis, ...], first: Expr
) -> Operand:
    return Operand(
        array,
        element,
        len(rows),
        len(k),
        is_unit(*rows[-1]),
        is_unit(*k[-1]),
        tuple(getattr(axis, array) != 0 for axis in batch),
        first != 0,
        pairs=len(k) == 1 and k[0][1] == PAIR and rows[-1] == (Expr.const(PAIR), ONE),
    )


def is_unit(size: Expr, stride: Expr) -> bool:
    """True if neighbours of an axis are neighbours in memory."""
    return bool(stride == ONE or size.is_one)


def _is_known(condition: Condition) -> bool:
    return bool(condition.lhs.is_const and condition.rhs.is_const)


def _never(conditions: Sequence[Condition]) -> bool:
    """Whether numbers show that not all hold."""
    return any(_is_known(x) and not x.holds({}) for x in conditions)


def _if(
    conditions: Sequence[Condition], then: tuple[Step, ...], otherwise: tuple[Step, ...]
) -> tuple[Step, ...]:
    """`then` where all `conditions` hold; those of numbers are decided now."""
    if _never(conditions):
        return otherwise
    left = tuple(x for x in conditions if not _is_known(x))
    if not left:
        return then
    return (If(All(left) if len(left) > 1 else left[0], then, otherwise),)

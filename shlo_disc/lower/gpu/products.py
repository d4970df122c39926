"""Products by blocks of threads: tiles of both operands in shared memory, sums in registers.

    C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n]

A block computes a tile of C, `TILE` rows by `TILE` columns, of every band. In each step of `DEPTH`
along K it copies tiles of A and B to shared memory, in the type of the sums.
Thread (y, x) keeps `EACH` rows by `EACH` columns of sums. Each sum is a chain of multiply-adds in
the order of K, so it depends on neither the grid nor the tile.

What is in front of B (dequantisation) and behind the sums (bias, activation, bands) is written as
on a CPU (`lower/products/`), `EACH` columns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.kernels.odometer import split
from shlo_disc.lower.kernels.sized import Sized
from shlo_disc.lower.plan import Buffer, KernelPlan, Launch, Output, Step, Workspace
from shlo_disc.lower.products.epilogue import ResultPlace
from shlo_disc.lower.products.prologue import OperandPlace
from shlo_disc.lower.products.request import MakePlanner, Request
from shlo_disc.lower.schedule.contraction import analyze_dense
from shlo_disc.lower.values.elemental import Arguments
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, vector_type
from shlo_disc.passes.match_dense import DenseRecord
from shlo_disc.passes.records import Planned

TILE, DEPTH, EACH = 64, 16, 4
"""Rows and columns of a tile, its steps along K, rows and columns of a thread."""

_ACROSS = TILE // EACH
"""Threads side by side; as many below each other."""

_ROW = TILE + 4
"""Elements from one step of K to the next in shared memory: neighbours lie in other banks."""


class ProductBuilder(Sized, GroupBuilder):
    """A kernel of whole blocks, with named sizes."""

    def __init__(self, machine: Machine, sizes: Mapping[str, Expr], threads: int = THREADS) -> None:
        super().__init__(machine, threads, threads)
        self.name_sizes(sizes)


class TiledProduct:
    """Plans one problem."""

    panel_bytes: Expr | None = None
    """The size of the workspace, known after :meth:`steps`; None: it is not asked for."""

    def __init__(self, request: Request) -> None:
        self.request, self.p, self.label = request, request.problem, request.label
        self.shapes = request.shapes
        self.machine: Machine = request.machine
        self.fill, self.panels, self.result = request.fill, request.panels, request.result
        self.a_buffer, self.b_buffer, self.out = request.args
        self.walks = request.walks

    def steps(self) -> tuple[Step, ...]:
        """The launches."""
        return (_SimtWriter(self).launch(),)

    def sizes(self) -> dict[str, Expr]:
        """The sizes of the kernel, by name."""
        p = self.p
        named = {"m": p.rows, "n": p.columns, "depth": p.depth}
        named |= {"a_first": p.a_first, "b_first": p.b_first, "bn": p.columns * p.bands}
        named |= {"cm": p.m[-1].c, "cn": p.n[-1].c}
        for i, axis in enumerate(p.batch):
            named |= {f"batch{i}": axis.size, f"batch{i}a": axis.a}
            named |= {f"batch{i}b": axis.b, f"batch{i}c": axis.c}
        for name, walk in self.walks.items():
            for i, (size, stride) in enumerate(walk):
                named |= {f"{name}{i}size": size, f"{name}{i}": stride}
        return named

    def aligned(self, lanes: int) -> bool:
        """True if every multiple of `lanes` columns of a row of C begins at such a multiple."""
        steps = [self.p.m[-1].c, *(axis.c for axis in self.p.batch)]
        return all(self.divisible(step, lanes) for step in steps)

    def divisible(self, size: Expr, by: int) -> bool:
        """True if `size` is proved to be divisible."""
        if size.is_const:
            return bool(size.value % by == 0)
        return bool(self.shapes.constraints.divisible(size, by))

    def is_unit(self, name: str) -> bool:
        """True if neighbours along the innermost step of a walk are neighbours in memory."""
        return self.walks[name][-1][1] == 1


class ProductWriter:
    """What kernels of products share: tasks, places in arrays, results.

    A task is a tile of `rows` by `columns` of C, computed by a block of `threads`. Work behind the
    sums is given vectors of `lanes` columns. Neighbouring tasks go through `group` tiles below each
    other first, so that they share tiles of both operands in a cache.
    """

    units: ClassVar[str]
    """What multiplies, as part of the kernel's name."""

    def __init__(
        self,
        plan: TiledProduct,
        *,
        rows: int,
        columns: int,
        threads: int,
        lanes: int,
        group: int = 1,
    ) -> None:
        self.plan, self.p = plan, plan.p
        self.rows, self.columns, self.lanes, self.group = rows, columns, lanes, group
        b = self.b = ProductBuilder(plan.machine, plan.sizes(), threads)
        self.arguments = Arguments()
        p = self.p
        self.a = self.memory(plan.a_buffer, p.a)
        self.fill = plan.fill(self.arguments, lanes) if plan.fill is not None else None
        self.b_array = None if self.fill is not None else self.memory(plan.b_buffer, p.b)
        finish, bands = plan.request.finish, plan.request.finish_bands
        self.finish = finish(self.arguments, lanes) if finish is not None else None
        self.finish_bands = bands(self.arguments, lanes) if bands is not None else None
        self.m, self.n, self.depth = (b.size(name) for name in ("m", "n", "depth"))

    def memory(self, buffer: Buffer, element: ElementType) -> MemRef:
        """An array of the launch."""
        return self.b.memref(self.arguments.slot(buffer), element.storage)

    @property
    def storing_threads(self) -> int:
        """The threads, from the first on, that store results."""
        return self.b.threads

    def barrier(self) -> None:
        """A barrier of the threads that store results."""
        self.b.barrier_of_block()

    def launch(self) -> Launch:
        """The finished kernel."""
        p, b = self.p, self.b
        with b.loop(b.lo, b.hi, 1, hint="tile") as loop:
            self.task(loop.index)
        tiles = ceil_div(p.rows, self.rows) * ceil_div(p.columns, self.columns)
        name = f"{self.plan.label}_{self.rows}x{self.columns}_{self.units}"
        return self.arguments.launch(b.finish(), name, p.batches * tiles)

    def task(self, number: IndexValue) -> None:
        """Write what computes the tile number `number` of all matrices."""
        b = self.b
        across = b.max(self.n.ceil_div(self.columns), 1)
        down = b.max(self.m.ceil_div(self.rows), 1)
        tiles = across * down
        rest, (row, column) = number // tiles, self._tile_of(number % tiles, down, across)
        count = len(self.p.batch)
        sizes = (b.size(f"batch{i}") for i in range(count - 1, 0, -1))
        self.tile(split(b, rest, sizes)[:count], row * self.rows, column * self.columns)

    def _tile_of(
        self, number: IndexValue, down: IndexValue, across: IndexValue
    ) -> tuple[IndexValue, IndexValue]:
        """Row and column of a tile among `down` by `across`, counted in tiles."""
        if self.group == 1:
            return number // across, number % across
        whole = across * self.group
        first = number // whole * self.group
        height = self.b.min(down - first, self.group)
        return first + number % whole % height, number % whole // height

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """Write what computes the tile that begins at `row` and `column` of batch `place`."""
        raise NotImplementedError

    def walk(self, name: str, index: IndexValue) -> IndexValue:
        """The offset of `index` along a walk."""
        b, total, rest = self.b, self.b.index(0), index
        count = len(self.plan.walks[name])
        for step in range(count - 1, -1, -1):
            digit = rest
            if step:
                size = b.max(b.size(f"{name}{step}size"), 1)
                digit, rest = rest % size, rest // size
            is_unit = step == count - 1 and self.plan.is_unit(name)
            total = total + (digit if is_unit else digit * b.size(f"{name}{step}"))
        return total

    def origin(self, place: Sequence[IndexValue], array: str) -> IndexValue:
        """Where the matrix `place` of A or B begins."""
        b, p = self.b, self.p
        first = p.a_first if array == "a" else p.b_first
        total = b.index(0) if first == 0 else b.size(f"{array}_first")
        for i, at in enumerate(place):
            if getattr(p.batch[i], array) != 0:
                total = total + at * b.size(f"batch{i}{array}")
        return total

    # ---------------------------------------------------------------- results

    def store(
        self,
        place: list[IndexValue],
        row: IndexValue,
        column: IndexValue,
        sums: Sequence[Register],
        mask: Mask,
    ) -> None:
        """Compute and store `lanes` columns of a row that exists; `sums` has those of each band."""
        if self.finish_bands is not None:
            self.finish_bands.write(self.b, sums, ResultPlace(place, row, column), mask)
            return
        b, p, element = self.b, self.p, self.plan.result
        if self.finish is not None:
            value = self.finish(b, sums[0], ResultPlace(place, row, column), mask)
        else:
            value = convert(b, convert(b, sums[0], p.compute, p.c), p.c, element)
        if element.kind == "b":
            value = b.cast("arith.extui", value, "i8")
        value = b.broadcast(value, self.lanes)
        base = row * b.size("cm")
        for i, index in enumerate(place):
            base = base + index * b.size(f"batch{i}c")
        memory = self.memory(self.plan.out, element)
        if p.n[-1].c == 1:
            at, is_whole = base + column, column + self.lanes <= self.n
            if not self.plan.aligned(self.lanes):
                for name in ("cm", *(f"batch{i}c" for i in range(len(place)))):
                    is_whole = is_whole & (b.size(name) % self.lanes).equals(0)
            b.either(
                is_whole,
                lambda: memory.vector_store(value, at, aligned=True),
                lambda: memory.masked_store(value, at, mask),
            )
            return
        for lane in range(self.lanes):
            with b.if_(column + lane < self.n):
                memory.store(b.extract(value, lane), base + (column + lane) * b.size("cn"))


class _SimtWriter(ProductWriter):
    """Multiply-adds of the threads themselves, for every type."""

    units = "threads"

    def __init__(self, plan: TiledProduct) -> None:
        super().__init__(plan, rows=TILE, columns=TILE, threads=THREADS, lanes=EACH)
        b, compute = self.b, self.p.compute.register
        self.a_tile = b.shared(compute, DEPTH * _ROW)
        self.b_tiles = [b.shared(compute, DEPTH * _ROW) for _ in range(self.p.bands)]
        self.y, self.x = b.thread // _ACROSS * EACH, b.thread % _ACROSS * EACH

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, p = self.b, self.p
        load_a, load_b = self._load_a(place, row), self._load_b(place, column)
        vector = vector_type(EACH, p.compute.register)
        zero = b.constant(0, vector)
        start = [zero] * (EACH * p.bands)
        with b.loop(0, self.depth, DEPTH, start, hint="k", barrier=True) as k:
            load_a(k.index)
            load_b(k.index)
            b.barrier_of_block()
            sums = self._multiplied(list(k.args))
            b.barrier_of_block()
            k.yield_(*sums)
        self._store(place, row + self.y, column + self.x, k.results)

    # ---------------------------------------------------------------- copies to shared memory

    def _elements(self, along_k: bool) -> list[tuple[IndexValue, IndexValue]]:
        """(row, step of K) of every element that this thread copies, in the tile."""
        b, found = self.b, []
        for e in range(TILE * DEPTH // THREADS):
            number = b.thread + e * THREADS
            if along_k:
                found.append((number // DEPTH, number % DEPTH))
            else:
                found.append((number % TILE, number // TILE))
        return found

    def _load_a(self, place: Sequence[IndexValue], row: IndexValue) -> Callable[[IndexValue], None]:
        walks = ("ar", "ak")
        origin = self.origin(place, "a")
        return self._copied(self.a, self.p.a, origin, walks, row, self.m, self.a_tile)

    def _load_b(
        self, place: Sequence[IndexValue], column: IndexValue
    ) -> Callable[[IndexValue], None]:
        b = self.b
        if self.fill is not None:
            return lambda k: self._fill(list(place), k, column)
        assert self.b_array is not None
        origin = self.origin(place, "b")
        copies = [
            self._copied(
                self.b_array, self.p.b, origin, ("br", "bk"), column, self.n, tile,
                skipped=self.n * band if band else b.index(0),
            )
            for band, tile in enumerate(self.b_tiles)
        ]  # fmt: skip

        def load(k: IndexValue) -> None:
            for copy in copies:
                copy(k)

        return load

    def _copied(
        self,
        memory: MemRef,
        element: ElementType,
        origin: IndexValue,
        walks: tuple[str, str],
        first: IndexValue,
        size: IndexValue,
        tile: MemRef,
        skipped: IndexValue | None = None,
    ) -> Callable[[IndexValue], None]:
        """What copies rows `first`, ... of an operand of `size` rows, from a step of K on.

        Elements outside are 0. `skipped`: rows in front of row 0.
        """
        b, compute = self.b, self.p.compute
        places = self._elements(along_k=self.plan.is_unit(walks[1]))
        starts = []
        for row, _ in places:
            at = first + row
            if skipped is not None and skipped.known != 0:
                at = at + skipped
            starts.append((origin + self.walk(walks[0], at), first + row < size))
        zero = b.constant(0, compute.register)

        def copy(k: IndexValue) -> None:
            for (row, step), (start, exists) in zip(places, starts, strict=True):
                at = k + step
                with b.if_(exists & (at < self.depth)) as branch:
                    loaded = memory.load(start + self.walk(walks[1], at))
                    value = loaded.differs(0) if element.kind == "b" else loaded
                    branch.yield_(convert(b, value, element, compute))
                    with branch.otherwise():
                        branch.yield_(zero)
                tile.store(branch.results[0], step * _ROW + row)

        return copy

    def _fill(self, place: list[IndexValue], k: IndexValue, column: IndexValue) -> None:
        """Copy a tile of a B that is computed."""
        b, fill = self.b, self.fill
        assert fill is not None
        zero = b.constant(0, vector_type(EACH, self.p.compute.register))
        for e in range(TILE * DEPTH // EACH // THREADS):
            number = b.thread + e * THREADS
            step, at = number // _ACROSS, number % _ACROSS * EACH
            here, there = k + step, column + at
            with b.if_((here < self.depth) & (there < self.n)) as branch:
                mask = b.mask(self.n - there, EACH)
                branch.yield_(fill(b, OperandPlace(place, here, there), mask))
                with branch.otherwise():
                    branch.yield_(zero)
            self.b_tiles[0].vector_store(branch.results[0], step * _ROW + at, aligned=True)

    # ---------------------------------------------------------------- sums

    def _multiplied(self, sums: list[Register]) -> list[Register]:
        b, p = self.b, self.p
        with b.loop(0, DEPTH, 1, sums, hint="step") as step:
            start = step.index * _ROW
            left = self.a_tile.vector_load(start + self.y, EACH, False, aligned=True)
            new: list[Register] = []
            for band, tile in enumerate(self.b_tiles):
                right = tile.vector_load(start + self.x, EACH, False, aligned=True)
                for i in range(EACH):
                    one = b.broadcast(b.extract(left, i), EACH)
                    total = step.args[band * EACH + i]
                    if p.compute.is_float and not p.is_short:
                        new.append(b.op("math.fma", one, right, total))
                    else:
                        new.append(total + one * right)
            step.yield_(*new)
        return step.results

    # ---------------------------------------------------------------- results

    def _store(
        self, place: list[IndexValue], row: IndexValue, column: IndexValue, sums: list[Register]
    ) -> None:
        b, p = self.b, self.p
        with b.if_(column < self.n):
            mask = b.mask(self.n - column, EACH)
            for i in range(EACH):
                at = row + i
                with b.if_(at < self.m):
                    own = [sums[band * EACH + i] for band in range(p.bands)]
                    self.store(place, at, column, own, mask)


def emit_dense(
    fusion: Planned[DenseRecord], machine: Machine, make_planner: MakePlanner = TiledProduct
) -> KernelPlan:
    """The plan of a `dense` fusion: `make_planner` plans each product.

    Raises UnsupportedError for an element type that is not compiled.
    """
    block, record, shapes = fusion.block, fusion.record, fusion.shapes
    launches: list[Step] = []
    workspaces: list[Expr] = []
    for number, dense in enumerate(analyze_dense(record, list(block.arguments), shapes)):
        request = Request.of(dense, block, shapes, machine, Output(number))
        plan = make_planner(replace(request, panels=Workspace(len(workspaces))))
        launches += plan.steps()
        if plan.panel_bytes is not None:
            workspaces.append(plan.panel_bytes)
    return KernelPlan(tuple(launches), tuple(workspaces))

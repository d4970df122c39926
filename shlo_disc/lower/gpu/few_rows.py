"""Products of few rows by multiply-adds, for every type: each element of B is read once.

The threads of a block share a tile of `ROWS` rows and few columns. They share the steps along K,
too, so that many loads are on their way. Every thread adds up its own steps in order. Then the
threads of a warp are added as a tree, and the warps one after the other: sizes decide a rounding.

    B with contiguous columns    a thread has a vector of columns; threads below it other steps
    B with contiguous K          a warp has `_COLUMNS` columns; its threads have vectors along K
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.gpu.builder import THREADS
from shlo_disc.lower.gpu.matrix_products import VariantProduct, Write
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.plan import Condition, Step
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register, vector_type

ROWS, MOST_ROWS = 8, 16
"""Rows of a tile, and of a product that these kernels compute: others read B again."""

_MOST_VECTOR = 4
"""Elements that a thread loads at once, at most: it keeps as many sums a row."""

_ACROSS = 8
"""Threads side by side where columns are contiguous: with whole vectors they read a line."""

_AHEAD = 4
"""Steps along K whose loads a thread has on their way."""

_COLUMNS = 4
"""Columns of a warp where K is contiguous."""

_WARPS_DEEP = 2
"""Warps that share the same columns there."""


class FewRowsProduct(VariantProduct):
    """Plans one problem by multiply-adds, whose kernels depend on the number of rows."""

    def steps(self) -> tuple[Step, ...]:
        """The launches, by sizes and strides."""
        return self._if_few_rows(super().steps)

    def _if_few_rows(self, otherwise: Write) -> tuple[Step, ...]:
        """These kernels where rows are few and the layout is theirs."""
        few = self._asked_of(((MOST_ROWS - self.p.rows, 0),))
        asked = self._all(self._asked_by_few_rows(), few)
        return self._where(asked, self._few_rows, otherwise)

    def _few_rows(self) -> tuple[Step, ...]:
        writer = _AlongK if self.contiguous("b") == "bk" else _AlongRows
        return (writer(self).launch(),)

    def _asked_by_few_rows(self) -> list[Condition] | None:
        """What must be asked for vectors to be whole; None: layout or types are others'."""
        p = self.p
        if self.fill is not None or p.bands > 1 or p.is_short or "b" in (p.a.kind, p.b.kind):
            return None
        if self.contiguous("b") == "bk":
            sizes = self.whole_chunks() if self.contiguous("a") == "ak" else None
        else:
            sizes = self._strides_of_rows()
        return None if sizes is None else self._multiples(sizes)

    def _strides_of_rows(self) -> list[Expr] | None:
        """What must be multiples of a vector of columns; None: columns are not contiguous."""
        p = self.p
        if self.contiguous("b") != "br" or len(self.walks["bk"]) > 1:
            return None
        (width, _), (_, step) = self.walks["br"][0], self.walks["bk"][0]
        return [p.b_first, width, step, *(axis.b for axis in p.batch)]


class _Writer(ProductWriter):
    """What both kernels share: the sums of the warps, added and stored."""

    plan: FewRowsProduct

    def __init__(self, plan: FewRowsProduct, vector: int, columns: int, parts: int) -> None:
        lanes = max(1, min(_MOST_VECTOR, ROWS * columns // THREADS))
        super().__init__(plan, rows=ROWS, columns=columns, threads=THREADS, lanes=lanes)
        b, warp = self.b, plan.machine.warp
        self.vector, self.parts = vector, parts
        self.lane, self.warp = b.thread % warp, b.thread // warp
        self.room = b.shared(self.p.compute.register, parts * ROWS * columns)

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b = self.b
        b.barrier_of_block()  # the sums of the tile before have been read
        self.keep(self.sums(place, row, column))
        b.barrier_of_block()
        vectors, part = self.columns // self.lanes, ROWS * self.columns
        with b.loop(b.thread, ROWS * vectors, b.threads, hint="vector", barrier=True) as vector:
            down, right = vector.index // vectors, vector.index % vectors * self.lanes
            r, c = row + down, column + right
            with b.if_((r < self.m) & (c < self.n)):
                start = down * self.columns + right
                total = self.room.vector_load(start, self.lanes, False, aligned=True)
                for k in range(1, self.parts):
                    at = start + k * part
                    total = total + self.room.vector_load(at, self.lanes, False, aligned=True)
                self.store(place, r, c, [total], b.mask(self.n - c, self.lanes))

    def sums(
        self, place: list[IndexValue], row: IndexValue, column: IndexValue
    ) -> list[list[Register]]:
        """For each row what this thread adds up: scalars or vectors of the type of the sums."""
        raise NotImplementedError

    def keep(self, sums: list[list[Register]]) -> None:
        """Add the sums of the threads of a warp, and store them to shared memory."""
        raise NotImplementedError

    def across_lanes(self, sums: list[list[Register]], distance: int) -> list[list[Register]]:
        """`sums` of lanes that differ in the bits from `distance` on, added as a tree."""
        b = self.b
        while distance < self.plan.machine.warp:
            sums = [[x + b.from_lane(x, distance) for x in row] for row in sums]
            distance *= 2
        return sums

    def rows_of_a(self, place: list[IndexValue], row: IndexValue) -> list[IndexValue]:
        """Where each row of A begins; behind the last row, the last one again."""
        b, origin = self.b, self.origin(place, "a")
        return [origin + self.walk("ar", b.min(row + i, self.m - 1)) for i in range(ROWS)]

    def loaded(
        self, memory: MemRef, element: ElementType, at: IndexValue, count: int = 0
    ) -> Register:
        """An element, or a vector of `count`, in the type of the sums."""
        found = memory.vector_load(at, count, aligned=True) if count > 1 else memory.load(at)
        return convert(self.b, found, element, self.p.compute)

    def multiplied(self, left: Register, right: Register, total: Register) -> Register:
        """`total` and the product of two scalars, or two vectors."""
        if self.p.compute.is_float:
            return self.b.op("math.fma", left, right, total)
        return total + left * right


class _AlongRows(_Writer):
    """Columns of B are contiguous."""

    units: ClassVar[str] = "few"

    def __init__(self, plan: FewRowsProduct) -> None:
        vector = min(_MOST_VECTOR, plan.chunk)
        parts = THREADS // plan.machine.warp
        super().__init__(plan, vector, _ACROSS * vector, parts)
        self.own = self.b.thread % _ACROSS * vector
        self.first = self.b.thread // _ACROSS

    def sums(
        self, place: list[IndexValue], row: IndexValue, column: IndexValue
    ) -> list[list[Register]]:
        """See `_Writer`."""
        b, p, deep = self.b, self.p, THREADS // _ACROSS
        assert self.b_array is not None
        memory = self.b_array
        rows = self.rows_of_a(place, row)
        start = self.origin(place, "b") + self.walk(
            "br", b.min(column + self.own, self.n - self.vector)
        )
        type_ = vector_type(self.vector, p.compute.register) if self.vector > 1 else ""
        zero = b.constant(0, type_ or p.compute.register)

        def begin(k: IndexValue) -> tuple[Register, list[Register]]:
            right = self.loaded(memory, p.b, start + self.walk("bk", k), self.vector)
            return right, [self.loaded(self.a, p.a, at + self.walk("ak", k)) for at in rows]

        def add(there: tuple[Register, list[Register]], sums: list[Register]) -> list[Register]:
            right, left = there
            spread = [b.broadcast(x, self.vector) if type_ else x for x in left]
            return [self.multiplied(x, right, total) for x, total in zip(spread, sums, strict=True)]

        whole = self.depth // (deep * _AHEAD)
        with b.loop(0, whole, 1, [zero] * ROWS, hint="k", barrier=True) as k:
            first = k.index * (deep * _AHEAD) + self.first
            there = [begin(first + e * deep) for e in range(_AHEAD)]
            sums = list(k.args)
            for one in there:
                sums = add(one, sums)
            k.yield_(*sums)
        rest = whole * (deep * _AHEAD) + self.first
        with b.loop(rest, self.depth, deep, k.results, hint="k", barrier=True) as k:
            k.yield_(*add(begin(k.index), list(k.args)))
        return [[x] for x in k.results]

    def keep(self, sums: list[list[Register]]) -> None:
        """See `_Writer`."""
        b = self.b
        sums = self.across_lanes(sums, _ACROSS)
        with b.if_(self.lane < _ACROSS):
            for i, (x,) in enumerate(sums):
                at = (self.warp * ROWS + i) * self.columns + self.own
                if self.vector > 1:
                    self.room.vector_store(x, at, aligned=True)
                else:
                    self.room.store(x, at)


class _AlongK(_Writer):
    """K is contiguous in both operands."""

    units: ClassVar[str] = "few_dots"

    def __init__(self, plan: FewRowsProduct) -> None:
        vector = min(_MOST_VECTOR, plan.chunk)
        across = THREADS // plan.machine.warp // _WARPS_DEEP
        super().__init__(plan, vector, across * _COLUMNS, _WARPS_DEEP)
        self.part, self.own = self.warp // across, self.warp % across * _COLUMNS

    def sums(
        self, place: list[IndexValue], row: IndexValue, column: IndexValue
    ) -> list[list[Register]]:
        """See `_Writer`."""
        b, p, width = self.b, self.p, self.plan.machine.warp
        assert self.b_array is not None
        memory = self.b_array
        rows, origin = self.rows_of_a(place, row), self.origin(place, "b")
        columns = [
            origin + self.walk("br", b.min(column + self.own + j, self.n - 1))
            for j in range(_COLUMNS)
        ]
        zero = b.constant(0, p.compute.register)
        first = (self.part * width + self.lane) * self.vector
        step = width * self.vector * _WARPS_DEEP
        with b.loop(
            first, self.depth, step, [zero] * (ROWS * _COLUMNS), hint="k", barrier=True
        ) as k:
            left = [self.loaded(self.a, p.a, at + k.index, self.vector) for at in rows]
            right = [self.loaded(memory, p.b, at + k.index, self.vector) for at in columns]
            parts = [self._parts(x) for x in left], [self._parts(x) for x in right]
            k.yield_(
                *(
                    self._dot(parts[0][i], parts[1][j], k.args[i * _COLUMNS + j])
                    for i in range(ROWS)
                    for j in range(_COLUMNS)
                )
            )
        return [k.results[i * _COLUMNS : (i + 1) * _COLUMNS] for i in range(ROWS)]

    def _parts(self, value: Register) -> list[Register]:
        if self.vector == 1:
            return [value]
        return [self.b.extract(value, i) for i in range(self.vector)]

    def _dot(
        self, left: Sequence[Register], right: Sequence[Register], total: Register
    ) -> Register:
        for x, y in zip(left, right, strict=True):
            total = self.multiplied(x, y, total)
        return total

    def keep(self, sums: list[list[Register]]) -> None:
        """See `_Writer`."""
        b = self.b
        sums = self.across_lanes(sums, 1)
        with b.if_(self.lane.equals(0)):
            for i, row in enumerate(sums):
                for j, x in enumerate(row):
                    self.room.store(x, (self.part * ROWS + i) * self.columns + self.own + j)

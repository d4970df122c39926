"""Stable sorts of rows of records: tiles by a block of threads each, then merges of sorted runs.

    sort_tiles   a block sorts a tile in shared memory: a thread sorts a few neighbours, then pairs
                 of runs are merged until there is one. Short rows share a block
    sort_merge   a launch for each doubling: a block finds where its part of the merged run begins
                 and ends in both runs, and merges that part in shared memory

Rows whose order is that of one key are sorted by its digits instead. One launch sorts rows of up to
a tile (`radix_tiles.py`). Longer ones take `radix_sort.py` where this moves less memory.

Where a part begins is found by bisection along a diagonal, so all threads merge as many elements.
Every merge stays inside of its runs, whatever the comparator says. Arrays that the comparator does
not read are moved from where their elements were. Sizes decide how many launches run.

Source: O. Green, R. McColl, D. Bader, "GPU Merge Path: a GPU merging algorithm" (2012).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.radix import passes
from shlo_disc.lower.gpu.radix_sort import MOST_ELEMENTS as MOST_OF_RADIX
from shlo_disc.lower.gpu.radix_sort import RadixSort
from shlo_disc.lower.gpu.radix_tiles import MOST_ELEMENTS as MOST_OF_TILE
from shlo_disc.lower.gpu.radix_tiles import radix_tiles
from shlo_disc.lower.gpu.sorted_rows import (
    SOURCE,
    TARGET,
    Rows,
    array,
    builder,
    place_in_results,
    put_all,
    renumbered,
    with_buffers,
    write_last,
)
from shlo_disc.lower.kernels.merge_sort import Keys
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.plan import Buffer, Condition, If, Launch, Step, Workspace
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, Value

MOST_ELEMENTS = 1 << 37
"""Elements of a row, at most: more than the memory of any GPU holds."""

_NEIGHBOURS = (7, 5, 3, 1)
"""Elements of a thread, the most that shared memory has room for. Odd numbers, so that the threads
of a warp meet in no bank."""

_GROUPS = 4
"""Groups of threads for short rows differ by this factor."""

_GROUP, _SEGMENTS, _INNER, _WIDTH = (
    Expr.symbol(f"sort_{name}") for name in ("group", "segments", "inner", "width")
)
"""Sizes in which launches of one kernel differ: threads of a row, its tiles, the distance of
neighbours in the target, the length of runs."""

_RightFirst = Callable[[IndexValue, IndexValue], Mask]
_Put = Callable[[IndexValue, IndexValue, list[Register]], None]


class BlockSort:
    """The steps that sort `rows`, and the workspaces they need from number `first` on."""

    def __init__(self, single: SingleOp, machine: Machine, rows: Rows, first: int) -> None:
        self.single, self.machine, self.rows = single, machine, rows
        self.keys = [i for i, is_key in enumerate(rows.keys) if is_key]
        self.moved, self.arrays = rows.moved, rows.arrays
        key_bytes = sum(rows.storages[i][1] for i in self.keys) + (2 if self.moved else 0)
        self.threads, self.neighbours = _tile(machine, key_bytes)
        self.tile = self.threads * self.neighbours
        self.longest = self.tile
        """Records of a row that one launch sorts."""
        if rows.radix is not None:
            self.longest = MOST_OF_TILE
        self.first = first
        is_long = Expr.min(rows.size // (self.longest + 1), 1)
        count = rows.rows * rows.size * is_long
        self.workspaces = [
            count * rows.storages[i][1] for _ in range(2) for i in self.arrays
        ]  # none for rows of a tile
        self.radix: RadixSort | None = None
        if rows.radix is not None:
            halves = [self._places(half) for half in range(2)]
            counters = first + len(self.workspaces)
            self.radix = RadixSort(single, machine, rows, halves, counters)
            is_long = Expr.min(rows.size // (self._longest_merged() + 1), 1)
            self.workspaces += [is_long * size for size in self.radix.workspaces]

    def steps(self) -> tuple[Step, ...]:
        """All launches, chosen by the size of a row."""
        inner = self.rows.inner
        results: dict[Buffer, Buffer] = {
            Workspace(TARGET + i): to
            for i in self.arrays
            if (to := self.rows.results[i]) is not None
        }
        stored = [i for i in self.arrays if self.rows.results[i] is not None]
        short = self._tiles(stored, is_last=True)
        group = self.threads
        groups = []
        while group:
            groups.append(group)
            group = 1 if 1 < group < _GROUPS else group // _GROUPS
        steps = self._of_tiles()
        if self.radix is not None:
            tiles = radix_tiles(self.single, self.machine, self.rows)
            steps = self._up_to(self.longest, (tiles,), steps)
            groups = groups[1:]
        for group in groups:
            blocks = ceil_div(self.rows.rows, self.threads // group)
            sizes: dict[Expr, Expr | int] = {_GROUP: group, _SEGMENTS: 1, _INNER: inner}
            launch = with_buffers(short, results, sizes, blocks)
            steps = self._up_to(self.neighbours * group, (launch,), steps)
        return steps

    def _up_to(
        self, most: int, then: tuple[Step, ...], otherwise: tuple[Step, ...]
    ) -> tuple[Step, ...]:
        """`then` for rows of up to `most` records, else `otherwise`; both where either may be."""
        least, longest = self.single.shapes.constraints.bounds(self.rows.size)
        if longest is not None and longest <= most:
            return then
        if least is not None and least > most:
            return otherwise
        return (If(Condition(self.rows.size, "<=", Expr.const(most)), then, otherwise),)

    def _of_tiles(self) -> tuple[Step, ...]:
        """The launches for rows of several tiles."""
        merged = self._merged()
        if self.radix is None:
            return merged
        by_digits = self._up_to(MOST_OF_RADIX, self.radix.steps(), merged)
        return self._up_to(self._longest_merged(), merged, by_digits)

    def _longest_merged(self) -> int:
        """Records of a row up to which merges move less memory than passes by digits.

        A pass reads the key twice, and a merge once. There is a merge for each doubling of a tile.
        """
        assert self.rows.radix is not None
        if self.rows.radix.most is not None:  # there are few passes
            return self.longest
        merges = 3 * passes(self.rows.radix) // 2 - 1
        return max(self.longest, self.tile << max(merges - 1, 0))

    def _merged(self) -> tuple[Step, ...]:
        """The launches for rows of several tiles."""
        segments = ceil_div(self.rows.size, self.tile)
        blocks = self.rows.rows * segments
        sizes: dict[Expr, Expr | int] = {_GROUP: self.threads, _SEGMENTS: segments, _INNER: 1}
        places = [self._places(half) for half in range(2)]
        tiles = self._tiles(self.arrays, is_last=False)
        steps: list[Step] = [with_buffers(tiles, renumbered(TARGET, places[0]), sizes, blocks)]
        merge = self._merge_launch()
        longest = self.single.shapes.constraints.bounds(self.rows.size)[1]
        width, turn = self.tile, 0
        while width < min(MOST_ELEMENTS, longest or MOST_ELEMENTS):
            between = {
                **renumbered(SOURCE, places[turn % 2]),
                **renumbered(TARGET, places[(turn + 1) % 2]),
            }
            launch = with_buffers(merge, between, {_WIDTH: width}, blocks)
            is_needed = Condition(self.rows.size, ">", Expr.const(width))
            steps.append(If(is_needed, (launch,), ()))
            width, turn = 2 * width, turn + 1
        return tuple(steps)

    def _places(self, half: int) -> dict[int, Buffer]:
        """The workspace of each array, the first or second one."""
        first = self.first + half * len(self.arrays)
        return {i: Workspace(first + k) for k, i in enumerate(self.arrays)}

    # ---------------------------------------------------------------- tiles

    def _tiles(self, stored: Sequence[int], *, is_last: bool) -> Launch:
        """Sort tiles; `stored` arrays go to the targets, or are results."""
        e = self._kernel()
        b, rows = builder(e), self.rows
        n, group = b.param(rows.size, opaque=True), b.param(_GROUP)
        segments = b.param(_SEGMENTS)
        inner = b.index(1) if rows.inner == Expr.const(1) else b.param(_INNER)
        longest = b.min(n, self.tile)
        each = (longest + group - 1) // group
        each = each + 1 - each % 2  # odd
        room = 2 * self.tile
        keys = [b.shared(rows.storages[i][0], room) for i in self.keys]
        places = [b.shared("i16", room)] if any(i in self.moved for i in stored) else []
        member = b.thread % group
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            number = task.index * (b.index(self.threads) // group) + b.thread // group
            row, first = number // segments, number % segments * self.tile
            zero = b.index(0)
            count = b.select(row < b.param(rows.rows), b.min(n - first, self.tile), zero)
            base = b.thread // group * (group * each)
            ats = [member + group * k for k in range(self.neighbours)]
            with b.if_(count > 0):
                near = [b.min(at, count - 1) for at in ats]
                read = [[rows.read(e, i, row, first + at) for i in self.keys] for at in near]
                for at, record in zip(ats, read, strict=True):
                    with b.if_(at < count):
                        put_all(keys, record, base + at)
            b.barrier_of_block()
            own = member * each
            limit = b.min(own + each, count)
            with b.if_(own < limit):
                self._sort_few(e, keys, places, base, own, limit)
            b.barrier_of_block()

            def is_apart(carried: list[IndexValue]) -> Mask:
                return carried[0] < longest

            def merge(carried: list[IndexValue]) -> list[IndexValue]:
                width, source = carried
                target = self.tile - source
                double = width + width
                start = own.round_down(double)
                middle, end = b.min(start + width, count), b.min(start + double, count)
                begin = source + base

                # Threads without records merge, too: if they went around this, LLVM would give
                # them a loop of their own, and the barriers of a warp would be counted twice.
                def put(k: IndexValue, at: IndexValue, record: list[Register]) -> None:
                    with b.if_(own < limit):
                        to = target + base + own + k
                        moved = [place.load(at, readonly=False) for place in places]
                        put_all([*keys, *places], [*record, *moved], to)

                runs = begin + start, begin + middle, begin + end
                steps = b.max(limit - own, 1)
                self._merge(e, keys, runs, own - start, steps, put, least=begin)
                b.join()
                b.barrier_of_block()
                return [double, target]

            _, source = b.while_([each, zero], is_apart, merge)
            with b.if_(count > 0):
                near = [source + base + b.min(at, count - 1) for at in ats]
                found = [self._record(e, stored, keys, places, row, first, at) for at in near]
                for at, record in zip(ats, found, strict=True):
                    with b.if_(at < count):
                        values = dict(zip(stored, record, strict=True))
                        if is_last and rows.write is not None:
                            rows.write(e, row, first + at, values)
                            continue
                        place = place_in_results(b, row, first + at, n, inner)
                        for i, value in values.items():
                            array(e, rows, Workspace(TARGET + i), i).store(value, place)
        return self.single.launch(e, "sort_tiles", Expr.const(1), Expr.const(1))

    def _record(
        self,
        e: Elemental,
        stored: Sequence[int],
        keys: Sequence[MemRef],
        places: Sequence[MemRef],
        row: IndexValue,
        first: IndexValue,
        at: IndexValue,
    ) -> list[Register]:
        """The `stored` arrays of the record at `at` in shared memory."""
        found = []
        for i in stored:
            if i in self.keys:
                found.append(keys[self.keys.index(i)].load(at, readonly=False))
                continue
            place = e.b.to_index("arith.index_castui", places[0].load(at, readonly=False))
            found.append(self.rows.read(e, i, row, first + place))
        return found

    def _sort_few(
        self,
        e: Elemental,
        keys: Sequence[MemRef],
        places: Sequence[MemRef],
        base: IndexValue,
        own: IndexValue,
        limit: IndexValue,
    ) -> None:
        """The records from `own` to `limit`, of one thread, by exchanges of neighbours."""
        b = e.b
        count = len(keys)
        records = []
        for k in range(self.neighbours):
            at = b.min(own + k, limit - 1)
            record = [key.load(base + at, readonly=False) for key in keys]
            records.append(record + [b.cast("arith.index_cast", at, "i16") for _ in places])
        for turn in range(self.neighbours):
            for k in range(turn % 2, self.neighbours - 1, 2):
                x, y = records[k], records[k + 1]
                is_record = own + (k + 1) < limit
                swap = is_record & self._less(e, y[:count], x[:count])
                pairs = list(zip(x, y, strict=True))
                records[k] = [b.select(swap, q, p) for p, q in pairs]
                records[k + 1] = [b.select(swap, p, q) for p, q in pairs]
        for k, record in enumerate(records):
            with b.if_(own + k < limit):
                put_all([*keys, *places], record, base + own + k)

    # ---------------------------------------------------------------- merges of runs

    def _merge_launch(self) -> Launch:
        """Merge pairs of runs; each block writes a tile of what they become."""
        e = self._kernel()
        b, rows = builder(e), self.rows
        n, width = b.param(rows.size, opaque=True), b.param(_WIDTH)
        tiles = b.param(ceil_div(rows.size, self.tile), opaque=True)
        keys = [b.shared(rows.storages[i][0], self.tile) for i in self.keys]
        origins = b.shared("i16", self.tile)
        ends = b.shared("i64", 2)
        sources = {i: array(e, rows, Workspace(SOURCE + i), i) for i in self.arrays}
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            row = task.index // tiles
            first = task.index % tiles * self.tile
            start = first.round_down(width + width)
            left = b.min(width, n - start)
            right = b.min(width + width, n - start) - left
            begin = row * n + start
            diagonal = first - start
            count = b.min(left + right - diagonal, self.tile)

            def right_first(x: IndexValue, y: IndexValue) -> Mask:
                old = [sources[i].load(begin + x, readonly=False) for i in self.keys]
                new = [sources[i].load(begin + left + y, readonly=False) for i in self.keys]
                return self._less(e, new, old)

            # Two warps, one for each end, if there are as many.
            warp = self.machine.warp
            own, lane = b.thread // warp, b.thread % warp
            with b.loop(own, 2, self.threads // warp, hint="end") as end:
                at = diagonal + end.index * count
                split = self._split_by_warp(b, lane, at, left, right, right_first)
                with b.if_(lane.equals(0)):
                    ends.store(b.cast("arith.index_cast", split, "i64"), end.index)
            b.barrier_of_block()
            x, last = (
                b.to_index("arith.index_cast", ends.load(k, readonly=False)) for k in range(2)
            )
            # A comparator that is no order may give ends that do not belong to each other.
            some = b.min(b.max(last - x, 0), count)
            y = diagonal - x
            from_left, from_right = begin + x, begin + left + y - some

            def place(at: IndexValue) -> IndexValue:
                return at + b.select(at < some, from_left, from_right)

            ats = [b.thread + self.threads * k for k in range(self.neighbours)]
            near = [place(b.min(at, count - 1)) for at in ats]
            read = [[sources[i].load(at, readonly=False) for i in self.keys] for at in near]
            for at, record in zip(ats, read, strict=True):
                with b.if_(at < count):
                    put_all(keys, record, at)
            b.barrier_of_block()
            own = b.thread * self.neighbours
            with b.if_(own < count):

                def put(k: IndexValue, at: IndexValue, _: list[Register]) -> None:
                    origins.store(b.cast("arith.index_cast", at, "i16"), own + k)

                steps = b.min(count - own, self.neighbours)
                self._merge(e, keys, (b.index(0), some, count), own, steps, put)
            b.barrier_of_block()
            self._write(e, keys, origins, sources, place, count, ats, row, first)
        return self.single.launch(e, "sort_merge", Expr.const(1), Expr.const(1))

    def _split_by_warp(
        self,
        b: GroupBuilder,
        lane: IndexValue,
        diagonal: IndexValue,
        left: IndexValue,
        right: IndexValue,
        right_first: _RightFirst,
    ) -> IndexValue:
        """As :func:`_split`, by all threads of a warp: each looks at a place of its own."""
        warp = self.machine.warp

        def is_open(carried: list[IndexValue]) -> Mask:
            return carried[0] < carried[1]

        def narrow(carried: list[IndexValue]) -> list[IndexValue]:
            low, high = carried
            step = (high - low) // warp + 1
            at = low + step * lane
            middle = b.min(at, high - 1)
            is_left = (at < high) & ~right_first(middle, diagonal - 1 - middle)
            count = b.select(is_left, b.constant(1, "i32"), b.constant(0, "i32"))
            distance = 1
            while distance < warp:
                count = count + b.from_lane(count, distance)
                distance *= 2
            # So many places in a row are of the left run.
            known = b.to_index("arith.index_cast", count)
            last = low + step * (known - 1) + 1
            return [
                b.select(known.equals(0), low, last),
                b.select(known.equals(0), low, b.min(low + step * known, high)),
            ]

        start = [b.max(diagonal - right, 0), b.min(diagonal, left)]
        return b.while_(start, is_open, narrow)[0]

    def _write(
        self,
        e: Elemental,
        keys: Sequence[MemRef],
        origins: MemRef,
        sources: Mapping[int, MemRef],
        place: Callable[[IndexValue], IndexValue],
        count: IndexValue,
        ats: Sequence[IndexValue],
        row: IndexValue,
        first: IndexValue,
    ) -> None:
        """A merged tile to the results, or to where the next merge reads it."""
        b, rows = e.b, self.rows
        n, width = b.param(rows.size, opaque=True), b.param(_WIDTH)
        is_last = width + width >= n
        found = []
        for at in ats:
            origin = b.to_index(
                "arith.index_castui", origins.load(b.min(at, count - 1), readonly=False)
            )
            found.append([
                keys[self.keys.index(i)].load(origin, readonly=False) if i in self.keys
                else sources[i].load(place(origin), readonly=False)
                for i in self.arrays
            ])  # fmt: skip
        for at, record in zip(ats, found, strict=True):
            values = dict(zip(self.arrays, record, strict=True))
            with b.if_(at < count), b.if_(is_last) as branch:
                write_last(e, rows, row, first + at, values)
                with branch.otherwise():
                    for i, value in values.items():
                        target = array(e, rows, Workspace(TARGET + i), i)
                        target.store(value, row * n + first + at)

    def _merge(
        self,
        e: Elemental,
        keys: Sequence[MemRef],
        runs: tuple[IndexValue, IndexValue, IndexValue],
        diagonal: IndexValue,
        steps: IndexValue,
        put: _Put,
        least: IndexValue | None = None,
    ) -> None:
        """A part of two neighbouring runs, merged by one thread.

        `runs`: where they begin, meet and end; the part begins at `diagonal` and has `steps`
        records, at least one. `put` is given each: its number, its place, and its keys. Nothing in
        front of `least` is read, even if there are no records.
        """
        b = e.b
        begin, middle, end = runs

        def load(at: IndexValue) -> list[Register]:
            near = b.min(at, end - 1)
            near = near if least is None else b.max(near, least)
            return [key.load(near, readonly=False) for key in keys]

        def right_first(x: IndexValue, y: IndexValue) -> Mask:
            return self._less(e, load(middle + y), load(begin + x))

        split = _split(b, diagonal, middle - begin, end - middle, right_first)
        x, y = begin + split, middle + diagonal - split
        start: list[Value] = [x, y, *load(x), *load(y)]
        with b.loop(0, steps, 1, start, hint="k") as loop:
            x, y = IndexValue.of(loop.args[0]), IndexValue.of(loop.args[1])
            values = Register.each_of(loop.args[2:])
            old, new = values[: len(keys)], values[len(keys) :]
            is_right = (y < end) & ((x >= middle) | self._less(e, new, old))
            at = b.select(is_right, y, x)
            put(loop.index, at, [b.select(is_right, q, p) for p, q in zip(old, new, strict=True)])
            more = load(at + 1)
            loop.yield_(
                b.select(is_right, x, x + 1),
                b.select(is_right, y + 1, y),
                *(b.select(is_right, p, v) for p, v in zip(old, more, strict=True)),
                *(b.select(is_right, v, q) for q, v in zip(new, more, strict=True)),
            )

    # ---------------------------------------------------------------- kernels

    def _kernel(self) -> Elemental:
        return self.single.kernel(0, GroupBuilder(self.machine, self.threads, self.threads))

    def _less(self, e: Elemental, x: Sequence[Register], y: Sequence[Register]) -> Mask:
        """`Rows.less` of records with keys alone."""
        full: list[Keys] = []
        for record in (x, y):
            found: Keys = [None] * len(self.rows.keys)
            for i, value in zip(self.keys, record, strict=True):
                found[i] = value
            full.append(found)
        return self.rows.less(e, *full)


def _tile(machine: Machine, key_bytes: int) -> tuple[int, int]:
    """Threads of a block, and elements of each, for records whose keys have so many bytes."""
    threads = THREADS
    while threads > machine.warp:
        for neighbours in _NEIGHBOURS:
            if 2 * threads * neighbours * key_bytes <= machine.shared_bytes:
                return threads, neighbours
        threads //= 2
    return threads, 1


def _split(
    b: KernelBuilder,
    diagonal: IndexValue,
    left: IndexValue,
    right: IndexValue,
    right_first: _RightFirst,
) -> IndexValue:
    """How many of the first `diagonal` records of two merged runs are of the left one.

    `left` and `right`: their lengths. `right_first(x, y)`: record y of the right run comes before
    record x of the left one.
    """

    def is_open(carried: list[IndexValue]) -> Mask:
        return carried[0] < carried[1]

    def halve(carried: list[IndexValue]) -> list[IndexValue]:
        low, high = carried
        middle = (low + high) // 2
        is_right = right_first(middle, diagonal - 1 - middle)
        return [b.select(is_right, low, middle + 1), b.select(is_right, middle, high)]

    return b.while_([b.max(diagonal - right, 0), b.min(diagonal, left)], is_open, halve)[0]

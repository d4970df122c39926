"""Kind `row`: element-wise work around reductions of the trailing dimensions (softmax, layer-norm).

A task is one row. A row is swept once per level of chained reductions, and once more for results
that need the last of them: `x -> max -> exp(x - max) -> sum -> quotient` is three sweeps. Row
values live in scalar registers; a full-size value used by a later sweep is kept, in the result's
own row or in scratch memory, when computing it again costs more than storing and loading it.

Order of a reduction: lane i of W accumulators takes columns i, i + W, ...; the lanes are then
combined as a balanced tree and the init value comes last. W depends on the fusion and the machine's
vector width only: results do not depend on the number of threads. A body that is not one known
commutative operation (arg-max) gives lane i the i-th run of neighbouring columns instead, so that
only associativity is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.errors import InternalError
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.elemental import Arguments, Elemental
from shlo_disc.lower.cpu.elements import Element, element_of
from shlo_disc.lower.cpu.index import Index, Ix, Space, refine
from shlo_disc.lower.cpu.loop import ceil_div, choose_lanes, fusion_name, odometer
from shlo_disc.lower.cpu.moves import MOVES
from shlo_disc.lower.cpu.reduction import Reducer, reduced_dims, simple_body
from shlo_disc.lower.cpu.scalar import SCALAR_OPS
from shlo_disc.lower.cpu.target import Target
from shlo_disc.lower.cpu.text import Text, lanes_of
from shlo_disc.lower.kernel import (
    Condition,
    If,
    Input,
    Kernel,
    KernelPlan,
    Launch,
    Output,
    Workspace,
)
from shlo_disc.mlir import ir, producer

__all__ = ["emit"]


_FREE = frozenset(
    {
        "disc.dim",
        "stablehlo.broadcast_in_dim",
        "stablehlo.constant",
        "stablehlo.dynamic_broadcast_in_dim",
        "stablehlo.dynamic_reshape",
        "stablehlo.reshape",
    }
)
"""Ops that cost nothing at a given index."""


@dataclass
class Kept:
    """A full-size value stored by one sweep and loaded by later ones."""

    value: ir.Value
    first: int
    """The sweep that stores it."""
    last: int
    """The last sweep that loads it."""
    output: int | None = None
    """The result whose row holds it; None: scratch."""
    slot: int = -1
    """Which scratch row."""


@dataclass
class Sweep:
    """One pass over the columns."""

    simple: list[ir.Operation] = field(default_factory=list)
    """Reductions with vector accumulators."""
    general: list[ir.Operation] = field(default_factory=list)
    """Reductions by runs of columns."""
    outputs: list[int] = field(default_factory=list)
    keeps: list[Kept] = field(default_factory=list)


@dataclass
class Plan:
    """What a row kernel does, before any text."""

    block: ir.Block
    shapes: ShapeAnalysis
    rows: tuple[Expr, ...]
    cols: Expr
    roots: list[ir.Value]
    sweeps: list[Sweep]
    row_outputs: list[int]
    kept: list[Kept]
    slots: list[Element]
    """The widest element of each scratch row."""
    given: frozenset[ir.Value] = frozenset()
    """Values that are in memory although an op of the fusion computes them."""


def emit(fusion: ir.Operation, shapes: ShapeAnalysis, target: Target) -> KernelPlan:
    """The plan of a `row` fusion.

    Raises UnsupportedError for an op or element type no rule covers.
    """
    block = fusion.regions[0].blocks[0]
    roots = list(block.operations[len(block.operations) - 1].operation.operands)
    plan = analyze_rows(block, shapes, roots)
    lanes = choose_row_lanes(plan, target)
    writer = write_rows(plan, shapes, lambda factors: RowWriter(plan, factors, lanes))
    name = fusion_name(fusion, "row")
    time = cost.of_rows(plan.block, shapes, plan.cols, target)
    whole = writer.launch(name, Expr.product(plan.rows), time)
    return with_split(plan, writer.space.factors[:-1], lanes, name, whole, target)


def write_rows(
    plan: Plan, shapes: ShapeAnalysis, make: Callable[[Sequence[Expr]], RowWriter]
) -> RowWriter:
    """A writer of the plan that has written its rows; `make` makes one for row factors: those that
    accesses ask for.
    """

    def write(factors: Sequence[Expr]) -> RowWriter:
        writer = make(factors)
        writer.write()
        return writer

    factors = [s for s in plan.rows if not s.is_one]
    writer = write(factors)
    for _ in range(3):
        rows_only = [(i, j, s) for i, j, s in writer.space.wanted if j <= len(factors)]
        finer = refine(factors, rows_only, shapes.constraints.equal)
        if finer == factors:
            break
        factors, writer = finer, write(finer)
    merged: list[Expr] = []
    for k, factor in enumerate(factors):
        if k and k not in writer.space.used:
            merged[-1] = merged[-1] * factor
        else:
            merged.append(factor)
    return writer if merged == factors else write(merged)


def choose_row_lanes(plan: Plan, target: Target) -> int:
    """Several vectors at once hide latency; fewer when the work itself needs registers."""
    base = choose_lanes(plan.block, target)
    expensive = any(cost.is_expensive(view.operation) for view in plan.block.operations)
    lanes = base * (2 if expensive else 4)
    if plan.cols.is_const:
        while lanes > 4 and lanes // 2 >= plan.cols.value:
            lanes //= 2
    return lanes


# ------------------------------------------------------------------ analysis


def is_row_reduce(
    op: ir.Operation, shapes: ShapeAnalysis, rows: Sequence[Expr], cols: Expr
) -> bool:
    """Whether `op` reduces trailing dimensions with as many rows and columns as the fusion."""
    if op.name != "stablehlo.reduce":
        return False
    sizes, gone = shapes.shape(op.operands[0]), reduced_dims(op)
    kept = len(sizes) - len(gone)
    if gone != list(range(kept, len(sizes))):
        return False
    equal = shapes.constraints.product_equal
    return bool(equal(sizes[:kept], rows) and equal(sizes[kept:], [cols]))


def analyze_rows(
    block: ir.Block,
    shapes: ShapeAnalysis,
    roots: list[ir.Value],
    given: frozenset[ir.Value] = frozenset(),
) -> Plan:
    """The sweeps that compute `roots`, values of a fusion's block, from its arguments and `given`.

    Raises InternalError where they are no row fusion.
    """
    ops = [view.operation for view in block.operations]
    first = next((op for op in ops if op.name == "stablehlo.reduce"), None)
    if first is None:
        raise InternalError("a row fusion without a reduction")
    sizes, gone = shapes.shape(first.operands[0]), reduced_dims(first)
    kept_dims = len(sizes) - len(gone)
    if gone != list(range(kept_dims, len(sizes))):
        raise InternalError(
            f"a row fusion whose reduction is not of the trailing dimensions: {first}"
        )
    rows, cols = tuple(sizes[:kept_dims]), Expr.product(sizes[kept_dims:])
    level: dict[ir.Value, int] = {}
    reduces: list[tuple[ir.Operation, int]] = []
    for op in ops[:-1]:
        here = max((level.get(v, 0) for v in op.operands), default=0)
        if is_row_reduce(op, shapes, rows, cols):
            reduces.append((op, here))
            here += 1
        for result in op.results:
            level[result] = here
    equal = shapes.constraints.product_equal
    full = [bool(equal(shapes.shape(r), [*rows, cols])) for r in roots]
    for root, is_full in zip(roots, full, strict=True):
        if not is_full and not equal(shapes.shape(root), rows):
            raise InternalError(
                f"a result of a row fusion is neither full nor a row value: {shapes.shape(root)}"
            )
    sweeps = [Sweep() for _ in range(1 + max(level.get(r, 0) for r in roots))]
    sweeps += [Sweep() for _ in range(1 + max(p for _, p in reduces) - len(sweeps))]
    for k, (root, is_full) in enumerate(zip(roots, full, strict=True)):
        if is_full:
            sweeps[level.get(root, 0)].outputs.append(k)
    row_outputs = [k for k, is_full in enumerate(full) if not is_full]
    plan = Plan(block, shapes, rows, cols, roots, sweeps, row_outputs, [], [], given)
    for op, sweep in reduces:
        simple = simple_body(op) is not None
        (sweeps[sweep].simple if simple else sweeps[sweep].general).append(op)
    _choose_kept(plan)
    return plan


def _targets(plan: Plan, sweep: Sweep) -> list[ir.Value]:
    """The full-size values a sweep needs."""
    values = [plan.roots[k] for k in sweep.outputs]
    for op in (*sweep.simple, *sweep.general):
        values += list(op.operands)[: len(op.operands) // 2]
    return values


def _choose_kept(plan: Plan) -> None:
    """Decide which full-size values are stored by the sweep that computes them first."""
    equal = plan.shapes.constraints.product_equal
    space = [*plan.rows, plan.cols]
    first: dict[ir.Value, int] = {}
    uses: dict[ir.Value, set[int]] = {}
    kept: dict[ir.Value, Kept] = {}

    def is_full(value: ir.Value) -> bool:
        return bool(equal(plan.shapes.shape(value), space))

    def price(value: ir.Value, seen: set[ir.Value]) -> float:
        """Cycles a vector to compute `value` again, loads included, from what is kept."""
        if value in seen or not is_full(value):
            return 0
        seen.add(value)
        op = producer(value)
        if op is None or value in kept or value in plan.given:
            return 1
        if op.name in _FREE:
            return sum(price(v, seen) for v in op.operands)
        return cost.op_cycles(op) + sum(price(v, seen) for v in op.operands)

    def visit(value: ir.Value, sweep: int, seen: set[ir.Value]) -> None:
        if value in seen or value in plan.given:
            return
        seen.add(value)
        op = producer(value)
        if op is None or op.name not in SCALAR_OPS or not is_full(value):
            if op is not None and op.name in MOVES and is_full(value):
                for operand in op.operands:
                    visit(operand, sweep, seen)
            return
        if value in first and first[value] < sweep:
            uses.setdefault(value, set()).add(sweep)
            if value in kept:
                kept[value].last = sweep
                return
            later = len(plan.sweeps) - 1 - first[value]
            if (price(value, set()) - 1) * min(later, len(uses[value]) + 1) > 1.5:
                kept[value] = Kept(value, first[value], sweep)
                return
        first.setdefault(value, sweep)
        for operand in op.operands:
            visit(operand, sweep, seen)

    for number, sweep in enumerate(plan.sweeps):
        seen: set[ir.Value] = set()
        for value in _targets(plan, sweep):
            visit(value, number, seen)
    _place(plan, list(kept.values()))


def _place(plan: Plan, kept: list[Kept]) -> None:
    """Give every kept value a row to live in: the result's own, or a scratch row."""
    busy: list[tuple[int | None, int, int, int]] = []  # (output, slot, first, last)
    store_sweep = {k: n for n, sweep in enumerate(plan.sweeps) for k in sweep.outputs}
    for item in sorted(kept, key=lambda k: k.first):
        element = element_of(item.value)
        own = next((k for k in store_sweep if plan.roots[k] == item.value), None)
        if own is not None:
            item.output = own
        else:
            for k, sweep in store_sweep.items():
                free = not any(o == k and last > item.first for o, _, _, last in busy)
                fits = element_of(plan.roots[k]) == element and element.kind != "b"
                others = any(i.output == k and i.value == plan.roots[k] for i in kept)
                if free and fits and not others and sweep >= item.last:
                    item.output = k
                    break
        if item.output is None:
            taken = {s for o, s, _, last in busy if o is None and last > item.first}
            item.slot = next(s for s in range(len(kept)) if s not in taken)
            if item.slot == len(plan.slots):
                plan.slots.append(element)
            elif element.bytes > plan.slots[item.slot].bytes:
                plan.slots[item.slot] = element
        busy.append((item.output, item.slot, item.first, item.last))
        plan.sweeps[item.first].keeps.append(item)
    plan.kept = kept


# ------------------------------------------------------------------ text


class RowWriter:
    """Writes the kernel of a plan over row `factors`, or its part in the kernel of `b`."""

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[Expr],
        lanes: int,
        b: Text | None = None,
        arguments: Arguments | None = None,
    ) -> None:
        self.plan, self.lanes = plan, lanes
        self.b, self.arguments = b or Text(), arguments or Arguments()
        self.outputs: Sequence[Output] = [Output(k) for k in range(len(plan.roots))]
        """Where each root goes."""
        self.first_scratch = Expr.const(0)
        """Where the scratch rows begin, in bytes."""
        self.rank = len(factors)
        self.space = Space(self.b, plan.shapes.constraints, [*factors, plan.cols], lanes)
        self.e = Elemental(self.b, self.space, plan.shapes, plan.block, self.arguments)
        self.cols = self.b.param(plan.cols, opaque=plan.cols.is_const and plan.cols.value > lanes)
        self.first, self.last = self.b.constant(0, "index"), self.cols

    def write(self) -> None:
        """The whole function up to `finish`."""
        b, space = self.b, self.space
        sizes = [b.param(f) for f in space.factors[:-1]]

        def row(number: str, digits: list[str]) -> None:
            self.digits = [Ix(d) for d in digits[: self.rank]]
            space.flats = {(0, self.rank): number} if self.rank else {}
            space.tiles = [*self.digits, space.zero()]
            for place, sweep in enumerate(self.plan.sweeps):
                self.sweep(sweep, asks_ahead=place == 1)
            self.store_row_values()

        odometer(b, sizes, row)

    def store_row_values(self) -> None:
        """The results that have one element a row."""
        for k in self.plan.row_outputs:
            root = self.plan.roots[k]
            shape = self.e.shape(root)
            index = self.space.root(shape, 0, self.rank) if shape else ()
            value = self.e.value_at(root, index, None)
            at = self.space.force(self.space.flat_lazy(0, self.rank))
            self.e.store(self.outputs[k], element_of(root), value, at, None)

    def launch(self, name: str, extent: Expr, time: Expr) -> Launch:
        """The finished kernel over `extent` tasks of `time` nanoseconds."""
        text, params = self.b.finish()
        buffers = tuple(self.arguments.buffers)
        return Launch(Kernel(name, text), buffers, params, extent, time, self.scratch_bytes())

    def scratch_bytes(self) -> Expr:
        """Bytes of all scratch rows."""
        total = Expr.const(0)
        for element in self.plan.slots:
            total = total + self._row_bytes(element)
        return total

    def _row_bytes(self, element: Element) -> Expr:
        return ceil_div(self.plan.cols * element.bytes, 64) * 64

    # ---------------------------------------------------------------- sweeps

    def sweep(self, sweep: Sweep, asks_ahead: bool = False) -> None:
        """One pass; general reductions read before this sweep's results overwrite a kept row.

        `asks_ahead`: ask for the next row of the inputs. The first sweep has read this row, and
        until it reads the next one memory would have nothing to do.
        """
        for op in sweep.general:
            self._general(Reducer(self.e, op))
        if sweep.simple or sweep.outputs or sweep.keeps:
            reducers = [Reducer(self.e, op) for op in sweep.simple]
            start = [a for r in reducers for a in r.neutral(self.lanes)]

            def body(ix: Ix, mask: str | None, accs: list[str]) -> list[str]:
                self._at(ix, mask)
                if asks_ahead and mask is None:
                    self._ask_for_next_row()
                full = self._values(sweep, mask)
                new: list[str] = []
                for reducer, acc in zip(reducers, accs, strict=True):
                    (value,) = [self._full(v, mask) for v in reducer.inputs]
                    (stepped,) = reducer.step([acc], [value])
                    new.append(stepped if mask is None else self.b.select(mask, stepped, acc))
                self._store(sweep, full, mask)
                return new

            found = self._columns(start, body)
            for reducer, acc in zip(reducers, found, strict=True):
                self._finish(reducer, [acc], in_order=False)
        for item in sweep.keeps:
            self._override(item)

    def _ask_for_next_row(self) -> None:
        b = self.b
        here = self.space.force(self.space.flat_lazy(0, self.rank + 1))
        following = b.add(here.base, self.cols)
        space = (*self.space.factors[:-1], self.plan.cols)
        for index, argument in enumerate(self.plan.block.arguments):
            if Expr.product(self.e.shape(argument)) == Expr.product(space):
                memory = b.memref(self.arguments.slot(Input(index)), element_of(argument).storage)
                b.prefetch(memory, following)

    def _at(self, ix: Ix, mask: str | None) -> None:
        self.space.tiles = [*self.digits, ix]
        self.e.tail = mask

    def _full(self, value: ir.Value, mask: str | None) -> str:
        """A full-size value at the current columns."""
        shape = self.e.shape(value)
        return self.e.value_at(value, self.space.root(shape, 0, self.rank + 1), mask)

    def _values(self, sweep: Sweep, mask: str | None) -> list[tuple[str, Kept | int]]:
        found: list[tuple[str, Kept | int]] = []
        for item in sweep.keeps:
            if item.output is None or self.plan.roots[item.output] != item.value:
                found.append((self._full(item.value, mask), item))
        found += [(self._full(self.plan.roots[k], mask), k) for k in sweep.outputs]
        return found

    def _store(
        self, sweep: Sweep, full: Sequence[tuple[str, Kept | int]], mask: str | None
    ) -> None:
        for register, where in full:
            value = where.value if isinstance(where, Kept) else self.plan.roots[where]
            element = element_of(value)
            if isinstance(where, Kept) and where.output is None:
                stored = register
                if element.kind == "b":
                    stored = self.b.cast("arith.extui", register, "i8")
                column = self.space.tiles[-1]
                stored = self.b.broadcast(stored, self.lanes)
                self.e.store_to(self._scratch(where), stored, column, mask)
            else:
                out = where.output if isinstance(where, Kept) else where
                assert out is not None
                if element.kind == "b":
                    register = self.b.cast("arith.extui", register, "i8")
                memory, at = self.result(out)
                self.e.store_to(memory, register, at, mask)

    def result(self, k: int) -> tuple[str, Ix]:
        """Where the current columns of result `k` are: memref and index."""
        storage = element_of(self.plan.roots[k]).storage
        memory = self.b.memref(self.arguments.slot(self.outputs[k]), storage)
        return memory, self.space.flat(0, self.rank + 1)

    def _scratch(self, item: Kept) -> str:
        offset = self.first_scratch
        for element in self.plan.slots[: item.slot]:
            offset = offset + self._row_bytes(element)
        return self.b.scratch(element_of(item.value).storage, self.b.param(offset))

    def _override(self, item: Kept) -> None:
        """From now on, the value at the current row and column is loaded."""

        def load(index: Index, mask: str | None) -> str | None:
            if not self._is_current(index, self.rank + 1):
                return None
            element = element_of(item.value)
            if item.output is None:
                memory, at = self._scratch(item), self.space.tiles[-1]
            else:
                memory, at = self.result(item.output)
            register = self.e.load_from(memory, at, mask, readonly=False)
            if element.kind != "b":
                return register
            return self.b.cmpi("ne", register, self.b.constant(0, self.b.type_of(register)))

        self.e.overrides[item.value] = load

    def _is_current(self, index: Index, count: int) -> bool:
        """Whether `index` is the flat index over the first `count` factors as they stand."""
        groups = self.space.joined(index)
        if count == 0:
            return all(s.is_one for g in groups for s in g.sizes)
        return len(groups) == 1 and groups[0].at.tile == (0, count)

    def _columns(
        self, start: Sequence[str], body: Callable[[Ix, str | None, list[str]], list[str]]
    ) -> list[str]:
        """Run `body(columns, mask, accumulators)` over columns `first` to `last` of the row."""
        b, lanes, size = self.b, self.lanes, self.plan.cols
        first, last = self.first, self.last
        if size.is_const and size.value < lanes:
            return body(Ix(first, 1, multiple=0), b.mask(size.value, lanes), list(start))
        divisible = self.space.divisible(size, lanes)
        middle = last if divisible else b.sub(last, b.rem(b.sub(last, first), lanes))
        with b.loop(first, middle, lanes, list(start), hint="j") as loop:
            new = body(Ix(loop.index, 1, multiple=lanes), None, list(loop.args))
            loop.yield_(*new)
        if divisible:
            return loop.results
        with b.if_(b.cmpi("slt", middle, last)) as branch:
            mask = b.mask(b.sub(last, middle), lanes)
            branch.yield_(*body(Ix(middle, 1, multiple=lanes), mask, list(loop.results)))
            if start:
                with branch.otherwise():
                    branch.yield_(*loop.results)
        return branch.results

    # ---------------------------------------------------------------- reductions

    def _general(self, reducer: Reducer) -> None:
        """Lane l reduces the l-th run of neighbouring columns, in order."""
        b, space, lanes = self.b, self.space, self.lanes
        run = b.div(b.add(self.cols, lanes - 1), lanes)
        start = b.mul(b.iota(lanes), run)
        with b.loop(0, run, 1, reducer.init(lanes), hint="k") as loop:
            column = b.add(start, loop.index)
            mask = b.cmpi("ult", column, b.broadcast(self.cols, lanes))
            self._at(space.uniform(column), None)
            values = [self._full(v, mask) for v in reducer.inputs]
            new = reducer.step(loop.args, values)
            loop.yield_(*(b.select(mask, n, o) for n, o in zip(new, loop.args, strict=True)))
        self._finish(reducer, loop.results, in_order=True)

    def _finish(self, reducer: Reducer, accs: Sequence[str], in_order: bool) -> None:
        """Combine the lanes and let the row value be found."""
        self.publish(reducer, self._across_lanes(reducer, accs, in_order))

    def _across_lanes(self, reducer: Reducer, accs: Sequence[str], in_order: bool) -> list[str]:
        """Scalar accumulators: the lanes as a balanced tree."""
        b = self.b
        width = lanes_of(b.type_of(accs[0]))
        parts = list(accs)
        while width > 1:
            half = width // 2
            if in_order:  # neighbours first
                low, high = list(range(0, width, 2)), list(range(1, width, 2))
            else:
                low, high = list(range(half)), list(range(half, width))
            left = [b.shuffle(p, p, low) for p in parts]
            right = [b.shuffle(p, p, high) for p in parts]
            parts = reducer.merge(left, right)
            width = half
        return [b.extract(p, 0) for p in parts]

    def publish(self, reducer: Reducer, scalars: list[str]) -> None:
        """Add the init value where it is still missing; the row values can be found now."""
        if reducer.simple is not None:
            scalars = reducer.merge(reducer.init(0), scalars)
        for result, register in zip(reducer.op.results, reducer.finish(scalars), strict=True):
            self._row_value(result, register)

    def _row_value(self, result: ir.Value, register: str) -> None:
        def found(index: Index, mask: str | None) -> str | None:
            return register if self._is_current(index, self.rank) else None

        self.e.overrides[result] = found


# ------------------------------------------------------------------ few long rows

SPLIT_COLUMNS = 16384
"""Columns of a task when rows are split: 64 KiB of f32, a few microseconds. It fixes the order of
the sum, so another value gives other roundings."""

SPLIT_ROWS = 64
"""Fewer rows than this are split when they are long; more rows keep any machine busy."""


def with_split(
    plan: Plan, factors: Sequence[Expr], lanes: int, name: str, whole: Launch, target: Target
) -> KernelPlan:
    """`whole`, and a two-stage variant where there can be few long rows.

    Stage one reduces pieces of a row into a workspace, stage two the pieces in order. Only single
    sweeps of known operations are split; the choice depends on the sizes alone.
    """
    high = plan.shapes.constraints.bounds(plan.cols)[1]
    rows = Expr.product(plan.rows)
    long, many = 4 * SPLIT_COLUMNS, plan.shapes.constraints.bounds(rows)[0]
    possible = (high is None or high >= long) and (many is None or many < SPLIT_ROWS)
    (only, *more) = plan.sweeps
    if more or only.general or not only.simple or not possible:
        return KernelPlan((whole,))
    pieces = ceil_div(plan.cols, SPLIT_COLUMNS)
    partial = _PartialWriter(plan, factors, lanes, pieces)
    partial.write()
    piece = Expr.const(SPLIT_COLUMNS)
    time = cost.of_rows(plan.block, plan.shapes, piece, target)
    one = partial.launch(name + "_pieces", rows * pieces, time)
    combine = _CombineWriter(plan, factors, lanes, pieces)
    combine.write()
    two = combine.launch(name + "_combine", rows, pieces * 2 + 20)
    workspaces = tuple(
        rows * pieces * max(element_of(op.results[0]).bytes, 4) for op in only.simple
    )
    inner = If(Condition(plan.cols, ">=", Expr.const(long)), (one, two), (whole,))
    outer = If(Condition(rows, "<", Expr.const(SPLIT_ROWS)), (inner,), (whole,))
    return KernelPlan((outer,), workspaces)


class _PartialWriter(RowWriter):
    """Stage one: a task is a piece of a row; accumulators go to workspaces."""

    def __init__(self, plan: Plan, factors: Sequence[Expr], lanes: int, pieces: Expr) -> None:
        super().__init__(plan, factors, lanes)
        self.pieces = pieces
        self.piece_number = ""

    def write(self) -> None:
        b, space = self.b, self.space
        sizes = [*(b.param(f) for f in space.factors[:-1]), b.param(self.pieces)]

        def task(number: str, digits: list[str]) -> None:
            self.piece_number = number
            self.digits = [Ix(d) for d in digits[: self.rank]]
            space.tiles = [*self.digits, space.zero()]
            self.first = b.mul(digits[-1], SPLIT_COLUMNS)
            self.last = b.min(b.add(self.first, SPLIT_COLUMNS), self.cols)
            self.sweep(self.plan.sweeps[0])

        odometer(b, sizes, task)

    def _finish(self, reducer: Reducer, accs: Sequence[str], in_order: bool) -> None:
        (value,) = self._across_lanes(reducer, accs, in_order)
        memory, element = _workspace(self, reducer)
        if element == "i8":
            value = self.b.cast("arith.extui", value, "i8")
        self.b.store(value, memory, self.piece_number)


class _CombineWriter(RowWriter):
    """Stage two: a task is a row; its pieces are reduced in order, one after the other."""

    def __init__(self, plan: Plan, factors: Sequence[Expr], lanes: int, pieces: Expr) -> None:
        super().__init__(plan, factors, lanes)
        self.pieces = pieces

    def sweep(self, sweep: Sweep, asks_ahead: bool = False) -> None:
        b = self.b
        count = b.param(self.pieces)
        row = self.space.force(self.space.flat_lazy(0, self.rank)).base
        for op in sweep.simple:
            reducer = Reducer(self.e, op)
            memory, element = _workspace(self, reducer)
            with b.loop(0, count, 1, reducer.neutral(0), hint="piece") as loop:
                at = b.add(b.mul(row, count), loop.index)
                value = b.load(memory, at)
                if element == "i8":
                    value = b.cmpi("ne", value, b.constant(0, "i8"))
                loop.yield_(*reducer.merge(loop.args, [value]))
            self.publish(reducer, loop.results)


def _workspace(writer: RowWriter, reducer: Reducer) -> tuple[str, str]:
    """(memref, its element) of the pieces of a reduction."""
    compute = reducer.elements[0].compute
    element = "i8" if compute == "i1" else compute
    number = writer.plan.sweeps[0].simple.index(reducer.op)
    slot = writer.arguments.slot(Workspace(number))
    return writer.b.memref(slot, element), element

"""What a row kernel does, before any text: sweeps over a row (those of the record, see
`passes/match_rows.py`), and which intermediates are materialised between them.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import field

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.ir.ops import Role, names
from shlo_disc.lower.values.data_movement import DATA_MOVEMENT
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.elementwise import SCALAR_OPS
from shlo_disc.lower.values.reduction import takes_any_order
from shlo_disc.passes.match_rows import Layout, RowRecord
from shlo_disc.passes.op_classes import RESHAPES

_FREE = names(lambda row: row.role is Role.FREE) | {"stablehlo.constant"}
"""Ops that cost nothing at a given index."""

_DEAR = 6
"""Cycles above which a value is kept in near memory rather than computed from kept operands."""


@dataclass
class Materialised:
    """A materialised intermediate: a full-size value that one sweep stores and later ones load."""

    value: ir.Value
    first: int
    """The sweep that stores it."""
    last: int
    """The last sweep that loads it."""
    output: int | None = None
    """The result whose row holds it; None: scratch."""
    slot: int = -1
    """Number of its scratch row."""


@dataclass
class Sweep:
    """One pass over the columns."""

    simple: list[ir.Operation] = field(default_factory=list)
    """Reductions that take columns in any order."""
    general: list[ir.Operation] = field(default_factory=list)
    """Reductions by runs of columns."""
    outputs: list[int] = field(default_factory=list)
    stores: list[Materialised] = field(default_factory=list)
    """Intermediates that later sweeps load."""


@dataclass
class Plan:
    """What a row kernel does, before any text."""

    record: RowRecord
    block: ir.Block
    shapes: ShapeAnalysis
    layout: Layout
    """As in the record, unless the kernel cuts its rows; likewise `parts` and `cols`."""
    parts: Expr
    cols: Expr
    sweeps: list[Sweep]
    materialised: list[Materialised] = field(default_factory=list)
    slots: list[ElementType] = field(default_factory=list)
    """The widest element of each scratch row."""

    @property
    def rows(self) -> tuple[Expr, ...]:
        """The kept dimensions in front."""
        return self.record.rows

    @property
    def apart(self) -> Expr:
        """Number of rows between two parts of one row, or of columns that lie side by side."""
        return self.record.apart

    @property
    def roots(self) -> tuple[ir.Value, ...]:
        """What is computed."""
        return self.record.roots

    @property
    def row_outputs(self) -> list[int]:
        """The roots that have one element a row."""
        return [k for k, sweep in enumerate(self.record.swept) if sweep is None]

    @property
    def given(self) -> tuple[ir.Value, ...]:
        """Values that are in memory although an op of the fusion computes them."""
        return self.record.given

    @property
    def space(self) -> tuple[Expr, ...]:
        """The sizes of a full-size value."""
        return (*self.rows, self.parts, self.apart, self.cols)

    @property
    def lines(self) -> tuple[Expr, ...]:
        """The sizes of what has one element a row."""
        return (*self.rows, self.apart)

    @property
    def length(self) -> Expr:
        """Number of elements of a row."""
        return self.parts * self.cols

    @property
    def cut(self) -> Expr:
        """What a long row is cut along: its parts, else its columns."""
        return self.parts if self.layout is Layout.PARTS else self.cols

    def elements(self, count: Expr | int, lanes: int) -> Expr:
        """Number of elements that a task sweeps if it takes `count` along `cut` with `lanes`
        lanes.
        """
        each = {Layout.PARTS: self.cols, Layout.SIDE_BY_SIDE: Expr.const(lanes)}
        return each.get(self.layout, Expr.const(1)) * count


Cycles = Callable[[ir.Operation], int]
"""Cycles of one op on one vector register of a target."""


@dataclass(frozen=True)
class Storage:
    """What sweeps may store for later ones."""

    cycles: Cycles
    is_near: bool = False
    """Scratch rows are near, and everything else is far: operands are kept, too, and results hold
    no intermediates."""


def plan_rows(
    record: RowRecord, block: ir.Block, shapes: ShapeAnalysis, storage: Storage | None
) -> Plan:
    """The sweeps of a record, about values in the `block` of a fusion.

    `storage` decides which full-size values a sweep stores for later ones. With None, every sweep
    computes what it needs from the arguments.
    """
    sweeps = [Sweep() for _ in record.sweeps]
    for sweep, reductions in zip(sweeps, record.sweeps, strict=True):
        for op in reductions:
            # Side by side, columns are reduced in order anyway.
            simple = takes_any_order(op) or record.layout is Layout.SIDE_BY_SIDE
            (sweep.simple if simple else sweep.general).append(op)
    for k, number in enumerate(record.swept):
        if number is not None:
            sweeps[number].outputs.append(k)
    plan = Plan(record, block, shapes, record.layout, record.parts, record.cols, sweeps)
    if storage is not None:
        _choose_materialised(plan, storage)
    return plan


def _targets(plan: Plan, sweep: Sweep) -> list[ir.Value]:
    """The full-size values a sweep needs."""
    values = [plan.roots[k] for k in sweep.outputs]
    for op in (*sweep.simple, *sweep.general):
        values += list(op.operands)[: len(op.operands) // 2]
    return values


def _choose_materialised(plan: Plan, storage: Storage) -> None:
    """Decide which full-size values are stored by the sweep that computes them first."""
    choice = _Choice(plan, storage)
    for number, sweep in enumerate(plan.sweeps):
        seen: set[ir.Value] = set()
        for value in _targets(plan, sweep):
            choice.visit(value, number, seen)
    _place(plan, list(choice.materialised.values()), storage)


@dataclass
class _Choice:
    """Which full-size values of a plan are stored."""

    plan: Plan
    storage: Storage
    first: dict[ir.Value, int] = field(default_factory=dict)
    """The sweep that computes a value first."""
    uses: dict[ir.Value, set[int]] = field(default_factory=dict)
    """The sweeps that need it later."""
    materialised: dict[ir.Value, Materialised] = field(default_factory=dict)

    def _is_full(self, value: ir.Value) -> bool:
        shapes = self.plan.shapes
        return bool(shapes.constraints.product_equal(shapes.shape(value), self.plan.space))

    def _price(self, value: ir.Value, seen: set[ir.Value]) -> float:
        """Cycles a vector to compute `value` again, loads of intermediates included."""
        if value in seen or not self._is_full(value):
            return 0
        seen.add(value)
        op = producer(value)
        if op is None or value in self.materialised or value in self.plan.given:
            return 1
        below = sum(self._price(v, seen) for v in op.operands)
        return below if op.name in _FREE else self.storage.cycles(op) + below

    def visit(self, value: ir.Value, sweep: int, seen: set[ir.Value]) -> None:
        """Look at a value that a sweep needs, and at what it is computed from."""
        if value in seen or value in self.plan.given:
            return
        seen.add(value)
        op = producer(value)
        is_full = self._is_full(value)
        is_operand = op is None and is_full and self.storage.is_near
        if (op is None or op.name not in SCALAR_OPS or not is_full) and not is_operand:
            if op is not None and is_full and op.name in self._followed:
                for operand in op.operands:
                    self.visit(operand, sweep, seen)
            return
        if value in self.first and self.first[value] < sweep:
            self.uses.setdefault(value, set()).add(sweep)
            if value in self.materialised:
                self.materialised[value].last = sweep
                return
            if is_operand or self._is_worth(value):
                self.materialised[value] = Materialised(value, self.first[value], sweep)
                return
        self.first.setdefault(value, sweep)
        for operand in op.operands if op is not None else ():
            self.visit(operand, sweep, seen)

    @property
    def _followed(self) -> Container[str]:
        """Ops that are no work of their own, whose operands are looked at. Of moved operands, far
        memory is read again.
        """
        return RESHAPES if self.storage.is_near else DATA_MOVEMENT

    def _is_worth(self, value: ir.Value) -> bool:
        """True if a value that a later sweep needs is stored rather than computed again."""
        price = self._price(value, set())
        if not self.storage.is_near:
            later = len(self.plan.sweeps) - 1 - self.first[value]
            return (price - 1) * min(later, len(self.uses[value]) + 1) > 1.5
        operands = sum(element_of(v).bytes for v in self._operands(value))
        return price > _DEAR or operands > element_of(value).bytes

    def _operands(self, value: ir.Value) -> set[ir.Value]:
        """The full-size operands that `value` is computed from, but for those stored already."""
        found: set[ir.Value] = set()
        seen, waiting = set[ir.Value](), [value]
        while waiting:
            top = waiting.pop()
            if top in seen or top in self.materialised or not self._is_full(top):
                continue
            seen.add(top)
            op = producer(top)
            if op is None:
                found.add(top)
            elif top not in self.plan.given:
                waiting += op.operands
        return found


def _place(plan: Plan, intermediates: list[Materialised], storage: Storage) -> None:
    """Give every materialised intermediate a row to live in: the result's own, or a scratch row."""

    def in_the_way(other: Materialised, item: Materialised) -> bool:
        """True if `other` does not leave its row to `item` in time.

        In one sweep, elements of one size replace others at the same place. Near memory is shared
        by threads that are in different sweeps: places stay those of one size.
        """
        if element_of(other.value).bytes == element_of(item.value).bytes:
            return other.last > item.first
        return other.last >= item.first or storage.is_near

    placed: list[Materialised] = []
    store_sweep = {k: n for n, sweep in enumerate(plan.sweeps) for k in sweep.outputs}
    for item in sorted(intermediates, key=lambda k: k.first):
        element = element_of(item.value)
        own = next((k for k in store_sweep if plan.roots[k] == item.value), None)
        if own is not None and not storage.is_near:
            item.output = own
        elif not storage.is_near:
            for k, sweep in store_sweep.items():
                free = not any(o.output == k and o.last > item.first for o in placed)
                fits = element_of(plan.roots[k]) == element and element.kind != "b"
                others = any(i.output == k and i.value == plan.roots[k] for i in intermediates)
                if free and fits and not others and sweep >= item.last:
                    item.output = k
                    break
        if item.output is None:
            taken = {o.slot for o in placed if o.output is None and in_the_way(o, item)}
            item.slot = next(s for s in range(len(intermediates)) if s not in taken)
            if item.slot == len(plan.slots):
                plan.slots.append(element)
            elif element.bytes > plan.slots[item.slot].bytes:
                plan.slots[item.slot] = element
        placed.append(item)
        plan.sweeps[item.first].stores.append(item)
    plan.materialised = intermediates

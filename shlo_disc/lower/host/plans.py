"""The kernel plans of a program's fusions: equal fusions on equal shapes share one.

The layers of a model often differ in the names of their sizes alone: those of weights that a
function takes are symbols of their own. Such fusions share a plan, too, with their names put in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import field
from typing import Protocol

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.branch_sizes import branch_sizes
from shlo_disc.dynamic.expr import Expr, renaming
from shlo_disc.dynamic.seen import Pairs
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.host.record import PlanFunction
from shlo_disc.lower.plan import Call, KernelPlan, with_sizes
from shlo_disc.lower.speculate import MAX_KERNELS, Decision, Likely, Speculation
from shlo_disc.lower.target import Target
from shlo_disc.passes.homes import values_given
from shlo_disc.passes.op_classes import own_kind
from shlo_disc.passes.records import planned
from shlo_disc.passes.structure import structure

Symbols = tuple[str, ...]
Found = tuple[KernelPlan, tuple[Decision, ...]]
Made = tuple[KernelPlan, tuple[Decision, ...], int]
"""And how many specialised kernels it has."""


class Kept(Protocol):
    """Plans that earlier processes made."""

    def found(self, about: object) -> Made | None:
        """The plan of a fusion; `about` has all that it depends on, target and compiler aside."""

    def keep(self, about: object, made: Made) -> Made:
        """Keep a plan that was made; returns it as the program shall have it."""

    def found_function(self, about: object) -> PlanFunction | None:
        """The function of a plan; `about` has all that it depends on, target and compiler aside."""

    def keep_function(self, about: object, made: PlanFunction) -> None:
        """Keep a function that was written."""


@dataclass
class _Family:
    """A plan, and the same over other symbols."""

    symbols: Symbols
    plan: KernelPlan
    decisions: tuple[Decision, ...]
    others: dict[Symbols, Found] = field(default_factory=dict)

    def over(self, symbols: Symbols) -> Found | None:
        """The plan over `symbols`; None where more than the symbols of the fusion is in it."""
        if symbols == self.symbols:
            return self.plan, self.decisions
        found = self.others.get(symbols)
        if found is None:
            if any(isinstance(step, Call) for step in self.plan.steps):
                return None
            own, put, is_whole = {*self.symbols}, renaming(self.symbols, symbols), True

            def size(of: Expr) -> Expr:
                nonlocal is_whole
                is_whole = is_whole and of.symbols() <= own
                return put(of)

            plan = with_sizes(self.plan, size)
            decisions = tuple(decision.rewritten(size) for decision in self.decisions)
            if not is_whole:
                return None
            found = self.others[symbols] = plan, decisions
        return found


class Plans:
    """Has plans made, each once. `likely`: values of symbols to have kernels for."""

    def __init__(
        self, shapes: ShapeAnalysis, target: Target, likely: Likely, kept: Kept | None
    ) -> None:
        self._shapes, self._kept = shapes, kept
        self._target = target
        self._speculation = Speculation(shapes, likely)
        self._has_likely = bool(likely)
        self.short: set[Expr] = set()
        """Sizes of which short values in the call that was seen make a difference."""
        self._made: dict[object, _Family] = {}

    def of(self, op: ir.Operation, kind: str) -> Found:
        """The emitter's plan, and what was decided of its variants.

        Emitters read starts and paddings from operands with known elements, which the key holds.
        Raises UnsupportedError if the target has no emitter of this kind.
        """
        known = branch_sizes(op, self._shapes)
        symbols, key = self._key(op, known)
        family = self._made.get(key)
        found = family.over(symbols) if family is not None else None
        if family is None or found is None:
            found = self._kept_or_made(op, kind, known, (symbols, key))
            if family is None:
                self._made[key] = _Family(symbols, *found)
            else:
                family.others[symbols] = found
        self.short.update(size for size in found[0].short if size.symbols())
        return found

    def _kept_or_made(self, op: ir.Operation, kind: str, known: Pairs, key: object) -> Found:
        speculation, kept = self._speculation, self._kept
        if kept is None or self._has_likely:
            return self._new(op, kind, known)
        made = kept.found(key)
        if made is not None and speculation.special + made[2] <= MAX_KERNELS:
            speculation.special += made[2]
            return made[:2]
        before, refused = speculation.special, speculation.refused
        found = self._new(op, kind, known)
        if speculation.refused > refused:  # it depends on the plans before
            return found
        return kept.keep(key, (*found, speculation.special - before))[:2]

    def _new(self, op: ir.Operation, kind: str, known: Pairs) -> Found:
        emitter = self._target.emitters.get(kind)
        if emitter is None:
            raise UnsupportedError(
                f"{source_line(op)}: target {self._target.name} has no kernel for "
                f"{_called(op, kind)}; keep it outside shlo_disc.jit"
            )
        return self._speculation.plan(
            op, known, lambda shapes: emitter(planned(op, shapes), self._target.machine)
        )

    def _key(self, op: ir.Operation, known: Pairs) -> tuple[Symbols, tuple[object, ...]]:
        """The symbols that `op` is about, and all else that its plan depends on.

        Names count where `known` or likely sizes, or a fact about other symbols, have them.
        """
        shapes = self._shapes
        inner = (result for x in op.regions[0].blocks[0].operations for result in x.results)
        values = [*op.operands, *op.results, *inner]
        sizes = [shapes.shape(value) for value in values]
        elements = [shapes.elements(value) for value in values]
        symbols = _in_order(itertools.chain(*sizes, *(told or () for told in elements)))
        put = renaming(symbols, [f"s{number}" for number in range(len(symbols))])
        has_names = bool(known) or self._has_likely
        facts = None if has_names else shapes.constraints.alone(symbols, put)
        if facts is None:
            pairs = None if shapes.seen is None else tuple(sorted(shapes.seen.items()))
            about = structure(op), values_given(op), known, pairs
            return symbols, (*about, shapes.constraints.facts(), symbols, *sizes, *elements)
        seen = None if shapes.seen is None else tuple(map(shapes.seen.get, symbols))
        form = structure(op, size=lambda text: put(shapes.parsed(text)))
        told = (None if of is None else tuple(map(put, of)) for of in elements)
        renamed = (tuple(map(put, shape)) for shape in sizes)
        return symbols, (form, values_given(op), facts, seen, *renamed, *told)


def _in_order(sizes: Iterable[Expr]) -> Symbols:
    """The symbols of `sizes`, in an order that does not depend on their names if it can."""
    own = [size.symbols() for size in dict.fromkeys(sizes)]
    plain = [symbol for symbols in own if len(symbols) == 1 for symbol in symbols]
    return tuple(dict.fromkeys([*plain, *(s for symbols in own for s in sorted(symbols))]))


def _called(fusion: ir.Operation, kind: str) -> str:
    """The operation of a fusion of one kind, as its program calls it."""
    for op in fusion.regions[0].blocks[0].operations:
        if op.name == "stablehlo.custom_call":
            return f"{op.name} @{attr.text(op, 'call_target_name')}"
        if own_kind(op) == kind:
            return str(op.name)
    return kind

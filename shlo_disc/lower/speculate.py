"""Variants of kernels: those that cannot be needed are dropped, those for likely sizes are added.

An emitter writes a kernel for sizes that are symbols; given constants in their place it may choose
other tiles, leave out tails and loops. The same emitter runs once more on shapes with values in
place of symbols. They are those that a user calls likely, short ones of the call that is compiled
for, and those that an emitter asks for. A predicate chooses between the two at run time. A
specialised kernel equal to the general one is not worth a predicate.

Variants of a plan form a tree of `If`s, so for any sizes exactly one leaf runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.asked import Shape
from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.seen import Pairs, run_of
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.plan import (
    All,
    Buffer,
    Call,
    Condition,
    If,
    KernelPlan,
    KernelText,
    Launch,
    Pack,
    Step,
    Workspace,
    every,
    rewritten,
)

Likely = Mapping[str, Sequence[int]]
"""Values of symbols, the likeliest first."""

MAX_VARIANTS = 4
"""Specialised variants of one plan."""

MAX_KERNELS = 64
"""Specialised kernels of one program: code size stays bounded."""

_MAX_CONDITIONS = 3

_LIKELY = "likely"
_ASKED = "much faster"
_SEEN = "as in the first call"


@dataclass(frozen=True)
class Decision:
    """What was decided of the variants of a plan: a sentence, perhaps about a condition."""

    before: str
    condition: Condition | All | None = None
    after: str = ""

    def rewritten(self, size: Callable[[Expr], Expr]) -> Decision:
        """The same about other sizes."""
        if self.condition is None:
            return self
        return replace(self, condition=self.condition.rewritten(size))

    def __str__(self) -> str:
        return f"{self.before}{self.condition or ''}{self.after}"


class Speculation:
    """What a program knows and guesses of its sizes, applied to the plans of its kernels."""

    def __init__(self, shapes: ShapeAnalysis, likely: Likely) -> None:
        unknown = set(likely) - set(shapes.symbols)
        if unknown:
            known = ", ".join(shapes.symbols) or "it has none"
            raise ValueError(
                f"likely names {', '.join(sorted(unknown))}, but the symbols of the program are: "
                f"{known}"
            )
        self._shapes = shapes
        self._likely = likely
        self._views: dict[Pairs, ShapeAnalysis] = {}
        self.special = self.refused = 0
        """Specialised kernels of the plans so far, and variants that were one too many."""

    def plan(
        self, op: ir.Operation, known: Pairs, emit: Callable[[ShapeAnalysis], KernelPlan]
    ) -> tuple[KernelPlan, tuple[Decision, ...]]:
        """The plan of a fusion with its variants, and a sentence for each decision.

        `known`: sizes wherever the fusion runs; there are no variants then.
        """
        reasons: list[Decision] = []
        if known:
            view = self._view(known)
            plan = emit(view)
            reasons.append(Decision("it runs where ", _are(known)))
            steps = _needed(plan.steps, view.constraints, reasons)
            return replace(plan, steps=steps, short=()), (*reasons,)
        plan = emit(self._shapes)
        plan = replace(plan, steps=_needed(plan.steps, self._shapes.constraints, reasons))
        return self._specialised(op, plan, emit, reasons), tuple(reasons)

    def _specialised(
        self,
        op: ir.Operation,
        plan: KernelPlan,
        emit: Callable[[ShapeAnalysis], KernelPlan],
        reasons: list[Decision],
    ) -> KernelPlan:
        wanted = self._wanted(op, plan, reasons)
        if not wanted:
            return plan
        if plan.copies_operand:  # the host may drop its first step
            reasons.append(Decision("no variants: it may change its operand in place"))
            return plan
        general = _kernels(plan.steps)
        chosen = plan
        added = 0
        for pairs, why in wanted:
            here = _are(pairs)

            def without(because: str, here: All = here) -> None:
                reasons.append(Decision("no variant for ", here, f": {because}"))

            if added == MAX_VARIANTS and why is _LIKELY:
                without(f"{MAX_VARIANTS} there are the most")
                continue
            if _decided(here, self._shapes.constraints) is False:
                without("the constraints exclude it")
                continue
            view = self._view(pairs)
            special = emit(view)
            special = replace(special, steps=_needed(special.steps, view.constraints, []))
            new = _kernels(special.steps) - general
            if not new:
                without("it would be the same code")
                continue
            if self.special + len(new) > MAX_KERNELS:
                self.refused += 1
                without(f"the program has {MAX_KERNELS} specialised kernels")
                continue
            self.special += len(new)
            added += 1
            reasons.append(Decision("variant for ", here, f": {why}"))
            chosen = _choice(here, special, chosen, dict(pairs))
        return chosen

    def _wanted(
        self, op: ir.Operation, plan: KernelPlan, reasons: list[Decision]
    ) -> list[tuple[Pairs, str]]:
        """Values of symbols to have variants for, each with the reason."""
        names = [name for name in self._likely if name in self._symbols(op)]
        wanted: list[tuple[Pairs, str]] = []
        if len(names) > _MAX_CONDITIONS:
            many = f"more than {_MAX_CONDITIONS} of its sizes are likely ones"
            reasons.append(Decision(f"no variants: {many}"))
        elif names:
            for values in itertools.product(*(self._likely[name] for name in names)):
                wanted.append((tuple(zip(names, values, strict=True)), _LIKELY))
        if self._shapes.seen is not None:
            pairs = self._seen(plan.short, names)
            return [*wanted, (pairs, _SEEN)] if pairs else wanted
        asked = [pair for pair in plan.better_at if pair[0] not in names]
        return wanted + [((pair,), _ASKED) for pair in asked]

    def _seen(self, sizes: Sequence[Expr], given: Sequence[str]) -> Pairs:
        """The symbols of those of `sizes` that were short, with their values."""
        seen = {name: n for name, n in (self._shapes.seen or {}).items() if name not in given}
        return tuple(sorted({pair for size in sizes for pair in run_of(size, seen)}))

    def _symbols(self, op: ir.Operation) -> set[str]:
        found: set[str] = set()
        for value in [*op.operands, *op.results]:
            for size in self._shapes.shape(value):
                found |= size.symbols()
        return found

    def _view(self, pairs: Pairs) -> ShapeAnalysis:
        if pairs not in self._views:
            self._views[pairs] = _Pinned(self._shapes, dict(pairs))
        return self._views[pairs]


class _Pinned(ShapeAnalysis):
    """The answers of an analysis with constants for some symbols: what the emitters ask."""

    def __init__(self, of: ShapeAnalysis, values: Mapping[str, int]) -> None:
        super().__init__()
        self._of, self._values = of, dict(values)
        self.constraints: Constraints = of.constraints.copy()
        for name, value in values.items():
            self.constraints.add_equal(Expr.symbol(name), value)

    def shape(self, value: ir.Value) -> Shape:
        return tuple(self._put(size) for size in self._of.shape(value))

    def contents(self, value: ir.Value) -> tuple[Expr, ...] | None:
        found = self._of.contents(value)
        return None if found is None else tuple(self._put(size) for size in found)

    def elements(self, value: ir.Value) -> tuple[Expr, ...] | None:
        found = self._of.elements(value)
        return None if found is None else tuple(self._put(size) for size in found)

    def parsed(self, text: ir.Attribute) -> Expr:
        return self._put(self._of.parsed(text))

    def _put(self, size: Expr) -> Expr:
        return self.constraints.canonical(size.substitute(self._values))


def _are(pairs: Pairs) -> All:
    """The symbols have these values."""
    return All(tuple(Condition(Expr.symbol(n), "==", Expr.const(value)) for n, value in pairs))


def _needed(
    steps: tuple[Step, ...], constraints: Constraints, reasons: list[Decision]
) -> tuple[Step, ...]:
    """Without the choices that the constraints decide; a sentence for each."""
    out: list[Step] = []
    for step in steps:
        if isinstance(step, If):
            known = _decided(step.condition, constraints)
            if known is not None:
                always = "always" if known else "never"
                reasons.append(Decision("one variant: ", step.condition, f" {always} holds"))
                out += _needed(step.then if known else step.otherwise, constraints, reasons)
                continue
        if not isinstance(step, Launch | Call):
            step = replace(
                step,
                then=_needed(step.then, constraints, reasons),
                otherwise=_needed(step.otherwise, constraints, reasons),
            )
        if isinstance(step, Pack):
            step = replace(step, never=_needed(step.never, constraints, reasons))
        out.append(step)
    return tuple(out)


def _decided(condition: Condition | All, constraints: Constraints) -> bool | None:
    if isinstance(condition, All):
        found = [_decided(one, constraints) for one in condition.conditions]
        return False if False in found else None if None in found else True
    return constraints.implies(condition.lhs, condition.op, condition.rhs)


def _kernels(steps: tuple[Step, ...]) -> set[KernelText]:
    """All kernels, fills of packed copies aside: those are shared by layout."""
    launches = (step for step in every(steps, never=True) if isinstance(step, Launch))
    return {kernel.source for launch in launches for kernel in launch.kernels}


def _choice(
    condition: All, special: KernelPlan, general: KernelPlan, values: Mapping[str, int]
) -> KernelPlan:
    """`special` where the condition holds; temporary blocks of equal size are one block."""
    blocks = list(general.workspaces)
    places: dict[Buffer, Buffer] = {}
    taken: set[int] = set()
    for index, size in enumerate(special.workspaces):
        for at, other in enumerate(blocks):
            if at not in taken and other.substitute(values) == size:
                break
        else:
            at = len(blocks)
            blocks.append(size)
        taken.add(at)
        places[Workspace(index)] = Workspace(at)
    steps = rewritten(special.steps, lambda step: step.moved(places))
    steps = (If(condition, steps, general.steps),)
    return KernelPlan(steps, tuple(blocks), short=general.short)

"""Which operands of kernels the runtime may keep packed copies of, and under which keys.

A copy is kept beside the buffer of an argument or constant, for all calls and programs that are
given that buffer. So what is in it may depend on the buffer and its sizes only.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.monomial import Atom, Monomial, monomial_quotient
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.identity import NamelessError, identity, with_sources
from shlo_disc.lower.plan import Call, KernelPlan, Launch, Pack, Part, Step, sizes_of
from shlo_disc.passes.kinds import Family, Kind


@dataclass(frozen=True)
class Origin:
    """Where a value comes from that the runtime may pack."""

    index: int
    """An argument, or -1 - the number of a constant."""
    sizes: tuple[Expr, ...]
    """Of that argument or constant: copies are kept beside it, so they may depend on no others."""
    computed: str = ""
    """A digest of what was computed from it; part of the key under which copies are kept."""

    def tells(self, size: Expr) -> bool:
        """True if the sizes of the argument or constant determine `size` (not: only if)."""
        return size in self.sizes or all(self._tells(monomial) for monomial, _ in size.terms)

    def _tells(self, monomial: Monomial) -> bool:
        """The same of a product: sizes that are products (`h*d` of `3*h*d`) are divided out."""
        for own in self.sizes:
            divisor = own.terms[0][0] if len(own.terms) == 1 else ()
            while divisor and (left := monomial_quotient(monomial, divisor)) is not None:
                monomial = left
        return all(self._tells_atom(atom) for atom, _ in monomial)

    def _tells_atom(self, atom: Atom) -> bool:
        if atom.op:
            return all(map(self.tells, atom.args))
        return any(atom.key in own.symbols() and _is_injective(own) for own in self.sizes)


class Origins:
    """The origins of all values the runtime may pack."""

    def __init__(self, shapes: ShapeAnalysis) -> None:
        self._shapes = shapes
        self._of: dict[ir.Value, Origin] = {}

    def argument(self, value: ir.Value, index: int) -> None:
        """`value` is argument `index` of `main`."""
        self._of[value] = Origin(index, self._shapes.shape(value))

    def constant(self, value: ir.Value, index: int) -> None:
        """`value` is constant `index`."""
        self._of[value] = Origin(-1 - index, self._shapes.shape(value))

    def same(self, value: ir.Value, of: ir.Value) -> None:
        """`value` is `of`, perhaps in another shape."""
        if of in self._of:
            self._of[value] = self._of[of]

    def derive(self, op: ir.Operation, kind: Kind, plan: KernelPlan) -> None:
        """Results of one packable value alone (a slice of a weight) may be packed beside it."""
        origin = self._of.get(op.operands[0]) if len(op.operands) == 1 else None
        if origin is None or kind.family is not Family.SPACE:
            return
        sizes = [
            size for value in (*op.operands, *op.results) for size in self._shapes.shape(value)
        ]
        if not all(map(origin.tells, (*sizes, *sizes_of(plan.steps)))):
            return
        # The plan names the texts of its kernels, so it determines every bit of the results.
        try:
            named = with_sources(plan, identity)
        except NamelessError:
            return
        digest = hashlib.sha256(repr((origin.computed, named)).encode()).hexdigest()
        for number, result in enumerate(op.results):
            self._of[result] = replace(origin, computed=f"{digest} {number}")

    def possible(self, steps: tuple[Step, ...], op: ir.Operation) -> tuple[Step, ...]:
        """`steps` with `never` in place of the packs that operands of `op` cannot have."""
        out: list[Step] = []
        for step in steps:
            if isinstance(step, Pack) and self.packable(step, op) is None:
                out += self.possible(step.never, op)
            elif isinstance(step, Launch | Call):
                out.append(step)
            else:
                then = self.possible(step.then, op)
                out.append(replace(step, then=then, otherwise=self.possible(step.otherwise, op)))
        return tuple(out)

    def packable(self, pack: Pack, op: ir.Operation) -> list[tuple[Origin, str]] | None:
        """Origin and key of every packed operand; None where one can have no copy."""
        found: list[tuple[Origin, str]] = []
        for part in pack.parts:
            value = op.operands[part.operand]
            origin = self._of.get(value)
            key = self._key(part, value, origin) if origin is not None else None
            if origin is None or key is None:
                return None
            found.append((origin, key))
        return found

    def _key(self, part: Part, value: ir.Value, origin: Origin) -> str | None:
        """What tells the packed copy from others beside the same buffer, in this program and in
        others; None where sizes of the call that the buffer does not have decide what is in it.
        """
        sizes = self._shapes.shape(value)
        needed = (*sizes, part.bytes, part.elements, part.fill.extent, *part.fill.params)
        if not all(map(origin.tells, needed)):
            return None
        # Names of symbols mean something beside the sizes of the buffer only.
        shapes = (tuple(map(str, of)) for of in (part.layout, origin.sizes, sizes))
        return repr((part.key, *shapes, origin.computed))


def _is_injective(size: Expr) -> bool:
    """True if `size` determines its one symbol (`4*k`)."""
    factors = [factor for monomial, _ in size.terms for factor in monomial]
    return len(factors) == 1 and all(not atom.op and power == 1 for atom, power in factors)

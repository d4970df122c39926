"""What is kept of every fusion of a host program, for `explain()` and `profile()`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, terminator
from shlo_disc.lower.host.record import KernelUse, Work
from shlo_disc.lower.plan import KernelPlan
from shlo_disc.lower.refused import lines_of
from shlo_disc.lower.work import work_of
from shlo_disc.passes.places import places_of


class UseRecorder:
    """Collects `uses` while a host program is emitted."""

    def __init__(self, shapes: ShapeAnalysis) -> None:
        self.uses: list[KernelUse] = []
        self._shapes = shapes
        self._source: dict[ir.Value, str] = {}
        self._inside: list[str] = []
        self._work: dict[Hashable, Work] = {}

    def argument(self, value: ir.Value, index: int) -> None:
        """`value` is argument `index` of the program."""
        self._source[value] = f"argument {index}"

    def constant(self, value: ir.Value, index: int) -> None:
        """`value` is constant `index`."""
        self._source[value] = f"constant {index}"

    def same(self, value: ir.Value, of: ir.Value) -> None:
        """`value` is `of`, perhaps in another shape."""
        if of in self._source:
            self._source[value] = self._source[of]

    def fusion(
        self, op: ir.Operation, kind: str, plan: KernelPlan, decisions: tuple[str, ...]
    ) -> None:
        """The next fusion of the program; `decisions` are about the variants of its plan."""
        block = op.regions[0].blocks[0]
        names: Counter[str] = Counter()
        for view in block.operations:
            inner = view.operation
            if not inner.name.startswith("disc."):
                names[inner.name] += 1
        shapes = tuple(tuple(self._shapes.shape(value)) for value in op.operands)
        key = (plan, shapes, kind, tuple(names.items()))
        work = self._work.get(key)
        if work is None:
            work = self._work[key] = work_of(op, self._shapes)
        self.uses.append(
            KernelUse(
                name=str(ir.StringAttr(op.attributes["name"]).value),
                kind=kind,
                where=lines_of(op),
                ops=tuple(names.items()),
                not_fused=_strings(op, "not_fused"),
                why=(*_strings(op, "why"), *decisions),
                plan=plan,
                work=work,
                reads=tuple(self._source.get(value, "") for value in op.operands),
                places=tuple(places_of(op)),
                inside=tuple(self._inside),
            )
        )
        for result in op.results:
            self._source[result] = f"kernel {len(self.uses) - 1}"

    def enter(self, op: ir.Operation) -> None:
        """What follows is inside a `while`, `if` or `case`."""
        self._inside.append(f"{op.name.removeprefix('stablehlo.')} {source_line(op)}")
        if op.name == "stablehlo.while":
            for region in op.regions:
                for argument, start in zip(region.blocks[0].arguments, op.operands, strict=True):
                    self.same(argument, start)

    def leave(self, op: ir.Operation) -> None:
        """The end of a `while`, `if` or `case`: its results come from its last region."""
        self._inside.pop()
        block = op.regions[len(op.regions) - 1].blocks[0]
        last = terminator(block)
        for result, value in zip(op.results, last.operands, strict=True):
            self.same(result, value)


def _strings(op: ir.Operation, name: str) -> tuple[str, ...]:
    if name not in op.attributes:
        return ()
    return tuple(str(ir.StringAttr(text).value) for text in ir.ArrayAttr(op.attributes[name]))

"""The walk that replaces complex values by their planes, op by op in program order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from shlo_disc.base.errors import ELSEWHERE, UnsupportedError
from shlo_disc.ingest.complex_numbers.planes import Planes, flat_types, is_complex, plane_type
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir

New: TypeAlias = Planes | ir.Value
"""What stands for a result: planes of a complex one, a value of the same type of any other."""

Rule = Callable[["Rewriter", ir.Operation], Sequence[New]]


class Rewriter:
    """The planes of every complex value so far, and the ops that have been replaced."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = rules
        self._planes: dict[ir.Value, Planes] = {}
        self._dead: list[Callable[[], object]] = []
        self._last: list[Callable[[], object]] = []

    def planes(self, value: ir.Value) -> Planes:
        """Of a complex value that has been passed."""
        return self._planes[value]

    def define(self, value: ir.Value, planes: Planes) -> None:
        """`planes` stand for `value` from now on."""
        self._planes[value] = planes

    def flat(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """The values, with two planes in the place of each complex one."""
        out: list[ir.Value] = []
        for value in values:
            if is_complex(value.type):
                z = self._planes[value]
                out += [z.re, z.im]
            else:
                out.append(value)
        return out

    def block(self, block: ir.Block) -> None:
        """Rewrite every op of a block whose arguments have been replaced."""
        for view in list(block.operations):
            self._op(view.operation)

    def _op(self, op: ir.Operation) -> None:
        if not _touches(op):
            for region in op.regions:
                for block in region:
                    self.block(block)
            return
        rule = self._rules.get(op.name)
        if rule is None:
            raise UnsupportedError(
                f"{source_line(op)}: {op.name} of complex numbers is not compiled; compute with "
                f"real and imaginary parts, or {ELSEWHERE}"
            )
        self._dead.append(op.erase)
        with at(op):
            new = rule(self, op)
        for result, value in zip(op.results, new, strict=True):
            if isinstance(value, Planes):
                self._planes[result] = value
            else:
                result.replace_all_uses_with(value)

    def adopt(
        self, region: ir.Region, target: ir.Region, order: Sequence[int] | None = None
    ) -> ir.Block:
        """Move the block of `region` to the empty `target` and rewrite it.

        Each complex argument becomes two. `order` gives the flat arguments in another order: entry
        k is the flat index, as `flat_types` counts, of argument k.
        """
        block = region.blocks[0]
        block.append_to(target)
        self.replace_arguments(block, order)
        self.block(block)
        return block

    def replace_arguments(self, block: ir.Block, order: Sequence[int] | None = None) -> None:
        """Each complex argument of the block becomes two, in the `order` of `adopt`."""
        old = list(block.arguments)
        kinds = flat_types(a.type for a in old)
        places: dict[int, ir.Value] = {}
        for place in order if order is not None else range(len(kinds)):
            places[place] = block.add_argument(kinds[place], ir.Location.unknown())
        flat = iter([places[k] for k in range(len(kinds))])
        for argument in old:
            if is_complex(argument.type):
                self._planes[argument] = Planes(next(flat), next(flat))
            else:
                argument.replace_all_uses_with(next(flat))
        count = len(old)
        self._dead.append(lambda: [block.erase_argument(k) for k in reversed(range(count))])

    def rebuild(self, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Operation:
        """`op` with other operands and planes for its results; its regions are adopted."""
        new = ir.Operation.create(
            op.name,
            results=flat_types(r.type for r in op.results),
            operands=list(operands),
            attributes=attributes_of(op),
            regions=len(op.regions),
        )
        for region, target in zip(op.regions, new.regions, strict=True):
            self.adopt(region, target)
        return new

    def results(self, op: ir.Operation, values: Sequence[ir.Value]) -> list[New]:
        """The flat `values` as what stands for the results of `op`."""
        flat = iter(values)
        return [
            Planes(next(flat), next(flat)) if is_complex(r.type) else next(flat) for r in op.results
        ]

    def finally_(self, action: Callable[[], object]) -> None:
        """Call `action` when nothing complex is left: it may look at whole blocks."""
        self._last.append(action)

    def finish(self) -> None:
        """Erase every op and argument that something else stands for now."""
        for action in (*reversed(self._dead), *self._last):
            action()
        self._dead.clear()
        self._last.clear()


def attributes_of(op: ir.Operation) -> dict[str, ir.Attribute]:
    """All attributes, by name."""
    return dict(op.attributes.items())


def on_each_plane(rewriter: Rewriter, op: ir.Operation) -> list[New]:
    """The op on the real parts and on the imaginary parts; real operands are those of both."""
    made = []
    for part in ("re", "im"):
        operands = [
            getattr(rewriter.planes(v), part) if is_complex(v.type) else v for v in op.operands
        ]
        new = ir.Operation.create(
            op.name,
            results=[plane_type(r.type) for r in op.results],
            operands=operands,
            attributes=attributes_of(op),
        )
        made.append(new)
    return [Planes(a, b) for a, b in zip(made[0].results, made[1].results, strict=True)]


def _touches(op: ir.Operation) -> bool:
    """True if an operand, a result or an argument of a region is complex, or a part is taken."""
    if op.name in ("stablehlo.real", "stablehlo.imag"):  # of real numbers, too
        return True
    if any(is_complex(v.type) for v in (*op.operands, *op.results)):
        return True
    return any(
        is_complex(argument.type)
        for region in op.regions
        for block in region
        for argument in block.arguments
    )

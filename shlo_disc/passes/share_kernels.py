"""share-kernels: fusions that differ in numbers only read these numbers, and are one kernel.

    "disc.fusion"(%x) { %c = constant 0.1; multiply %x, %c }
    "disc.fusion"(%y) { %c = constant 0.2; multiply %y, %c }
    ==>
    %a = constant 0.1;  "disc.fusion"(%x, %a) { ^bb(%v, %c): multiply %v, %c }
    %b = constant 0.2;  "disc.fusion"(%y, %b) { ^bb(%v, %c): multiply %v, %c }

Why     LLVM takes 10 to 200 ms for a kernel: a scale or a rate for each layer made one for each.
Needs   `plan-fusion`.   Keeps   every result, to the bit.
Cost    O(ops).

A kernel loads such a number once, in front of its loops. Numbers that a kernel is better off to
know (exponents, divisors, shifts, first values of reductions) stay in it: see `_PLAIN`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.builders import create
from shlo_disc.ir.dialect import Fusion
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, ops_of
from shlo_disc.ir.ops import names
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.kinds import KINDS, kind_of
from shlo_disc.passes.op_classes import is_splat_constant
from shlo_disc.passes.records import match
from shlo_disc.passes.region import Region
from shlo_disc.passes.structure import structure

MIN_KERNELS = 4
"""So many kernels become one, at least: below, what LLVM takes is not felt."""

_PLAIN = frozenset(
    f"stablehlo.{name}"
    for name in ("add", "compare", "maximum", "minimum", "multiply", "select", "subtract")
)
"""They take a number from a register at no other speed than from the code."""

_BROADCAST = "stablehlo.broadcast_in_dim"
_BROADCASTS = names(lambda row: row.is_broadcast)


@dataclass(frozen=True)
class ShareKernels(Pass):
    """See the module."""

    name: ClassVar[str] = "share-kernels"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of fusions that read numbers now."""
        members: list[_Member] = []
        for fusion in ops_of(module, "disc.fusion"):
            if KINDS[kind_of(fusion).name].match is None:
                continue
            ops = [view.operation for view in fusion.regions[0].blocks[0].operations]
            if constants := [op for op in ops if _is_plain(op)]:
                members.append(_Member(fusion, constants, tuple(op.name for op in ops)))
        alike = _large(members, lambda member: member.names)  # few need a look at more than names
        large = _large(
            [member for group in alike for member in group],
            lambda member: structure(member.fusion, frozenset(member.constants)),
        )
        if not large:
            return 0
        known = shapes.now()
        made = [fusion for group in large for fusion in _share(group, known)]
        if made and flags.spec_checks():
            shapes.changed()
            _check(made, shapes.now())
        return len(made)


@dataclass(frozen=True)
class _Member:
    fusion: ir.Operation
    constants: list[ir.Operation]
    """Those that may become operands, in the order of the body."""
    names: tuple[str, ...]
    """Of the ops of the body."""

    @property
    def numbers(self) -> tuple[ir.Attribute, ...]:
        return tuple(constant.attributes["value"] for constant in self.constants)


def _is_plain(op: ir.Operation) -> bool:
    """True for a number that plain arithmetic alone reads."""
    if not is_splat_constant(op) or _has_no_number(op):
        return False
    waiting: list[ir.Value] = [op.results[0]]
    while waiting:
        for use in waiting.pop().uses:
            reader = use.owner.operation
            if reader.name in _BROADCASTS and reader.block == op.block:
                waiting.append(reader.results[0])
            elif reader.name not in _PLAIN or reader.block != op.block:
                return False
    return True


def _has_no_number(op: ir.Operation) -> bool:
    """The bindings do not read the element of an array of complex numbers."""
    kind = ir.RankedTensorType(op.results[0].type)
    return bool(kind.rank) and isinstance(kind.element_type, ir.ComplexType)


def _large(members: Sequence[_Member], key: Callable[[_Member], Hashable]) -> list[list[_Member]]:
    """Those of equal `key` together, where they are enough kernels."""
    groups: dict[Hashable, list[_Member]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return [group for group in groups.values() if _kernels_of(group) >= MIN_KERNELS]


def _kernels_of(group: Sequence[_Member]) -> int:
    return len({member.numbers for member in group})


def _share(group: Sequence[_Member], shapes: ShapeAnalysis) -> list[ir.Operation]:
    """Make the numbers in which the members differ operands of these; the fusions made."""
    columns = list(zip(*(member.numbers for member in group), strict=True))
    differing = [k for k, column in enumerate(columns) if len(set(column)) > 1]
    first = group[0]
    region = _without(first.fusion, [first.constants[k] for k in differing], shapes)
    if isinstance(match(kind_of(first.fusion).name, region), str):
        return []
    count = _kernels_of(group)
    return [_with_operands(m.fusion, [m.constants[k] for k in differing], count) for m in group]


def _without(
    fusion: ir.Operation, constants: Sequence[ir.Operation], shapes: ShapeAnalysis
) -> Region:
    """The body of `fusion` with the results of `constants` for inputs."""
    region = Region.of(fusion, shapes)
    known = frozenset(constants)
    ops = tuple(op for op in region.ops if op not in known)
    inputs = (*region.inputs, *(constant.results[0] for constant in constants))
    return Region(ops, inputs, region.results, shapes, region.given)


def _with_operands(
    fusion: ir.Operation, constants: Sequence[ir.Operation], count: int
) -> ir.Operation:
    """`fusion` with scalar operands in the place of `constants`; the old one is gone."""
    block = fusion.regions[0].blocks[0]
    scalars = [_scalar(constant, fusion) for constant in constants]
    attributes = {name: fusion.attributes[name] for name in fusion.attributes}
    if "given" in attributes:
        place = list(block.operations)[ir.IntegerAttr(attributes["given"]).value].operation
    for constant, scalar in zip(constants, scalars, strict=True):
        argument = block.add_argument(scalar.type, constant.location)
        value: ir.Value = argument
        if ir.RankedTensorType(constant.results[0].type).rank:
            with at(constant):
                kind = constant.results[0].type
                value = create(_BROADCAST, [argument], kind, broadcast_dimensions=[])
        constant.results[0].replace_all_uses_with(value)
        constant.erase()
    if "given" in attributes:
        index = [view.operation for view in block.operations].index(place)
        attributes["given"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), index)
    note = f"shared: one kernel for {count} fusions that differ in numbers, read from memory"
    reasons = [*attributes.get("why", ()), ir.StringAttr.get(note)]
    attributes["why"] = ir.ArrayAttr.get(reasons)
    with at(fusion):
        types = [result.type for result in fusion.results]
        made: Any = Fusion([*fusion.operands, *scalars], types, kind=attributes["kind"])
    for name, value in attributes.items():
        made.operation.attributes[name] = value
    block.append_to(made.operation.regions[0])
    for old, new in zip(fusion.results, made.operation.results, strict=True):
        old.replace_all_uses_with(new)
    fusion.erase()
    return made.operation


def _scalar(constant: ir.Operation, fusion: ir.Operation) -> ir.Value:
    """The number of `constant` in front of `fusion`."""
    kind = ir.RankedTensorType(constant.results[0].type)
    scalar = ir.RankedTensorType.get([], kind.element_type)
    value = ir.DenseElementsAttr(constant.attributes["value"])
    with at(fusion):
        number = value
        if kind.rank:
            number = ir.DenseElementsAttr.get_splat(scalar, value.get_splat_value())
        return create("stablehlo.constant", [], scalar, value=number)


def _check(fusions: Sequence[ir.Operation], shapes: ShapeAnalysis) -> None:
    """Raises InternalError for a fusion that is none of its kind any more."""
    for fusion in fusions:
        found = match(kind_of(fusion).name, Region.of(fusion, shapes))
        if isinstance(found, str):
            raise InternalError(f"{source_line(fusion)}: with numbers for operands: {found}")


register(ShareKernels())

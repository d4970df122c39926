"""CHLO ops that broadcast their operands, as broadcasts and the op itself.

    chlo.broadcast_add %x, %y : (tensor<?x4xf32>, tensor<?xf32>) -> tensor<?x4xf32>
    ==>
    custom_call @shape_assertion((n - 1) * (n - 4) == 0)                  n, the size of %y
    %b = dynamic_broadcast_in_dim %y, [m, 4], dims = [1]                  m, that of %x
    stablehlo.add %x, %b

Two sizes go together if they are equal or one is 1; types or a call tell. Upstream's expansion
computes common shapes with ops that nothing expands.

The common size of `a` and `b` is `max(a, b) * min(a, b, 1)`: 0 and 1 give 0. The larger and the
smaller one of a result are kept, so a chain of thousands of ops has sizes of one term.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from shlo_disc.builders import (
    assert_sizes,
    broadcast,
    compare,
    create,
    dimension,
    integer,
    vector,
)
from shlo_disc.errors import InvalidModuleError
from shlo_disc.locations import source_line
from shlo_disc.mlir import at, ir, ops_of, producer
from shlo_disc.ops import OPS, Role, names

__all__ = ["broadcast_operands"]

_BROADCASTING = names(lambda row: row.name.startswith("chlo.broadcast_"))
_DIMENSIONS = "broadcast_dimensions"
_DYNAMIC = ir.ShapedType.get_dynamic_size()

_Place = tuple[ir.Value, int]
"""A value and one of its dimensions."""


def broadcast_operands(module: ir.Module) -> None:
    """Every op that broadcasts its operands becomes broadcasts and the op itself.

    Raises InvalidModuleError for dimensions that do not fit.
    """
    sizes = _Sizes()
    for op in ops_of(module, *sorted(_BROADCASTING)):
        base = op.name.removeprefix("chlo.broadcast_")
        name = f"chlo.{base}" if f"chlo.{base}" in OPS else f"stablehlo.{base}"
        attributes = {a: _of_stablehlo(v) for a, v in op.attributes.items() if a != _DIMENSIONS}
        with at(op):
            operands, shape = _common_shape(op, sizes)
            new = create(name, operands, op.results[0].type, **attributes)
        sizes.record(new, shape)
        op.results[0].replace_all_uses_with(new)
        op.erase()


def _of_stablehlo(attribute: ir.Attribute) -> ir.Attribute:
    """The enumeration of StableHLO with the same word; CHLO's have no class in the bindings."""
    text = str(attribute)
    if not text.startswith("#chlo<comparison_"):
        return attribute
    return ir.Attribute.parse(text.replace("#chlo<", "#stablehlo<", 1))


@dataclass(frozen=True)
class _Size:
    """The size of a dimension."""

    origin: Hashable
    """Equal of equal sizes: a number, the place it was first seen at, or an object of its own."""
    parts: tuple[ir.Value, ir.Value] | None = None
    """Of a common size: the largest of the sizes, and the smallest of these and 1."""

    def value(self) -> ir.Value:
        """The size as a rank-0 i32, at the insertion point."""
        if self.parts is not None:
            return create("stablehlo.multiply", self.parts, _i32())
        if isinstance(self.origin, int):
            return _number(self.origin)
        assert isinstance(self.origin, tuple)
        return dimension(*self.origin)


class _Sizes:
    """The sizes of dynamic dimensions: those of results, and of what is as large as one of them."""

    def __init__(self) -> None:
        self._known: dict[_Place, _Size] = {}

    def record(self, result: ir.Value, shape: Sequence[_Size]) -> None:
        """`result` has these sizes."""
        for axis, size in enumerate(shape):
            self._known[result, axis] = size

    def of(self, value: ir.Value, axis: int) -> _Size:
        """The size of a dimension, followed to where it comes from through element-wise ops."""
        n = int(ir.RankedTensorType(value.type).shape[axis])
        if n != _DYNAMIC:
            return _Size(n)
        passed = []
        place: _Place | None = (value, axis)
        while place is not None and place not in self._known:
            passed.append(place)
            place = _same_size(*place)
        size = self._known[place] if place is not None else _Size(passed[-1])
        self._known.update(dict.fromkeys(passed, size))
        return size


def _same_size(value: ir.Value, axis: int) -> _Place | None:
    """A dimension of the same size, of what `value` is computed from element by element."""
    op = producer(value)
    if op is None or op.name not in OPS or OPS[op.name].role is not Role.ELEMENTWISE:
        return None
    kinds = [ir.RankedTensorType(v.type) for v in op.operands]
    rank = ir.RankedTensorType(value.type).rank
    for operand, kind in zip(op.operands, kinds, strict=True):
        if kind.rank == rank and kind.is_dynamic_dim(axis):
            return operand, axis
    return None


def _placed(op: ir.Operation, rank: int) -> list[tuple[ir.Value, list[int]]]:
    """The operands of `op`, each with the dimensions of the result that its own ones are.

    `broadcast_dimensions` gives those of operands of lower rank; without it they are the trailing
    ones.
    """
    given = ir.DenseI64ArrayAttr(op.attributes[_DIMENSIONS]) if _DIMENSIONS in op.attributes else ()
    placed = []
    for value in op.operands:
        own = _rank(value)
        dims = [int(d) for d in given] if len(given) and own < rank else [*range(rank - own, rank)]
        if len(dims) != own or sorted({*dims} & {*range(rank)}) != dims:
            raise InvalidModuleError(
                f"{source_line(op)}: {op.name}: broadcast_dimensions {dims} are not {own} of "
                f"{rank} dimensions in order"
            )
        placed.append((value, dims))
    return placed


def _common_shape(op: ir.Operation, sizes: _Sizes) -> tuple[list[ir.Value], list[_Size]]:
    """The operands in their common shape, and that shape."""
    rank = max(map(_rank, op.operands))
    placed = [
        (value, dims, [sizes.of(value, axis) for axis in range(len(dims))])
        for value, dims in _placed(op, rank)
    ]
    columns: list[dict[object, _Size]] = [{} for _ in range(rank)]
    for _, dims, own in placed:
        for d, size in zip(dims, own, strict=True):
            columns[d].setdefault(size.origin, size)
    shape = [_common(op, d, list(column.values())) for d, column in enumerate(columns)]
    origins = [size.origin for size in shape]
    return [
        value if [size.origin for size in own] == origins else _spread(value, dims, shape)
        for value, dims, own in placed
    ], shape


def _common(op: ir.Operation, axis: int, sizes: Sequence[_Size]) -> _Size:
    """The common size of dimension `axis`; every call checks what types do not tell."""
    numbers = [size for size in sizes if isinstance(size.origin, int) and size.origin != 1]
    if len(numbers) > 1:
        raise InvalidModuleError(
            f"{source_line(op)}: {op.name}: sizes {numbers[0].origin} and {numbers[1].origin} of "
            f"dimension {axis} must be equal or 1"
        )
    unknown = [size for size in sizes if not isinstance(size.origin, int)]
    known = [*numbers, *unknown]
    if len(known) < 2:
        return known[0] if known else _Size(1)
    common = numbers[0] if numbers else _joined(unknown)
    told = [size.value() for size in known]
    names = " and ".join(f"{{{k}}}" for k in range(len(told)))
    text = f"{source_line(op)}: {op.name}: sizes {names} of dimension {axis} must be equal or 1"
    one, zero = _number(1), _number(0)
    i1 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
    for size in told[len(numbers) :]:
        differences = [_binary("subtract", size, n) for n in (one, common.value())]
        assert_sizes(compare("EQ", _binary("multiply", *differences), zero, i1), text, told)
    return common


def _joined(sizes: Sequence[_Size]) -> _Size:
    """The common size of `sizes`, which are equal or 1."""
    one = _number(1)
    parts = [size.parts or (n := size.value(), _binary("minimum", n, one)) for size in sizes]
    largest, least = parts[0]
    for large, small in parts[1:]:
        largest, least = _binary("maximum", largest, large), _binary("minimum", least, small)
    return _Size(object(), (largest, least))


def _spread(value: ir.Value, dims: Sequence[int], shape: Sequence[_Size]) -> ir.Value:
    """`value` broadcast along `dims` to `shape`."""
    numbers = [size.origin if isinstance(size.origin, int) else _DYNAMIC for size in shape]
    kind = ir.RankedTensorType.get(numbers, ir.RankedTensorType(value.type).element_type)
    return broadcast(value, dims, kind, lambda: vector([size.value() for size in shape]))


def _binary(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return create(f"stablehlo.{name}", [a, b], a.type)


def _number(number: int) -> ir.Value:
    return integer(number, _i32())


def _i32() -> ir.RankedTensorType:
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))


def _rank(value: ir.Value) -> int:
    return int(ir.RankedTensorType(value.type).rank)

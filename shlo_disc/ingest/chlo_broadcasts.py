"""CHLO ops that broadcast their operands, as broadcasts and the op itself.

    chlo.broadcast_add %x, %y : (tensor<?x4xf32>, tensor<?xf32>) -> tensor<?x4xf32>
    ==>
    custom_call @shape_assertion((n - 1) * (n - 4) == 0)                  n, the size of %y
    %b = dynamic_broadcast_in_dim %y, [m, 4], dims = [1]                  m, that of %x
    stablehlo.add %x, %b

Two sizes go together if they are equal or one is 1; types or a call tell. Upstream's expansion
computes common shapes with ops that nothing expands.
See `size_values.py` for common sizes.
"""

from __future__ import annotations

from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.ingest.size_values import Sizes, extent, vector
from shlo_disc.ir.builders import broadcast, create, rank_of
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, ops_of
from shlo_disc.ir.ops import OPS, names

_BROADCASTING = names(lambda row: row.name.startswith("chlo.broadcast_"))
_DIMENSIONS = "broadcast_dimensions"
_DYNAMIC = ir.ShapedType.get_dynamic_size()


def broadcast_operands(module: ir.Module) -> None:
    """Every op that broadcasts its operands becomes broadcasts and the op itself.

    Raises InvalidModuleError for dimensions that do not fit.
    """
    sizes = Sizes()
    for op in ops_of(module, *sorted(_BROADCASTING)):
        base = op.name.removeprefix("chlo.broadcast_")
        name = f"chlo.{base}" if f"chlo.{base}" in OPS else f"stablehlo.{base}"
        attributes = {a: _of_stablehlo(v) for a, v in op.attributes.items() if a != _DIMENSIONS}
        with at(op):
            operands, shape = _broadcast(op, sizes)
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


def _placed(op: ir.Operation, rank: int) -> list[tuple[ir.Value, list[int]]]:
    """The operands of `op`, each with the dimensions of the result that its own ones are.

    `broadcast_dimensions` gives those of operands of lower rank; without it they are the trailing
    ones.
    """
    given = ir.DenseI64ArrayAttr(op.attributes[_DIMENSIONS]) if _DIMENSIONS in op.attributes else ()
    placed = []
    for value in op.operands:
        own = rank_of(value)
        dims = [int(d) for d in given] if len(given) and own < rank else [*range(rank - own, rank)]
        if len(dims) != own or sorted({*dims} & {*range(rank)}) != dims:
            raise InvalidModuleError(
                f"{source_line(op)}: {op.name}: broadcast_dimensions {dims} are not {own} of "
                f"{rank} dimensions in order"
            )
        placed.append((value, dims))
    return placed


def _broadcast(op: ir.Operation, sizes: Sizes) -> tuple[list[ir.Value], list[ir.Value]]:
    """The operands in their common shape, and that shape."""
    rank = max(map(rank_of, op.operands))
    placed = _placed(op, rank)
    columns: list[list[ir.Value]] = [[] for _ in range(rank)]
    for value, dims in placed:
        for axis, d in enumerate(dims):
            columns[d].append(extent(value, axis))
    shape = sizes.common(op, columns)
    origins = [sizes.origin(size) for size in shape]
    numbers = [origin if isinstance(origin, int) else _DYNAMIC for origin in origins]
    operands = []
    for value, dims in placed:
        if [sizes.origin((value, axis)) for axis in range(len(dims))] != origins:
            kind = ir.RankedTensorType.get(numbers, ir.RankedTensorType(value.type).element_type)
            value = broadcast(value, dims, kind, lambda: vector(shape))
        operands.append(value)
    return operands, shape

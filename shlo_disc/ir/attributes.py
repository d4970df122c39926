"""Attributes of StableHLO ops as Python values, with the defaults of the specification."""

from __future__ import annotations

from shlo_disc.ir.mlir import ir


def integer(op: ir.Operation, name: str, default: int | None = None) -> int:
    """An integer attribute; `default` where it is absent."""
    if default is not None and name not in op.attributes:
        return default
    return int(op.attributes[name].value)


def flag(op: ir.Operation, name: str) -> bool:
    """An attribute that is true or false; false where it is absent."""
    return name in op.attributes and bool(ir.BoolAttr(op.attributes[name]).value)


def integers(op: ir.Operation, name: str) -> list[int]:
    """An array of i64."""
    found = ir.DenseI64ArrayAttr(op.attributes[name])
    return [found[k] for k in range(len(found))]  # the end of the bindings' iterator is slow


def integers_or(op: ir.Operation, name: str, count: int, default: int) -> list[int]:
    """An array of i64; `count` times `default` where it is absent."""
    return integers(op, name) if name in op.attributes else [default] * count


def pairs(op: ir.Operation, name: str, count: int) -> list[tuple[int, int]]:
    """A `count` x 2 integer matrix, such as `padding`; zeros where it is absent."""
    if name not in op.attributes:
        return [(0, 0)] * count
    value = ir.DenseIntElementsAttr(op.attributes[name])
    if value.is_splat:
        number = int(value.get_splat_value().value)
        return [(number, number)] * count
    flat = [int(x) for x in value]
    return [(flat[2 * i], flat[2 * i + 1]) for i in range(count)]


def text(op: ir.Operation, name: str) -> str:
    """A string attribute."""
    return str(ir.StringAttr(op.attributes[name]).value)


def reduced_dims(op: ir.Operation) -> list[int]:
    """The dimensions that a `reduce` removes, sorted."""
    return sorted(integers(op, "dimensions"))


def broadcast_dims(op: ir.Operation) -> list[int]:
    """Where a static or dynamic broadcast has the dimensions of its operand."""
    return integers(op, "broadcast_dimensions")


def permutation(op: ir.Operation) -> list[int]:
    """Where a transpose takes each dimension from."""
    return integers(op, "permutation")

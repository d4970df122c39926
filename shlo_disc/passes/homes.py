"""Which values are at home in the host's own memory: what `place-scalars` writes.

====================  ====================================================================
`disc.on_host`        on an op, the numbers of the results that are at home on the host; on a
                      `while`, of what it carries
`disc.by_value`       on a fusion that runs as launches, the numbers of the operands that the
                      host hands over by value
`disc.far_memory`     on `main`: memory of the target is not the host's own
====================  ====================================================================

The operands of a reshape and its result have one home.
"""

from __future__ import annotations

from collections.abc import Iterable

from shlo_disc.ir.mlir import ir, producer
from shlo_disc.passes.op_classes import RESHAPES

TRANSFER = "disc.transfer"
"""On a fusion that `place-scalars` made: its result is its operand, on the other side."""

_ON_HOST, _BY_VALUE, _FAR_MEMORY = "disc.on_host", "disc.by_value", "disc.far_memory"


def is_on_host(value: ir.Value) -> bool:
    """True if `value` is at home in the host's own memory, which is not the target's."""
    op = producer(value)
    while op is not None and op.name in RESHAPES:
        value = op.operands[0]
        op = producer(value)
    if op is not None:
        return ir.OpResult(value).result_number in _numbers(op, _ON_HOST)
    around = value.owner.owner.operation
    if around.name != "stablehlo.while":
        return False
    return ir.BlockArgument(value).arg_number in _numbers(around, _ON_HOST)


def set_on_host(op: ir.Operation, numbers: Iterable[int]) -> None:
    """Results of `op` with these numbers are at home on the host, or what a `while` carries."""
    _set_numbers(op, _ON_HOST, numbers)


def values_given(fusion: ir.Operation) -> tuple[int, ...]:
    """The operands of a `disc.fusion` that its launches get by value."""
    return _numbers(fusion, _BY_VALUE)


def set_by_value(fusion: ir.Operation, numbers: Iterable[int]) -> None:
    """Launches of `fusion` get these operands by value."""
    _set_numbers(fusion, _BY_VALUE, numbers)


def has_far_memory(func: ir.Operation) -> bool:
    """True if `place-scalars` found that memory of the target is not the host's own."""
    return _FAR_MEMORY in func.attributes


def set_far_memory(func: ir.Operation) -> None:
    """Memory of the target is not the host's own."""
    func.attributes[_FAR_MEMORY] = ir.UnitAttr.get()


def forget_homes(op: ir.Operation) -> None:
    """Remove what was written about `op`."""
    for name in (_ON_HOST, _BY_VALUE, _FAR_MEMORY):
        if name in op.attributes:
            del op.attributes[name]


def _numbers(op: ir.Operation, name: str) -> tuple[int, ...]:
    if name not in op.attributes:
        return ()
    return tuple(ir.DenseI64ArrayAttr(op.attributes[name]))


def _set_numbers(op: ir.Operation, name: str, numbers: Iterable[int]) -> None:
    found = sorted(numbers)
    if found:
        op.attributes[name] = ir.DenseI64ArrayAttr.get(found)
    elif name in op.attributes:
        del op.attributes[name]

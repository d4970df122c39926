"""Which arguments a size is computed from, when it does not follow from argument sizes alone.

    %0 = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
    %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>

The size of `%1` is an element of the argument `%n`, which the host reads when a call starts.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, terminator

GLOBAL = "jax.global_constant"
"""On a scalar argument that JAX passes a size in: the symbol."""

MAX_ELEMENTS = 64
"""As of `shape_values.py`: longer tensors are data."""


_CONTROL = ("stablehlo.case", "stablehlo.if", "stablehlo.while")


class NeedsSeveralPrograms(UnsupportedError):
    """A size that is not known when a call starts; several programs in turn know it in time."""

    operation: ir.Operation
    """The operation that has the size."""


class SizeOfRegion(NeedsSeveralPrograms):
    """A size that depends on which regions run, or how often."""

    def __init__(self, message: str, operation: ir.Operation) -> None:
        super().__init__(message)
        self.operation = operation


class SizeFromData(NeedsSeveralPrograms):
    """A size that neither argument sizes nor the elements of size arguments give."""

    operand: ir.Value

    @staticmethod
    def of(op: ir.Operation, index: int) -> SizeFromData:
        """The error for operand `index` of `op`."""
        error = SizeFromData(
            f"{source_line(op)}: {op.name}: operand {index} is a size that depends on data, not "
            "only on argument sizes; pass the size as an integer argument or a static argument, "
            "or pad to a size that is known"
        )
        error.operation, error.operand = op, op.operands[index]
        return error


def control_around(op: ir.Operation) -> ir.Operation | None:
    """The `case`, `if` or `while` of main's own block that `op` is or is inside of."""
    outermost = op
    while (parent := outermost.parent) is not None and parent.name != "func.func":
        outermost = parent.operation
    return outermost if outermost.name in _CONTROL else None


def sources_of_size(value: ir.Value) -> set[ir.Value]:
    """Small integers that `value` is computed from; empty when no argument of main is one."""
    found: set[ir.Value] = set()
    passed: set[ir.Value] = set()
    """Floats, which are no sizes themselves."""
    todo = [value]
    reaches_argument = False
    while todo:
        one = todo.pop()
        if one in found or one in passed or not _is_small(one.type):
            continue
        is_integer = isinstance(one.type.element_type, ir.IntegerType)
        (found if is_integer else passed).add(one)
        if not is_integer and isinstance(one.owner, ir.Block):
            continue
        if not isinstance(one.owner, ir.Block):
            op = one.owner.operation
            if op.name != "stablehlo.get_dimension_size":
                todo += _givers(op, one)
            continue
        op = one.owner.owner.operation
        if op.name == "func.func":
            reaches_argument = reaches_argument or one.type.element_type.width > 1
        elif op.name == "stablehlo.while":
            todo.append(op.operands[ir.BlockArgument(one).arg_number])
    return found if reaches_argument else set()


def _givers(op: ir.Operation, result: ir.Value) -> list[ir.Value]:
    """The values an op computes `result` from."""
    if op.name not in _CONTROL:
        return list(op.operands)
    index = ir.OpResult(result).result_number
    if op.name == "stablehlo.while":
        return [op.operands[index]]
    blocks = [region.blocks[0] for region in op.regions]
    return [terminator(b).operands[index] for b in blocks]


def _is_small(kind: ir.Type) -> bool:
    """Whether values of this type are followed: few integers, or floats in which they become."""
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return False
    count = 1
    for n in kind.shape:
        count *= n
    numbers = ir.IntegerType | ir.F32Type | ir.F64Type
    return isinstance(kind.element_type, numbers) and count <= MAX_ELEMENTS

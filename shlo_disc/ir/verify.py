"""A check that MLIR's verifier lacks: no operand is a value of an op that is gone.

`Operation.erase` frees an op whose results are still read; whoever follows such an operand reads
freed memory. The check follows no operand. It goes from every value that exists to its uses: an
operand that is found from no value of the module belongs to none.
"""

from __future__ import annotations

from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, walk


def verify_operands(module: ir.Module) -> None:
    """Raise ValueError, naming op and operand, unless every operand is a value of the module."""
    ops: list[ir.Operation] = []
    found: set[tuple[ir.Operation, int]] = set()

    def defines(value: ir.Value) -> None:
        found.update((use.owner.operation, use.operand_number) for use in value.uses)

    def visit(op: ir.Operation) -> None:
        ops.append(op)
        for result in op.results:
            defines(result)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    defines(argument)

    walk(module, visit)
    wrong = [
        f"{op.name} at {source_line(op)}: operand {number} is a value of an operation that is "
        "not in the module"
        for op in ops
        for number in range(len(op.operands))
        if (op, number) not in found
    ]
    if wrong:
        raise ValueError("\n".join(wrong))

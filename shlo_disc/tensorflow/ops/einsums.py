"""`Einsum`, which the converter has wrong for a label that is summed in one operand alone.

Nor has it right two labels of both operands and the result in another order.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to
from shlo_disc.ingest.einsums import einsum
from shlo_disc.ingest.size_arithmetic import known, sizes_of, value_of
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.mlir import ir


def sum_of_products(sizes: Sizes, op: ir.Operation) -> list[ir.Value]:
    """`Einsum(inputs...)` of one or two arrays. Dimensions of `...` are broadcast."""
    text = str(ir.StringAttr(op.attributes["equation"]).value).replace(" ", "")
    operands = list(op.operands)
    if len(operands) > 2:
        raise UnsupportedError(f"{len(operands)} operands; join two at a time")
    terms = text.partition("->")[0].split(",")
    if len(operands) == 2 and all("..." in term for term in terms):
        operands = _with_common_batch(sizes, op, terms)
    return [einsum(op, operands, text)]


def _with_common_batch(sizes: Sizes, op: ir.Operation, terms: list[str]) -> list[ir.Value]:
    """The operands with equal sizes in `...`, but for sizes that are known to be 1."""
    shapes = [sizes_of(array) for array in op.operands]
    starts = [term.index("...") for term in terms]
    counts = [len(own) - len(term) + len("...") for own, term in zip(shapes, terms, strict=True)]
    shared = min(counts)
    places = [
        [start + n - shared + k for k in range(shared)]
        for start, n in zip(starts, counts, strict=True)
    ]
    wanted = [list(own) for own in shapes]
    for axes in zip(*places, strict=True):
        found = [own[axis] for own, axis in zip(shapes, axes, strict=True)]
        if 1 in found:
            continue
        (common,) = sizes.common(op, [[value_of(size) for size in found]])
        for own, axis in zip(wanted, axes, strict=True):
            if sizes.origin(value_of(own[axis])) != sizes.origin(common):
                own[axis] = known(common)
    return [
        array if own == full else broadcast_to(array, range(len(own)), full)
        for array, own, full in zip(op.operands, shapes, wanted, strict=True)
    ]

"""Sums of products by labels of dimensions, as `einsum` of the XLA operation semantics.

einsum "abi,aij->bj" (%x, %y)   ==>   dot_general %x, %y, batching_dims, contracting_dims
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ir.builders import (
    broadcast_like,
    compare,
    create,
    iota_like,
    select,
    summed,
    transposed,
    zero,
)
from shlo_disc.ir.contractions import dot_numbers
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir


def _type(value: ir.Value) -> ir.RankedTensorType:
    return ir.RankedTensorType(value.type)


def dot_general(
    lhs: ir.Value,
    rhs: ir.Value,
    kind: ir.Type,
    batch: tuple[Sequence[int], Sequence[int]],
    contracting: tuple[Sequence[int], Sequence[int]],
    op: ir.Operation,
) -> ir.Value:
    """The product, of the precision that `op` has.

    `batch`, `contracting`: the dimensions of each operand.
    """
    attributes = {"dot_dimension_numbers": dot_numbers(batch, contracting)}
    if "precision_config" in op.attributes:
        attributes["precision_config"] = op.attributes["precision_config"]
    return create("stablehlo.dot_general", [lhs, rhs], kind, **attributes)


def einsum(op: ir.Operation, operands: Sequence[ir.Value], text: str) -> ir.Value:
    """One or two arrays joined as `text` says, `bij,bjk->bik`: `op` is what messages name.

    Diagonals of repeated labels, sums over labels that stand alone, and one product. Dimensions of
    `...` have labels of their own, counted from the last dimension. A size is that of the first
    operand that has the label. Raises InvalidModuleError for a text that does not fit.
    """
    sides, _, result = text.partition("->")
    given = sides.split(",")
    if len(given) != len(operands):
        raise InvalidModuleError(f"{source_line(op)}: {op.name} of {text!r}: one term an operand")
    others = 0  # the largest number of dimensions of a `...`
    labels = []
    for value, term in zip(operands, given, strict=True):
        count = _type(value).rank - len(term.replace("...", ""))
        if count < 0 or (count and "..." not in term):
            raise InvalidModuleError(
                f"{source_line(op)}: {op.name} of {text!r}: {term!r} does not fit {value.type}"
            )
        others = max(others, count)
        labels.append(_labels(term, count))
    _drop_ones(operands, labels)
    asked = _labels(result, others)
    if not set(asked) <= {label for term in labels for label in term}:
        raise InvalidModuleError(f"{source_line(op)}: {op.name} of {text!r}: unknown label")
    if len(set(asked)) < len(asked):
        raise UnsupportedError(f"{source_line(op)}: {op.name} of {text!r}: a label twice behind ->")
    terms = [
        _summed(
            *_diagonal(value, names), [*asked, *(n for t in labels if t is not names for n in t)]
        )
        for value, names in zip(operands, labels, strict=True)
    ]
    value, names = terms[0]
    if len(terms) == 2:
        value, names = _product(terms[0], terms[1], asked, op)
    return transposed(value, [names.index(n) for n in asked])


def _drop_ones(operands: Sequence[ir.Value], labels: list[list[str]]) -> None:
    """In `...`, a size of 1 beside another size gets a label that nobody else names."""
    sizes: dict[str, set[int]] = {}
    shapes = [_type(value).shape for value in operands]
    for names, shape in zip(labels, shapes, strict=True):
        for name, size in zip(names, shape, strict=True):
            sizes.setdefault(name, set()).add(size)
    for names, shape in zip(labels, shapes, strict=True):
        for d, size in enumerate(shape):
            if names[d].isdecimal() and size == 1 and sizes[names[d]] != {1}:
                names[d] += " of size 1"


def _labels(term: str, others: int) -> list[str]:
    """One label a dimension; of `...`, which has `others` dimensions, numbers from the last on."""
    before, dots, behind = term.partition("...")
    return [*before, *(str(k) for k in range(others, 0, -1) if dots), *behind]


def _summed(
    value: ir.Value, names: Sequence[str], wanted: Sequence[str]
) -> tuple[ir.Value, list[str]]:
    """The sum over dimensions that nobody else names."""
    alone = [d for d, n in enumerate(names) if n not in wanted]
    return summed(value, alone), [n for d, n in enumerate(names) if d not in alone]


def _diagonal(value: ir.Value, names: Sequence[str]) -> tuple[ir.Value, list[str]]:
    """Two dimensions of one label become one: the sum over the second, with zeros elsewhere."""
    second = next((d for d, n in enumerate(names) if n in names[:d]), None)
    if second is None:
        return value, list(names)
    first = names.index(names[second])
    places = [iota_like(value, d) for d in (first, second)]
    here = compare("EQ", places[0], places[1])
    zeros = broadcast_like(zero(_type(value).element_type), [], value)
    alone = select(here, value, zeros)
    return _diagonal(summed(alone, [second]), [n for d, n in enumerate(names) if d != second])


def _product(
    left: tuple[ir.Value, list[str]],
    right: tuple[ir.Value, list[str]],
    result: Sequence[str],
    op: ir.Operation,
) -> tuple[ir.Value, list[str]]:
    (lhs, a), (rhs, b) = left, right
    batch = [n for n in a if n in b and n in result]
    summed = [n for n in a if n in b and n not in result]
    names = batch + [n for n in a if n not in b] + [n for n in b if n not in a]
    sizes = dict(zip(a, _type(lhs).shape, strict=True)) | {
        n: size for n, size in zip(b, _type(rhs).shape, strict=True) if n not in a
    }
    kind = ir.RankedTensorType.get([sizes[n] for n in names], _type(lhs).element_type)
    value = dot_general(
        lhs,
        rhs,
        kind,
        ([a.index(n) for n in batch], [b.index(n) for n in batch]),
        ([a.index(n) for n in summed], [b.index(n) for n in summed]),
        op,
    )
    return value, names

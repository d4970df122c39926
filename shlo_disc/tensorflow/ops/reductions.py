"""Reductions along dimensions that the converter does not know, and those of gradients.

    %r = BroadcastGradientArgs(%s, %t)          the dimensions along which %x was broadcast
    %y = Reshape(Sum(%g, %r), %s)
    ==>
    %y = SumTo(%g, %s)

Which dimensions these are, only a call may tell: those where the size of %x is 1 and that of %g is
not. A dimension of size n becomes two, [m, n / m], where m is the size of %x; the second is summed.
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import broadcast_to, converted, identity
from shlo_disc.ingest.mixed.rewriter import Rule
from shlo_disc.ingest.size_arithmetic import (
    Size,
    larger,
    plus,
    product,
    quotient,
    reshaped,
    same_size,
    sizes_of,
    value_of,
)
from shlo_disc.ingest.size_values import Sizes, binary, vector
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import create, element_of, reduced, summed, transposed
from shlo_disc.ir.mlir import ir, ops_of, producer
from shlo_disc.tensorflow.ops.values import elements, known_integer, known_integers, result

Values = list[ir.Value]


def reduction(name: str, *, is_mean: bool = False) -> Rule:
    """`Sum(input, reduction_indices)` and the like, by `stablehlo.NAME`.

    Means of integers are those of 64 bits, as TensorFlow's; of nothing they are 0.
    """

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        array, given = op.operands
        if is_mean and isinstance(element_of(array), ir.IntegerType):
            array = converted(array, _wide(element_of(array)))
        own, element = sizes_of(array), element_of(array)
        axes = sorted({axis % len(own) for axis in known_integers(given, "the axes")})
        found = reduced(array, axes, name, identity(name, element)) if axes else array
        if is_mean:
            size = product([own[axis] for axis in axes])
            if isinstance(element, ir.IntegerType):
                size = larger(size, 1)
            count = converted(value_of(size), element)
            found = binary("divide", found, broadcast_to(count, [], sizes_of(found)))
            found = converted(found, result(op).element_type)
        if not flag(op, "keep_dims"):
            return [found]
        return [reshaped(found, [1 if k in axes else n for k, n in enumerate(own)])]

    return rule


def _wide(element: ir.IntegerType) -> ir.Type:
    is_largest = element.is_unsigned and element.width == 64
    return element if is_largest else ir.IntegerType.get_signless(64)


def transpose(sizes: Sizes, op: ir.Operation) -> Values:
    """`Transpose(x, perm)`."""
    order = known_integers(op.operands[1], "the order of the dimensions")
    return [transposed(op.operands[0], order)]


def concat_offset(sizes: Sizes, op: ir.Operation) -> Values:
    """`ConcatOffset(concat_dim, shapes...)`: where each part of a concatenation begins."""
    axis_, *shapes = op.operands
    element = element_of(shapes[0])
    scalar = ir.RankedTensorType.get([], element)
    (rank,) = ir.RankedTensorType(shapes[0].type).shape
    axis = known_integer(axis_, "the axis") % max(rank, 1)
    place: Size = 0
    found = []
    for shape in shapes:
        row: list[Size] = [place if k == axis else 0 for k in range(rank)]
        found.append(vector([create("stablehlo.convert", [value_of(n)], scalar) for n in row]))
        place = plus(place, elements(sizes, shape)[axis])
    return found


# -- gradients of broadcasts -----------------------------------------------------------------------


def join_sums_to_shapes(module: ir.Module, prefix: str) -> None:
    """Write `SumTo` for each sum along the dimensions that `BroadcastGradientArgs` gives."""
    for op in ops_of(module, f"{prefix}Reshape"):
        total = producer(op.operands[0])
        if total is None or total.name != f"{prefix}Sum":
            continue
        axes = producer(total.operands[1])
        if axes is None or axes.name != f"{prefix}BroadcastGradientArgs":
            continue
        with ir.InsertionPoint(op), op.location:
            new = ir.Operation.create(
                f"{prefix}SumTo",
                results=[op.results[0].type],
                operands=[total.operands[0], op.operands[1]],
            )
        op.results[0].replace_all_uses_with(new.results[0])
        op.erase()
        for unused in (total, axes):
            if not any(list(value.uses) for value in unused.results):
                unused.erase()


def sum_to(sizes: Sizes, op: ir.Operation) -> Values:
    """`SumTo(array, shape)`: the sums over what was broadcast from `shape`; see above."""
    array, shape = op.operands
    kind = result(op)
    own = sizes_of(array)
    wanted: list[Size] = [
        size if kind.is_dynamic_dim(k) else int(kind.get_dim_size(k))
        for k, size in enumerate(elements(sizes, shape))
    ]
    added = len(own) - len(wanted)
    inner: list[Size] = list(own[:added])
    axes = list(range(added))
    for have, want in zip(own[added:], wanted, strict=True):
        if have == 1 or same_size(sizes, have, want):
            inner.append(have)
        elif want == 1:
            axes.append(len(inner))
            inner.append(have)
        else:
            axes.append(len(inner) + 1)
            inner += [want, quotient(have, larger(want, 1))]
    if not axes:
        return [reshaped(array, wanted)]
    return [reshaped(summed(reshaped(array, inner), axes), wanted)]

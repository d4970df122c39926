"""A complex array as two real arrays of its shape: its real and its imaginary plane.

In memory a complex array is an array of pairs: `tensor<?xcomplex<f32>>` is `tensor<?x2xf32>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from shlo_disc.base.records import dataclass
from shlo_disc.ingest.size_values import scalar_type
from shlo_disc.ir.builders import broadcast, create, dimension, integer, vector
from shlo_disc.ir.mlir import ir


@dataclass(frozen=True)
class Planes:
    """The real and the imaginary part of one complex value, both of one type."""

    re: ir.Value
    im: ir.Value
    pairs: ir.Value | None = field(default=None, compare=False)
    """The same numbers as an array of pairs, where the program has it already."""

    @property
    def type(self) -> ir.RankedTensorType:
        """The type of each plane."""
        return ir.RankedTensorType(self.re.type)


def is_complex(kind: ir.Type) -> bool:
    """True for a ranked tensor of complex numbers."""
    return isinstance(kind, ir.RankedTensorType) and isinstance(kind.element_type, ir.ComplexType)


def plane_type(kind: ir.Type) -> ir.RankedTensorType:
    """The type of one plane of a complex tensor type; any other type is itself."""
    if not is_complex(kind):
        return kind
    tensor = ir.RankedTensorType(kind)
    return ir.RankedTensorType.get(
        tensor.shape, ir.ComplexType(tensor.element_type).element_type, tensor.encoding
    )


def pairs_type(kind: ir.Type) -> ir.RankedTensorType:
    """The type of a complex tensor's memory: a last dimension of size 2."""
    plane = ir.RankedTensorType(plane_type(kind))
    return ir.RankedTensorType.get([*plane.shape, 2], plane.element_type)


def flat_types(kinds: Iterable[ir.Type]) -> list[ir.Type]:
    """These types with two planes in the place of each complex one."""
    return [t for kind in kinds for t in ([plane_type(kind)] * (2 if is_complex(kind) else 1))]


def planes_of(pairs: ir.Value) -> Planes:
    """The planes of an array of pairs: slices of its last dimension."""
    last = ir.RankedTensorType(pairs.type).rank - 1
    return Planes(taken(pairs, last, 0), taken(pairs, last, 1), pairs)


def pairs_of(z: Planes) -> ir.Value:
    """The array of pairs of two planes."""
    return joined(z.re, z.im, z.type.rank) if z.pairs is None else z.pairs


def joined(a: ir.Value, b: ir.Value, axis: int) -> ir.Value:
    """Two arrays of one type as one: a new dimension of size 2 at `axis`."""
    kind = ir.RankedTensorType(a.type)
    shape = [*kind.shape[:axis], 2, *kind.shape[axis:]]
    return create(
        "stablehlo.concatenate",
        [_column(a, axis), _column(b, axis)],
        ir.RankedTensorType.get(shape, kind.element_type),
        dimension=axis,
    )


def _column(x: ir.Value, axis: int) -> ir.Value:
    """`x` with a dimension of size 1 at `axis`."""
    kind = ir.RankedTensorType(x.type)
    shape = [*kind.shape[:axis], 1, *kind.shape[axis:]]
    dims = [*range(axis), *range(axis + 1, kind.rank + 1)]

    def sizes() -> ir.Value:
        known = [dimension(x, k) for k in range(kind.rank)]
        return vector([*known[:axis], integer(1, scalar_type(32)), *known[axis:]])

    return broadcast(x, dims, ir.RankedTensorType.get(shape, kind.element_type), sizes)


def taken(x: ir.Value, axis: int, which: int) -> ir.Value:
    """The elements of `x` at one index of `axis`, without that dimension."""
    kind = ir.RankedTensorType(x.type)
    shape, rank = list(kind.shape), kind.rank
    taken = ir.RankedTensorType.get([*shape[:axis], *shape[axis + 1 :]], kind.element_type)
    if kind.has_static_shape:
        column = [*shape[:axis], 1, *shape[axis + 1 :]]
        limits = [*shape[:axis], which + 1, *shape[axis + 1 :]]
        piece = create(
            "stablehlo.slice",
            [x],
            ir.RankedTensorType.get(column, kind.element_type),
            start_indices=[which * (k == axis) for k in range(rank)],
            limit_indices=limits,
            strides=[1] * rank,
        )
        return create("stablehlo.reshape", [piece], taken)
    # A `slice` has static sizes. `fold-gathers` makes a slice of this gather.
    start = integer(which, ir.RankedTensorType.get([1], ir.IntegerType.get_signless(32)))
    one = integer(1, scalar_type(32))
    sizes = vector([one if k == axis else dimension(x, k) for k in range(rank)])
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {list(range(rank - 1))}, "
        f"collapsed_slice_dims = [{axis}], start_index_map = [{axis}]>"
    )
    return create(
        "stablehlo.dynamic_gather",
        [x, start, sizes],
        taken,
        dimension_numbers=numbers,
        indices_are_sorted=True,
    )

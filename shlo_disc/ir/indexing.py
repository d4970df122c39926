"""The dimensions of a `gather` or `scatter`, said once.

    gather  %x[v x d], %places[b x 1] -> [b x d]            window_dims (1,), collapsed_dims (0,),
    scatter %x[v x d], %places[b x 1], %updates[b x d]      indexed_dims (0,), index_vector_dim 1

Both ops relate windows of an array, the *operand*, to places. The other array, the result of a
gather or the updates of a scatter, is the *slices*.

Source: gather and scatter in the StableHLO specification.
"""

from __future__ import annotations

from shlo_disc.base.records import dataclass
from shlo_disc.ir.mlir import ir, stablehlo


@dataclass(frozen=True)
class IndexNumbers:
    """How the dimensions of operand, places and slices go together."""

    window_dims: tuple[int, ...]
    """Of the slices: inside a window. The others run over the places."""
    collapsed_dims: tuple[int, ...]
    """Of the operand: the window has one element there, and the slices lack the dimension."""
    batching_dims: tuple[int, ...]
    """Of the operand: they run with `index_batching_dims` of the places."""
    index_batching_dims: tuple[int, ...]
    indexed_dims: tuple[int, ...]
    """Of the operand: which one each number of a place is an index of."""
    index_vector_dim: int
    """Of the places: the numbers of one place. Equal to their rank: one number, no dimension."""

    def kept_dims(self, rank: int) -> tuple[int, ...]:
        """The dimensions of an operand of `rank` that `window_dims` are, in their order."""
        gone = {*self.collapsed_dims, *self.batching_dims}
        return tuple(d for d in range(rank) if d not in gone)

    def place_dims(self, rank: int) -> tuple[int, ...]:
        """The dimensions of places of `rank` that count places."""
        return tuple(d for d in range(rank) if d != self.index_vector_dim)


def gather_numbers(op: ir.Operation) -> IndexNumbers:
    """Of a `gather` or `dynamic_gather`."""
    n = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    return IndexNumbers(
        tuple(n.offset_dims),
        tuple(n.collapsed_slice_dims),
        tuple(n.operand_batching_dims),
        tuple(n.start_indices_batching_dims),
        tuple(n.start_index_map),
        int(n.index_vector_dim),
    )


def scatter_numbers(op: ir.Operation) -> IndexNumbers:
    """Of a `scatter`."""
    n = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    return IndexNumbers(
        tuple(n.update_window_dims),
        tuple(n.inserted_window_dims),
        tuple(n.input_batching_dims),
        tuple(n.scatter_indices_batching_dims),
        tuple(n.scattered_dims_to_operand_dims),
        int(n.index_vector_dim),
    )


def scatter_attribute(numbers: IndexNumbers) -> ir.Attribute:
    """The attribute that :func:`scatter_numbers` reads."""
    return stablehlo.ScatterDimensionNumbers.get(
        list(numbers.window_dims),
        list(numbers.collapsed_dims),
        list(numbers.batching_dims),
        list(numbers.index_batching_dims),
        list(numbers.indexed_dims),
        numbers.index_vector_dim,
    )

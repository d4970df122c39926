"""Gather: which element of the operand an index of the result means."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.attributes import integers
from shlo_disc.ir.indexing import gather_numbers
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.values.elemental import Elemental, as_index
from shlo_disc.lower.values.elements import Op, element_of
from shlo_disc.lower.values.index import Index, Ix
from shlo_disc.lower.values.index_propagation import OWN, assemble, carry
from shlo_disc.lower.values.typed import IndexValue, Mask, Register


def gather(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    """The rule of gather and dynamic_gather."""
    operand, starts = op.operands[0], op.operands[1]
    numbers = gather_numbers(op)
    sizes, start_sizes, out = e.shape(operand), e.shape(starts), e.shape(value)
    offset_dims, offset_of = numbers.window_dims, numbers.kept_dims(len(sizes))
    removed = {*numbers.collapsed_dims, *numbers.batching_dims}
    windows = _windows(e, op, value, offset_dims, offset_of, removed)
    # A window as large as its dimension starts at 0: its index passes through.
    moving = set(numbers.indexed_dims)
    mapping = [OWN] * len(out)
    for d, o in zip(offset_dims, offset_of, strict=True):
        if o not in moving or e.space.same(windows[o], sizes[o]):
            mapping[d] = o if e.space.same(out[d], sizes[o]) else OWN
    groups, own = carry(e, index, mapping)
    batch = [own[d] for d in range(len(out)) if d not in offset_dims]
    vector_dim = numbers.index_vector_dim
    b, space = e.b, e.space
    dims: dict[int, Ix] = {}
    for d, o in zip(offset_dims, offset_of, strict=True):
        if mapping[d] == OWN:
            dims[o] = own[d]
    start_dims = numbers.place_dims(len(start_sizes))
    for o, s in zip(numbers.batching_dims, numbers.index_batching_dims, strict=True):
        dims[o] = batch[start_dims.index(s)]
    for k, o in enumerate(numbers.indexed_dims):
        if space.same(windows[o], sizes[o]):
            continue
        at = list(batch)
        if vector_dim < len(start_sizes):
            at.insert(vector_dim, space.uniform(b.index(k)))
        raw, last = _known_start(e, starts, at), sizes[o] - windows[o]
        if raw is None:
            register = e.value_at(starts, space.of_dims(start_sizes, at), mask)
            clamped = e.clamped(register, element_of(starts), last)
        else:
            clamped = b.max(b.min(raw, b.param(last)), 0)
        here = space.uniform(clamped)
        dims[o] = space.add(here, dims[o]) if o in dims else here
    for o in range(len(sizes)):
        if (
            o not in groups
            and o not in dims
            and not any(g <= o < g + len(groups[g].sizes) for g in groups)
        ):
            dims[o] = space.zero()
    return e.value_at(operand, assemble(sizes, groups, dims), mask)


def _known_start(e: Elemental, starts: ir.Value, at: Sequence[Ix]) -> IndexValue | None:
    """Element `at` of constant starts, where the place is known, too."""
    known = e.constants(starts)
    if known is None or not all(ix.is_uniform and ix.base.known is not None for ix in at):
        return None
    place = 0
    for size, ix in zip(e.shape(starts), at, strict=True):
        place = place * size.value + (ix.base.known or 0)
    return e.b.param(as_index(known[place]))


def _windows(
    e: Elemental,
    op: ir.Operation,
    value: ir.Value,
    offset_dims: Sequence[int],
    offset_of: Sequence[int],
    removed: set[int],
) -> dict[int, Expr]:
    """The slice size of every operand dimension: 1 where removed, else that of the result."""
    out = e.shape(value)
    windows = {o: out[d] for d, o in zip(offset_dims, offset_of, strict=True)}
    if "slice_sizes" in op.attributes:
        static = integers(op, "slice_sizes")
        return windows | {o: Expr.const(static[o]) for o in removed}
    # Removed dimensions have slice size 1 (or 0, and then the result is empty).
    return windows | {o: Expr.const(1) for o in removed}

"""Which operand dimension a dimension of the result passes through to: indices of moved values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.index import Group, Index, Ix

DROP = -1
"""In a mapping: this result dimension is not asked of the operand."""
OWN = -2
"""In a mapping: this result dimension needs an index of its own."""


def carry(
    e: Elemental, index: Index, mapping: Sequence[int]
) -> tuple[dict[int, Group], dict[int, Ix]]:
    """(groups by the operand dimension they start at, own indices by result dimension)."""
    cuts = [d + 1 for d in range(len(mapping) - 1) if not _together(mapping[d], mapping[d + 1])]
    groups: dict[int, Group] = {}
    own: dict[int, Ix] = {}
    d = 0
    for group in e.space.cut(index, cuts):
        if not group.sizes:
            continue
        if mapping[d] == OWN:
            own[d] = e.space.force(group.at)
        elif mapping[d] != DROP:
            groups[mapping[d]] = group
        d += len(group.sizes)
    return groups, own


def _together(a: int, b: int) -> bool:
    return (a == DROP and b == DROP) or (a >= 0 and b == a + 1)


def assemble(sizes: Sequence[Expr], groups: dict[int, Group], dims: dict[int, Ix]) -> Index:
    """The operand's index from runs that passed through and indices computed per dimension."""
    out: list[Group] = []
    d = 0
    while d < len(sizes):
        if d in groups:
            run = groups[d]
            out.append(Group(tuple(sizes[d : d + len(run.sizes)]), run.at))
            d += len(run.sizes)
        else:
            # The operand's size may differ, so the index no longer counts tile factors exactly.
            out.append(Group((sizes[d],), replace(dims[d], tile=None)))
            d += 1
    return tuple(out)

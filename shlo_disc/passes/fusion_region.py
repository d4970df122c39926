"""What a cluster will be as a fusion: its region, and the record of it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from shlo_disc.mlir import ir
from shlo_disc.passes.fusion_graph import Cluster, Graph
from shlo_disc.passes.op_classes import FREE, MATERIALIZED_OPERANDS, is_splat_constant
from shlo_disc.passes.records import Record, match
from shlo_disc.passes.region import Region

__all__ = ["Regions"]

_NONE: frozenset[int] = frozenset()

_GROWN = frozenset({"attention", "conv", "dense", "dynamic_update_slice", "scatter"})
"""Kinds to which ops are joined only if there is a record of them. What joins a `row` or `column`
is looked at op by op (`plan_rows.py`), any ops over one space are a `loop`."""


@dataclass
class _Contents:
    """A fusion being put together."""

    done: set[ir.Value]
    """Values that were looked at."""
    again: set[ir.Value]
    """Those of other fusions that are computed once more."""
    clone_free: bool
    """Are free ops computed in it, too?"""
    sequence: list[ir.Operation] = field(default_factory=list)
    inputs: dict[ir.Value, None] = field(default_factory=dict)


class Regions(Graph):
    """Knows what the fusions of its clusters will contain."""

    _cloned: dict[int, list[Cluster]] | None = None
    """The clusters that compute the value of a node of another cluster again."""

    def replace(self, union: Cluster, *parts: Cluster) -> None:
        """See `Graph`."""
        super().replace(union, *parts)
        if union.clones or any(part.clones for part in parts):
            self._cloned = None

    def misfit(self, union: Cluster, *parts: Cluster) -> str | None:
        """See `Graph`; also where its kind has no record of these ops."""
        if union.kind in _GROWN:
            clones = union.clones.union(*(part.clones for part in parts))
            region = self.region(union.members, clones, given=union.given)
            if isinstance(found := match(union.kind, region), str):
                return found
        return super().misfit(union, *parts)

    def record(self, cluster: Cluster) -> Record | str:
        """The record of a cluster; or why there is none."""
        region = self.region(cluster.members, cluster.clones, given=cluster.given)
        return match(cluster.kind, region)

    def region(
        self,
        members: AbstractSet[int],
        clones: AbstractSet[int] = _NONE,
        *,
        clone_free: bool = True,
        given: int = -1,
    ) -> Region:
        """What a fusion of these nodes contains.

        `clones`: nodes of other clusters that are computed in it once more. `clone_free`: are free
        ops computed in it, too? `given`: the node whose value row work behind a product reads.
        """
        ops = [self.nodes[i].op for i in sorted(members)]
        results = tuple(r for op in ops for r in op.results if self._escapes(r, members))
        again = {result for i in clones for result in self.nodes[i].op.results}
        contents = _Contents({result for op in ops for result in op.results}, again, clone_free)
        for op in ops:
            materialized = MATERIALIZED_OPERANDS.get(op.name, ())
            for position, value in enumerate(op.operands):
                self._need(value, contents, hard=position in materialized)
            contents.sequence.append(op)
        of = None if given < 0 else self.nodes[given].op.results[0]
        return Region(tuple(contents.sequence), tuple(contents.inputs), results, self.shapes, of)

    def _need(self, value: ir.Value, contents: _Contents, *, hard: bool) -> None:
        """Have `value` in a fusion: computed there, or as an input."""
        if value in contents.done:
            return
        contents.done.add(value)
        owner = value.owner
        op = None if isinstance(owner, ir.Block) else owner.operation
        metadata = op is not None and op.name == "disc.shape"
        free = op is not None and (op.name in FREE or is_splat_constant(op))
        free = free or value in contents.again or value in self.recomputed
        if metadata or (free and contents.clone_free and not hard):
            assert op is not None
            for operand in op.operands:
                self._need(operand, contents, hard=False)
            contents.sequence.append(op)
        else:
            contents.inputs[value] = None

    def _escapes(self, result: ir.Value, inside: AbstractSet[int]) -> bool:
        """Is `result` read by anything that is not cloned into this or another kernel?"""
        made = self.of_value[result]
        stack = [result]
        while stack:
            for use in stack.pop().uses:
                owner = use.owner.operation
                index = self.of_value.get(owner.results[0]) if len(owner.results) else None
                if index in inside or self._computes(index, made):
                    if index is not None and self._is_read_by_clones(index, made, inside):
                        return True
                    continue
                if index is None or self.nodes[index].role != "free" or index in self.needed:
                    return True
                stack.extend(owner.results)
        return False

    def _is_read_by_clones(self, reader: int, made: int, inside: AbstractSet[int]) -> bool:
        """Does another kernel compute the value of `reader` again, but not that of `made`?"""
        if self._cloned is None:
            self._cloned = {}
            for cluster in dict.fromkeys(self.cluster_of.values()):
                for index in cluster.clones:
                    self._cloned.setdefault(index, []).append(cluster)
        return any(
            made not in cluster.clones and not cluster.members <= inside
            for cluster in self._cloned.get(reader, ())
        )

    def _computes(self, reader: int | None, made: int) -> bool:
        """Does the cluster of a node compute the value of another by itself?"""
        cluster = None if reader is None else self.cluster_of.get(reader)
        return cluster is not None and made in cluster.clones

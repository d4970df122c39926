"""Which ops share a kernel: the part of the fusion planner's state that changes.

A *cluster* is a set of nodes of a `Graph` that will be one fusion. `Partition` knows the cluster of
every node, what the fusion of a cluster would contain, and whether clusters wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from types import MappingProxyType

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.memory import value_bytes
from shlo_disc.dynamic.reductions import reduction_runs
from shlo_disc.ir.mlir import ir, producer, reads
from shlo_disc.ir.ops import ffi
from shlo_disc.passes.fusion.graph import Graph, Node, Shape, squeezed
from shlo_disc.passes.op_classes import (
    FREE,
    RESHAPES,
    is_splat_constant,
)
from shlo_disc.passes.records import Record, match
from shlo_disc.passes.region import Region
from shlo_disc.passes.spans import Spans

_NONE: frozenset[int] = frozenset()


@dataclass(eq=False)
class Cluster:
    """Ops that will share a kernel."""

    kind: str
    space: Shape
    reduced: tuple[int, ...] = ()
    """Kinds `row` and `column`: the dimensions of `space` that are reduced."""
    members: set[int] = field(default_factory=set)
    span: tuple[int, int] = (0, 0)
    """The oldest and the youngest member; kept for clusters of more than one."""
    clones: set[int] = field(default_factory=set)
    """Nodes of other clusters that are computed here once more."""
    in_place: set[int] = field(default_factory=set)
    """Nodes of other clusters whose values are read in memory, through slices and transposes."""
    because: list[str] = field(default_factory=list)
    """Decisions of the cost model, for `explain()`."""
    given: int = -1
    """Kind `dense` with rows: the node whose value the row work reads."""

    @property
    def runs(self) -> list[Shape]:
        """The sizes of `space` that are kept, reduced, kept, ... in turn, without units."""
        return reduction_runs(self.space, self.reduced)

    def inherit(self, *parts: Cluster) -> Cluster:
        """Take over what was decided for clusters this one is made of; returns itself."""
        for part in parts:
            self.clones |= part.clones
            self.in_place |= part.in_place
            self.because += [note for note in part.because if note not in self.because]
        return self


@dataclass
class _Contents:
    """A fusion being put together."""

    done: set[ir.Value]
    """Values that were looked at."""
    again: set[ir.Value]
    """Those of other fusions that are computed once more."""
    clone_free: bool
    """True if free ops are computed in it, too."""
    sequence: list[ir.Operation] = field(default_factory=list)
    inputs: dict[ir.Value, None] = field(default_factory=dict)


class Partition:
    """The clusters of one block, and the reasons why they are not larger."""

    def __init__(self, graph: Graph, parts: Mapping[int, int] = MappingProxyType({})) -> None:
        self.graph = graph
        self.parts = parts
        """Node to part: clusters do not reach across parts. All are in one where it is empty."""
        self.cluster_of: dict[int, Cluster] = {}
        self.kept: set[int] = set()
        """Nodes whose values other kernels read to compute something again."""
        self.dropped: set[int] = set()
        """Nodes whose values every reader in another kernel computes again."""
        self.why: dict[tuple[int, int], str] = {}
        """Why the second node does not share a kernel with the first, whose value it reads."""
        self._spans = Spans(len(graph.nodes))
        """Of the clusters of more than one member."""
        self._levels: dict[tuple[Shape, Shape, tuple[int, ...]], str | None] = {}
        self._known_in_space: dict[tuple[Shape, tuple[int, ...]], dict[tuple[int, int], bool]] = {}
        self._cloned: dict[int, list[Cluster]] | None = None
        """The clusters that compute the value of a node of another cluster again."""

    def begin(self, cluster: Cluster) -> None:
        """`cluster`, whose nodes are in no other one yet, is in the partition."""
        self.cluster_of.update(dict.fromkeys(cluster.members, cluster))

    def replace(self, union: Cluster, *parts: Cluster) -> None:
        """`union` takes the place of clusters it is made of."""
        union.span = (min(union.members), max(union.members))
        self._spans.add(*union.span)
        self.begin(union)
        if union.clones or any(part.clones for part in parts):
            self._cloned = None

    def again(self, chain: AbstractSet[int], readers: Sequence[Cluster], note: str) -> None:
        """Every cluster of `readers` computes the nodes of `chain` once more, as `note` says."""
        for reader in readers:
            reader.clones |= chain
            reader.because.append(note)
        self._cloned = None

    def apart(self, source: int, readers: AbstractSet[int], reason: str) -> None:
        """Keep why `readers` are not in the kernel of `source`."""
        self.why.update(dict.fromkeys([(source, reader) for reader in readers], reason))

    def bytes_of(self, value: ir.Value) -> Expr:
        """Bytes of a value in memory."""
        return value_bytes(value, self.graph.shapes)

    def outside_users(self, cluster: Cluster) -> set[int]:
        """The nodes outside that read its values."""
        users: set[int] = set()
        for index in cluster.members:
            users |= self.graph.nodes[index].users
        return users - cluster.members

    def acyclic(self, members: set[int]) -> bool:
        """No path leaves `members` and comes back, clusters counting as one node."""
        # A path back ends in an op younger than the oldest member; an older op can only lead to
        # one through a cluster that spans that age.
        low = self._spans.oldest(min(members))
        stack = [i for m in members for i in self.graph.origins(m) if i not in members]
        seen: set[int] = set()
        while stack:
            index = stack.pop()
            if index in members:
                return False
            if index < low or index in seen:
                continue
            cluster = self.cluster_of.get(index)
            group = {index} if cluster is None or cluster.members <= members else cluster.members
            seen |= group
            stack.extend(i for m in group for i in self.graph.origins(m) if i not in group)
        return True

    def level(self, shape: Shape, row: Cluster) -> str | None:
        """How a value of `shape` lies in the space of a row or column cluster; None: not at all.

        "full": the shape is the space. "flat": as many elements in other dimensions. "row": one
        element for each row, or column.
        """
        key = (shape, row.space, row.reduced)  # whose hash takes most of the time
        found = self._levels.get(key, "")
        if found == "":
            found = None
            if self.graph.same(squeezed(shape), squeezed(row.space)):
                found = "full"
            elif self.graph.same(
                squeezed(shape), tuple(size for run in row.runs[::2] for size in run)
            ):
                found = "row"
            elif self.graph.shapes.constraints.product_equal(shape, row.space):
                found = "flat"
            self._levels[key] = found
        return found

    def known_in_space(self, row: Cluster) -> dict[tuple[int, int], bool]:
        """What `rows.py` knows of nodes and their reads in the space of a row or column cluster."""
        return self._known_in_space.setdefault((row.space, row.reduced), {})

    def only_units_change(
        self, base: ir.Value, chain: Sequence[ir.Operation], row: Cluster
    ) -> bool:
        """True if `chain` gives every element of the full value `base` its own place."""
        values = [base, *(op.results[0] for op in chain)]
        return all(op.name in RESHAPES for op in chain) and all(
            self.level(self.graph.shapes.shape(v), row) in ("full", "flat") for v in values
        )

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

        `clones`: nodes of other clusters that are computed in it once more. `clone_free`: free ops
        are computed in it, too. `given`: the node whose value row work behind a product reads.
        """
        nodes = [self.graph.nodes[i] for i in sorted(members)]
        last = sorted(nodes, key=lambda node: node.index in self.graph.flags)  # flags come last
        made = {node.index: tuple(node.op.results) for node in nodes}
        results = tuple(r for n in last for r in made[n.index] if self._escapes(r, n, members))
        again = {result for i in clones for result in self.graph.nodes[i].op.results}
        contents = _Contents({r for own in made.values() for r in own}, again, clone_free)
        for node in nodes:
            for position, value in enumerate(reads(node.op)):
                self._need(value, contents, hard=position in node.in_memory)
            contents.sequence.append(node.op)
        of = None if given < 0 else self.graph.nodes[given].op.results[0]
        return Region(
            tuple(contents.sequence), tuple(contents.inputs), results, self.graph.shapes, of
        )

    def _need(self, value: ir.Value, contents: _Contents, *, hard: bool) -> None:
        """Have `value` in a fusion: computed there, or as an input."""
        if value in contents.done:
            return
        contents.done.add(value)
        op = producer(value)
        name = "" if op is None else op.name
        metadata = name == "disc.shape"
        free = name in FREE or (op is not None and is_splat_constant(op))
        free = free or value in contents.again or value in self.graph.recomputed
        if metadata or (free and contents.clone_free and not hard):
            assert op is not None
            for operand in op.operands:
                self._need(operand, contents, hard=False)
            contents.sequence.append(op)
        else:
            contents.inputs[value] = None

    def _escapes(self, result: ir.Value, node: Node, inside: AbstractSet[int]) -> bool:
        """True if something reads `result` of `node` that no kernel clones, this one or another.

        The results of a call with an effect escape anyway: the call must stay.
        """
        made = node.index
        if ffi.has_effect(node.op):
            return True
        stack = [result]
        while stack:
            for use in stack.pop().uses:
                owner = use.owner.operation
                index = self.graph.of_value.get(owner.results[0]) if len(owner.results) else None
                if index in inside or self._computes(index, made):
                    if index is not None and self._is_read_by_clones(index, made, inside):
                        return True
                    continue
                if (
                    index is None
                    or self.graph.nodes[index].role != "free"
                    or index in self.graph.needed
                ):
                    return True
                stack.extend(owner.results)
        return False

    def _is_read_by_clones(self, reader: int, made: int, inside: AbstractSet[int]) -> bool:
        """True if another kernel computes the value of `reader` again, but not that of `made`."""
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
        """True if the cluster of node `reader` computes the value of node `made` itself."""
        cluster = None if reader is None else self.cluster_of.get(reader)
        return cluster is not None and made in cluster.clones

"""What fusing pays: the decisions of the planner that are a matter of cost, not of legality.

Memory-bound kernels take the time of the bytes they move, a small kernel that of its launch. So

* a value is computed again by every kernel that reads it, and never stored, when computing it is
  cheap and takes no more bytes of inputs than the value has (`recompute`): a slice always is;
* a scatter computes cheap work on its updates (`update_work`);
* small kernels over one static shape share a launch, though none reads from another (`side by
  side`).

Sizes are symbolic: a decision is made when the constraints prove it, else the value is stored and
kernels stay apart.
"""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.memory import value_bytes
from shlo_disc.mlir import ir
from shlo_disc.passes.fusion_graph import (
    Cluster,
    Node,
    Shape,
    opaque_kind,
)
from shlo_disc.passes.fusion_region import Regions
from shlo_disc.passes.op_classes import EXPENSIVE, GATHERS, MATERIALIZED_OPERANDS, RESHAPES
from shlo_disc.passes.plan_updates import is_run
from shlo_disc.passes.rules import takes_one_window

__all__ = ["Costs"]

_UPDATES = {"stablehlo.dynamic_update_slice": 1, "stablehlo.scatter": 2}
"""Ops that write into an array, and which operand they write; scatters of one array."""


class Costs(Regions):
    """Decides what is recomputed and what shares a launch; `Planner` has made the clusters."""

    def bytes_of(self, value: ir.Value) -> Expr:
        """Bytes of a value in memory."""
        return value_bytes(value, self.shapes)

    def recompute(self) -> None:
        """Values that are cheaper computed by every reader outside their kernel than stored."""
        dropped: set[int] = set()
        kept = self.kept
        for node in self.nodes:
            cluster = self.cluster_of.get(node.index)
            if cluster is None or cluster.kind not in ("loop", "row") or node.index in kept:
                continue
            readers = self._readers(node, cluster)
            chain = self._chain(node, cluster)
            if not readers or chain is None or chain & cluster.clones:
                continue
            values = self._input_values(chain)
            sources = {self.of_value.get(v, -1) for v in values}
            if sources & dropped or any(
                chain & (reader.clones | self.read_in_memory(reader.members)) for reader in readers
            ):
                continue
            inputs = self._bytes_read(chain)
            stored = self.bytes_of(node.op.results[0])
            if not self.shapes.constraints.at_least(stored, inputs):
                continue
            ops = [self.nodes[i].op.name.split(".", 1)[1] for i in sorted(chain)]
            note = (
                f"{', '.join(dict.fromkeys(ops))} computed again here: reads {inputs} bytes, "
                f"stored it would be {stored}"
            )
            dropped.add(node.index)
            kept |= sources
            for reader in readers:
                reader.clones |= chain
                reader.because.append(note)
        self._cloned = None

    def _readers(self, node: Node, cluster: Cluster) -> list[Cluster]:
        """The other clusters that read a value, if all of them could compute it; else none."""
        readers: list[Cluster] = []
        for index in node.users - cluster.members:
            reader = self.cluster_of.get(index)
            if reader is None or reader.kind not in ("loop", "row"):
                return []
            materialized = MATERIALIZED_OPERANDS.get(self.nodes[index].op.name, ())
            for position, value in enumerate(self.nodes[index].operands):
                for base, chain in self.bases(value):
                    if self.of_value.get(base) != node.index:
                        continue
                    # Broadcast, it would be computed several times an element; a slice is a load
                    # in either case.
                    spread = any(op.name not in RESHAPES for op in chain) and not _is_slice(node)
                    if spread or position in materialized:
                        return []
            if self.inputs(reader.members | {node.index}) >= self.machine.most_inputs:
                return []
            if reader not in readers:
                readers.append(reader)
        return readers

    def _chain(self, node: Node, cluster: Cluster) -> set[int] | None:
        """The cheap ops that compute a value from the inputs of its cluster; None: others do."""
        chain: set[int] = set()
        stack = [node.index]
        while stack:
            index = stack.pop()
            if index in chain:
                continue
            op = self.nodes[index].op
            chain.add(index)
            if _is_slice(self.nodes[index]):
                # It is a load: what it reads must be in memory, and its start given.
                values = self.nodes[index].operands
                bases = (base for value in values for base, _ in self.bases(value))
                if any(self.of_value.get(base, -1) in cluster.members for base in bases):
                    return None
                continue
            if self.nodes[index].role != "elementwise" or op.name in EXPENSIVE:
                return None
            if len(chain) > self.machine.cheap_ops:
                return None
            for value in self.nodes[index].operands:
                sources = {self.of_value.get(base, -1) for base, _ in self.bases(value)}
                stack.extend(sources & cluster.members)
        return chain

    def _input_values(self, chain: set[int]) -> set[ir.Value]:
        return {
            base
            for index in chain
            for value in self.nodes[index].operands
            for base, _ in self.bases(value)
            if self.of_value.get(base) not in chain
        }

    def _bytes_read(self, chain: set[int]) -> Expr:
        """What computing a chain reads; of what it slices, the slices."""
        slices = {i for i in chain if _is_slice(self.nodes[i])}
        values = self._input_values(chain - slices)
        if not values:
            values = {result for i in slices for result in self.nodes[i].op.results}
        return sum((self.bytes_of(value) for value in values), Expr.const(0))

    def update_work(self) -> None:
        """A scatter, or a `dynamic_update_slice` whose update is no run of memory, computes cheap
        element-wise work on its update.
        """
        for node in self.nodes:
            if node.op.name not in _UPDATES or node.index in self.cluster_of:
                continue
            position = _UPDATES[node.op.name]
            one = len(node.op.results) == 1
            base, chain = next(self.bases(node.operands[position]), (None, []))
            if base is None or any(op.name not in RESHAPES for op in chain):
                continue
            source = self.of_value.get(base, -1)
            work = self.cluster_of.get(source)
            if work is None or work.kind != "loop" or not one:
                continue
            kind = opaque_kind(node.op)
            union = Cluster(kind, node.shapes[0], members={node.index} | work.members)
            reason = self._no_update_work(work, node, source) or self.misfit(union)
            if reason is None:
                union.inherit(work)
                self.replace(union, work)
            else:
                self.why[source, node.index] = reason

    def _no_update_work(self, work: Cluster, node: Node, source: int) -> str | None:
        """Why `work`, whose value `source` is the update of `node`, is a kernel of its own."""
        nodes = [self.nodes[i] for i in work.members]
        outer = [n.index for n in nodes if n.users - work.members]
        alone = outer == [source] and self.outside_users(work) == {node.index}
        if not alone or work.members & self.kept:
            return "it is read at other places, too"
        if node.op.name == "stablehlo.dynamic_update_slice" and is_run(node.op, self.shapes):
            return "it is computed where it belongs"
        if len(nodes) > self.machine.cheap_ops or any(
            n.role not in ("elementwise", "moving") or n.op.name in EXPENSIVE for n in nodes
        ):
            return "updates that may meet follow each other: costly work would wait for them"
        return None

    def side_by_side(self) -> None:
        """Small loop clusters over one static shape become one; so do column clusters that sum up
        equally many rows to small static results.
        """
        groups: dict[tuple[str, Shape, tuple[Shape, ...]], list[Cluster]] = {}
        for cluster in dict.fromkeys(self.cluster_of.values()):
            sizes = _small_results(cluster, self.machine.small_elements)
            if sizes:
                key = (cluster.kind, sizes, tuple(cluster.runs[1::2]))
                groups.setdefault(key, []).append(cluster)
        for (_, sizes, _), group in groups.items():
            union = group[0]
            for cluster in group[1:]:
                members = union.members | cluster.members
                both = Cluster(union.kind, union.space, union.reduced, members)
                both.inherit(union, cluster)
                if self.misfit(both) is not None or both.clones & both.members:
                    continue
                text = " x ".join(map(str, sizes))
                note = f"small kernels over {text} elements side by side: launches saved"
                if note not in both.because:
                    both.because.append(note)
                self.replace(both, union, cluster)
                union = both


def _small_results(cluster: Cluster, most: int) -> Shape | None:
    """The sizes of what a loop or column cluster computes, where they are static and small."""
    if cluster.kind not in ("column", "loop"):
        return None
    sizes = tuple(size for run in cluster.runs[::2] for size in run)
    if not sizes or not all(size.is_const for size in sizes):
        return None
    return sizes if Expr.product(sizes).value <= most else None


def _is_slice(node: Node) -> bool:
    """Is an element of it one element of its operand, at an index moved by scalars?"""
    op = node.op
    if op.name in ("stablehlo.dynamic_slice", "stablehlo.real_dynamic_slice", "stablehlo.slice"):
        return True
    return op.name in GATHERS and takes_one_window(op)

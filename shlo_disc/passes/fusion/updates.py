"""Rule `update-work`: a scatter, or a `dynamic_update_slice` whose update is no run of memory,
computes cheap element-wise work on its update.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from shlo_disc.ir.mlir import ir
from shlo_disc.passes.fusion.graph import opaque_kind
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.rule import FusionRule, Merge, Seed
from shlo_disc.passes.op_classes import RESHAPES
from shlo_disc.passes.plan_updates import is_run

_UPDATES = {"stablehlo.dynamic_update_slice": 1, "stablehlo.scatter": 2}
"""Ops that write into an array, and which operand they write; scatters of one array."""


def _seeds(p: Partition) -> Iterator[Seed]:
    for node in p.graph.nodes:
        if node.op.name in _UPDATES and node.index not in p.cluster_of:
            yield (node.index,)


def _match(p: Partition, seed: Seed) -> Iterator[Merge]:
    node = p.graph.nodes[seed[0]]
    update = node.operands[_UPDATES[node.op.name]]
    base, chain = next(iter(p.graph.bases(update)), (None, ()))
    if base is None or any(op.name not in RESHAPES for op in chain):
        return
    source = p.graph.of_value.get(base, -1)
    work = p.cluster_of.get(source)
    if work is None or work.kind != "loop" or len(node.op.results) != 1:
        return
    union = Cluster(opaque_kind(node.op), node.shapes[0], members={node.index} | work.members)
    yield Merge(union, (work,), seed, source, frozenset(seed))


def _why_not(p: Partition, merge: Merge) -> str | None:
    """Why the work on an update is a kernel of its own."""
    graph, (work,), node = p.graph, merge.parts, p.graph.nodes[merge.seed[0]]
    nodes = [graph.nodes[i] for i in work.members]
    outer = [n.index for n in nodes if n.users - work.members]
    alone = outer == [merge.source] and p.outside_users(work) == {node.index}
    if not alone or work.members & p.kept:
        return "it is read at other places, too"
    if _changed(p, node.index) & _bases(p, work.members):
        return "it reads the array, which would have to be copied"
    if node.op.name == "stablehlo.dynamic_update_slice" and is_run(node.op, graph.shapes):
        return "it is computed where it belongs"
    if len(nodes) > graph.costs.cheap_ops or any(
        n.role not in ("elementwise", "data_movement") or graph.costs.is_expensive(n.op)
        for n in nodes
    ):
        return "updates that may meet follow each other: costly work would wait for them"
    return None


def _changed(p: Partition, index: int) -> set[ir.Value]:
    """The arrays that an update changes, and those that these are updates of."""
    found: set[ir.Value] = set()
    waiting = [index]
    while waiting:
        new = _bases(p, {waiting.pop()}, 0) - found
        found |= new
        sources = [p.graph.of_value[value] for value in new if value in p.graph.of_value]
        waiting += [k for k in sources if p.graph.nodes[k].op.name in _UPDATES]
    return found


def _bases(p: Partition, members: AbstractSet[int], *positions: int) -> set[ir.Value]:
    """The values that nodes read, at all `positions` or at these."""
    operands = [p.graph.nodes[index].operands for index in members]
    read = [v for own in operands for v in ([own[k] for k in positions] if positions else own)]
    return {base for value in read for base, _ in p.graph.bases(value)}


rule = FusionRule(
    name="update-work",
    seeds=_seeds,
    match=_match,
    why_not=_why_not,
    place="after products and columns: work on an update is a loop that none of them has taken",
)

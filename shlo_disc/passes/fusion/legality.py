"""What may be one kernel at all, whatever rule asks: the driver asks `misfit` for every union."""

from __future__ import annotations

from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.kinds import KINDS
from shlo_disc.passes.records import match


def misfit(p: Partition, union: Cluster, *parts: Cluster) -> str | None:
    """Why these ops cannot be one kernel; `parts`: what `union` will inherit from."""
    graph = p.graph
    clones = union.clones.union(*(part.clones for part in parts))
    if KINDS[union.kind].grows_by_record:
        region = p.region(union.members, clones, given=union.given)
        if isinstance(found := match(union.kind, region), str):
            return found
    if clones:
        in_place = union.in_place.union(*(part.in_place for part in parts))
        if clones & (in_place | graph.read_in_memory(union.members)):
            return "it is computed again there, where it is read in memory, too"
    if _reads_itself_in_memory(p, union):
        return "it is read in memory, through integers that another kernel computes"
    if len(union.members) > graph.costs.most_ops:
        return f"more than {graph.costs.most_ops} ops"
    if _emits_too_much(p, union):
        most = graph.costs.most_emitted_ops
        return f"more than {most} ops, counted at every index they are computed at"
    if p.parts and len({p.parts[index] for index in union.members}) > 1:
        return "no kernel could be written for both"
    inputs = graph.inputs(union.members)
    if inputs > graph.costs.most_inputs:
        return f"more than {graph.costs.most_inputs} inputs"
    results = sum(
        len(graph.nodes[i].shapes)
        for i in union.members
        if i in p.kept or graph.nodes[i].users - union.members
    )
    if inputs + results > graph.costs.most_arrays:
        return f"more than {graph.costs.most_arrays} arrays read and written"
    if not p.acyclic(union.members):
        return "another kernel stands between them"
    return None


def _reads_itself_in_memory(p: Partition, union: Cluster) -> bool:
    """True if an op needs in memory a value that this kernel would compute.

    Free ops hide such a path from `acyclic`. Integers that one op reads in memory, while another
    computes them itself, are a kernel of their own. Contractions compute their operands.
    """
    readers = p.graph.memory_readers & union.members
    return not union.members.isdisjoint(p.graph.read_in_memory(readers))


def _emits_too_much(p: Partition, union: Cluster) -> bool:
    """True if the text of `union` would be too long: `Costs.most_emitted_ops`."""
    graph, kind = p.graph, KINDS[union.kind]
    if kind.is_contraction or len(union.members) < 3:
        return False
    if all(graph.nodes[i].role == "elementwise" for i in union.members):
        return False
    indices: dict[int, set[int]] = {}
    """Of every member the indices it is computed at, each as a hash of how it came about."""
    total = 0
    for member in sorted(union.members, reverse=True):
        node = graph.nodes[member]
        mine = indices.setdefault(member, set())
        if node.users - union.members:
            mine.add(0)
        total += len(mine)
        if total > graph.costs.most_emitted_ops:
            return True
        same = node.role == "elementwise"
        # A row's reductions are computed once, in a sweep of their own.
        at = {hash((member, -1))} if kind.is_swept and node.role == "loop" else mine
        for read in graph.reads(member):
            if read.source not in union.members:
                continue
            moved = at
            if not same or read.chain:
                value = node.operands[read.position]
                key = (-1, graph.of_value.get(value, -1)) if same else (member, read.position)
                moved = {hash((one, key)) for one in at}
            indices.setdefault(read.source, set()).update(moved)
    return False

"""Rule `recompute`: values that are cheaper computed by every reader than stored.

Memory-bound kernels take the time of the bytes they move. A value is not stored if computing it is
cheap and reads no more bytes than the value has. Every kernel that reads the value then computes it
again. That holds for every slice. Sizes are symbolic: the constraints prove it, or the value is
stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.fusion.graph import Node
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.rule import Again, FusionRule, Seed, never
from shlo_disc.passes.op_classes import GATHERS, RESHAPES
from shlo_disc.passes.rules import takes_one_window


def _seeds(p: Partition) -> Iterator[Seed]:
    for node in p.graph.nodes:
        cluster = p.cluster_of.get(node.index)
        if cluster is not None and cluster.kind in ("loop", "row") and node.index not in p.kept:
            yield (node.index,)


def _match(p: Partition, seed: Seed) -> Iterator[Again]:
    node, cluster = p.graph.nodes[seed[0]], p.cluster_of[seed[0]]
    readers = _readers(p, node, cluster)
    chain = _chain(p, node, cluster)
    if not readers or chain is None or chain & cluster.clones & cluster.members:
        return
    sources = {p.graph.of_value.get(v, -1) for v in _input_values(p, chain)}
    if sources & p.dropped or any(
        chain & p.graph.read_in_memory(reader.members) or chain & reader.clones - cluster.clones
        for reader in readers
    ):
        return
    inputs, stored = _bytes_read(p, chain), p.bytes_of(node.op.results[0])
    if not p.graph.shapes.constraints.at_least(stored, inputs):
        return
    ops = [p.graph.nodes[i].op.name.split(".", 1)[1] for i in sorted(chain)]
    note = (
        f"{', '.join(dict.fromkeys(ops))} computed again here: reads {inputs} bytes, "
        f"stored it would be {stored}"
    )
    yield Again(frozenset(chain), tuple(readers), seed, frozenset(sources), note)


def _readers(p: Partition, node: Node, cluster: Cluster) -> list[Cluster]:
    """The other clusters that read a value, if all of them could compute it; else none."""
    readers: list[Cluster] = []
    for index in node.users - cluster.members:
        reader = p.cluster_of.get(index)
        if reader is None or reader.kind not in ("loop", "row"):
            return []
        its = p.graph.nodes[index]
        for read in p.graph.reads(index):
            if read.source != node.index:
                continue
            # Broadcast, it would be computed several times an element; a slice is a load in
            # either case.
            spread = any(op.name not in RESHAPES for op in read.chain) and not _is_slice(node)
            spread = spread and not _is_mask_of_scores(p, node, reader)
            if spread or read.position in its.in_memory:
                return []
        if p.graph.inputs(reader.members | {node.index}) >= p.graph.costs.most_inputs:
            return []
        if reader not in readers:
            readers.append(reader)
    return readers


def _is_mask_of_scores(p: Partition, node: Node, reader: Cluster) -> bool:
    """True if flags are read by rows whose kernel has scores in registers.

    Of all heads the same, they would be read from memory for every score. A kernel that sees how
    they are computed may know which keys they hide.
    """
    is_flag = str(ir.ShapedType(node.op.results[0].type).element_type) == "i1"
    return is_flag and reader.kind == "row" and p.graph.capabilities.attention.widest is not None


def _chain(p: Partition, node: Node, cluster: Cluster) -> set[int] | None:
    """The cheap ops that compute a value from what its cluster reads in memory; None: others do."""
    chain: set[int] = set()
    stack = [node.index]
    while stack:
        index = stack.pop()
        if index in chain:
            continue
        op = p.graph.nodes[index].op
        chain.add(index)
        if _is_slice(p.graph.nodes[index]):
            # It is a load: what it reads must be in memory or a load, too, and its start given.
            sources = {read.source for read in p.graph.reads(index)}
            if sources & cluster.members:
                return None
            stack.extend(sources & cluster.clones)
            continue
        if p.graph.nodes[index].role != "elementwise" or p.graph.costs.is_expensive(op):
            return None
        if len(chain) > p.graph.costs.cheap_ops:
            return None
        stack.extend(s.source for s in p.graph.reads(index) if s.source in cluster.members)
    return chain


def _input_values(p: Partition, chain: set[int]) -> set[ir.Value]:
    return {
        read.base for index in chain for read in p.graph.reads(index) if read.source not in chain
    }


def _bytes_read(p: Partition, chain: set[int]) -> Expr:
    """What computing a chain reads; of what it slices, the slices."""
    slices = {i for i in chain if _is_slice(p.graph.nodes[i])}
    values = _input_values(p, chain - slices)
    if not values:
        sliced = {read.source for i in slices for read in p.graph.reads(i)}
        values = {result for i in slices - sliced for result in p.graph.nodes[i].op.results}
    return sum((p.bytes_of(value) for value in values), Expr.const(0))


def _is_slice(node: Node) -> bool:
    """True if an element of it is one element of its operand, at an index moved by scalars, or a
    constant behind the last one.
    """
    op = node.op
    if op.name in ("stablehlo.dynamic_slice", "stablehlo.real_dynamic_slice", "stablehlo.slice"):
        return True
    if op.name == "stablehlo.dynamic_pad":
        return True
    return op.name in GATHERS and takes_one_window(op)


rule = FusionRule(
    name="recompute",
    seeds=_seeds,
    match=_match,
    why_not=never,
    place="after `producers`: it asks which kernels would read the value; before products, which "
    "read in memory what is stored",
)

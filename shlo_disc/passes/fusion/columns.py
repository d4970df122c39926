"""Rules `columns` and `tall-columns`: reductions with kept dimensions behind them, what they read
and what reads them.

Columns are strided. A kernel over them pays if it saves another pass over memory, or if there are
so many rows that they are split into pieces.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.reductions import reduction_runs
from shlo_disc.ir.attributes import reduced_dims
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops import names
from shlo_disc.passes.fusion.graph import Node
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.rows import in_rows
from shlo_disc.passes.fusion.rule import FusionRule, Merge, Seed, never

_KEEP_NEIGHBOURS = names(lambda row: row.keeps_neighbours)


def _reductions(p: Partition) -> Iterator[Seed]:
    """Every reduction that is in a loop when it is reached."""
    for node in p.graph.nodes:
        mine = p.cluster_of.get(node.index)
        if mine is not None and mine.kind == "loop" and node.index in p.graph.row_reductions:
            yield (node.index,)


def _while_growing(p: Partition) -> Iterator[Seed]:
    """Every reduction, again and again until its cluster stays as it is."""
    for seed in _reductions(p):
        before = None
        while before is not (before := p.cluster_of[seed[0]]):
            yield seed


def _column(p: Partition, node: Node) -> Cluster | None:
    """The cluster of a reduction as one over columns, if it is one."""
    mine = p.cluster_of[node.index]
    if mine.kind == "column":
        return mine
    dims, shape = tuple(reduced_dims(node.op)), p.graph.shapes.shape(node.operands[0])
    if len(reduction_runs(shape, dims)) != 3:
        return None
    column = Cluster("column", shape, dims, set(mine.members)).inherit(mine)
    return column if _in_place(p, column) else None


def _grown(p: Partition, seed: Seed) -> Iterator[Merge]:
    """The column and one of its neighbours, each in turn."""
    column = _column(p, p.graph.nodes[seed[0]])
    if column is None:
        return
    for other, pair in _neighbours(p, column):
        members = column.members | other.members
        union = Cluster("column", column.space, column.reduced, members)
        union.inherit(column, other)
        source, readers = (-1, frozenset[int]()) if pair is None else (pair[0], frozenset(pair[1:]))
        yield Merge(union, (column, other), seed, source, readers)


def _apart_from(p: Partition, merge: Merge) -> str | None:
    """Why these members are no kernel over columns."""
    union = merge.union
    if union.members & p.kept or union.clones & union.members:
        return "it is read at other places, too"
    return None if _in_place(p, union) else "a column would need elements of another column"


def _in_place(p: Partition, column: Cluster) -> bool:
    """True if the kernel is legal and reads neighbours in memory as neighbours."""
    moving = (n for i in column.members if (n := p.graph.nodes[i]).role == "data_movement")
    return in_rows(p, column) and all(n.op.name in _KEEP_NEIGHBOURS for n in moving)


def _neighbours(p: Partition, column: Cluster) -> Iterator[tuple[Cluster, tuple[int, int] | None]]:
    """Clusters that `column` may join, each with the producer and the reader.

    They read what `column` computes, compute what it reads, or reduce columns of what it reads.
    """
    graph = p.graph
    read: set[ir.Value] = set()
    for index in sorted(column.members):
        for reader in sorted(graph.nodes[index].users - column.members):
            yield from _joinable(p, reader, column, (index, reader))
        for it in graph.reads(index):
            if it.source not in column.members:
                read.add(it.base)
                yield from _joinable(p, it.source, column, (it.source, index))
    full = (v for v in read if p.level(graph.shapes.shape(v), column) == "full")
    reading = {p.cluster_of.get(index) for value in full for index in graph.readers[value]}
    for index in sorted(graph.row_reductions - column.members):
        if p.cluster_of.get(index) in reading:
            yield from _joinable(p, index, column, None)


def _joinable(
    p: Partition, index: int, column: Cluster, pair: tuple[int, int] | None
) -> Iterator[tuple[Cluster, tuple[int, int] | None]]:
    other = p.cluster_of.get(index)
    if other is not None and other is not column and other.kind in ("loop", "column"):
        yield other, pair


def _tall(p: Partition, seed: Seed) -> Iterator[Merge]:
    """The column alone, where there may be so many rows that they are split into pieces."""
    column = _column(p, p.graph.nodes[seed[0]])
    if column is None:
        return
    high = p.graph.shapes.constraints.bounds(Expr.product(column.runs[1]))[1]
    if high is None or high >= p.graph.costs.tall_columns:
        yield Merge(column, (p.cluster_of[seed[0]],), seed)


columns = FusionRule(
    name="columns",
    seeds=_while_growing,
    match=_grown,
    why_not=_apart_from,
    place="after products: columns are strided, so they get what products have left",
)
tall_columns = FusionRule(
    name="tall-columns",
    seeds=_reductions,
    match=_tall,
    why_not=never,
    place="after `columns`: a reduction that has grown is a column already",
)

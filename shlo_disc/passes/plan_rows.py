"""Clusters around reductions: of rows (trailing dimensions, and perhaps some in front of kept ones)
and of columns (neighbours, with kept dimensions behind them).

A `row` cluster grows while the planner walks the block, a `column` cluster afterwards, from what
dots and convolutions have left: columns are strided, so a kernel over them pays where it saves
another pass over memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.reductions import reduction_runs
from shlo_disc.mlir import ir
from shlo_disc.passes.fusion_graph import Cluster, Node, Shape, broadcast_dims, dimensions
from shlo_disc.passes.op_classes import FREE, GATHERS, RESHAPES
from shlo_disc.passes.plan_dense import DensePlanner

__all__ = ["RowPlanner"]

_LEVELS = {"elementwise": ("full", "flat", "row"), "moving": ("full", "row")}
"""What the members of a cluster may be, by their role."""

_SLICES = frozenset(
    {"stablehlo.dynamic_slice", "stablehlo.pad", "stablehlo.real_dynamic_slice", "stablehlo.slice"}
)
"""Ops that move elements and keep neighbours neighbours."""


class RowPlanner(DensePlanner):
    """Clusters the reductions of one block."""

    def reduction(self, node: Node) -> Cluster:
        """A reduction of trailing dimensions, and perhaps of some further in front, starts a `row`
        cluster, any other a `loop`.
        """
        if node.op.name == "stablehlo.reduce":
            shape, dims = self.shapes.shape(node.operands[0]), tuple(dimensions(node.op))
            runs = reduction_runs(shape, dims)
            if dims and (len(runs) < 3 or (len(runs) == 4 and self._is_row(runs[-1]))):
                return Cluster("row", shape, dims, {node.index})
        return Cluster("loop", node.shapes[0], members={node.index})

    def _is_row(self, sizes: Shape) -> bool:
        """Are these enough columns to lie in the lanes?"""
        columns = Expr.product(sizes)
        return not columns.is_const or bool(columns.value >= self.machine.least_columns)

    def columns(self) -> None:
        """Reductions with kept dimensions behind them, what they read and what reads them."""
        for node in self.nodes:
            mine = self.cluster_of.get(node.index)
            if mine is None or mine.kind != "loop" or node.op.name != "stablehlo.reduce":
                continue
            column = self._columns_of(node, mine)
            if column is None:
                continue
            alone = column
            while (grown := self._grown(column)) is not None:
                column = grown
            if column is not alone or self._may_be_tall(column):
                self.replace(column, mine)

    def _columns_of(self, node: Node, mine: Cluster) -> Cluster | None:
        """`mine`, which holds the reduction `node`, as a cluster over columns, if it is one."""
        dims, shape = tuple(dimensions(node.op)), self.shapes.shape(node.operands[0])
        if len(reduction_runs(shape, dims)) != 3:
            return None
        column = Cluster("column", shape, dims, set(mine.members)).inherit(mine)
        return column if self._in_place(column) else None

    def _grown(self, column: Cluster) -> Cluster | None:
        """`column` and one of its neighbours, which then takes its place; None: there is none."""
        for other, pair in self._neighbours(column):
            members = column.members | other.members
            union = Cluster("column", column.space, column.reduced, members)
            union.inherit(column, other)
            reason = self._apart_from(union) or self.misfit(union)
            if reason is None:
                self.replace(union, column, other)
                return union
            if pair is not None:
                self.why[pair] = reason
        return None

    def _apart_from(self, union: Cluster) -> str | None:
        """Why these members are no kernel over columns."""
        if union.members & self.kept or union.clones & union.members:
            return "it is read at other places, too"
        return None if self._in_place(union) else "a column would need elements of another column"

    def _neighbours(self, column: Cluster) -> Iterator[tuple[Cluster, tuple[int, int] | None]]:
        """Clusters that read what `column` computes, that compute what it reads, or that reduce
        columns of what it reads, each with the producer and the reader.
        """
        read: set[ir.Value] = set()
        for index in sorted(column.members):
            for reader in sorted(self.nodes[index].users - column.members):
                yield from self._joinable(reader, column, (index, reader))
            for value in self.nodes[index].operands:
                for base, _ in self.bases(value):
                    source = self.of_value.get(base, -1)
                    if source not in column.members:
                        read.add(base)
                        yield from self._joinable(source, column, (source, index))
        full = {v for v in read if self.level(self.shapes.shape(v), column) == "full"}
        for node in self.nodes:
            if node.op.name == "stablehlo.reduce" and node.index not in column.members:
                bases = {b for v in self._operands(node) for b, _ in self.bases(v)}
                if bases & full:
                    yield from self._joinable(node.index, column, None)

    def _operands(self, node: Node) -> Iterator[ir.Value]:
        """What the cluster of a node reads."""
        cluster = self.cluster_of.get(node.index)
        for index in cluster.members if cluster is not None else ():
            yield from self.nodes[index].operands

    def _joinable(
        self, index: int, column: Cluster, pair: tuple[int, int] | None
    ) -> Iterator[tuple[Cluster, tuple[int, int] | None]]:
        other = self.cluster_of.get(index)
        if other is not None and other is not column and other.kind in ("loop", "column"):
            yield other, pair

    def _may_be_tall(self, column: Cluster) -> bool:
        """May there be so many rows that they are cut into pieces?"""
        high = self.shapes.constraints.bounds(Expr.product(column.runs[1]))[1]
        return high is None or high >= self.machine.tall_columns

    # ---------------------------------------------------------------- legality

    def in_rows(self, row: Cluster) -> bool:
        """Every member is full, flat or row, and reads members only at its own index."""
        for index in row.members:
            node = self.nodes[index]
            if node.role == "loop":
                if node.op.name != "stablehlo.reduce":
                    return False
                if not self.is_space(self.shapes.shape(node.operands[0]), dimensions(node.op), row):
                    return False
            elif self.level(node.shapes[0], row) not in _LEVELS[node.role]:
                return False
            for position, value in enumerate(node.operands):
                for base, chain in self.bases(value):
                    if self.of_value.get(base) not in row.members:
                        continue
                    if node.role == "moving":
                        if _is_start(node, position) and self._is_computed(base, row):
                            continue
                        return False
                    if self.only_units_change(base, chain, row):
                        continue
                    if node.role == "loop" or not self._spreads_rows(base, chain, row):
                        return False
        return True

    def _is_computed(self, value: ir.Value, row: Cluster) -> bool:
        """Can `value` be computed wherever it is read, without a reduction of this cluster?"""
        seen: set[int] = set()
        pending = [value]
        while pending:
            index = self.of_value.get(pending.pop(), -1)
            if index not in row.members or index in seen:
                continue
            seen.add(index)
            node = self.nodes[index]
            if node.role == "loop":
                return False
            pending += (base for v in node.operands for base, _ in self.bases(v))
        return True

    def _in_place(self, column: Cluster) -> bool:
        """Is it legal, and are neighbours in memory read as neighbours?"""
        moving = (n for i in column.members if (n := self.nodes[i]).role == "moving")
        return self.in_rows(column) and all(n.op.name in _SLICES for n in moving)

    def is_space(self, shape: Shape, dims: Sequence[int], row: Cluster) -> bool:
        """Is `shape`, of which `dims` are reduced, the cluster's space but for unit dimensions?"""
        mine, its = reduction_runs(shape, dims), row.runs
        return len(mine) == len(its) and all(map(self.same, mine, its))

    def _spreads_rows(self, base: ir.Value, chain: Sequence[ir.Operation], row: Cluster) -> bool:
        """`base` is a row value and `chain` only repeats it along the row, units not counted."""
        if self.level(self.shapes.shape(base), row) != "row":
            return False
        return all(
            self.level(self.shapes.shape(op.results[0]), row) in ("full", "row")
            and (op.name in RESHAPES or self._keeps_order(op, row))
            for op in chain
        )

    def _keeps_order(self, broadcast: ir.Operation, row: Cluster) -> bool:
        """Are the operand's dimensions those of the result that are not reduced, in order?"""
        if broadcast.name not in FREE:
            return False
        shape = self.shapes.shape(broadcast.operands[0])
        result = self.shapes.shape(broadcast.results[0])
        kept = [d for i, d in enumerate(broadcast_dims(broadcast)) if not shape[i].is_one]
        others = [d for d, size in enumerate(result) if not size.is_one]
        if self.level(shape, row) != self.level(result, row):
            full = [d for d, size in enumerate(row.space) if not size.is_one]
            others = [d for d, its in zip(others, full, strict=True) if its not in row.reduced]
        return kept == others


def _is_start(node: Node, position: int) -> bool:
    """Does this operand say where a gather reads?"""
    return position == 1 and node.op.name in GATHERS

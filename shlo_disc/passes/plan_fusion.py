"""plan-fusion: gather ops into the clusters that become kernels.

    %1 = stablehlo.add %0, %b                       %2 = "disc.fusion"(%0, %b) ({
    %2 = stablehlo.tanh %1                  ==>       ^bb0(%x, %y): ... add, tanh ...
                                                    }) {kind = "loop"}

Why     Memory-bound ops cost what they read and write: one kernel per cluster reads inputs once.
Needs   `resolve-shapes`.   Keeps  every result; control flow regions are planned one by one.
Cost    O(ops x local cluster size).
Source  Tile-level stitching after FusionStitching (Zheng et al., 2020) and BladeDISC's kStitch; the
        kinds are described in docs/architecture.md section 3.

A cluster has a *space*, the symbolic shape every result of it has. Kind `row` also splits that
space into row dimensions and the trailing dimensions that its reductions run over; its members are
*full* (shape = space) or *row* (shape = row dimensions, perhaps with trailing ones). Everything
else a cluster contains is computed from its inputs at whatever index its consumer asks for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import ClassVar

from shlo_disc.dialect import Fusion, Yield
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis, analyze
from shlo_disc.errors import UnsupportedError
from shlo_disc.mlir import ir
from shlo_disc.passes.base import Pass
from shlo_disc.passes.match_attention import is_mix, is_score
from shlo_disc.passes.op_classes import (
    CONTROL,
    CUSTOM_CALL_KIND,
    ELEMENTWISE,
    EXPENSIVE,
    FREE,
    HARD_OPERANDS,
    HOST,
    INDEX_MOVING,
    LOOP_BEARING,
    OPAQUE_KIND,
    RESHAPES,
    is_splat_constant,
)

__all__ = ["PlanFusion"]

MAX_CLUSTER_OPS = 160
"""A bound on code size: LLVM's time grows faster than the kernel (measured: 160 element-wise ops
take about 60 ms at O3). Doubling it gains nothing on the models in `examples/`."""

MAX_CLUSTER_INPUTS = 40

MAX_INDEX_OPS = 8
"""Element-wise ops on indices that a kernel computes rather than reads: about the time of a load
from L2."""

Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class PlanFusion(Pass):
    """See the module."""

    name: ClassVar[str] = "plan-fusion"

    def run(self, module: ir.Module) -> int:
        """Plan every block of `main`; returns the number of fusions made."""
        shapes = analyze(module)
        with module.context:
            return sum(
                _plan_block(func.regions[0].blocks[0], shapes)
                for func in module.body.operations
                if func.operation.name == "func.func"
            )


@dataclass(eq=False)
class _Cluster:
    """Ops that will share a kernel."""

    kind: str
    space: Shape
    rows: int = -1
    """Kind `row`: how many leading dimensions of `space` index rows."""
    members: set[int] = field(default_factory=set)
    span: tuple[int, int] = (0, 0)
    """The oldest and the youngest member; kept for clusters of more than one."""


@dataclass
class _Node:
    """One op of the block being planned."""

    index: int
    op: ir.Operation
    role: str  # elementwise, moving, loop, opaque, control, free, host or return
    operands: list[ir.Value]
    """Including what the regions of a control op capture."""
    shapes: list[Shape]
    users: set[int] = field(default_factory=set)
    """Nodes that use a result, directly or through free ops."""


@dataclass
class _Unit:
    """What is emitted together: a fusion (kind given) or one op that stays as it is."""

    kind: str | None
    members: list[int]
    rows: int = -1


def _plan_block(block: ir.Block, shapes: ShapeAnalysis) -> int:
    made = 0
    for op in block.operations:
        if op.operation.name in CONTROL:
            made += sum(_plan_block(b, shapes) for r in op.operation.regions for b in r.blocks)
    planner = _Planner(block, shapes)
    planner.cluster()
    return made + planner.emit()


class _Planner:
    """Clusters one block, then rewrites it."""

    def __init__(self, block: ir.Block, shapes: ShapeAnalysis) -> None:
        self.shapes = shapes
        self.nodes: list[_Node] = []
        self.of_value: dict[ir.Value, int] = {}
        self.cluster_of: dict[int, _Cluster] = {}
        self.merged: set[_Cluster] = set()
        """Clusters of more than one member."""
        self.origins: dict[int, list[int]] = {}
        self.from_indices: dict[ir.Value, int] = {}
        """Values computed from indices and sizes alone, and by how many ops: cheaper computed in
        every kernel than read (a causal mask)."""
        self.why: dict[tuple[int, int], str] = {}
        """Why the second node does not share a kernel with the first, whose value it reads."""
        for index, view in enumerate(block.operations):
            op = view.operation
            role = self._role(op)
            operands = list(op.operands)
            if role == "control":
                operands += _captures(op)
            results = list(op.results)
            sizes = [] if role == "control" else [shapes.shape(r) for r in results]
            self.nodes.append(_Node(index, op, role, operands, sizes))
            for result in results:
                self.of_value[result] = index
        for node in reversed(self.nodes):
            users = node.users if node.role == "free" else {node.index}
            for value in node.operands:
                source = self.of_value.get(value)
                if source is not None:
                    self.nodes[source].users |= users
        self.needed = self._materialized()

    def _role(self, op: ir.Operation) -> str:
        role = _role(op)
        free = role == "free" or op.name == "disc.shape" or is_splat_constant(op)
        if free or (role == "elementwise" and op.name not in EXPENSIVE):
            known = [self.from_indices.get(v) for v in op.operands]
            count = sum(k for k in known if k is not None) + (not free)
            if None not in known and count <= MAX_INDEX_OPS:
                self.from_indices.update(dict.fromkeys(op.results, count))
                return "free" if role == "elementwise" else role
        return role

    # -- clustering -----------------------------------------------------------------------------

    def cluster(self) -> None:
        """Give every fusable op a cluster, in program order."""
        for node in self.nodes:
            if node.op.name == "stablehlo.dot_general":
                self._claim(node)
        for node in self.nodes:
            if node.index in self.cluster_of:
                continue
            if node.role in ("elementwise", "moving"):
                self.cluster_of[node.index] = _Cluster("loop", node.shapes[0], members={node.index})
                self._join_producers(node)
            elif node.role == "loop":
                self.cluster_of[node.index] = self._reduction(node)
                if node.op.name == "stablehlo.reduce":
                    self._join_producers(node)
        for node in self.nodes:
            if node.op.name == "stablehlo.dot_general":
                self._dense(node)
        for node in self.nodes:
            if node.op.name == "stablehlo.dot_general":
                self._attention(node)

    def _dense(self, dot: _Node) -> None:
        """A dot takes in transposes of its operands, of its result, and the element-wise cluster
        that is the only reader of what comes out.
        """
        members = set(self.cluster_of[dot.index].members)
        for value in dot.operands:
            source = self.of_value.get(value)
            if source is not None and self._lone_transpose(source, {dot.index}):
                members.add(source)
        if (epilogue := self._epilogue(self._behind_transposes(dot))) is not None:
            union = members | epilogue.members
            if self._inputs(union) <= MAX_CLUSTER_INPUTS and self._acyclic(union):
                members = union
        cluster = _Cluster("dense", dot.shapes[0], members=members)
        for index in members:
            self.cluster_of[index] = cluster

    def _attention(self, mix: _Node) -> None:
        """Two dots and the row cluster between them become one cluster (`match_attention`)."""
        behind = self.cluster_of[mix.index]
        for number, value in enumerate(mix.operands):
            source = self.of_value.get(value, -1)
            middle = self.cluster_of.get(source)
            if middle is None or middle.kind != "row" or behind.kind != "dense":
                continue
            front = self._scores_of(middle)
            reason = self._no_attention(front, middle, mix, number)
            if reason is not None:
                self.why[source, mix.index] = reason
                continue
            assert front is not None
            union = front.members | middle.members | behind.members
            cluster = _Cluster("attention", middle.space, members=union)
            cluster.span = (min(union), max(union))
            self.merged -= {front, middle, behind}
            self.merged.add(cluster)
            for index in union:
                self.cluster_of[index] = cluster
            return

    def _no_attention(
        self, front: _Cluster | None, middle: _Cluster, mix: _Node, number: int
    ) -> str | None:
        """Why operand `number` of `mix`, the outcome of `middle`, is not mixed in its kernel."""
        if front is None:
            return "its rows are not those of a product that nobody else reads"
        if not self._outside_users(middle) <= {mix.index}:
            return "the weights are read at other places, too"
        if middle.rows != len(middle.space) - 1:
            return "the rows have several dimensions"
        if not self._same_type(self._dot_of(front), middle, mix):
            return "scores, weights and result are not all f32 or all f64"
        behind = self.cluster_of[mix.index]
        shapes = [self.shapes.shape(v) for v in mix.operands]
        reason = is_mix(mix.op, number, self._order_of(behind), shapes)
        union = _Cluster("attention", (), members=front.members | middle.members | behind.members)
        return reason or self._misfit(union)

    def _scores_of(self, row: _Cluster) -> _Cluster | None:
        """The dense cluster whose sums, read by nobody else, the row cluster works on."""
        found: dict[int, _Cluster] = {}
        for index in row.members:
            for value in self.nodes[index].operands:
                for base, _ in self._bases(value):
                    source = self.of_value.get(base, -1)
                    cluster = self.cluster_of.get(source)
                    if cluster is None or cluster.kind != "dense" or cluster in found.values():
                        continue
                    squeezed = _squeezed(self.shapes.shape(base)), _squeezed(row.space)
                    if self._same(*squeezed) and self._outside_users(cluster) <= row.members:
                        found[source] = cluster
        for cluster in found.values():
            names = [self.nodes[i].op.name for i in cluster.members]
            if set(names) <= {"stablehlo.dot_general", "stablehlo.transpose"}:
                dot = self._dot_of(cluster)
                shapes = [self.shapes.shape(v) for v in dot.operands]
                if is_score(dot.op, self._order_of(cluster), shapes) is None:
                    return cluster
        return None

    def _dot_of(self, cluster: _Cluster) -> _Node:
        nodes = (self.nodes[i] for i in cluster.members)
        return next(n for n in nodes if n.op.name == "stablehlo.dot_general")

    def _order_of(self, cluster: _Cluster) -> list[int]:
        """Which dimension of the dot each dimension behind its transposes is."""
        node = self._dot_of(cluster)
        order = list(range(len(node.shapes[0])))
        while len(node.users) == 1:
            (index,) = node.users
            node = self.nodes[index]
            if index not in cluster.members or node.op.name != "stablehlo.transpose":
                break
            order = [order[d] for d in ir.DenseI64ArrayAttr(node.op.attributes["permutation"])]
        return order

    def _same_type(self, score: _Node, row: _Cluster, mix: _Node) -> bool:
        """Scores, weights and sums are of one type that is computed with as it is."""
        values = [*score.op.results, *mix.op.results]
        values += [r for i in row.members for r in self.nodes[i].op.results
                   if mix.index in self.nodes[i].users]  # fmt: skip
        types = {str(ir.ShapedType(v.type).element_type) for v in values}
        return types in ({"f32"}, {"f64"})

    def _claim(self, dot: _Node) -> None:
        """Transposes of its result alone are the dot's: it writes in any order."""
        members, node = {dot.index}, dot
        while len(node.users) == 1:
            (follower,) = (self.nodes[i] for i in node.users)
            reads_it = list(follower.operands) == [node.op.results[0]]
            if follower.op.name != "stablehlo.transpose" or not reads_it:
                break
            members.add(follower.index)
            node = follower
        cluster = _Cluster("dense", dot.shapes[0], members=members)
        self.cluster_of.update(dict.fromkeys(members, cluster))

    def _behind_transposes(self, dot: _Node) -> _Node:
        """The dot, or the last of the transposes it has claimed."""
        return self.nodes[max(self.cluster_of[dot.index].members)]

    def _lone_transpose(self, index: int, users: set[int]) -> bool:
        """Is this a transpose that shares no kernel yet and is read by `users` only?"""
        node, cluster = self.nodes[index], self.cluster_of.get(index)
        return (
            node.op.name == "stablehlo.transpose"
            and cluster is not None
            and cluster.members == {index}
            and node.users == users
        )

    def _epilogue(self, dot: _Node) -> _Cluster | None:
        """The loop cluster over exactly a dense result's elements that alone reads it, with one
        result.
        """
        clusters = {id(c): c for i in dot.users if (c := self.cluster_of.get(i)) is not None}
        if len(clusters) != 1 or any(i not in self.cluster_of for i in dot.users):
            return None
        (cluster,) = clusters.values()
        if cluster.kind != "loop" or not self._same(cluster.space, dot.shapes[0]):
            return None
        nodes = [self.nodes[i] for i in cluster.members]
        if any(
            n.role != "elementwise" or not self._same(n.shapes[0], cluster.space) for n in nodes
        ):
            return None
        result = dot.op.results[0]
        for node in nodes:
            for value in node.operands:
                if any(base == result and chain for base, chain in self._bases(value)):
                    return None
        outside = [n for n in nodes if n.users - cluster.members]
        return cluster if len(outside) == 1 else None

    def _reduction(self, node: _Node) -> _Cluster:
        """A reduction of trailing dimensions starts a `row` cluster, any other a `loop`."""
        if node.op.name == "stablehlo.reduce":
            dims = _dimensions(node.op)
            shape = self.shapes.shape(node.operands[0])
            kept = len(shape) - len(dims)
            if dims and dims == list(range(kept, len(shape))):
                return _Cluster("row", shape, kept, {node.index})
        return _Cluster("loop", node.shapes[0], members={node.index})

    def _join_producers(self, node: _Node) -> None:
        hard = HARD_OPERANDS.get(node.op.name, ())
        for position, value in enumerate(node.operands):
            if position in hard:
                continue
            for base, chain in self._bases(value):
                theirs = self.cluster_of.get(self.of_value.get(base, -1))
                mine = self.cluster_of[node.index]
                if theirs is None or theirs is mine or theirs.kind == "dense":
                    continue
                union = self._union(node, theirs, mine, chain)
                reason = union if isinstance(union, str) else self._misfit(union)
                if reason is not None:
                    self.why[self.of_value[base], node.index] = reason
                    continue
                assert isinstance(union, _Cluster)
                union.span = (min(union.members), max(union.members))
                self.merged -= {mine, theirs}
                self.merged.add(union)
                for index in union.members:
                    self.cluster_of[index] = union

    def _union(
        self, node: _Node, theirs: _Cluster, mine: _Cluster, chain: Sequence[ir.Operation]
    ) -> _Cluster | str:
        """Both clusters as one, or why `node` may not read the other's value inside a kernel."""
        members = theirs.members | mine.members
        row = mine if mine.kind == "row" else theirs if theirs.kind == "row" else None
        if row is not None:
            other = theirs if row is mine else mine
            if other.kind == "row" and not self._is_space(other.space, other.rows, row):
                return "the rows are others"
            union = _Cluster("row", row.space, row.rows, members)
            legal = self._row_legal(union)
            return union if legal else "a row would need elements of another row"
        direct = node.role == "elementwise" and not chain
        if direct and self._same(theirs.space, mine.space):
            return _Cluster("loop", mine.space, members=members)
        # Computed at the consumer's index: only when nobody else needs it and no element is
        # computed twice.
        if chain:
            return "it is broadcast: its elements would be computed several times"
        if not self._outside_users(theirs) <= mine.members:
            return "it is read at other places, too"
        return _Cluster("loop", mine.space, members=members)

    def _row_legal(self, row: _Cluster) -> bool:
        """Every member is full or row, and reads members only at its own index."""
        for index in row.members:
            node = self.nodes[index]
            if node.role == "loop":
                if node.op.name != "stablehlo.reduce":
                    return False
                shape = self.shapes.shape(node.operands[0])
                kept = len(shape) - len(_dimensions(node.op))
                if _dimensions(node.op) != list(range(kept, len(shape))):
                    return False
                if not self._is_space(shape, kept, row):
                    return False
            elif self._level(node.shapes[0], row) is None:
                return False
            for value in node.operands:
                for base, chain in self._bases(value):
                    if self.of_value.get(base) not in row.members:
                        continue
                    if node.role == "moving":
                        return False
                    if self._only_units_change(base, chain, row):
                        continue
                    if node.role == "loop" or not self._spreads_rows(base, chain, row):
                        return False
        return True

    def _is_space(self, shape: Shape, rows: int, row: _Cluster) -> bool:
        """Is `shape`, cut behind `rows` dimensions, the cluster's space but for unit dimensions?"""
        return all(
            self._same(_squeezed(mine), _squeezed(its))
            for mine, its in (
                (shape[:rows], row.space[: row.rows]),
                (shape[rows:], row.space[row.rows :]),
            )
        )

    def _only_units_change(
        self, base: ir.Value, chain: Sequence[ir.Operation], row: _Cluster
    ) -> bool:
        """Does `chain` give every element of the full value `base` its own place?"""
        values = [base, *(op.results[0] for op in chain)]
        return all(op.name in RESHAPES for op in chain) and all(
            self._level(self.shapes.shape(v), row) == "full" for v in values
        )

    def _spreads_rows(self, base: ir.Value, chain: Sequence[ir.Operation], row: _Cluster) -> bool:
        """`base` is a row value and `chain` only adds unit or trailing dimensions to it."""
        if self._level(self.shapes.shape(base), row) != "row":
            return False
        return all(
            self._level(self.shapes.shape(op.results[0]), row) is not None
            and (op.name in RESHAPES or self._keeps_order(op))
            for op in chain
        )

    def _keeps_order(self, broadcast: ir.Operation) -> bool:
        """Are the operand's dimensions the leading ones of the result (units not counted)?"""
        shape = self.shapes.shape(broadcast.operands[0])
        result = self.shapes.shape(broadcast.results[0])
        kept = [d for i, d in enumerate(_broadcast_dims(broadcast)) if not _is_unit(shape[i])]
        return kept == [d for d, size in enumerate(result) if not _is_unit(size)][: len(kept)]

    def _misfit(self, union: _Cluster) -> str | None:
        """Why these ops cannot be one kernel."""
        if len(union.members) > MAX_CLUSTER_OPS:
            return f"more than {MAX_CLUSTER_OPS} ops"
        if self._inputs(union.members) > MAX_CLUSTER_INPUTS:
            return f"more than {MAX_CLUSTER_INPUTS} inputs"
        if not self._acyclic(union.members):
            return "another kernel stands between them"
        return None

    # -- questions ------------------------------------------------------------------------------

    def _same(self, a: Shape, b: Shape) -> bool:
        equal = self.shapes.constraints.equal
        return len(a) == len(b) and all(x == y or equal(x, y) for x, y in zip(a, b, strict=True))

    def _level(self, shape: Shape, row: _Cluster) -> str | None:
        if self._same(_squeezed(shape), _squeezed(row.space)):
            return "full"
        if self._same(_squeezed(shape), _squeezed(row.space[: row.rows])):
            return "row"
        return None

    def _bases(self, value: ir.Value) -> Iterator[tuple[ir.Value, list[ir.Operation]]]:
        """Where `value` comes from through free ops: (base, those ops from the base on)."""
        chain: list[ir.Operation] = []
        while not isinstance(value.owner, ir.Block):
            op = value.owner.operation
            if value in self.from_indices:
                return
            if op.name not in FREE:
                break
            chain.insert(0, op)
            value = op.operands[0]
        yield value, chain

    def _outside_users(self, cluster: _Cluster) -> set[int]:
        users: set[int] = set()
        for index in cluster.members:
            users |= self.nodes[index].users
        return users - cluster.members

    def _inputs(self, members: set[int]) -> int:
        return len(
            {
                base
                for index in members
                for value in self.nodes[index].operands
                for base, _ in self._bases(value)
                if self.of_value.get(base) not in members
            }
        )

    def _acyclic(self, members: set[int]) -> bool:
        """No path leaves `members` and comes back, clusters counting as one node."""
        # A path back ends in an op younger than the oldest member; an older op can only lead to
        # one through a cluster that spans that age.
        low = min(members)
        spans = [c.span for c in self.merged]
        while older := [a for a, b in spans if a < low < b]:
            low = min(older)
        stack = [i for m in members for i in self._origins(m) if i not in members]
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
            stack.extend(i for m in group for i in self._origins(m) if i not in group)
        return True

    def _origins(self, index: int) -> list[int]:
        """The nodes a node depends on, free ops (which move into every kernel) looked through."""
        known = self.origins.get(index)
        if known is None:
            known = self.origins[index] = []
            for source in self._sources(index):
                free = self.nodes[source].role == "free"
                known.extend(self._origins(source) if free else [source])
        return known

    def _sources(self, index: int) -> Iterator[int]:
        for value in self.nodes[index].operands:
            source = self.of_value.get(value)
            if source is not None:
                yield source

    def _materialized(self) -> set[int]:
        """Free ops whose value must exist in memory: somebody outside a kernel reads it."""
        needed: set[int] = set()

        def need(value: ir.Value) -> None:
            index = self.of_value.get(value)
            if index is None or self.nodes[index].role != "free" or index in needed:
                return
            needed.add(index)
            if self.nodes[index].op.name in RESHAPES:
                need(self.nodes[index].operands[0])

        for node in self.nodes:
            if node.role in ("opaque", "control", "return"):
                for value in node.operands:
                    need(value)
            for position in HARD_OPERANDS.get(node.op.name, ()):
                need(node.operands[position])
        return needed

    # -- rewriting ------------------------------------------------------------------------------

    def emit(self) -> int:
        """Replace clusters by fusions and order the block; returns the number of fusions."""
        made = 0
        terminator = self.nodes[-1].op
        fused: set[int] = set()
        for unit in self._ordered(self._units()):
            if unit.kind is None:
                self.nodes[unit.members[0]].op.move_before(terminator)
            else:
                self._fuse(unit, terminator)
                fused.update(unit.members)
                made += 1
        for node in reversed(self.nodes):
            spare = (
                node.role == "free" or node.op.name == "disc.shape" or is_splat_constant(node.op)
            )
            unused = all(not list(result.uses) for result in node.op.results)
            if node.index in fused or (spare and unused):
                node.op.erase()
        return made

    def _units(self) -> list[_Unit]:
        units: list[_Unit] = []
        seen: set[int] = set()
        for node in self.nodes[:-1]:
            cluster = self.cluster_of.get(node.index)
            if node.index in seen:
                continue
            if cluster is not None:
                seen |= cluster.members
                units.append(_Unit(cluster.kind, sorted(cluster.members), cluster.rows))
            elif node.role == "opaque":
                units.append(_Unit(_opaque_kind(node.op), [node.index]))
            elif node.role != "free":
                units.append(_Unit(None, [node.index]))
            elif node.index in self.needed:
                kind = None if node.op.name in RESHAPES else "loop"
                units.append(_Unit(kind, [node.index]))
        return units

    def _ordered(self, units: list[_Unit]) -> Iterable[_Unit]:
        """A topological order, as near to the program's as it gets."""
        unit_of = {m: k for k, unit in enumerate(units) for m in unit.members}
        before: list[set[int]] = []
        for k, unit in enumerate(units):
            sources: set[int] = set()
            stack = list(unit.members)
            while stack:
                for source in self._sources(stack.pop()):
                    if source in unit_of:
                        sources.add(unit_of[source])
                    if self.nodes[source].role == "free":
                        stack.append(source)
            before.append(sources - {k})
        after: list[list[int]] = [[] for _ in units]
        for k, sources in enumerate(before):
            for source in sources:
                after[source].append(k)
        waiting = [len(sources) for sources in before]
        ready = [(max(u.members), k) for k, u in enumerate(units) if not waiting[k]]
        heapify(ready)
        while ready:
            _, k = heappop(ready)
            yield units[k]
            for follower in after[k]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heappush(ready, (max(units[follower].members), follower))

    def _fuse(self, unit: _Unit, terminator: ir.Operation) -> None:
        ops = [self.nodes[i].op for i in unit.members]
        inside = {result for op in ops for result in op.results}
        clone = unit.kind in ("attention", "dense", "loop", "row")
        inputs, sequence = _gather(ops, inside, self.from_indices, clone_free=clone)
        outputs = [
            result
            for op in ops
            for result in op.results
            if self._escapes(result, set(unit.members))
        ]
        location = ir.Location.fused([op.location for op in ops[:8]])
        with ir.InsertionPoint(terminator), location:
            kind = ir.StringAttr.get(unit.kind)
            fusion = Fusion(inputs, [o.type for o in outputs], kind=kind).operation
            fusion.attributes["name"] = ir.StringAttr.get(_describe(ops))
            if reasons := self._reasons(unit):
                attributes = [ir.StringAttr.get(reason) for reason in reasons]
                fusion.attributes["not_fused"] = ir.ArrayAttr.get(attributes)
            if unit.rows >= 0:
                i64 = ir.IntegerType.get_signless(64)
                fusion.attributes["rows"] = ir.IntegerAttr.get(i64, unit.rows)
            types = [v.type for v in inputs]
            block = fusion.regions[0].blocks.append(*types, arg_locs=[location] * len(types))
        inner = dict(zip(inputs, block.arguments, strict=True))
        with ir.InsertionPoint(block), location:
            for op in sequence:
                clone = op.clone().operation
                for position, value in enumerate(op.operands):
                    clone.operands[position] = inner[value]
                inner.update(zip(op.results, clone.results, strict=True))
            Yield([inner[o] for o in outputs])
        for old, new in zip(outputs, fusion.results, strict=True):
            old.replace_all_uses_with(new)

    def _reasons(self, unit: _Unit) -> list[str]:
        """Why what it reads was not fused into it: a sentence for each producer."""
        found: dict[str, None] = {}
        for index in unit.members:
            for value in self.nodes[index].operands:
                for base, _ in self._bases(value):
                    source = self.of_value.get(base, -1)
                    reason = self.why.get((source, index))
                    if reason is not None and source not in unit.members:
                        name = self.nodes[source].op.name.removeprefix("stablehlo.")
                        found[f"{name}: {reason}"] = None
        return list(found)

    def _escapes(self, result: ir.Value, inside: set[int]) -> bool:
        """Is `result` read by anything that is not cloned into this or another kernel?"""
        stack = [result]
        while stack:
            for use in stack.pop().uses:
                owner = use.owner.operation
                index = self.of_value.get(owner.results[0]) if len(owner.results) else None
                if index in inside:
                    continue
                if index is None or self.nodes[index].role != "free" or index in self.needed:
                    return True
                stack.extend(owner.results)
        return False


def _role(op: ir.Operation) -> str:
    name = op.name
    if name in ELEMENTWISE:
        return "elementwise"
    if name in INDEX_MOVING:
        return "moving"
    if name in LOOP_BEARING:
        return "loop"
    if name in FREE:
        return "free"
    if name in CONTROL:
        return "control"
    if name in HOST or name == "stablehlo.constant":
        return "host"
    if name in ("func.return", "stablehlo.return"):
        return "return"
    _opaque_kind(op)
    return "opaque"


def _opaque_kind(op: ir.Operation) -> str:
    name = op.name
    if name == "stablehlo.custom_call":
        name = ir.StringAttr(op.attributes["call_target_name"]).value
        if name in CUSTOM_CALL_KIND:
            return CUSTOM_CALL_KIND[name]
    elif name in OPAQUE_KIND:
        return OPAQUE_KIND[name]
    raise UnsupportedError(
        f"{name} is not supported yet (at {op.location}); keep this part of the program outside "
        "shlo_disc.jit or express it with operations listed in docs/ops.md"
    )


def _captures(op: ir.Operation) -> list[ir.Value]:
    """Values the regions of `op` use but do not define."""
    inside: set[ir.Value] = set()
    used: dict[ir.Value, None] = {}

    def visit(block: ir.Block) -> None:
        inside.update(block.arguments)
        for view in block.operations:
            inner = view.operation
            used.update(dict.fromkeys(inner.operands))
            inside.update(inner.results)
            for region in inner.regions:
                for nested in region.blocks:
                    visit(nested)

    for region in op.regions:
        for block in region.blocks:
            visit(block)
    return [value for value in used if value not in inside]


def _gather(
    ops: Sequence[ir.Operation],
    inside: set[ir.Value],
    free_values: Container[ir.Value],
    *,
    clone_free: bool,
) -> tuple[list[ir.Value], list[ir.Operation]]:
    """(inputs, ops to clone in order) of the fusion that holds `ops`."""
    inputs: dict[ir.Value, None] = {}
    sequence: list[ir.Operation] = []
    done: set[ir.Value] = set()

    def need(value: ir.Value, hard: bool) -> None:
        if value in inside or value in done:
            return
        done.add(value)
        owner = value.owner
        op = None if isinstance(owner, ir.Block) else owner.operation
        metadata = op is not None and op.name == "disc.shape"
        free = op is not None and (op.name in FREE or is_splat_constant(op) or value in free_values)
        if metadata or (free and clone_free and not hard):
            assert op is not None
            for operand in op.operands:
                need(operand, hard=False)
            sequence.append(op)
        else:
            inputs[value] = None

    for op in ops:
        hard = HARD_OPERANDS.get(op.name, ())
        for position, value in enumerate(op.operands):
            need(value, hard=position in hard)
        sequence.append(op)
    return list(inputs), sequence


def _squeezed(shape: Shape) -> Shape:
    """`shape` without the dimensions that are always 1."""
    return tuple(d for d in shape if not _is_unit(d))


def _is_unit(size: Expr) -> bool:
    return bool(size.is_const and size.value == 1)


def _dimensions(op: ir.Operation) -> list[int]:
    return sorted(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))


def _broadcast_dims(op: ir.Operation) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))


def _describe(ops: Sequence[ir.Operation]) -> str:
    """A name people recognise: the first few distinct op names."""
    names = list(dict.fromkeys(op.name.split(".", 1)[1] for op in ops))
    return "_".join(names[:4]) + ("_etc" if len(names) > 4 else "")

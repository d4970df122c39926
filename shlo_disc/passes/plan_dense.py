"""Clusters around dots: what a dense kernel takes in, and attention."""

from __future__ import annotations

from shlo_disc.contractions import dot_sides
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.views import SPREADS, VIEWS, View, band_of, view_of
from shlo_disc.mlir import ir, producer
from shlo_disc.passes.fusion_cost import Costs
from shlo_disc.passes.fusion_graph import Cluster, Node, squeezed
from shlo_disc.passes.match_attention import is_score, key_side
from shlo_disc.passes.match_dense import DenseRecord, Sums, sums_of
from shlo_disc.passes.op_classes import (
    EXPENSIVE,
    FREE,
    RESHAPES,
    is_splat_constant,
)
from shlo_disc.passes.sink_views import chain_of

__all__ = ["DensePlanner", "contraction_kind"]


def contraction_kind(op: ir.Operation) -> str | None:
    """The kind of cluster an op begins: dense, conv, or none."""
    if op.name == "stablehlo.dot_general":
        return "dense"
    return "conv" if op.name in ("stablehlo.convolution", "stablehlo.dynamic_conv") else None


class DensePlanner(Costs):
    """Clusters the dots and convolutions of one block; `Planner` does the rest."""

    def dense(self, dot: Node) -> None:
        """A dot takes in slices and transposes of its operands; it and a convolution transposes of
        their result, and the element-wise cluster that is the only reader of what comes out.
        """
        claimed = self.cluster_of[dot.index]
        kind, members, in_place = claimed.kind, set(claimed.members), set[int]()
        for value in dot.operands if kind == "dense" else ():
            views, base = self._views(value, dot)
            members |= views
            in_place |= base
        taken: Cluster | None = None
        last = self.nodes[self.of_value[self._sums(claimed).total]]
        epilogue = self._epilogue(last)
        reason = epilogue if isinstance(epilogue, str) else None
        if isinstance(epilogue, Cluster):
            union = members | epilogue.members
            both = Cluster(kind, dot.shapes[0], members=union, in_place=in_place)
            reason = self.misfit(both, epilogue)
            if reason is None:
                members = union
                taken = epilogue
        if reason is not None:
            self._apart(last, last.users, reason)
        cluster = Cluster(kind, dot.shapes[0], members=members, in_place=in_place)
        if taken is not None:
            cluster.inherit(taken)
        self.replace(cluster, claimed, *([] if taken is None else [taken]))

    def attention(self, mix: Node) -> None:
        """Two dots and the row cluster between them become one cluster (`match_attention`)."""
        behind = self.cluster_of[mix.index]
        for number, value in enumerate(mix.operands):
            source = self.of_value.get(value, -1)
            middle = self.cluster_of.get(source)
            if middle is None or middle.kind != "row" or behind.kind != "dense":
                continue
            front = self._scores_of(middle)
            reason = self._no_attention(front, middle, mix)
            if reason is not None:
                self.why[source, mix.index] = reason
                continue
            assert front is not None
            union = front.members | middle.members | behind.members
            spreads, in_place = self._spreads(front, mix, 1 - number)
            both = Cluster("attention", (), members=union | spreads, in_place=in_place)
            if self.misfit(both, front, middle, behind) is not None:
                spreads, in_place = set(), set()
            union |= spreads
            taken = [self.cluster_of[i] for i in spreads if i in self.cluster_of]
            cluster = Cluster("attention", middle.space, members=union, in_place=in_place)
            cluster.inherit(front, middle, behind)
            self.replace(cluster, front, middle, behind, *taken)
            return

    def _spreads(self, front: Cluster, mix: Node, values: int) -> tuple[set[int], set[int]]:
        """The ops that repeat keys and values for several heads (`jnp.repeat`, or a broadcast along
        a batch dimension), and the nodes of these: an attention reads them where they are.
        """
        score = self._dot_of(front)
        keys = key_side(self._sums(front))
        assert keys is not None
        found, in_place = set[int](), set[int]()
        repeats: list[Expr] = []
        for dot, side in ((score, keys), (mix, values)):
            batch = dot_sides(dot.op)[side].batch
            members, view = self._spread(dot, side)
            elsewhere = [d for d in range(len(view.sizes)) if d not in batch] if view else []
            if view is None or any(view.is_spread(d) for d in elsewhere):
                continue
            repeats += [view.repeat(d) for d in batch if not view.repeat(d).is_one]
            found |= members
            in_place |= self._nodes_of(view.base)
        equal = self.shapes.constraints.equal
        alike = all(equal(r, repeats[0]) for r in repeats)
        return (found, in_place) if alike else (set(), set())

    def _spread(self, dot: Node, side: int) -> tuple[set[int], View | None]:
        """The ops that only `dot` reads and that make its operand `side` a view in which elements
        repeat, and the view; none where they are not.
        """
        value = dot.op.operands[side]
        inside, members = {dot.index}, set[int]()
        best: tuple[set[int], View | None] = members, None
        spread, op = False, producer(value)
        while op is not None and (op.name in VIEWS or op.name in SPREADS):
            index = self.of_value.get(op.results[0])
            if index is None or not self._direct_users(self.nodes[index]) <= inside:
                break
            cluster = self.cluster_of.get(index)
            if cluster is None and self.nodes[index].role != "free":
                break
            if cluster not in (None, self.cluster_of[dot.index]) and cluster.members != {index}:
                break
            inside.add(index)
            members = members | {index}
            spread = spread or op.name in SPREADS
            if view_of(value, [op.operands[0]], self.shapes, spread=True) is None:
                break
            view = self._in_memory(value, op.operands[0], spread=True)
            if spread and view is not None and op.name not in RESHAPES:
                best = members, view
            op = producer(op.operands[0])
        return best

    def siblings(self) -> None:
        """Dots with one left operand, alike in everything else, share a kernel (q, k and v)."""
        groups: dict[tuple[object, ...], list[Cluster]] = {}
        for node in self.nodes:
            cluster = self.cluster_of.get(node.index)
            if node.op.name == "stablehlo.dot_general" and cluster and cluster.kind == "dense":
                names = tuple(self.nodes[i].op.name for i in sorted(cluster.members))
                numbers = dot_sides(node.op)
                types = tuple(str(v.type) for v in node.operands)
                rhs = self.shapes.shape(node.operands[1])
                key = (*self._seen(node.operands[0]), numbers, types, rhs, names)
                groups.setdefault(key, []).append(cluster)
        for group in groups.values():
            union = group[0]
            for cluster in group[1:]:
                both = Cluster("dense", union.space, members=union.members | cluster.members)
                both.inherit(union, cluster)
                if self.misfit(both) is not None:
                    continue
                self.replace(both, union, cluster)
                union = both

    def _seen(self, value: ir.Value) -> tuple[object, ...]:
        """What `value` is a view of, and how: equal for copies of one view."""
        chain = chain_of(value, self.shapes)
        if not chain:
            return (value,)
        how: list[object] = []
        for op in chain:
            how += [op.name, *list(op.operands)[1:]]
            how += [(name, str(attribute)) for name, attribute in op.attributes.items()]
        return chain[-1].operands[0], *how

    def bands(self) -> None:
        """A dot takes in the loop cluster that reads its outcome in parts side by side: the gates
        of a recurrent layer.
        """
        for dot in self.nodes:
            mine = self.cluster_of.get(dot.index)
            if mine is None or mine.kind != "dense" or dot.op.name != "stablehlo.dot_general":
                continue
            # Its one result so far: what others read.
            outer = [i for i in mine.members if self.nodes[i].users - mine.members]
            if len(outer) != 1 or outer[0] in self.kept:
                continue
            total = self.nodes[outer[0]]
            for cluster in self._loops_on(total):
                union = Cluster("dense", mine.space, members=mine.members | cluster.members)
                reason = self._no_bands(cluster) or self.misfit(union, mine, cluster)
                if reason is None:
                    union.inherit(mine, cluster)
                    self.replace(union, mine, cluster)
                    break
                self._apart(total, total.users & cluster.members, reason)

    def _apart(self, source: Node, readers: set[int], reason: str) -> None:
        """Keep why `readers` are not in the kernel of `source`."""
        self.why.update(dict.fromkeys([(source.index, reader) for reader in readers], reason))

    def _loops_on(self, total: Node) -> list[Cluster]:
        """The loop clusters that read slices of `total`."""
        found: dict[Cluster, None] = {}
        for index in sorted(total.users):
            cluster = self.cluster_of.get(index)
            if cluster is not None and cluster.kind == "loop" and self._band(index, total):
                found[cluster] = None
        return list(found)

    def _band(self, index: int, total: Node) -> tuple[int, int] | None:
        results = list(self.nodes[index].op.results)
        return band_of(results[0], total.op.results[0], self.shapes) if results else None

    def _no_bands(self, cluster: Cluster) -> str | None:
        """Why `cluster`, which reads slices of sums, is not to be computed in their kernel."""
        if cluster.members & self.kept:
            return "it is read at other places, too"
        narrow = not cluster.space or cluster.space[-1].is_one
        return "it is cut into parts of one column" if narrow else None

    def row_work(self) -> None:
        """A dot takes in the row cluster that reads its outcome row by row: a layer-norm. The rows
        follow in the same launch.
        """
        for dot in self.nodes:
            mine = self.cluster_of.get(dot.index)
            if mine is None or mine.kind != "dense" or dot.op.name != "stablehlo.dot_general":
                continue
            outer = [i for i in mine.members if self.nodes[i].users - mine.members]
            before = self.record(mine)
            if len(outer) != 1 or (isinstance(before, DenseRecord) and before.bands):
                continue
            total = self.nodes[outer[0]]
            clusters = (self.cluster_of.get(index) for index in sorted(total.users))
            for row in dict.fromkeys(c for c in clusters if c is not None and c.kind == "row"):
                union = Cluster("dense", row.space, row.reduced, mine.members | row.members)
                union.given = total.index
                reason = self._no_row_work(mine, dot, total, row)
                reason = reason or self.misfit(union, mine, row)
                if reason is None:
                    union.inherit(mine, row)
                    self.replace(union, mine, row)
                    mine = union
                else:
                    self._apart(total, total.users & row.members, reason)

    def _no_row_work(self, mine: Cluster, dot: Node, total: Node, row: Cluster) -> str | None:
        """Why the rows of `row`, which reads `total`, are not computed behind the product."""
        if total.index in self.kept or row.members & self.kept:
            return "it is read at other places, too"
        if Expr.product(total.shapes[0]) == 0:
            return "it has no elements"
        rows, columns = total.shapes[0][:-1], total.shapes[0][-1:]  # none of them in one sum
        wanted = [squeezed(rows), columns]
        one = any(size.is_one for size in columns)
        if one or len(row.runs) != 2 or not all(map(self.same, row.runs, wanted)):
            return "the rows are others"
        if self._is_long(dot):
            return "a long sum is cut into parts"
        if self.inputs(mine.members | row.members) > self.machine.most_row_work_inputs:
            return f"more than {self.machine.most_row_work_inputs} inputs of a product and its rows"
        return None

    def _is_long(self, dot: Node) -> bool:
        """May the sums be so long that they are cut into parts?"""
        shape = self.shapes.shape(dot.operands[0])
        depth = Expr.product(shape[d] for d in dot_sides(dot.op)[0].contracting)
        return bool(depth.is_const and depth.value >= self.machine.long_sum)

    def prologues(self) -> None:
        """A dot computes cheap element-wise work on its right operand while it copies blocks."""
        for dot in self.nodes:
            mine = self.cluster_of.get(dot.index)
            if mine is None or mine.kind != "dense" or dot.op.name != "stablehlo.dot_general":
                continue
            source = self.of_value.get(dot.operands[1], -1)
            work = self.cluster_of.get(source)
            if work is None or work is mine or work.kind != "loop":
                continue
            union = Cluster("dense", mine.space, members=mine.members | work.members)
            union.given = mine.given
            reason = self._no_prologue(work, mine, dot) or self.misfit(union, mine, work)
            if reason is not None:
                self.why[source, dot.index] = reason
                continue
            union.inherit(mine, work)
            self.replace(union, mine, work)

    def _no_prologue(self, work: Cluster, mine: Cluster, dot: Node) -> str | None:
        """Why the right operand of `dot`, computed by `work`, is not computed in its kernel."""
        nodes = [self.nodes[i] for i in work.members]
        if sum(self.nodes[i].op.name == "stablehlo.dot_general" for i in mine.members) > 1:
            return "several products share a kernel"
        if self.outside_users(work) != {dot.index} or work.members & self.kept:
            return "it is read at other places, too"
        if any(n.role != "elementwise" for n in nodes):
            return "a product computes element-wise work only"
        if any(n.op.name in EXPENSIVE for n in nodes):
            return "computed in every block of the product it would cost more than stored"
        if len(nodes) > self.machine.cheap_ops:
            most = self.machine.cheap_ops
            return f"more than {most} ops would be computed in every block of the product"
        if all(self.shapes.shape(dot.operands[1])[d].is_one for d in dot_sides(dot.op)[1].free):
            return "it has one column"
        return None

    def _no_attention(self, front: Cluster | None, middle: Cluster, mix: Node) -> str | None:
        """Why `middle`, whose outcome `mix` reads, is not computed in its kernel."""
        if front is not None and front.members & self.kept:
            return "the scores are read at other places, too"
        if front is None:
            return "it is not row work on one product alone, so this is no attention"
        if middle.reduced != (len(middle.space) - 1,):
            return "the rows have several dimensions"
        element = str(ir.ShapedType(mix.op.results[0].type).element_type)
        if element not in self.machine.attention_types:
            return f"the target has no attention of {element}"
        behind = self.cluster_of[mix.index]
        union = Cluster("attention", (), members=front.members | middle.members | behind.members)
        return self.misfit(union, front, middle, behind)

    def _scores_of(self, row: Cluster) -> Cluster | None:
        """The dense cluster whose sums, read by nobody else, the row cluster works on."""
        found: dict[int, Cluster] = {}
        for index in row.members:
            for value in self.nodes[index].operands:
                for base, _ in self.bases(value):
                    source = self.of_value.get(base, -1)
                    cluster = self.cluster_of.get(source)
                    if cluster is None or cluster.kind != "dense" or cluster in found.values():
                        continue
                    both = squeezed(self.shapes.shape(base)), squeezed(row.space)
                    if self.same(*both) and self.outside_users(cluster) <= row.members:
                        found[source] = cluster
        for cluster in found.values():
            names = [self.nodes[i].op.name for i in cluster.members]
            if set(names) <= {"stablehlo.dot_general", *VIEWS}:
                dot = self._dot_of(cluster)
                shapes = [self.shapes.shape(v) for v in dot.operands]
                if is_score(self._sums(cluster), shapes) is None:
                    return cluster
        return None

    def _dot_of(self, cluster: Cluster) -> Node:
        nodes = (self.nodes[i] for i in cluster.members)
        return next(n for n in nodes if n.op.name == "stablehlo.dot_general")

    def _sums(self, cluster: Cluster) -> Sums:
        """The sums of the first contraction of a cluster, which has one."""
        nodes = (self.nodes[i] for i in sorted(cluster.members))
        op = next(n.op for n in nodes if contraction_kind(n.op) is not None)
        return sums_of(op, self.region(cluster.members, cluster.clones))

    def claim(self, dot: Node) -> None:
        """Transposes of its result alone are the dot's: it writes in any order."""
        members, node = {dot.index}, dot
        while len(node.users) == 1:
            (follower,) = (self.nodes[i] for i in node.users)
            reads_it = list(follower.operands) == [node.op.results[0]]
            if follower.op.name != "stablehlo.transpose" or not reads_it:
                break
            members.add(follower.index)
            node = follower
        kind = contraction_kind(dot.op)
        assert kind is not None
        cluster = Cluster(kind, dot.shapes[0], members=members)
        self.cluster_of.update(dict.fromkeys(members, cluster))

    def _views(self, value: ir.Value, dot: Node) -> tuple[set[int], set[int]]:
        """The ops that make `value` a view of what is in memory and that only `dot` reads, and the
        node of that; none where they are not.
        """
        chain = chain_of(value, self.shapes)
        view = self._in_memory(value, chain[-1].operands[0]) if chain else None
        if view is None:
            return set(), set()
        inside = {dot.index}
        for op in chain:
            index = self.of_value.get(op.results[0])
            if index is None:
                return set(), set()
            node, cluster = self.nodes[index], self.cluster_of.get(index)
            alone = cluster is not None and cluster.members == {index}
            if not (alone or node.role == "free") or not self._direct_users(node) <= inside:
                return set(), set()
            inside.add(index)
        return inside - {dot.index}, self._nodes_of(view.base)

    def _in_memory(self, value: ir.Value, base: ir.Value, spread: bool = False) -> View | None:
        """`value` as a view of what `base` is in memory, which may have another shape; None where
        kernels compute `base` themselves (an iota, a broadcast, a mask of positions).
        """
        while (op := producer(base)) is not None and op.name in RESHAPES:
            base = op.operands[0]
        if base in self.recomputed or (
            op is not None and (op.name in FREE or is_splat_constant(op))
        ):
            return None
        return view_of(value, [base], self.shapes, spread)

    def _nodes_of(self, value: ir.Value) -> set[int]:
        """The node of this block that computes `value`, if one does."""
        index = self.of_value.get(value)
        return set() if index is None else {index}

    def _direct_users(self, node: Node) -> set[int | None]:
        """The nodes that read a result, free ones too."""
        users = [use.owner.operation for result in node.op.results for use in result.uses]
        return {self.of_value.get(op.results[0]) if len(op.results) else None for op in users}

    def _epilogue(self, dot: Node) -> Cluster | str:
        """The loop cluster over exactly a dense result's elements that alone reads it; or why what
        reads it is not computed in its kernel.
        """
        clusters = {id(c): c for i in dot.users if (c := self.cluster_of.get(i)) is not None}
        several = len(clusters) != 1 or any(i not in self.cluster_of for i in dot.users)
        if dot.index in self.kept or several:
            return "the product is read at several places"
        (cluster,) = clusters.values()
        if cluster.kind != "loop":
            return f"a product takes in element-wise work, not a {cluster.kind} kernel"
        if not self.same(cluster.space, dot.shapes[0]):
            return "it has other elements than the product"
        return cluster

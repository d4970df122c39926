"""Rewrites a planned block: clusters become `disc.fusion` ops, in an order that runs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from shlo_disc.dialect import Fusion, Yield
from shlo_disc.dynamic.expr import Expr
from shlo_disc.errors import InternalError
from shlo_disc.locations import source_line
from shlo_disc.mlir import ir
from shlo_disc.passes.fusion_cost import Costs
from shlo_disc.passes.fusion_graph import Cluster, opaque_kind
from shlo_disc.passes.op_classes import (
    DENSE_KINDS,
    FREE,
    HARD_OPERANDS,
    IN_PLACE_KINDS,
    RESHAPES,
    is_host_scalar,
    is_integer_scalar,
    is_splat_constant,
)

__all__ = ["emit_fusions"]


@dataclass
class Unit:
    """What is emitted together: a fusion (kind given) or one op that stays as it is."""

    kind: str | None
    members: list[int]
    reduced: tuple[int, ...] = ()
    clones: frozenset[int] = frozenset()
    """Nodes of other units that are computed here once more."""
    because: tuple[str, ...] = ()
    given: int = -1
    """The node whose value row work behind a product reads."""


def _clones_free(unit: Unit) -> bool:
    """Do kernels of this kind compute free ops themselves?"""
    return (
        unit.kind in DENSE_KINDS or unit.kind in ("column", "loop", "row") or len(unit.members) > 1
    )


def emit_fusions(graph: Costs) -> int:
    """Replace clusters by fusions and order the block; returns the number of fusions."""
    return _Emitter(graph).emit()


class _Emitter:
    def __init__(self, graph: Costs) -> None:
        self.graph = graph

    def emit(self) -> int:
        """See `emit_fusions`."""
        made = 0
        terminator = self.graph.nodes[-1].op
        fused: set[int] = set()
        units = self._units()
        self.cloned: dict[int, list[Cluster]] = {}
        for cluster in dict.fromkeys(self.graph.cluster_of.values()):
            for index in cluster.clones:
                self.cloned.setdefault(index, []).append(cluster)
        # Before values are replaced by results of fusions.
        self.not_fused = {unit.members[0]: self._reasons(unit) for unit in units}
        for unit in self._ordered(units):
            if unit.kind is None:
                self.graph.nodes[unit.members[0]].op.move_before(terminator)
            else:
                made += self._fuse(unit, terminator)
                fused.update(unit.members)
        for node in reversed(self.graph.nodes):
            spare = (
                node.role == "free" or node.op.name == "disc.shape" or is_splat_constant(node.op)
            )
            unused = not any(map(_is_used, node.op.results))
            if node.index in fused or (spare and unused):
                if not unused:
                    result = next(r for r in node.op.results if _is_used(r))
                    reader = next(iter(result.uses)).owner.operation
                    raise InternalError(
                        f"{source_line(reader)}: {reader.name} reads {node.op.name} of "
                        f"{source_line(node.op)}, which no fusion gives out"
                    )
                node.op.erase()
        return made

    def _units(self) -> list[Unit]:
        units: list[Unit] = []
        seen: set[int] = set()
        for node in self.graph.nodes[:-1]:
            cluster = self.graph.cluster_of.get(node.index)
            if node.index in seen:
                continue
            if cluster is not None:
                seen |= cluster.members
                units.append(
                    Unit(
                        cluster.kind,
                        sorted(cluster.members),
                        cluster.reduced,
                        frozenset(cluster.clones),
                        tuple(cluster.because),
                        cluster.given,
                    )
                )
            elif node.role == "opaque":
                units.append(Unit(opaque_kind(node.op), [node.index]))
            elif node.role != "free":
                units.append(Unit(None, [node.index]))
            elif node.index in self.graph.needed:
                kind = None if node.op.name in RESHAPES else "loop"
                units.append(Unit(kind, [node.index]))
        return units

    def _ordered(self, units: list[Unit]) -> Iterable[Unit]:
        """A topological order, as near to the program's as it gets."""
        unit_of = {m: k for k, unit in enumerate(units) for m in unit.members}
        before: list[set[int]] = []
        for k, unit in enumerate(units):
            sources: set[int] = set()
            stack = list(unit.members)
            seen = set(stack)
            while stack:
                index = stack.pop()
                for source, stored in self._sources(index, unit):
                    if stored and source in unit_of:
                        sources.add(unit_of[source])
                    if self.graph.nodes[source].role == "free" and source not in seen:
                        seen.add(source)
                        stack.append(source)
            before.append(sources - {k})
        after: list[list[int]] = [[] for _ in units]
        for k, sources in enumerate(before):
            for source in sources:
                after[source].append(k)
        waiting = [len(sources) for sources in before]
        ready = [(max(u.members), k) for k, u in enumerate(units) if not waiting[k]]
        heapify(ready)
        ordered = 0
        while ready:
            _, k = heappop(ready)
            ordered += 1
            yield units[k]
            for follower in after[k]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heappush(ready, (max(units[follower].members), follower))
        if ordered < len(units):
            stuck = next(unit for unit, count in zip(units, waiting, strict=True) if count)
            op = self.graph.nodes[stuck.members[0]].op
            raise InternalError(
                f"{source_line(op)}: the kernel of {op.name} reads what another computes from it"
            )

    def _sources(self, index: int, unit: Unit) -> Iterator[tuple[int, bool]]:
        """(node that a node of a unit reads, does it read what is in memory): free ops are computed
        in the kernels that read them, even when another reader needs them in memory.
        """
        node = self.graph.nodes[index]
        hard = HARD_OPERANDS.get(node.op.name, ())
        for position, value in enumerate(node.operands):
            source = self.graph.of_value.get(value)
            if source is None:
                continue
            cloned = self.graph.nodes[source].role == "free" and _clones_free(unit)
            yield source, not cloned or (position in hard and index in unit.members)

    def _fuse(self, unit: Unit, terminator: ir.Operation) -> bool:
        """Make the fusion, unless every reader computes its values itself."""
        ops = [self.graph.nodes[i].op for i in unit.members]
        inside = {result for op in ops for result in op.results}
        clone = _clones_free(unit)
        outputs = [
            result
            for op in ops
            for result in op.results
            if self._escapes(result, set(unit.members))
        ]
        if not outputs:
            return False
        again = {result for i in unit.clones for result in self.graph.nodes[i].op.results}
        free = again | self.graph.recomputed
        inputs, sequence = _gather(ops, inside, free, clone_free=clone)
        if unit.kind in IN_PLACE_KINDS and ops[-1].operands[0] in inputs:
            # Where plan-buffers looks for what is changed.
            inputs.remove(ops[-1].operands[0])
            inputs.insert(0, ops[-1].operands[0])
        location = ir.Location.fused([op.location for op in ops[:8]])
        with ir.InsertionPoint(terminator), location:
            kind = ir.StringAttr.get("host" if _on_host(unit, inputs, sequence) else unit.kind)
            fusion = Fusion(inputs, [o.type for o in outputs], kind=kind).operation
            fusion.attributes["name"] = ir.StringAttr.get(_describe(ops))
            if reasons := self.not_fused[unit.members[0]]:
                attributes = [ir.StringAttr.get(reason) for reason in reasons]
                fusion.attributes["not_fused"] = ir.ArrayAttr.get(attributes)
            if because := self._because(unit, ops, outputs):
                attributes = [ir.StringAttr.get(reason) for reason in because]
                fusion.attributes["why"] = ir.ArrayAttr.get(attributes)
            if unit.reduced:
                fusion.attributes["reduced"] = ir.DenseI64ArrayAttr.get(unit.reduced)
            if unit.given >= 0:
                i64 = ir.IntegerType.get_signless(64)
                place = sequence.index(self.graph.nodes[unit.given].op)
                fusion.attributes["given"] = ir.IntegerAttr.get(i64, place)
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
        return True

    def _because(
        self, unit: Unit, ops: Sequence[ir.Operation], outputs: Sequence[ir.Value]
    ) -> list[str]:
        """What the fusion saves, and the decisions that were a matter of cost."""
        inner = [r for op in ops for r in op.results if r not in outputs]
        if not inner:
            return list(unit.because)
        moved = sum((self.graph.bytes_of(value) for value in inner), Expr.const(0)) * 2
        count = f"{len(inner)} value{'s' if len(inner) > 1 else ''}"
        return [f"fused: {count} never stored, {moved} bytes less to move", *unit.because]

    def _reasons(self, unit: Unit) -> list[str]:
        """Why what it reads was not fused into it: a sentence for each producer."""
        found: dict[str, None] = {}
        for index in unit.members:
            for value in self.graph.nodes[index].operands:
                for base, _ in self.graph.bases(value):
                    source = self.graph.of_value.get(base, -1)
                    reason = self.graph.why.get((source, index))
                    if reason is not None and source not in unit.members:
                        name = self.graph.nodes[source].op.name.removeprefix("stablehlo.")
                        found[f"{name}: {reason}"] = None
        return list(found)

    def _escapes(self, result: ir.Value, inside: set[int]) -> bool:
        """Is `result` read by anything that is not cloned into this or another kernel?"""
        made = self.graph.of_value[result]
        stack = [result]
        while stack:
            for use in stack.pop().uses:
                owner = use.owner.operation
                index = self.graph.of_value.get(owner.results[0]) if len(owner.results) else None
                if index in inside or self._computes(index, made):
                    if index is not None and self._is_read_by_clones(index, made):
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

    def _is_read_by_clones(self, reader: int, made: int) -> bool:
        """Does another kernel compute the value of `reader` again, but not that of `made`?"""
        return any(
            made not in cluster.clones and made not in cluster.members
            for cluster in self.cloned.get(reader, ())
        )

    def _computes(self, reader: int | None, made: int) -> bool:
        """Does the cluster of a node compute the value of another by itself?"""
        cluster = None if reader is None else self.graph.cluster_of.get(reader)
        return cluster is not None and made in cluster.clones


def _is_used(value: ir.Value) -> bool:
    return any(True for _ in value.uses)


def _on_host(unit: Unit, inputs: Sequence[ir.Value], sequence: Sequence[ir.Operation]) -> bool:
    """Is it integer arithmetic on scalars: a loop counter, a condition?"""
    if unit.kind != "loop" or not all(is_integer_scalar(value) for value in inputs):
        return False
    return all(op.name == "disc.shape" or is_host_scalar(op) for op in sequence)


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


def _describe(ops: Sequence[ir.Operation]) -> str:
    """A name people recognise: the first few distinct op names."""
    names = list(dict.fromkeys(op.name.split(".", 1)[1] for op in ops))
    return "_".join(names[:4]) + ("_etc" if len(names) > 4 else "")

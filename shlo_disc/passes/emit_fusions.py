"""Rewrites a planned block: clusters become `disc.fusion` ops, in an order that runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.dialect import Fusion, Yield
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import clone, ir
from shlo_disc.passes.fusion.graph import opaque_kind
from shlo_disc.passes.fusion.partition import Partition
from shlo_disc.passes.kinds import KINDS, kind_of
from shlo_disc.passes.op_classes import (
    RESHAPES,
    WHY,
    is_host_scalar,
    is_integer_scalar,
    is_splat_constant,
    own_kind,
)
from shlo_disc.passes.records import Record, match
from shlo_disc.passes.region import Region, carried


@dataclass(frozen=True)
class Made:
    """A fusion, and what the planner makes of it."""

    fusion: ir.Operation
    planned: Record | str | None
    """The record matched before there was a fusion, about its ops now; or why there was none. Of
    fusions without a kernel, and where nobody asks (`SHLO_DISC_SPEC`): None."""


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
    """True if the kernel computes free ops itself."""
    return len(unit.members) > 1 or (unit.kind is not None and KINDS[unit.kind].clones_free)


def emit_fusions(partition: Partition) -> list[Made]:
    """Replace clusters by fusions and order the block."""
    return _Emitter(partition).emit()


def check_records(fusions: Iterable[Made], shapes: ShapeAnalysis) -> None:
    """Raises InternalError for a fusion that is another one to its emitter than to the planner."""
    for made in fusions:
        if made.planned is None:
            continue
        kind = kind_of(made.fusion).name
        found = match(kind, Region.of(made.fusion, shapes))
        where = f"{source_line(made.fusion)}: a fusion of kind {kind}"
        if isinstance(found, str) or isinstance(made.planned, str):
            if found != made.planned:
                raise InternalError(f"{where} was planned as {made.planned}, and is {found}")
            continue
        for field in dataclasses.fields(found):
            planned = getattr(made.planned, field.name)
            if getattr(found, field.name) != planned:
                raise InternalError(f"{where} has another {field.name} than was planned: {planned}")


class _Emitter:
    def __init__(self, partition: Partition) -> None:
        self.partition, self.graph = partition, partition.graph
        self.shapes = partition.graph.shapes
        self.now: dict[ir.Value, ir.Value] = {}
        """Values that are results of fusions now."""

    def emit(self) -> list[Made]:
        """See `emit_fusions`."""
        made: list[Made] = []
        terminator = self.graph.nodes[-1].op
        fused: set[int] = set()
        units = self._units()
        # Before values are replaced by results of fusions.
        self.not_fused = {unit.members[0]: self._reasons(unit) for unit in units}
        self.planned = {unit.members[0]: self._record(unit) for unit in units}
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

    def _region(self, unit: Unit) -> Region:
        members, free = frozenset(unit.members), _clones_free(unit)
        return self.partition.region(members, unit.clones, clone_free=free, given=unit.given)

    def _record(self, unit: Unit) -> Record | str | None:
        """What the planner makes of a unit; None where nobody asks."""
        if unit.kind is None or not flags.spec_checks():
            return None
        return match(unit.kind, self._region(unit))

    def _units(self) -> list[Unit]:
        units: list[Unit] = []
        seen: set[int] = set()
        for node in self.graph.nodes[:-1]:
            cluster = self.partition.cluster_of.get(node.index)
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
        for reader, update in self._read_before(units, after):
            before[update].add(reader)
            after[reader].append(update)
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

    def _read_before(self, units: list[Unit], after: list[list[int]]) -> Iterator[tuple[int, int]]:
        """Pairs (unit that reads an array, unit that updates a part of it).

        Where the reader comes first, the update need not copy the array. Pairs that would close a
        cycle are left out: `after`, to which the caller adds them, lists who waits for a unit.
        """
        updated = {
            k: base
            for k, unit in enumerate(units)
            if unit.kind is not None and KINDS[unit.kind].in_place
            for base, _ in self.graph.bases(
                _changed([self.graph.nodes[index].op for index in unit.members])
            )
        }
        arrays = set(updated.values())
        readers: dict[ir.Value, dict[int, None]] = {array: {} for array in arrays}
        for k, unit in enumerate(units if arrays else ()):
            for read in (read for index in unit.members for read in self.graph.reads(index)):
                if read.base in arrays:
                    readers[read.base][k] = None
        for k, array in updated.items():
            if readers[array].keys() == {k}:
                continue
            later, waiting = {k}, [k]
            while waiting:
                found = [unit for unit in after[waiting.pop()] if unit not in later]
                later.update(found)
                waiting += found
            for reader in readers[array]:
                if reader in updated and updated[reader] == array:
                    continue
                if reader not in later and k not in after[reader]:
                    yield reader, k

    def _sources(self, index: int, unit: Unit) -> Iterator[tuple[int, bool]]:
        """Pairs (node that a node of a unit reads, True if it reads that in memory).

        Kernels compute the free ops they read, even when another reader needs these in memory.
        """
        node = self.graph.nodes[index]
        for position, value in enumerate(node.operands):
            source = self.graph.of_value.get(value)
            if source is None:
                continue
            cloned = self.graph.nodes[source].role == "free" and _clones_free(unit)
            yield source, not cloned or (position in node.in_memory and index in unit.members)

    def _fuse(self, unit: Unit, terminator: ir.Operation) -> list[Made]:
        """Make the fusion; none where every reader computes its values itself."""
        region = self._region(unit)
        ops = [self.graph.nodes[i].op for i in unit.members]
        outputs, sequence, inputs = region.results, region.ops, list(region.inputs)
        if not outputs:
            return []
        if unit.kind is not None and KINDS[unit.kind].in_place:
            changed = _changed(ops)
            if changed in inputs:  # where plan-buffers looks for it
                inputs.remove(changed)
                inputs.insert(0, changed)
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
        for old, new in inner.items():
            self.shapes.carry(old, new)
        clones: dict[ir.Operation, ir.Operation] = {}
        with ir.InsertionPoint(block), location:
            for op in sequence:
                clones[op] = clone(op, inner)
                inner.update(zip(op.results, clones[op].results, strict=True))
                self._carry(op, clones[op])
            Yield([inner[o] for o in outputs])
        planned = self.planned[unit.members[0]]
        if planned is not None:
            before = {old: inner[new] for old, new in self.now.items() if new in inner}
            planned = None if kind_of(fusion).on_host else carried(planned, inner | before, clones)
        for old, new in zip(outputs, fusion.results, strict=True):
            self.shapes.carry(old, new)
            old.replace_all_uses_with(new)
            self.now[old] = new
        return [Made(fusion, planned)]

    def _carry(self, op: ir.Operation, copy: ir.Operation) -> None:
        """What is known of `op` holds for its copy."""
        for old, new in zip(op.results, copy.results, strict=True):
            self.shapes.carry(old, new)
        for old_region, new_region in zip(op.regions, copy.regions, strict=True):
            for before, after in zip(old_region.blocks, new_region.blocks, strict=True):
                for old, new in zip(before.arguments, after.arguments, strict=True):
                    self.shapes.carry(old, new)
                for here, there in zip(before.operations, after.operations, strict=True):
                    self._carry(here.operation, there.operation)

    def _because(
        self, unit: Unit, ops: Sequence[ir.Operation], outputs: Sequence[ir.Value]
    ) -> list[str]:
        """What the fusion saves, and the decisions that were a matter of cost."""
        inner = [r for op in ops for r in op.results if r not in outputs]
        said = [ir.StringAttr(op.attributes[WHY]).value for op in ops if WHY in op.attributes]
        because = [*unit.because, *dict.fromkeys(said)]
        if not inner:
            return because
        moved = sum((self.partition.bytes_of(value) for value in inner), Expr.const(0)) * 2
        count = f"{len(inner)} value{'s' if len(inner) > 1 else ''}"
        return [f"fused: {count} never stored, {moved} bytes less to move", *because]

    def _reasons(self, unit: Unit) -> list[str]:
        """Why what it reads was not fused into it: a sentence for each producer."""
        found: dict[str, None] = {}
        for index in unit.members:
            for source in (read.source for read in self.graph.reads(index)):
                reason = self.partition.why.get((source, index))
                if reason is not None and source not in unit.members:
                    name = self.graph.nodes[source].op.name.removeprefix("stablehlo.")
                    found[f"{name}: {reason}"] = None
        return list(found)


def _changed(ops: Sequence[ir.Operation]) -> ir.Value:
    """What the one op among `ops` with an emitter of its own changes."""
    return next(op.operands[0] for op in ops if own_kind(op) is not None)


def _is_used(value: ir.Value) -> bool:
    return any(True for _ in value.uses)


def _on_host(unit: Unit, inputs: Sequence[ir.Value], sequence: Sequence[ir.Operation]) -> bool:
    """True for integer arithmetic on scalars, such as a loop counter or a condition."""
    if unit.kind != "loop" or not all(is_integer_scalar(value) for value in inputs):
        return False
    return all(op.name == "disc.shape" or is_host_scalar(op) for op in sequence)


def _describe(ops: Sequence[ir.Operation]) -> str:
    """A name people recognise: the first few distinct op names."""
    names = list(dict.fromkeys(op.name.split(".", 1)[1] for op in ops))
    return "_".join(names[:4]) + ("_etc" if len(names) > 4 else "")

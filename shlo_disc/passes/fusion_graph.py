"""The ops of a block as a graph, and the questions the fusion planner asks about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.reductions import reduction_runs
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.errors import UnsupportedError
from shlo_disc.locations import source_line
from shlo_disc.mlir import ir
from shlo_disc.ops import Role, row_of
from shlo_disc.passes.machine_model import MachineModel
from shlo_disc.passes.op_classes import (
    DENSE_KINDS,
    EXPENSIVE,
    FREE,
    MATERIALIZED_OPERANDS,
    OPAQUE_KIND,
    RESHAPES,
    is_splat_constant,
)
from shlo_disc.passes.spans import Spans

__all__ = [
    "Cluster",
    "Graph",
    "Node",
    "Shape",
    "broadcast_dims",
    "dimensions",
    "opaque_kind",
    "squeezed",
]

Shape = tuple[Expr, ...]


@dataclass(eq=False)
class Cluster:
    """Ops that will share a kernel."""

    kind: str
    space: Shape
    reduced: tuple[int, ...] = ()
    """Kinds `row` and `column`: the dimensions of `space` that are reduced."""
    members: set[int] = field(default_factory=set)
    span: tuple[int, int] = (0, 0)
    """The oldest and the youngest member; kept for clusters of more than one."""
    clones: set[int] = field(default_factory=set)
    """Nodes of other clusters that are computed here once more."""
    in_place: set[int] = field(default_factory=set)
    """Nodes of other clusters whose values are read in memory, through slices and transposes."""
    because: list[str] = field(default_factory=list)
    """Decisions of the cost model, for `explain()`."""
    given: int = -1
    """Kind `dense` with rows: the node whose value the row work reads."""

    @property
    def runs(self) -> list[Shape]:
        """The sizes of `space` that are kept, reduced, kept, ... in turn, without units."""
        return reduction_runs(self.space, self.reduced)

    def inherit(self, *parts: Cluster) -> Cluster:
        """Take over what was decided for clusters this one is made of; returns itself."""
        for part in parts:
            self.clones |= part.clones
            self.in_place |= part.in_place
            self.because += [note for note in part.because if note not in self.because]
        return self


@dataclass
class Node:
    """One op of the block being planned."""

    index: int
    op: ir.Operation
    role: str  # elementwise, moving, loop, opaque, control, free, host or return
    operands: list[ir.Value]
    """Including what the regions of a control op capture."""
    shapes: list[Shape]
    users: set[int] = field(default_factory=set)
    """Nodes that use a result, directly or through free ops."""


class Graph:
    """One block: its ops, who reads whom, and the cluster each op is in."""

    def __init__(
        self,
        block: ir.Block,
        shapes: ShapeAnalysis,
        machine: MachineModel,
        free_indices: bool = True,
    ) -> None:
        self.shapes, self.machine = shapes, machine
        self._free_indices = free_indices
        """May values computed from indices alone be computed by every kernel that reads them?"""
        self.parts: Mapping[int, int] = {}
        """Node to part: clusters do not reach across parts."""
        self.nodes: list[Node] = []
        self.of_value: dict[ir.Value, int] = {}
        self.cluster_of: dict[int, Cluster] = {}
        self._spans = Spans(len(block.operations))
        """Of the clusters of more than one member."""
        self._origins: dict[int, list[int]] = {}
        self._levels: dict[tuple[Shape, Shape, tuple[int, ...]], str | None] = {}
        self.from_indices: dict[ir.Value, int] = {}
        """Values computed from indices and sizes alone, and by how many ops: cheaper computed in
        every kernel than read (a causal mask)."""
        self.small: dict[ir.Value, int] = {}
        """Integers that say where to read, and by how many ops they are computed from data (the
        counter of a loop): cheaper computed in every kernel, too."""
        self.kept: set[int] = set()
        """Nodes whose values other kernels read to compute something again."""
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
            self.nodes.append(Node(index, op, role, operands, sizes))
            for result in results:
                self.of_value[result] = index
        for node in reversed(self.nodes):
            users = node.users if node.role == "free" else {node.index}
            for value in node.operands:
                source = self.of_value.get(value)
                if source is not None:
                    self.nodes[source].users |= users
        self.recomputed = self.from_indices.keys() | self.small.keys()
        self.needed = self._materialized()

    def _role(self, op: ir.Operation) -> str:
        role = _role(op)
        if not self._free_indices:
            return role
        free = role == "free" or op.name == "disc.shape" or is_splat_constant(op)
        if free or (role == "elementwise" and op.name not in EXPENSIVE):
            known = [self.from_indices.get(v) for v in op.operands]
            count = sum(k for k in known if k is not None) + (not free)
            if None not in known and count <= self.machine.index_ops:
                self.from_indices.update(dict.fromkeys(op.results, count))
                return "free" if role == "elementwise" else role
        cheap = role == "elementwise" and op.name not in EXPENSIVE
        if (cheap or op.name == "stablehlo.concatenate") and self._is_position(op.results[0]):
            count = 1 + sum(self.small.get(v, 0) for v in op.operands)
            if count <= self.machine.index_ops:
                self.small[op.results[0]] = count
                return "free"
        return role

    def _is_position(self, value: ir.Value) -> bool:
        """A handful of integers."""
        kind = ir.RankedTensorType(value.type)
        if kind.rank > 1 or not isinstance(kind.element_type, ir.IntegerType):
            return False
        return bool(
            kind.has_static_shape
            and (not kind.rank or kind.get_dim_size(0) <= self.machine.index_ops)
        )

    def replace(self, union: Cluster, *parts: Cluster) -> None:
        """`union` takes the place of clusters it is made of."""
        union.span = (min(union.members), max(union.members))
        self._spans.add(*union.span)
        self.cluster_of.update(dict.fromkeys(union.members, union))

    def misfit(self, union: Cluster, *parts: Cluster) -> str | None:
        """Why these ops cannot be one kernel; `parts`: what `union` will inherit from."""
        whole = Cluster("", (), members=union.members).inherit(union, *parts)
        if whole.clones & (whole.in_place | self.read_in_memory(union.members)):
            return "it is computed again there, where it is read in memory, too"
        if self._reads_itself_in_memory(union):
            return "it is read in memory, through integers that another kernel computes"
        if len(union.members) > self.machine.most_ops:
            return f"more than {self.machine.most_ops} ops"
        if self._emits_too_much(union):
            most = self.machine.most_emitted_ops
            return f"more than {most} ops, counted at every index they are computed at"
        if self.parts and len({self.parts[index] for index in union.members}) > 1:
            return "no kernel could be written for both"
        inputs = self.inputs(union.members)
        if inputs > self.machine.most_inputs:
            return f"more than {self.machine.most_inputs} inputs"
        results = sum(
            len(self.nodes[i].op.results)
            for i in union.members
            if i in self.kept or self.nodes[i].users - union.members
        )
        if inputs + results > self.machine.most_arrays:
            return f"more than {self.machine.most_arrays} arrays read and written"
        if not self.acyclic(union.members):
            return "another kernel stands between them"
        return None

    def _reads_itself_in_memory(self, union: Cluster) -> bool:
        """Whether an op needs in memory a value that this kernel would compute.

        Free ops hide such a path from `acyclic`: few integers that one op reads in memory and
        another computes itself are a kernel of their own. Contractions compute their operands.
        """
        readers = {
            i for i in union.members if OPAQUE_KIND.get(self.nodes[i].op.name) not in DENSE_KINDS
        }
        return not union.members.isdisjoint(self.read_in_memory(readers))

    def _emits_too_much(self, union: Cluster) -> bool:
        """Whether the text of `union` would be too long: `MachineModel.most_emitted_ops`."""
        if union.kind in DENSE_KINDS or len(union.members) < 3:
            return False
        if all(self.nodes[i].role == "elementwise" for i in union.members):
            return False
        swept = union.kind in ("column", "row")
        indices: dict[int, set[int]] = {}
        """Of every member the indices it is computed at, each as a hash of how it came about."""
        total = 0
        for member in sorted(union.members, reverse=True):
            node = self.nodes[member]
            mine = indices.setdefault(member, set())
            if node.users - union.members:
                mine.add(0)
            total += len(mine)
            if total > self.machine.most_emitted_ops:
                return True
            same = node.role == "elementwise"
            # A row's reductions are computed once, in a sweep of their own.
            at = {hash((member, -1))} if swept and node.role == "loop" else mine
            for position, value in enumerate(node.operands):
                key = (-1, self.of_value.get(value, -1)) if same else (member, position)
                for base, chain in self.bases(value):
                    source = self.of_value.get(base, -1)
                    if source not in union.members:
                        continue
                    moved = at if same and not chain else {hash((one, key)) for one in at}
                    indices.setdefault(source, set()).update(moved)
        return False

    def same(self, a: Shape, b: Shape) -> bool:
        """Proved equal."""
        equal = self.shapes.constraints.equal
        return len(a) == len(b) and all(x == y or equal(x, y) for x, y in zip(a, b, strict=True))

    def level(self, shape: Shape, row: Cluster) -> str | None:
        """Has a value the elements of the row cluster's space (full; flat: in other dimensions), or
        of its rows (row)? Of a column cluster, columns are meant.
        """
        key = (shape, row.space, row.reduced)
        if key not in self._levels:
            found = None
            if self.same(squeezed(shape), squeezed(row.space)):
                found = "full"
            elif self.same(squeezed(shape), tuple(size for run in row.runs[::2] for size in run)):
                found = "row"
            elif self.shapes.constraints.product_equal(shape, row.space):
                found = "flat"
            self._levels[key] = found
        return self._levels[key]

    def only_units_change(
        self, base: ir.Value, chain: Sequence[ir.Operation], row: Cluster
    ) -> bool:
        """Does `chain` give every element of the full value `base` its own place?"""
        values = [base, *(op.results[0] for op in chain)]
        return all(op.name in RESHAPES for op in chain) and all(
            self.level(self.shapes.shape(v), row) in ("full", "flat") for v in values
        )

    def bases(self, value: ir.Value) -> Iterator[tuple[ir.Value, list[ir.Operation]]]:
        """Where `value` comes from through free ops: (base, those ops from the base on)."""
        stack: list[tuple[ir.Value, list[ir.Operation]]] = [(value, [])]
        while stack:
            value, chain = stack.pop()
            if value in self.from_indices:
                continue
            op = None if isinstance(value.owner, ir.Block) else value.owner.operation
            if op is not None and value in self.small:
                stack.extend((operand, [op, *chain]) for operand in reversed(list(op.operands)))
            elif op is not None and op.name in FREE:
                # The first operand alone is data; an iota of the block around this one has none.
                stack.extend((operand, [op, *chain]) for operand in list(op.operands)[:1])
            else:
                yield value, chain

    def outside_users(self, cluster: Cluster) -> set[int]:
        """The nodes outside that read its values."""
        users: set[int] = set()
        for index in cluster.members:
            users |= self.nodes[index].users
        return users - cluster.members

    def inputs(self, members: set[int]) -> int:
        """How many values a kernel of these nodes reads."""
        read: set[ir.Value] = set()
        for index in members:
            node = self.nodes[index]
            materialized = MATERIALIZED_OPERANDS.get(node.op.name, ())
            for position, value in enumerate(node.operands):
                if position in materialized and self.of_value.get(value) in self.needed:
                    read.add(value)
                    continue
                for base, _ in self.bases(value):
                    if self.of_value.get(base) not in members:
                        read.add(base)
        return len(read)

    def read_in_memory(self, members: set[int]) -> set[int]:
        """The nodes whose values these nodes read at arbitrary indices (`Op.materialized`)."""
        return {
            self.of_value.get(base, -1)
            for index in members
            for value in _read_in_memory(self.nodes[index])
            for base, _ in self.bases(value)
        }

    def acyclic(self, members: set[int]) -> bool:
        """No path leaves `members` and comes back, clusters counting as one node."""
        # A path back ends in an op younger than the oldest member; an older op can only lead to
        # one through a cluster that spans that age.
        low = self._spans.oldest(min(members))
        stack = [i for m in members for i in self.origins(m) if i not in members]
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
            stack.extend(i for m in group for i in self.origins(m) if i not in group)
        return True

    def origins(self, index: int) -> list[int]:
        """The nodes a node depends on, free ops (which move into every kernel) looked through."""
        known = self._origins.get(index)
        if known is None:
            known = self._origins[index] = []
            for source in self.sources(index):
                free = self.nodes[source].role == "free"
                known.extend(self.origins(source) if free else [source])
        return known

    def sources(self, index: int) -> Iterator[int]:
        """The nodes whose values a node reads."""
        for value in self.nodes[index].operands:
            source = self.of_value.get(value)
            if source is not None:
                yield source

    def _materialized(self) -> set[int]:
        """Free ops whose value must exist in memory: somebody outside a kernel reads it."""
        needed: set[int] = set()
        for node in self.nodes:
            waiting = _read_in_memory(node)
            if node.role in ("opaque", "control", "return"):
                waiting += node.operands
            while waiting:
                index = self.of_value.get(waiting.pop())
                if index is None or self.nodes[index].role != "free" or index in needed:
                    continue
                needed.add(index)
                if self.nodes[index].op.name in RESHAPES:
                    waiting.append(self.nodes[index].operands[0])
        return needed


def _read_in_memory(node: Node) -> list[ir.Value]:
    """The operands that the row of the op calls `materialized`; an op may have fewer."""
    positions = MATERIALIZED_OPERANDS.get(node.op.name, ())
    return [value for k, value in enumerate(node.operands) if k in positions]


_ROLES = {
    Role.CONTROL: "control",
    Role.ELEMENTWISE: "elementwise",
    Role.FREE: "free",
    Role.HOST: "host",
    Role.LOOP: "loop",
    Role.MOVING: "moving",
    Role.OWN: "opaque",
    Role.RETURN: "return",
}


def _role(op: ir.Operation) -> str:
    role = _ROLES.get(row_of(op).role)
    if role is None:
        opaque_kind(op)  # raises
        raise AssertionError
    return role


def opaque_kind(op: ir.Operation) -> str:
    """The kind of the kernel that is one op alone; raises UnsupportedError where there is none."""
    row = row_of(op)
    if row.kind:
        return row.kind
    name = op.name
    if name == "stablehlo.custom_call":
        name = ir.StringAttr(op.attributes["call_target_name"]).value
    raise UnsupportedError(
        f"{source_line(op)}: {name} is not compiled: {row.note}; keep this part of the program "
        "outside shlo_disc.jit, or have XLA run it: on_unsupported='xla'"
    )


def _captures(op: ir.Operation) -> list[ir.Value]:
    """Values the regions of `op` use but do not define."""
    inside: set[ir.Value] = set()
    used: dict[ir.Value, None] = {}
    _look_into(op, inside, used)
    return [value for value in used if value not in inside]


def _look_into(op: ir.Operation, inside: set[ir.Value], used: dict[ir.Value, None]) -> None:
    """Add the values that the regions of `op` define, and those that they use, in order."""
    for region in op.regions:
        for block in region.blocks:
            inside.update(block.arguments)
            for view in block.operations:
                inner = view.operation
                used.update(dict.fromkeys(inner.operands))
                inside.update(inner.results)
                _look_into(inner, inside, used)


def squeezed(shape: Shape) -> Shape:
    """`shape` without the dimensions that are always 1."""
    return tuple(d for d in shape if not d.is_one)


def dimensions(op: ir.Operation) -> list[int]:
    """What a reduction reduces, in order."""
    return sorted(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))


def broadcast_dims(op: ir.Operation) -> list[int]:
    """Where the operand's dimensions are in the result."""
    return list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))

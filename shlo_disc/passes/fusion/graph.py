"""The ops of a block as a graph: who reads whom, in which role, with which shapes.

Nothing here changes after construction. Which ops share a kernel is in a `Partition`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir, reads
from shlo_disc.ir.ops import Role, refusal, row_of
from shlo_disc.passes.kinds import contraction_kind
from shlo_disc.passes.machine_model import MachineModel
from shlo_disc.passes.op_classes import (
    FREE,
    MATERIALIZED_OPERANDS,
    RESHAPES,
    is_flag,
    is_row_reduction,
    is_splat_constant,
)

Shape = tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Node:
    """One op of the block being planned."""

    index: int
    op: ir.Operation
    role: str  # elementwise, data_movement, loop, opaque, control, free, host or return
    operands: tuple[ir.Value, ...]
    """Including what regions capture."""
    in_memory: frozenset[int]
    """Positions of the operands that are read at arbitrary indices (`Op.materialized`), and of what
    regions capture."""
    shapes: tuple[Shape, ...]
    users: frozenset[int]
    """Nodes that use a result, directly or through free ops."""


@dataclass(frozen=True, eq=False)
class Read:
    """What a node reads through free ops, which move into every kernel."""

    position: int
    """Of the operand."""
    base: ir.Value
    source: int
    """The node of `base`; -1: it is no result of this block."""
    chain: tuple[ir.Operation, ...]
    """The free ops, from `base` on."""


class Graph:
    """One block: its ops, and who reads whom."""

    def __init__(
        self,
        block: ir.Block,
        shapes: ShapeAnalysis,
        machine: MachineModel,
        free_indices: bool = True,
    ) -> None:
        self.shapes = shapes
        self.capabilities, self.costs = machine.capabilities, machine.costs
        self._free_indices = free_indices
        """True if kernels compute the values that they read and that depend on indices alone."""
        self.of_value: dict[ir.Value, int] = {}
        self._origins: dict[int, list[int]] = {}
        self._bases: dict[ir.Value, tuple[tuple[ir.Value, tuple[ir.Operation, ...]], ...]] = {}
        self._reads: dict[int, tuple[Read, ...]] = {}
        self._inputs: dict[int, tuple[tuple[ir.Value, int], ...]] = {}
        self._in_memory: dict[int, frozenset[int]] = {}
        self.from_indices: dict[ir.Value, int] = {}
        """Values computed from indices and sizes alone, and by how many ops: cheaper computed in
        every kernel than read (a causal mask)."""
        self.small: dict[ir.Value, int] = {}
        """Integers that say where to read, and by how many ops they are computed from data, such as
        the counter of a loop. They are cheaper computed in every kernel, too."""
        self.is_inner = block.owner.operation.name != "func.func"
        """True for the block of a branch or a loop."""
        ops = [view.operation for view in block.operations]
        roles = [self._role(op) for op in ops]
        operands = [tuple(reads(op)) for op in ops]
        self.of_value.update((result, k) for k, op in enumerate(ops) for result in op.results)
        users: list[set[int]] = [set() for _ in ops]
        for index in reversed(range(len(ops))):
            readers = users[index] if roles[index] == "free" else {index}
            for value in operands[index]:
                source = self.of_value.get(value)
                if source is not None:
                    users[source] |= readers
        self.nodes = tuple(
            Node(
                index,
                op,
                roles[index],
                operands[index],
                frozenset(
                    (
                        *MATERIALIZED_OPERANDS.get(op.name, ()),
                        *range(len(op.operands), len(operands[index])),
                    )
                ),
                () if roles[index] == "control" else tuple(map(shapes.shape, op.results)),
                frozenset(users[index]),
            )
            for index, op in enumerate(ops)
        )
        self.recomputed = self.from_indices.keys() | self.small.keys()
        self.needed = self._materialized()

    def _role(self, op: ir.Operation) -> str:
        role = _role(op)
        if not self._free_indices:
            return role
        free = role == "free" or op.name == "disc.shape" or is_splat_constant(op)
        if free or (role == "elementwise" and not self.costs.is_expensive(op)):
            known = [self.from_indices.get(v) for v in op.operands]
            count = sum(k for k in known if k is not None) + (not free)
            if None not in known and count <= self.costs.index_ops:
                self.from_indices.update(dict.fromkeys(op.results, count))
                return "free" if role == "elementwise" else role
        cheap = role == "elementwise" and not self.costs.is_expensive(op)
        if (cheap or op.name == "stablehlo.concatenate") and self._is_position(op.results[0]):
            count = 1 + sum(self.small.get(v, 0) for v in op.operands)
            if count <= self.costs.index_ops:
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
            and (not kind.rank or kind.get_dim_size(0) <= self.costs.index_ops)
        )

    def same(self, a: Shape, b: Shape) -> bool:
        """Proved equal."""
        equal = self.shapes.constraints.equal
        return len(a) == len(b) and all(x == y or equal(x, y) for x, y in zip(a, b, strict=True))

    def bases(self, value: ir.Value) -> tuple[tuple[ir.Value, tuple[ir.Operation, ...]], ...]:
        """Where `value` comes from through free ops: (base, those ops from the base on)."""
        known = self._bases.get(value)
        if known is None:
            known = self._bases[value] = tuple(self._bases_of(value))
        return known

    def _bases_of(self, value: ir.Value) -> Iterator[tuple[ir.Value, tuple[ir.Operation, ...]]]:
        if value in self.from_indices:
            return
        owner = value.owner
        op = None if isinstance(owner, ir.Block) else owner.operation
        if op is not None and value in self.small:
            operands = list(op.operands)
        elif op is not None and op.name in FREE:
            # The first operand alone is data; an iota of the block around this one has none.
            operands = list(op.operands)[:1]
        else:
            yield value, ()
            return
        for operand in operands:
            for base, chain in self.bases(operand):
                yield base, (*chain, op)

    def reads(self, index: int) -> tuple[Read, ...]:
        """What a node reads, operand for operand."""
        known = self._reads.get(index)
        if known is None:
            known = self._reads[index] = tuple(
                Read(position, base, self.of_value.get(base, -1), chain)
                for position, value in enumerate(self.nodes[index].operands)
                for base, chain in self.bases(value)
            )
        return known

    def inputs(self, members: AbstractSet[int]) -> int:
        """How many values a kernel of these nodes reads."""
        return len(
            {
                value
                for index in members
                for value, source in self._inputs_of(index)
                if source not in members
            }
        )

    def _inputs_of(self, index: int) -> tuple[tuple[ir.Value, int], ...]:
        """What a kernel of a node reads, each with the node that may compute it there, or -1."""
        known = self._inputs.get(index)
        if known is None:
            node = self.nodes[index]
            stored = {
                position: value
                for position, value in enumerate(node.operands)
                if position in node.in_memory and self.of_value.get(value) in self.needed
            }
            computed = (read for read in self.reads(index) if read.position not in stored)
            known = self._inputs[index] = (
                *((value, -1) for value in stored.values()),
                *((read.base, read.source) for read in computed),
            )
        return known

    def read_in_memory(self, members: AbstractSet[int]) -> set[int]:
        """The nodes whose values these nodes read at arbitrary indices (`Op.materialized`)."""
        found: set[int] = set()
        for index in self.reads_memory & members:
            known = self._in_memory.get(index)
            if known is None:
                places = self.nodes[index].in_memory
                known = self._in_memory[index] = frozenset(
                    read.source for read in self.reads(index) if read.position in places
                )
            found |= known
        return found

    @functools.cached_property
    def reads_memory(self) -> frozenset[int]:
        """The nodes that read values at arbitrary indices."""
        return frozenset(node.index for node in self.nodes if node.in_memory)

    @functools.cached_property
    def memory_readers(self) -> frozenset[int]:
        """Those of `reads_memory` that are no contraction: these compute their operands."""
        nodes = self.nodes
        return frozenset(i for i in self.reads_memory if contraction_kind(nodes[i].op) is None)

    @functools.cached_property
    def row_reductions(self) -> frozenset[int]:
        """The nodes that are `is_row_reduction`."""
        loops = (node for node in self.nodes if node.role == "loop")
        return frozenset(node.index for node in loops if is_row_reduction(node.op))

    @functools.cached_property
    def flags(self) -> frozenset[int]:
        """The nodes that are `is_flag`."""
        loops = (node for node in self.nodes if node.role == "loop")
        return frozenset(node.index for node in loops if is_flag(node.op))

    @functools.cached_property
    def readers(self) -> dict[ir.Value, set[int]]:
        """The nodes that read a value, directly or through free ops."""
        readers: dict[ir.Value, set[int]] = {}
        for node in self.nodes:
            for read in self.reads(node.index):
                readers.setdefault(read.base, set()).add(node.index)
        return readers

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
    """The operands at the positions `in_memory`."""
    return [value for k, value in enumerate(node.operands) if k in node.in_memory]


_ROLES = {
    Role.CONTROL: "control",
    Role.ELEMENTWISE: "elementwise",
    Role.FREE: "free",
    Role.HOST: "host",
    Role.LOOP: "loop",
    Role.MOVING: "data_movement",
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
    raise refusal(op)


def squeezed(shape: Shape) -> Shape:
    """`shape` without the dimensions that are always 1."""
    return tuple(d for d in shape if not d.is_one)

"""lift-transposes: what is computed from a product is computed in the order its readers want.

    %s = dot_general ...                          %s = transpose (dot_general ...)
    %m = reduce max %s                     ==>    %m = reduce max %s
    %t = transpose %s;  %n = transpose %m

Why     `vmap` over groups of queries, and a mask in `jax.nn.dot_product_attention`, leave
        transposes between the scores of an attention and their softmax. A product writes in any
        order for nothing; with the transpose behind it, attention is one kernel again.
Needs   `resolve-shapes`.
Keeps   every result: each op computes the same elements at other places.
Cost    O(users of products).
Source  Layout propagation, as in XLA's layout assignment, for this one case.

Element-wise ops and reductions are followed from the product on. All readers behind them must be
transposes that agree, and keep the innermost dimension where it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir.attributes import broadcast_dims, permutation
from shlo_disc.ir.mlir import ir, ops_of, producer, run_pipeline
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import BROADCASTS, ELEMENTWISE, is_splat_constant
from shlo_disc.passes.rules import Facts, permuted

MAX_OPS = 32
"""Ops followed from a product on: an attention has a handful."""


@dataclass(frozen=True)
class LiftTransposes(Pass):
    """See the module."""

    name: ClassVar[str] = "lift-transposes"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of products that got a transpose behind them."""
        found: list[tuple[_Region, list[int]]] = []
        for dot in _behind_work(ops_of(module, "stablehlo.transpose")):
            region = _Region.behind(dot)
            order = None if region is None else region.order()
            if region is not None and order is not None:
                found.append((region, order))
        if not found:
            return 0
        facts = Facts(shapes.now())
        for region, order in found:
            region.reorder(order, facts)
        run_pipeline(module, "trivial-dce,cse")
        return len(found)


def _behind_work(transposes: Sequence[ir.Operation]) -> list[ir.Operation]:
    """The products that are transposed after something was computed from them."""
    dots: dict[ir.Operation, None] = {}
    for transpose in transposes:
        stack, seen = [transpose.operands[0]], set[ir.Value]()
        while stack and len(seen) < MAX_OPS:
            value = stack.pop()
            op = producer(value)
            if op is None or value in seen:
                continue
            seen.add(value)
            if op.name == "stablehlo.dot_general" and len(seen) > 1:
                dots[op] = None
            elif op.name in ELEMENTWISE or op.name == "stablehlo.reduce":
                stack.extend(op.operands)
    return list(dots)


@dataclass
class _Region:
    """A product, and the ops computed from it and from what is the same along every dimension."""

    dot: ir.Operation
    ops: list[ir.Operation] = field(default_factory=list)
    dims: dict[ir.Value, tuple[int, ...]] = field(default_factory=dict)
    """Which dimensions of the product a value has."""
    readers: list[tuple[ir.Value, ir.Operation]] = field(default_factory=list)

    @staticmethod
    def behind(dot: ir.Operation) -> _Region | None:
        """What is computed from `dot`; None where nothing is, or too much."""
        region = _Region(dot)
        block = dot.block
        rank = dot.results[0].type.rank
        region.dims[dot.results[0]] = tuple(range(rank))
        waiting: list[tuple[int, int, ir.Operation]] = []
        seen: set[ir.Operation] = set()
        pending: list[ir.Value] = [dot.results[0]]
        places: dict[ir.Operation, int] = {}
        while pending or waiting:
            for value in pending:
                for use in value.uses:
                    user = use.owner.operation
                    if user in seen:
                        continue
                    seen.add(user)
                    if user.block != block:
                        return None
                    if not places:
                        places = {v.operation: i for i, v in enumerate(block.operations)}
                    heapq.heappush(waiting, (places[user], len(seen), user))
            pending = []
            if len(region.ops) > MAX_OPS:
                return None
            if waiting:
                _, _, user = heapq.heappop(waiting)
                if (dims := region._dims_of(user)) is None:
                    mine = [v for v in user.operands if v in region.dims]
                    region.readers += [(value, user) for value in mine]
                else:
                    region.ops.append(user)
                    region.dims[user.results[0]] = dims
                    pending = [user.results[0]]
        return region

    def _dims_of(self, op: ir.Operation) -> tuple[int, ...] | None:
        """The dimensions of the result of an op that may be part of this; None where it may not."""
        if len(op.results) != 1:
            return None
        if op.name == "stablehlo.reduce":
            value = op.operands[0]
            if len(op.operands) != 2 or value not in self.dims or op.operands[1] in self.dims:
                return None
            gone = set(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
            return tuple(d for k, d in enumerate(self.dims[value]) if k not in gone)
        if op.name not in ELEMENTWISE:
            return None
        rank = op.results[0].type.rank
        found = {self.dims[v] for v in op.operands if v in self.dims and v.type.rank == rank}
        others = [v for v in op.operands if v not in self.dims and v.type.rank]
        if len(found) != 1 or not all(_spreads(v) for v in others):
            return None
        return found.pop()

    def order(self) -> list[int] | None:
        """The order of the product's dimensions that its readers want; None where there is none."""
        whole = tuple(self.dims[self.dot.results[0]])
        wanted = [
            tuple(permutation(op)) if op.name == "stablehlo.transpose" else None
            for value, op in self.readers
            if self.dims[value] == whole
        ]
        if not wanted or wanted[0] is None or len(set(wanted)) != 1:
            return None
        order = list(wanted[0])
        if order[-1] != len(order) - 1 or order == list(whole) or not self.ops:
            return None
        if not all(self._agrees(value, op, order) for value, op in self.readers):
            return None
        spread = (v for op in self.ops for v in op.operands if v not in self.dims)
        return order if all(_stays_sorted(v, order) for v in spread) else None

    def _agrees(self, value: ir.Value, op: ir.Operation, order: Sequence[int]) -> bool:
        mine = permutation(op) if op.name == "stablehlo.transpose" else None
        dims = self.dims[value]
        restricted = [dims.index(d) for d in order if d in dims]
        return mine == restricted or (mine is None and restricted == sorted(restricted))

    def reorder(self, order: Sequence[int], facts: Facts) -> None:
        """Compute everything in this order of dimensions, for the readers as it is."""
        made: dict[ir.Value, ir.Value] = {}
        result = self.dot.results[0]
        with ir.InsertionPoint(self.ops[0]), self.dot.location:
            made[result] = facts.transpose(result, order)
        for op in self.ops:
            dims = self.dims[op.results[0]]
            places = [dims.index(d) for d in order if d in dims]
            with ir.InsertionPoint(op), op.location:
                made[op.results[0]] = self._again(op, made, order, places, facts)
        for value, op in self.readers:
            if op.name == "stablehlo.transpose":
                op.results[0].replace_all_uses_with(made[value])
            else:
                for position, operand in enumerate(op.operands):
                    if operand == value:
                        op.operands[position] = made[value]

    def _again(
        self,
        op: ir.Operation,
        made: dict[ir.Value, ir.Value],
        order: Sequence[int],
        places: Sequence[int],
        facts: Facts,
    ) -> ir.Value:
        """A copy of `op` on values in the new order."""
        result = op.results[0]
        kind = permuted(result.type, places)
        operands = [made[v] if v in made else _spread(v, places, facts) for v in op.operands]
        copy = op.clone().operation
        for position, value in enumerate(operands):
            copy.operands[position] = value
        if op.name == "stablehlo.reduce":
            before = self.dims[op.operands[0]]
            now = [d for d in order if d in before]
            gone = [now.index(before[k]) for k in ir.DenseI64ArrayAttr(op.attributes["dimensions"])]
            copy.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(sorted(gone))
        copy.results[0].set_type(kind)
        shape = facts.shape(result)
        facts.made[copy.results[0]] = tuple(shape[p] for p in places)
        return copy.results[0]


def _spreads(value: ir.Value) -> bool:
    """True for a broadcast or a splat, which has any order for nothing."""
    op = producer(value)
    return op is not None and (op.name in BROADCASTS or is_splat_constant(op))


def _stays_sorted(value: ir.Value, order: Sequence[int]) -> bool:
    """True if a broadcast still keeps the order of its dimensions: emitters read it as strides."""
    op = producer(value)
    if op is None or op.name not in BROADCASTS:
        return True
    dims = broadcast_dims(op)
    if value.type.rank != len(order):
        return not dims
    places = [order.index(d) for d in dims]
    return places == sorted(places)


def _spread(value: ir.Value, places: Sequence[int], facts: Facts) -> ir.Value:
    """A broadcast, splat or scalar with its dimensions in the new order."""
    op = producer(value)
    if not value.type.rank or op is None:
        return value
    kind, shape = permuted(value.type, places), facts.shape(value)
    sizes = tuple(shape[p] for p in places)
    if is_splat_constant(op):
        number = op.attributes["value"].get_splat_value()
        attribute = ir.DenseElementsAttr.get_splat(kind, number)
        return facts.build("stablehlo.constant", [], kind, sizes, {"value": attribute})
    dims = [list(places).index(d) for d in broadcast_dims(op)]
    return facts.broadcast(op.operands[0], dims, kind, sizes)


register(LiftTransposes())

"""Scalars are moved to their homes: what `place-scalars` (`place_scalars.py`) does on a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shlo_disc.ir.dialect import Fusion, Yield
from shlo_disc.ir.mlir import clone, ir, producer
from shlo_disc.passes.homes import (
    TRANSFER,
    is_on_host,
    set_by_value,
    set_far_memory,
    set_on_host,
)
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.op_classes import CONTROL, RESHAPES
from shlo_disc.passes.scalar_flow import ScalarFlow, arguments_of, homes


def place(func: ir.Operation) -> int:
    """Give the scalars of `func` their homes; how many values are on the host."""
    set_far_memory(func)
    while True:
        flow = ScalarFlow()
        flow.add(func.regions[0].blocks[0])
        on_host = homes(flow)
        computed = {value: ops for value, ops in flow.in_kernels.items() if value in on_host}
        if not computed:
            _Rewrite(flow, on_host).run()
            return len(on_host)
        for value, ops in computed.items():
            _compute_here(value, flow.sources[value], ops)


def _compute_here(result: ir.Value, sources: list[ir.Value], ops: list[ir.Operation]) -> None:
    """Have the host program compute what `ops` of a kernel compute of `sources`, its operands.

    The kernel computes `result` for itself all the same.
    """
    kernel = producer(result)
    assert kernel is not None
    with ir.InsertionPoint(kernel), ops[-1].location:
        fusion = _host_fusion(sources, result.type, ops[-1].name.split(".", 1)[1], "asked for here")
    block = fusion.regions[0].blocks[0]
    known = dict(zip(arguments_of(ops), block.arguments, strict=True))
    with ir.InsertionPoint(block), ops[-1].location:
        for op in ops:
            known.update(zip(op.results, clone(op, known).results, strict=True))
        Yield([known[ops[-1].results[0]]])
    result.replace_all_uses_with(fusion.results[0])


def _host_fusion(operands: list[ir.Value], kind: ir.Type, name: str, why: str) -> ir.Operation:
    """A fusion that the host program computes, at the insertion point; its block is empty."""
    fusion = Fusion(operands, [kind], kind=ir.StringAttr.get("host")).operation
    fusion.attributes["name"] = ir.StringAttr.get(name)
    fusion.attributes["why"] = ir.ArrayAttr.get([ir.StringAttr.get(f"{name}: {why}")])
    types = [operand.type for operand in operands]
    fusion.regions[0].blocks.append(*types, arg_locs=[fusion.location] * len(types))
    return fusion


_BRANCHES = CONTROL - {"stablehlo.while"}

_Use = tuple[ir.Operation, int]
"""An op and the number of its operand."""


class _Rewrite:
    """Marks homes, and moves values between them where their users are elsewhere."""

    def __init__(self, flow: ScalarFlow, on_host: set[ir.Value]) -> None:
        self._flow = flow
        self._on_host = on_host

    def run(self) -> None:
        """Rewrite the operations of the flow."""
        elsewhere: dict[ir.Value, list[_Use]] = defaultdict(list)
        for op in self._flow.operations:
            self._mark(op)
        for op in self._flow.operations:
            for position, on_host in enumerate(self._wanted(op)):
                value = op.operands[position]
                is_here = value in self._on_host
                if value in self._flow.constants:
                    is_here, on_host = False, on_host is not False
                if on_host is not None and is_here != on_host:
                    elsewhere[value].append((op, position))
        for value, uses in elsewhere.items():
            if value in self._flow.constants:
                moved = _on_host(value, len(uses))
            else:
                moved = _moved(value, self._first(value, uses), to_host=value not in self._on_host)
            for op, position in uses:
                op.operands[position] = moved
        for op in self._flow.operations:
            if op.name == "disc.fusion" and not kind_of(op).on_host:
                set_by_value(op, (k for k, v in enumerate(op.operands) if is_on_host(v)))

    def _mark(self, op: ir.Operation) -> None:
        if op.name == "stablehlo.constant" or op.name in RESHAPES:
            return
        set_on_host(op, (k for k, value in enumerate(op.results) if value in self._on_host))
        if op.name == "disc.fusion" and kind_of(op).on_host and op.results[0] not in self._on_host:
            op.attributes["kind"] = ir.StringAttr.get("loop")

    def _wanted(self, op: ir.Operation) -> Iterator[bool | None]:
        """For each operand of `op` whether it must be on the host; None: where it is."""
        here = self._on_host
        if op.name == "disc.fusion":
            kind = kind_of(op)
            for position in range(len(op.operands)):
                value = op.operands[position]
                by_address = kind.by_address or (kind.in_place and not position)
                by_value = not by_address and not ir.RankedTensorType(value.type).rank
                yield True if kind.on_host else None if by_value else False
        elif op.name == "stablehlo.while":
            yield from (value in here for value in op.results)
        elif op.name in CONTROL:
            yield True
        elif op.name in RESHAPES:
            yield op.results[0] in here
        elif op.name.endswith("return"):
            yield from self._wanted_at_end(op)
        else:
            yield from (False for _ in op.operands)

    def _wanted_at_end(self, end: ir.Operation) -> Iterator[bool]:
        around = end.block.owner.operation
        if around.name not in CONTROL:
            yield from (False for _ in end.operands)
        elif around.name == "stablehlo.while" and end.block == around.regions[0].blocks[0]:
            yield True
        else:
            yield from (value in self._on_host for value in around.results)

    @staticmethod
    def _first(value: ir.Value, uses: list[_Use]) -> ir.Operation:
        """The op before which `value` is moved for all `uses`: in the block that defines it, or in
        the only branch that has some.
        """
        source = producer(value)
        block = value.owner if source is None else source.block
        users = [op for op, _ in uses]
        while True:
            around = [op for user in users if (op := _ancestor(user, block)) is not None]
            first = around[0]
            for op in around[1:]:
                first = op if op.is_before_in_block(first) else first
            alone = all(op == first for op in around) and first not in users
            if not alone or first.name not in _BRANCHES:
                return first
            inner = [branch for region in first.regions for branch in region.blocks]
            with_use = [b for b in inner if any(_ancestor(op, b) is not None for op in users)]
            if len(with_use) > 1:
                return first
            (block,) = with_use


def _ancestor(op: ir.Operation, block: ir.Block) -> ir.Operation | None:
    """The op of `block` that is `op` or has it inside; None where there is none."""
    while op.block != block:
        op = op.block.owner.operation
        if op.name == "func.func":
            return None
    return op


def _moved(value: ir.Value, before: ir.Operation, *, to_host: bool) -> ir.Value:
    """`value` on the other side, from before an op on: it, or the scalar that it is in shape."""
    source = producer(value)
    if not to_host and source is not None and source.name in RESHAPES:
        (operand, *_) = source.operands
        base = _moved(operand, before, to_host=False)
        with ir.InsertionPoint(before):
            return clone(source, {operand: base}).results[0]
    location = before.location if source is None else source.location
    name, why = ("read", "waits for the target") if to_host else ("write", "the target reads it")
    with ir.InsertionPoint(before), location:
        fusion = _host_fusion([value], value.type, name, why)
    fusion.attributes[TRANSFER] = ir.UnitAttr.get()
    set_on_host(fusion, [0] if to_host else [])
    block = fusion.regions[0].blocks[0]
    with ir.InsertionPoint(block), location:
        Yield([block.arguments[0]])
    return fusion.results[0]


def _on_host(constant: ir.Value, uses: int) -> ir.Value:
    """The constant on the host: once more, if it has other uses than so many."""
    op = producer(constant)
    assert op is not None
    if sum(1 for _ in constant.uses) > uses:
        with ir.InsertionPoint(op):
            op = clone(op, {})
    set_on_host(op, [0])
    return op.results[0]

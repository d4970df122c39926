"""place-scalars: the scalars that the host program asks for are at home in its own memory.

    while(%i = %zero, %x = %a) {              while(%i = %zero, %x = %a) {disc.on_host = [0]}
      %p = "disc.fusion"(%i) {host}             %p = "disc.fusion"(%i) {host, disc.on_host = [0]}
      return %p                                 return %p
    } do {                            ==>     } do {
      %y = "disc.fusion"(%x, %i) {loop}         %y = "disc.fusion"(%x, %i) {loop,
                                                                            disc.by_value = [1]}
      %j = "disc.fusion"(%i) {host}             %j = "disc.fusion"(%i) {host, disc.on_host = [0]}
      return %j, %y }                           return %j, %y }

Why     The host program runs ahead of a GPU. It waits where it reads memory of the target, so
        counters and conditions must not go through that memory.
Needs   `plan-fusion`, whose kind `host` is integer arithmetic on scalars.   Keeps  every result.
        Where memory of the target is the host's own, nothing changes, unless `disc.far_memory`
        on `main` says that it is not.
Cost    O(values + uses x depth of control flow).

A value is *asked for* if it is a condition, or if a condition is computed from it in integers.

A value is at home on the host if it is asked for, or if all its sources are. Sources are operands
of `host` fusions and of reshapes, what branches give, and values before and after a loop's step.

Results of kernels and arguments of `main` are on the target. One that is asked for is read once,
where the block that defines it first needs it: the fusion `read`, for which the program waits.

A `host` fusion that would wait for data, and that nobody asks for, becomes a kernel (kind `loop`).

Kernels get a value of the host by value. It is written to the target once (the fusion `write`) if
it is a result of `main`, or if the runtime is given its address. A constant is on both sides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from shlo_disc.dialect import Fusion, Yield
from shlo_disc.mlir import clone, ir, producer, terminator, walk
from shlo_disc.passes.base import Pass
from shlo_disc.passes.homes import (
    forget_homes,
    has_far_memory,
    is_on_host,
    set_by_value,
    set_far_memory,
    set_on_host,
)
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.machine_model import MachineModel
from shlo_disc.passes.op_classes import CONTROL, RESHAPES, is_integer_scalar

__all__ = ["PlaceScalars", "forget_scalars"]

_WIDTHS = frozenset({1, 8, 16, 32, 64})
"""Bits of the integers that a host program reads and writes; a flag is a byte."""

_TRANSFER = "disc.transfer"
"""On a fusion that this pass made: its result is its operand, on the other side."""


@dataclass(frozen=True)
class PlaceScalars(Pass):
    """See the module."""

    name: ClassVar[str] = "place-scalars"
    machine: MachineModel
    """Says whose memory the target's is."""

    def run(self, module: ir.Module) -> int:
        """Give the scalars of `main` their homes; returns how many values are on the host."""
        shared = self.machine.capabilities.shares_memory
        with module.context:
            functions = [view.operation for view in module.body.operations]
            return sum(
                _place(op)
                for op in functions
                if op.name == "func.func" and (has_far_memory(op) or not shared)
            )


def forget_scalars(module: ir.Module) -> None:
    """Remove what this pass wrote: the module is to be planned again."""
    transfers: list[ir.Operation] = []

    def visit(op: ir.Operation) -> None:
        forget_homes(op)
        if _TRANSFER in op.attributes:
            transfers.append(op)

    walk(module, visit)
    for op in transfers:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def _place(func: ir.Operation) -> int:
    set_far_memory(func)
    flow = _Flow()
    flow.add(func.regions[0].blocks[0])
    on_host = _homes(flow)
    _Rewrite(flow, on_host).run(func)
    return len(on_host)


def _is_scalar(value: ir.Value) -> bool:
    """True for an integer or flag of rank 0 that the host program can read."""
    return is_integer_scalar(value) and value.type.element_type.width in _WIDTHS


@dataclass
class _Flow:
    """What the scalars of a function are computed from, where a host program could compute them."""

    sources: dict[ir.Value, list[ir.Value]] = field(default_factory=dict)
    """A carried value stands for the argument of the condition and the result, too."""
    carried: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """Result of a loop to the argument of its body."""
    constants: set[ir.Value] = field(default_factory=set)
    asked: list[ir.Value] = field(default_factory=list)
    """Conditions."""
    operations: list[ir.Operation] = field(default_factory=list)
    """All in the function but those in fusions, in program order."""

    def add(self, block: ir.Block) -> None:
        """Take in what is in `block`."""
        for view in block.operations:
            op = view.operation
            self.operations.append(op)
            if op.name == "stablehlo.constant":
                self.constants.update(filter(_is_scalar, op.results))
            elif op.name == "disc.fusion" and kind_of(op).on_host:
                first, *others = op.results
                self.sources[first] = list(op.operands)
                self.sources.update((other, [first]) for other in others)
            elif op.name in RESHAPES:
                if _is_scalar(op.operands[0]) or op.operands[0] in self.sources:
                    self.sources[op.results[0]] = [op.operands[0]]
            elif op.name == "stablehlo.while":
                self._add_loop(op)
            elif op.name in CONTROL:
                self._add_branches(op)
            if op.name in CONTROL:
                for region in op.regions:
                    for inner in region.blocks:
                        self.add(inner)

    def _add_loop(self, loop: ir.Operation) -> None:
        condition, body = (region.blocks[0] for region in loop.regions)
        self.asked.append(terminator(condition).operands[0])
        for k, following in enumerate(terminator(body).operands):
            argument = body.arguments[k]
            if _is_scalar(argument):
                self.sources[argument] = [loop.operands[k], following]
                self.sources[condition.arguments[k]] = [argument]
                self.carried[loop.results[k]] = argument

    def _add_branches(self, op: ir.Operation) -> None:
        self.asked.append(op.operands[0])
        ends = [terminator(block) for region in op.regions for block in region.blocks]
        for k, result in enumerate(op.results):
            if _is_scalar(result):
                self.sources[result] = [end.operands[k] for end in ends]


def _homes(flow: _Flow) -> set[ir.Value]:
    """The values on the host. A fusion that would wait more often than it has results is left to a
    kernel, and out of the flow: its results are read.
    """
    while True:
        on_host = {*flow.sources, *flow.carried} - _elsewhere(flow)
        waiting = [op for op in flow.operations if _waits_in_vain(op, flow, on_host)]
        if not waiting:
            return on_host
        for op in waiting:
            for result in op.results:
                del flow.sources[result]


def _elsewhere(flow: _Flow) -> set[ir.Value]:
    """What is computed from values of the target, and not asked for."""
    asked = _asked_for(flow)
    readers: dict[ir.Value, list[ir.Value]] = defaultdict(list)
    for value, sources in flow.sources.items():
        for source in sources:
            readers[source].append(value)
    for result, argument in flow.carried.items():
        readers[argument].append(result)
    known = flow.sources.keys() | flow.carried.keys() | flow.constants
    waiting = [value for value in readers if value not in known]
    found: set[ir.Value] = set()
    while waiting:
        for reader in readers[waiting.pop()]:
            stays = reader in asked and reader not in flow.carried
            if not stays and reader not in found:
                found.add(reader)
                waiting.append(reader)
    return found


def _waits_in_vain(op: ir.Operation, flow: _Flow, on_host: set[ir.Value]) -> bool:
    """True for a `host` fusion that reads more values than it has results, for itself alone."""
    if op.name != "disc.fusion" or not kind_of(op).on_host or op.results[0] not in on_host:
        return False
    here = on_host | flow.constants
    read = [value for value in dict.fromkeys(op.operands) if value not in here]
    return sum(_is_read_alone(value, op) for value in read) > len(op.results)


def _is_read_alone(value: ir.Value, reader: ir.Operation) -> bool:
    """True if `value` is defined beside `reader`, and what else uses it is a kernel."""
    source = producer(value)
    if (value.owner if source is None else source.block) != reader.block:
        return False
    users = [use.owner.operation for use in value.uses]
    return all(
        user == reader or (user.name == "disc.fusion" and not kind_of(user).on_host)
        for user in users
    )


def _asked_for(flow: _Flow) -> set[ir.Value]:
    waiting, found = list(flow.asked), set(flow.asked)
    while waiting:
        for source in flow.sources.get(waiting.pop(), ()):
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found


_BRANCHES = CONTROL - {"stablehlo.while"}

_Use = tuple[ir.Operation, int]
"""An op and the number of its operand."""


class _Rewrite:
    """Marks homes, and moves values between them where their users are elsewhere."""

    def __init__(self, flow: _Flow, on_host: set[ir.Value]) -> None:
        self._flow = flow
        self._on_host = on_host

    def run(self, func: ir.Operation) -> None:
        """Rewrite `func`, all of whose operations are in the flow."""
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
        fusion = Fusion([value], [value.type], kind=ir.StringAttr.get("host")).operation
        fusion.attributes["name"] = ir.StringAttr.get(name)
        fusion.attributes["why"] = ir.ArrayAttr.get([ir.StringAttr.get(f"{name}: {why}")])
        fusion.attributes[_TRANSFER] = ir.UnitAttr.get()
        set_on_host(fusion, [0] if to_host else [])
        block = fusion.regions[0].blocks.append(value.type, arg_locs=[location])
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

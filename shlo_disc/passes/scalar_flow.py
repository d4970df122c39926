"""What the scalars of a function are computed from, and which of them are on the host.

Part of `place-scalars`, whose docstring says what is asked for and what is at home where.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field

from shlo_disc.base.records import dataclass
from shlo_disc.ir.mlir import ir, producer, terminator
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.op_classes import CONTROL, RESHAPES, is_host_scalar, is_integer_scalar

_WIDTHS = frozenset({1, 8, 16, 32, 64})
"""Bits of the integers that a host program reads and writes; a flag is a byte."""


def is_scalar(value: ir.Value) -> bool:
    """True for an integer or flag of rank 0 that the host program can read."""
    return is_integer_scalar(value) and value.type.element_type.width in _WIDTHS


@dataclass
class ScalarFlow:
    """What the scalars of a function are computed from, where a host program could compute them."""

    sources: dict[ir.Value, list[ir.Value]] = field(default_factory=dict)
    """A carried value stands for the argument of the condition and the result, too."""
    carried: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """Result of a loop to the argument of its body."""
    constants: set[ir.Value] = field(default_factory=set)
    asked: list[ir.Value] = field(default_factory=list)
    """Conditions."""
    in_kernels: dict[ir.Value, list[ir.Operation]] = field(default_factory=dict)
    """Result of a kernel that the host program could compute, to the ops of the fusion that do."""
    operations: list[ir.Operation] = field(default_factory=list)
    """All in the function but those in fusions, in program order."""

    def add(self, block: ir.Block) -> None:
        """Take in what is in `block`."""
        for view in block.operations:
            op = view.operation
            self.operations.append(op)
            if op.name == "stablehlo.constant":
                self.constants.update(filter(is_scalar, op.results))
            elif op.name == "disc.fusion" and kind_of(op).on_host:
                first, *others = op.results
                self.sources[first] = list(op.operands)
                self.sources.update((other, [first]) for other in others)
            elif op.name == "disc.fusion":
                self._add_kernel(op)
            elif op.name in RESHAPES:
                if is_scalar(op.operands[0]) or op.operands[0] in self.sources:
                    self.sources[op.results[0]] = [op.operands[0]]
            elif op.name == "stablehlo.while":
                self._add_loop(op)
            elif op.name in CONTROL:
                self._add_branches(op)
            if op.name in CONTROL:
                for region in op.regions:
                    for inner in region.blocks:
                        self.add(inner)

    def _add_kernel(self, fusion: ir.Operation) -> None:
        arguments = list(fusion.regions[0].blocks[0].arguments)
        last = terminator(fusion.regions[0].blocks[0])
        for result, value in zip(fusion.results, last.operands, strict=True):
            ops = _arithmetic(value, arguments) if is_scalar(result) else None
            if ops:
                numbers = map(arguments.index, arguments_of(ops))
                self.in_kernels[result] = ops
                self.sources[result] = [fusion.operands[k] for k in numbers]

    def _add_loop(self, loop: ir.Operation) -> None:
        condition, body = (region.blocks[0] for region in loop.regions)
        self.asked.append(terminator(condition).operands[0])
        for k, following in enumerate(terminator(body).operands):
            argument = body.arguments[k]
            if is_scalar(argument):
                self.sources[argument] = [loop.operands[k], following]
                self.sources[condition.arguments[k]] = [argument]
                self.carried[loop.results[k]] = argument

    def _add_branches(self, op: ir.Operation) -> None:
        self.asked.append(op.operands[0])
        ends = [terminator(block) for region in op.regions for block in region.blocks]
        for k, result in enumerate(op.results):
            if is_scalar(result):
                self.sources[result] = [end.operands[k] for end in ends]


def _arithmetic(value: ir.Value, arguments: list[ir.Value]) -> list[ir.Operation] | None:
    """The ops of a fusion that compute `value`, in order, if all are integer arithmetic on scalars
    among `arguments`; None if some are not.
    """
    found: list[ir.Operation] = []
    seen: set[ir.Value] = set()
    waiting = [(value, False)]
    while waiting:
        value, is_done = waiting.pop()
        op = producer(value)
        if op is None:
            if value not in arguments or not is_scalar(value):
                return None
        elif is_done:
            found.append(op)
        elif value not in seen:
            seen.add(value)
            if not is_host_scalar(op) and op.name != "disc.shape":
                return None
            waiting.append((value, True))
            waiting += [(operand, False) for operand in op.operands]
    return found


def arguments_of(ops: list[ir.Operation]) -> list[ir.Value]:
    """The arguments of a block that some of its ops read, in order."""
    values = dict.fromkeys(value for op in ops for value in op.operands)
    return [value for value in values if producer(value) is None]


def homes(flow: ScalarFlow) -> set[ir.Value]:
    """The values on the host. What would wait more often there is left to a kernel, and out of the
    flow: its results are read.
    """
    while True:
        on_host = {*flow.sources, *flow.carried} - _elsewhere(flow)
        read = [r for op in flow.operations for r in _better_read(op, flow, on_host)]
        if not read:
            return on_host
        for result in read:
            del flow.sources[result]
            flow.in_kernels.pop(result, None)


def _elsewhere(flow: ScalarFlow) -> set[ir.Value]:
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
    found = {value for value in flow.in_kernels if value not in asked}
    waiting += found
    while waiting:
        for reader in readers[waiting.pop()]:
            stays = reader in asked and reader not in flow.carried
            if not stays and reader not in found:
                found.add(reader)
                waiting.append(reader)
    return found


def _better_read(op: ir.Operation, flow: ScalarFlow, on_host: set[ir.Value]) -> list[ir.Value]:
    """The results of a fusion that the host program reads rather than computes.

    Computing them would read more values, for them alone, than there are results. What a kernel
    computes anyway is read if computing it would read any.
    """
    if op.name != "disc.fusion":
        return []
    here = on_host | flow.constants
    if not kind_of(op).on_host:
        computed = [value for value in op.results if value in flow.in_kernels and value in on_host]
        return [r for r in computed if _reads(flow.sources[r], here, op)]
    reads = _reads(list(op.operands), here, op) if op.results[0] in on_host else 0
    return list(op.results) if reads > len(op.results) else []


def _reads(values: list[ir.Value], here: set[ir.Value], reader: ir.Operation) -> int:
    """How many of `values` are read for `reader` alone, each time it runs."""
    return sum(v not in here and _is_read_alone(v, reader) for v in dict.fromkeys(values))


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


def _asked_for(flow: ScalarFlow) -> set[ir.Value]:
    waiting, found = list(flow.asked), set(flow.asked)
    while waiting:
        for source in flow.sources.get(waiting.pop(), ()):
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found

"""The ops of a fusion, before it is made and afterwards: what records are matched on.

A matcher sees a `Region` and nothing around it. The planner makes one of ops in the block it plans
(`fusion/partition.py`). An emitter makes one of the body of a fusion (`Region.of`). Both get the
same answer.
A *record* is a frozen dataclass of values, ops, symbolic sizes and numbers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir


@dataclass(frozen=True, eq=False)
class Region:
    """Ops that are the body of a fusion, or may become it."""

    ops: tuple[ir.Operation, ...]
    """In an order that runs; without the terminator."""
    inputs: tuple[ir.Value, ...]
    """What the ops read and do not compute."""
    results: tuple[ir.Value, ...]
    """What is read outside."""
    shapes: ShapeAnalysis
    given: ir.Value | None = None
    """Kind `dense` with rows: the value that the row work reads, as `plan-fusion` decided."""

    @staticmethod
    def of(fusion: ir.Operation, shapes: ShapeAnalysis) -> Region:
        """The body of a `disc.fusion`."""
        block = fusion.regions[0].blocks[0]
        *ops, last = [view.operation for view in block.operations]
        given = None
        if "given" in fusion.attributes:
            given = ops[ir.IntegerAttr(fusion.attributes["given"]).value].results[0]
        return Region(tuple(ops), tuple(block.arguments), tuple(last.operands), shapes, given)

    @functools.cached_property
    def _producers(self) -> dict[ir.Value, ir.Operation]:
        return {result: op for op in self.ops for result in op.results}

    @functools.cached_property
    def _readers(self) -> dict[ir.Value, list[ir.Operation]]:
        readers: dict[ir.Value, list[ir.Operation]] = {}
        for op in self.ops:
            for value in op.operands:
                readers.setdefault(value, []).append(op)
        return readers

    def named(self, *names: str) -> list[ir.Operation]:
        """The ops with one of these names, in order."""
        return [op for op in self.ops if op.name in names]

    def producer(self, value: ir.Value) -> ir.Operation | None:
        """The op of the region that computes `value`; None for an input."""
        return self._producers.get(value)

    def readers(self, value: ir.Value) -> list[ir.Operation]:
        """The ops of the region that read `value`, one for each operand that is it."""
        return self._readers.get(value, [])

    def needed_for(
        self, values: Iterable[ir.Value], *, stop: Iterable[ir.Value] = ()
    ) -> tuple[ir.Operation, ...]:
        """The ops that compute `values` from inputs and from `stop`, in order."""
        needed: set[ir.Operation] = set()
        ready, waiting = set(stop), list(values)
        while waiting:
            value = waiting.pop()
            op = self._producers.get(value)
            if value in ready or op is None or op in needed:
                continue
            needed.add(op)
            waiting += op.operands
        return tuple(op for op in self.ops if op in needed)


def carried(record: Any, values: Mapping[ir.Value, ir.Value], ops: Mapping[Any, Any]) -> Any:
    """`record` with the values and ops that it is about replaced by their copies.

    Raises InternalError for one that has no copy.
    """
    if isinstance(record, (ir.Value, ir.Operation)):
        copies: Mapping[Any, Any] = values if isinstance(record, ir.Value) else ops
        if record not in copies:
            raise InternalError(f"a record is about what its fusion does not contain: {record}")
        return copies[record]
    if isinstance(record, tuple):
        return tuple(carried(item, values, ops) for item in record)
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record) if f.init}
        return dataclasses.replace(
            record, **{name: carried(item, values, ops) for name, item in fields.items()}
        )
    return record

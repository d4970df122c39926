"""Equal calls of functions of sizes become one call, before calls are inlined.

JAX evaluates every symbolic dimension anew, and each quotient and remainder of sizes is a call. A
gradient of a vision transformer has 1140 of them, 7 of which differ. Inlining them all made ten
times the operations that `cse` leaves, which took most of the time of `ingest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shlo_disc.ir.mlir import ir, ops_of, run_pipeline
from shlo_disc.ir.ops import Role, names

_CALL = "func.call"

_PURE = names(lambda row: row.role is Role.ELEMENTWISE) | {"func.return", "stablehlo.constant"}
"""What functions of sizes compute with, beside calls of each other."""


def share_equal_calls(module: ir.Module) -> None:
    """Calls in one block, of one function on equal values, become the first of them."""
    functions = [view.operation for view in module.body.operations]
    if len(functions) == 1 or len(ops_of(module, _CALL)) < 2:
        return
    run_pipeline(module, "cse")
    pure = _pure(functions)
    while sum([_share(block, pure) for function in functions for block in _blocks(function)]):
        run_pipeline(module, "cse")  # what reads them may be equal now


def _pure(functions: list[ir.Operation]) -> set[str]:
    """The names of the functions that only compute with elements."""
    calls: dict[str, set[str]] = {}
    for function in functions:
        ops = [op for block in _blocks(function) for op in _ops(block)]
        if all(op.name in _PURE or op.name == _CALL for op in ops):
            name = str(ir.StringAttr(function.attributes["sym_name"]).value)
            calls[name] = {_callee(op) for op in ops if op.name == _CALL}
    while wrong := [name for name, called in calls.items() if not called <= calls.keys()]:
        for name in wrong:
            del calls[name]
    return set(calls)


def _share(block: ir.Block, pure: set[str]) -> int:
    """The calls in `block` that were taken away."""
    first: dict[tuple[Any, ...], list[ir.Value]] = {}
    shared = 0
    for op in _ops(block):
        if op.name != _CALL or (callee := _callee(op)) not in pure:
            continue
        known = first.setdefault((callee, *op.operands), results := list(op.results))
        if known is not results:
            for result, value in zip(results, known, strict=True):
                result.replace_all_uses_with(value)
            op.erase()
            shared += 1
    return shared


def _blocks(op: ir.Operation) -> Iterator[ir.Block]:
    """The blocks in the regions of `op`, and in those of what is in them."""
    for region in op.regions:
        for block in region.blocks:
            for inner in _ops(block):
                yield from _blocks(inner)
            yield block


def _ops(block: ir.Block) -> list[ir.Operation]:
    return [view.operation for view in block.operations]


def _callee(call: ir.Operation) -> str:
    return str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)

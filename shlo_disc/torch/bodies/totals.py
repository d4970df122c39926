"""Running sums and products: windows that reach to the start of a dimension.

    %y = dynamic_reduce_window %x, window [1, n], padding [[0, 0], [n - 1, 0]]

A pass knows them as scans (docs/passes.md, `expand-windows`).
"""

from __future__ import annotations

from shlo_disc.ingest.region_ops import running
from shlo_disc.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, constant, converted, element_of

__all__ = ["cumprod", "cumsum", "running_sum"]


def cumsum(call: BodyCall) -> list[ir.Value]:
    """`aten.cumsum(self, dim, dtype)`."""
    return _running(call, "add", 0)


def cumprod(call: BodyCall) -> list[ir.Value]:
    """`aten.cumprod(self, dim, dtype)`."""
    return _running(call, "multiply", 1)


def running_sum(call: BodyCall, x: ir.Value, axis: int) -> ir.Value:
    """The sums of the elements of `x` up to each place along `axis`."""
    return running(call.module.operation, x, axis, "add", constant(0, [], element_of(x)))


def _running(call: BodyCall, name: str, start: int) -> list[ir.Value]:
    element = ir.RankedTensorType(call.results[0]).element_type
    x = converted(call["self"], element)
    rank = ir.RankedTensorType(x.type).rank
    if rank == 0:
        return [x]
    first = constant(start, [], element)
    return [running(call.module.operation, x, call["dim"] % rank, name, first)]

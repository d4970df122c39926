"""Running sums and products: windows that reach to the start of a dimension.

    %y = dynamic_reduce_window %x, window [1, n], padding [[0, 0], [n - 1, 0]]

A pass knows them as scans (docs/passes.md, `expand-windows`).
"""

from __future__ import annotations

from shlo_disc.builders import create
from shlo_disc.ingest.size_values import binary, extent, vector
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
    return _windows(call, x, axis, "add", 0)


def _running(call: BodyCall, name: str, start: int) -> list[ir.Value]:
    element = ir.RankedTensorType(call.results[0]).element_type
    x = converted(call["self"], element)
    rank = ir.RankedTensorType(x.type).rank
    return [x if rank == 0 else _windows(call, x, call["dim"] % rank, name, start)]


def _windows(call: BodyCall, x: ir.Value, axis: int, name: str, start: int) -> ir.Value:
    """Each element joined by `stablehlo.NAME` with those before it; `start` is the identity."""
    element = element_of(x)
    rank = ir.RankedTensorType(x.type).rank
    one = constant(1, [], "i64")
    size = extent(x, axis)
    window = vector([size if k == axis else one for k in range(rank)])
    ones = constant(1, [rank], "i64")
    none = constant(0, [], "i64")
    before = binary("subtract", size, one)
    padding = vector([v for k in range(rank) for v in (before if k == axis else none, none)])
    pairs = ir.RankedTensorType.get([rank, 2], element_of(padding))
    padding = create("stablehlo.reshape", [padding], pairs)
    return create(
        "stablehlo.custom_call",
        [x, constant(start, [], element), window, ones, ones, ones, padding],
        x.type,
        call_target_name=ir.StringAttr.get("stablehlo.dynamic_reduce_window"),
        called_computations=ir.ArrayAttr.get([call.computation(name, element)]),
    )

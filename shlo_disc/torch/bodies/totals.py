"""Running sums, products and extremes: windows that reach to the start of a dimension.

    %y = dynamic_reduce_window %x, window [1, n], padding [[0, 0], [n - 1, 0]]

A pass knows them as scans (docs/passes.md, `expand-windows`).
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import Array, identity
from shlo_disc.ingest.region_ops import running
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall


def cumsum(call: BodyCall) -> list[Array]:
    """`aten.cumsum(self, dim, dtype)`."""
    return _running(call, "add")


def cumprod(call: BodyCall) -> list[Array]:
    """`aten.cumprod(self, dim, dtype)`."""
    return _running(call, "multiply")


def cummax(call: BodyCall) -> list[Array]:
    """`aten.cummax(self, dim)`: the largest element so far, and the last place that has it."""
    return _extreme(call, "maximum")


def cummin(call: BodyCall) -> list[Array]:
    """`aten.cummin(self, dim)`."""
    return _extreme(call, "minimum")


def _extreme(call: BodyCall, name: str) -> list[Array]:
    """Places are running maxima, too: of those whose element is the extreme one so far, or NaN."""
    x = call["self"]
    if x.rank == 0:
        return [x, Array.constant(0, "i64")]
    if 0 in x.shape:
        return [x, x.iota(0)]
    axis, module = call["dim"] % x.rank, call.module.operation
    values = Array(running(module, x, axis, name, identity(name, x.element)))
    is_new = x.equals(values)
    if x.is_float:
        is_new = is_new | x.differs(x)
    place = is_new.where(x.iota(axis), 0)
    return [values, Array(running(module, place, axis, "maximum", Array.constant(0, "i64")))]


def running_sum(call: BodyCall, x: Array, axis: int, name: str = "add") -> Array:
    """The elements of `x` up to each place along `axis`, joined by `stablehlo.NAME`."""
    if x.rank == 0 or 0 in x.shape:
        return x
    return Array(running(call.module.operation, x, axis, name, identity(name, x.element)))


def _running(call: BodyCall, name: str) -> list[Array]:
    """Of f32 in f64, as PyTorch's kernels for CPUs have it: errors would grow with the length."""
    result = call.element
    element = ir.F64Type.get() if isinstance(result, ir.F32Type) else result
    x = call["self"].to(result).to(element)
    return [running_sum(call, x, call["dim"] % max(x.rank, 1), name).to(result)]

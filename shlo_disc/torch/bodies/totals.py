"""Running sums, products and extremes: windows that reach to the start of a dimension.

    %y = dynamic_reduce_window %x, window [1, n], padding [[0, 0], [n - 1, 0]]

A pass knows them as scans (docs/passes.md, `expand-windows`).
"""

from __future__ import annotations

from shlo_disc.ingest.arrays import constant, converted, identity, iota
from shlo_disc.ingest.region_ops import running
from shlo_disc.ingest.size_arithmetic import sizes_of
from shlo_disc.ingest.size_values import binary
from shlo_disc.ir.builders import compare, element_of, select
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, spread


def cumsum(call: BodyCall) -> list[ir.Value]:
    """`aten.cumsum(self, dim, dtype)`."""
    return _running(call, "add")


def cumprod(call: BodyCall) -> list[ir.Value]:
    """`aten.cumprod(self, dim, dtype)`."""
    return _running(call, "multiply")


def cummax(call: BodyCall) -> list[ir.Value]:
    """`aten.cummax(self, dim)`: the largest element so far, and the last place that has it."""
    return _extreme(call, "maximum")


def cummin(call: BodyCall) -> list[ir.Value]:
    """`aten.cummin(self, dim)`."""
    return _extreme(call, "minimum")


def _extreme(call: BodyCall, name: str) -> list[ir.Value]:
    """Places are running maxima, too: of those whose element is the extreme one so far, or NaN."""
    x, i64 = call["self"], ir.IntegerType.get_signless(64)
    rank, element = ir.RankedTensorType(x.type).rank, element_of(x)
    if rank == 0:
        return [x, constant(0, i64)]
    if 0 in ir.RankedTensorType(x.type).shape:
        return [x, iota(sizes_of(x), 0, i64)]
    axis, module = call["dim"] % rank, call.module.operation
    values = running(module, x, axis, name, identity(name, element))
    is_new = compare("EQ", x, values)
    if isinstance(element, ir.FloatType):
        is_new = binary("or", is_new, compare("NE", x, x))
    zero = constant(0, i64)
    place = iota(sizes_of(x), axis, i64)
    place = select(is_new, place, spread(zero, [], place))
    return [values, running(module, place, axis, "maximum", zero)]


def running_sum(call: BodyCall, x: ir.Value, axis: int) -> ir.Value:
    """The sums of the elements of `x` up to each place along `axis`."""
    if 0 in ir.RankedTensorType(x.type).shape:
        return x
    return running(call.module.operation, x, axis, "add", constant(0, element_of(x)))


def _running(call: BodyCall, name: str) -> list[ir.Value]:
    """Of f32 in f64, as PyTorch's kernels for CPUs have it: errors would grow with the length."""
    result = ir.RankedTensorType(call.results[0]).element_type
    element = ir.F64Type.get() if isinstance(result, ir.F32Type) else result
    x = converted(converted(call["self"], result), element)
    kind = ir.RankedTensorType(x.type)
    rank = kind.rank
    if rank == 0 or 0 in kind.shape:
        return [converted(x, result)]
    first = identity(name, element)
    found = running(call.module.operation, x, call["dim"] % rank, name, first)
    return [converted(found, result)]

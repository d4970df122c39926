"""Fourier transforms, of any dimensions and of lengths that are sizes.

    %y = aten._fft_r2c(%x, [0, 1], 0, True)
    ==>
    %a = fft %x, type = RFFT, along dimension 1
    %y = fft %a, type = FFT, along dimension 0

Each dimension is brought to the end, transformed, and brought back.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.ingest.arrays import constant, converted
from shlo_disc.ingest.complex_numbers.transforms import DYNAMIC_FFT
from shlo_disc.ingest.size_arithmetic import product, size_of, value_of
from shlo_disc.ingest.size_values import binary, extent
from shlo_disc.ir.builders import create, element_of, transposed
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, spread, typed

_BY_ROOT, _BY_LENGTH = 1, 2
"""Values of `normalization`, as ATen numbers them; 0 is none."""


def fft_r2c(call: BodyCall) -> list[ir.Value]:
    """`aten._fft_r2c(self, dim, normalization, onesided)`; the last of `dim` is halved."""
    x = call["self"]
    axes = _axes(x, call["dim"])
    if not call["onesided"]:
        zero = spread(constant(0, element_of(x)), [], x)
        z = create("stablehlo.complex", [x, zero], typed(x, ir.ComplexType.get(element_of(x))))
        return [_scaled(_every(z, axes, "FFT"), x, axes, call["normalization"])]
    halved = extent(x, axes[-1])
    kind = ir.RankedTensorType(x.type)
    static = None if kind.is_dynamic_dim(axes[-1]) else kind.get_dim_size(axes[-1]) // 2 + 1
    z = _along(x, axes[-1], "RFFT", halved, static, ir.ComplexType.get(element_of(x)))
    z = _every(z, axes[:-1], "FFT")
    return [_scaled(z, x, axes, call["normalization"])]


def fft_c2c(call: BodyCall) -> list[ir.Value]:
    """`aten._fft_c2c(self, dim, normalization, forward)`."""
    x = call["self"]
    axes = _axes(x, call["dim"])
    if call["forward"]:
        return [_scaled(_every(x, axes, "FFT"), x, axes, call["normalization"])]
    z = _every(x, axes, "IFFT")
    return [_scaled(z, x, axes, call["normalization"], divided=True)]


def fft_c2r(call: BodyCall) -> list[ir.Value]:
    """`aten._fft_c2r(self, dim, normalization, last_dim_size)`: the inverse of a halved one."""
    x = call["self"]
    axes = _axes(x, call["dim"])
    z = _every(x, axes[:-1], "IFFT")
    length = call.size("last_dim_size")
    given = call.given("last_dim_size")
    static = given if isinstance(given, int) else None
    real = ir.ComplexType(element_of(x)).element_type
    y = _along(z, axes[-1], "IRFFT", length, static, real)
    return [_scaled(y, y, axes, call["normalization"], divided=True)]


def _axes(x: ir.Value, dims: Sequence[int]) -> list[int]:
    rank = ir.RankedTensorType(x.type).rank
    return [dim % rank for dim in dims]


def _every(z: ir.Value, axes: Sequence[int], name: str) -> ir.Value:
    """Transforms between complex numbers, along one dimension after the other."""
    for axis in axes:
        kind = ir.RankedTensorType(z.type)
        static = None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis)
        z = _along(z, axis, name, extent(z, axis), static, kind.element_type)
    return z


def _along(
    x: ir.Value, axis: int, name: str, length: ir.Value, size: int | None, element: ir.Type
) -> ir.Value:
    """One transform of `length`; `size` is that of the dimension in the result, if a number."""
    kind = ir.RankedTensorType(x.type)
    order = [k for k in range(kind.rank) if k != axis] + [axis]
    x = transposed(x, order)
    shape = [*ir.RankedTensorType(x.type).shape[:-1]]
    dynamic = ir.ShapedType.get_dynamic_size()
    result = ir.RankedTensorType.get([*shape, dynamic if size is None else size], element)
    y = create(
        "stablehlo.custom_call", [x, length], result,
        call_target_name=ir.StringAttr.get(DYNAMIC_FFT),
        backend_config=ir.StringAttr.get(name),
    )  # fmt: skip
    return transposed(y, [order.index(k) for k in range(kind.rank)])


def _scaled(
    y: ir.Value, of: ir.Value, axes: Sequence[int], normalization: int, *, divided: bool = False
) -> ir.Value:
    """`y`, `divided` by the number of elements of `of` along `axes`, normalized as is asked."""
    wanted = _BY_LENGTH if divided else 0
    if normalization == wanted:
        return y
    count = value_of(product([size_of(of, axis) for axis in axes]))
    element = element_of(y)
    is_complex = isinstance(element, ir.ComplexType)
    real = ir.ComplexType(element).element_type if is_complex else element
    factor = converted(count, real)
    one = constant(1, real)
    root = create("stablehlo.sqrt", [factor], factor.type)
    if divided:  # times what it was divided by
        factor = root if normalization == _BY_ROOT else factor
    else:
        factor = binary("divide", one, root if normalization == _BY_ROOT else factor)
    if is_complex:
        factor = create(
            "stablehlo.complex", [factor, constant(0, real)],
            ir.RankedTensorType.get([], element),
        )  # fmt: skip
    return binary("multiply", y, spread(factor, [], y))

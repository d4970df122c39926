"""Fourier transforms, of any dimensions and of lengths that are sizes.

    %y = aten._fft_r2c(%x, [0, 1], 0, True)
    ==>
    %a = fft %x, type = RFFT, along dimension 1
    %y = fft %a, type = FFT, along dimension 0

Each dimension is brought to the end, transformed, and brought back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_disc.ingest.arrays import Array
from shlo_disc.ingest.complex_numbers.transforms import DYNAMIC_FFT
from shlo_disc.ingest.size_arithmetic import Size
from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall

_BY_ROOT, _BY_LENGTH = 1, 2
"""Values of `normalization`, as ATen numbers them; 0 is none."""


def fft_r2c(call: BodyCall) -> list[Array]:
    """`aten._fft_r2c(self, dim, normalization, onesided)`; the last of `dim` is halved."""
    x, element = call["self"], call.element
    axes = _axes(x, call["dim"])
    if not call["onesided"]:
        z = _every(x.apply("complex", x.full(0), element=element), axes, "FFT")
    else:
        size = x.sizes[axes[-1]]
        halved = size // 2 + 1 if isinstance(size, int) else None
        z = _along(x, axes[-1], "RFFT", size, halved, element)
        z = _every(z, axes[:-1], "FFT")
    return [_scaled(z, x, axes, call["normalization"])]


def fft_c2c(call: BodyCall) -> list[Array]:
    """`aten._fft_c2c(self, dim, normalization, forward)`."""
    x, is_forward = call["self"], call["forward"]
    axes = _axes(x, call["dim"])
    z = _every(x, axes, "FFT" if is_forward else "IFFT")
    return [_scaled(z, x, axes, call["normalization"], divided=not is_forward)]


def fft_c2r(call: BodyCall) -> list[Array]:
    """`aten._fft_c2r(self, dim, normalization, last_dim_size)`: the inverse of a halved one."""
    axes, length = _axes(call["self"], call["dim"]), call["last_dim_size"]
    z = _every(call["self"], axes[:-1], "IFFT")
    y = _along(z, axes[-1], "IRFFT", length, length, call.element)
    return [_scaled(y, y, axes, call["normalization"], divided=True)]


def _axes(x: Array, dims: Sequence[int]) -> list[int]:
    return [dim % x.rank for dim in dims]


def _every(z: Array, axes: Sequence[int], name: str) -> Array:
    """Transforms between complex numbers, along one dimension after the other."""
    for axis in axes:
        size = z.sizes[axis]
        z = _along(z, axis, name, size, size, z.element)
    return z


def _along(
    x: Array, axis: int, name: str, length: Size, size: Size | None, element: ir.Type
) -> Array:
    """One transform of `length`; `size` is that of the dimension in the result, if a number."""
    order = [k for k in range(x.rank) if k != axis] + [axis]
    x = x.transpose(order)
    last = size if isinstance(size, int) else ir.ShapedType.get_dynamic_size()
    result = ir.RankedTensorType.get([*x.shape[:-1], last], element)
    y = create(
        "stablehlo.custom_call", [x, Array.size(length)], result,
        call_target_name=ir.StringAttr.get(DYNAMIC_FFT),
        backend_config=ir.StringAttr.get(name),
    )  # fmt: skip
    return Array(y).transpose([order.index(k) for k in range(x.rank)])


def _scaled(
    y: Array, of: Array, axes: Sequence[int], normalization: int, *, divided: bool = False
) -> Array:
    """`y`, `divided` by the number of elements of `of` along `axes`, normalized as is asked."""
    if normalization == (_BY_LENGTH if divided else 0):
        return y
    is_complex = isinstance(y.element, ir.ComplexType)
    real = ir.ComplexType(y.element).element_type if is_complex else y.element
    factor = Array.size(math.prod(of.sizes[axis] for axis in axes)).to(real)
    if normalization == _BY_ROOT:
        factor = factor.apply("sqrt")
    if not divided:  # else times what it was divided by
        factor = factor.full(1) / factor
    if is_complex:
        factor = factor.apply("complex", 0, element=y.element)
    return y * factor

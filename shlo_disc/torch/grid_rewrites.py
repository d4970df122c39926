"""Pictures and volumes read at places that are data, resizing with antialiasing, and gradients.

    x: [N, C, L0, L1, ...]    grid: [N, M0, M1, ..., n]    y = grid_sample(x, grid): [N, C, M0, ...]

A coordinate of `grid` is in [-1, 1]; its last one is of the first spatial axis. A gradient is that
of the sum of products which the function is written as; PyTorch derives it while it traces.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._decomp.decompositions import _upsample_cubic_interp1d

aten = torch.ops.aten

_LINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1
"""Modes of interpolation (the third is cubic) and of padding (the third is reflection)."""


def _gradients(function: Callable[..., Tensor], grad: Tensor, *operands: Tensor) -> list[Tensor]:
    """The gradients of `function(*operands)` that the one of its result, `grad`, gives."""
    with torch.enable_grad():
        own = [x.detach().requires_grad_() for x in operands]
        found = torch.autograd.grad(function(*own), own, grad, allow_unused=True)
    return [
        torch.zeros_like(x) if one is None else one for x, one in zip(operands, found, strict=True)
    ]


# -- grids ---------------------------------------------------------------------------------------


def _clipped(places: Tensor, size: Any) -> Tensor:
    """In [0, size - 1]; without a gradient at both ends too, unlike a clamp.

    Source: `clip_coordinates_set_grad` in ATen/native/GridSamplerUtils.h.
    """
    last = torch.scalar_tensor(size - 1, dtype=places.dtype)
    inside = torch.where(places < last, places, last)
    return torch.where(places > 0, inside, 0.0)


def _reflected(places: Tensor, twice_low: int, twice_high: Any) -> Tensor:
    """Mirrored at both ends until between them. Source: `reflect_coordinates`, same file."""
    if isinstance(twice_high, int) and twice_low == twice_high:
        return torch.zeros_like(places)
    low = twice_low / 2
    span = torch.scalar_tensor((twice_high - twice_low) / 2, dtype=places.dtype)
    off = places - low
    off = torch.where(off < 0, -off, off)
    flips = torch.floor(off.detach() / span)
    extra = off - flips * span
    is_odd = torch.remainder(flips, 2) == 1
    found = torch.where(is_odd, span + low - extra, extra + low)
    return torch.where(span > 0, found, 0.0)


class _Sampler:
    """One call of `grid_sampler_2d` or `grid_sampler_3d`."""

    def __init__(self, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> None:
        self._x = x
        self._padding = padding
        self._align = align
        self._sizes = list(x.shape[2:])
        self._rank = x.dim()
        count = len(self._sizes)
        wide = [grid[..., count - 1 - k].unsqueeze(1) for k in range(count)]
        self._places = [self._scaled(*pair) for pair in zip(wide, self._sizes, strict=True)]
        self._mode = mode

    def _scaled(self, places: Tensor, size: Any) -> Tensor:
        """From [-1, 1] to places of pixels."""
        reach = size * 0.5 - 0.5
        return places * (reach if self._align else size * 0.5) + reach

    def _inside(self, places: Tensor, size: Any) -> Tensor:
        """`places` as the mode of padding moves them."""
        if self._padding == _ZEROS:
            return places
        if self._padding != _BORDER:
            ends = (0, 2 * (size - 1)) if self._align else (-1, 2 * size - 1)
            places = _reflected(places, *ends)
        return _clipped(places, size)

    def _read(self, places: Sequence[Tensor]) -> Tensor:
        """The pixels at whole `places`, zero for those outside."""
        held = None
        for place, size in zip(places, self._sizes, strict=True):
            own = (place >= 0) & (place < size)
            held = own if held is None else held & own
        numbers = [torch.where(held, place, 0.0).to(torch.int64) for place in places]
        batch, channel = (
            torch.arange(self._x.shape[k]).reshape([-1 if k == d else 1 for d in range(self._rank)])
            for k in (0, 1)
        )
        found = self._x[(batch, channel, *numbers)]
        return torch.where(held, found, 0.0)

    def result(self) -> Tensor:
        """Of the mode of interpolation."""
        if self._mode == _LINEAR:
            return self._linear()
        if self._mode == _NEAREST:
            pairs = zip(self._places, self._sizes, strict=True)
            return self._read([torch.round(self._inside(*pair)).detach() for pair in pairs])
        return self._cubic()

    def _linear(self) -> Tensor:
        pairs = zip(self._places, self._sizes, strict=True)
        places = [self._inside(*pair) for pair in pairs]
        floors = [torch.floor(place.detach()) for place in places]
        total: Any = None
        for corner in itertools.product((0, 1), repeat=len(places)):
            weight: Any = None
            for place, floor, far in zip(places, floors, corner, strict=True):
                own = place - floor if far else floor + 1 - place
                weight = own if weight is None else weight * own
            pixel = self._read([f + far for f, far in zip(floors, corner, strict=True)])
            total = pixel * weight if total is None else total + pixel * weight
        return total

    def _cubic(self) -> Tensor:
        floors = [torch.floor(place.detach()) for place in self._places]
        parts = [place - floor for place, floor in zip(self._places, floors, strict=True)]

        def pixel(row: int, column: int) -> Tensor:
            moved = [floor + n for floor, n in zip(floors, (row, column), strict=True)]
            pairs = zip(moved, self._sizes, strict=True)
            return self._read([torch.round(self._inside(*pair)) for pair in pairs])

        steps = (-1, 0, 1, 2)
        rows = [_upsample_cubic_interp1d([pixel(r, c) for c in steps], parts[1]) for r in steps]
        return _upsample_cubic_interp1d(rows, parts[0])


def _sampled(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    return _Sampler(x, grid, mode, padding, align).result()


def _sampled_backward(
    grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    def function(x: Tensor, grid: Tensor) -> Tensor:
        return _sampled(x, grid, mode, padding, align)

    of_x, of_grid = _gradients(function, grad, x, grid)
    return of_x, of_grid


# -- resizing with antialiasing ------------------------------------------------------------------


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: Tensor) -> Tensor:
    """Keys' kernel with a = -1/2."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _weights(
    size: Any, count: Any, align: bool, factor: float | None, kernel: Callable[[Tensor], Tensor],
    reach: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """[count, size]: the share of every pixel in each one of the result.

    Source: `HelperInterpBase::_compute_indices_min_size_weights_aa` in
    ATen/native/cpu/UpSampleKernel.cpp.
    """
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    sizes = [torch.scalar_tensor(n, dtype=wide) for n in (size, count)]
    if align:
        scale = torch.where(sizes[1] > 1, (sizes[0] - 1) / (sizes[1] - 1).clamp(min=1), 0.0)
    elif factor is not None and factor > 0:
        scale = torch.scalar_tensor(1.0 / factor, dtype=wide)
    else:
        scale = sizes[0] / sizes[1]
    wider = scale.clamp(min=1)
    centre = scale * (torch.arange(count).to(wide).unsqueeze(-1) + 0.5)
    first = torch.trunc(centre - reach * wider + 0.5).clamp(min=0)
    last = torch.minimum(torch.trunc(centre + reach * wider + 0.5), sizes[0])
    place = torch.arange(size).to(wide)
    found = kernel((place - centre + 0.5) / wider)
    found = torch.where((place >= first) & (place < last), found, 0.0)
    total = found.sum(-1, keepdim=True)
    return (found / torch.where(total == 0, 1.0, total)).to(dtype)


def _resized(kernel: Callable[[Tensor], Tensor], reach: int) -> Callable[..., Tensor]:
    """A product with the weights of each axis."""

    def resized(x: Tensor, output_size: Sequence[Any], align: bool, *factors: float) -> Tensor:
        rows, columns = (
            _weights(x.shape[2 + k], count, align, factor, kernel, reach, x.dtype)
            for k, count, factor in zip((0, 1), output_size, (*factors, None, None), strict=False)
        )
        return torch.matmul(rows, torch.matmul(x, columns.t()))

    return resized


_linear, _bicubic = _resized(_triangle, 1), _resized(_cubic, 2)


def _upsampled_backward(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The gradient of `forward(x, output_size, ...)`, which is linear in `x`."""

    def backward(
        grad: Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *more: Any
    ) -> Tensor:
        x = grad.new_zeros(input_size)
        (found,) = _gradients(lambda x: forward(x, output_size, *more), grad, x)
        return found

    return backward


_INTERPOLATIONS = (
    "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d",
)  # fmt: skip
"""Ops that PyTorch decomposes, but not for exported programs."""

_PIXELS = tuple(
    f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)
)

_BY_PYTORCH = {
    name: decomposition_table[getattr(aten, name).default] for name in (*_INTERPOLATIONS, *_PIXELS)
}

GRIDS: dict[Any, Callable[..., Any]] = {
    **{getattr(aten, name).default: _BY_PYTORCH[name] for name in _INTERPOLATIONS},
    **{
        getattr(aten, f"{name}_backward").default: _upsampled_backward(forward)
        for name, forward in _BY_PYTORCH.items()
    },
    aten._upsample_bicubic2d_aa.default: _bicubic,
    aten._upsample_bicubic2d_aa_backward.default: _upsampled_backward(_bicubic),
    aten._upsample_bilinear2d_aa.default: _linear,
    aten._upsample_bilinear2d_aa_backward.default: _upsampled_backward(_linear),
    aten.grid_sampler_2d.default: _sampled,
    aten.grid_sampler_2d_backward.default: _sampled_backward,
    aten.grid_sampler_3d.default: _sampled,
    aten.grid_sampler_3d_backward.default: _sampled_backward,
}
"""Overload -> what it is traced from."""

"""Comparing the results of one computation made in two ways."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from shlo_disc.base.records import dataclass

Array = npt.NDArray[Any]

_RTOL = {
    np.dtype(np.float64): 1e-12,
    np.dtype(np.float32): 2e-5,
    np.dtype(np.float16): 4e-3,
    np.dtype(ml_dtypes.bfloat16): 3e-2,
}
"""About 4 units in the last place of 16-bit floats, where each operation rounds; 170 of f32, and
4500 of f64: sums of some thousand numbers in another order."""


_FINFO: Any = ml_dtypes.finfo  # which has no types


def tolerance(dtype: np.dtype[Any]) -> float:
    """The relative error allowed for results of this type; 0 for integers and booleans."""
    if not _is_float(dtype):
        return 0.0
    known = _RTOL.get(dtype)
    return 2.0 * float(_FINFO(dtype).eps) if known is None else known


def _is_float(dtype: np.dtype[Any]) -> bool:
    """True for the floats of NumPy and ml_dtypes; the latter are of kind V or f."""
    return dtype.name.startswith(("float", "bfloat"))


@dataclass(frozen=True)
class Difference:
    """How an array differs from the one that was expected."""

    max_error: float
    """The largest absolute difference of finite numbers."""
    max_ulp: int
    """The same in units in the last place; 0 for integers."""
    wrong: int
    """Elements beyond the tolerance."""
    index: tuple[int, ...] | None = None
    """The first of them, in row-major order."""
    got: Any = None
    want: Any = None

    @property
    def is_equal(self) -> bool:
        """True if no element is beyond the tolerance."""
        return self.wrong == 0

    def __str__(self) -> str:
        if self.index is None:
            return f"max error {self.max_error:.3g} ({self.max_ulp} ULP)"
        place = ", ".join(map(str, self.index))
        return (
            f"max error {self.max_error:.3g} ({self.max_ulp} ULP); {self.wrong} wrong, first at "
            f"[{place}]: {self.got!s} instead of {self.want!s}"
        )


def compare(got: Array, want: Array, rtol: float | None = None) -> Difference:
    """How `got` differs from `want`.

    An element is wrong if it is further away than `rtol * (|want| + scale)`, where `scale` is the
    largest finite magnitude in `want`: a sum near zero has the rounding errors of its parts. A NaN
    equals a NaN, an infinity itself. `rtol` is that of the type by default. Raises ValueError for
    arrays of different shapes or types.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        raise ValueError(f"{got.dtype}{got.shape} is compared with {want.dtype}{want.shape}")
    if rtol is None:
        rtol = tolerance(want.dtype)
    if not _is_float(want.dtype):
        a, b = got.astype(object), want.astype(object)
        error = np.abs(a - b).astype(np.float64) if want.dtype != np.bool_ else got != want
        limit = rtol * np.abs(want.astype(np.float64))
        return _difference(got, want, np.asarray(error, np.float64), error > limit, np.zeros(1))
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(over="ignore", invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        error = np.where(finite & ~same, np.abs(a - b), 0.0)
        scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        limit = rtol * (np.abs(b) + scale)
        wrong = ~same & ~(finite & (error <= limit))
    return _difference(got, want, error, wrong, np.where(finite, _ulp(got, want), 0))


def _difference(got: Array, want: Array, error: Array, wrong: Array, ulp: Array) -> Difference:
    count = int(np.count_nonzero(wrong))
    largest, most = float(error.max(initial=0.0)), int(ulp.max(initial=0))
    if count == 0:
        return Difference(largest, most, 0)
    index = tuple(int(k) for k in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    return Difference(largest, most, count, index, got[index], want[index])


def _ulp(a: Array, b: Array) -> Array:
    """Numbers of the type between `a` and `b`; 0 for types that do not fill their bytes."""
    if _FINFO(a.dtype).bits != 8 * a.dtype.itemsize:
        return np.zeros(a.shape, np.int64)
    signed = np.dtype(f"int{8 * a.dtype.itemsize}")
    order = []
    for array in (a, b):
        bits = np.ascontiguousarray(array).view(signed).reshape(array.shape).astype(object)
        order.append(np.where(bits < 0, -(bits + 2 ** (8 * a.dtype.itemsize - 1)), bits))
    distance: Array = np.abs(order[0] - order[1])
    return distance

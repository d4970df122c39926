"""What PTX instructions compute: functions of NumPy arrays, exact as the ISA defines them.

Operands come as arrays of the instruction's type: `u32` as uint32, `f64` as float64, `b32` as
uint32, `pred` as bool. Source: PTX ISA 8.x, section 9.7, one subsection per instruction.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["COMPARISONS", "FUNCTIONS", "converted", "dtype_of", "multiplied"]

Array = np.ndarray
_KINDS = {"b": "uint", "u": "uint", "s": "int", "f": "float"}
_libm = ctypes.CDLL(ctypes.util.find_library("m"))


def dtype_of(type_: str) -> np.dtype:
    """Of a value of a PTX type."""
    return np.dtype(bool if type_ == "pred" else f"{_KINDS[type_[0]]}{type_[1:]}")


def _canonical(x: Array) -> Array:
    """Arithmetic gives one NaN: positive, with all bits of the fraction set."""
    nan = np.isnan(x)
    if nan.any():
        bits = np.array(-1, f"i{x.itemsize}").view(f"u{x.itemsize}") >> 1
        x = np.where(nan, bits.view(x.dtype), x)
    return x


def _float(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *args: _canonical(function(*args))


def _fused(name: str, c_type: type) -> Callable[..., Array]:
    """The C library's fma rounds once."""
    function = getattr(_libm, name)
    function.restype, function.argtypes = c_type, [c_type] * 3

    def apply(x: Array, y: Array, z: Array) -> Array:
        args = zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
        return _canonical(np.array([function(*a) for a in args], x.dtype))

    return apply


_FMA = {"float32": _fused("fmaf", ctypes.c_float), "float64": _fused("fma", ctypes.c_double)}


def _fma(x: Array, y: Array, z: Array) -> Array:
    return _FMA[x.dtype.name](x, y, z)


def _extremum(x: Array, y: Array, larger: bool) -> Array:
    """Of floats: a number wins over NaN, +0 is above -0."""
    if x.dtype.kind != "f":
        return np.maximum(x, y) if larger else np.minimum(x, y)
    bits = f"u{x.itemsize}"
    both = x.view(bits) & y.view(bits) if larger else x.view(bits) | y.view(bits)
    zero = (x == 0) & (y == 0)
    found = np.fmax(x, y) if larger else np.fmin(x, y)
    return _canonical(np.where(zero, both.view(x.dtype), found))


def _shifted(x: Array, by: Array, left: bool) -> Array:
    """By the width or more: nothing is left, or the sign."""
    width = 8 * x.itemsize
    inside = np.minimum(by, width - 1).astype(x.dtype)
    moved = np.left_shift(x, inside) if left else np.right_shift(x, inside)
    beyond = np.zeros_like(x) if left or x.dtype.kind == "u" else x >> (width - 1)
    return np.where(by >= width, beyond, moved).astype(x.dtype)


def _quotient(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return _canonical(x / y)
    if (y == 0).any():
        raise ZeroDivisionError("a thread divides an integer by zero")
    floored = x // y
    is_lower = (floored * y != x) & ((x < 0) != (y < 0))  # than what is rounded to zero
    return (floored + is_lower).astype(x.dtype)


def _remainder(x: Array, y: Array) -> Array:
    return x - _quotient(x, y) * y


def multiplied(x: Array, y: Array, form: str) -> Array:
    """The product of integers: its `lo` or `hi` half, or all of it (`wide`)."""
    if form == "lo":
        return x * y
    kind, bits = x.dtype.kind, 8 * x.itemsize
    if bits < 64:
        whole = x.astype(f"{kind}{x.itemsize * 2}") * y.astype(f"{kind}{x.itemsize * 2}")
        return whole if form == "wide" else (whole >> bits).astype(x.dtype)
    if form == "wide":
        raise NotImplementedError("mul.wide of 64 bits")
    a, b = x.astype(np.uint64), y.astype(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    middle = (a >> half) * (b & low) + ((a & low) * (b & low) >> half)
    other = (a & low) * (b >> half) + (middle & low)
    high = (a >> half) * (b >> half) + (middle >> half) + (other >> half)
    if kind == "i":
        high = high - np.where(x < 0, b, 0) - np.where(y < 0, a, 0)
    return high.astype(x.dtype)


_ROUNDED = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}


def converted(x: Array, to: str, mods: Sequence[str]) -> Array:
    """`cvt`: floats to integers saturate; NaN is 0, or the smallest number from f64 to 64 bits."""
    target = dtype_of(to)
    rounding = next((mod for mod in mods if mod in _ROUNDED), None)
    if set(mods) - {"rn", "sat", *_ROUNDED} or ("sat" in mods and x.dtype.kind != "f"):
        raise NotImplementedError(f"cvt with {mods}")
    if x.dtype.kind != "f":
        return x.astype(target)
    whole = x if rounding is None else _ROUNDED[rounding](x)
    if target.kind == "f":
        if "sat" in mods:
            raise NotImplementedError("cvt.sat to a float")
        if rounding is None and target.itemsize < x.itemsize and "rn" not in mods:
            raise NotImplementedError(f"cvt to a narrower float with {mods}")
        return _canonical(whole.astype(target))
    limits = np.iinfo(target)
    low, high = float(limits.min), float(limits.max)  # the latter may be rounded up
    inside = (whole > low) & (whole < high)
    found = np.where(inside, whole, 0).astype(target)
    found = np.where(whole >= high, limits.max, np.where(whole <= low, limits.min, found))
    of_nan = 1 << 63 if (x.itemsize, target.itemsize) == (8, 8) else 0
    nan = np.array(of_nan, np.uint64).astype(target)
    return np.where(np.isnan(x), nan, found).astype(target)


def _sign_copied(sign: Array, x: Array) -> Array:
    return np.copysign(x, sign)


def _count(x: Array, count: Callable[[int], int]) -> Array:
    return np.array([count(int(v)) for v in x], np.uint32)


def _reversed(x: Array) -> Array:
    bits = 8 * x.itemsize
    return np.array([int(f"{int(v):0{bits}b}"[::-1], 2) for v in x], x.dtype)


def _funnel(low: Array, high: Array, by: Array, left: bool, wrap: bool) -> Array:
    by = (by & 31 if wrap else np.minimum(by, 32)).astype(np.uint64)
    whole = high.astype(np.uint64) << np.uint64(32) | low
    if left:  # by 64 - 32 at most: nothing that counts leaves at the top
        return (whole << by >> np.uint64(32)).astype(np.uint32)
    return (whole >> by).astype(np.uint32)


def _extracted(x: Array, start: Array, length: Array) -> Array:
    """`bfe`: the field of `length` bits from `start` on, extended by its sign if signed."""
    width = 8 * x.itemsize
    start, length = start & 0xFF, length & 0xFF
    out = []
    for v, s, n in zip(x.tolist(), start.tolist(), length.tolist(), strict=True):
        raw = v % (1 << width)
        field = raw >> s & ((1 << n) - 1)
        last = min(s + n - 1, width - 1)
        if x.dtype.kind == "i" and n and raw >> last & 1:
            field |= -1 << min(n, max(width - s, 0))
        out.append(field % (1 << width))
    return np.array(out, f"u{x.itemsize}").view(x.dtype)


def _permuted(a: Array, b: Array, selector: Array) -> Array:
    """`prmt`: bytes of b:a; the highest bit of a selector repeats the sign of the byte."""
    whole = b.astype(np.uint64) << np.uint64(32) | a
    out = np.zeros_like(a)
    for k in range(4):
        pick = selector >> np.uint32(4 * k) & np.uint32(15)
        byte = (whole >> (8 * (pick & 7)).astype(np.uint64) & np.uint64(255)).astype(np.uint32)
        byte = np.where(pick & 8, np.where(byte & 128, 255, 0), byte).astype(np.uint32)
        out |= byte << np.uint32(8 * k)
    return out


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "add": lambda x, y: _canonical(x + y) if x.dtype.kind == "f" else x + y,
    "and": np.bitwise_and,
    "bfe": _extracted,
    "brev": _reversed,
    "clz": lambda x: _count(x, lambda v: 8 * x.itemsize - v.bit_length()),
    "copysign": _sign_copied,
    "cvta": lambda x: x,
    "div": _quotient,
    "fma": _fma,
    "max": lambda x, y: _extremum(x, y, larger=True),
    "max.NaN": lambda x, y: _canonical(
        np.where(np.isnan(x) | np.isnan(y), x + y, _extremum(x, y, larger=True))
    ),
    "min": lambda x, y: _extremum(x, y, larger=False),
    "min.NaN": lambda x, y: _canonical(
        np.where(np.isnan(x) | np.isnan(y), x + y, _extremum(x, y, larger=False))
    ),
    "mov": lambda x: x,
    "mul": _float(np.multiply),
    "neg": lambda x: -x,
    "not": np.invert,
    "or": np.bitwise_or,
    "popc": lambda x: _count(x, int.bit_count),
    "prmt": _permuted,
    "rcp": lambda x: _quotient(np.ones_like(x), x),
    "rem": _remainder,
    "selp": lambda x, y, p: np.where(p, x, y),
    "shf.l.clamp": lambda a, b, c: _funnel(a, b, c, left=True, wrap=False),
    "shf.l.wrap": lambda a, b, c: _funnel(a, b, c, left=True, wrap=True),
    "shf.r.clamp": lambda a, b, c: _funnel(a, b, c, left=False, wrap=False),
    "shf.r.wrap": lambda a, b, c: _funnel(a, b, c, left=False, wrap=True),
    "shl": lambda x, y: _shifted(x, y, left=True),
    "shr": lambda x, y: _shifted(x, y, left=False),
    "sqrt": _float(np.sqrt),
    "sub": lambda x, y: _canonical(x - y) if x.dtype.kind == "f" else x - y,
    "xor": np.bitwise_xor,
}
"""Instructions whose result is a function of their operands; roundings are to nearest even."""


def _ordered(compare: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda x, y: compare(x, y) & ~_unordered(x, y)


def _unordered(x: Array, y: Array) -> Array:
    if x.dtype.kind != "f":
        return np.zeros(x.shape, bool)
    return np.isnan(x) | np.isnan(y)


def _or_unordered(compare: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda x, y: compare(x, y) | _unordered(x, y)


_SIX = {
    "eq": np.equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "ne": np.not_equal,
}
COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    **{name: _ordered(compare) for name, compare in _SIX.items()},
    **{f"{name}u": _or_unordered(compare) for name, compare in _SIX.items()},
    "hi": np.greater,
    "hs": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "nan": _unordered,
    "num": lambda x, y: ~_unordered(x, y),
}
"""Of `setp`."""

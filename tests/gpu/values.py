"""Values of every element type where mistakes show, and what equal results are."""

from __future__ import annotations

import numpy as np

from shlo_disc.ir.element_types import ELEMENT_TYPES, FLOATS, Special


def sample(name: str, count: int, seed: int) -> np.ndarray:
    """Random bits of a type, every second element one of its special values."""
    row = ELEMENT_TYPES[name]
    rng = np.random.default_rng(seed)
    bits = np.dtype(f"u{row.bytes}")
    raw = rng.integers(0, 1 << row.bits, count, np.uint64, endpoint=False).astype(bits)
    if row.bits == 64:
        raw = rng.integers(0, np.iinfo(bits).max, count, np.uint64, endpoint=True)
    special = _special_bits(name)
    raw[::2] = special[rng.integers(0, len(special), raw[::2].size)]
    if row.kind == "f" and row.bits > 16:  # exponents that functions are made for
        near = (rng.standard_normal(count) * 3).astype(row.dtype).view(bits)
        raw[1::4] = near[1::4]
    if row.kind == "i" and row.bits < 8:  # as ml_dtypes stores them: extended by their sign
        signed = raw.view(np.int8) << np.int8(8 - row.bits) >> np.int8(8 - row.bits)
        raw = signed.view(bits)
    return raw.view(row.dtype)


def _special_bits(name: str) -> np.ndarray:
    row = ELEMENT_TYPES[name]
    every = (1 << row.bits) - 1
    sign = 1 << row.bits - 1
    # 0, -0 or the smallest, extremes, denormals, small integers
    found = [0, 1, 2, 3, 5, 7, row.bits - 1, row.bits, sign, sign - 1, sign | 1, sign - 2, every]
    found += [every - 1, every - 2, every - 6]
    raw = np.array([v & every for v in found], f"u{row.bytes}")
    if row.kind != "f" or row.bits < 16:
        return raw
    f = FLOATS[name]
    infinity = (1 << row.bits - 1) - (1 << f.fraction)
    quiet, least = 1 << f.fraction - 1, 1 << f.fraction
    found = [infinity, sign | infinity, infinity | quiet, sign | infinity | quiet | 1]
    found += [infinity | 1, infinity - 1, sign | (infinity - 1), least, least - 1, sign | least]
    numbers = [0.5, -0.5, 1, -1, 1.5, -1.5, 2, 2.5, -2.5, 3, 0.1, 100, -100, 127.5, 128, 255.5, 256,
               -129, 32767.5, 65535.5, 65536, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, 2.0**64,
               -(2.0**63), 1e5, 1e9, 1e22, 710, -745, 88.5, -104]  # fmt: skip
    with np.errstate(over="ignore"):
        values = np.array(numbers).astype(row.dtype).view(raw.dtype)
    return np.concatenate([raw, np.array(found, raw.dtype), values])


def difference(name: str, got: np.ndarray, want: np.ndarray, exact: bool) -> np.ndarray:
    """Where two results of a type differ. `exact`: in any bit, those of NaNs included.

    Else NaNs are alike: IEEE 754 leaves their bits open, PTX gives the same for all, x86 hands
    on those of an operand. Formats without NaN have a zero with the sign of the NaN instead.
    """
    row = ELEMENT_TYPES[name]
    bits = np.dtype(f"u{row.bytes}")
    other = np.asarray(got.view(bits) != want.view(bits))
    if row.kind in "iu" and row.bits < 8:  # the upper bits of the byte are undefined
        every = np.uint8((1 << row.bits) - 1)
        other = np.asarray((got.view(bits) & every) != (want.view(bits) & every))
    if row.kind != "f" or exact:
        return other
    with np.errstate(invalid="ignore"):  # signalling NaNs
        a, b = got.astype(np.float64), want.astype(np.float64)
    if FLOATS[name].special is Special.FINITE:
        return other & ~((a == 0) & (b == 0))
    return other & ~(np.isnan(a) & np.isnan(b))

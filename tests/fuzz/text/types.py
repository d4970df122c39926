"""Element types of random modules: names, numbers of them, and how they print in MLIR."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shlo_disc.ir.element_types import COMPLEX_TYPES, ELEMENT_TYPES, FLOATS, Special

FLOAT = [name for name, row in ELEMENT_TYPES.items() if row.kind == "f"]
SIGNED = [name for name, row in ELEMENT_TYPES.items() if row.kind == "i"]
INTEGER = [name for name, row in ELEMENT_TYPES.items() if row.kind in "iu"]
COMPLEX = list(COMPLEX_TYPES)
FINITE = [name for name, form in FLOATS.items() if form.special is Special.FINITE]

Known = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Facts:
    """What is known of a value before it is computed."""

    magnitude: float
    """A bound of the finite elements; infinite: unknown."""
    error: float = 0.0
    """How far rounding may move an element, apart from a few units in its last place."""
    grain: int | None = None
    """Every element is a multiple of 2**-grain; None: unknown."""
    special: bool = False
    """There may be NaN and infinities."""
    rough: bool = False
    """Rounded in an order or by a function that the specification leaves open."""
    dynamic: tuple[bool, ...] = ()
    """The dimensions that print as `?`."""
    known: Known | None = None
    """The elements at every call, of integers computed from sizes."""

    @property
    def exact(self) -> bool:
        """True if every right implementation gives the same bits."""
        return not self.rough

    def implies(self, other: Facts) -> bool:
        """A value of these facts may stand where one of `other` stands."""
        grains = other.grain is None or (self.grain is not None and self.grain <= other.grain)
        return (
            self.magnitude <= other.magnitude
            and self.error <= other.error
            and grains
            and self.special <= other.special
            and self.rough <= other.rough
            and self.dynamic == other.dynamic
            and self.known == other.known
        )


def is_quantized(dtype: str) -> bool:
    return dtype.startswith("!quant")


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_complex(dtype: str) -> bool:
    return dtype in COMPLEX_TYPES


def real_of(dtype: str) -> str:
    """The type of the parts of a complex type; another type itself."""
    return dtype[8:-1] if is_complex(dtype) else dtype


def bits(dtype: str) -> int:
    return ELEMENT_TYPES[dtype].bits


def dtype_of(dtype: str) -> np.dtype[Any]:
    """The NumPy type."""
    return COMPLEX_TYPES[dtype] if is_complex(dtype) else ELEMENT_TYPES[dtype].dtype


def epsilon(dtype: str) -> float:
    """The relative distance of neighbours; 0 for integers."""
    name = real_of(dtype)
    return 2.0 ** (1 - FLOATS[name].precision) if name in FLOATS else 0.0


def largest(dtype: str) -> float:
    """The largest finite number."""
    name = real_of(dtype)
    row = ELEMENT_TYPES[name]
    if row.kind == "b":
        return 1.0
    if row.kind != "f":
        return 2.0 ** (row.bits - (row.kind == "i"))
    form = FLOATS[name]
    cut = {Special.FN: 2 if form.precision > 1 else 1}.get(form.special, 1)
    return (2.0 - cut * 2.0 ** (1 - form.precision)) * 2.0**form.largest


def smallest(dtype: str) -> float:
    """Below this magnitude the distance of neighbours is that of denormals."""
    name = real_of(dtype)
    return 2.0 ** FLOATS[name].smallest if name in FLOATS else 0.0


def fits(dtype: str, magnitude: float, grain: int | None) -> bool:
    """Every multiple of 2**-grain up to `magnitude` is a number of a float type."""
    form = FLOATS[real_of(dtype)]
    if grain is None or magnitude > largest(dtype) or form.special is Special.SCALE:
        return False
    whole = grain + math.ceil(math.log2(max(magnitude, 2.0**-grain)))
    return whole <= form.precision and grain <= form.precision - 1 - form.smallest


def rounded(dtype: str, real: Facts, *, once: bool, roundings: float = 1.0) -> Facts | None:
    """Facts of the result in `dtype`, from those of the real result.

    `once`: one rounding that the specification defines. None: it would say too little.
    """
    real = replace(real, known=None)
    if not is_float(real_of(dtype)):
        return replace(real, magnitude=min(real.magnitude, largest(dtype)), grain=None)
    if not real.rough and fits(dtype, real.magnitude, real.grain):
        return real
    if once and not real.rough:
        special = real.special or real.magnitude >= largest(dtype)
        return replace(real, grain=None, special=special)
    if not math.isfinite(real.magnitude) or real.magnitude > largest(dtype) / 4:
        return None
    step = epsilon(dtype) * max(real.magnitude, smallest(dtype))
    error = real.error + roundings * step
    if error > 0.25 * real.magnitude:
        return None
    return replace(real, error=error, grain=None, rough=True)


def join(*many: Facts) -> Facts:
    """What holds of a value that is one of several; no shape, no known elements."""
    grains = [f.grain for f in many]
    return Facts(
        max(f.magnitude for f in many),
        max(f.error for f in many),
        None if None in grains else max(g for g in grains if g is not None),
        any(f.special for f in many),
        any(f.rough for f in many),
    )


def moved(facts: Facts, dynamic: tuple[bool, ...]) -> Facts:
    """Of the same elements in another shape."""
    return replace(facts, dynamic=dynamic, known=None)


# --- numbers ---------------------------------------------------------------------------------


def array(kind: str, dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    """Numbers of a kind: grid and unit (multiples of 1/8), normal, special, small, wide, bool."""
    rng = np.random.default_rng(seed)
    if is_complex(dtype):
        parts = [array(kind, real_of(dtype), shape, seed + k) for k in (0, 1)]
        numbers = np.empty(shape, dtype_of(dtype))
        numbers.real, numbers.imag = parts
        return numbers
    row = ELEMENT_TYPES[dtype]
    if row.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if row.kind in "iu":
        low = -(2 ** (row.bits - 1)) if row.kind == "i" else 0
        high = low + 2**row.bits - 1
        if kind != "wide":
            low, high = max(low, -9), min(high, 9)
        drawn = rng.integers(low, high, shape, np.int64 if high < 2**63 else np.uint64, True)
        ends = rng.choice(np.array([low, low + 1, high - 1, high, 0, 1], drawn.dtype), shape)
        return np.where(rng.random(shape) < 0.3, ends, drawn).astype(row.dtype)
    if FLOATS[dtype].special is Special.SCALE:
        return np.asarray(2.0 ** rng.integers(-3, 3, shape)).astype(row.dtype)
    if kind == "normal":
        numbers = np.clip(rng.standard_normal(shape), -4, 4)
    else:
        numbers = rng.integers(*((-8, 9) if kind == "unit" else (-32, 33)), shape) / 8
    if kind == "special":
        tiny = float(ELEMENT_TYPES[dtype].dtype.type(smallest(dtype) / 2))
        odd = rng.choice([np.nan, np.inf, -np.inf, -0.0, tiny, -tiny], shape)
        numbers = np.where(rng.random(shape) < 0.25, odd, numbers)
    with np.errstate(all="ignore"):
        return np.asarray(numbers).astype(row.dtype)


def dense(numbers: Any, dtype: str) -> str:
    """The array as what is between the angle brackets of `dense<...>`."""
    if numbers.ndim:
        return "[" + ", ".join(dense(part, dtype) for part in numbers) + "]" if numbers.size else ""
    if is_complex(dtype):
        parts = (np.asarray(numbers.real), np.asarray(numbers.imag))
        return "(" + ", ".join(dense(p, real_of(dtype)) for p in parts) + ")"
    row = ELEMENT_TYPES[dtype]
    if row.kind == "b":
        return "true" if numbers else "false"
    if row.kind in "iu":
        return str(int(numbers))
    raw = np.asarray(numbers).reshape(1).view(f"uint{8 * row.bytes}")
    return f"0x{int(raw[0]):0{-(-row.bits // 4)}X}"

"""A case: a function of arrays, and how to make the arrays from two sizes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

SIZES = ((5, 4), (1, 6), (9, 1), (70, 3))
"""The sizes n and m of the four calls."""


@dataclass(frozen=True)
class Case:
    function: Callable[..., Any] | None
    """None: the public function itself."""
    arguments: tuple[str, ...]
    """`"n 3"`: normal float32 numbers of shape [n, 3]; `"kind: sizes"`: see `KINDS`."""
    sizes: tuple[tuple[int, int], ...] = SIZES
    exact: bool = False
    """Floats are bit-equal too."""
    reason: str = ""
    """Why this function needs several compilations; the empty text: it needs one."""
    truth: Callable[..., Any] | None = None
    """The exact result; None: that of JAX in float64, which some functions do not compute in."""


Leave = Mapping[str, str]
"""Reason to leave functions out -> their names."""


def case(*given: Any, **options: Any) -> Case:
    """`case("n m")`, or `case(function, "n m", "index(n): m")`."""
    function, arguments = (None, given) if isinstance(given[0], str) else (given[0], given[1:])
    return Case(function, tuple(arguments), **options)


def each(names: str, *given: Any, **options: Any) -> dict[str, Case]:
    """The same arguments for every name."""
    return {name: case(*given, **options) for name in names.split()}


def _real(rng: Any, shape: Any) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def _uniform(low: float, high: float) -> Callable[..., np.ndarray]:
    return lambda rng, shape: rng.uniform(low, high, shape).astype(np.float32)


def _integers(low: int, high: int, dtype: Any = np.int32) -> Callable[..., np.ndarray]:
    return lambda rng, shape: rng.integers(low, high, shape).astype(dtype)


def _with_nan(rng: Any, shape: Any) -> np.ndarray:
    return np.where(rng.uniform(size=shape) < 0.3, np.nan, _real(rng, shape)).astype(np.float32)


def _well(rng: Any, shape: Any) -> np.ndarray:
    return _real(rng, shape) + 2 * shape[-1] * np.eye(*shape[-2:], dtype=np.float32)


def _definite(rng: Any, shape: Any) -> np.ndarray:
    half = _real(rng, shape)
    return half @ half.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1], dtype=np.float32)


def _symmetric(rng: Any, shape: Any) -> np.ndarray:
    half = _real(rng, shape)
    return half + half.swapaxes(-1, -2)


def _probabilities(rng: Any, shape: Any) -> np.ndarray:
    parts = rng.uniform(0.1, 1, shape)
    return (parts / parts.sum(-1, keepdims=True)).astype(np.float32)


def _keys(_: Any, shape: Any) -> jax.Array:
    key = jax.random.key(7)
    return jax.random.split(key, shape) if shape else key


KINDS: dict[str, Callable[..., Any]] = {
    "real": _real,
    "positive": _uniform(0.1, 3),
    "unit": _uniform(0.02, 0.98),
    "open": _uniform(-0.95, 0.95),
    "above": _uniform(1.1, 4),
    "nan": _with_nan,
    "int": _integers(-9, 10),
    "whole": _integers(0, 10),
    "count": _integers(1, 10),
    "byte": _integers(0, 256, np.uint8),
    "word": _integers(0, 2**32, np.uint32),
    "bit": _integers(0, 2, np.uint8),
    "bool": lambda rng, shape: rng.uniform(size=shape) < 0.5,
    "sorted": lambda rng, shape: np.sort(_real(rng, shape), axis=-1),
    "rising": lambda rng, shape: np.cumsum(rng.uniform(0.2, 1, shape), -1).astype(np.float32),
    "places": lambda rng, shape: rng.permutation(*shape).astype(np.int32),
    "well": _well,
    "definite": _definite,
    "symmetric": _symmetric,
    "lower": lambda rng, shape: np.tril(_well(rng, shape)),
    "probabilities": _probabilities,
    "key": _keys,
}  # fmt: skip
"""What numbers an argument has; `index(n)` is an integer in [0, n)."""


def arrays(case: Case, n: int, m: int) -> list[Any]:
    """The arguments for two sizes; equal sizes give equal numbers."""
    found = []
    names = {"n": n, "m": m}
    for place, text in enumerate(case.arguments):
        kind, _, sizes = text.rpartition(":") if ":" in text else ("real", "", text)
        shape = tuple(int(eval(size, {}, names)) for size in sizes.split())
        rng = np.random.default_rng([n, m, place, zlib.crc32(text.encode())])
        if below := re.fullmatch(r"index\((.*)\)", kind):
            found.append(_integers(0, eval(below[1], {}, names))(rng, shape))
        else:
            found.append(KINDS[kind](rng, shape))
    return found

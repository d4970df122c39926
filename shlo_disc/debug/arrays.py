"""Arguments and results of a program as files: `.npz`, read and written by NumPy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.executables.executable import Executable
from shlo_disc.executables.signature import ArraySpec

Array = npt.NDArray[Any]

LARGEST = 8
"""Random integers are smaller: most are indices or counters."""


def read(path: Path, arguments: Sequence[ArraySpec]) -> list[Array]:
    """The arrays of an `.npz` file in the order of `arguments`.

    They have the names of the arguments, or `arr_0`, `arr_1`, ... (`numpy.savez(path, x, w)`).
    Raises ValueError, with the names, if they are neither.
    """
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    names = [spec.name for spec in arguments]
    numbered = [f"arr_{k}" for k in range(len(names))]
    if set(names) == set(arrays):
        keys = names
    elif set(numbered) == set(arrays):
        keys = numbered
    else:
        raise ValueError(
            f"{path} has the arrays {', '.join(arrays) or '(none)'}; the arguments are "
            f"{', '.join(names) or '(none)'}. Name arrays so, or {', '.join(numbered[:2])}, ..."
        )
    return [_typed(arrays[key], spec) for key, spec in zip(keys, arguments, strict=True)]


def write(path: Path, results: Sequence[Array]) -> None:
    """Write results as `arr_0`, `arr_1`, ...; those of bfloat16 are bytes for NumPy."""
    np.savez(path, *results)


def random_arguments(
    executable: Executable, sizes: Mapping[str, int], seed: int = 0, count: int | None = None
) -> list[Array]:
    """Arguments for these values of the symbols, by default all, or the first `count`.

    Floats are normally distributed, integers at least 0 and below LARGEST, and arguments that hold
    sizes hold `sizes`. Raises ValueError if a symbol has no value, or there is no such symbol.
    """
    program = executable.program
    arguments = executable.signature.arguments[:count]
    needed = [step.symbol for step in program.steps if step.argument < len(arguments)]
    if missing := [name for name in needed if name not in sizes]:
        options = " ".join(f"--size {name}=N" for name in missing)
        raise ValueError(f"random arguments need a value of {', '.join(missing)}: {options}")
    if unknown := [name for name in sizes if name not in needed]:
        known = ", ".join(needed) or "none"
        raise ValueError(f"no symbol is called {', '.join(unknown)}; symbols: {known}")
    values = np.random.default_rng(seed)
    arrays = []
    for spec, terms in zip(arguments, program.arguments, strict=False):
        shape = tuple(term.evaluate(sizes) for term in terms)
        if min(shape, default=0) < 0:
            raise ValueError(f"{spec} would have the shape {shape} at these sizes")
        arrays.append(_random(values, spec.dtype, shape))
    for step in program.steps:
        if step.is_element and step.argument < len(arrays):
            arrays[step.argument].reshape(-1)[step.axis] = sizes[step.symbol]
    return arrays


def _random(values: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    if dtype == np.bool_:
        return values.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        return values.integers(0, LARGEST, shape).astype(dtype)
    if dtype.kind == "c":
        return as_complex(values.standard_normal((*shape, 2)).astype(f"f{dtype.itemsize // 2}"))
    return values.standard_normal(shape).astype(dtype)


def as_pairs(array: Array) -> Array:
    """A complex array as a program in normal form has it: a last dimension of size 2."""
    if array.dtype.kind != "c":
        return array
    part = f"f{array.dtype.itemsize // 2}"
    return np.ascontiguousarray(array).reshape(-1).view(part).reshape(*array.shape, 2)


def as_complex(pairs: Array) -> Array:
    """An array of pairs as the complex array in the same memory."""
    whole = f"c{2 * pairs.dtype.itemsize}"
    return np.ascontiguousarray(pairs).reshape(-1).view(whole).reshape(pairs.shape[:-1])


def _typed(array: Array, spec: ArraySpec) -> Array:
    """NumPy's files have no bfloat16: two bytes of no type are one."""
    if re.fullmatch(r"[|<>=]?V2", array.dtype.str) and spec.dtype.itemsize == 2:
        return array.view(spec.dtype)
    return array

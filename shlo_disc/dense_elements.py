"""The elements of a dense attribute as a NumPy array, of any element type."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from shlo_disc.element_types import ElementType
from shlo_disc.mlir import ir

__all__ = ["elements_of"]


def elements_of(value: ir.Attribute, element: ElementType) -> npt.NDArray[np.generic]:
    """The elements of `value`, which is dense and not a splat, in row-major order: rank 1."""
    if 1 < element.bits < 8 or (element.kind == "f" and element.bits <= 16):
        return _from_text(value, element)
    return np.array(value).astype(element.dtype, copy=False).reshape(-1)


def _from_text(value: ir.Attribute, element: ElementType) -> npt.NDArray[np.generic]:
    """Narrow types have no buffer protocol in the bindings: read the printed form."""
    dtype = element.dtype
    text = str(value).partition("<")[2].rpartition("<")[0].rpartition(">")[0]
    if text.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(text[3:-1]), dtype)
    numbers = re.findall(r"0x[0-9A-Fa-f]+|[-+\w.]+", text)
    if element.kind != "f":
        return np.array([int(number) for number in numbers], np.int64).astype(dtype)
    bits = np.empty(len(numbers), f"uint{8 * dtype.itemsize}")
    out = bits.view(dtype)
    for index, number in enumerate(numbers):
        if number.startswith("0x"):
            bits[index] = int(number, 16)
        else:
            out[index] = float(number)
    return out

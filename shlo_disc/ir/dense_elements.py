"""The elements of constants as NumPy arrays, of any element type."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.mlir import ir

_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[-+\w.]+")


def elements_of(value: ir.Attribute, element: ElementType) -> npt.NDArray[np.generic]:
    """The elements of `value`, which is dense and not a splat, in row-major order: rank 1."""
    if 1 < element.bits < 8 or (element.kind == "f" and element.bits <= 16):
        # Narrow types have no buffer protocol in the bindings: read the printed form.
        return _from_text(str(value).partition("<")[2], element)
    return np.array(value).astype(element.dtype, copy=False).reshape(-1)


def complex_elements_of(op: ir.Operation, part: ElementType) -> npt.NDArray[np.generic] | None:
    """The elements of a complex constant, or the one of a splat, as rows (real, imaginary).

    `part` is the type of both parts. None for a value that is not dense.
    """
    # The bindings raise for attributes of complex numbers: the printed form of `op` has the value.
    _, dense, rest = op.get_asm().partition(" dense<")
    return _from_text(rest, part).reshape(-1, 2) if dense else None


def _from_text(text: str, element: ElementType) -> npt.NDArray[np.generic]:
    """The numbers of `text` up to the `>` that ends a dense attribute."""
    dtype = element.dtype
    text = text.partition(">")[0]
    if text.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(text[3:-1]), dtype)
    numbers = _NUMBER.findall(text)
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

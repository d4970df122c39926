"""Constants whose elements are not in MLIR: attributes that name an array of this process."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.ir.mlir import ir, pointer

Bytes = npt.NDArray[np.uint8]


class _Named(np.ndarray[Any, Any]):
    """The first byte of an array, for MLIR to hold: it would print all that it is given."""

    whole: Bytes


_PREFIX = "shlo_disc_weight_"
_arrays: weakref.WeakValueDictionary[tuple[int, str], _Named] = weakref.WeakValueDictionary()
"""By the context and the name of the attribute. The context holds the array."""


def weight_attribute(array: npt.NDArray[Any], kind: ir.Type, number: int) -> ir.Attribute:
    """The value of a constant of type `kind` with the elements of `array`, which is not copied.

    Its name has the `number`: texts of equal programs are equal.
    """
    elements = array.reshape(-1).view(np.uint8)
    held = elements[:1].view(_Named)
    held.whole = elements
    name = f"{_PREFIX}{number}"
    made = ir.DenseResourceElementsAttr.get_from_buffer(held, name, kind, 1, False)
    _arrays[_key(made)] = held  # MLIR may have chosen another name
    return made


def _key(value: ir.Attribute) -> tuple[int, str]:
    return pointer(value.context), resource_name(value) or ""


def weight_bytes(value: ir.Attribute) -> Bytes | None:
    """The memory of the array that `value` names; None: it is another kind of attribute."""
    found = _arrays.get(_key(value))
    return None if found is None else found.whole


def resource_name(value: ir.Attribute) -> str | None:
    """The name in `dense_resource<name> : type`, where `value` is one."""
    if isinstance(value, ir.DenseElementsAttr):  # whose printed form may be large
        return None
    kind, _, rest = str(value).partition("<")  # the bindings know its class, but never give it
    return rest.partition(">")[0] if kind == "dense_resource" else None

"""Constants whose elements are not in MLIR: attributes that name an array of this process."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.ir.mlir import ir

__all__ = ["resource_name", "weight_attribute", "weight_bytes"]

Bytes = npt.NDArray[np.uint8]


class _Named(np.ndarray[Any, Any]):
    """The first byte of an array, for MLIR to hold: it would print all that it is given."""

    whole: Bytes


_PREFIX = "shlo_disc_weight_"
_numbers = itertools.count()
_arrays: weakref.WeakValueDictionary[str, _Named] = weakref.WeakValueDictionary()
"""By the name of the attribute. The context of an attribute holds the array."""


def weight_attribute(array: npt.NDArray[Any], kind: ir.Type) -> ir.Attribute:
    """The value of a constant of type `kind` with the elements of `array`, which is not copied."""
    elements = array.reshape(-1).view(np.uint8)
    held = elements[:1].view(_Named)
    held.whole = elements
    name = f"{_PREFIX}{next(_numbers)}"
    _arrays[name] = held
    return ir.DenseResourceElementsAttr.get_from_buffer(held, name, kind, 1, False)


def weight_bytes(value: ir.Attribute) -> Bytes | None:
    """The memory of the array that `value` names; None: it is another kind of attribute."""
    found = _arrays.get(resource_name(value) or "")
    return None if found is None else found.whole


def resource_name(value: ir.Attribute) -> str | None:
    """The name in `dense_resource<name> : type`, where `value` is one."""
    if isinstance(value, ir.DenseElementsAttr):  # whose printed form may be large
        return None
    kind, _, rest = str(value).partition("<")  # the bindings know its class, but never give it
    return rest.partition(">")[0] if kind == "dense_resource" else None

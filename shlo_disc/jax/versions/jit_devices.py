"""Where the results of a call go, and why a call cannot run on the devices of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from shlo_disc.jax.derived.sharding_types import runs_in_blocks
from shlo_disc.jax.versions.versions import Version
from shlo_disc.jax_private.arrays import ArrayImpl, KeyArray, key_of_words, on_device


def placed(result: Any, device: jax.Device) -> Any:
    """A result on the default device; one on the device of a committed argument stays there."""
    if type(result) is KeyArray:
        return key_of_words(result._impl.name, placed(result._base_array, device))
    return result if result.committed else on_device(result, device)


def why_not_in_blocks(version: Version, arrays: Sequence[Any]) -> str | None:
    """Why a program cannot run in blocks on the devices of these arrays (empty: for the reason the
    caller knows); None if it can.
    """
    places = [frozenset(() if x is None else x.sharding.device_set) for x in arrays]
    used = {places[k] for k in version.used}
    committed = [p for x, p in zip(arrays, places, strict=True) if x is not None and x.committed]
    if not used.issuperset(committed):
        return "arguments that are not used are elsewhere"
    if version.is_in_parts or not runs_in_blocks(version.program, arrays):
        return ""
    return None


def number_in(results: Any, nans: bool, infinities: bool) -> str:
    """The number among the results that JAX is to look for: "nan" or "inf"; empty if none is."""
    for leaf in jax.tree.leaves(results):
        if type(leaf) is not ArrayImpl or not jax.numpy.issubdtype(leaf.dtype, np.inexact):
            continue
        numbers = np.asarray(leaf)
        for sought, test, name in ((nans, np.isnan, "nan"), (infinities, np.isinf, "inf")):
            if sought and test(numbers).any():
                return name
    return ""

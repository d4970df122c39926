"""A module that JAX lowered, as the front end hands it to the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy.typing as npt

from shlo_disc.base.records import dataclass

WEIGHT = "shlo_disc.weight"
"""The target of a custom call that stands for a constant beside the module."""


@dataclass(frozen=True)
class JaxModule:
    """A module that JAX lowered in this process, hence trusted, with sizes as leading arguments."""

    data: str | bytes
    """MLIR text, or a portable artifact."""
    own: Sequence[Sequence[str]] = ()
    """The sizes of every array argument in the symbols of the module."""
    shapes: Sequence[Sequence[str]] = ()
    """The same in the symbols to compile for."""
    sizes: Mapping[str, str] = field(default_factory=dict)
    """The values of the module's symbols in these."""
    constraints: Sequence[str] = ()
    """Relations of these that every call must satisfy, such as "t >= 2"."""
    weights: Sequence[npt.NDArray[Any]] = ()
    """Its large constants: `backend_config` of a custom call WEIGHT is the index of one."""
    data_for: Callable[[str | bytes, str], str | bytes] = lambda data, _: data
    """What a StableHLO of a version reads, such as "1.17.0", of `data`."""

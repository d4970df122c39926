"""What an executable takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.executables.record import ProgramRecord, Type
from shlo_disc.ir.element_types import COMPLEX_TYPES, ELEMENT_TYPES


@dataclass(frozen=True)
class ArraySpec:
    """The type of one argument or result: sizes are numbers or symbolic expressions."""

    name: str
    dtype: np.dtype[Any]
    sizes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(self.sizes)}]"


@dataclass(frozen=True)
class Signature:
    """What an executable takes and gives."""

    arguments: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]

    def __str__(self) -> str:
        takes = ", ".join(map(str, self.arguments))
        gives = ", ".join(f"{r.dtype.name}[{', '.join(r.sizes)}]" for r in self.results)
        return f"({takes}) -> ({gives})"


def signature_of(record: ProgramRecord) -> Signature:
    """The signature of a program. Raises UnsupportedError for an element type without arrays."""
    program, results = record.program, record.results
    return Signature(
        tuple(map(_spec, program.names, record.arguments, program.arguments)),
        tuple(
            _spec(f"result[{i}]", kind, sizes)
            for i, (kind, sizes) in enumerate(zip(results, program.results, strict=True))
        ),
    )


def _spec(name: str, kind: Type, sizes: Sequence[Expr]) -> ArraySpec:
    return ArraySpec(name, dtype_of(kind.element), tuple(map(str, sizes)))


def dtype_of(element: str) -> np.dtype[Any]:
    """The NumPy type of an element type of MLIR; raises UnsupportedError if there is none."""
    if element in COMPLEX_TYPES:
        return COMPLEX_TYPES[element]
    if element not in ELEMENT_TYPES:
        known = ", ".join((*ELEMENT_TYPES, *COMPLEX_TYPES))
        raise UnsupportedError(
            f"arguments and results of element type {element} are not supported; convert them to "
            f"one of {known}"
        )
    return ELEMENT_TYPES[element].dtype


def is_known_to_jax(element: str) -> bool:
    """True if arrays of JAX may have this element type of MLIR."""
    return element not in ELEMENT_TYPES or ELEMENT_TYPES[element].is_known_to_jax

"""Runs programs that shlo_disc saved, without JAX and without a compiler: needs numpy alone.

program = shlo_disc_runtime.load("model.disc")
program.signature     # (x: float32[batch, 24]) -> (float32[batch, 5])
(y,) = program(x)
"""

from shlo_disc_runtime.errors import (
    ArtifactError,
    ForeignCallError,
    InternalError,
    RuntimeLibraryError,
    ShapeMismatchError,
    UnsupportedError,
)
from shlo_disc_runtime.program import ArraySpec, Program, Signature, load

__all__ = [
    "ArraySpec",
    "ArtifactError",
    "ForeignCallError",
    "InternalError",
    "Program",
    "RuntimeLibraryError",
    "ShapeMismatchError",
    "Signature",
    "UnsupportedError",
    "load",
]

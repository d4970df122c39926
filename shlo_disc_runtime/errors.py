"""What loading and calling a program raises: built-in errors, and subclasses of them."""

from __future__ import annotations

from collections.abc import Callable


class ArtifactError(ValueError):
    """A file is no artifact, is damaged, or was made by a later version."""


class UnsupportedError(NotImplementedError):
    """An artifact has no code for this processor, or calls code that this process lacks."""


class ShapeMismatchError(TypeError):
    """The arguments of a call break a shape constraint of the program."""


class ForeignCallError(RuntimeError):
    """A handler that the program calls has failed."""


class InternalError(RuntimeError):
    """A mistake of shlo_disc."""


class RuntimeLibraryError(ImportError):
    """`libdisc_ral.so` is not where it is installed."""


_OF_CODE: dict[int, Callable[[str], Exception]] = {
    1: TypeError,  # DISC_MISUSE
    2: OSError,  # DISC_FILE
    3: ArtifactError,  # DISC_DAMAGED
    4: ArtifactError,  # DISC_NEWER
    5: UnsupportedError,  # DISC_NO_TARGET
    6: TypeError,  # DISC_DTYPE
    7: ShapeMismatchError,  # DISC_RANK
    8: ShapeMismatchError,  # DISC_SIZE
    9: ShapeMismatchError,  # DISC_CONSTRAINT
    10: ValueError,  # DISC_STRIDES
    11: ValueError,  # DISC_NULL
    12: ValueError,  # DISC_ALIGNMENT
    13: ValueError,  # DISC_OVERLAP
    14: ValueError,  # DISC_TOO_SMALL
    15: ValueError,  # DISC_DEVICE
    16: MemoryError,  # DISC_OUT_OF_MEMORY
    19: UnsupportedError,  # DISC_NO_HANDLER
    20: ForeignCallError,  # DISC_HANDLER
}
"""The error of each code of `disc.h`; of others it is InternalError."""


def error_of(code: int, message: str) -> Exception:
    """The exception for an error of the library."""
    return _OF_CODE.get(code, InternalError)(message)

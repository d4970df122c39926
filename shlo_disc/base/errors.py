"""The error classes a user can meet.

A message says what, where (`model.py:7`), the values, how we know, and what to do.
"""

ELSEWHERE = (
    "keep this part outside the compiled program, or have the framework run it: "
    "on_unsupported='xla' of shlo_disc.jit, 'eager' of torch.compile"
)
"""What to do about an op that no front end can have compiled; the end of a message."""


class ShloDiscError(Exception):
    """Base class of every error shlo_disc raises on purpose."""


class InvalidModuleError(ShloDiscError, ValueError):
    """The program given to us is malformed or breaks a rule of the StableHLO specification."""


class UnsupportedError(ShloDiscError, NotImplementedError):
    """A valid program uses something shlo_disc does not compile (yet).

    The message names the operation, its source line and the nearest thing that works.
    """


class ArtifactError(ShloDiscError, ValueError):
    """A file is no artifact, is damaged, or was made by a later version."""


class ShapeMismatchError(ShloDiscError, TypeError):
    """The arguments of a call break a shape constraint of the compiled program."""


class DeletedArrayError(ShloDiscError, RuntimeError, ValueError):
    """An argument's memory was given up: by `delete()` (RuntimeError in JAX) or by an earlier call
    that it was donated to (ValueError in JAX).
    """


class ChangedArrayError(ShloDiscError, RuntimeError):
    """Another thread gave an argument other memory during a call, whose results are worthless."""


class CacheMismatchError(ShloDiscError, RuntimeError):
    """SHLO_DISC_CACHE=verify found an entry on disk that is not what compiling anew gives."""


class DeviceError(ShloDiscError, RuntimeError, ValueError, TypeError):
    """A program cannot run on a device.

    An argument lies on a device, or on several, where the program does not run. Or the driver or
    the device is missing, is lost, refuses a launch, or needs kernels of another architecture.
    """


class ArgumentPlaceError(DeviceError):
    """An argument lies on a device, or on several, where the program does not run."""


class ForkError(ShloDiscError, RuntimeError):
    """A function needs a compilation in a process that was forked after JAX had compiled."""


class ForeignCallError(ShloDiscError, RuntimeError):
    """A handler of an XLA FFI target that a program calls has returned an error."""


class NumberRangeError(ShloDiscError, OverflowError):
    """A Python number does not fit the dtype the program has for it."""


class IndexRangeError(ShloDiscError, IndexError, RuntimeError):
    """An index or a label is out of range, for which PyTorch raises either base class."""


class InternalError(ShloDiscError, RuntimeError):
    """A mistake of shlo_disc itself; the message says how to reproduce and report it."""

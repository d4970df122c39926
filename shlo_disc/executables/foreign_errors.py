"""Failures of FFI calls, as errors of a user."""

from __future__ import annotations

from shlo_disc import ral
from shlo_disc.base.callbacks import is_callback, last_failure
from shlo_disc.base.errors import ForeignCallError

_CODES = {
    1: "CANCELLED",
    2: "UNKNOWN",
    3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED",
    5: "NOT_FOUND",
    6: "ALREADY_EXISTS",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    10: "ABORTED",
    11: "OUT_OF_RANGE",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    15: "DATA_LOSS",
    16: "UNAUTHENTICATED",
}
"""`XLA_FFI_Error_Code` as messages of XLA name it."""


def foreign_call_error(error: ral.ForeignError) -> Exception:
    """The error of a user for one of the runtime; of a Python function that of `jax.jit`."""
    where, message, code = error.args
    if is_callback(where.rpartition("@")[2]):
        from jax.errors import JaxRuntimeError  # noqa: PLC0415 - programs of JAX alone call Python

        raised: Exception = JaxRuntimeError(f"{_CODES.get(code, code)}: {message}")
        raised.__cause__ = last_failure()
        return raised
    return ForeignCallError(f"{where} failed: {message} ({_CODES.get(code, code)})")

"""Names that JAX gives operations which no line of a program made."""

from __future__ import annotations

import re

_CALL = re.compile(r'jit\([^"/]*\)')


def is_call(name: str) -> bool:
    """True for the name of what no line made, literals and the return.

    JAX gives it the line that called the function.
    """
    return _CALL.fullmatch(name) is not None

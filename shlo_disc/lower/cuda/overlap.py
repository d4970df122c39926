"""Kernels that a stream may start before the kernel in front of them has ended (from sm_90 on).

The blocks of such a kernel wait, as their first instruction, until the kernel in front has ended
and its memory is visible. That saves the time of a launch, a microsecond or two. Behind that
instruction each block says that the next kernel may be launched, so at most two overlap.

LLVM must not move a load in front of the wait. So the text that LLVM printed is changed.

Source: NVIDIA's PTX ISA, section 9.7.13.13 (`griddepcontrol`); CUDA's programming guide,
"Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

import re

from shlo_disc.base.errors import InternalError

_ENTRY = re.compile(r"(\.entry\s[^{]*\{\n(?:[ \t]*\.(?:reg|shared|local)\b[^\n]*\n|[ \t]*\n)*)")
"""The head of a kernel and the declarations in front of its first instruction."""

_FIRST = "\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n"


def overlapping(ptx: str) -> str:
    """`ptx`, whose kernels may start early. Raises InternalError for a text without kernels."""
    changed, count = _ENTRY.subn(lambda match: match[1] + _FIRST, ptx)
    if count != ptx.count(".entry ") or count == 0:
        raise InternalError(f"{count} of the kernels in a text of PTX were found:\n{ptx[:2000]}")
    return changed

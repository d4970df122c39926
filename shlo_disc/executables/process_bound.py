"""What makes objects of machine code part of their process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self


class OfThisProcess:
    """Machine code, which no other process can load; a copy is the object itself."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: Mapping[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is machine code of this process and cannot be pickled; pickle the program "
            "(the bytes or text) and compile it in the other process"
        )

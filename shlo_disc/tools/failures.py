"""What the commands print when a program is refused."""

from __future__ import annotations

from shlo_disc.dynamic.size_sources import NeedsSeveralPrograms


def failure(error: BaseException) -> str:
    """One line: the class of the error and its message."""
    if isinstance(error, NeedsSeveralPrograms):
        return (
            f"UnsupportedError: {error}. shlo_disc.compile makes several programs in turn of it, "
            "and disc-run without other options runs them; SHLO_DISC_DUMP=DIR writes a folder for "
            "each, which this command takes"
        )
    return f"{type(error).__name__}: {error}"

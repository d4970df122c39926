"""Where in the user's model a node comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

import shlo_disc

__all__ = ["place_of"]

_FOREIGN = tuple(
    str(folder) + "/"
    for folder in (
        Path(tf.__file__).parent,
        Path(tf.__file__).parents[1] / "keras",
        Path(shlo_disc.__file__).parent,
    )
)


def place_of(op: Any) -> tuple[str, int] | None:
    """File and line of the innermost frame of the model; None for an op of a SavedModel."""
    frames = [(str(frame.filename), int(frame.lineno)) for frame in op.traceback or ()]
    traced = [k for k, (file, _) in enumerate(frames) if file.startswith(_FOREIGN[2])]
    inside = frames[traced[-1] + 1 :] if traced else frames  # ours trace the function
    own = [frame for frame in inside if not frame[0].startswith(_FOREIGN)]
    return own[-1] if own else None

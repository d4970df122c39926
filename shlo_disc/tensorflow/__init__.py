"""TensorFlow programs: compiled once, run at every size.

    run = shlo_disc.tensorflow.compile("saved_model_folder")
    run = shlo_disc.tensorflow.compile(function, [tf.TensorSpec([None, 8])])
    run(x)

Needs the extra `tensorflow`. JAX is not imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shlo_disc.tensorflow.versions import check_versions

if TYPE_CHECKING:
    from shlo_disc.tensorflow.program import TensorFlowExecutable, compile

__all__ = ["TensorFlowExecutable", "compile"]

check_versions()

_LAZY = {
    "TensorFlowExecutable": "shlo_disc.tensorflow.program",
    "compile": "shlo_disc.tensorflow.program",
}
"""Loaded behind the check: with another TensorFlow these modules may not even be importable."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'shlo_disc.tensorflow' has no attribute {name!r}")

"""For all tests: the CPU, the IR verified after every pass, and XLA without LLVM's optimisations.

XLA is what results are compared with; compiling it was a third of the time.
"""

from __future__ import annotations

import gc
import os

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("SHLO_DISC_SPEC", "1")
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".lstrip()
)


@pytest.fixture(autouse=True, scope="module")
def frozen() -> None:
    """What earlier modules left is out of the collector's sight.

    JAX keeps millions of objects of a test run: a collection among them took three seconds, and
    tests of memory collect often.
    """
    gc.collect()
    gc.freeze()

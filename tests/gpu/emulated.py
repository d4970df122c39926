"""Every family of kernels on the emulator, beside the CPU's kernels.

    python -m tests.gpu.emulated gfx942 [FAMILY...] > gfx942.json

Needs a checkout of tinygrad (`emulator.py`). Programs run whole: the stand-in driver loads their
code objects and hands launches to the emulator. `benchmarks/results/rocm_emulated.json` has the
figures.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

import shlo_disc
from tests.gpu.families import FAMILIES, Family, families_of
from tests.gpu.stand_in import StandIn


def difference(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the largest result; 0 only for the same bits."""
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if got.tobytes() == want.tobytes():
        return 0.0
    wide, other = got.astype(np.float64), want.astype(np.float64)
    return float(np.abs(wide - other).max() / np.abs(other).max() or np.inf)


def _of(family: Family, architecture: str) -> dict[str, Any]:
    gpu = shlo_disc.compile(family.exported, target=f"rocm:{architecture}")
    cpu = shlo_disc.compile(family.exported, target="cpu")
    rows = []
    for sizes in family.sizes:
        arrays, start = family.arrays(sizes), time.monotonic()
        pairs = zip(gpu.run_numpy(arrays), cpu.run_numpy(arrays), strict=True)
        worst = max(difference(got, want) for got, want in pairs)
        seconds = round(time.monotonic() - start, 1)
        rows.append({"sizes": sizes, "difference": float(f"{worst:.2g}"), "seconds": seconds})
    return {"allowed": family.tolerance, "runs": rows}


def report(architecture: str, names: list[str]) -> dict[str, Any]:
    """By family: sizes, the worst difference, and the seconds that the emulator took."""
    driver, found = StandIn.started(), {}
    driver.library.stand_in_architecture(architecture.encode())
    for name in names or families_of("rocm"):
        try:
            found[name] = _of(FAMILIES[name], architecture)
        except Exception as error:  # the others are of use
            cause = driver.errors[-1] if driver.errors else error
            found[name] = {"error": f"{type(cause).__name__}: {cause}"}
        print(name, found[name], file=sys.stderr, flush=True)
        driver.reset()
    return found


if __name__ == "__main__":
    json.dump(report(sys.argv[1], sys.argv[2:]), sys.stdout, indent=1)

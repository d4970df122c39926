"""Runs `model.disc` by numpy alone: python examples/deploy/run.py model.disc."""

from __future__ import annotations

import sys
import time

import numpy as np

import shlo_disc_runtime


def main() -> None:
    """Load the artifact and call it at several sizes."""
    start = time.perf_counter()
    encoder = shlo_disc_runtime.load(sys.argv[1] if len(sys.argv) > 1 else "model.disc")
    print(f"{encoder} loaded in {(time.perf_counter() - start) * 1e3:.1f} ms")
    for batch, length in ((1, 5), (3, 20), (8, 128)):
        (y,) = encoder(np.ones((batch, length, 64), np.float32))
        print(y.shape, y.dtype, float(y.mean()))
    try:
        encoder(np.ones((2, 16, 63), np.float32))
    except shlo_disc_runtime.ShapeMismatchError as error:
        print(error)


if __name__ == "__main__":
    main()

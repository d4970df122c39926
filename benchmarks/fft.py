"""Fourier transforms of the runtime beside `jax.jit` of `jnp.fft`, in turn, medians.

    python -m benchmarks.fft [--threads 1] [--kinds FFT,RFFT]

A line has the microseconds of our transform of planes, those of a call of XLA's, the same less
what a call of an empty program takes, and the quotient of the last and ours.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

LENGTHS = (64, 100, 128, 243, 256, 1000, 1009, 1024, 4096, 65_536, 1_048_576)
BATCHES = (1, 16, 256)
MOST_ELEMENTS = 1 << 20
"""Of one call: larger batches of long rows measure memory."""


def main() -> None:
    """Prints a line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--kinds", default="FFT,RFFT")
    options = parser.parse_args()
    os.environ["SHLO_DISC_NUM_THREADS"] = str(options.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    for kind in options.kinds.split(","):
        for n in LENGTHS:
            for batch in BATCHES:
                if batch * n <= MOST_ELEMENTS:
                    _compare(kind, n, batch, options.threads)


def _compare(kind: str, n: int, batch: int, threads: int) -> None:
    # Only here: both read the environment when they are imported.
    import jax
    import jax.numpy as jnp
    import numpy as np

    from shlo_disc import ral
    from shlo_disc.lower.cpu.fft import KINDS

    r = np.random.default_rng(0)
    complex_ = kind == "FFT"
    planes = [r.standard_normal((batch, n)).astype(np.float32) for _ in range(1 + complex_)]
    results = [np.zeros((batch, n if complex_ else n // 2 + 1), np.float32) for _ in range(2)]
    buffers = [array.ctypes.data for array in (*planes, *results)]
    x = jnp.asarray(planes[0] + 1j * planes[1] if complex_ else planes[0])
    theirs = jax.jit(jnp.fft.fft if complex_ else jnp.fft.rfft)
    empty = jax.jit(lambda x: x[:1, :1] + 1)
    calls: list[Callable[[], Any]] = [
        lambda: ral.fft_transform(KINDS[kind], batch, n, buffers),
        lambda: theirs(x).block_until_ready(),
        lambda: empty(x).block_until_ready(),
    ]
    ours, whole, nothing = _medians(calls, max(7, min(300, int(3e7 / (batch * n)))))
    net = max(whole - nothing, 0.0)
    print(
        f"{threads} threads {kind:4} {n:8} x {batch:3}  ours {ours:9.1f}  XLA {whole:9.1f}"
        f"  less an empty call {net:9.1f}  ratio {net / ours:6.2f}",
        flush=True,
    )


def _medians(calls: list[Callable[[], Any]], times: int) -> Iterator[float]:
    """Microseconds, the calls taking turns."""
    for call in calls:
        call()
    taken: list[list[int]] = [[] for _ in calls]
    for _ in range(times):
        for call, found in zip(calls, taken, strict=True):
            begin = time.perf_counter_ns()
            call()
            found.append(time.perf_counter_ns() - begin)
    return (sorted(found)[len(found) // 2] / 1e3 for found in taken)


if __name__ == "__main__":
    main()

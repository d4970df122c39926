"""Many calls on JAX's default device: memory must stay what it is.

`python -m tests.gpu.endless 100000` makes so many calls at a few sizes, sometimes at new ones, and
with donation. It prints the memory in use on the way, and fails if that grows.
"""

from __future__ import annotations

import resource
import sys

import jax
import jax.numpy as jnp

import shlo_disc
from shlo_disc import ral

NEW_SIZE = 500
"""Calls between two sizes that are new."""
GROWTH = 64 << 20
"""Bytes that the process may grow by: code of XLA's for new sizes, among others."""


def used() -> tuple[int, int, int]:
    """Bytes of arrays of ours, of JAX's on the device, and of the process."""
    device = jax.devices()[0]
    platform = "cuda" if device.platform == "gpu" else device.platform
    ours = ral.gpu_pool_stats(platform)["in_use_bytes"] if platform in ("cuda", "rocm") else 0
    theirs = (device.memory_stats() or {}).get("bytes_in_use", 0)
    return ours, theirs, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def run(calls: int) -> None:
    """Raises AssertionError if memory grows in the second half, or a result is wrong."""
    sums = shlo_disc.jit(lambda x: jnp.cumsum(x * 2) + x.sum())
    donating = shlo_disc.jit(lambda x: x + 1, donate_argnums=0)
    arrays, counted = [jnp.ones(n, jnp.int32) for n in (5, 1000, 70_000)], jnp.zeros(1000)
    seen = []
    for call in range(1, calls + 1):
        result = sums(arrays[call % 3])
        if call % 10 == 0:
            counted = donating(counted)
        if call % NEW_SIZE == 0:
            sums(jnp.ones(2000 + call // NEW_SIZE, jnp.int32))
        if call in (calls // 2, calls):
            result.block_until_ready()
            assert float(counted[0]) == call // 10
            assert int(result[-1]) == 3 * result.size
            seen.append(used())
            print(call, *seen[-1], flush=True)
    (ours, theirs, process), after = seen
    assert after[0] <= ours
    assert after[1] <= theirs
    assert after[2] <= process + GROWTH


if __name__ == "__main__":
    run(int(sys.argv[1]))

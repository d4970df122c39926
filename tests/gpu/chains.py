"""Random chains of calls on a device: `jax.jit` and ours, donation either way, deletion, transfers.

`python -m tests.gpu.chains 1000` runs so many on JAX's default device.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

import shlo_disc

SIZES = (1, 7, 100, 4097, 70_000)
"""Elements: memory of one is used again for another."""


def mixed(x, y):
    return x * 3 + y, x ^ y


def turned(x):
    return x[::-1] - 1


def summed(x):
    return x + jnp.sum(x)


_NUMPY = {
    mixed: lambda x, y: (x * 3 + y, x ^ y),
    turned: lambda x: (x[::-1] - 1,),
    summed: lambda x: (x + x.sum(dtype=x.dtype),),
}


class Chains:
    """The functions; chains share them, in any number of threads."""

    def __init__(self) -> None:
        self.functions = [
            (make(f, **how), numpy, bool(how))
            for f, numpy in _NUMPY.items()
            for make in (shlo_disc.jit, jax.jit)
            for how in ({}, {"donate_argnums": 0})
        ]

    def run(self, seed: int, steps: int = 12) -> None:
        """One chain. Raises AssertionError if an array differs from NumPy's."""
        r = np.random.default_rng(seed)
        size = int(r.choice(SIZES))
        start = r.integers(-1000, 1000, (2, size)).astype(np.int32)
        live = [(jnp.asarray(row), row) for row in start]
        for step in range(steps):
            live = self._step(r, live)
            if step % 4 == 3:
                self._compare(live[int(r.integers(len(live)))], seed)
        for pair in live:
            self._compare(pair, seed)

    def _step(self, r: np.random.Generator, live: list) -> list:
        what = r.integers(8)
        if what == 0 and len(live) > 2:  # deletion; nothing else has this array
            found, _ = live.pop(int(r.integers(len(live))))
            found.delete()
            return live
        if what == 1:  # to the host and back
            at = int(r.integers(len(live)))
            live[at] = (jax.device_put(np.asarray(live[at][0])), live[at][1])
            return live
        function, numpy, donates = self.functions[int(r.integers(len(self.functions)))]
        count = numpy.__code__.co_argcount
        chosen = [int(k) for k in r.permutation(len(live))[:count]]
        results = function(*(live[k][0] for k in chosen))
        results = results if isinstance(results, tuple) else (results,)
        wanted = numpy(*(live[k][1] for k in chosen))
        if donates:
            live.pop(chosen[0])
        live += zip(results, wanted, strict=True)
        while len(live) > 6:
            live.pop(int(r.integers(len(live))))  # its memory is free while calls may still read it
        return live

    @staticmethod
    def _compare(pair: tuple, seed: int) -> None:
        np.testing.assert_array_equal(np.asarray(pair[0]), pair[1], err_msg=f"seed {seed}")

    def run_many(self, count: int, seed: int = 0, threads: int = 2) -> None:
        """`count` chains."""
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(self.run, range(seed, seed + count)))


if __name__ == "__main__":
    Chains().run_many(int(sys.argv[1]))
    print(f"{sys.argv[1]} chains on {jax.devices()[0]}: equal")

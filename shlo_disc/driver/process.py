"""What shlo_disc holds in this process, and how to give back what nobody uses."""

from __future__ import annotations

import sys
from typing import Any

from shlo_disc import ral


def stats() -> dict[str, Any]:
    """Numbers of this process, for a dashboard; asking takes microseconds a function.

    - `functions`: a dict for each living function of :func:`shlo_disc.jit`: `name`, `versions`,
      `compilations`, `hits` (calls answered by what was compiled), `compiling` (versions that
      threads compile in the background), `traces` (how often it was traced with "symbols" and
      with "numbers"), `by_xla` (True if XLA runs some of its calls).
    - `compilations`, `hits`, `versions`: sums over these functions.
    - `pool`: results and temporary memory (the arena of a call) in use and idle, in bytes and
      blocks; `hits` and `misses` count requests that reused a block.
    - `packs`: packed copies of weights; `filled` and `refused` count.
    - `machine_code`: kernels kept for programs compiled again, `entries` and `bytes`.
    - `threads`: of the pool that runs kernels.
    """
    functions = []
    front_end = sys.modules.get("shlo_disc.jax.function")
    if front_end is not None:
        functions = [function.statistics() for function in front_end.living()]
    code = [cache.stats() for cache in _code()]
    return {
        "functions": functions,
        **{key: sum(row[key] for row in functions) for key in ("compilations", "hits", "versions")},
        "pool": ral.pool_stats(),
        "packs": ral.pack_stats(),
        "machine_code": {key: sum(row[key] for row in code) for key in ("entries", "bytes")},
        "threads": ral.num_threads(),
    }


def trim() -> int:
    """Give idle memory back to the system; returns its bytes.

    Idle blocks of the pool, packed copies of weights (made again when a call needs them) and
    machine code that no program uses go. Nothing that a later call needs is lost but time.
    """
    before = _held()
    code = sum(int(cache.clear()) for cache in _code())
    ral.pack_clear()  # its blocks become idle
    ral.pool_trim()
    return code + max(before - _held(), 0)  # other threads may have taken memory meanwhile


def _held() -> int:
    pool = ral.pool_stats()
    return pool["in_use_bytes"] + pool["idle_bytes"]


def _code() -> list[Any]:
    """The caches of machine code of the targets in use (`lower.target.CodeCache`)."""
    targets = sys.modules.get("shlo_disc.lower.target")  # nothing was compiled without it
    if targets is None:
        return []
    return list({id(target.code): target.code for target in targets.loaded()}.values())

"""Every family of kernels on a GPU, beside the CPU's kernels.

    JAX_PLATFORMS=cpu python -m tests.gpu.on_device [TARGET] [FAMILY...]

Arrays are copied by the driver alone, so that `compute-sanitizer` sees nothing of JAX's. TARGET:
"cuda" (the first device, by default) or one that it runs, such as "cuda:sm_80". Sizes are those of
the families, and larger ones, at which kernels have several tiles. The last line is the number of
families that differ by more than they may; so is the exit status.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import jax.numpy as jnp

import shlo_disc
from tests.gpu.emulated import difference
from tests.gpu.families import FAMILIES, Family

ALL = FAMILIES | {
    "argsort": Family(
        lambda x: jnp.argsort(x, axis=-1, descending=True),
        (("n, m", "bfloat16"),),
        ({"n": 2, "m": 50}, {"n": 2, "m": 600}),
    ),
}

LARGE = {"n": 300, "m": 260, "k": 520, "b": 2, "t": 200, "s": 330, "h": 3, "c": 5, "w": 40}
"""By the name of a symbol."""
LONGER: dict[str, tuple[dict[str, int], ...]] = {
    "sort": ({"n": 3, "m": 1000}, {"n": 2, "m": 30000}, {"n": 1, "m": 200_000}),
    "argsort": ({"n": 3, "m": 3000}, {"n": 2, "m": 70001}),
    "scan": ({"n": 3, "m": 8191}, {"n": 1, "m": 100_003}),
    "scatter": ({"n": 200, "m": 4, "k": 5000}, {"n": 70000, "m": 4, "k": 70000}),
}
"""Sizes of families with other kernels for longer rows: by digits, or in pieces."""
LONGER_SUMS = 8
"""How much larger differences may be at :data:`LARGE`, whose sums are longer."""


def differences(
    family: Family, target: str, more: Sequence[dict[str, int]] = ()
) -> list[tuple[float, float]]:
    """For each choice of sizes the worst difference, and the one that is allowed.

    `more`: sizes besides those of the family.
    """
    gpu = shlo_disc.compile(family.exported, target=target)
    cpu = shlo_disc.compile(family.exported, target="cpu")
    found = []
    large = {name: LARGE.get(name, size) for name, size in family.sizes[0].items()}
    for sizes in (*family.sizes, large, *more):
        arrays = family.arrays(sizes)
        pairs = zip(gpu.run_numpy(arrays), cpu.run_numpy(arrays), strict=True)
        is_long = not any(sizes is own for own in family.sizes)
        allowed = family.tolerance * (LONGER_SUMS if is_long else 1)
        found.append((max(difference(got, want) for got, want in pairs), allowed))
    return found


def main(target: str = "cuda", *names: str) -> int:
    bad = 0
    for name in names or ALL:
        try:
            found = differences(ALL[name], target, LONGER.get(name, ()))
        except Exception as error:  # the others are run all the same
            found = []
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
        is_right = bool(found) and all(worst <= allowed for worst, allowed in found)
        bad += not is_right
        print("right" if is_right else "WRONG", name, *(f"{x:.2g}" for x, _ in found), flush=True)
    print(bad)
    return bad


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

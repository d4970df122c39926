"""Random products of dequantised integers, compared with exact sums in float64.

    python -m tests.fuzz.quantised --count 300

Dimensions of both sides are in any order, with or without a batch. Integers are signed or not;
zero points are numbers or integers of 8 bits, scales numbers or arrays over what is not summed.
"""

from __future__ import annotations

import string
from typing import Any, NamedTuple

import click
import jax.numpy as jnp
import numpy as np

import shlo_disc

_SIZES = (0, 1, 2, 3, 5, 7, 8, 16, 17, 33)
_DEPTHS = (1, 3, 16, 17, 40, 129, 600)


class Side(NamedTuple):
    """One operand: the letters of its dimensions, and its arrays."""

    letters: str
    integers: np.ndarray
    zero: Any
    """A number, an array that broadcasts, or None; likewise `scale`."""
    scale: Any
    zero_in: str
    """The type in which the zero point is subtracted."""

    @property
    def exact(self) -> tuple[np.ndarray, Any]:
        """Differences as integers of 64 bits, and scales in float64."""
        zero = 0 if self.zero is None else np.asarray(self.zero, np.int64)
        scale = 1.0 if self.scale is None else np.asarray(np.float32(self.scale), np.float64)
        return self.integers.astype(np.int64) - zero, scale


def _side(r: np.random.Generator, letters: str, summed: str, sizes: dict[str, int]) -> Side:
    dtype = str(r.choice(["int8", "uint8"]))
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    letters = "".join(r.permutation(list(letters)))
    shape = tuple(sizes[x] for x in letters)
    integers = r.integers(low, high + 1, shape)
    integers = np.where(r.random(shape) < 0.3, r.choice([low, high], shape), integers)
    kept = [x for x in letters if x not in summed and r.random() < 0.6]
    own = tuple(sizes[x] if x in kept else 1 for x in letters)
    zeros = [None, r.choice([low, high, 3]).item(), r.integers(low, high + 1, own).astype(dtype)]
    scale = 10.0 ** r.uniform(-4, 2)
    scales = [None, scale, (scale * r.uniform(0.5, 2, own)).astype(np.float32)]
    zero, scale = zeros[r.integers(3)], scales[r.integers(3)]
    kind = str(r.choice(["float32", "int32"]))
    return Side(letters, integers.astype(dtype), zero, scale, kind)


def check(seed: int) -> bool:
    """Raise AssertionError where the program of `seed` is wrong; whether it sums integers."""
    r = np.random.default_rng(seed)
    letters = string.ascii_lowercase
    batch, rows, columns = (letters[k : k + n] for k, n in ((0, r.integers(2)), (3, 1), (6, 1)))
    summed = letters[9 : 9 + r.integers(1, 3)]
    sizes = {x: int(r.choice(_SIZES)) for x in batch + rows + columns}
    sizes |= {x: int(r.choice(_DEPTHS if x == summed[0] else (1, 2, 3))) for x in summed}
    left, right = (_side(r, batch + x + summed, summed, sizes) for x in (rows, columns))
    spec = f"{left.letters},{right.letters}->{batch + rows + columns}"
    bias = r.choice([0.0, 1.5])
    step = r.choice([None, 0.5])

    def dequantised(one: Side, values: Any) -> Any:
        q, zero, scale = values
        x = q.astype(jnp.float32)
        if zero is not None:
            x = (q.astype(one.zero_in) - jnp.asarray(zero).astype(one.zero_in)).astype(jnp.float32)
        return x if scale is None else x * scale

    def program(arrays: Any) -> Any:
        factors = [
            dequantised(
                one,
                [array if own is None else own for array, own in zip(given, fixed, strict=True)],
            )
            for one, given, fixed in zip((left, right), arrays, numbers, strict=True)
        ]
        y = jnp.einsum(spec, *factors) + bias
        return y if step is None else jnp.clip(jnp.round(y / step), -128, 127).astype(jnp.int8)

    numbers, arrays = [], []
    for one in (left, right):
        values = (one.integers, one.zero, one.scale)
        numbers.append([x if isinstance(x, int | float) else None for x in values])
        arrays.append([jnp.asarray(x) if isinstance(x, np.ndarray) else None for x in values])
    run = shlo_disc.jit(program)
    got = np.asarray(run(arrays), np.float64)
    (a, s), (b, t) = left.exact, right.exact
    x, y = a * s, b * t
    want = np.einsum(spec, x, y) + bias
    depth = int(np.prod([sizes[k] for k in summed]))
    magnitude = np.einsum(spec, abs(x), abs(y)) + abs(bias)
    error = (6 + depth) * 2.0**-24 * magnitude + 1e-30
    text = run.lower(arrays).compile().executable.explain()
    is_exact = "sums of integers: both" in text
    if is_exact:
        error = 8 * 2.0**-24 * magnitude + 1e-30
    if step is not None:
        low, high = (np.clip(np.rint((want + d) / step), -128, 127) for d in (-error, error))
        assert ((low <= got) & (got <= high)).all(), seed
    else:
        assert (abs(got - want) <= error).all(), seed
    return is_exact


@click.command()
@click.option("--count", default=100, help="Programs.")
@click.option("--seed", default=0, help="The first seed.")
def main(count: int, seed: int) -> None:
    """Check programs; print how many sum integers."""
    exact = 0
    for number in range(seed, seed + count):
        exact += check(number)
    click.echo(f"{count} programs, 0 wrong, {exact} sum integers")


if __name__ == "__main__":
    main()

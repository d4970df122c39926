"""Random programs over sizes and small integer arrays, next to `jax.jit`.

Sizes, integers of the program and integers read from arrays mix in every way: arithmetic, moves,
control flow, indices. A failure names its seed: `show(seed)` prints the program.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc

DTYPES = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
SHAPES = ((3, 4), (8, 1), (1, 6))


class Run:
    """One run of the random program of a seed."""

    def __init__(self, seed: int, x, i, verbose: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        n, m = x.shape
        sizes = [n, m, n + m, 2 * n - 1, n * m, n // 2 + 1, (n + 2) % 5, 1]
        self.x = x
        self.pool = [i, i[0], i[1]]
        for _ in range(3):
            self.pool.append(jnp.asarray(sizes[self.pick(len(sizes))], self.dtype()))
        chosen = [sizes[self.pick(len(sizes))] for _ in range(1 + self.pick(5))]
        self.pool.append(jnp.array([*chosen, 3], self.dtype()))
        self.pool.append(jnp.full((1 + self.pick(4),), sizes[self.pick(6)], self.dtype()))
        self.results = []
        for _ in range(14):
            step = STEPS[self.pick(len(STEPS))]
            value = step(self)
            if verbose:
                print(step.__name__, value)
            self.pool.append(value)
            if self.pick(2):
                self.results.append(value)
        self.results.append(self.pool[-1])

    def pick(self, count: int) -> int:
        return int(self.rng.integers(count))

    def dtype(self) -> str:
        return DTYPES[self.pick(len(DTYPES))]

    def any(self):
        return self.pool[self.pick(len(self.pool))]

    def scalar(self):
        """An integer of rank 0."""
        v = self.any()
        while v.ndim:
            v = v.sum() if not v.size or self.pick(2) else v[self.pick(v.shape[0])]
        return v

    def vector(self):
        """A vector of 1 to 12 elements."""
        v = self.any()
        if v.ndim == 0:
            return v[None]
        return v.reshape(-1)[:12]

    def small(self, most: int):
        """A scalar from 0 on, below `most`, in some type."""
        v = self.scalar()
        return (v % jnp.asarray(most, v.dtype)).astype(self.dtype())

    def like(self, v):
        """Something that broadcasts with `v`, of the same type."""
        other = self.any().astype(v.dtype)
        if other.shape in ((), v.shape):
            return other
        return other.reshape(-1)[0] if other.size else other.sum()


def arithmetic(p):
    v = p.any()
    w = p.like(v)
    three = jnp.asarray(3, v.dtype)
    choices = [v + w, v - w, v * w, jnp.maximum(v, w), jnp.minimum(v, w), v // three, v % three]
    choices += [v & w, v | w, v ^ w, -v if v.dtype.kind == "i" else ~v, abs(v), v << 1, v >> 1]
    return choices[p.pick(len(choices))]


def convert(p):
    return p.any().astype(p.dtype())


def through_float(p):
    v = p.any()
    return ((v % jnp.asarray(50, v.dtype)).astype(jnp.float32) * 0.5).astype(p.dtype())


def choose(p):
    v = p.any()
    w = p.like(v)
    return jnp.where(v > w, v, w) if p.pick(2) else jnp.where(p.scalar() > 2, v, w)


def join(p):
    v, w = p.vector(), p.vector()
    return jnp.concatenate([v, w.astype(v.dtype)])[:12]


def stack(p):
    return jnp.stack([p.scalar().astype(jnp.int32) for _ in range(1 + p.pick(4))])


def move(p):
    v = p.vector()
    return [v[::-1], v[1:], v[::2], jnp.roll(v, 1), v.reshape(1, -1), jnp.pad(v, (1, 0))][p.pick(6)]


def read(p):
    v = p.vector()
    return v[p.small(max(v.shape[0], 1))] if v.shape[0] else v.sum()


def read_many(p):
    v, i = p.vector(), p.vector()
    if not v.shape[0]:
        return i
    return v[i % jnp.asarray(v.shape[0], i.dtype)]


def read_argument(p):
    at = p.small(127) % p.x.shape[0]
    return p.x[at, 0].astype(jnp.int32)


def write(p):
    v, i = p.vector(), p.vector()
    if not v.shape[0]:
        return i
    at = i % jnp.asarray(v.shape[0], i.dtype)
    new = p.scalar().astype(v.dtype)
    return [v.at[at].set(new), v.at[at].add(new), v.at[-1].set(new), v.at[at].max(new)][p.pick(4)]


def window(p):
    v = p.vector()
    return v if v.shape[0] < 2 else lax.dynamic_slice(v, (p.scalar(),), (v.shape[0] - 1,))


def update(p):
    v = p.vector()
    return v if v.shape[0] < 2 else lax.dynamic_update_slice(v, v[1:] + 1, (p.scalar(),))


def fold(p):
    v = p.vector()
    if not v.shape[0]:
        return v.sum()
    return [v.sum(), v.max(), v.min(), (v > 1).sum(), jnp.cumsum(v), jnp.prod(v[:3])][p.pick(6)]


def order(p):
    v = p.vector()
    return jnp.sort(v) if p.pick(2) else jnp.argsort(v)


def product(p):
    v = p.vector()
    return jnp.dot(v, v) if p.pick(2) else v[:, None] * v[None, :3]


def branch(p):
    v = p.any()
    w = p.like(v)
    if p.pick(2):
        return lax.cond(p.scalar() > 2, lambda: v, lambda: v + w)
    return lax.switch(p.small(3).astype(jnp.int32), [lambda: v, lambda: v + w, lambda: v * 0])


def loop(p):
    v = p.any()
    w = p.like(v)
    return lax.fori_loop(
        0, p.small(4).astype(jnp.int32), lambda k, c: c + w + jnp.asarray(k, c.dtype), v
    )


STEPS = [
    arithmetic, arithmetic, arithmetic, branch, choose, convert, fold, join, loop, move, order,
    product, read, read_argument, read_many, stack, through_float, update, window, write,
]  # fmt: skip


def arguments(seed: int, n: int, m: int):
    rng = np.random.default_rng([seed, n, m])
    x = rng.integers(0, 9, (n, m)).astype(np.float32)
    return x, rng.integers(0, 100, 4).astype(DTYPES[seed % len(DTYPES)])


def show(seed: int) -> None:
    """Print the program of `seed` with its values at the first shapes."""
    with jax.disable_jit():
        Run(seed, *map(jnp.asarray, arguments(seed, *SHAPES[0])), verbose=True)


def check(seed: int) -> None:
    """One program at every shape, twice."""

    def program(x, i):
        return Run(seed, x, i).results

    compiled, expected = shlo_disc.jit(program), jax.jit(program)
    for n, m in SHAPES:
        args = arguments(seed, n, m)
        wanted = expected(*args)
        for _ in range(2):
            for k, (got, want) in enumerate(zip(compiled(*args), wanted, strict=True)):
                where = f"seed {seed}, shape {n}x{m}, result {k}"
                assert (got.dtype, got.shape) == (want.dtype, want.shape), where
                np.testing.assert_array_equal(got, want, where)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 86))
def test_more_random_programs(seed):
    check(seed)

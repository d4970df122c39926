"""Random products of bf16 and 8-bit integers through `shlo_disc.jit`, with what is around them.

    SHLO_DISC_AMX=soft SHLO_DISC_CACHE=0 python -m tests.lower.matrix_products 300 [FIRST]

Each is called at several sizes and compared with NumPy in float64. Integers are exact, floats are
within the bound of a sum of f32 in any order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import shlo_disc
from shlo_disc.lower.cpu.dense.matrix_tiles import MatrixWriter

SIZES = (0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 70, 100, 129)
DEPTHS = (1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 300, 2050, 3100)
EPILOGUES = ("none", "bias", "relu", "residual", "halves", "bias, relu")
ROUNDING = 2.0**-24


class Case:
    """One program, by its seed: `model` gives what is expected and by how much it may be missed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.is_float = bool(rng.random() < 0.6)
        names = ("int8", "uint8")
        self.types = [np.dtype(names[i]) for i in rng.integers(0, 2, 2)]
        if self.is_float:
            self.types = [np.dtype(jnp.bfloat16)] * 2
        self.is_scaled = self.is_float and bool(rng.random() < 0.3)
        """B is computed from integers with a scale a column."""
        self.batch = int(rng.choice([0, 0, 0, 3]))
        self.shares = bool(rng.random() < 0.5)
        """All of a batch have one B."""
        self.turns = [bool(x) for x in rng.random(2) < 0.3]
        """A or B is transposed."""
        self.epilogue = str(rng.choice(EPILOGUES))
        result = rng.choice(
            ["float32", "bfloat16"] if self.is_float else ["int32", "int32", "int8"]
        )
        self.result = np.dtype(jnp.bfloat16 if result == "bfloat16" else result)
        self.scale_of = float(rng.choice([1, 1, 1, 1e-20, 1e15]))
        self.is_wild = self.is_float and bool(rng.random() < 0.15)
        """There are denormals, infinities and NaNs."""

    def __str__(self) -> str:
        facts = {k: v for k, v in vars(self).items() if k != "rng"}
        return ", ".join(f"{name} {value}" for name, value in facts.items())

    def program(self, x: jax.Array, y: jax.Array, bias: jax.Array, more: jax.Array) -> jax.Array:
        """What is compiled."""
        if self.is_scaled:
            y = y.astype(jnp.bfloat16) * jnp.asarray(0.5, jnp.bfloat16)
        x, y = (
            jnp.swapaxes(v, -1, -2) if t else v for v, t in zip((x, y), self.turns, strict=True)
        )
        kind = jnp.float32 if self.is_float else jnp.int32
        batched = self.batch and not self.shares
        dims = ((x.ndim - 1,), (y.ndim - 2,)), (((0,), (0,)) if batched else ((), ()))
        total = jax.lax.dot_general(x, y, dims, preferred_element_type=kind)
        return self.finished(total, bias, more, jnp).astype(self.result)

    def finished(self, total: object, bias: object, more: object, library: object) -> object:
        """The epilogue."""
        if "bias" in self.epilogue:
            total = total + bias
        if "relu" in self.epilogue:
            total = library.maximum(total, 0)
        if self.epilogue == "residual":
            total = total + more
        if self.epilogue == "halves":
            total = total * (0.5 if self.is_float else 2)
        return total

    def arrays(self) -> list[np.ndarray]:
        """Arguments of any sizes."""
        rng = self.rng
        m, n = (int(v) for v in rng.choice(SIZES, 2))
        k = int(rng.choice(DEPTHS))
        left, right = ((k, m) if self.turns[0] else (m, k)), ((n, k) if self.turns[1] else (k, n))
        left = (self.batch, *left) if self.batch else left
        right = (self.batch, *right) if self.batch and not self.shares else right
        kinds = [self.types[0], np.dtype(np.int8) if self.is_scaled else self.types[1]]
        out = (self.batch, m, n) if self.batch else (m, n)
        made = [self.values(shape, kind) for shape, kind in zip((left, right), kinds, strict=True)]
        kind = np.float32 if self.is_float else np.int32
        return [*made, *(rng.integers(-50, 50, shape).astype(kind) for shape in ((n,), out))]

    def values(self, shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
        """Of one array."""
        rng = self.rng
        if kind.kind in "iu":
            info = np.iinfo(kind)
            found = rng.integers(info.min, info.max + 1, shape)
            return np.where(rng.random(shape) < 0.2, info.min, found).astype(kind)
        found = rng.standard_normal(shape) * self.scale_of
        if self.is_wild:
            strange = np.array([np.inf, np.nan, -0.0, 1e-39, -1e-40, 3e38])
            found = np.where(rng.random(shape) < 0.002, strange[rng.integers(0, 6, shape)], found)
        return found.astype(kind)

    def model(self, x: np.ndarray, y: np.ndarray, bias: np.ndarray, more: np.ndarray) -> list:
        """The result in float64 or exact integers, and the bound of errors."""
        wide = np.float64 if self.is_float else np.int64
        x, y, bias, more = (v.astype(wide) for v in (x, y, bias, more))
        y = y * 0.5 if self.is_scaled else y
        x, y = (np.swapaxes(v, -1, -2) if t else v for v, t in zip((x, y), self.turns, strict=True))
        want = self.finished(x @ y, bias, more, np)
        if not self.is_float:
            return [want.astype(np.int32).astype(self.result), 0]
        size = np.abs(x) @ np.abs(y)
        bound = size * (x.shape[-1] + 1) * ROUNDING + (np.abs(want) + size) * 3 * ROUNDING
        bound += np.abs(want) * 2.0**-8 * (self.result != np.float32)
        # Denormals of f32, and of the result.
        bound = bound * 1.01 + (x.shape[-1] + 2) * 2.0**-149 + 2.0**-133
        # Not every order of sums overflows alike.
        return [want, np.where(size < np.finfo(np.float32).max / 2, bound, np.inf)]


def check(seed: int) -> str:
    """What is wrong with the program of `seed`; "" if nothing is."""
    case = Case(seed)
    compiled = shlo_disc.jit(case.program)
    for _ in range(3):
        arrays = case.arrays()
        got = np.asarray(compiled(*arrays))
        with np.errstate(all="ignore"):
            want, bound = case.model(*arrays)
            error = np.abs(got.astype(np.float64) - want)
            right = ~np.isfinite(want + bound) | (error <= bound)
            right &= ~np.isnan(want) | np.isnan(got)
        if got.shape != want.shape or not right.all():
            worst = np.argmax(~right)
            found = got.ravel()[worst], want.ravel()[worst], error.ravel()[worst]
            return f"{case}\n  {[a.shape for a in arrays]}: {found}"
    return ""


def main(count: int, first: int) -> int:
    """Exit status."""
    written = []
    write: Callable[[MatrixWriter], object] = MatrixWriter.write
    MatrixWriter.write = lambda self: (written.append(1), write(self))[1]
    wrong = 0
    for seed in range(first, first + count):
        if problem := check(seed):
            wrong += 1
            print(f"seed {seed}: {problem}", flush=True)
    print(f"{count} programs, {len(written)} kernels with tiles, {wrong} wrong")
    return int(wrong > 0 or not written)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))

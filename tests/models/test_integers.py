"""Integer, boolean and bit programs: exact results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.cases import slow
from tests.models.harness import check_bits, rng_of

SIZES = (61, 1, 128)
ONE_HALF = ["int8", "uint16", "int32", *slow(["int16", "uint8", "uint32"])]
OTHER_HALF = ["int16", "uint8", "uint32", *slow(["int8", "uint16", "int32"])]


def integers(dtype: str, n: int, seed: int):
    """Random values of the whole range, the extremes, zero and minus one among them."""
    info = np.iinfo(dtype)
    x = rng_of(n, seed).integers(info.min, info.max, n, dtype, endpoint=True)
    special = np.array([0, info.min, info.max, 1, info.min], dtype)
    x[: min(n, 5)] = np.roll(special, seed)[: min(n, 5)]
    return x


def pairs(dtype: str):
    return [(integers(dtype, n, 0), integers(dtype, n, 1)) for n in SIZES]


@pytest.mark.parametrize("dtype", ONE_HALF)
def test_arithmetic(dtype):
    def run(a, b):
        return a + b, a - b, a * b, jnp.minimum(a, b), jnp.maximum(a, b), -a, abs(a), jnp.sign(a)

    check_bits(run, pairs(dtype))


@pytest.mark.parametrize("dtype", OTHER_HALF)
def test_division_and_remainder(dtype):
    def run(a, b):
        return a // b, a % b, jax.lax.div(a, b), jax.lax.rem(a, b)

    cases = [(a, np.where(b == 0, np.ones_like(b), b)) for a, b in pairs(dtype)]
    check_bits(run, cases)


@pytest.mark.parametrize("dtype", ONE_HALF)
def test_bits_and_shifts(dtype):
    def run(a, b):
        shift = b & jnp.asarray(7, b.dtype)
        counted = jax.lax.population_count(a), jax.lax.clz(a)
        return a & b, a | b, a ^ b, ~a, a << shift, a >> shift, *counted

    check_bits(run, pairs(dtype))


@pytest.mark.parametrize("dtype", OTHER_HALF)
def test_comparison_and_selection(dtype):
    def run(a, b):
        return a < b, a >= b, a == b, a != b, jnp.where(a > b, a, b), jnp.clip(a, 3, 90)

    check_bits(run, pairs(dtype))


@pytest.mark.parametrize("dtype", ONE_HALF)
def test_reductions(dtype):
    check_bits(lambda a, b: (a.sum(), a.max(), b.min(), a.prod(), (a > b).sum()), pairs(dtype))


@pytest.mark.parametrize("source", ["int8", "uint8", "int32", "uint32", "bool", "float32"])
def test_conversion(source):
    def run(a):
        targets = ("int8", "uint8", "int16", "int32", "uint32", "bool", "float32", "bfloat16")
        return tuple(a.astype(t) for t in targets)

    cases = []
    for n in SIZES:
        rng = rng_of(n)
        x = rng.integers(0, 2, n) if source == "bool" else rng.integers(0, 100, n)
        cases.append((x.astype(source),))
    check_bits(run, cases)


def test_logic():
    def run(a, b):
        return a & b, a | b, a ^ b, ~a, a.any(), b.all(), a.sum(), jnp.where(a, b, ~b)

    cases = [(rng_of(n).random(n) < 0.5, rng_of(n, 1).random(n) < 0.7) for n in SIZES]
    check_bits(run, cases)


def test_bit_casts():
    def run(x):
        i = jax.lax.bitcast_convert_type(x, jnp.int32)
        return i, jax.lax.bitcast_convert_type(i ^ jnp.int32(-(2**31)), jnp.float32), i >> 23

    cases = [(rng_of(n).standard_normal(n).astype(np.float32),) for n in SIZES]
    check_bits(run, cases)


def test_checksum_by_scan():
    def fletcher(x):
        def step(state, byte):
            a, b = state
            a = (a + byte) % 255
            return (a, (b + a) % 255), None

        state, _ = jax.lax.scan(step, (jnp.uint32(0), jnp.uint32(0)), x.astype(jnp.uint32))
        return state

    check_bits(fletcher, [(rng_of(n).integers(0, 256, n).astype(np.uint8),) for n in SIZES])


def test_matrix_of_edit_distances():
    def distance(a, b):
        def row(previous, x):
            i, c = x
            cost = (b != c).astype(jnp.int32)

            def column(left, item):
                up, diagonal, k = item
                best = jnp.minimum(jnp.minimum(left, up) + 1, diagonal + k)
                return best, best

            _, rest = jax.lax.scan(column, i + 1, (previous[1:], previous[:-1], cost))
            return jnp.concatenate([(i + 1)[None], rest]), None

        start = jnp.arange(b.shape[0] + 1, dtype=jnp.int32)
        steps = jnp.arange(a.shape[0], dtype=jnp.int32)
        return jax.lax.scan(row, start, (steps, a))[0][-1]

    cases = []
    for n, m in ((6, 9), (1, 2), (12, 31)):
        rng = rng_of(n, m)
        cases.append((rng.integers(0, 4, n, np.int32), rng.integers(0, 4, m, np.int32)))
    check_bits(distance, cases)


@pytest.mark.parametrize(
    "dtype", ["int8", "int32", "uint32", "int64", "uint64", *slow(["int16", "uint8", "uint16"])]
)
def test_places_of_every_type_far_outside(dtype):
    """Reads clamp their start; `fill` and updates leave out what is outside.

    JAX narrows 64-bit places of the latter to 32 bits where sizes are numbers: not compared.
    """
    wide = np.dtype(dtype).itemsize == 8
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def touched(x, i):
        cut = jax.lax.dynamic_slice_in_dim(x, i[1], 2)
        read = jnp.take(x, i, axis=0, mode="clip"), cut
        written = jax.lax.dynamic_update_slice_in_dim(x, cut * 2, i[1], 0)
        if wide:
            return read, written
        filled = jnp.take(x, i, axis=0, mode="fill")
        return read, written, filled, x.at[i].add(1), x.at[i].set(7, mode="clip")

    with jax.enable_x64(wide):
        cases = [
            (np.arange(n, dtype=np.float32), np.array([0, k, 2, low, high], dtype))
            for n, k in ((6, high), (7, low), (5, high // 2 + 1), (4, 1))
        ]
        check_bits(touched, cases)


@pytest.mark.parametrize("name", ["concatenated", "other rows", "select"])
def test_computed_places_that_are_also_read_themselves(name):
    """`y` is cheap to compute again, but the gather must read it in memory."""

    def looked_up(x):
        y = x + x
        if name == "other rows":
            return jnp.concatenate([y, jnp.take_along_axis(y, y * 2, axis=0, mode="clip")])
        found = y.at[y].get(mode="clip")
        return jnp.concatenate([y, found]) if name == "concatenated" else jnp.where(y > 3, found, y)

    check_bits(looked_up, [(rng_of(n).integers(-9, 9, n, np.int32),) for n in SIZES])

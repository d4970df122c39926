"""Tiles of attention by head sizes and element types, and how much f32 is rounded."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shlo_disc.lower.cuda.attention_tiles import (
    ROOM,
    AttentionTile,
    Heads,
    tile_of,
    tile_of_few_rows,
)
from shlo_disc.lower.plan import kernels_of
from tests.cases import slow
from tests.gpu import emulator
from tests.gpu.attention import Planned, fusions_of, plan_attention
from tests.gpu.test_attention import arrays, check, expected, plain, planned, variants

pytestmark = pytest.mark.skipif(
    emulator.ARCHITECTURE != "", reason="AMD's kernels of attention are two products"
)

STEPS = range(16, 257, 16)


def tiles(heads: Heads) -> tuple[AttentionTile, AttentionTile]:
    return tile_of(heads), tile_of_few_rows(heads)


@pytest.mark.parametrize("element_bytes", [2, 4])
def test_all_head_sizes_have_tiles_for_any_device(element_bytes: int) -> None:
    for depth in STEPS:
        for width in STEPS:
            heads = Heads(depth, width, element_bytes)
            for tile in tiles(heads):
                # Maxima and sums of the warps of few rows.
                more = 8 * tile.rows * tile.deep if tile.down == 1 else 0
                results = 4 * tile.rows * tile.deep * (width + 8)
                assert max(tile.shared_bytes(heads) + more, results) <= ROOM == 99 * 1024
                assert tile.own_keys % 16 == 0
                # Queries that registers keep pass through the lines of the keys.
                assert not tile.keeps_queries or tile.rows <= tile.stages * tile.keys


def test_wide_heads_and_f32_have_tiles_of_their_own() -> None:
    narrow, wide = Heads(128, 128, 2), Heads(256, 256, 2)
    assert tiles(narrow) == (AttentionTile(4, 1, 64), AttentionTile(1, 4, 64))
    assert not any(tile.keeps_queries for tile in tiles(wide))
    assert tile_of(wide).rows == 64
    assert tile_of(Heads(128, 128, 4)) == AttentionTile(4, 1, 32)
    assert tile_of(Heads(256, 256, 4)).rows == 32


@pytest.mark.parametrize(
    ("dtype", "depth", "width"),
    [
        ("bfloat16", 256, 256),
        ("float16", 192, 128),
        ("bfloat16", 137, 200),
        ("float32", 128, 128),
        ("float32", 256, 248),
        ("float32", 2, 3),
        ("float32", 21, 99),
        *slow([("float32", 150, 72), ("float32", 20, 100)]),
    ],
)
def test_head_sizes(dtype: str, depth: int, width: int) -> None:
    """Also those whose rows do not begin at multiples of 16 bytes."""
    plan = planned("causal", dtype, depth, width)
    for b, t, s, h in ((1, 70, 67, 2), (2, 3, 129, 1)):
        x = arrays(b, t, s, h, depth, width, dtype)
        for k in range(2):  # scores of about 1
            x[k] = (x[k].astype(float) / depth**0.25).astype(x[k].dtype)
        for one in variants(plan, t):
            check(one, "causal", x, dtype)


def tf32(x: np.ndarray) -> np.ndarray:
    """f32 rounded to ten digits behind the first, ties away from zero."""
    bits = (x.view(np.uint32) + 0x1000) & 0xFFFFE000
    return bits.view(np.float32)


def f32_plan() -> Planned:
    return plan_attention(plain, [(f"b, {n}, h, 40", "float32") for n in "tss"])


@pytest.mark.parametrize(("t", "s"), [(70, 67), (3, 129)])
def test_f32_is_rounded_once_as_an_operand(t: int, s: int) -> None:
    """The bound of docs/gpu.md; less is lost beside the program with operands that are rounded."""
    x = arrays(1, t, s, 2, 40, 40, "float32")[:3]
    rounded = [tf32(a) for a in x]
    q, k = (np.abs(a.astype(float)) for a in x[:2])
    products = np.einsum("bthd,bshd->bths", q, k).max(-1, keepdims=True)
    weighted = expected(lambda q, k, v: plain(q, k, jnp.abs(v)), x)
    unit, in_sums = 2.0**-11, 2.0**-17

    def bound(score: float, result: float) -> np.ndarray:
        """Of scores that are off by so much of the products, and results by so much of values."""
        return (np.exp(2 * score * products) * (1 + result) - 1) * weighted

    want, of_rounded = expected(plain, x), expected(plain, rounded)
    for plan in variants(f32_plan(), t):
        got = plan.run(x, seed=4)
        assert (np.abs(got - want) <= bound(2 * unit + in_sums, 2 * unit + in_sums)).all()
        difference = np.abs(got - of_rounded)
        assert (difference <= bound(in_sums, unit + in_sums)).all()
        assert (difference > 2.0**-20 * weighted).any(), "weights have the digits of tf32"


def test_f32_values_of_a_few_equal_keys_are_those_of_tf32() -> None:
    """All weights are 1, so only values are rounded: with ties, signs, infinities and NaN."""
    q, k, v = arrays(1, 16, 2, 2, 40, 40, "float32")[:3]
    k[:, 1] = k[:, 0]
    v[0, 0, 0, :6] = [1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-12, np.inf, -np.inf, np.nan]
    want = np.repeat(tf32(v).astype(float).mean(1, keepdims=True), 16, 1)
    for plan in variants(f32_plan(), 16):
        np.testing.assert_array_equal(plan.run([q, k, v]), want.astype(np.float32))


def test_f32_weights_are_rounded_to_nearest() -> None:
    """Of two keys the second has the score -c, and alone a value."""
    c = np.arange(1, 17, dtype=np.float32) / 8
    q, k, v = (np.zeros((1, n, 1, 40), np.float32) for n in (16, 2, 2))
    q[0, :, 0, 3], k[0, 1, 0, 3], v[0, 1] = c, -1, 1
    weight = np.exp(-c.astype(float))
    want = tf32(weight.astype(np.float32)).astype(float) / (1 + weight)
    for plan in variants(f32_plan(), 16):
        got = plan.run([q, k, v])
        np.testing.assert_allclose(got[0, :, 0], np.repeat(want[:, None], 40, 1), rtol=2.0**-20)


def test_infinities_of_queries_and_keys_are_those_of_the_program() -> None:
    q, k, v = arrays(2, 20, 70, 1, 40, 40, "float32")[:3]
    q[0, 3, 0, 7], k[1, 5, 0, 2] = np.inf, -np.inf
    want = expected(plain, [q, k, v])
    assert 0 < np.isnan(want).sum() < want.size
    for rows in (20, 16):
        for plan in variants(f32_plan(), rows):
            got = plan.run([q[:, :rows], k, v])
            np.testing.assert_allclose(got, want[:, :rows], rtol=0, atol=0.05)


def test_every_form_of_tile_is_written() -> None:
    """Queries in registers and in shared memory, two and four warps below each other."""
    names = {
        kernel.name
        for size, dtype in ((64, "float32"), (256, "bfloat16"), (256, "float32"))
        for kernel in kernels_of(planned("causal", dtype, size, size).emitted.plan.steps)
    }
    assert {"attention_64x64_warps", "attention_64x256_warps", "attention_32x256_warps"} <= names


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_of_training_are_planned(dtype: str) -> None:
    """A gradient reads the weights; where it computes them again, the step itself is fused."""

    def step(attend, *x):
        return jax.value_and_grad(lambda *x: jnp.square(attend(*x)).sum(), (0, 1, 2))(*x)

    for attend, count in ((plain, 0), (jax.checkpoint(plain), 1)):
        arguments = [(f"b, {n}, h, 64", dtype) for n in "tss"]
        text = str(fusions_of(functools.partial(step, attend), arguments))
        assert text.count('kind = "attention"') == count
        assert text.count('kind = "dense"') == 6 - count

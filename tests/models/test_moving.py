"""Ops that move data: pad, concatenate, flip, roll, slices, transposes, where, tile."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.cases import crossed
from tests.models.harness import check_bits, normal, rng_of

SHAPES = ((3, 10), (1, 1), (2, 61), (16, 8), (1, 128))


def values(*sizes: int):
    return normal(rng_of(*sizes), *sizes)


def over_shapes(fn):
    check_bits(fn, [(values(*s),) for s in SHAPES])


def test_pad_with_edges_inside_and_constants():
    def pads(x):
        return (
            jnp.pad(x, ((1, 2), (0, 3)), constant_values=7.0),
            jax.lax.pad(x, np.float32(-1.0), ((0, 1, 2), (3, 0, 1))),
            jnp.pad(x, ((2, 2), (1, 0)), mode="edge"),
        )

    over_shapes(pads)


def test_pad_with_negative_amounts():
    cases = [(values(*s),) for s in ((3, 10), (2, 61), (16, 8))]
    check_bits(lambda x: jax.lax.pad(x, np.float32(0), ((-1, 2, 0), (1, -2, 0))), cases)


def test_concatenate_flip_and_stack():
    def join(x):
        return (
            jnp.concatenate([x, jnp.flip(x, 1), x * 2.0], axis=1),
            jnp.concatenate([x, x[:1]], axis=0),
            jnp.stack([x, -x], axis=1),
        )

    over_shapes(join)


def test_concatenate_of_different_sizes():
    def join(x, y):
        return jnp.concatenate([x, y]), jnp.concatenate([y, x, y])[::-1]

    check_bits(join, [(values(a, 4), values(b, 4)) for a, b in ((3, 10), (1, 1), (61, 2), (7, 7))])


@pytest.mark.parametrize("shift", [1, -3, 100])
def test_roll_by_a_constant(shift):
    over_shapes(lambda x: (jnp.roll(x, shift, axis=1), jnp.roll(x, shift)))


def test_roll_by_an_argument():
    cases = [(values(*s), np.int32(k)) for s, k in zip(SHAPES, (2, 0, -5, 7, 999), strict=True)]
    check_bits(lambda x, k: jnp.roll(x, k, axis=1), cases)


def test_slices_with_steps():
    def slices(x):
        return x[:, ::2], x[::-1, ::-1], x[:, :-1], x[:, -1], x[..., None, :], x[:1, 0:1]

    over_shapes(slices)


def test_transpose_reshape_and_broadcast():
    def shuffle(x):
        b, n = x.shape
        return (
            x.T,
            x.reshape(n, b),
            x.ravel(),
            jnp.broadcast_to(x[:, None, :], (b, 3, n)),
            x.T.ravel(),
        )

    over_shapes(shuffle)


def test_permutations_of_four_axes():
    def permute(x):
        return x.transpose(0, 2, 1, 3), x.transpose(3, 2, 1, 0), jnp.moveaxis(x, 1, -1)

    check_bits(permute, [(values(*s),) for s in ((2, 3, 5, 7), (1, 1, 1, 1), (4, 17, 2, 8))])


def test_tile_repeat_and_meshgrid():
    def repeat(x):
        return jnp.tile(x, (2, 3)), jnp.repeat(x, 2, axis=1), jnp.meshgrid(x[0], x[:, 0])

    over_shapes(repeat)


def test_where_and_masks():
    def mask(x):
        t = x.shape[1]
        upper = jnp.triu(jnp.ones((t, t), bool), 1)
        return (
            jnp.where(x > 0, x, 0.0),
            jnp.where(upper, -1.0, 1.0),
            jnp.tril(x),
            jnp.clip(x, -1, 1),
        )

    over_shapes(mask)


def test_arange_eye_and_iota():
    def ranges(x):
        b, n = x.shape
        return jnp.arange(n), jnp.arange(b, b + n, dtype=jnp.float32), jnp.eye(n), jnp.full((n,), b)

    over_shapes(ranges)


def test_dynamic_slice_follows_its_index():
    def window(x, i):
        return jax.lax.dynamic_slice(x, (0, i), (1, 1)), jax.lax.dynamic_index_in_dim(x, i, 1)

    cases = [(values(*s), np.int32(k)) for s, k in zip(SHAPES, (2, 0, -5, 7, 999), strict=True)]
    check_bits(window, cases)


def test_split_into_equal_parts():
    cases = [(values(b, n),) for b, n in ((3, 12), (1, 4), (5, 64))]
    check_bits(lambda x: jnp.split(x, 4, axis=1), cases)


def test_patches_of_an_image():
    def patches(x):
        b, h, w, c = x.shape
        x = x.reshape(b, h // 4, 4, w // 4, 4, c)
        return x.transpose(0, 1, 3, 2, 4, 5).reshape(b, (h // 4) * (w // 4), 16 * c)

    check_bits(patches, [(values(b, h, w, 3),) for b, h, w in ((2, 8, 12), (1, 4, 4), (5, 16, 28))])


def test_identity_and_unused_arguments():
    check_bits(lambda x, y: (x, x), [(values(*s), np.ones(4, "f4")) for s in SHAPES])


def test_results_that_are_constants():
    check_bits(lambda x: (x + 1.0, jnp.arange(5), 3.0), [(values(*s),) for s in SHAPES])


def test_slices_in_steps():
    def parts(x):
        return (
            x[::2],
            x[1::3] * 2.0,
            x[:, 1::2] + x[:, : 2 * (x.shape[1] // 2) : 2],
            x[::-1],
            x[:, ::-3],
            jnp.max(x[:, ::4], axis=1),
            x[..., ::5].T,
        )

    check_bits(parts, [(values(*s),) for s in ((3, 10), (1, 1), (2, 61), (61, 2), (1, 1000))])


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float64, np.bool_])
def test_slices_in_steps_of_every_width(dtype):
    def parts(x):
        return x[:, ::2], x[:, 2::3], x[:, 1::4], x[:, ::-2]

    with jax.enable_x64(True):
        check_bits(parts, [(values(*s).astype(dtype),) for s in ((3, 10), (2, 61), (1, 130))])


def test_pieces_side_by_side_in_the_last_dimension():
    def pairs(x):
        turned = jnp.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
        return turned, jnp.stack([x, x * 2.0], -1), jnp.stack([x, -x, x + 1.0, x], -1)

    check_bits(pairs, [(values(*s),) for s in ((3, 10), (1, 2), (2, 62), (61, 2), (1, 1000))])


def test_a_rotation_of_pairs():
    """Rotary embedding of neighbouring columns."""

    def rotate(x):
        t, d = x.shape
        angle = jnp.arange(t)[:, None] / 100.0 ** (jnp.arange(d // 2) / 16.0)
        even, odd = x[:, ::2], x[:, 1::2]
        turned = even * jnp.cos(angle) - odd * jnp.sin(angle), even * jnp.sin(angle) + odd
        return jnp.stack(turned, -1).reshape(t, d)

    ours = shlo_disc.jit(rotate)
    for sizes in ((3, 10), (1, 2), (7, 64), (130, 36)):
        x = values(*sizes)
        np.testing.assert_allclose(ours(x), jax.jit(rotate)(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "dtype"), crossed([2, 4, 8], [np.int8, np.float16, np.float32, np.float64])
)
def test_few_channels_in_the_last_dimension(channels, dtype):
    """An index into a small last dimension is known in every lane."""

    def channelwise(x, scale):
        y = x * scale + x[..., ::-1]
        first, last = y[..., :1], y[..., 1:]
        return y, jnp.concatenate([last, first], -1), jnp.pad(y, ((0, 0), (1, 0), (0, 0)))

    with jax.enable_x64(True):
        scale = values(channels).astype(dtype)
        cases = [(values(*s, channels).astype(dtype), scale) for s in ((3, 10), (1, 1), (2, 61))]
        stated = (f"n, m, {channels}", f"{channels}")
        check_bits(channelwise, cases, op_by_op=dtype == np.float16, shapes=stated)


EMPTY = {
    "repeated": lambda x: jnp.repeat(x, 2, axis=1) + 1,
    "repeated beside tiled": lambda x: jnp.repeat(x, 2, axis=1) * jnp.tile(x, (1, 2)),
    "interleaved": lambda x: jnp.stack([x, x + 1], -1).reshape(len(x), 2 * x.shape[1]) * 2,
    "repeated rows": lambda x: jnp.repeat(x + 1, 3, axis=0) * 2,
    "product": lambda x: jnp.repeat(x, 2, axis=1) @ jnp.repeat(x, 2, axis=1).T,
    "sums": lambda x: jnp.repeat(x + 1, 2, axis=1).sum(1),
}


@pytest.mark.parametrize("function", EMPTY.values(), ids=EMPTY)
def test_empty_arrays_that_repeat(function):
    """A size that is 0 and known divides nothing."""
    compiled = shlo_disc.jit(function)
    for shape in [(1, 0), (3, 0), (0, 2), (2, 3)]:
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(compiled(x), jax.jit(function)(x))

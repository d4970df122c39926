"""Kernels of loops and scatters that tell, beside their results, whether integers are in range."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc


def outside(i, n):
    return ((i < 0) | (i >= n)).any()


def rows(w, i):
    return w.at[i].get(mode="clip"), outside(i, w.shape[0])


def elements(w, i):
    return w[:, 0][i], ((i < -w.shape[0]) | (i >= w.shape[0])).any()


def of_two(w, i):
    j = i // 2
    read = w.at[i].get(mode="clip") + w.at[j].get(mode="clip")
    return read, outside(i, w.shape[0]), outside(j, w.shape[0])


def matrices(w, i):
    i = i[:, None] + jnp.arange(2)
    return w.at[i].get(mode="clip") * 2, outside(i, w.shape[0])


def interleaved(w, i):
    read = [w.at[i, k].get(mode="clip") for k in (0, 1)]
    return jnp.stack(read, -1), outside(i, w.shape[0])


def short(w, i):
    return w[:, :3].at[i].get(mode="clip"), outside(i, w.shape[0])


def joined(w, i):
    read = w.at[i].get(mode="clip")
    return jnp.concatenate([read, read * 2], 1), outside(i, w.shape[0])


def of_unsigned(w, i):
    i = i.astype(jnp.uint32)
    return w.at[i].get(mode="clip"), (i >= w.shape[0]).any()


def segments(w, i):
    places = jnp.arange(i.shape[0]) // 3
    read = w.at[i].get(mode="clip")
    total = jax.ops.segment_sum(read, places, 200, indices_are_sorted=True)
    return total, outside(i, w.shape[0])


def of_wide(w, i):
    places = jnp.arange(i.shape[0]) // 3
    read = w.at[i].get(mode="clip")
    wide = jnp.tile(read, (1, 31)), jnp.tile(read[:, :3], (1, 33))
    totals = [jax.ops.segment_sum(x, places, 200, indices_are_sorted=True) for x in wide]
    return *totals, outside(i, w.shape[0])


def added(w, i):
    read = w.at[i].get(mode="clip")
    return jnp.zeros((9, 5)).at[i % 11 - 1].add(read, mode="drop"), outside(i, w.shape[0])


PROGRAMS = {
    "rows": (rows, 1), "elements": (elements, 1), "two of one row": (of_two, 2),
    "matrices of integers": (matrices, 0), "interleaved": (interleaved, 1), "short": (short, 1),
    "joined": (joined, 1), "unsigned": (of_unsigned, 1), "segments": (segments, 1),
    "added": (added, 1), "wide segments": (of_wide, 0),
}  # fmt: skip
"""Name -> function, how many flags its kernels of rows tell."""

SIZES = [(7, 5), (7, 0), (3, 13), (1000, 1400)]
"""Rows that are looked up in, numbers of places: one is of several tasks."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_flags_are_those_of_jax(name):
    """None of the integers is out of range, or the first, one in the middle, or the last."""
    function, flags = PROGRAMS[name]
    ours, theirs = shlo_disc.jit(function), jax.jit(function)
    rng = np.random.default_rng(0)
    raised = 0
    for size, count in SIZES:
        w = rng.standard_normal((size, 5), np.float32)
        for number, at in enumerate(sorted({0, count // 2, count - 1} if count else ())):
            i = rng.integers(0, size, count).astype(np.int32)
            for wrong in (None, (size, -1 - size, -(2**31))[number], 2**31 - 1):
                if wrong is not None:
                    i[at] = wrong
                want = [np.asarray(x) for x in theirs(w, i)]
                for mine, one in zip(ours(w, i), want, strict=True):
                    np.testing.assert_allclose(mine, one, rtol=1e-5, atol=1e-5)
                raised += bool(want[-1])
        none = np.zeros(0, np.int32)
        assert not ours(w, none)[-1]
    assert raised >= 8
    assert ours.explain().count("it tells whether indices are in range") >= flags

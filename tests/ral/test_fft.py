"""Fourier transforms of the runtime against NumPy in a wider type, for every kind and many lengths.

The bound of the error, relative in the L2 norm, is `BOUND * eps * max(1, log2(n))`; the largest
factor seen is 0.39 (2026-11, lengths up to 1e5, all instruction sets).
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from shlo_disc.debug.memory import Guarded
from shlo_disc.ral import _ral
from tests.children import forked

KINDS = {"FFT": 0, "IFFT": 1, "RFFT": 2, "IRFFT": 3}
DOUBLE, PAIRS_IN, PAIRS_OUT, VECTOR_SHIFT = 4, 8, 16, 5
BOUND = 0.6
WIDER = {np.float32: np.float64, np.float64: np.longdouble}

PRIMES = (211, 251, 257, 401, 509, 521, 677, 821, 997, 1009)
POWERS = tuple(2**k for k in range(8, 16)) + tuple(3 * 2**k for k in range(6, 13))
LARGE = (1000, 3721, 4199, 100_000, 100_003)
LENGTHS = (*range(1, 201), *PRIMES, *POWERS, *LARGE)
SOME = (1, 2, 3, 7, 16, 61, 62, 67, 100, 127, 243, 256, 257, 509, 1000, 1009, 1022, 1024, 6007)
"""Every way to compute one: single passes, several, chirps, split, all of them of half a length."""


def lengths_of(kind: str, n: int) -> tuple[int, int]:
    """Elements of a row of the operands, and of the results."""
    half = n // 2 + 1
    return {"RFFT": (n, half), "IRFFT": (half, n)}.get(kind, (n, n))


def options_of(kind, dtype, vector_bytes=0):
    return KINDS[kind] | (DOUBLE if dtype == np.float64 else 0) | vector_bytes << VECTOR_SHIFT


def transform(kind, n, *planes, vector_bytes=0):
    """The planes of the transform of rows of planes."""
    planes = [np.ascontiguousarray(plane) for plane in planes]
    batch, dtype = planes[0].shape[0], planes[0].dtype
    count = 1 if kind == "IRFFT" else 2
    results = [np.full((batch, lengths_of(kind, n)[1]), 7e7, dtype) for _ in range(count)]
    addresses = [array.ctypes.data for array in (*planes, *results)]
    assert _ral.fft_transform(options_of(kind, dtype, vector_bytes), batch, n, addresses)
    return results


def sample(kind, n, batch, dtype, seed=0):
    """Random planes of operands."""
    r = np.random.default_rng(seed)
    shape = (batch, lengths_of(kind, n)[0])
    return [r.standard_normal(shape).astype(dtype) for _ in range(1 if kind == "RFFT" else 2)]


def expected(kind, n, planes):
    """By NumPy, in the type of the planes."""
    if kind == "RFFT":
        return np.fft.rfft(planes[0])
    x = planes[0] + 1j * planes[1]
    if kind == "IRFFT":
        return np.fft.irfft(x, n)
    return np.fft.fft(x) if kind == "FFT" else np.fft.ifft(x)


def joined(planes):
    return planes[0] if len(planes) == 1 else planes[0] + 1j * planes[1]


def error(kind, n, batch, dtype, vector_bytes=0):
    """The relative error in the L2 norm, as a multiple of eps * max(1, log2(n))."""
    planes = sample(kind, n, batch, dtype, n)
    wide = WIDER[dtype]
    want = expected(kind, n, [plane.astype(wide) for plane in planes])
    assert want.real.dtype == wide
    results = transform(kind, n, *planes, vector_bytes=vector_bytes)
    got = joined([result.astype(wide) for result in results])
    assert got.shape == want.shape
    relative = np.linalg.norm(got - want) / np.linalg.norm(want)
    return relative / (np.finfo(dtype).eps * max(1.0, np.log2(n)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_every_length(kind, dtype):
    worst = max((error(kind, n, 3 if n < 2000 else 1, dtype), n) for n in LENGTHS)
    assert worst[0] < BOUND, worst


@pytest.mark.parametrize("vector_bytes", [16, 32])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_narrower_vectors(dtype, vector_bytes):
    worst = max((error(kind, n, 5, dtype, vector_bytes), n) for kind in KINDS for n in SOME)
    assert worst[0] < BOUND, worst


def test_a_transform_has_the_same_bits_in_every_batch():
    """Bit for bit: alone, in groups that fill vectors or do not, shared by threads or not."""
    for dtype in (np.float32, np.float64):
        for kind in KINDS:
            for n in (*SOME, 5, 13, 16_384, 30_030, 20_011):
                batch = 33 if n < 2000 else 5
                planes = sample(kind, n, batch, dtype)
                whole = transform(kind, n, *planes)
                for begin, end in ((0, 1), (1, 4), (4, 20), (16, 33), (32, 33)):
                    part = transform(kind, n, *[plane[begin:end] for plane in planes])
                    for got, want in zip(part, whole, strict=True):
                        assert got.tobytes() == want[begin:end].tobytes(), (kind, n, begin, end)


def every_form_between_inaccessible_pages(lengths=(*SOME, 16_400, 70_000)):
    """Rows and columns, of planes and pairs, have the bits of rows of planes."""
    for dtype in (np.float32, np.float64):
        for kind in ("FFT", "IFFT"):
            for n in lengths:
                for batch, inner in (
                    ((3, 1), (17, 1), (2, 2), (1, 15), (2, 16), (1, 33))
                    if n < 10_000
                    else ((1, 17),)
                ):
                    rows = sample(kind, n, batch * inner, dtype)
                    want = [_turned(x, batch, inner, n) for x in transform(kind, n, *rows)]
                    given = [_turned(x, batch, inner, n) for x in rows]
                    for pairs in (0, PAIRS_IN, PAIRS_OUT, PAIRS_IN | PAIRS_OUT):
                        _check_form(kind, dtype, (batch, n, inner), pairs, given, want)
    return "done"


def _check_form(kind, dtype, sizes, pairs, given, want):
    batch, n, inner = sizes
    given = [np.stack(given, -1)] if pairs & PAIRS_IN else given
    want = [np.stack(want, -1)] if pairs & PAIRS_OUT else want
    operands = [Guarded.of(x) for x in given]
    results = [Guarded(x.nbytes) for x in want]
    addresses = [room.address for room in (*operands, *results)]
    assert _ral.fft_transform(options_of(kind, dtype) | pairs, batch, n, addresses, inner)
    for room, array in zip((*operands, *results), (*given, *want), strict=True):
        assert room.bytes.tobytes() == array.tobytes(), (kind, sizes, pairs)
        assert room.is_intact(), (kind, sizes, pairs)


def _turned(rows, batch, inner, n):
    return np.ascontiguousarray(rows.reshape(batch, inner, n).swapaxes(1, 2))


@pytest.mark.parametrize(
    ("threads", "lengths"), [(1, "(*SOME[::3], 16_400)"), (2, "")], ids=["1", "2"]
)
def test_every_form_has_the_bits_of_rows_of_planes(threads, lengths):
    code = (
        f"from tests.ral.test_fft import *; print(every_form_between_inaccessible_pages({lengths}))"
    )
    assert forked(code, SHLO_DISC_NUM_THREADS=str(threads)) == "done"


def test_columns_of_no_elements():
    for batch, n, inner in ((0, 4, 3), (2, 0, 3), (2, 4, 0)):
        assert _ral.fft_transform(0, batch, n, [0, 0, 0, 0], inner)
    for options, inner in ((0, 2), (PAIRS_OUT, 1)):
        with pytest.raises(ValueError, match="transforms of reals are rows of planes"):
            _ral.fft_transform(KINDS["RFFT"] | options, 1, 4, [0, 0, 0], inner)
    with pytest.raises(ValueError, match="four buffers, fewer of pairs"):
        _ral.fft_transform(PAIRS_IN, 1, 4, [0, 0, 0, 0])


@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_columns_in_narrower_vectors(vector_bytes):
    for n in SOME:
        rows = sample("FFT", n, 11, np.float32)
        want = [_turned(x, 1, 11, n) for x in transform("FFT", n, *rows, vector_bytes=vector_bytes)]
        given = [_turned(x, 1, 11, n) for x in rows]
        options = options_of("FFT", np.float32, vector_bytes)
        for pairs in (0, PAIRS_IN | PAIRS_OUT):
            operands = [np.stack(given, -1)] if pairs else given
            got = [np.zeros_like(x) for x in operands]
            addresses = [x.ctypes.data for x in (*operands, *got)]
            assert _ral.fft_transform(options | pairs, 1, n, addresses, 11)
            planes = [got[0][..., 0], got[0][..., 1]] if pairs else got
            for result, expected_ in zip(planes, want, strict=True):
                np.testing.assert_array_equal(result, expected_)


def digest():
    """Of results that threads share in several ways."""
    found = hashlib.sha256()
    for kind in KINDS:
        for n, batch in ((100, 300), (1009, 7), (1024, 5), (20_011, 1), (65_536, 1), (16_384, 6)):
            for result in transform(kind, n, *sample(kind, n, batch, np.float32)):
                found.update(result.tobytes())
    return found.hexdigest()


def test_the_number_of_threads_changes_no_bit():
    code = "from tests.ral.test_fft import digest; print(digest())"
    assert forked(code, SHLO_DISC_NUM_THREADS="1") == digest()  # this process has a thread a core


def between_inaccessible_pages():
    """Transforms of arrays that end where memory ends have the results of others."""
    for dtype in (np.float32, np.float64):
        for kind in KINDS:
            for n in (*SOME, 900, 16_384, 20_011):
                planes = sample(kind, n, 3, dtype)
                want = transform(kind, n, *planes)
                given = [Guarded.of(plane) for plane in planes]
                got = [Guarded(result.nbytes) for result in want]
                addresses = [room.address for room in (*given, *got)]
                assert _ral.fft_transform(options_of(kind, dtype), 3, n, addresses)
                for room, result in zip(got, want, strict=True):
                    assert room.bytes.tobytes() == result.tobytes()
                for room, plane in zip(given, planes, strict=True):
                    assert room.bytes.tobytes() == plane.tobytes()
                assert all(room.is_intact() for room in (*given, *got)), (kind, n)
    return "done"


def test_nothing_outside_the_arrays_is_touched():
    code = "from tests.ral import test_fft; print(test_fft.between_inaccessible_pages())"
    assert forked(code, SHLO_DISC_NUM_THREADS="2") == "done"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inverse_of_forward(dtype):
    eps = np.finfo(dtype).eps
    for n in SOME:
        x, y = sample("FFT", n, 3, dtype)
        re, im = transform("IFFT", n, *transform("FFT", n, x, y))
        (back,) = transform("IRFFT", n, *transform("RFFT", n, x))
        tolerance = 8 * eps * max(1.0, np.log2(n))
        for got, want in ((re, x), (im, y), (back, x)):
            np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, err_msg=str(n))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_reaches_every_result_of_its_row(kind, bad):
    with np.errstate(invalid="ignore"):
        for n in SOME[1:]:
            planes = sample(kind, n, 3, np.float32)
            at = 1 if kind == "IRFFT" and n > 2 else n // 3
            planes[0][1, min(at, planes[0].shape[1] - 1)] = bad
            got = joined(transform(kind, n, *planes))
            assert np.isfinite(got[[0, 2]]).all()
            want = np.isfinite(expected(kind, n, planes)[1])
            assert kind == "IRFFT" or not want.any()  # a cosine that is 0 may be left out
            assert not (np.isfinite(got[1]) & ~want).any(), n


def test_denormals_and_zeros():
    for n in SOME:
        tiny = np.float32(2.0**-140)
        x, y = (
            np.round(plane * 64).astype(np.float32) for plane in sample("FFT", n, 1, np.float32)
        )
        want = joined(transform("FFT", n, x, y))
        got = joined(transform("FFT", n, x * tiny, y * tiny)).astype(np.complex128)
        # Every product and sum is rounded to a multiple of 2^-149.
        assert np.abs(got * 2.0**140 - want).max() <= 8 * n * 2.0**-9, n
        zeros = np.full((2, n), -0.0, np.float32)
        assert not np.any(joined(transform("FFT", n, zeros, zeros)))
        assert not np.any(joined(transform("RFFT", n, zeros)))


def test_reals_have_no_imaginary_ends():
    for n in SOME:
        (x,) = sample("RFFT", n, 3, np.float64)
        _, im = transform("RFFT", n, x)
        assert not im[:, 0].any()
        assert n % 2 or not im[:, -1].any()
        re, im = sample("IRFFT", n, 3, np.float64)
        (want,) = transform("IRFFT", n, re, im)
        im[:, 0] = np.nan
        if n % 2 == 0:
            im[:, -1] = np.inf
        (got,) = transform("IRFFT", n, re, im)
        assert got.tobytes() == want.tobytes(), n


def test_no_rows_and_no_elements():
    for kind in KINDS:
        for n in (0, 1, 7, 1024):
            results = transform(kind, n, *sample(kind, n, 0, np.float32))
            assert all(result.size == 0 for result in results)
    assert [r.tolist() for r in transform("RFFT", 0, np.zeros((2, 0)))] == [[[0.0], [0.0]]] * 2
    assert transform("IRFFT", 0, np.ones((2, 1)), np.ones((2, 1)))[0].shape == (2, 0)


def test_plans_are_kept_up_to_a_bound():
    _ral.fft_forget_plans()
    assert _ral.fft_plan_stats()["bytes"] == 0
    for n in range(1, 1400):
        transform("FFT", n, *sample("FFT", n, 1, np.float32))
    for n in (1 << 24, 5 << 22, 3 << 23):  # 32 to 48 MB of tables each
        transform("RFFT", n, np.ones((1, n), np.float32))
    stats = _ral.fft_plan_stats()
    assert 1 <= stats["plans"] <= 1024
    assert 0 < stats["bytes"] <= stats["limit_bytes"]
    _ral.fft_forget_plans()
    assert _ral.fft_plan_stats()["plans"] == 0


def test_no_memory_is_told():
    code = """
import resource
import numpy as np
from shlo_disc.ral import _ral
n = 1_000_003
planes = [np.ones(n, np.float32) for _ in range(4)]
buffers = [plane.ctypes.data for plane in planes]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), resource.RLIM_INFINITY))
refused = _ral.fft_transform(0, 1, n, buffers)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(refused, _ral.fft_transform(0, 1, n, buffers), round(float(planes[2][0])))
"""
    assert forked(code, SHLO_DISC_NUM_THREADS="1") == "False True 1000003"

"""What counts as a difference."""

import ml_dtypes
import numpy as np
import pytest

from shlo_disc.debug.compare import compare

NAN, INF = float("nan"), float("inf")
FLOATS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_equal_themselves_only(dtype):
    values = np.array([NAN, INF, -INF, 0.0, 1.0], dtype)
    for k, a in enumerate(values):
        for m, b in enumerate(values):
            found = compare(np.array([a]), np.array([b]))
            assert found.is_equal == (k == m), (a, b)
    zeros = np.array([0.0, -0.0], dtype)
    assert compare(zeros, zeros[::-1]).is_equal


@pytest.mark.parametrize("dtype", FLOATS)
def test_units_in_the_last_place_are_counted(dtype):
    eps = ml_dtypes.finfo(dtype).eps
    tiny = ml_dtypes.finfo(dtype).smallest_subnormal
    a = np.array([1.0, -1.0, 0.0, 4.0], dtype)
    b = np.array([1.0 + float(eps), -1.0, -float(tiny), 4.0], dtype)
    found = compare(b, a, rtol=0.0)
    assert found.max_ulp == 1
    assert found.max_error == float(eps)
    assert (found.wrong, found.index) == (2, (0,))
    assert compare(b, a).is_equal


def test_the_first_wrong_element_is_named():
    want = np.ones((3, 4), np.float32)
    got = want.copy()
    got[1, 2], got[2, 0] = 2.0, NAN
    found = compare(got, want)
    assert str(found) == ("max error 1 (8388608 ULP); 2 wrong, first at [1, 2]: 2.0 instead of 1.0")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.bool_])
def test_integers_must_be_equal(dtype):
    want = np.array([0, 1, 1], dtype)
    assert compare(want, want).is_equal
    found = compare(np.array([0, 1, 0], dtype), want)
    assert (found.wrong, found.index, found.max_error) == (1, (2,), 1)
    top = np.array([np.iinfo(dtype).max], dtype) if dtype != np.bool_ else np.array([True])
    assert not compare(top, top ^ top).is_equal


def test_nothing_and_scalars():
    assert compare(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)).is_equal
    assert compare(np.float32(2) * np.ones(()), np.ones(()) * np.float32(3)).index == ()


def test_a_sum_near_zero_may_have_the_error_of_its_parts():
    want = np.array([1e3, 1e-6], np.float32)
    got = np.array([1e3, 3e-6], np.float32)
    assert compare(got, want).is_equal
    assert not compare(got, want, rtol=0.0).is_equal
    assert not compare(got[1:], want[1:]).is_equal


def test_other_shapes_or_types_are_a_mistake():
    with pytest.raises(ValueError, match=r"float32\(2,\) is compared with float32\(3,\)"):
        compare(np.zeros(2, np.float32), np.zeros(3, np.float32))

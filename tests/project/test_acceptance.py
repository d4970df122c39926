"""`tools/acceptance.py` excuses what its list explains, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shlo_disc.base.errors import UnsupportedError
from tools.acceptance_exceptions import CASES, EXCEPTIONS, MISSES

SUM = """func.func public @main(%x: tensor<3xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
  return %sum : tensor<f32>
}"""
ELEMENTS = np.float32([1, 2**-24, 2**-24])
EXACT, ROUNDED, WRONG = np.float32(1 + 2**-23), np.float32(1), np.float32(0.5)


@pytest.fixture(scope="module")
def tool():
    """`tools/acceptance.py` as a module."""
    from tools import acceptance

    return acceptance


def outputs(tool, got, want, ins=(), mode="eq", tolerance=0) -> Iterator:
    got, want = np.asarray(got), np.asarray(want)
    yield tool.Output(got, want, mode, tolerance, "result 0", list(ins), 0, lambda: SUM)


def test_at_most_one_in_a_hundred_is_an_exception():
    names = [(miss.archive, name) for miss in MISSES for name in miss.names]
    assert len(names) == len(set(names)) == len(EXCEPTIONS)
    own = [cause for cause in EXCEPTIONS.values() if not cause.is_foreign]
    assert len(own) <= sum(CASES.values()) / 100
    for archive, count in CASES.items():
        foreign = [a for (a, _), cause in EXCEPTIONS.items() if a == archive and cause.is_foreign]
        assert len(foreign) <= count * 3 / 100


@pytest.mark.parametrize(
    ("cause", "got", "want", "ins"),
    [
        ("INEXACT", EXACT, ROUNDED, [ELEMENTS]),
        ("LAPACK", np.complex64([3 + 4j]), np.complex64([-5]), []),
        ("TIES", [[0, 2]], [[1, 2]], [np.float32([[7, 7, 5]])]),
        ("INPUT", 1, 2, [np.float32([1]), np.float32([2, 1])]),
        ("PROGRAM", ROUNDED * 3, WRONG, [np.float32([1, 1, 1])]),
    ],
)
def test_an_exception_is_excused(tool, cause, got, want, ins):
    case = tool.Case("archive.zip", "case", {}, cause)
    reason, _, excused = tool.judge(case, outputs(tool, got, want, ins), True)
    assert excused
    assert reason.startswith("exception")
    if cause == "LAPACK":
        assert tool.judge(case, outputs(tool, want, want, ins), True) == ("", "", False)
    else:
        with pytest.raises(tool.Mismatch, match="passes, though listed"):
            tool.judge(case, outputs(tool, want, want, ins), True)
    unlisted = tool.Case("archive.zip", "case", {})
    with pytest.raises(tool.Mismatch, match="wrong result"):
        tool.judge(unlisted, outputs(tool, got, want, ins), True)


@pytest.mark.parametrize(
    ("cause", "got", "want", "ins"),
    [
        ("INEXACT", WRONG, ROUNDED, [ELEMENTS]),
        ("INEXACT", ROUNDED, EXACT, [ELEMENTS]),
        ("LAPACK", np.complex64([3 + 4j]), np.complex64([-5.1]), []),
        ("TIES", [[1, 2]], [[0, 1]], [np.float32([[7, 7, 5]])]),
        ("TIES", [[0, 0]], [[0, 1]], [np.float32([[7, 7, 5]])]),
        ("INPUT", 1, 2, [np.float32([1]), np.float32([1, 2])]),
        ("PROGRAM", WRONG, ROUNDED * 3, [np.float32([1, 1, 1])]),
        ("RANDOM", ROUNDED, EXACT, []),
        ("TIES", np.float32([[1, 2]]), np.float32([[0, 1]]), [np.float32([[7, 7, 5]])]),
    ],
)
def test_another_cause_is_reported(tool, cause, got, want, ins):
    case = tool.Case("archive.zip", "case", {}, cause)
    with pytest.raises(tool.Mismatch, match=f"not {cause} as listed"):
        tool.judge(case, outputs(tool, got, want, ins), True)


def test_a_refusal_is_excused_by_its_cause_alone(tool):
    def refused():
        raise UnsupportedError("<module>:1:1: stablehlo.rng is not compiled: its numbers")
        yield

    listed, other = (tool.Case("archive.zip", "case", {}, c) for c in ("RANDOM", "SHAPES"))
    reason, _, excused = tool.judge(listed, refused(), True)
    assert excused
    assert reason.startswith("exception, random numbers")
    with pytest.raises(UnsupportedError):
        tool.judge(other, refused(), True)


def test_sums_of_machines_without_avx512(tool):
    """The list is that of another order of sums; what rounding does not explain is reported."""
    listed, unlisted = (tool.Case("archive.zip", "case", {}, c) for c in ("INEXACT", ""))
    assert tool.judge(listed, outputs(tool, ROUNDED, ROUNDED), False) == ("", "", False)
    reason, _, excused = tool.judge(unlisted, outputs(tool, EXACT, ROUNDED, [ELEMENTS]), False)
    assert excused
    assert reason == "exception of this machine, rounding"
    with pytest.raises(tool.Mismatch, match="wrong result"):
        tool.judge(unlisted, outputs(tool, WRONG, ROUNDED, [ELEMENTS]), False)
    with pytest.raises(tool.Mismatch, match="wrong result"):
        tool.judge(unlisted, outputs(tool, np.int32(1), np.int32(2)), False)


def test_lists_that_the_archives_do_not_have_are_reported(tool):
    (archive, name), *_ = EXCEPTIONS
    cases = [tool.Case(f"{archive}.zip", str(k), {}) for k in range(CASES[archive] - 1)]
    found = "\n".join(tool.stale(cases, {archive}))
    assert f"{CASES[archive] - 1} cases, not {CASES[archive]}" in found
    assert f"{name}: listed as an exception, but there is no such case" in found

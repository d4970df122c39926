"""Scans by blocks of threads, interpreted: tiles, pieces and columns, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import crossed
from tests.gpu.run import gpu_plan, launches_of, run_gpu
from tests.lower import test_scan
from tests.lower.helpers import sample

PIECES = ["scan_totals", "scan_in_front", "scan_pieces"]
ROWS = (255, 256, 257, 1024, 1025, 2047, 2048, 2049, 4099, 16384, 16385, 25000)
COLUMNS = (7, 8, 9, 127, 129, 255, 256, 257, 400)


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_scan, "plan_of", lambda emit, text: gpu_plan(text))


def names(plan, shape, dtype=np.float32):
    return [launch.kernel.name for launch in launches_of(plan, [np.zeros(shape, dtype)])]


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_around_tiles_and_pieces(reverse):
    plan = test_scan.scan("b,n", "f32", 1, reverse=reverse)
    for n in ROWS:
        x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        (found,) = run_gpu(plan, [x], seed=n)
        assert_within(found, x, 1, 60 + n / 2048, reverse)
        assert names(plan, x.shape) == (PIECES if n >= 16384 else ["scan"])


@pytest.mark.parametrize("reverse", [False, True])
def test_columns_in_batches_and_pieces(reverse):
    plan = test_scan.scan("b,n,k", "f32", 1, reverse=reverse)
    for n in COLUMNS:
        x = np.random.default_rng(n).standard_normal((2, n, 5)).astype(np.float32)
        (found,) = run_gpu(plan, [x], seed=n)
        assert_within(found, x, 1, 60 + n / 128, reverse)
        assert names(plan, x.shape) == (PIECES if n >= 256 else ["scan"])


def assert_within(found, x, axis, roundings, reverse):
    """The stated bound: so many roundings of the sum of magnitudes."""
    want = test_scan.expected(x, axis, reverse=reverse)
    size = test_scan.expected(np.abs(x), axis, reverse=reverse)
    assert (np.abs(found - want) <= roundings * 2.0**-24 * size).all()


def test_many_rows_and_columns_are_whole():
    rows = test_scan.scan("b,n", "f32", 1)
    assert names(rows, (263, 16384)) == PIECES
    assert names(rows, (264, 16384)) == ["scan"]
    columns = test_scan.scan("n,k", "f32", 0)
    assert names(columns, (256, (1 << 17) - 1)) == PIECES
    assert names(columns, (256, 1 << 17)) == ["scan"]


INTEGERS = ["i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"]


@pytest.mark.parametrize(("axis", "dtype"), crossed([0, 1], INTEGERS))
def test_integers_to_the_bit(axis, dtype):
    plan = test_scan.scan("b,n", dtype, axis, reverse=True)
    for shape in ((3, 16400), (300, 3)):
        x = sample(shape, dtype, 2)
        want = np.flip(np.cumsum(np.flip(x, axis), axis, dtype=x.dtype), axis)
        np.testing.assert_array_equal(run_gpu(plan, [x])[0], want)


@pytest.mark.parametrize(("axis", "body"), crossed([1, 0], test_scan.BODIES))
def test_every_reducer_in_pieces(axis, body):
    plan = test_scan.scan("b,n", "f64", axis, body)
    for shape in ((2, 16390), (260, 3)):
        x = np.random.default_rng(0).uniform(0.999, 1.001, shape)
        want = test_scan.expected(x, axis, body)
        np.testing.assert_allclose(run_gpu(plan, [x])[0], want, rtol=1e-11)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["p", "q"])
def test_the_order_of_operands_in_pieces(name, reverse):
    """`q` alone: the last one seen; `p` alone: the init value, or the first one."""
    flag = "true" if reverse else "false"
    text = f"""%i = stablehlo.constant dense<0.0> : tensor<f32>
      %s = "disc.scan"(%x, %i) ({{
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        stablehlo.return %{name} : tensor<f32>
      }}) {{dimension = 1 : i64, reverse = {flag}}}
        : (tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xf32>"""
    plan = gpu_plan(test_scan.fusion_text("scan", ["x: b,n f32"], text, ["s: b,n f32"]))
    x = np.arange(1, 16401, dtype=np.float32).reshape(1, -1)
    (found,) = run_gpu(plan, [x])
    keeps_own = (name == "q") != reverse
    np.testing.assert_array_equal(found, x if keeps_own else np.zeros_like(x))


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_totals_of_half_types_in_pieces(dtype):
    plan = test_scan.scan("n", dtype, 0)
    x = np.ones(17000, sample((1,), dtype, 0).dtype)
    found = np.asarray(run_gpu(plan, [x])[0], np.float64)
    np.testing.assert_allclose(found, np.arange(1, 17001), rtol=2.0**-8)

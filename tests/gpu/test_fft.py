"""Kind fft on a GPU, interpreted, against NumPy in float64."""

import numpy as np
import pytest

from shlo_disc.lower.kernels.fft import LARGEST_FACTOR, MOST_STAGES, least_length
from tests.gpu.run import gpu_plan, run_gpu
from tests.lower.helpers import fusion_text

LENGTHS = (1, 2, 3, 12, 16, 17, 34, 36, 97, 160, 256)
"""Factors up to 16, primes above, their products, and several stages."""
BOUND = 4.0
"""Of the error relative to the result (2-norms), in eps times log2 of the length."""


def planes_plan(kind, element):
    t = f"tensor<?x?x{element}>"
    operands = [f"x: b, n {element}", f"y: b, n {element}"]
    if kind == "RFFT":
        operands, given, gives = operands[:1], "%x", f"({t}) -> ({t}, {t})"
    elif kind == "IRFFT":
        operands = [f"x: b, h {element}", f"y: b, h {element}", "z: n i8"]
        given, gives = "%x, %y, %l", f"({t}, {t}, tensor<i32>) -> {t}"
    else:
        given, gives = "%x, %y", f"({t}, {t}) -> ({t}, {t})"
    results = {
        "RFFT": [f"r#0: b, h {element}", f"r#1: b, h {element}"],
        "IRFFT": [f"r: b, n {element}"],
    }.get(kind, [f"r#0: b, n {element}", f"r#1: b, n {element}"])
    left = "%r" if kind == "IRFFT" else "%r:2"
    length = "%l = stablehlo.get_dimension_size %z, dim = 0 : (tensor<?xi8>) -> tensor<i32>"
    body = f'{left} = "disc.fft"({given}) {{kind = "{kind}"}} : {gives}'
    body = f"{length}\n{body}" if kind == "IRFFT" else body
    return gpu_plan(fusion_text("fft", operands, body, results))


def expected(kind, planes, n):
    wide = [plane.astype(np.float64) for plane in planes]
    if kind == "RFFT":
        return np.fft.rfft(wide[0])
    both = wide[0] + 1j * wide[1]
    if kind == "IRFFT":
        return np.fft.irfft(both, n)
    return (np.fft.fft if kind == "FFT" else np.fft.ifft)(both)


def assert_near(found, want, dtype, length):
    assert found.shape == want.shape
    error = np.linalg.norm(found - want) / max(np.linalg.norm(want), np.finfo(dtype).tiny)
    assert error <= BOUND * np.finfo(dtype).eps * np.log2(max(2, length)), (length, error)


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lengths(kind, dtype):
    plan = planes_plan(kind, {np.float32: "f32", np.float64: "f64"}[dtype])
    r = np.random.default_rng(0)
    for n in LENGTHS:
        size = n // 2 + 1 if kind == "IRFFT" else n
        planes = [r.standard_normal((3, size)).astype(dtype) for _ in range(1 + (kind != "RFFT"))]
        lengths = [np.zeros(n, np.int8)] if kind == "IRFFT" else []
        found = run_gpu(plan, [*planes, *lengths], {"n": n, "h": n // 2 + 1}, seed=n)
        both = found[0] if kind == "IRFFT" else found[0] + 1j * found[1]
        assert_near(both, expected(kind, planes, n), dtype, n)


@pytest.mark.parametrize("kind", ["FFT", "RFFT"])
def test_no_elements(kind):
    plan = planes_plan(kind, "f32")
    for shape in ((0, 5), (2, 0)):
        planes = [np.zeros(shape, np.float32)] * (1 + (kind != "RFFT"))
        half = shape[1] // 2 + 1
        for found in run_gpu(plan, planes, {"h": half}):
            assert found.shape == (shape[0], half if kind == "RFFT" else shape[1])
            assert not found.any()


def test_pairs_along_another_dimension():
    t = "tensor<?x?x?x2xf32>"
    plan = gpu_plan(
        fusion_text(
            "fft",
            ["x: b, n, c, 2 f32"],
            f'%r = "disc.fft"(%x) {{kind = "FFT", dimension = 1}} : ({t}) -> {t}',
            ["r: b, n, c, 2 f32"],
        )
    )
    x = np.random.default_rng(1).standard_normal((2, 20, 3, 2)).astype(np.float32)
    (found,) = run_gpu(plan, [x])
    want = np.fft.fft(x[..., 0].astype(np.float64) + 1j * x[..., 1], axis=1)
    assert_near(found[..., 0] + 1j * found[..., 1], want, np.float32, 20)


def test_what_is_not_finite_reaches_its_transform_alone():
    plan = planes_plan("FFT", "f32")
    x = np.random.default_rng(2).standard_normal((3, 24)).astype(np.float32)
    y = np.zeros_like(x)
    x[1, 5] = np.inf
    found = run_gpu(plan, [x, y])
    alone = run_gpu(plan, [x[2:], y[2:]])
    assert not np.isfinite(found[0][1]).any()
    for both, one in zip(found, alone, strict=True):
        np.testing.assert_array_equal(both[2:], one)


def factors(n):
    """The factors as the module says them."""
    while n > 1:
        small = [d for d in range(2, LARGEST_FACTOR + 1) if n % d == 0]
        factor = max(small) if small else next(d for d in range(17, n + 1) if n % d == 0)
        yield factor
        n //= factor


def test_every_stage_of_a_length_is_launched():
    for n in [*range(1, 3000), 13**4, 2**5 * 17**2, 16**5, 7**7]:
        for stage, _ in enumerate(factors(n)):
            assert n >= least_length(stage), (n, stage)
    assert least_length(MOST_STAGES) > 2**37

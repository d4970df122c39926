"""Kind rng: every bit as XLA gives it on a CPU."""

# ruff: noqa: E501 - MLIR text
from __future__ import annotations

from itertools import product

import jax
import numpy as np
import pytest

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.lower.kernels.rng import emit_rng
from tests.cases import crossed
from tests.lower.helpers import DTYPES, Emitted, fusion_text, plan_of, run

SHAPES = ((5,), (6,), (1, 1), (3, 5), (3, 4), (4, 3), (7, 5, 3), (3, 5, 2), (0,), (3, 0), (1001,))
STATE = np.array([0x123456789ABCDEF0, 0xFFFFFFFFFFFFFFFE, 77], np.uint64)


def generator(words: int, sizes: str, dtype: str, algorithm: str) -> Emitted:
    shape = "x".join(s if s.isdigit() else "?" for s in sizes.split(",") if s)
    kind = f"tensor<{shape}x{dtype}>" if shape else f"tensor<{dtype}>"
    state = f"tensor<{words}xui64>"
    text = f"%o, %v = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : ({state}) -> ({state}, {kind})"
    module = fusion_text(
        "rng", [f"s: {words} ui64"], text, [f"o: {words} ui64", f"v: {sizes} {dtype}"]
    )
    return plan_of(emit_rng, module)


@pytest.mark.parametrize(
    ("dtype", "algorithm"),
    crossed(
        ["ui8", "ui16", "ui32", "ui64"],
        ["THREE_FRY", "PHILOX", "DEFAULT"],
        also=[("ui32", "THREE_FRY"), ("ui64", "PHILOX")],
    ),
)
def test_bits_and_state_are_those_of_xla(dtype, algorithm):
    kind = getattr(jax.lax.RandomAlgorithm, f"RNG_{algorithm}")
    with jax.enable_x64(True):
        for shape in SHAPES[:: 2 if dtype == "ui32" and algorithm == "THREE_FRY" else 4]:
            state, bits = jax.lax.rng_bit_generator(STATE[:2], shape, DTYPES[dtype], algorithm=kind)
            plan = generator(2, ",".join(map(str, shape)), dtype, algorithm)
            new, got = run(plan, [STATE[:2]])
            np.testing.assert_array_equal(new, np.asarray(state))
            np.testing.assert_array_equal(got, np.asarray(bits), err_msg=str(shape))


def test_sizes_known_at_run_time_only():
    """The dimension XLA halves depends on which sizes are even."""
    call = """%o, %v = "stablehlo.custom_call"(%s, %n) {call_target_name = "stablehlo.dynamic_rng_bit_generator", rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>, tensor<2xi64>) -> (tensor<2xui64>, tensor<?x?xui32>)"""
    text = f"""%d0 = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?x?xi8>) -> tensor<i32>
    %d1 = stablehlo.get_dimension_size %y, dim = 1 : (tensor<?x?xi8>) -> tensor<i32>
    %e0 = stablehlo.convert %d0 : (tensor<i32>) -> tensor<i64>
    %e1 = stablehlo.convert %d1 : (tensor<i32>) -> tensor<i64>
    %f0 = stablehlo.reshape %e0 : (tensor<i64>) -> tensor<1xi64>
    %f1 = stablehlo.reshape %e1 : (tensor<i64>) -> tensor<1xi64>
    %n = stablehlo.concatenate %f0, %f1, dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
    {call}"""
    module = fusion_text("rng", ["s: 2 ui64", "y: a,b i8"], text, ["o: 2 ui64", "v: a,b ui32"])
    plan = plan_of(emit_rng, module)
    with jax.enable_x64(True):
        for shape in product((1, 2, 3, 7), (1, 4, 5, 9)):
            kind = jax.lax.RandomAlgorithm.RNG_THREE_FRY
            state, bits = jax.lax.rng_bit_generator(STATE[:2], shape, np.uint32, algorithm=kind)
            new, got = run(plan, [STATE[:2], np.zeros(shape, np.int8)])
            np.testing.assert_array_equal(new, np.asarray(state))
            np.testing.assert_array_equal(got, np.asarray(bits), err_msg=str(shape))


def philox_block(counter: list[int], key: list[int]) -> list[int]:
    mask = (1 << 32) - 1
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (b >> 32) ^ counter[1] ^ key[0],
            b & mask,
            (a >> 32) ^ counter[3] ^ key[1],
            a & mask,
        ]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return counter


def test_philox_with_a_counter_of_its_own_carries_into_the_upper_half():
    new, got = run(generator(3, "10", "ui32", "PHILOX"), [STATE])
    mask = (1 << 32) - 1
    key = [int(STATE[0]) & mask, int(STATE[0]) >> 32]
    counter = int(STATE[1]) | int(STATE[2]) << 64
    want: list[int] = []
    for k in range(3):
        number = counter + k
        want += philox_block([(number >> (32 * i)) & mask for i in range(4)], key)
    np.testing.assert_array_equal(got, np.array(want[:10], np.uint32))
    low, high = (counter + 3) & ((1 << 64) - 1), (counter + 3) >> 64
    np.testing.assert_array_equal(new, np.array([STATE[0], low, high], np.uint64))


def test_rank_zero_and_signed_bits():
    kind = jax.lax.RandomAlgorithm.RNG_THREE_FRY
    with jax.enable_x64(True):
        _, bits = jax.lax.rng_bit_generator(STATE[:2], (), np.uint32, algorithm=kind)
    _, got = run(generator(2, "", "i32", "THREE_FRY"), [STATE[:2]])
    assert got.view(np.uint32) == np.asarray(bits)


def test_a_state_of_the_wrong_size_is_refused():
    with pytest.raises(UnsupportedError, match="THREE_FRY"):
        generator(3, "4", "ui32", "THREE_FRY")

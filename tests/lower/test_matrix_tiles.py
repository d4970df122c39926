"""Tiles of AMX: the soft lowering and the manual, machine code, the permission, random products.

Products by soft tiles are in `test_dense_words.py`, beside those by vectors of words.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shlo_disc.lower.cpu import codegen, kept, matrix_unit
from shlo_disc.lower.cpu.builder import CpuBuilder
from shlo_disc.lower.cpu.dense import emit_dense
from shlo_disc.lower.cpu.dense.matrix_tiles import HardwareTiles, SoftTiles
from shlo_disc.lower.cpu.dense.tiles import MATRIX_ROOM
from shlo_disc.lower.cpu.machine import ARCHITECTURES, Machine, host_machine, with_tiles
from shlo_disc.lower.cpu.object_code import made
from shlo_disc.lower.plan import If, Pack, Step, named, text_of
from shlo_disc.store import entries
from tests.lower.helpers import DTYPES, plan_of, run
from tests.lower.test_dense import symbolic
from tests.lower.test_dense_words import SIGNS, SOFT, bf16, integers

LEVEL = ARCHITECTURES["avx512"]
HARD = Machine(
    vector_bytes=64, cores=2, features=LEVEL.features | matrix_unit.HARDWARE, vendor="GenuineIntel"
)
"""A machine with AMX; this one need not be."""

needs_amx = pytest.mark.skipif("amx_tile" not in host_machine().features, reason="no AMX")
DEPTHS = 3


# ---------------------------------------------------------------- the manual


def fma(x: np.ndarray, y: np.ndarray, total: np.ndarray, flushes: bool) -> np.ndarray:
    """`x * y + total` of f32 with the values of bf16, rounded once."""
    with np.errstate(all="ignore"):
        product, other = x.astype(np.float64) * y, total.astype(np.float64)
        found = product + other
        back = found - product
        rest = (product - (found - back)) + (other - back)
        # To odd, so that the second rounding sees what the first one has lost.
        is_even = found.view(np.int64) & 1 == 0
        odd = np.nextafter(found, np.copysign(np.inf, rest))
        found = np.where(np.isfinite(found) & (rest != 0) & is_even, odd, found)
        return flushed(found.astype(np.float32), flushes)


def flushed(x: np.ndarray, flushes: bool = True) -> np.ndarray:
    """Zero with its sign for denormals."""
    zero = np.copysign(np.float32(0), x)
    return np.where(np.abs(x) < np.float32(2**-126), zero, x) if flushes else x


def pseudocode(a: np.ndarray, b: np.ndarray, c: np.ndarray, flushes: bool) -> np.ndarray:
    """TDPBF16PS of the manual for every 32 columns of `a`. Source: Intel SDM, volume 2."""
    a, b, c = (flushed(x.astype(np.float32), flushes) for x in (a, b, c))
    for first in range(0, a.shape[1], 32):
        sums = [np.zeros_like(c), np.zeros_like(c)]
        for k in range(first, first + 32, 2):
            for odd in range(2):
                x, y = a[:, k + odd, None], b[k + odd]
                sums[odd] = fma(x, y, sums[odd], flushes)
        with np.errstate(all="ignore"):
            c = flushed(c + flushed(sums[0] + sums[1], flushes), flushes)
    return c


def words(b: np.ndarray) -> np.ndarray:
    """The rows of `b` in words: neighbours along K side by side."""
    count = 4 // b.itemsize
    return np.ascontiguousarray(b.reshape(-1, count, b.shape[1]).transpose(0, 2, 1))


def multiplied(
    product: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, how: type, **options: bool
) -> np.ndarray:
    """`c` plus the products of tiles of `a` and `b`, by `how`."""
    text = CpuBuilder(host_machine())
    arrays = [text.memref(i, "i32") for i in range(3)]
    tiles = how(text, text.scratch("i32"), product, **options)
    starts = [text.place_in(memory, 0) for memory in arrays]
    depth = a.shape[1] * a.itemsize // 4
    row = text.index(16)
    with text.loop(text.lo, text.hi):
        tiles.begin()
        tiles.zero(0)
        tiles.load(0, starts[2], text.index(0), row)
        with text.loop(0, depth, 16) as k:
            tiles.load(4, starts[0], k.index, text.index(depth))
            tiles.load(6, starts[1], k.index * 16, row)
            tiles.multiply(0, 4, 6)
        tiles.store(0, arrays[2], text.index(0), row)
        tiles.end()
    (function,) = codegen.compile_functions([text_of(text.finish()[0])])
    out, panel, a = c.copy(), words(b), np.ascontiguousarray(a)
    pointers = (ctypes.c_void_p * 3)(*(x.ctypes.data for x in (a, panel, out)))
    room = np.zeros(MATRIX_ROOM + 64, np.uint8)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)
    kind(function.address)(pointers, None, 0, 1, room.ctypes.data + -room.ctypes.data % 64)
    return out


def spread(rng: np.random.Generator, shape: tuple[int, int], low: int, high: int) -> np.ndarray:
    """bf16 with biased exponents from `low` to `high`; 0: denormals."""
    sign, fraction = rng.integers(0, 2, shape) << 15, rng.integers(0, 128, shape)
    exponent = rng.integers(low, high + 1, shape) << 7
    return (sign | fraction | exponent).astype(np.uint16).view(DTYPES["bf16"])


CASES = {
    "ordinary": ((110, 130), (110, 130), 127),
    "wide": ((100, 150), (100, 150), 130),
    "denormal factors": ((0, 0), (120, 130), 1),
    "denormal products": ((60, 66), (60, 66), 1),
    "denormal sums": ((63, 64), (63, 65), 1),
    "denormal C": ((60, 66), (60, 66), 0),
    "overflow": ((250, 254), (120, 140), 254),
    "not finite": ((254, 255), (120, 140), 255),
}
"""Exponents of A and of B, and the largest one of C."""


def tiles_of(case: str) -> list[np.ndarray]:
    """A, B and C."""
    rng = np.random.default_rng(sum(map(ord, case)))
    left, right, most = CASES[case]
    low = most if most < 2 else most - 20
    c = spread(rng, (16, 16), low, most).astype(np.float32)
    return [spread(rng, (16, 32 * DEPTHS), *left), spread(rng, (32 * DEPTHS, 16), *right), c]


def assert_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bits, whatever a NaN has."""
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(
        np.nan_to_num(got).view(np.int32), np.nan_to_num(want).view(np.int32)
    )


@pytest.mark.parametrize("keeps_denormals", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_soft_tiles_do_as_the_manual_says(case: str, keeps_denormals: bool) -> None:
    a, b, c = tiles_of(case)
    got = multiplied("tdpbf16ps", a, b, c, SoftTiles, keeps_denormals=keeps_denormals)
    assert_bits(got, pseudocode(a, b, c, not keeps_denormals))


@needs_amx
@pytest.mark.parametrize("case", CASES)
def test_tiles_do_as_the_manual_says(case: str) -> None:
    assert matrix_unit.is_granted()
    a, b, c = tiles_of(case)
    assert_bits(multiplied("tdpbf16ps", a, b, c, HardwareTiles), pseudocode(a, b, c, True))


@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("how", [SoftTiles, pytest.param(HardwareTiles, marks=needs_amx)])
def test_integers_in_tiles(signs: tuple[str, str], how: type) -> None:
    rng = np.random.default_rng(0)
    a, b = integers((16, 64 * DEPTHS), signs[0], rng), integers((64 * DEPTHS, 16), signs[1], rng)
    c = integers((16, 16), "i32", rng)
    letters = "".join("u" if sign == "ui8" else "s" for sign in signs)
    want = (c + a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(multiplied(f"tdpb{letters}d", a, b, c, how), want)


# ---------------------------------------------------------------- products


@needs_amx
def test_products_have_the_bits_of_soft_tiles() -> None:
    hard = host_machine()
    rng = np.random.default_rng(0)
    for types in (("bf16", "bf16", "f32"), ("i8", "i8", "i32"), ("ui8", "i8", "i32")):
        dot = symbolic("mk,kn", "", "k", lhs_type=types[0], rhs_type=types[1], type=types[2])
        emitted = [plan_of(emit_dense, dot.text(), machine) for machine in (hard, SOFT)]
        for m, k, n in [(1, 1, 1), (2, 33, 40), (50, 70, 97), (130, 4500, 33)]:
            shapes = ((m, k), (k, n))
            if types[0] == "bf16":
                x, y = (bf16(rng.standard_normal(s)) for s in shapes)
                x[0, :5] = bf16(1e-39)
            else:
                x, y = (integers(s, t, rng) for s, t in zip(shapes, types[:2], strict=True))
            first, second = (run(one, [x, y])[0] for one in emitted)
            np.testing.assert_array_equal(first.view(np.int32), second.view(np.int32))


def kernels_of(steps: tuple[Step, ...]) -> Iterator[str]:
    """The texts of all kernels."""
    for step in steps:
        if isinstance(step, If | Pack):
            yield from kernels_of((*step.then, *step.otherwise))
        else:
            yield step.kernel.text


@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump")
@pytest.mark.parametrize(
    ("types", "name"),
    [
        (("bf16", "bf16", "f32"), "tdpbf16ps"),
        (("bf16", "bf16", "bf16"), "tdpbf16ps"),
        (("i8", "i8", "i32"), "tdpbssd"),
        (("i8", "ui8", "i32"), "tdpbsud"),
        (("ui8", "i8", "i32"), "tdpbusd"),
        (("ui8", "ui8", "i32"), "tdpbuud"),
    ],
)
def test_machine_code_has_the_instructions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, types: tuple[str, str, str], name: str
) -> None:
    # LLVM makes it for any machine; it is not run.
    monkeypatch.setattr(matrix_unit, "is_granted", lambda: True)
    dot = symbolic("mk,kn", "", "k", lhs_type=types[0], rhs_type=types[1], type=types[2])
    emitted = plan_of(emit_dense, dot.text(), HARD)
    texts = [text for text in kernels_of(emitted.plan.steps) if f"x86.{name}" in text]
    assert texts
    enabled = sorted({*LEVEL.abi_features, "amx-tile", "amx-bf16", "amx-int8"})
    switched_on = ", ".join(f'"+{one}"' for one in enabled)
    features = f"#llvm.target_features<[{switched_on}]>"
    for number, text in enumerate(dict.fromkeys(texts)):
        symbol = codegen.function_name(text)
        assert codegen.has_tiles(symbol)
        for quickly in (False, True):
            code, _ = made(named(text, symbol), symbol, codegen.BEST, features, quickly=quickly)
            file = tmp_path / f"{number}.o"
            file.write_bytes(code)
            shown = subprocess.run(
                ["objdump", "-d", file], check=True, capture_output=True, text=True
            )
            found = re.findall(
                r"\b(?:tdpb\w+|ldtilecfg|tilerelease|tileloadd|tilestored)\b", shown.stdout
            )
            assert {name, "ldtilecfg", "tilerelease", "tileloadd", "tilestored"} == {*found}
            assert found.count("ldtilecfg") == 1


def test_other_kernels_need_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_unit, "is_granted", lambda: pytest.fail("it was asked for"))
    dot = symbolic("mk,kn", "", "k", lhs_type="f32", rhs_type="f32", type="f32")
    texts = [*kernels_of(plan_of(emit_dense, dot.text(), HARD).plan.steps)]
    texts += kernels_of(plan_of(emit_dense, dot.text(), SOFT).plan.steps)
    assert kept.runs(map(codegen.function_name, texts))


# ---------------------------------------------------------------- the permission


@pytest.mark.parametrize("error", [0, errno.ENOSPC, errno.EINVAL])
def test_asking_the_system(error: int) -> None:
    asked = []

    def call(*numbers: int) -> int:
        asked.append(numbers)
        ctypes.set_errno(error)
        return -1 if error else 0

    assert matrix_unit._ask(call) == (os.strerror(error) if error else "")
    assert asked == [(158, 0x1023, 18)]


def test_a_refusal_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_unit, "is_granted", lambda: False)
    dot = symbolic("mk,kn", "", "k", lhs_type="bf16", rhs_type="bf16", type="f32")
    texts = [*kernels_of(plan_of(emit_dense, dot.text(), HARD).plan.steps)]
    assert not any("x86.t" in text for text in texts)
    # Neither are programs that another process kept, which may use it.
    assert not kept.runs(["k1", "t2"])
    assert kept.runs(["k1"])


def test_after_a_refusal_no_programs_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHLO_DISC_CACHE", "1")
    monkeypatch.setenv("SHLO_DISC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(entries, "_code_alone", [])
    assert entries.current("programs") is not None
    entries.keep_code_alone("for a test")
    assert entries.current("programs") is None
    assert entries.current() is not None


def test_the_flag_says_what_is_used() -> None:
    assert not with_tiles(HARD, "0").features & matrix_unit.HARDWARE
    assert with_tiles(HARD, "1") is HARD
    soft = with_tiles(HARD, "soft")
    assert matrix_unit.SOFT in soft.features
    assert soft.has_tiles("amx_bf16")
    assert not dataclasses.replace(
        soft, features=frozenset({matrix_unit.SOFT}), vector_bytes=16
    ).has_tiles("amx_bf16")


# ---------------------------------------------------------------- whole programs


def test_random_products_through_jit() -> None:
    command = [sys.executable, "-m", "tests.lower.matrix_products", "12"]
    environment = os.environ | {"SHLO_DISC_AMX": "soft", "SHLO_DISC_CACHE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

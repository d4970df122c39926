"""Sorts by digits, interpreted: rows of one tile and of several, every kind of key."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shlo_disc.lower.gpu import radix_sort
from shlo_disc.lower.gpu.block_sort import BlockSort
from shlo_disc.lower.gpu.radix_tiles import MOST_ELEMENTS as TILE
from shlo_disc.lower.plan import kernels_of
from tests.cases import crossed, slow
from tests.gpu import values
from tests.gpu.run import gpu_plan, launches_of, run_gpu
from tests.lower import test_sort
from tests.lower.helpers import sample

COUNT, SUMS, MOVE = "radix_count", "radix_sums", "radix_move"
FORMATS = {"f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
           "bf16": np.dtype(ml_dtypes.bfloat16)}  # fmt: skip


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_sort, "plan_of", lambda emit, text: gpu_plan(text))


@pytest.fixture
def no_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows longer than a tile are sorted by digits, however many these are."""
    monkeypatch.setattr(BlockSort, "_longest_merged", lambda sort: sort.longest)


def total(word: str = "LT", name: str = "f32") -> str:
    return test_sort.less(name, word, "TOTALORDER")


def as_jax_sorts(name: str, word: str = "LT") -> str:
    """-0.0 and 0.0 are equal, and all NaN, which are last in ascending order."""
    scalar, pair = f"tensor<{name}>", f"(tensor<{name}>, tensor<{name}>) -> tensor<i1>"
    bits, form = FORMATS[name].itemsize * 8, {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[name]
    nan = ((1 << bits - 1) - 1) >> form - 1 << form - 1
    lines = [
        f"%zero = stablehlo.constant dense<0.0> : {scalar}",
        f"%nan = stablehlo.constant dense<0x{nan:0{bits // 4}X}> : {scalar}",
    ]
    for side in "lr":
        lines += [
            f"%{side}a = stablehlo.compare EQ, %{side}0, %zero, FLOAT : {pair}",
            f"%{side}b = stablehlo.select %{side}a, %zero, %{side}0 : tensor<i1>, {scalar}",
            f"%{side}c = stablehlo.compare NE, %{side}0, %{side}0, FLOAT : {pair}",
            f"%{side}d = stablehlo.select %{side}c, %nan, %{side}b : tensor<i1>, {scalar}",
        ]
    lines.append(f"%r = stablehlo.compare {word}, %ld, %rd, TOTALORDER : {pair}")
    return "\n".join(lines)


def names(plan, arrays) -> list[str]:
    return [launch.kernel.name for launch in launches_of(plan, arrays)]


def raw_keys(x: np.ndarray) -> np.ndarray:
    """Integers in the total order of floats; other elements as they are."""
    if x.dtype not in FORMATS.values():
        return x.astype(np.uint8) if x.dtype == bool else x
    bits = 8 * x.dtype.itemsize
    raw = x.view(f"i{bits // 8}")
    return np.where(raw < 0, raw ^ np.array((1 << bits - 1) - 1, raw.dtype), raw)


def order_of(keys: np.ndarray, word: str) -> np.ndarray:
    """The stable order; a descending one is that of the row turned around, turned around."""
    if word == "LT":
        return np.argsort(keys, -1, kind="stable")
    turned = np.argsort(keys[..., ::-1], -1, kind="stable")[..., ::-1]
    return keys.shape[-1] - 1 - turned


def check(plan, x: np.ndarray, keys: np.ndarray, word: str, seed: int = 0) -> None:
    """`x` and the places of its elements, sorted by `keys`."""
    places = np.broadcast_to(np.arange(x.shape[-1], dtype=np.int32), x.shape)
    found = run_gpu(plan, [x, places], seed=seed)
    order = order_of(keys, word)
    np.testing.assert_array_equal(found[1], order)
    want = np.take_along_axis(x, order, -1)
    assert found[0].tobytes() == want.tobytes()


def special(name: str, n: int, seed: int) -> np.ndarray:
    """Few values, some of which differ in their bits alone, and every special one."""
    x = values.sample(name, n, seed)
    r = np.random.default_rng(seed)
    if x.dtype in FORMATS.values():
        few = np.array([0.0, -0.0, np.nan, -np.nan, 1, -1, np.inf, -np.inf], x.dtype)
        is_few = r.integers(0, 2, n).astype(bool)
        x = np.where(is_few, r.choice(few, n), x)
    return x


@pytest.mark.parametrize("word", ["LT", "GT"])
def test_rows_of_one_tile(word):
    plan = test_sort.sorting("b,n", ["f32", "i32"], 1, total(word))
    for n in (449, 509, 1024, 1025, 1793, TILE - 1, TILE):
        x = special("f32", 3 * n, n).reshape(3, n)
        check(plan, x, raw_keys(x), word, seed=n)
        assert names(plan, [x, x.view(np.int32)]) == ["sort_radix_tiles"]


@pytest.mark.usefixtures("no_merges")
@pytest.mark.parametrize(("rows", "word"), crossed([1, 2], ["LT", "GT"]))
def test_rows_of_several_tiles(rows, word):
    plan = test_sort.sorting("b,n", ["f32", "i32"], 1, total(word))
    for n in (TILE + 1, 4096, 4097, 7919):
        x = special("f32", rows * n, n).reshape(rows, n)
        check(plan, x, raw_keys(x), word, seed=n)
        assert names(plan, [x, x.view(np.int32)]) == [COUNT, MOVE] * 4


@pytest.mark.usefixtures("no_merges")
@pytest.mark.parametrize(
    ("name", "word"),
    [
        *((name, "LT") for name in FORMATS if name != "f16"),
        ("f32", "GT"),
        *slow([("f16", "LT"), *((name, "GT") for name in FORMATS if name != "f32")]),
    ],
)
def test_floats_as_jax_sorts_them(name, word):
    plan = test_sort.sorting("b,n", [name, "i32"], 1, as_jax_sorts(name, word))
    for n in (1000, 4099):
        x = special(name, 2 * n, n).reshape(2, n)
        canonical = np.where(x.astype(np.float64) == 0, x.dtype.type(0), x)
        canonical = np.where(np.isnan(x), np.array(np.nan, x.dtype), canonical)
        check(plan, x, raw_keys(canonical), word)


INTEGERS = ["i1", "i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64"]


@pytest.mark.usefixtures("no_merges")
@pytest.mark.parametrize(
    ("name", "word"),
    [
        *((name, "LT") for name in INTEGERS if name != "i32"),
        ("i32", "GT"),
        *slow([("i32", "LT"), *((name, "GT") for name in INTEGERS if name != "i32")]),
    ],
)
def test_integers_of_every_width(name, word):
    plan = test_sort.sorting("b,n", [name, "i32"], 1, test_sort.less(name, word))
    for n in (601, 4099):
        x = sample((2, n), name, n)
        check(plan, x, raw_keys(x), word, seed=n)
        digits = -(-x.dtype.itemsize // 1)
        assert names(plan, [x, x]) == (["sort_radix_tiles"] if n < TILE else [COUNT, MOVE] * digits)


@pytest.mark.usefixtures("no_merges")
@pytest.mark.parametrize("name", [*slow(["f64"]), "f16", *slow(["bf16"])])
def test_total_order_of_every_float(name):
    plan = test_sort.sorting("b,n", [name, "i32"], 1, total("GT", name))
    for n in (700, 4100):
        x = special(name, n, n).reshape(1, n)
        check(plan, x, raw_keys(x), "GT")


@pytest.mark.usefixtures("no_merges")
def test_duplicates_everywhere():
    plan = test_sort.sorting("b,n", ["i32", "i32"], 1, test_sort.less("i32"))
    for n in (1500, 5000):
        for x in (np.zeros((1, n), np.int32), np.full((1, n), -1, np.int32)):
            check(plan, x, x, "LT")
        x = np.random.default_rng(n).integers(-2, 2, (1, n)).astype(np.int32) << 24
        check(plan, x, x, "LT")


@pytest.mark.usefixtures("no_merges")
def test_counters_of_many_tiles_are_added_up_by_a_launch(monkeypatch):
    """Also where a row has more tiles than a block has threads."""
    plan = test_sort.sorting("b,n", ["ui16", "i32"], 1, test_sort.less("ui16"))
    x = sample((2, 33 * 1024), "ui16", 0)
    check(plan, x, x, "LT")
    assert names(plan, [x, x]) == [COUNT, SUMS, MOVE] * 2
    monkeypatch.setattr(radix_sort, "_BLOCKS", 1 << 20)  # tiles of 1024 elements
    plan = test_sort.sorting("b,n", ["ui8", "i32"], 1, test_sort.less("ui8"))
    x = sample((1, 258 * 1024 + 7), "ui8", 1)
    check(plan, x, x, "LT")
    assert names(plan, [x, x]) == [COUNT, SUMS, MOVE]


@pytest.mark.usefixtures("no_merges")
@pytest.mark.parametrize("dimension", [0, 1])
def test_along_any_dimension_with_several_operands(dimension):
    kinds = ["bf16", "f64", "i8", "i1", "i32"]
    body = total("LT", "f64").replace("%l0", "%l1").replace("%r0", "%r1")
    plan = test_sort.sorting("a,b,c", kinds, dimension, body, yielded=[0, 2, 3, 4])
    for shape in ((3100, 2, 3), (2, 3100, 3), (600, 2, 2), (2, 600, 2), (0, 2, 3), (3, 0, 2)):
        arrays = [sample(shape, kind, 1) for kind in kinds]
        arrays[1] = np.round(arrays[1])
        order = np.argsort(raw_keys(arrays[1]), dimension, kind="stable")
        found = run_gpu(plan, arrays)
        for got, array in zip(found, [arrays[k] for k in (0, 2, 3, 4)], strict=True):
            np.testing.assert_array_equal(got, np.take_along_axis(array, order, dimension))


def test_which_rows_are_sorted_by_digits():
    """Merges move less memory up to 16 tiles of 4-byte keys, 8 tiles less of fewer digits."""
    for name, first in (("i32", 28672), ("ui8", TILE), ("i16", 3584), ("i64", 1792 << 10)):
        plan = test_sort.sorting("n", [name], 0, test_sort.less(name))

        def by_digits(n: int, plan=plan) -> bool:
            return COUNT in [launch.kernel.name for launch in _at(plan, n)]

        assert [by_digits(n) for n in (first, first + 1)] == [False, True]
        assert not by_digits(1 << 31)
        assert by_digits((1 << 31) - 1)
        passes = [launch.kernel.name for launch in _at(plan, 1 << 22)]
        bits = {"i32": 32, "ui8": 8, "i16": 16, "i64": 64}[name]
        assert passes == [COUNT, SUMS, MOVE] * (bits // 8)


def _at(plan, n: int):
    return launches_of(plan, [np.zeros(0, np.uint8)] * len(plan.symbols), {"n": n})


@pytest.mark.parametrize("n", ["400", "1000", "5000", "50000"])
def test_known_sizes_have_no_other_kernels(n):
    plan = test_sort.sorting(n, ["i32"], 0, test_sort.less("i32"))
    found = {kernel.name for kernel in kernels_of(plan.plan.steps)}
    assert (
        found
        == {
            "400": {"sort_tiles"},
            "1000": {"sort_radix_tiles"},
            "5000": {"sort_tiles", "sort_merge"},
            "50000": {COUNT, SUMS, MOVE},
        }[n]
    )


OTHER = {
    "partial_order": test_sort.less("f32"),
    "or_equal": test_sort.less("i32", "LE"),
    "other_functions": """%a = stablehlo.negate %l0 : tensor<i32>
      %r = stablehlo.compare LT, %a, %r0 : (tensor<i32>, tensor<i32>) -> tensor<i1>""",
    "one_record": """%a = stablehlo.negate %l0 : tensor<i32>
      %r = stablehlo.compare LT, %l0, %a : (tensor<i32>, tensor<i32>) -> tensor<i1>""",
    "two_keys": """%a = stablehlo.add %l0, %l1 : tensor<i32>
      %b = stablehlo.add %r0, %r1 : tensor<i32>
      %r = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>""",
    "crossed": """%a = stablehlo.add %l0, %r0 : tensor<i32>
      %b = stablehlo.add %r0, %l0 : tensor<i32>
      %r = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>""",
    "constants": """%c = stablehlo.constant dense<1> : tensor<i32>
      %d = stablehlo.constant dense<2> : tensor<i32>
      %a = stablehlo.remainder %l0, %c : tensor<i32>
      %b = stablehlo.remainder %r0, %d : tensor<i32>
      %r = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>""",
    "inverted": """%a = stablehlo.compare LT, %l0, %r0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %r = stablehlo.not %a : tensor<i1>""",
}


@pytest.mark.parametrize("case", OTHER)
def test_other_comparators_are_merged(case):
    name = "f32" if case == "partial_order" else "i32"
    plan = test_sort.sorting("n", [name, name], 0, OTHER[case])
    assert {launch.kernel.name for launch in _at(plan, 1 << 20)} == {"sort_tiles", "sort_merge"}


@pytest.mark.parametrize("operands", ["%r0, %l0", "%l0, %r0"])
def test_a_function_of_one_operand_is_a_key(operands):
    """Sorted by the bits of `x mod 7`, turned over; the second record first is descending."""
    left, right = operands.split(", ")
    body = f"""%c = stablehlo.constant dense<7> : tensor<i32>
      %a = stablehlo.remainder {left}, %c : tensor<i32>
      %b = stablehlo.remainder {right}, %c : tensor<i32>
      %d = stablehlo.negate %a : tensor<i32>
      %e = stablehlo.negate %b : tensor<i32>
      %r = stablehlo.compare LT, %d, %e : (tensor<i32>, tensor<i32>) -> tensor<i1>"""
    plan = test_sort.sorting("b,n", ["i32", "i32"], 1, body)
    x = np.random.default_rng(0).integers(0, 1000, (2, 900)).astype(np.int32)
    check(plan, x, -(x % 7), "GT" if left == "%r0" else "LT")
    assert names(plan, [x, x]) == ["sort_radix_tiles"]

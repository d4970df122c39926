"""Floats of 4, 6 and 8 bits and integers of 2 and 4, beside ml_dtypes: every value there is."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import shlo_disc
from shlo_disc.ir.element_types import ELEMENT_TYPES, FLOATS, ElementType, Special
from tests.cases import all_but

NARROW = [name for name, row in ELEMENT_TYPES.items() if row.kind == "f" and row.bits < 16]
SMALL = [name for name, row in ELEMENT_TYPES.items() if row.kind in "iu" and row.bits < 8]


def all_of(name: str) -> np.ndarray:
    """Every value of a type, as an array of it."""
    row = ELEMENT_TYPES[name]
    if row.kind == "f":
        return np.arange(1 << row.bits, dtype=np.uint8).view(row.dtype)
    low = -(1 << row.bits - 1) if row.kind == "i" else 0
    return np.arange(low, low + (1 << row.bits)).astype(row.dtype)


def bits(array: np.ndarray) -> np.ndarray:
    """As unsigned integers, each NaN as one of them: which NaN an operation gives is open."""
    raw = array.view(f"uint{8 * array.dtype.itemsize}").copy()
    if array.dtype.kind in "fV" and not array.dtype.name.startswith(("int", "uint", "float4")):
        raw[np.isnan(array.astype(np.float64))] = 0x7F
    return raw


@functools.cache
def conversions(name: str) -> shlo_disc.Executable:
    """f32, f64, i32 and i64 to a type, and the type to f32, i32 and bf16."""
    t = f"tensor<?x{name}>"
    source = [f"tensor<?x{k}>" for k in ("f32", "f64", "i32", "i64")]
    arguments = ", ".join(f"%a{k}: {s}" for k, s in enumerate(source))
    lines = [f"%r{k} = stablehlo.convert %a{k} : ({s}) -> {t}" for k, s in enumerate(source)]
    wide = ["f32", "i32", "bf16"]
    lines += [f"%w{k} = stablehlo.convert %x : ({t}) -> tensor<?x{w}>" for k, w in enumerate(wide)]
    kinds = ", ".join([t] * 4 + [f"tensor<?x{w}>" for w in wide])
    values = ", ".join([*(f"%r{k}" for k in range(4)), *(f"%w{k}" for k in range(3))])
    return shlo_disc.compile(
        f"func.func public @main({arguments}, %x: {t}) -> ({kinds}) {{\n"
        + "\n".join(lines)
        + f"\nreturn {values} : {kinds}\n}}"
    )


def hard_floats(name: str) -> np.ndarray:
    """Values of the type, midpoints of neighbours, what is next to those, and specials, as f64."""
    values = all_of(name).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    middle = (values[1:] + values[:-1]) / 2
    steps = np.spacing(np.abs(middle).astype(np.float32)).astype(np.float64)
    most = values.max()
    beyond = most * np.array([1.01, 1.0624, 1.0625, 1.0626, 1.124, 1.125, 1.126, 1.25, 2, 1e3])
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-40, 3e38, -3e38])
    near = [values, middle, middle - steps, middle + steps]
    every = np.concatenate([*near, beyond, -beyond, special])
    if FLOATS[name].special is Special.SCALE:  # ml_dtypes rounds denormals of f32 up
        every = every[(np.abs(every) >= 2.0**-126) | (every == 2.0**-127)]
    return every


def check_floats(name: str, got: np.ndarray, numbers: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        want = numbers.astype(ELEMENT_TYPES[name].dtype)
    np.testing.assert_array_equal(bits(np.asarray(got)), bits(want), err_msg=name)


@pytest.mark.parametrize("name", NARROW)
def test_conversions_of_narrow_floats(name):
    f64 = hard_floats(name)
    f32 = np.concatenate([f64.astype(np.float32), np.float32([np.nan, -np.nan])])
    whole = np.arange(-70000, 70000, 7).astype(np.int32)
    values = all_of(name)
    r32, r64, ri, rl, w32, wi, wh = conversions(name)(f32, f64, whole, whole * np.int64(3), values)
    check_floats(name, r32, f32)
    # ml_dtypes rounds f64 to f32 first: only numbers that f32 has are rounded once there.
    once = f64.astype(np.float32).astype(np.float64) == f64
    check_floats(name, np.asarray(r64)[once], f64[once])
    check_floats(name, ri, whole.astype(np.float32))
    check_floats(name, rl, (whole * np.int64(3)).astype(np.float32))
    np.testing.assert_array_equal(w32, values.astype(np.float32))
    number = ~np.isnan(values.astype(np.float32))
    signs = np.signbit(np.asarray(w32)), np.signbit(values.astype(np.float32))
    np.testing.assert_array_equal(signs[0][number], signs[1][number])
    exact = values.astype(np.float32).astype(np.float64)
    known = np.isfinite(exact) & (np.abs(exact) < 2**31)
    np.testing.assert_array_equal(np.asarray(wi)[known], exact[known].astype(np.int32))
    np.testing.assert_array_equal(np.asarray(wh).astype(np.float64), exact)


@functools.cache
def arithmetic(name: str) -> shlo_disc.Executable:
    """Ops of two values, of one value, a comparison and a sum."""
    t, i1 = f"tensor<?x{name}>", "tensor<?xi1>"
    zero = "0.0" if ELEMENT_TYPES[name].kind == "f" else "0"
    two = ["add", "subtract", "multiply", "maximum", "minimum"]
    one = ["negate", "abs"] if ELEMENT_TYPES[name].kind != "u" else ["negate"]
    if ELEMENT_TYPES[name].kind == "f":
        two.append("divide")
    else:
        two += ["and", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic"]
        one += ["not", "popcnt", "count_leading_zeros"]
    lines = [f"%t{k} = stablehlo.{op} %x, %y : {t}" for k, op in enumerate(two)]
    lines += [f"%u{k} = stablehlo.{op} %x : {t}" for k, op in enumerate(one)]
    lines += [
        f"%c = stablehlo.compare LT, %x, %y : ({t}, {t}) -> {i1}",
        f"%zero = stablehlo.constant dense<{zero}> : tensor<{name}>",
        "%s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : "
        f"({t}, tensor<{name}>) -> tensor<{name}>",
    ]
    values = [
        *(f"%t{k}" for k in range(len(two))),
        *(f"%u{k}" for k in range(len(one))),
        "%c",
        "%s",
    ]
    kinds = ", ".join([t] * (len(two) + len(one)) + [i1, f"tensor<{name}>"])
    made = shlo_disc.compile(
        f"func.func public @main(%x: {t}, %y: {t}) -> ({kinds}) {{\n"
        + "\n".join(lines)
        + f"\nreturn {', '.join(values)} : {kinds}\n}}"
    )
    made.ops = [*two, *one]
    return made


def pairs(name: str) -> tuple[np.ndarray, np.ndarray]:
    values = all_of(name)
    if len(values) > 64:
        values = values[np.random.default_rng(0).permutation(len(values))[:64]]
    return np.repeat(values, len(values)), np.tile(values, len(values))


FLOAT_OPS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "maximum": np.maximum, "minimum": np.minimum, "negate": np.negative, "abs": np.abs,
}  # fmt: skip


LIKE_OTHERS = ("f6E3M2FN", "f8E3M4", "f8E4M3", "f8E4M3FNUZ", "f8E5M2")
"""Types that are computed like others; all are converted."""


@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, NARROW))
def test_arithmetic_of_narrow_floats(name):
    x, y = pairs(name)
    program = arithmetic(name)
    *results, less, _ = program(x, y)
    a, b = x.astype(np.float32), y.astype(np.float32)
    for op, got in zip(program.ops, results, strict=True):
        with np.errstate(all="ignore"):
            want = FLOAT_OPS[op](
                *(
                    (a, b)
                    if op in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
                    else (a,)
                )
            )
            want = want.astype(np.float32)
        if op in ("maximum", "minimum"):  # NumPy does not order zeros
            both = (a == 0) & (b == 0)
            got, want = np.asarray(got)[~both], want[~both]
        if FLOATS[name].special is Special.FINITE:  # NaN becomes a zero of either sign
            known = ~np.isnan(want)
            got, want = np.asarray(got)[known], want[known]
        check_floats(name, got, want)
    np.testing.assert_array_equal(less, a < b)


@pytest.mark.parametrize("name", SMALL)
def test_arithmetic_of_small_integers(name):
    row = ELEMENT_TYPES[name]
    x, y = pairs(name)
    program = arithmetic(name)
    *results, less, total = program(x, y)
    a, b = x.astype(np.int64), y.astype(np.int64)
    mask, top = (1 << row.bits) - 1, 1 << row.bits - 1
    inside = (b & mask) < row.bits
    reference = {
        "add": a + b, "subtract": a - b, "multiply": a * b, "and": a & b, "xor": a ^ b,
        "maximum": np.maximum(a, b), "minimum": np.minimum(a, b), "negate": -a, "abs": np.abs(a),
        "not": ~a, "popcnt": np.bitwise_count(a & mask),
        "count_leading_zeros": row.bits - np.ceil(np.log2((a & mask) + 1)).astype(np.int64),
        "shift_left": np.where(inside, a << (b & 7), 0),
        "shift_right_logical": np.where(inside, (a & mask) >> (b & 7), 0),
        "shift_right_arithmetic": ((a & mask ^ top) - top) >> np.where(inside, b & 7, row.bits - 1),
    }  # fmt: skip
    for op, got in zip(program.ops, results, strict=True):
        np.testing.assert_array_equal(
            np.asarray(got).astype(np.int64) & mask, reference[op] & mask, err_msg=op
        )
        assert np.asarray(got).dtype == row.dtype
    np.testing.assert_array_equal(less, a < b)
    assert int(total) & mask == int(a.sum()) & mask
    # What lies in memory is a number of the type: NumPy reads all eight bits.
    for got in results:
        np.testing.assert_array_equal(
            np.asarray(got), np.asarray(got).astype(np.int64).astype(row.dtype)
        )


@pytest.mark.parametrize("name", SMALL)
def test_conversions_of_small_integers(name):
    row = ELEMENT_TYPES[name]
    f32 = np.float32([-1e9, -9, -8.5, -2, -1.5, -0.5, 0, 0.5, 1, 3, 7.9, 8, 15.5, 16, 300, np.nan])
    whole = np.arange(-300, 300).astype(np.int32)
    values = all_of(name)
    r32, _, ri, rl, w32, wi, wh = conversions(name)(
        f32, f32.astype(np.float64), whole, whole.astype(np.int64), values
    )
    low, high = values.astype(np.int64).min(), values.astype(np.int64).max()
    clipped = np.nan_to_num(np.clip(np.trunc(f32), low, high)).astype(np.int64)
    np.testing.assert_array_equal(np.asarray(r32).astype(np.int64), clipped)
    mask = (1 << row.bits) - 1
    for got in (ri, rl):
        np.testing.assert_array_equal(np.asarray(got).astype(np.int64) & mask, whole & mask)
    for got in (w32, wi, wh):
        np.testing.assert_array_equal(np.asarray(got).astype(np.int64), values.astype(np.int64))


@pytest.mark.parametrize("name", ["f8E4M3FN", "f8E5M2", "i4", "ui2"])
def test_constants_products_and_data_movement(name):
    row = ELEMENT_TYPES[name]
    numbers = "[0.5, -2.0, 3.5]" if row.kind == "f" else "[1, 0, 1]"
    out = "f32" if row.kind == "f" else "i32"
    t = f"tensor<?x3x{name}>"
    program = shlo_disc.compile(
        f"""func.func public @main(%x: {t}, %w: tensor<3x5x{name}>)
            -> (tensor<?x3x{name}>, tensor<?x5x{out}>, tensor<3x{name}>) {{
          %c = stablehlo.constant dense<{numbers}> : tensor<3x{name}>
          %n = stablehlo.get_dimension_size %x, dim = 0 : ({t}) -> tensor<i32>
          %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
          %three = stablehlo.constant dense<3> : tensor<1xi32>
          %shape = stablehlo.concatenate %n1, %three, dim = 0
              : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
          %b = stablehlo.dynamic_broadcast_in_dim %c, %shape, dims = [1]
              : (tensor<3x{name}>, tensor<2xi32>) -> {t}
          %r = stablehlo.reverse %x, dims = [1] : {t}
          %s = stablehlo.add %r, %b : {t}
          %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
              : ({t}, tensor<3x5x{name}>) -> tensor<?x5x{out}>
          return %s, %p, %c : {t}, tensor<?x5x{out}>, tensor<3x{name}>
        }}"""
    )
    rng = np.random.default_rng(1)
    values = all_of(name)
    if row.kind == "f":
        values = values[np.abs(values.astype(np.float32)) <= 16]
    wide = np.float32 if row.kind == "f" else np.int64
    for size in (0, 1, 7):
        x, w = rng.choice(values, (size, 3)), rng.choice(values, (3, 5))
        total, product, constant = program(x, w)
        c = np.array(constant).astype(wide)
        np.testing.assert_array_equal(c, np.array(eval(numbers), wide))
        np.testing.assert_array_equal(product, x.astype(wide) @ w.astype(wide))
        want = x[:, ::-1].astype(wide) + c
        if row.kind == "f":
            want = want.astype(row.dtype).astype(wide)
            np.testing.assert_array_equal(np.asarray(total).astype(wide), want)
        else:
            mask = (1 << row.bits) - 1
            np.testing.assert_array_equal(np.asarray(total).astype(wide) & mask, want & mask)


@pytest.mark.parametrize("name", ["i4", "ui2", "f4E2M1FN"])
def test_arrays_that_jax_packs(name):
    jax = pytest.importorskip("jax")
    row = ELEMENT_TYPES[name]
    t = f"tensor<?x{name}>"
    twice = shlo_disc.compile(
        f"func.func public @main(%x: {t}) -> {t} {{\n%y = stablehlo.add %x, %x : {t}\n"
        f"return %y : {t}\n}}"
    )
    x = np.arange(3).astype(row.dtype)
    want = np.asarray(twice(x)[0]).astype(np.float32)
    (result,) = twice(jax.numpy.asarray(x))
    np.testing.assert_array_equal(np.asarray(result).astype(np.float32), want)
    np.testing.assert_array_equal(result.astype(jax.numpy.float32), want)
    # Inside a program they are like any other type.
    inside = shlo_disc.jit(lambda x: x.astype(row.dtype).astype("float32"))
    np.testing.assert_array_equal(inside(np.float32([0, 1, 2])), x.astype(np.float32))


def random_bits(row: ElementType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Every bit is random; in front of narrow floats and truth values there are zeros."""
    random = np.random.default_rng(seed).integers(0, 256, (*shape, row.bytes)).astype(np.uint8)
    if row.bits < 8 and row.kind in "bf":
        random &= (1 << row.bits) - 1
    return random.view(row.dtype)[..., 0]


def bits_of(array: np.ndarray, row: ElementType) -> np.ndarray:
    """The bits of all elements, lowest first, one after the other."""
    raw = np.ascontiguousarray(array).view(np.uint8).reshape(array.size, row.bytes)
    return np.unpackbits(raw, axis=1, bitorder="little")[:, : row.bits].reshape(-1)


@pytest.mark.parametrize("name", [row.name for row in ELEMENT_TYPES.values() if row.bits < 5])
def test_bits_of_several_elements_are_those_of_a_wider_one(name):
    """Both ways, for every type whose width is a multiple."""
    row = ELEMENT_TYPES[name]
    wider = [w for w in ELEMENT_TYPES.values() if w.bits > row.bits and w.bits % row.bits == 0]
    pairs = [(f"tensor<?x{w.bits // row.bits}x{name}>", f"tensor<?x{w.name}>") for w in wider]
    types = [kind for pair in pairs for kind in pair]
    results = [kind for pair in pairs for kind in reversed(pair)]
    head = ", ".join(f"%x{k}: {kind}" for k, kind in enumerate(types))
    body = "\n".join(
        f"%y{k} = stablehlo.bitcast_convert %x{k} : ({a}) -> {b}"
        for k, (a, b) in enumerate(zip(types, results, strict=True))
    )
    values = ", ".join(f"%y{k}" for k in range(len(types)))
    program = shlo_disc.compile(
        f"func.func public @main({head}) -> ({', '.join(results)}) {{\n{body}\n"
        f"return {values} : {', '.join(results)}\n}}"
    )
    for n in (0, 1, 3, 37):
        given, rows = [], []
        for w in wider:
            given += [random_bits(row, (n, w.bits // row.bits), n), random_bits(w, (n,), n + 1)]
            rows += [(row, w), (w, row)]
        got = program.run_numpy(given)
        for x, y, (source, target) in zip(given, got, rows, strict=True):
            assert y.dtype == target.dtype
            np.testing.assert_array_equal(bits_of(y, target), bits_of(x, source))


@pytest.mark.parametrize("name", [*NARROW, *SMALL])
def test_top_k_of_narrow_types(name):
    """Signs are not the highest bit of a byte, and upper bits of a byte are undefined."""
    values = all_of(name)
    numbers = values.astype(np.float64)
    order = np.random.default_rng(0).permutation(np.resize(np.flatnonzero(~np.isnan(numbers)), 90))
    x, numbers = values[order], numbers[order]
    t, counts = f"tensor<90x{name}>", (7, 70)  # by insertion, by sorting
    kinds = [(f"tensor<{k}x{name}>", f"tensor<{k}xi32>") for k in counts]
    lines = [
        f"%v{k}, %i{k} = chlo.top_k(%x, k = {k}) : {t} -> ({v}, {i})"
        for k, (v, i) in zip(counts, kinds, strict=True)
    ]
    every = ", ".join(f"{v}, {i}" for v, i in kinds)
    names = ", ".join(f"%v{k}, %i{k}" for k in counts)
    text = "\n".join([*lines, f"return {names} : {every}"])
    executable = shlo_disc.compile(f"func.func public @main(%x: {t}) -> ({every}) {{\n{text} }}")
    found = executable.run_numpy([x])
    signed = np.where(numbers == 0, np.where(np.signbit(numbers), -1e-300, 0), numbers)
    for k, got, places in zip(counts, found[::2], found[1::2], strict=True):
        want = np.argsort(-signed, kind="stable")[:k]
        got = got.astype(np.float64)
        np.testing.assert_array_equal(places, want)
        np.testing.assert_array_equal(got, numbers[want])
        np.testing.assert_array_equal(np.signbit(got), np.signbit(numbers[want]))


@pytest.mark.parametrize("name", NARROW)
def test_infinities_of_narrow_floats(name):
    """Types without infinities have none: the largest number is not one."""
    t = f"tensor<{1 << ELEMENT_TYPES[name].bits}x{name}>"
    flags = t.replace(name, "i1")
    ops = ("is_inf", "is_pos_inf", "is_neg_inf")
    lines = [f"%{op} = chlo.{op} %x : {t} -> {flags}" for op in ops]
    text = f"func.func public @main(%x: {t}) -> ({', '.join([flags] * 3)}) {{\n"
    text += "\n".join([*lines, f"return {', '.join(f'%{op}' for op in ops)} : "])
    executable = shlo_disc.compile(f"{text}{', '.join([flags] * 3)} }}")
    x = all_of(name)
    numbers = x.astype(np.float64)
    for found, want in zip(
        executable.run_numpy([x]),
        (np.isinf(numbers), np.isposinf(numbers), np.isneginf(numbers)),
        strict=True,
    ):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", NARROW)
def test_next_after_of_narrow_floats(name):
    """The neighbour in the order of all numbers, for all pairs."""
    t = f"tensor<?x{name}>"
    executable = shlo_disc.compile(
        f"""func.func public @main(%x: {t}, %y: {t}) -> {t} {{
          %r = chlo.next_after %x, %y : {t}, {t} -> {t}
          return %r : {t}
        }}"""
    )
    values = all_of(name)
    numbers = values.astype(np.float64)
    values, numbers = values[~np.isnan(numbers)], numbers[~np.isnan(numbers)]
    x, y = (g.ravel() for g in np.meshgrid(np.arange(len(values)), np.arange(len(values))))
    (got,) = executable.run_numpy([values[x], values[y]])
    order = np.unique(numbers)
    step = (numbers[y] > numbers[x]).astype(int) - (numbers[y] < numbers[x])
    place = np.searchsorted(order, numbers[x]) + step
    np.testing.assert_array_equal(got.astype(np.float64), order[place])


@pytest.mark.parametrize("dtype", ["i8", "ui8"])
def test_bytes_of_several_registers_change_places(dtype):
    """LLVM moved arithmetic across shuffles of bytes, there and back, without an end."""
    text = """func.func @main(%x: tensor<4xE>) -> (tensor<3xE>, tensor<3xE>) {
      %z = stablehlo.constant dense<0> : tensor<E>
      %m = stablehlo.constant dense<127> : tensor<E>
      %a:2 = "stablehlo.reduce_window"(%x, %x, %z, %m) ({
        ^bb0(%p: tensor<E>, %q: tensor<E>, %r: tensor<E>, %s: tensor<E>):
          %1 = stablehlo.xor %p, %r : tensor<E>
          %2 = stablehlo.minimum %q, %s : tensor<E>
          stablehlo.return %1, %2 : tensor<E>, tensor<E>
      }) {window_dimensions = array<i64: 1>, padding = dense<[[-1, 0]]> : tensor<1x2xi64>}
        : (tensor<4xE>, tensor<4xE>, tensor<E>, tensor<E>) -> (tensor<3xE>, tensor<3xE>)
      %b = stablehlo.add %a#0, %a#1 : tensor<3xE>
      %c = stablehlo.reverse %b, dims = [0] : tensor<3xE>
      return %c, %a#1 : tensor<3xE>, tensor<3xE> }"""
    compiled = shlo_disc.compile(text.replace("xE>", f"x{dtype}>").replace("<E>", f"<{dtype}>"))
    x = np.arange(4).astype(ELEMENT_TYPES[dtype].dtype)
    turned, least = compiled.run_numpy([x])
    np.testing.assert_array_equal(turned, 2 * x[:0:-1])
    np.testing.assert_array_equal(least, x[1:])

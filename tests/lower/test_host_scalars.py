"""Kind `host`: integer scalars in the host program, against numpy with wrap-around."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_disc
from shlo_disc.lower.host import scalars
from shlo_disc.lower.values.elementwise import SCALAR_OPS
from shlo_disc.passes.op_classes import HOST_SCALARS

TYPES = {"i8": np.int8, "ui8": np.uint8, "i16": np.int16, "ui16": np.uint16, "i32": np.int32,
         "ui32": np.uint32, "i64": np.int64, "ui64": np.uint64}  # fmt: skip
OPS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
DIRECTIONS = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal,
              "GT": np.greater, "GE": np.greater_equal}  # fmt: skip


def values(kind):
    info = np.iinfo(kind)
    return [kind(v) for v in (0, 1, 3, info.max, info.min, info.max - 1)]


def compiled(text):
    exe = shlo_disc.compile(text)
    assert {use.kind for use in exe.host.uses} == {"host"}
    return exe


@pytest.mark.parametrize("name", TYPES)
def test_arithmetic(name):
    kind, t = TYPES[name], f"tensor<{name}>"
    lines = [f"%r{k} = stablehlo.{op} %a, %b : {t}" for k, op in enumerate(OPS)]
    types = ", ".join([t] * len(OPS))
    results = ", ".join(f"%r{k}" for k in range(len(OPS)))
    exe = compiled(
        f"func.func @main(%a: {t}, %b: {t}) -> ({types}) {{\n" + "\n".join(lines)
        + f"\nreturn {results} : {types}\n}}"
    )  # fmt: skip
    with np.errstate(over="ignore"):
        for a in values(kind):
            for b in values(kind):
                for got, op in zip(exe.run_numpy([a, b]), OPS.values(), strict=True):
                    assert got == op(a, b), (op, a, b)


@pytest.mark.parametrize("name", TYPES)
def test_comparison_and_select(name):
    kind, t = TYPES[name], f"tensor<{name}>"
    lines = []
    for k, direction in enumerate(DIRECTIONS):
        sign = "UNSIGNED" if name.startswith("u") else "SIGNED"
        lines.append(
            f"%c{k} = stablehlo.compare {direction}, %a, %b, {sign} : ({t}, {t}) -> tensor<i1>"
        )
        lines.append(f"%r{k} = stablehlo.select %c{k}, %a, %b : tensor<i1>, {t}")
    flags = ", ".join(f"%c{k}" for k in range(6)) + ", " + ", ".join(f"%r{k}" for k in range(6))
    types = ", ".join(["tensor<i1>"] * 6 + [t] * 6)
    exe = compiled(
        f"func.func @main(%a: {t}, %b: {t}) -> ({types}) {{\n" + "\n".join(lines)
        + f"\nreturn {flags} : {types}\n}}"
    )  # fmt: skip
    for a in values(kind):
        for b in values(kind):
            got = exe.run_numpy([a, b])
            for k, compare in enumerate(DIRECTIONS.values()):
                assert got[k] == compare(a, b)
                assert got[6 + k] == (a if compare(a, b) else b)


@pytest.mark.parametrize(
    ("source", "target"), [(s, t) for s in [*TYPES, "i1"] for t in TYPES if s != t]
)
def test_conversion(source, target):
    kinds = {**TYPES, "i1": np.bool_}
    head = f"func.func @main(%a: tensor<{source}>) -> tensor<{target}>"
    types = f"(tensor<{source}>) -> tensor<{target}>"
    exe = compiled(
        f"{head} {{\n%r = stablehlo.convert %a : {types}\nreturn %r : tensor<{target}>\n}}"
    )
    inputs = [np.bool_(0), np.bool_(1)] if source == "i1" else values(TYPES[source])
    for a in inputs:
        expected = np.asarray(a).astype(kinds[target])
        assert exe.run_numpy([a])[0] == expected


def wrapped(value: int, kind: type) -> int:
    """A whole number in the bits of a type."""
    info = np.iinfo(kind)
    low = value % (1 << info.bits)
    return low - (1 << info.bits) if low > info.max else low


def divided(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def raised(a: int, b: int) -> int:
    if b < 0:
        return {1: 1, -1: 1 - 2 * (b & 1)}.get(a, 0)
    return pow(a, b, 1 << 64)


def shifted(a: int, b: int, bits: int, *, left: bool) -> int:
    """By the bits of `b` as an unsigned number."""
    by = b % (1 << bits)
    return 0 if by >= bits else a << by if left else (a % (1 << bits)) >> by


TWO = {
    "divide": lambda a, b, bits: divided(a, b),
    "power": lambda a, b, bits: raised(a, b),
    "remainder": lambda a, b, bits: a if b == 0 else a - divided(a, b) * b,
    "shift_left": lambda a, b, bits: shifted(a, b, bits, left=True),
    "shift_right_arithmetic": lambda a, b, bits: (
        wrapped(a, INTS[bits]) >> min(b % (1 << bits), bits - 1)
    ),
    "shift_right_logical": lambda a, b, bits: shifted(a, b, bits, left=False),
}
ONE = {
    "abs": lambda a, bits: abs(a),
    "count_leading_zeros": lambda a, bits: bits - (a % (1 << bits)).bit_length(),
    "negate": lambda a, bits: -a,
    "not": lambda a, bits: ~a,
    "popcnt": lambda a, bits: (a % (1 << bits)).bit_count(),
    "sign": lambda a, bits: (a > 0) - (a < 0),
}
INTS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


@pytest.mark.parametrize("name", TYPES)
def test_operations_of_kernels(name):
    """In whole numbers of any size, wrapped to the type."""
    kind, t = TYPES[name], f"tensor<{name}>"
    unsigned = name.startswith("u")
    one = {op: of for op, of in ONE.items() if not (unsigned and op in ("abs", "sign"))}
    lines = [f"%o{op} = stablehlo.{op} %a : {t}" for op in one]
    lines += [f"%t{op} = stablehlo.{op} %a, %b : {t}" for op in TWO]
    lines += [f'%h = "chlo.mulhi"(%a, %b) : ({t}, {t}) -> {t}']
    lines += [f"%c = stablehlo.clamp %b, %a, %b : {t}"]
    lines += [f"%f = stablehlo.convert %a : ({t}) -> tensor<i1>"]
    other = name.removeprefix("u") if unsigned else f"u{name}"
    lines += [f"%g = stablehlo.bitcast_convert %a : ({t}) -> tensor<{other}>"]
    values_ = [*(f"%o{op}" for op in one), *(f"%t{op}" for op in TWO), "%h", "%c", "%f", "%g"]
    types = ", ".join([t] * (len(values_) - 2) + ["tensor<i1>", f"tensor<{other}>"])
    exe = compiled(
        f"func.func @main(%a: {t}, %b: {t}) -> ({types}) {{\n" + "\n".join(lines)
        + f"\nreturn {', '.join(values_)} : {types}\n}}"
    )  # fmt: skip
    bits = np.iinfo(kind).bits
    for a in (*values(kind), kind(bits), kind(2)):
        for b in (*values(kind), kind(bits), kind(2)):
            x, y = int(a), int(b)
            want = [wrapped(of(x, bits), kind) for of in one.values()]
            want += [wrapped(of(x, y, bits), kind) for of in TWO.values()]
            want += [wrapped(x * y >> bits, kind), y, x != 0, wrapped(x, TYPES[other])]
            got = [int(r) for r in exe.run_numpy([a, b])]
            assert got == want, (a, b, values_)


def test_logic_on_flags():
    ops = ("and", "or", "xor", "add", "multiply")
    lines = [f"%r{k} = stablehlo.{op} %a, %b : tensor<i1>" for k, op in enumerate(ops)]
    types = ", ".join(["tensor<i1>"] * len(ops))
    exe = compiled(
        f"func.func @main(%a: tensor<i1>, %b: tensor<i1>) -> ({types}) {{\n" + "\n".join(lines)
        + f"\nreturn {', '.join(f'%r{k}' for k in range(len(ops)))} : {types}\n}}"
    )  # fmt: skip
    for a in (False, True):
        for b in (False, True):
            got = [bool(x) for x in exe.run_numpy([np.bool_(a), np.bool_(b)])]
            assert got == [a and b, a or b, a != b, a or b, a and b]


def test_the_planner_asks_for_what_the_host_can():
    others = {"disc.dim", "disc.shape", "stablehlo.constant"}
    assert {*SCALAR_OPS, *scalars._SAME, *others} >= HOST_SCALARS

"""CHLO ops beside NumPy: what is expanded here, and what upstream expands, at several sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import special

import shlo_disc
from shlo_disc.base.errors import InvalidModuleError, ShapeMismatchError, UnsupportedError
from shlo_disc.ir.element_types import ELEMENT_TYPES
from tests.cases import all_but


def compiled(arguments: Sequence[str], result: str, body: str) -> shlo_disc.Executable:
    """The program that gives %r, computed from %0, %1, ..."""
    signature = ", ".join(f"%{k}: {kind}" for k, kind in enumerate(arguments))
    return shlo_disc.compile(
        f"func.func public @main({signature}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"
    )


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(0.5, 4, shape).astype("f4")


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(1, 9, shape, "i4")


BROADCASTING: dict[str, tuple[str, str, Callable[..., np.ndarray]]] = {
    "add": ("f32", "f32", np.add),
    "and": ("i32", "i32", np.bitwise_and),
    "atan2": ("f32", "f32", np.arctan2),
    "compare": ("f32", "i1", np.less),
    "complex": ("f32", "complex<f32>", lambda x, y: x + 1j * y),
    "divide": ("f32", "f32", np.divide),
    "maximum": ("f32", "f32", np.maximum),
    "minimum": ("f32", "f32", np.minimum),
    "multiply": ("f32", "f32", np.multiply),
    "next_after": ("f32", "f32", np.nextafter),
    "or": ("i32", "i32", np.bitwise_or),
    "polygamma": ("f32", "f32", lambda n, x: special.polygamma(np.floor(n), x)),
    "power": ("f32", "f32", np.power),
    "remainder": ("f32", "f32", np.fmod),
    "shift_left": ("i32", "i32", np.left_shift),
    "shift_right_arithmetic": ("i32", "i32", np.right_shift),
    "shift_right_logical": ("i32", "i32", np.right_shift),
    "subtract": ("f32", "f32", np.subtract),
    "xor": ("i32", "i32", np.bitwise_xor),
    "zeta": ("f32", "f32", lambda x, q: special.zeta(x + 1, q)),
}


@pytest.mark.parametrize("name", BROADCASTING)
def test_operands_are_broadcast(name):
    element, result, numpy = BROADCASTING[name]
    kinds = [f"tensor<?x1x{element}>", f"tensor<?x?x{element}>"]
    prefix, first = "", "%0"
    if name == "zeta":  # its first argument is above 1
        prefix = f"""%one = "chlo.constant_like"(%0) {{value = 1.0 : f32}}
            : ({kinds[0]}) -> {kinds[0]}
          %above = stablehlo.add %0, %one : {kinds[0]}\n"""
        first = "%above"
    if name == "polygamma":
        prefix = f"%whole = stablehlo.floor %0 : {kinds[0]}\n"
        first = "%whole"
    direction = "comparison_direction = #chlo<comparison_direction LT>"
    attributes = f" {{{direction}}}" if name == "compare" else ""
    program = compiled(
        kinds,
        f"tensor<?x?x{result}>",
        f'{prefix}%r = "chlo.broadcast_{name}"({first}, %1){attributes} '
        f": ({kinds[0]}, {kinds[1]}) -> tensor<?x?x{result}>",
    )
    draw = floats if element == "f32" else integers
    for b, t in ((1, 1), (3, 5), (17, 33)):
        x, y = draw(b, 1), draw(b, t)
        (got,) = program.run_numpy([x, y])
        np.testing.assert_allclose(got, numpy(x, y), rtol=2e-4 if name == "polygamma" else 2e-5)
    with pytest.raises(ShapeMismatchError):
        program.run_numpy([draw(3, 1), draw(2, 5)])


def test_ranks_may_differ():
    """Trailing dimensions go together, or those of `broadcast_dimensions`; scalars go with all."""
    body = """
      %b = "chlo.broadcast_add"(%0, %1) : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
      %c = "chlo.broadcast_multiply"(%b, %2) {broadcast_dimensions = array<i64: 0>}
         : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
      %r = "chlo.broadcast_subtract"(%3, %c) : (tensor<f32>, tensor<?x?xf32>) -> tensor<?x?xf32>"""
    program = compiled(
        ["tensor<?x?xf32>", "tensor<?xf32>", "tensor<?xf32>", "tensor<f32>"],
        "tensor<?x?xf32>",
        body,
    )
    for b, t in ((1, 4), (3, 2), (7, 19)):
        x, y, z, s = floats(b, t), floats(t), floats(b), floats()
        (got,) = program.run_numpy([x, y, z, s])
        np.testing.assert_allclose(got, s - (x + y) * z[:, None], rtol=1e-5)


def test_choices_are_broadcast():
    program = compiled(
        ["tensor<i1>", "tensor<?x1xf32>", "tensor<1x?xf32>"],
        "tensor<?x?xf32>",
        '%r = "chlo.broadcast_select"(%0, %1, %2) : '
        "(tensor<i1>, tensor<?x1xf32>, tensor<1x?xf32>) -> tensor<?x?xf32>",
    )
    for yes in (True, False):
        x, y = floats(3, 1), floats(1, 4)
        (got,) = program.run_numpy([np.array(yes), x, y])
        np.testing.assert_array_equal(got, np.broadcast_to(x if yes else y, (3, 4)))


@pytest.mark.parametrize("declared", ["?", "5"])
def test_a_size_of_one_at_run_time_is_broadcast(declared):
    """Every pair of sizes; where NumPy refuses one, so does the call."""
    program = compiled(
        ["tensor<?x?xf32>", "tensor<?xf32>"],
        f"tensor<?x{declared}xf32>",
        '%n = stablehlo.negate %1 : tensor<?xf32>\n%r = "chlo.broadcast_add"(%0, %n)'
        f" : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x{declared}xf32>",
    )
    for a, b in itertools.product((0, 1, 2, 5), repeat=2):
        x, y = floats(3, a), floats(b)
        fits = a == b or 1 in (a, b)
        common = 0 if 0 in (a, b) else max(a, b)
        if fits and declared in ("?", str(common)):
            np.testing.assert_array_equal(program.run_numpy([x, y])[0], x - y)
        else:
            with pytest.raises(ShapeMismatchError, match="must be equal or 1" if not fits else "5"):
                program.run_numpy([x, y])


def test_a_size_of_one_at_run_time_goes_with_a_declared_one():
    program = compiled(
        ["tensor<?xf32>", "tensor<4xf32>"],
        "tensor<?xf32>",
        '%r = "chlo.broadcast_add"(%0, %1) : (tensor<?xf32>, tensor<4xf32>) -> tensor<?xf32>',
    )
    for n in (1, 4):
        (got,) = program.run_numpy([floats(n), floats(4)])
        np.testing.assert_array_equal(got, floats(n) + floats(4))
    for n in (0, 3):
        with pytest.raises(
            ShapeMismatchError,
            match=r"chlo\.broadcast_add: sizes 4 and d0_0 of dimension 0 must be equal or 1",
        ):
            program.run_numpy([floats(n), floats(4)])


@pytest.mark.parametrize("named", [True, False])
def test_sizes_known_equal_are_not_broadcast(named):
    """Those of one argument, whatever it is called, and those of arguments with one symbol."""
    kind = 'tensor<?xf32> {disc.shape = ["b"]}' if named else "tensor<?xf32>"
    second = "%1" if named else "%v"
    program = shlo_disc.compile(f"""
      func.func public @main(%0: {kind}, %1: {kind}) -> tensor<?xf32> {{
        %t = stablehlo.tanh %0 : tensor<?xf32>
        %v = stablehlo.reverse %0, dims = [0] : tensor<?xf32>
        %s = "chlo.broadcast_add"(%t, %0) : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
        %r = "chlo.broadcast_add"(%s, {second}) : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
        return %r : tensor<?xf32>
      }}""")
    assert "broadcast" not in program.as_text()
    x = floats(7)
    (got,) = program.run_numpy([x, x[::-1].copy()])
    np.testing.assert_allclose(got, np.tanh(x) + x + x[::-1], rtol=1e-6)


@pytest.mark.parametrize(
    ("kinds", "dims", "message"),
    [
        (("3", "2"), "", "sizes 3 and 2 of dimension 0 must be equal or 1"),
        (("?x4", "4"), "5", r"broadcast_dimensions \[5\] are not 1 of 2 dimensions in order"),
        (("?x4", "4"), "0, 1", r"broadcast_dimensions \[0, 1\] are not 1 of 2 dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(kinds, dims, message):
    kinds = [f"tensor<{kind}xf32>" for kind in kinds]
    given = f"{{broadcast_dimensions = array<i64: {dims}>}}" if dims else ""
    with pytest.raises(InvalidModuleError, match=message):
        compiled(kinds, "tensor<?xf32>" if not dims else kinds[0],
                 f'%r = "chlo.broadcast_add"(%0, %1) {given} : ({", ".join(kinds)}) -> '
                 f'{"tensor<?xf32>" if not dims else kinds[0]}')  # fmt: skip


NARROW = [e for e, row in ELEMENT_TYPES.items() if row.kind == "f" and row.bits < 32]
FUNCTIONS = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cosh", "digamma",
             "lgamma", "polygamma", "sinh", "tan", "zeta"]  # fmt: skip


SOME = ("bf16", "f16", "f4E2M1FN", "f8E4M3FN", "f8E5M2FNUZ", "f8E8M0FNU")
"""Of every kind of special values; `tests/lower/test_narrow_types.py` rounds to every type."""


@pytest.mark.parametrize("element", all_but(set(NARROW).difference(SOME), NARROW))
def test_functions_of_narrow_floats_are_those_of_f32_rounded_once(element):
    """Every value of the type (of bf16 and f16 some) as first and as second argument."""
    dtype = ELEMENT_TYPES[element].dtype
    numbers = np.array([-3, -0.5, -0.0, 0, 0.25, 0.5, 1, 1.5, 2, 3, 4, 6], "f4").astype(dtype)
    x, y = map(np.ravel, np.meshgrid(numbers, numbers))
    body, results = "", []
    for name in FUNCTIONS:
        binary = name in ("polygamma", "zeta")
        values, kinds = ("%0, %1", "{0}, {0}") if binary else ("%0", "{0}")
        body += f'%{name} = "chlo.{name}"({values}) : ({kinds}) -> {{0}}\n'
        results.append(f"%{name}")
    text = (
        "func.func public @main(%0: {0}, %1: {0}) -> ("
        + ", ".join(["{0}"] * len(results)) + ") {{\n" + body
        + f"return {', '.join(results)} : " + ", ".join(["{0}"] * len(results)) + "\n}}"
    )  # fmt: skip
    narrow = shlo_disc.compile(text.format(f"tensor<?x{element}>"))
    wide = shlo_disc.compile(text.format("tensor<?xf32>"))
    found = narrow.run_numpy([x, y])
    for name, got, want in zip(
        FUNCTIONS, found, wide.run_numpy([x.astype("f4"), y.astype("f4")]), strict=True
    ):
        with np.errstate(all="ignore"):
            want = want.astype(dtype).astype("f4")
        np.testing.assert_array_equal(got.astype("f4"), want, name)


@pytest.mark.parametrize("element", [e for e, row in ELEMENT_TYPES.items() if row.kind in "iu"])
def test_the_high_half_of_products(element):
    kind, row = f"tensor<?x{element}>", ELEMENT_TYPES[element]
    program = compiled([kind] * 2, kind, f'%r = "chlo.mulhi"(%0, %1) : ({kind}, {kind}) -> {kind}')
    low = -(1 << row.bits - 1) if row.kind == "i" else 0
    high = low + (1 << row.bits) - 1
    edges = [n for n in (low, low + 1, -1, 0, 1, 2, high // 2, high - 1, high) if low <= n <= high]
    rng = np.random.default_rng(0)
    drawn = rng.integers(low, high, (2, 999), np.int64 if low else np.uint64, endpoint=True)
    pairs = [*itertools.product(edges, edges), *zip(*drawn.tolist(), strict=True)]
    x, y = (np.array(side, f"{row.dtype.kind if row.bits > 4 else 'i'}8").astype(row.dtype)
            for side in zip(*pairs, strict=True))  # fmt: skip
    (got,) = program.run_numpy([x, y])
    want = [(int(a) * int(b)) >> row.bits for a, b in pairs]
    np.testing.assert_array_equal(got.astype(object), np.array(want, object))


RAGGED = """%r = "chlo.ragged_dot"(%0, %1, %2) {{ragged_dot_dimension_numbers = #chlo.ragged_dot<
    lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1],
    rhs_contracting_dimensions = [{rhs}], lhs_ragged_dimensions = [{ragged}],
    rhs_group_dimensions = [{group}]>, precision_config = []}} : ({kinds}) -> {result}"""


@pytest.mark.parametrize("rows", ["6", "?"])
def test_products_of_groups_of_rows(rows):
    kinds = [f"tensor<{rows}x4xf32>", "tensor<3x4x5xf32>", "tensor<3xi64>"]
    result = f"tensor<{rows}x5xf32>"
    body = RAGGED.format(rhs=1, ragged=0, group=0, kinds=", ".join(kinds), result=result)
    program = compiled(kinds, result, body)
    for sizes in ((1, 2, 3), (0, 6, 0), (4, 0, 1)):  # what no group has is zero
        x, w = floats(6, 4), floats(3, 4, 5)
        (got,) = program.run_numpy([x, w, np.array(sizes)])
        ends = np.cumsum(sizes)
        want = np.zeros((6, 5))
        for k, end in enumerate(ends):
            want[end - sizes[k] : end] = x[end - sizes[k] : end].astype("f8") @ w[k]
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_products_of_ragged_columns():
    kinds = ["tensor<4x6xf32>", "tensor<6x5xf32>", "tensor<3xi64>"]
    body = RAGGED.format(
        rhs=0, ragged=1, group="", kinds=", ".join(kinds), result="tensor<3x4x5xf32>"
    )
    program = compiled(kinds, "tensor<3x4x5xf32>", body)
    x, w = floats(4, 6), floats(6, 5)
    (got,) = program.run_numpy([x, w, np.array([1, 2, 3])])
    want = [x[:, a:b].astype("f8") @ w[a:b] for a, b in ((0, 1), (1, 3), (3, 6))]
    np.testing.assert_allclose(got, want, rtol=1e-5)


SCAN = """%r, %last = "chlo.scan"(%0, %1) ({{
  ^bb0(%x: tensor<{inner}xf32>, %c: tensor<{inner}xf32>):
    %half = stablehlo.multiply %c, %c : tensor<{inner}xf32>
    %n = stablehlo.add %x, %half : tensor<{inner}xf32>
    stablehlo.return %n, %n : tensor<{inner}xf32>, tensor<{inner}xf32>
  }}) {{dimension = {axis} : i64, is_reverse = {reverse}, operandSegmentSizes = array<i32: 1, 1>,
       resultSegmentSizes = array<i32: 1, 1>}}
  : ({kind}, tensor<{inner}xf32>) -> ({kind}, tensor<{inner}xf32>)"""


@pytest.mark.parametrize(
    ("sizes", "inner", "axis"), [("6x4", "4", 0), ("4x6", "4", 1), ("?x4", "4", 0), ("?x?", "?", 0)]
)
@pytest.mark.parametrize("reverse", ["false", "true"])
def test_scans(sizes, inner, axis, reverse):
    kind = f"tensor<{sizes}xf32>"
    body = SCAN.format(inner=inner, axis=axis, reverse=reverse, kind=kind)
    program = compiled([kind, f"tensor<{inner}xf32>"], kind, body)
    shape = (4, 6) if axis else (6, 4)
    x, carry = floats(*shape) / 4, floats(4) / 4
    (got,) = program.run_numpy([x, carry])
    want, steps = np.zeros_like(x), range(6)
    for k in reversed(steps) if reverse == "true" else steps:
        carry = np.take(x, k, axis) + carry * carry
        want[(slice(None),) * axis + (k,)] = carry
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_scan_of_carried_values_alone():
    """`dimension` and the number of steps are attributes; its stacked result has their size."""
    kind = "tensor<?xf32>"
    program = compiled(
        [kind],
        "tensor<?x3xf32>",
        f"""%r, %last = "chlo.scan"(%0) ({{
          ^bb0(%c: {kind}):
            %n = stablehlo.add %c, %c : {kind}
            stablehlo.return %c, %n : {kind}, {kind}
          }}) {{dimension = 1 : i64, scan_dim_size = 3 : i64,
               operandSegmentSizes = array<i32: 0, 1>, resultSegmentSizes = array<i32: 1, 1>}}
          : ({kind}) -> (tensor<?x3xf32>, {kind})""",
    )
    for size in (0, 1, 5):
        x = floats(size)
        (got,) = program.run_numpy([x])
        np.testing.assert_array_equal(got, np.stack([x, 2 * x, 4 * x], 1))


def test_what_is_refused_says_why():
    text = """func.func public @main(%s: tensor<f32>, %n: tensor<1xi64>) -> tensor<?xf32> {
      %r = stablehlo.rng %s, %s, %n, distribution = UNIFORM
         : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<?xf32>
      return %r : tensor<?xf32>
    }"""
    with pytest.raises(UnsupportedError, match=r"rng is not compiled: .* use rng_bit_generator"):
        shlo_disc.compile(text)

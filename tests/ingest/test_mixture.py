"""Modules that mix StableHLO with `arith`, `math`, `shape` and `tensor`, against NumPy."""

from __future__ import annotations

import operator

import ml_dtypes
import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import InvalidModuleError, ShapeMismatchError, UnsupportedError
from shlo_disc.executables.executable import Executable
from shlo_disc.ingest import ingest
from shlo_disc.ingest.mixed.take import RULES
from shlo_disc.ir.mlir import ir, new_context, walk


def compiled(arguments: str, results: str, body: str) -> Executable:
    """One program, not several: every size is known when a call starts."""
    text = f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}"
    executable = shlo_disc.compile(text)
    assert isinstance(executable, Executable), executable
    return executable


def returned(names: list[str], kinds: list[str]) -> str:
    return f"  return {', '.join(names)} : {', '.join(kinds)}"


# -- arith: one program has all ops, of numbers and of tensors -------------------------------------


def truncated(a, b):
    return np.trunc(a / b).astype(a.dtype)


def unsigned(function):
    def of_bits(a, b):
        with np.errstate(over="ignore"):
            return function(a.view(np.uint64), b.view(np.uint64)).view(np.int64)

    return of_bits


def ceil_unsigned(a, b):
    return a // b + (a % b != 0).astype(np.uint64)


INTEGER_OPS = {
    "addi": operator.add,
    "andi": operator.and_,
    "ceildivsi": lambda a, b: -(-a // b),
    "ceildivui": unsigned(ceil_unsigned),
    "divsi": truncated,
    "divui": unsigned(operator.floordiv),
    "floordivsi": operator.floordiv,
    "maxsi": np.maximum,
    "maxui": unsigned(np.maximum),
    "minsi": np.minimum,
    "minui": unsigned(np.minimum),
    "muli": operator.mul,
    "ori": operator.or_,
    "remsi": np.fmod,
    "remui": unsigned(operator.mod),
    "subi": operator.sub,
    "xori": operator.xor,
}

ORDERS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "sge": operator.ge,
    "sgt": operator.gt,
    "sle": operator.le,
    "slt": operator.lt,
    "uge": lambda a, b: a.view(np.uint64) >= b.view(np.uint64),
    "ugt": lambda a, b: a.view(np.uint64) > b.view(np.uint64),
    "ule": lambda a, b: a.view(np.uint64) <= b.view(np.uint64),
    "ult": lambda a, b: a.view(np.uint64) < b.view(np.uint64),
}


@pytest.mark.parametrize("kind", ["i64", "index", "tensor<?xi64>", "tensor<30xi64>"])
def test_integers(kind):
    truths = kind.replace("i64", "i1").replace("index", "i1")
    lines = [f"  %{n} = arith.{n} %a, %b : {kind}" for n in INTEGER_OPS]
    lines += [f"  %{n} = arith.cmpi {n}, %a, %b : {kind}" for n in ORDERS]
    lines += [f"  %chosen = arith.select %slt, %a, %b : {truths}, {kind}"]
    names = ["%" + n for n in (*INTEGER_OPS, *ORDERS, "chosen")]
    kinds = [kind] * len(INTEGER_OPS) + [truths] * len(ORDERS) + [kind]
    program = compiled(
        f"%a: {kind}, %b: {kind}", ", ".join(kinds), "\n".join([*lines, returned(names, kinds)])
    )
    numbers = np.array([-17, -8, -1, 0, 7, 8], np.int64)
    divisors = np.array([-8, -3, -1, 2, 5], np.int64)
    a, b = (x.reshape(-1) for x in np.meshgrid(numbers, divisors))
    rows = zip(a, b, strict=True) if "tensor" not in kind else [(a, b)]
    for x, y in rows:
        x, y = np.asarray(x), np.asarray(y)
        got = program.run_numpy([x, y])
        want = [f(x, y) for f in (*INTEGER_OPS.values(), *ORDERS.values())]
        for name, one, other in zip(names, got, [*want, np.where(x < y, x, y)], strict=True):
            np.testing.assert_array_equal(one, other, name)


def test_bits():
    lines = """
  %0 = arith.addi %p, %q : tensor<4xi1>
  %1 = arith.muli %p, %q : tensor<4xi1>
  %2 = arith.subi %p, %q : tensor<4xi1>
  %3 = arith.cmpi slt, %p, %q : tensor<4xi1>
  %4 = arith.cmpi ult, %p, %q : tensor<4xi1>
  %5 = arith.extsi %p : tensor<4xi1> to tensor<4xi8>
  %6 = arith.extui %p : tensor<4xi1> to tensor<4xi8>
  %7 = arith.sitofp %p : tensor<4xi1> to tensor<4xf32>
  %8 = arith.uitofp %p : tensor<4xi1> to tensor<4xf32>
  %9 = arith.maxsi %p, %q : tensor<4xi1>
  %10 = arith.minsi %p, %q : tensor<4xi1>"""
    kinds = [f"tensor<4x{t}>" for t in ["i1"] * 5 + ["i8"] * 2 + ["f32"] * 2 + ["i1"] * 2]
    program = compiled(
        "%p: tensor<4xi1>, %q: tensor<4xi1>",
        ", ".join(kinds),
        lines + "\n" + returned([f"%{k}" for k in range(11)], kinds),
    )
    p, q = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    # As signed numbers of one bit, true is -1.
    want = [p ^ q, p & q, p ^ q, p & ~q, ~p & q, -p.astype(np.int8), p, -p.astype(np.int8), p]
    for got, expected in zip(program.run_numpy([p, q]), [*want, p & q, p | q], strict=True):
        np.testing.assert_array_equal(got, expected)


def test_conversions():
    lines = """
  %0 = arith.trunci %x : tensor<?xi64> to tensor<?xi8>
  %1 = arith.trunci %x : tensor<?xi64> to tensor<?xi1>
  %2 = arith.extui %0 : tensor<?xi8> to tensor<?xi32>
  %3 = arith.extsi %0 : tensor<?xi8> to tensor<?xi32>
  %4 = arith.uitofp %0 : tensor<?xi8> to tensor<?xf64>
  %5 = arith.fptosi %y : tensor<?xf64> to tensor<?xi32>
  %6 = arith.fptoui %y : tensor<?xf64> to tensor<?xi32>
  %7 = arith.truncf %y : tensor<?xf64> to tensor<?xbf16>
  %8 = arith.bitcast %y : tensor<?xf64> to tensor<?xi64>"""
    kinds = [
        f"tensor<?x{t}>" for t in ("i8", "i1", "i32", "i32", "f64", "i32", "i32", "bf16", "i64")
    ]
    program = compiled(
        "%x: tensor<?xi64>, %y: tensor<?xf64>",
        ", ".join(kinds),
        lines + "\n" + returned([f"%{k}" for k in range(9)], kinds),
    )
    x, y = np.array([-129, -2, 5, 200, 1 << 40]), np.array([0.0, 2.5, 3.99, 3e9])
    got = program.run_numpy([x, y])
    small = x.astype(np.int8)
    assert (got[0] == small).all()
    assert (got[1] == (x % 2 == 1)).all()
    assert (got[2] == small.view(np.uint8)).all()
    assert (got[3] == small).all()
    assert (got[4] == small.view(np.uint8)).all()
    assert (got[5][:3] == [0, 2, 3]).all()
    assert (got[6] == y.astype(np.uint32).view(np.int32)).all()
    assert (got[7] == y.astype(ml_dtypes.bfloat16)).all()
    assert (got[8] == y.view(np.int64)).all()


def ordered(function):
    return lambda a, b: function(a, b) & ~np.isnan(a) & ~np.isnan(b)


def unordered(function):
    return lambda a, b: function(a, b) | np.isnan(a) | np.isnan(b)


FLOAT_ORDERS = {
    "false": lambda a, b: np.zeros(a.shape, bool),
    "true": lambda a, b: np.ones(a.shape, bool),
    "ord": lambda a, b: ~np.isnan(a) & ~np.isnan(b),
    "uno": lambda a, b: np.isnan(a) | np.isnan(b),
    **{
        f"{letter}{name}": wrap(function)
        for letter, wrap in (("o", ordered), ("u", unordered))
        for name, function in (
            ("eq", operator.eq),
            ("ne", operator.ne),
            ("ge", operator.ge),
            ("gt", operator.gt),
            ("le", operator.le),
            ("lt", operator.lt),
        )
    },
}


def test_floats_and_their_orders():
    functions = {
        "addf": operator.add,
        "divf": operator.truediv,
        "maximumf": np.maximum,
        "maxnumf": np.fmax,
        "minimumf": np.minimum,
        "minnumf": np.fmin,
        "mulf": operator.mul,
        "remf": np.fmod,
        "subf": operator.sub,
    }
    kind, truths = "tensor<?xf32>", "tensor<?xi1>"
    lines = [f"  %{n} = arith.{n} %a, %b : {kind}" for n in functions]
    lines += [f"  %{n} = arith.cmpf {n}, %a, %b : {kind}" for n in FLOAT_ORDERS]
    names = ["%" + n for n in (*functions, *FLOAT_ORDERS)]
    kinds = [kind] * len(functions) + [truths] * len(FLOAT_ORDERS)
    program = compiled(
        f"%a: {kind}, %b: {kind}", ", ".join(kinds), "\n".join([*lines, returned(names, kinds)])
    )
    numbers = np.array([-np.inf, -2.5, -0.0, 1.0, np.inf, np.nan], np.float32)
    a, b = (x.reshape(-1) for x in np.meshgrid(numbers, numbers))
    with np.errstate(all="ignore"):
        want = [f(a, b) for f in (*functions.values(), *FLOAT_ORDERS.values())]
    for name, got, expected in zip(names, program.run_numpy([a, b]), want, strict=True):
        np.testing.assert_array_equal(got, expected, name)


def test_math():
    functions = {
        "absf": np.abs,
        "ceil": np.ceil,
        "cos": np.cos,
        "exp": np.exp,
        "expm1": np.expm1,
        "floor": np.floor,
        "log1p": lambda x: np.log1p(np.abs(x)),
        "roundeven": np.rint,
        "sqrt": lambda x: np.sqrt(np.abs(x)),
        "tanh": np.tanh,
        "trunc": np.trunc,
    }
    lines = ["  %pos = math.absf %x : tensor<?xf64>"]
    for name in functions:
        operand = "%pos" if name in ("log1p", "sqrt") else "%x"
        lines.append(f"  %{name} = math.{name} {operand} : tensor<?xf64>")
    lines.append("  %fma = math.fma %x, %pos, %x : tensor<?xf64>")
    names, kinds = [f"%{n}" for n in (*functions, "fma")], ["tensor<?xf64>"] * 12
    program = compiled(
        "%x: tensor<?xf64>", ", ".join(kinds), "\n".join([*lines, returned(names, kinds)])
    )
    x = np.array([-2.5, -0.5, -0.0, 0.5, 1.5, 3.25])
    want = [*(f(x) for f in functions.values()), x * np.abs(x) + x]
    for name, got, expected in zip(names, program.run_numpy([x]), want, strict=True):
        np.testing.assert_allclose(got, expected, 1e-14, err_msg=name)
        assert (np.signbit(got) == np.signbit(expected)).all(), name


def test_truncation_keeps_what_is_not_finite():
    program = compiled(
        "%x: tensor<4xf32>",
        "tensor<4xf32>",
        "  %y = math.trunc %x : tensor<4xf32>\n  return %y : tensor<4xf32>",
    )
    x = np.array([np.inf, -np.inf, np.nan, -0.25], np.float32)
    (got,) = program.run_numpy([x])
    np.testing.assert_array_equal(got, np.trunc(x))
    assert np.signbit(got[3])


# -- sizes -----------------------------------------------------------------------------------------


def test_sizes_of_dimensions():
    """`tensor.dim` of results, numbers of elements, and a reshape to them."""
    program = compiled(
        "%x: tensor<?x?x4xf32>",
        "index, i64, tensor<?x?xf32>, tensor<3xindex>",
        """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %y = stablehlo.tanh %x : tensor<?x?x4xf32>
  %a = tensor.dim %y, %c0 : tensor<?x?x4xf32>
  %b = tensor.dim %y, %c1 : tensor<?x?x4xf32>
  %s = shape.shape_of %y : tensor<?x?x4xf32> -> tensor<3xindex>
  %n = shape.num_elements %s : tensor<3xindex> -> index
  %ni = arith.index_cast %n : index to i64
  %ab = arith.muli %a, %b : index
  %rest = arith.divui %n, %ab : index
  %four = tensor.dim %x, %c2 : tensor<?x?x4xf32>
  %t = tensor.from_elements %ab, %four : tensor<2xindex>
  %r = stablehlo.dynamic_reshape %x, %t : (tensor<?x?x4xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  return %n, %ni, %r, %s : index, i64, tensor<?x?xf32>, tensor<3xindex>""",
    )
    for shape in ((2, 3, 4), (5, 1, 4), (0, 7, 4)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        n, same, reshaped, sizes = program.run_numpy([x])
        assert n == same == x.size
        assert reshaped.shape == (shape[0] * shape[1], 4)
        np.testing.assert_array_equal(reshaped.reshape(-1), x.reshape(-1))
        np.testing.assert_array_equal(sizes, shape)


BROADCAST = """
  %0 = shape.shape_of %a : tensor<?x?xf32> -> tensor<2xindex>
  %1 = shape.shape_of %b : tensor<?xf32> -> tensor<1xindex>
  %2 = shape.shape_of %c : tensor<?x?xf32> -> tensor<2xindex>
  %w = shape.cstr_broadcastable %0, %1 : tensor<2xindex>, tensor<1xindex>
  %ab = shape.assuming %w -> (tensor<?x?xf32>) {
    %s = shape.broadcast %0, %1 : tensor<2xindex>, tensor<1xindex> -> tensor<2xindex>
    %x = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [0, 1]
        : (tensor<?x?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
    %y = stablehlo.dynamic_broadcast_in_dim %b, %s, dims = [1]
        : (tensor<?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
    %z = stablehlo.add %x, %y : tensor<?x?xf32>
    shape.assuming_yield %z : tensor<?x?xf32>
  }
  %3 = shape.shape_of %ab : tensor<?x?xf32> -> tensor<2xindex>
  %v = shape.cstr_broadcastable %3, %2 : tensor<2xindex>, tensor<2xindex>
  %abc = shape.assuming %v -> (tensor<?x?xf32>) {
    %s = shape.broadcast %3, %2 : tensor<2xindex>, tensor<2xindex> -> tensor<2xindex>
    %x = stablehlo.dynamic_broadcast_in_dim %ab, %s, dims = [0, 1]
        : (tensor<?x?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
    %y = stablehlo.dynamic_broadcast_in_dim %c, %s, dims = [0, 1]
        : (tensor<?x?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
    %z = stablehlo.multiply %x, %y : tensor<?x?xf32>
    shape.assuming_yield %z : tensor<?x?xf32>
  }
  return %abc : tensor<?x?xf32>"""


def test_broadcasts_of_unknown_sizes():
    """A size may be 1, 0 or that of the others; one program is right for all of them."""
    program = compiled(
        "%a: tensor<?x?xf32>, %b: tensor<?xf32>, %c: tensor<?x?xf32>", "tensor<?x?xf32>", BROADCAST
    )
    rng = np.random.default_rng(0)
    shapes = [
        ((3, 4), (4,), (3, 4)),
        ((3, 1), (4,), (1, 4)),
        ((1, 4), (1,), (3, 1)),
        ((1, 1), (1,), (1, 1)),
        ((0, 4), (1,), (1, 4)),
        ((1, 0), (1,), (3, 1)),
        ((2, 1), (1,), (2, 5)),
    ]
    for case in shapes:
        a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in case)
        (got,) = program.run_numpy([a, b, c])
        np.testing.assert_array_equal(got, (a + b) * c)
    for case in (((3, 4), (3,), (1, 1)), ((3, 4), (4,), (2, 4)), ((0, 4), (4,), (3, 4))):
        with pytest.raises(ShapeMismatchError, match="must be equal or 1"):
            program.run_numpy([np.zeros(shape, np.float32) for shape in case])


def test_a_broadcast_of_one_size_is_no_choice():
    """Equal sizes, and those of what has the shape of another, need neither guard nor choice."""
    text = """func.func @main(%a: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %t = stablehlo.tanh %a : tensor<?x8xf32>
  %0 = shape.shape_of %a : tensor<?x8xf32> -> tensor<2xindex>
  %1 = shape.shape_of %t : tensor<?x8xf32> -> tensor<2xindex>
  %s = shape.broadcast %0, %1 : tensor<2xindex>, tensor<2xindex> -> tensor<2xindex>
  %r = stablehlo.dynamic_broadcast_in_dim %t, %s, dims = [0, 1]
      : (tensor<?x8xf32>, tensor<2xindex>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}"""
    with new_context():
        names: list[str] = []
        walk(ingest(text, ir.Context.current), lambda op: names.append(op.name))
    assert "stablehlo.custom_call" not in names
    assert "stablehlo.maximum" not in names


def test_shapes_that_never_broadcast_are_refused():
    text = """func.func @main(%a: tensor<?x3xf32>, %b: tensor<4xf32>) {
  %0 = shape.shape_of %a : tensor<?x3xf32> -> tensor<2xindex>
  %1 = shape.shape_of %b : tensor<4xf32> -> tensor<1xindex>
  %w = shape.cstr_broadcastable %0, %1 : tensor<2xindex>, tensor<1xindex>
  return
}"""
    with pytest.raises(InvalidModuleError, match=r":4:8: shape.cstr_broadcastable: sizes 3 and 4"):
        ingest(text, new_context())


def test_shapes_taken_apart():
    program = compiled(
        "%x: tensor<?x?x3xf32>",
        "tensor<?x3xf32>, tensor<2xindex>, index, i1, i1",
        """
  %m1 = arith.constant -1 : index
  %s = shape.shape_of %x : tensor<?x?x3xf32> -> !shape.shape
  %m = shape.const_size -1
  %head, %tail = "shape.split_at"(%s, %m)
      : (!shape.shape, !shape.size) -> (!shape.shape, !shape.shape)
  %n = shape.num_elements %head : !shape.shape -> !shape.size
  %ni = shape.size_to_index %n : !shape.size
  %e = shape.from_extents %ni : index
  %c = shape.concat %e, %tail : !shape.shape, !shape.shape -> !shape.shape
  %t = shape.to_extent_tensor %c : !shape.shape -> tensor<2xindex>
  %r = stablehlo.dynamic_reshape %x, %t : (tensor<?x?x3xf32>, tensor<2xindex>) -> tensor<?x3xf32>
  %c1 = arith.constant 1 : index
  %w = shape.get_extent %t, %c1 : tensor<2xindex>, index -> index
  %k = shape.const_shape [1, 3] : tensor<2xindex>
  %may = shape.is_broadcastable %t, %k : tensor<2xindex>, tensor<2xindex>
  %same = shape.shape_eq %t, %k : tensor<2xindex>, tensor<2xindex>
  return %r, %t, %w, %may, %same : tensor<?x3xf32>, tensor<2xindex>, index, i1, i1""",
    )
    for shape in ((2, 5, 3), (1, 1, 3), (0, 4, 3)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        reshaped, sizes, width, may, same = program.run_numpy([x])
        np.testing.assert_array_equal(reshaped, x.reshape(shape[0] * shape[1], 3))
        assert (list(sizes), width, may) == ([shape[0] * shape[1], 3], 3, True)
        assert same == (shape[:2] == (1, 1))


def test_views_and_elements():
    program = compiled(
        "%x: tensor<?x6xf32>, %i: index",
        "tensor<?x2x3xf32>, tensor<?xf32>, f32, f32, tensor<5x6xf32>",
        """
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %n = tensor.dim %x, %c0 : tensor<?x6xf32>
  %e = tensor.expand_shape %x [[0], [1, 2]] output_shape [%n, 2, 3]
      : tensor<?x6xf32> into tensor<?x2x3xf32>
  %f = tensor.collapse_shape %e [[0, 1, 2]] : tensor<?x2x3xf32> into tensor<?xf32>
  %p = tensor.extract %x[%i, %c2] : tensor<?x6xf32>
  %q = tensor.extract %x[%c0, %c2] : tensor<?x6xf32>
  %s = tensor.cast %x : tensor<?x6xf32> to tensor<5x6xf32>
  return %e, %f, %p, %q, %s
      : tensor<?x2x3xf32>, tensor<?xf32>, f32, f32, tensor<5x6xf32>""",
    )
    x = np.arange(30, dtype=np.float32).reshape(5, 6)
    expanded, flat, chosen, first, same = program.run_numpy([x, np.int64(3)])
    np.testing.assert_array_equal(expanded, x.reshape(5, 2, 3))
    np.testing.assert_array_equal(flat, x.reshape(-1))
    assert (chosen, first) == (x[3, 2], x[0, 2])
    np.testing.assert_array_equal(same, x)
    with pytest.raises(ShapeMismatchError, match=r"tensor.cast: size .* must be 5"):
        program.run_numpy([x[:4], np.int64(0)])


def test_numbers_as_arguments_are_sizes():
    program = compiled(
        "%n: i64, %k: index, %v: f32",
        "tensor<?x?xf32>",
        """
  %i = arith.index_cast %n : i64 to index
  %m = arith.muli %i, %k : index
  %s = tensor.from_elements %m, %k : tensor<2xindex>
  %x = tensor.from_elements %v : tensor<f32>
  %r = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = []
      : (tensor<f32>, tensor<2xindex>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>""",
    )
    for n, k in ((2, 3), (0, 4), (1, 1)):
        (got,) = program.run_numpy([np.int64(n), np.int64(k), np.float32(2.5)])
        np.testing.assert_array_equal(got, np.full((n * k, k), 2.5, np.float32))


# -- sizes that frameworks compute -----------------------------------------------------------------


def arange(start: int, step: int) -> str:
    """`torch.arange(start, n, step)` for a size n: its length is computed in f64."""
    return f"""
  %c0 = arith.constant 0 : index
  %start = stablehlo.constant dense<{start}> : tensor<i64>
  %step = stablehlo.constant dense<{step}> : tensor<i64>
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %ni = arith.index_cast %n : index to i64
  %e = tensor.from_elements %ni : tensor<i64>
  %d = stablehlo.subtract %e, %start : tensor<i64>
  %df = stablehlo.convert %d : (tensor<i64>) -> tensor<f64>
  %sf = stablehlo.convert %step : (tensor<i64>) -> tensor<f64>
  %q = stablehlo.divide %df, %sf : tensor<f64>
  %l = stablehlo.ceil %q : tensor<f64>
  %li = stablehlo.convert %l : (tensor<f64>) -> tensor<i64>
  %s = stablehlo.reshape %li : (tensor<i64>) -> tensor<1xi64>
  %iota = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi64>) -> tensor<?xi64>
  return %iota : tensor<?xi64>"""


@pytest.mark.parametrize(
    ("start", "step", "length"),
    [
        (0, 1, "d0_0"),
        (-2, 1, "d0_0 + 2"),
        (0, 3, "floordiv(d0_0 + 2, 3)"),
        (-7, 4, "floordiv(d0_0 + 2, 4) + 2"),
    ],
)
def test_lengths_computed_in_floats(start, step, length):
    program = compiled("%x: tensor<?xf32>", "tensor<?xi64>", arange(start, step))
    assert str(program.signature).endswith(f"(int64[{length}])")
    for n in (0, 1, 2, 5, 12):
        (got,) = program.run_numpy([np.zeros(n, np.float32)])
        np.testing.assert_array_equal(got, np.arange(-(-(n - start) // step)))


def test_a_float_length_of_a_number_argument():
    """The host reads the argument, since the length is an integer term of it."""
    body = arange(0, 3).replace("  %n = tensor.dim %x, %c0 : tensor<?xf32>\n", "")
    body = body.replace("  %ni = arith.index_cast %n : index to i64\n", "")
    program = compiled("%ni: i64", "tensor<?xi64>", body)
    for n in (0, 1, 7):
        np.testing.assert_array_equal(program.run_numpy([np.int64(n)])[0], np.arange(-(-n // 3)))


def test_a_length_of_rounded_floats_is_computed_by_a_program_of_its_own():
    body = arange(0, 3).replace("dense<3> : tensor<i64>", "dense<0.1> : tensor<f64>")
    body = body.replace("  %sf = stablehlo.convert %step : (tensor<i64>) -> tensor<f64>\n", "")
    body = body.replace("%df, %sf", "%df, %step").replace("stablehlo.divide", "stablehlo.multiply")
    program = shlo_disc.compile(f"func.func @main(%x: tensor<?xf32>) -> tensor<?xi64> {{{body}\n}}")
    for n in (0, 3, 10, 11, 30):
        (got,) = program.run_numpy([np.zeros(n, np.float32)])
        assert len(got) == int(np.ceil(n * 0.1))


def index(k: int) -> str:
    """`x[:, k]` as torch-mlir writes it: a slice whose ends are clamped, and wrapped below 0."""
    return f"""
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %z = arith.constant 0 : i64
  %k0 = arith.constant {k} : i64
  %k1 = arith.constant {k + 1} : i64
  %one = arith.constant dense<1> : tensor<2xi64>
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %mi = arith.index_cast %m : index to i64
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %ni = arith.index_cast %n : index to i64
  %low = arith.subi %z, %ni : i64
  %a0 = arith.maxsi %low, %k0 : i64
  %a1 = arith.minsi %ni, %a0 : i64
  %a2 = arith.addi %ni, %a1 : i64
  %a3 = arith.cmpi sge, %a1, %z : i64
  %a = arith.select %a3, %a1, %a2 : i64
  %b0 = arith.maxsi %low, %k1 : i64
  %b1 = arith.minsi %ni, %b0 : i64
  %b2 = arith.addi %ni, %b1 : i64
  %b3 = arith.cmpi sge, %b1, %z : i64
  %b4 = arith.select %b3, %b1, %b2 : i64
  %b5 = arith.cmpi eq, %b4, %z : i64
  %b = arith.select %b5, %ni, %b4 : i64
  %from = tensor.from_elements %z, %a : tensor<2xi64>
  %to = tensor.from_elements %mi, %b : tensor<2xi64>
  %s = stablehlo.real_dynamic_slice %x, %from, %to, %one
      : (tensor<?x?xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x1xf32>
  return %s : tensor<?x1xf32>"""


@pytest.mark.parametrize("k", [0, 2, -1, -3])
def test_slices_with_clamped_ends(k):
    program = compiled("%x: tensor<?x?xf32>", "tensor<?x1xf32>", index(k))
    for shape in ((2, 3), (0, 5), (4, 9)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(program.run_numpy([x])[0], x[:, [k]])


@pytest.mark.parametrize(
    ("condition", "first", "second", "size"),
    [
        ("EQ", 1, "%n", "d0_0"),  # the same either way
        ("NE", "%n", 1, "d0_0"),
        ("EQ", 7, "%n", "7 - min(max(-d0_0 + 1, d0_0 - 1), 1)*(7 - d0_0)"),
        ("GT", "%n", 5, None),
        ("LE", 0, "%n", None),
    ],
)
def test_choices_between_sizes(condition, first, second, size):
    names = [f"%c{k}" for k in range(2)]
    given = [
        v if isinstance(v, str) else name for v, name in zip((first, second), names, strict=True)
    ]
    constants = "\n".join(
        f"  {name} = stablehlo.constant dense<{v}> : tensor<i64>"
        for v, name in zip((first, second), names, strict=True)
        if not isinstance(v, str)
    )
    program = compiled(
        "%x: tensor<?xf32>",
        "tensor<?xi64>",
        f"""
  %one = stablehlo.constant dense<1> : tensor<i64>
{constants}
  %i = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %n = stablehlo.convert %i : (tensor<i32>) -> tensor<i64>
  %c = stablehlo.compare {condition}, %n, %one : (tensor<i64>, tensor<i64>) -> tensor<i1>
  %s = stablehlo.select %c, {given[0]}, {given[1]} : tensor<i1>, tensor<i64>
  %t = stablehlo.reshape %s : (tensor<i64>) -> tensor<1xi64>
  %r = stablehlo.dynamic_iota %t, dim = 0 : (tensor<1xi64>) -> tensor<?xi64>
  return %r : tensor<?xi64>""",
    )
    if size == "d0_0":
        assert str(program.signature).endswith("(int64[d0_0])")
    compare = {"EQ": operator.eq, "NE": operator.ne, "GT": operator.gt, "LE": operator.le}
    for n in range(5):
        one, other = (n if isinstance(v, str) else v for v in (first, second))
        (got,) = program.run_numpy([np.zeros(n, np.float32)])
        assert len(got) == (one if compare[condition](n, 1) else other)


def test_a_quotient_of_anonymous_sizes():
    """-1 in a target shape, as TensorFlow's `Reshape` and PyTorch's `view` write it."""
    program = compiled(
        "%x: tensor<?x?x6xf32>",
        "tensor<?x2x3xf32>",
        """
  %minus = arith.constant dense<-1> : tensor<3xi64>
  %two = arith.constant 2 : index
  %three = arith.constant 3 : index
  %one = arith.constant 1 : index
  %s = shape.shape_of %x : tensor<?x?x6xf32> -> tensor<3xindex>
  %n = shape.num_elements %s : tensor<3xindex> -> index
  %others = arith.muli %two, %three : index
  %rest = arith.divui %n, %others : index
  %wanted = arith.constant dense<[-1, 2, 3]> : tensor<3xi64>
  %i = arith.index_cast %rest : index to i64
  %full = tensor.splat %i : tensor<3xi64>
  %is = arith.cmpi eq, %wanted, %minus : tensor<3xi64>
  %t = arith.select %is, %full, %wanted : tensor<3xi1>, tensor<3xi64>
  %r = stablehlo.dynamic_reshape %x, %t : (tensor<?x?x6xf32>, tensor<3xi64>) -> tensor<?x2x3xf32>
  return %r : tensor<?x2x3xf32>""",
    )
    assert str(program.signature).endswith("(float32[d0_0*d0_1, 2, 3])")
    for shape in ((2, 3, 6), (0, 3, 6), (1, 1, 6)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(program.run_numpy([x])[0], x.reshape(-1, 2, 3))


def test_sizes_gathered_from_a_shape():
    """TensorFlow's `tensordot` picks sizes by constant indices and multiplies them."""
    program = compiled(
        "%x: tensor<?x?x4xf32>",
        "tensor<?x4xf32>",
        """
  %i = arith.constant dense<[0, 1]> : tensor<2xi32>
  %one = arith.constant dense<1> : tensor<i32>
  %c4 = arith.constant dense<4> : tensor<1xi32>
  %s = shape.shape_of %x : tensor<?x?x4xf32> -> tensor<3xindex>
  %si = arith.index_cast %s : tensor<3xindex> to tensor<3xi32>
  %g = "stablehlo.gather"(%si, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims =
      [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false,
      slice_sizes = array<i64: 1>}> : (tensor<3xi32>, tensor<2xi32>) -> tensor<2xi32>
  %n = stablehlo.reduce(%g init: %one) applies stablehlo.multiply across dimensions = [0]
      : (tensor<2xi32>, tensor<i32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %t = stablehlo.concatenate %n1, %c4, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %r = stablehlo.dynamic_reshape %x, %t : (tensor<?x?x4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  return %r : tensor<?x4xf32>""",
    )
    for shape in ((2, 3, 4), (0, 3, 4), (1, 1, 4)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(program.run_numpy([x])[0], x.reshape(-1, 4))


# -- constants and errors --------------------------------------------------------------------------


def test_constants():
    text = """module {
  func.func @main() -> (i64, i1, f32, index, tensor<2xindex>, tensor<0xi64>, tensor<2xf32>) {
    %0 = arith.constant -3 : i64
    %1 = arith.constant true
    %2 = arith.constant 0x7F800000 : f32
    %3 = arith.constant 7 : index
    %4 = arith.constant dense<[5, -1]> : tensor<2xindex>
    %5 = arith.constant dense<> : tensor<0xi64>
    %6 = arith.constant dense_resource<r> : tensor<2xf32>
    return %0, %1, %2, %3, %4, %5, %6
        : i64, i1, f32, index, tensor<2xindex>, tensor<0xi64>, tensor<2xf32>
  }
}
{-# dialect_resources: { builtin: { r: "0x040000000000803F00000040" } } #-}"""
    got = shlo_disc.compile(text).run_numpy([])
    want = [-3, True, np.inf, 7, [5, -1], [], [1.0, 2.0]]
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(UnsupportedError, match=r":9:10: the bytes of dense_resource<r> are not"):
        ingest(text.partition("{-#")[0], new_context())


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("torch_c.from_builtin_tensor %x : tensor<?xf32> -> !torch.vtensor<[?],f32>",
         "!torch.vtensor<[?],f32>", ":2:8: torch_c.from_builtin_tensor is not a StableHLO op"),
        ("tensor.empty() : tensor<4xf32>", "tensor<4xf32>",
         ":2:8: tensor.empty is not a StableHLO op"),
        ("scf.if %p -> i1 { scf.yield %p : i1 } else { scf.yield %p : i1 }", "i1",
         ":2:8: scf.if is not a StableHLO op"),
        ("tensor.cast %x : tensor<?xf32> to tensor<*xf32>", "tensor<*xf32>",
         r":2:8: tensor.cast: type tensor<\*xf32> is an unranked tensor"),
    ],
)  # fmt: skip
def test_what_has_no_rule_is_named(line, kind, message):
    text = (
        f"func.func @main(%x: tensor<?xf32>, %p: i1) -> {kind} {{\n  %y = {line}\n"
        f"  return %y : {kind}\n}}"
    )
    with pytest.raises(UnsupportedError, match=message):
        ingest(text, new_context())


def test_a_tensorflow_op_is_named():
    text = 'func.func @main(%x: tensor<?xf32>) {\n  %y = "tf.Relu"(%x) : () -> ()\n  return\n}'
    with pytest.raises(InvalidModuleError, match=r"line 2, column .*: tf.Relu is no operation of"):
        ingest(text, new_context())


def test_a_module_of_another_context():
    text = """func.func @main(%x: tensor<?xf32>) -> i64 {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %i = arith.index_cast %n : index to i64
  return %i : i64
}"""
    module = ir.Module.parse(text, ir.Context())
    assert shlo_disc.compile(module).run_numpy([np.zeros(5, np.float32)])[0] == 5


def test_rules_are_of_ops_that_exist():
    with ir.Context() as context:
        context.load_all_available_dialects()
        assert [name for name in RULES if not context.is_registered_operation(name)] == []

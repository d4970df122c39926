"""Shape rules: every row of RULES on dynamic operands, and the preconditions that become guards."""

# ruff: noqa: E501 - one MLIR op is one line

from __future__ import annotations

import re

import pytest

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.dynamic.rules_compute import CUSTOM_CALLS
from shlo_disc.dynamic.shapes import REGION_RULES, RULES
from tests.dynamic.helpers import function, run

F, INT, B, C = "tensor<?x?xf32>", "tensor<?x?xi32>", "tensor<?x?xi1>", "tensor<?x?xcomplex<f32>>"
ARGUMENTS = {
    "x": (F, "b, t"),
    "y": (F, "b, t"),
    "i": (INT, "b, t"),
    "j": (INT, "b, t"),
    "p": (B, "b, t"),
    "c": (C, "b, t"),
    "v": ("tensor<?xf32>", "t"),
    "w": ("tensor<?x?x8xf32>", "b, t, 8"),
    "m": ("tensor<?x4x4xf32>", "b, 4, 4"),
    "q": ("tensor<?x16xf32>", "b, 16"),
    "s": ("tensor<f32>", ""),
    "n": ("tensor<i32>", ""),
    "k": ("tensor<?xi32>", "k"),
    "u": ("tensor<2xui64>", "2"),
}

SIZES = """%b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
%t = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
%b1 = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
%t1 = stablehlo.reshape %t : (tensor<i32>) -> tensor<1xi32>
%bt = stablehlo.concatenate %b1, %t1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
%tb = stablehlo.concatenate %t1, %b1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
%zero = stablehlo.constant dense<0> : tensor<2xi32>
%one = stablehlo.constant dense<1> : tensor<2xi32>
%two = stablehlo.constant dense<2> : tensor<2xi32>
%zf = stablehlo.constant dense<0.0> : tensor<f32>"""
DEFINED = re.findall(r"^%(\w+)", SIZES, re.M)

ROWS: dict[str, list] = {}
"""Op name -> [(body, results, expected shapes, expected guards)]."""


def text(name, body, result, shapes=("b, t",), guards=()):
    """A row whose body may read what SIZES defines; `result`: the type of %r, or all results."""
    if re.search(rf"%({'|'.join(DEFINED)})\b", body):
        body = f"{SIZES}\n{body}"
    results = [("%r", result)] if isinstance(result, str) else result
    ROWS.setdefault(name, []).append((body, results, [*shapes], [*guards]))


def op(name, operands, result, attributes="", region="", shapes=("b, t",), guards=()):
    """A row of one op, in its generic form."""
    values = operands.split()
    kinds = ", ".join(ARGUMENTS[v][0] if v in ARGUMENTS else "tensor<2xi32>" for v in values)
    attributes = f"<{{{attributes}}}> " if attributes else ""
    region = f"({{{region}}}) " if region else ""
    operands = ", ".join("%" + v for v in values)
    body = f'%r = "{name}"({operands}) {attributes}{region}: ({kinds}) -> {result}'
    text(name, body, result, shapes, guards)


UNARY = """abs cbrt ceil cosine exponential exponential_minus_one floor log log_plus_one logistic
negate round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh"""
for name in UNARY.split():
    op(f"stablehlo.{name}", "x", F)
for name in ["bessel_i1e", "cosh", "digamma", "erf", "erf_inv", "erfc", "lgamma", "sinh", "tan"]:
    op(f"chlo.{name}", "x", F)
for name in ["polygamma", "zeta"]:
    op(f"chlo.{name}", "x y", F)
for name in ["count_leading_zeros", "not", "popcnt"]:
    op(f"stablehlo.{name}", "i", INT)
BINARY = "add atan2 divide maximum minimum multiply power remainder subtract"
for name in BINARY.split():
    op(f"stablehlo.{name}", "x y", F)
for name in ["and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical"]:
    op(f"stablehlo.{name}", "i j", INT)
op("chlo.mulhi", "i j", INT)
op("stablehlo.is_finite", "x", B)
op("stablehlo.convert", "x", "tensor<?x?xf64>")
op("stablehlo.reduce_precision", "x", F, "exponent_bits = 5 : i32, mantissa_bits = 2 : i32")
op("stablehlo.compare", "x y", B, "comparison_direction = #stablehlo<comparison_direction LT>")
SCALARS = "^bb0(%a: tensor<f32>, %e: tensor<f32>):\n"
ADD = SCALARS + "%z = stablehlo.add %a, %e : tensor<f32>\nstablehlo.return %z : tensor<f32>\n"
op("stablehlo.select", "p x y", F)
op("stablehlo.clamp", "s x s", F)
op("stablehlo.clamp", "x x y", F)
op("stablehlo.reverse", "x", F, "dimensions = array<i64: 1>")
op("stablehlo.optimization_barrier", "x", F)
op("stablehlo.get_dimension_size", "x", "tensor<i32>", "dimension = 0 : i64", shapes=[""])
text(
    "stablehlo.constant",
    "%r = stablehlo.constant dense<1> : tensor<3xi32>",
    "tensor<3xi32>",
    shapes=["3"],
)
text(
    "stablehlo.iota",
    "%r = stablehlo.iota dim = 0 : tensor<3x2xi32>",
    "tensor<3x2xi32>",
    shapes=["3, 2"],
)
text("disc.dim", '%r = "disc.dim"() {dim = "2*b"} : () -> tensor<i32>', "tensor<i32>", shapes=[""])
text(
    "disc.shape",
    '%r = "disc.shape"() {dims = ["2*b", "3"]} : () -> tensor<2xi32>',
    "tensor<2xi32>",
    shapes=["2"],
)
text(
    "disc.sizes",
    '%r = "disc.sizes"() {dims = ["2*b", "3"]} : () -> tensor<2xi32>',
    "tensor<2xi32>",
    shapes=["2"],
)
op("stablehlo.bitcast_convert", "x", "tensor<?x?x4xi8>", shapes=["b, t, 4"])
op("stablehlo.bitcast_convert", "x", INT)
text(
    "stablehlo.bitcast_convert",
    "%z = stablehlo.bitcast_convert %x : (tensor<?x?xf32>) -> tensor<?x?x2xi16>\n"
    "%r = stablehlo.bitcast_convert %z : (tensor<?x?x2xi16>) -> tensor<?x?xi32>",
    INT,
)
COMPARATOR = (
    SCALARS
    + "%z = stablehlo.compare LT, %a, %e : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
    + "stablehlo.return %z : tensor<i1>\n"
)
op("stablehlo.sort", "x", F, "dimension = 1 : i64, is_stable = true", COMPARATOR)

# Sizes as operands.
op("stablehlo.dynamic_iota", "bt", INT, "iota_dimension = 1 : i64")
op("stablehlo.dynamic_reshape", "x tb", F, shapes=["t, b"])
op("stablehlo.dynamic_reshape", "i two", INT, shapes=["2, 2"], guards=["b*t == 4"])
op("stablehlo.dynamic_broadcast_in_dim", "v bt", F, "broadcast_dimensions = array<i64: 1>")
op(
    "stablehlo.dynamic_broadcast_in_dim",
    "v tb",
    F,
    "broadcast_dimensions = array<i64: 1>",
    shapes=["t, b"],
    guards=["-b*t + t^2 + b - t == 0"],
)
op(
    "stablehlo.dynamic_broadcast_in_dim",
    "v tb",
    F,
    "broadcast_dimensions = array<i64: 1>, known_nonexpanding_dimensions = array<i64: 0>",
    shapes=["b, b"],
    guards=["t == b"],
)
op(
    "stablehlo.real_dynamic_slice",
    "x zero bt two",
    F,
    shapes=["floordiv(b + 1, 2), floordiv(t + 1, 2)"],
)
op(
    "stablehlo.real_dynamic_slice",
    "x two bt one",
    F,
    shapes=["b - 2, t - 2"],
    guards=["b >= 2", "t >= 2"],
)
op("stablehlo.dynamic_pad", "x s one bt one", F, shapes=["3*b, 3*t"])

# Moving indices.
op("stablehlo.reshape", "x", "tensor<6xf32>", shapes=["6"], guards=["b*t == 6"])
BROADCAST = "broadcast_dimensions = array<i64: 1>"
op(
    "stablehlo.broadcast_in_dim",
    "v",
    "tensor<3x5xf32>",
    BROADCAST,
    shapes=["3, 5"],
    guards=["t^2 - 6*t + 5 == 0"],
)
op(
    "stablehlo.transpose",
    "w",
    "tensor<8x?x?xf32>",
    "permutation = array<i64: 2, 0, 1>",
    shapes=["8, b, t"],
)
op(
    "stablehlo.slice",
    "x",
    "tensor<3x2xf32>",
    "start_indices = array<i64: 1, 0>, limit_indices = array<i64: 4, 3>, strides = array<i64: 1, 2>",
    shapes=["3, 2"],
    guards=["b >= 4", "t >= 3"],
)
op(
    "stablehlo.dynamic_slice",
    "x n n",
    "tensor<1x5xf32>",
    "slice_sizes = array<i64: 1, 5>",
    shapes=["1, 5"],
    guards=["t >= 5"],
)
op("stablehlo.dynamic_update_slice", "x y n n", F)
op(
    "stablehlo.pad",
    "x s",
    F,
    "edge_padding_low = array<i64: 1, -2>, edge_padding_high = array<i64: 0, 1>, interior_padding = array<i64: 2, 0>",
    shapes=["3*b - 1, t - 1"],
)
op("stablehlo.concatenate", "x y x", F, "dimension = 0 : i64", shapes=["3*b, t"])
text(
    "stablehlo.reduce",
    "%r = stablehlo.reduce(%w init: %s) applies stablehlo.add across dimensions = [1] : (tensor<?x?x8xf32>, tensor<f32>) -> tensor<?x8xf32>",
    "tensor<?x8xf32>",
    shapes=["b, 8"],
)

# Windows.
op(
    "stablehlo.reduce_window",
    "x s",
    F,
    "window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 2>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>",
    ADD,
    shapes=["b, floordiv(t + 1, 2)"],
)
op(
    "stablehlo.reduce_window",
    "x s",
    F,
    "window_dimensions = array<i64: 1, 3>, base_dilations = array<i64: 1, 2>, window_dilations = array<i64: 1, 2>",
    ADD,
    shapes=["b, max(2*t - 5, 0)"],
)
text(
    "stablehlo.select_and_scatter",
    f'%h = "stablehlo.reduce_window"(%x, %s) <{{window_dimensions = array<i64: 1, 3>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>}}> ({{{ADD}}}) : ({F}, tensor<f32>) -> {F}\n'
    f'%r = "stablehlo.select_and_scatter"(%x, %h, %s) <{{window_dimensions = array<i64: 1, 3>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>}}> ({{{SCALARS}%z = stablehlo.compare GE, %a, %e : (tensor<f32>, tensor<f32>) -> tensor<i1>\n stablehlo.return %z : tensor<i1>}}, {{{ADD}}}) : ({F}, {F}, tensor<f32>) -> {F}',
    F,
)
CONV = "dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [2], pad = [[1, 2]], lhs_dilate = [1], rhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
KERNEL = "%f = stablehlo.constant dense<1.0> : tensor<3x8x5xf32>\n"
text(
    "stablehlo.convolution",
    f"{KERNEL}%r = stablehlo.convolution(%w, %f) {CONV} : (tensor<?x?x8xf32>, tensor<3x8x5xf32>) -> tensor<?x?x5xf32>",
    "tensor<?x?x5xf32>",
    shapes=["b, floordiv(t, 2), 5"],
)

# Indices.
text(
    "stablehlo.gather",
    '%r = "stablehlo.gather"(%x, %k) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 3>}> : (tensor<?x?xf32>, tensor<?xi32>) -> tensor<?x3xf32>',
    "tensor<?x3xf32>",
    shapes=["k, 3"],
    guards=["t >= 3"],
)
text(
    "stablehlo.dynamic_gather",
    "%c1 = stablehlo.constant dense<1> : tensor<1xi32>\n"
    "%window = stablehlo.concatenate %c1, %t1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>\n"
    '%r = "stablehlo.dynamic_gather"(%x, %k, %window) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x?xf32>, tensor<?xi32>, tensor<2xi32>) -> tensor<?x?xf32>',
    F,
    shapes=["k, t"],
)
text(
    "stablehlo.scatter",
    f'%r = "stablehlo.scatter"(%x, %k, %y) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{{ADD}}}) : ({F}, tensor<?xi32>, {F}) -> {F}',
    F,
    guards=["k == b"],
)
text(
    "chlo.top_k",
    "%r, %h = chlo.top_k(%x, k = 3) : tensor<?x?xf32> -> (tensor<?x3xf32>, tensor<?x3xi32>)",
    [("%r", "tensor<?x3xf32>"), ("%h", "tensor<?x3xi32>")],
    shapes=["b, 3", "b, 3"],
    guards=["t >= 3"],
)

# Contractions, matrices, transforms, statistics.
text(
    "stablehlo.dot_general",
    "%r = stablehlo.dot_general %w, %x, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<?x?x8xf32>, tensor<?x?xf32>) -> tensor<?x8xf32>",
    "tensor<?x8xf32>",
    shapes=["b, 8"],
)
text(
    "stablehlo.rng_bit_generator",
    "%g, %r = stablehlo.rng_bit_generator %u, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<5xui32>)",
    "tensor<5xui32>",
    shapes=["5"],
)

# Custom calls.
text(
    "stablehlo.custom_call",
    f"%r = stablehlo.custom_call @lapack(%x, %bt) {{indices_of_shape_operands = dense<1> : tensor<1xi64>}} : ({F}, tensor<2xi32>) -> {F}",
    F,
)
text(
    "disc.reduce_window",
    f'%r = "disc.reduce_window"(%x, %zf, %b, %t, %b) ({{\n^bb0(%e: tensor<f32>, %f: tensor<f32>):\n%z = stablehlo.add %e, %f : tensor<f32>\nstablehlo.return %z : tensor<f32>\n}}) {{dimension = 1 : i64}} : ({F}, tensor<f32>, tensor<i32>, tensor<i32>, tensor<i32>) -> {F}',
    F,
    shapes=["b, 2*t + 1"],
)
text(
    "disc.empty",
    f'%r = "disc.empty"() {{dims = ["b", "t + 1"]}} : () -> {F}',
    F,
    shapes=["b, t + 1"],
)
text(
    "disc.fft",
    f'%r, %h = "disc.fft"(%x, %y) {{kind = "IFFT"}} : ({F}, {F}) -> ({F}, {F})',
    [("%r", F), ("%h", F)],
    shapes=["b, t", "b, t"],
)
text(
    "disc.fft",
    f'%r, %h = "disc.fft"(%q) {{kind = "RFFT"}} : (tensor<?x16xf32>) -> ({F}, {F})',
    [("%r", F), ("%h", F)],
    shapes=["b, 9", "b, 9"],
)
text(
    "disc.fft",
    f'%r = "disc.fft"(%x, %y, %b) {{kind = "IRFFT"}} : ({F}, {F}, tensor<i32>) -> {F}',
    F,
    shapes=["b, b"],
    guards=["t == floordiv(b, 2) + 1"],
)
text(
    "disc.scan",
    f'%r = "disc.scan"(%x, %zf) ({{\n^bb0(%e: tensor<f32>, %f: tensor<f32>):\n%z = stablehlo.add %e, %f : tensor<f32>\nstablehlo.return %z : tensor<f32>\n}}) {{dimension = 1 : i64, reverse = false}} : ({F}, tensor<f32>) -> {F}',
    F,
)
text(
    "stablehlo.dynamic_top_k",
    f"%r, %h = stablehlo.custom_call @stablehlo.dynamic_top_k(%x, %b) : ({F}, tensor<i32>) -> ({F}, {INT})",
    [("%r", F), ("%h", INT)],
    shapes=["b, b", "b, b"],
    guards=["t >= b"],
)
text(
    "any FFI target",
    "%r = stablehlo.custom_call @handler(%x, %bt) {disc.ffi = {}, disc.operand_orders = [array<i64: 1, 0>], "
    "disc.result_orders = [array<i64: 1, 0>], indices_of_shape_operands = dense<1> : tensor<1xi64>}"
    f" : ({F}, tensor<2xi32>) -> {F}",
    F,
    shapes=["t, b"],
)
text(
    "stablehlo.dynamic_rng_bit_generator",
    "%g, %r = stablehlo.custom_call @stablehlo.dynamic_rng_bit_generator(%u, %bt) : (tensor<2xui64>, tensor<2xi32>) -> (tensor<2xui64>, tensor<?x?xui32>)",
    "tensor<?x?xui32>",
)

# Ops with regions that run.
text(
    "disc.fusion",
    f'%r = "disc.fusion"(%x) ({{^bb0(%a: {F}):\n%z = stablehlo.abs %a : {F}\n"disc.yield"(%z) : ({F}) -> ()}}) {{kind = "loop"}} : ({F}) -> {F}',
    F,
)
text(
    "stablehlo.while",
    f"%r:2 = stablehlo.while(%a = %x, %e = %n) : {F}, tensor<i32> cond {{\n"
    "%z = stablehlo.compare LT, %e, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return %z : tensor<i1>\n} do {\n"
    f"%z = stablehlo.add %a, %y : {F}\nstablehlo.return %z, %e : {F}, tensor<i32>\n}}",
    [("%r#0", F), ("%r#1", "tensor<i32>")],
    shapes=["b, t", ""],
)
text(
    "stablehlo.case",
    f'%r = "stablehlo.case"(%n) ({{stablehlo.return %x : {F}}}, {{stablehlo.return %y : {F}}}) : (tensor<i32>) -> {F}',
    F,
)
text(
    "stablehlo.if",
    "%z = stablehlo.constant dense<true> : tensor<i1>\n"
    f'%r = "stablehlo.if"(%z) ({{stablehlo.return %x : {F}}}, {{stablehlo.return %y : {F}}}) : (tensor<i1>) -> {F}',
    F,
)

CASES = [(name, *case) for name, cases in ROWS.items() for case in cases]


@pytest.mark.parametrize(
    ("name", "body", "results", "shapes", "guards"), CASES, ids=[c[0] for c in CASES]
)
def test_rule(name, body, results, shapes, guards):
    used = {n: a for n, a in ARGUMENTS.items() if re.search(rf"%{n}\b", body) or n in "xyv"}
    made = run(function(used, body, results))
    assert made.shapes == shapes
    assert made.guards == guards


def test_every_rule_is_exercised():
    assert set(ROWS) == {*RULES, *REGION_RULES, *CUSTOM_CALLS}


# -- what is refused, and how it is said -------------------------------------------------------


def test_a_size_from_data_names_the_op_and_the_line():
    body = (
        "%i = stablehlo.convert %k : (tensor<1xf32>) -> tensor<1xi32>\n"
        "%r = stablehlo.dynamic_iota %i, dim = 0 : (tensor<1xi32>) -> tensor<?xf32> "
        'loc("model.py":7:3)'
    )
    text = function({"k": ("tensor<1xf32>", None)}, body, [("%r", "tensor<?xf32>")])
    with pytest.raises(UnsupportedError) as error:
        run(text)
    assert str(error.value) == (
        "model.py:7: stablehlo.dynamic_iota: operand 0 is a size that depends on data, not only on "
        "argument sizes; pass the size as an integer argument or a static argument, or pad to a "
        "size that is known"
    )


def test_unequal_sizes_of_raw_arguments_are_guarded_with_the_line():
    body = f'%r = stablehlo.add %x, %y : {F} loc("model.py":7:3)'
    made = run(function({"x": (F, None), "y": (F, None)}, body, [("%r", F)]))
    assert made.guards == ["d0_0 == d1_0", "d0_1 == d1_1"]
    assert made.analysis.guards[0].message == "model.py:7: stablehlo.add needs d0_0 == d1_0"
    assert made.shapes == ["d0_0, d0_1"]
    # From then on they are one size.
    assert made.analysis.shape(made.main.regions[0].blocks[0].arguments[1]) == (
        made.analysis.shape(made.returned[0])
    )


def test_a_contradiction_is_an_invalid_module():
    body = '%r = stablehlo.add %x, %y : tensor<?xf32> loc("model.py":7:3)'
    arguments = {"x": ("tensor<?xf32>", "4"), "y": ("tensor<?xf32>", "5")}
    with pytest.raises(InvalidModuleError, match=r"^model\.py:7: stablehlo\.add needs 4 == 5$"):
        run(function(arguments, body, [("%r", "tensor<?xf32>")]))


def test_static_result_of_dynamic_operands_is_guarded():
    body = "%r = stablehlo.dynamic_reshape %x, %n : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<6x2xf32>"
    body = "%n = stablehlo.constant dense<[6, 2]> : tensor<2xi32>\n" + body
    made = run(function({"x": ("tensor<?x4xf32>", None)}, body, [("%r", "tensor<6x2xf32>")]))
    assert made.shapes == ["6, 2"]
    assert made.guards == ["4*d0_0 == 12"]


def test_a_growing_loop_is_refused():
    body = """%r = stablehlo.while(%a = %x) : tensor<?xf32> cond {
      %z = stablehlo.constant dense<false> : tensor<i1>
      stablehlo.return %z : tensor<i1>
    } do {
      %z = stablehlo.concatenate %a, %a, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      stablehlo.return %z : tensor<?xf32>
    }"""
    text = function({"x": ("tensor<?xf32>", "t")}, body, [("%r", "tensor<?xf32>")])
    with pytest.raises(UnsupportedError, match="grows from t to 2\\*t elements"):
        run(text)


def test_branches_of_different_size_are_refused():
    body = (
        '%r = "stablehlo.case"(%n) ({stablehlo.return %x : tensor<?xf32>}, '
        "{stablehlo.return %y : tensor<?xf32>}) : (tensor<i32>) -> tensor<?xf32>"
    )
    arguments = {
        "x": ("tensor<?xf32>", "b"),
        "y": ("tensor<?xf32>", "b + 1"),
        "n": ("tensor<i32>", ""),
    }
    with pytest.raises(UnsupportedError, match=r"the branches give b and b \+ 1 for dimension 0"):
        run(function(arguments, body, [("%r", "tensor<?xf32>")]))


def test_branches_that_may_be_of_one_size_are_guarded():
    body = (
        '%r = "stablehlo.case"(%n) ({stablehlo.return %x : tensor<?xf32>}, '
        "{stablehlo.return %y : tensor<?xf32>}) : (tensor<i32>) -> tensor<?xf32>"
    )
    arguments = {"x": ("tensor<?xf32>", "b"), "y": ("tensor<?xf32>", "t"), "n": ("tensor<i32>", "")}
    made = run(function(arguments, body, [("%r", "tensor<?xf32>")]))
    assert made.guards == ["b == t"]

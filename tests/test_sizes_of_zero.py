"""`constraints=["b >= 0"]`: sizes 0 and 1 without another compilation, beside NumPy in float64."""

import itertools

import jax
import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import ShapeMismatchError
from tests.models.harness import small_bert

SIZES = (0, 1, 2, 17)
M, V, F, C = "tensor<?x?xf32>", "tensor<?xf32>", "tensor<f32>", "tensor<i32>"
S2 = "tensor<2xi32>"

HEAD = f"""
  %zero = stablehlo.constant dense<0.0> : {F}
  %lowest = stablehlo.constant dense<0xFF800000> : {F}
  %b = stablehlo.get_dimension_size %x, dim = 0 : ({M}) -> {C}
  %t = stablehlo.get_dimension_size %x, dim = 1 : ({M}) -> {C}
  %b1 = stablehlo.reshape %b : ({C}) -> tensor<1xi32>
  %t1 = stablehlo.reshape %t : ({C}) -> tensor<1xi32>
  %bt = stablehlo.concatenate %b1, %t1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> {S2}
  %tb = stablehlo.concatenate %t1, %b1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> {S2}
"""

SUM, MAX = (
    f"""{{
  ^bb0(%p: {F}, %q: {F}):
    %r = stablehlo.{op} %p, %q : {F}
    stablehlo.return %r : {F}
  }}"""
    for op in ("add", "maximum")
)


def reduced(result, value, axis, op="add", init="%zero"):
    return (
        f"  {result} = stablehlo.reduce({value} init: {init}) applies stablehlo.{op} "
        f"across dimensions = [{axis}] : ({M}, {F}) -> {V}\n"
    )


def spread(result, value, axis):
    return (
        f"  {result} = stablehlo.dynamic_broadcast_in_dim {value}, %bt, dims = [{axis}] : "
        f"({V}, {S2}) -> {M}\n"
    )


def softmax(axis):
    kept = 1 - axis
    return (
        reduced("%m", "%x", axis, "maximum", "%lowest")
        + spread("%mm", "%m", kept)
        + f"  %d = stablehlo.subtract %x, %mm : {M}\n  %e = stablehlo.exponential %d : {M}\n"
        + reduced("%n", "%e", axis)
        + spread("%nn", "%n", kept)
        + f"  %y = stablehlo.divide %e, %nn : {M}\n"
    )


def numpy_softmax(axis):
    def run(x, y, w):
        if x.shape[axis] == 0:
            return x.astype("f8")
        e = np.exp(x.astype("f8") - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    return run


def averaged(x, y, w):
    with np.errstate(invalid="ignore", divide="ignore"):
        return x.astype("f8").sum(0) / np.float64(x.shape[0])


def windows(x, y, w):
    padded = np.pad(x.astype("f8"), ((1, 1), (0, 0)))
    return sum(padded[k : k + x.shape[0]] for k in range(3))


def convolved(x, y, w):
    """Every row is a signal of one channel; the kernel [1, 2, 3] and padding of 1."""
    padded = np.pad(x.astype("f8"), ((0, 0), (1, 1)))
    return sum((k + 1) * padded[:, k : k + x.shape[1]] for k in range(3))[:, :, None]


def looped(x, y, w):
    total = x.astype("f8")
    for _ in range(x.shape[0]):
        total = total + x.astype("f8")[:, ::-1]
    return total


CASES = {
    "elementwise": (
        f"  %0 = stablehlo.multiply %x, %y : {M}\n  %r = stablehlo.tanh %0 : {M}\n",
        M,
        lambda x, y, w: np.tanh(x.astype("f8") * y),
    ),
    "row sums": (reduced("%r", "%x", 1), V, lambda x, y, w: x.astype("f8").sum(1)),
    "column sums": (reduced("%r", "%x", 0), V, lambda x, y, w: x.astype("f8").sum(0)),
    "row maxima": (
        reduced("%r", "%x", 1, "maximum", "%lowest"),
        V,
        lambda x, y, w: x.max(1, initial=-np.inf),
    ),
    "sum": (
        f"  %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = "
        f"[0, 1] : ({M}, {F}) -> {F}\n",
        F,
        lambda x, y, w: x.astype("f8").sum(),
    ),
    "means": (
        reduced("%s", "%x", 0)
        + f"  %bf = stablehlo.convert %b : ({C}) -> {F}\n"
        + f"  %bv = stablehlo.dynamic_broadcast_in_dim %bf, %t1, dims = [] : "
        f"({F}, tensor<1xi32>) -> {V}\n  %r = stablehlo.divide %s, %bv : {V}\n",
        V,
        averaged,
    ),
    "softmax of rows": (
        softmax(1).replace("%y =", "%r ="),
        M,
        numpy_softmax(1),
    ),
    "softmax of columns": (softmax(0).replace("%y =", "%r ="), M, numpy_softmax(0)),
    "dot over t": (
        f"  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : ({M}, {M}) -> {M}\n",
        M,
        lambda x, y, w: x.astype("f8") @ y.T.astype("f8"),
    ),
    "dot over b": (
        f"  %r = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0] : ({M}, {M}) -> {M}\n",
        M,
        lambda x, y, w: x.T.astype("f8") @ y.astype("f8"),
    ),
    "dot with weights": (
        "  %r = stablehlo.dot_general %w, %x, contracting_dims = [0] x [1] : "
        f"(tensor<?x5xf32>, {M}) -> tensor<5x?xf32>\n",
        "tensor<5x?xf32>",
        lambda x, y, w: w.T.astype("f8") @ x.T.astype("f8"),
    ),
    "batched dot": (
        "  %r = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [1] x "
        f"[1] : ({M}, {M}) -> {V}\n",
        V,
        lambda x, y, w: (x.astype("f8") * y).sum(1),
    ),
    "concatenate": (
        f"  %r = stablehlo.concatenate %x, %y, %x, dim = 0 : ({M}, {M}, {M}) -> {M}\n",
        M,
        lambda x, y, w: np.concatenate([x, y, x]),
    ),
    "pad": (
        f"  %r = stablehlo.pad %x, %zero, low = [1, 0], high = [2, 3], interior = [0, 1] : "
        f"({M}, {F}) -> {M}\n",
        M,
        lambda x, y, w: padded_inside(x),
    ),
    "gather": (
        f"""  %at = stablehlo.iota dim = 0 : tensor<3xi32>
  %r = "stablehlo.gather"(%x, %at) <{{
    dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1],
      start_index_map = [1], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 1>}}> : ({M}, tensor<3xi32>) -> tensor<1x3xf32>\n""",
        "tensor<1x3xf32>",
        lambda x, y, w: x[:1, np.minimum(np.arange(3), x.shape[1] - 1)],
    ),
    "rows looked up": (
        f"""  %at = stablehlo.dynamic_iota %b1, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %ss = stablehlo.concatenate %c1, %t1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> {S2}
  %r = "stablehlo.dynamic_gather"(%x, %at, %ss) <{{
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>}}> : ({M}, tensor<?xi32>, {S2}) -> {M}\n""",
        M,
        lambda x, y, w: x,
    ),
    "reshape": (
        f"""  %n = stablehlo.multiply %b1, %t1 : tensor<1xi32>
  %0 = stablehlo.dynamic_reshape %x, %n : ({M}, tensor<1xi32>) -> {V}
  %1 = stablehlo.negate %0 : {V}
  %r = stablehlo.dynamic_reshape %1, %tb : ({V}, {S2}) -> {M}\n""",
        M,
        lambda x, y, w: -x.reshape(x.shape[::-1]),
    ),
    "reshape by a quotient": (
        f"""  %n = stablehlo.multiply %b1, %t1 : tensor<1xi32>
  %0 = stablehlo.dynamic_reshape %x, %n : ({M}, tensor<1xi32>) -> {V}
  %q = stablehlo.multiply %n, %c4 : tensor<1xi32>
  %q4 = stablehlo.divide %q, %c4 : tensor<1xi32>
  %q1 = stablehlo.concatenate %q4, %c1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> {S2}
  %r = stablehlo.dynamic_reshape %0, %q1 : ({V}, {S2}) -> tensor<?x1xf32>\n""",
        "tensor<?x1xf32>",
        lambda x, y, w: x.reshape(-1, 1),
    ),
    "transpose": (
        f"  %0 = stablehlo.transpose %x, dims = [1, 0] : ({M}) -> {M}\n"
        f"  %1 = stablehlo.exponential %0 : {M}\n"
        f"  %r = stablehlo.concatenate %1, %0, dim = 1 : ({M}, {M}) -> {M}\n",
        M,
        lambda x, y, w: np.concatenate([np.exp(x.T.astype("f8")), x.T], 1),
    ),
    "convolution": (
        f"""  %k = stablehlo.constant dense<[[[1.0]], [[2.0]], [[3.0]]]> : tensor<3x1x1xf32>
  %s3 = stablehlo.concatenate %b1, %t1, %c1, dim = 0 :
    (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
  %0 = stablehlo.dynamic_reshape %x, %s3 : ({M}, tensor<3xi32>) -> tensor<?x?x1xf32>
  %r = stablehlo.convolution(%0, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {{pad = [[1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} :
    (tensor<?x?x1xf32>, tensor<3x1x1xf32>) -> tensor<?x?x1xf32>\n""",
        "tensor<?x?x1xf32>",
        convolved,
    ),
    "windows": (
        f"""  %r = "stablehlo.reduce_window"(%x, %zero) <{{
    window_dimensions = array<i64: 3, 1>,
    padding = dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>}}> ({SUM}) : ({M}, {F}) -> {M}\n""",
        M,
        windows,
    ),
    "sort": (
        f"""  %r = "stablehlo.sort"(%x) <{{dimension = 0 : i64, is_stable = true}}> ({{
  ^bb0(%p: {F}, %q: {F}):
    %g = stablehlo.compare LT, %p, %q : ({F}, {F}) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  }}) : ({M}) -> {M}\n""",
        M,
        lambda x, y, w: np.sort(x, 0),
    ),
    "reverse": (
        f"  %r = stablehlo.reverse %x, dims = [0, 1] : {M}\n",
        M,
        lambda x, y, w: x[::-1, ::-1],
    ),
    "slices": (
        f"""  %z2 = stablehlo.constant dense<0> : {S2}
  %h = stablehlo.divide %bt, %c22 : {S2}
  %r = stablehlo.real_dynamic_slice %x, %h, %bt, %c11 : ({M}, {S2}, {S2}, {S2}) -> {M}\n""",
        M,
        lambda x, y, w: x[x.shape[0] // 2 :, x.shape[1] // 2 :],
    ),
    "a loop of b steps": (
        f"""  %i0 = stablehlo.constant dense<0> : {C}
  %l:2 = stablehlo.while(%i = %i0, %v = %x) : {C}, {M}
  cond {{
    %g = stablehlo.compare LT, %i, %b : ({C}, {C}) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : {C}
    %n = stablehlo.add %i, %one : {C}
    %f = stablehlo.reverse %x, dims = [1] : {M}
    %u = stablehlo.add %v, %f : {M}
    stablehlo.return %n, %u : {C}, {M}
  }}
  %r = stablehlo.negate %l#1 : {M}\n""",
        M,
        lambda x, y, w: -looped(x, y, w),
    ),
    "scatter": (
        f"""  %at = stablehlo.dynamic_iota %b1, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %o = stablehlo.dynamic_broadcast_in_dim %zero, %bt, dims = [] : ({F}, {S2}) -> {M}
  %r = "stablehlo.scatter"(%o, %at, %x) <{{
    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}>
    ({SUM}) : ({M}, tensor<?xi32>, {M}) -> {M}\n""",
        M,
        lambda x, y, w: x,
    ),
}


def padded_inside(x):
    b, t = x.shape
    wide = np.zeros((b, max(2 * t - 1, 0)), "f4")
    wide[:, ::2] = x
    return np.pad(wide, ((1, 2), (0, 3)))


def program(body, kind):
    constants = f"""  %c1 = stablehlo.constant dense<1> : tensor<1xi32>
  %c4 = stablehlo.constant dense<4> : tensor<1xi32>
  %c11 = stablehlo.constant dense<1> : {S2}
  %c22 = stablehlo.constant dense<2> : {S2}
"""
    return (
        f"func.func @main(%x: {M}, %y: {M}, %w: tensor<?x5xf32>) -> {kind} {{\n"
        f"{HEAD}{constants}{body}  return %r : {kind}\n}}"
    )


def compiled(name):
    body, kind, _ = CASES[name]
    return shlo_disc.compile(
        program(body, kind),
        name=name.replace(" ", "_"),
        shapes=[["b", "t"], ["b", "t"], ["t", "5"]],
        constraints=["b >= 0", "0 <= t"],
    )


@pytest.mark.parametrize("name", CASES)
def test_all_sizes_by_one_executable(name):
    run, numpy = compiled(name), CASES[name][2]
    assert not [check for check in run.checked if "at least 1" in check]
    made = np.random.default_rng(len(name))
    for b, t in itertools.product(SIZES, SIZES):
        x, y, w = (made.standard_normal(s, np.float32) for s in ((b, t), (b, t), (t, 5)))
        if name == "gather" and (b == 0 or t == 0):  # StableHLO wants slices that fit
            with pytest.raises(ShapeMismatchError):
                run.run_numpy([x, y, w])
            continue
        (got,) = run.run_numpy([x, y, w])
        want = np.asarray(numpy(x, y, w))
        assert got.shape == want.shape, (b, t)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=f"b = {b}, t = {t}")


def test_the_bound_is_lowered_for_the_symbols_named_alone():
    body, kind, _ = CASES["row sums"]
    shapes = [["b", "t"], ["b", "t"], ["t", "5"]]
    run = shlo_disc.compile(program(body, kind), shapes=shapes, constraints="b >= 0")
    assert run.checked[0] == "the size t must be at least 1"
    assert "sizes of a call: b >= 0, t >= 1" in run.explain()
    empty = [np.ones(s, "f4") for s in ((3, 0), (3, 0), (0, 5))]
    with pytest.raises(ShapeMismatchError, match=r"t must be at least 1: 0 >= 1 does not hold"):
        run.run_numpy(empty)
    (got,) = run.run_numpy([np.ones(s, "f4") for s in ((0, 3), (0, 3), (3, 5))])
    assert got.shape == (0,)


@pytest.mark.parametrize("text", ["b >= 0", "0 <= b", "b > -1", "b + 4 >= 0", "-3 < b"])
def test_spellings_of_the_bound(text):
    shapes = [["b", "t"], ["b", "t"], ["t", "5"]]
    run = shlo_disc.compile(program(*CASES["row sums"][:2]), shapes=shapes, constraints=[text])
    assert [check for check in run.checked if "at least 1" in check] == [
        "the size t must be at least 1"
    ]


def test_a_higher_bound_beside_it_is_a_guard():
    shapes = [["b", "t"], ["b", "t"], ["t", "5"]]
    run = shlo_disc.compile(
        program(*CASES["row sums"][:2]), shapes=shapes, constraints=["b >= 0", "b >= 2", "t <= 9"]
    )
    assert "the program is compiled for b >= 2" in run.checked
    assert "sizes of a call: b >= 2, 1 <= t <= 9" in run.explain()
    with pytest.raises(ShapeMismatchError, match="compiled for b >= 2: 1 >= 2 does not hold"):
        run.run_numpy([np.ones(s, "f4") for s in ((1, 3), (1, 3), (3, 5))])


def test_a_size_divided_by_0_is_refused():
    """`t*b / b` has no value where b is 0, and neither has the size."""
    body = f"""  %n = stablehlo.multiply %b1, %t1 : tensor<1xi32>
  %0 = stablehlo.dynamic_reshape %x, %n : ({M}, tensor<1xi32>) -> {V}
  %m = stablehlo.add %n, %c1 : tensor<1xi32>
  %q = stablehlo.divide %m, %b1 : tensor<1xi32>
  %r = stablehlo.dynamic_broadcast_in_dim %zero, %q, dims = [] : ({F}, tensor<1xi32>) -> {V}
"""
    shapes = [["b", "t"], ["b", "t"], ["t", "5"]]
    run = shlo_disc.compile(program(body, V), shapes=shapes, constraints=["b >= 0"])
    for b, t in ((1, 1), (3, 5), (2, 4)):
        (got,) = run.run_numpy([np.ones(s, "f4") for s in ((b, t), (b, t), (t, 5))])
        assert got.shape == ((b * t + 1) // b,)
    with pytest.raises(ShapeMismatchError):
        run.run_numpy([np.ones(s, "f4") for s in ((0, 3), (0, 3), (3, 5))])


def test_sizes_from_data_keep_the_bound():
    """Programs in turn, each with the arguments of the call."""
    body = f"""  %0 = stablehlo.dynamic_broadcast_in_dim %zero, %bt, dims = [] : ({F}, {S2}) -> {M}
  %g = stablehlo.compare GT, %x, %0 : ({M}, {M}) -> tensor<?x?xi1>
  %i = stablehlo.convert %g : (tensor<?x?xi1>) -> tensor<?x?xi32>
  %none = stablehlo.constant dense<0> : {C}
  %c = stablehlo.reduce(%i init: %none) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<?x?xi32>, {C}) -> {C}
  %k = stablehlo.reshape %c : ({C}) -> tensor<1xi32>
  %r = stablehlo.dynamic_broadcast_in_dim %zero, %k, dims = [] : ({F}, tensor<1xi32>) -> {V}
"""
    shapes = [["b", "t"], ["b", "t"], ["t", "5"]]
    run = shlo_disc.compile(program(body, V), shapes=shapes, constraints=["b >= 0", "t >= 0"])
    for b, t in itertools.product(SIZES, SIZES):
        x = np.random.default_rng(b + t).standard_normal((b, t), np.float32)
        (got,) = run.run_numpy([x, x, np.ones((t, 5), "f4")])
        assert got.shape == ((x > 0).sum(),)


def test_an_encoder():
    """Attention, layer-norms and lookups of `examples/bert.py` at sizes that its trace has not."""
    model = small_bert()
    params = model.init(layers=2)
    traced = shlo_disc.jit(model.bert)
    leaves = jax.tree.leaves((params, *model.batch(3, 16)))
    want = np.asarray(traced(params, *model.batch(3, 16)))
    text = traced.lower(params, *model.batch(3, 16)).compile().as_text("stablehlo")
    run = shlo_disc.compile(text, constraints=["d0 >= 0", "d1 >= 0"])
    assert not [check for check in run.checked if "at least 1" in check]
    np.testing.assert_allclose(run.run_numpy(leaves)[0], want, rtol=1e-5, atol=1e-5)
    ids, mask = (np.asarray(array) for array in model.batch(8, 40))
    for b, t in ((0, 0), (0, 7), (5, 0), (1, 1), (1, 0), (8, 33)):
        got = run.run_numpy([*leaves[:-2], ids[:b, :t], mask[:b, :t]])[0]
        assert got.shape == (b, t, 48)
        if b and t:
            want = np.asarray(traced(params, ids[:b, :t], mask[:b, :t]))
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

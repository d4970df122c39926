"""Sizes computed from data: programs in turn, beside NumPy; `set_dimension_size` and bounds."""

import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral
from shlo_disc.base.errors import ShapeMismatchError, UnsupportedError
from shlo_disc.executables.data_sized import DataSizedExecutable
from tests.children import at_once

COUNT = """
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %all = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %zeros = stablehlo.dynamic_broadcast_in_dim %zero, %all, dims = []
    : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %mask = stablehlo.compare GT, %x, %zeros : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xi1>
  %ones = stablehlo.convert %mask : (tensor<?xi1>) -> tensor<?xi32>
  %count = stablehlo.reduce(%ones init: %none) applies stablehlo.add across dimensions = [0]
    : (tensor<?xi32>, tensor<i32>) -> tensor<i32>
  %k = stablehlo.reshape %count : (tensor<i32>) -> tensor<1xi32>
  %first = stablehlo.constant dense<0> : tensor<1xi32>
  %step = stablehlo.constant dense<1> : tensor<1xi32>
"""
"""The positive elements of %x, counted."""

SORTED = """
  %sorted = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %g = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  }) : (tensor<?xf32>) -> tensor<?xf32>
"""

POSITIVE = f"""
func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<i32>, tensor<?xf32>) {{
  {COUNT}
  {SORTED}
  %r = stablehlo.real_dynamic_slice %sorted, %first, %k, %step
    : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %early = stablehlo.convert %ones : (tensor<?xi32>) -> tensor<?xf32>
  %late = stablehlo.add %early, %x : tensor<?xf32>
  return %r, %count, %late : tensor<?xf32>, tensor<i32>, tensor<?xf32>
}}
"""


def positive(x):
    kept = -np.sort(-x[x > 0])
    return kept, np.int32(len(kept)), (x > 0).astype("f4") + x


def same(got, want):
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_array_equal(ours, theirs)


VECTORS = [
    np.float32(v)
    for v in ([1, -2, 3, 4, -5], [-1], [7], [], np.linspace(-1, 1, 101), np.linspace(1, 9, 64))
]


@pytest.fixture(scope="module")
def positives():
    return shlo_disc.compile(POSITIVE)


def test_results_have_the_sizes_that_data_gave(positives):
    assert isinstance(positives, DataSizedExecutable)
    for x in VECTORS:
        same(positives.run_numpy([x]), positive(x))
        same(positives(jnp.asarray(x)), positive(x))


def test_values_of_one_shape_need_no_guard_in_a_later_program(positives):
    _, later = positives.programs
    messages = [check.message for check in later.program.checks]
    assert not any("stablehlo.add needs" in message for message in messages)


def test_calls_that_give_capsules(positives):
    """The values between programs are capsules, too, and read where they are."""
    call = positives.tensor_call(None)
    for n in (5, 0, 1, 97):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        kinds = [spec.dtype for spec in positives.signature.results]
        capsules = call([x])
        assert [type(capsule).__name__ for capsule in capsules] == ["PyCapsule"] * len(kinds)
        views = [ral.numpy_view(c, dtype) for c, dtype in zip(capsules, kinds, strict=True)]
        same(views, positive(x))
        wrong = np.dtype("c8")
        assert ral.numpy_view(capsules[0], wrong) is capsules[0]
        del capsules  # the views keep the memory
        same(views, positive(x))
        assert not any(view.flags.writeable for view in views)


def test_what_is_told(positives):
    assert str(positives.signature) == (
        "(args[0]: float32[d0_0]) -> (float32[n2_0], int32[], float32[d0_0])"
    )
    assert "program 2" in positives.as_text("disc")
    assert "sort" in positives.explain()
    assert "sort" in positives.explain(format="html")
    assert positives.cost_analysis({"d0_0": 10, "n2_0": 4})["program 1: flops"] > 0
    assert "program 2: temp_size_in_bytes" in positives.memory_analysis()
    assert "float32[n2_0]" in repr(positives)


def test_errors_are_those_of_an_executable(positives):
    with pytest.raises(TypeError, match="takes 1"):
        positives(*VECTORS[:2])
    with pytest.raises(TypeError, match="float32"):
        positives(np.int32([1]))


def test_threads_share_one_executable(positives):
    def run(x):
        for _ in range(20):
            np.testing.assert_array_equal(positives.run_numpy([x])[0], positive(x)[0])

    at_once(run, VECTORS)


def test_a_size_of_a_size_of_data():
    """Two readings; the second size is computed from what has the first."""
    text = f"""
    func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?x?xi32>) {{
      {COUNT}
      {SORTED}
      %kept = stablehlo.real_dynamic_slice %sorted, %first, %k, %step
        : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
      %sum = stablehlo.reduce(%kept init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
      %floor = stablehlo.floor %sum : tensor<f32>
      %m = stablehlo.convert %floor : (tensor<f32>) -> tensor<i32>
      %mk = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
      %shape = stablehlo.concatenate %all, %mk, dim = 0
        : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %iota = stablehlo.dynamic_iota %shape, dim = 1 : (tensor<2xi32>) -> tensor<?x?xi32>
      return %kept, %iota : tensor<?xf32>, tensor<?x?xi32>
    }}
    """
    executable = shlo_disc.compile(text)
    assert len(executable.programs) == 3
    # The first size of the last result is the argument's, not one more from data.
    assert executable.signature.results[1].sizes[0] == "d0_0"
    for x in (np.float32([1.5, -2, 2.25]), np.float32([-1, -2]), np.float32([0.25])):
        kept = positive(x)[0]
        columns = int(kept.sum())
        want = np.broadcast_to(np.arange(columns, dtype="i4"), (len(x), columns))
        same(executable.run_numpy([x]), [kept, want])


def test_reshapes_pads_and_broadcasts_of_computed_sizes():
    text = """
    func.func @main(%x: tensor<?xf32>, %y: tensor<3xf32>)
        -> (tensor<?x?xf32>, tensor<?xf32>, tensor<?x3xf32>) {
      %first = stablehlo.constant dense<0> : tensor<1xi32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %i = stablehlo.convert %y : (tensor<3xf32>) -> tensor<3xi32>
      %rows = stablehlo.slice %i [0:1] : (tensor<3xi32>) -> tensor<1xi32>
      %low = stablehlo.slice %i [1:2] : (tensor<3xi32>) -> tensor<1xi32>
      %many = stablehlo.slice %i [2:3] : (tensor<3xi32>) -> tensor<1xi32>
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %all = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %columns = stablehlo.divide %all, %rows : tensor<1xi32>
      %shape = stablehlo.concatenate %rows, %columns, dim = 0
        : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %a = stablehlo.dynamic_reshape %x, %shape : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
      %b = stablehlo.dynamic_pad %x, %zero, %low, %low, %first
        : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
      %three = stablehlo.constant dense<3> : tensor<1xi32>
      %wide = stablehlo.concatenate %many, %three, dim = 0
        : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %c = stablehlo.dynamic_broadcast_in_dim %y, %wide, dims = [1]
        : (tensor<3xf32>, tensor<2xi32>) -> tensor<?x3xf32>
      return %a, %b, %c : tensor<?x?xf32>, tensor<?xf32>, tensor<?x3xf32>
    }
    """
    executable = shlo_disc.compile(text)
    assert isinstance(executable, DataSizedExecutable)
    for n, rows, low, many in ((12, 3, 2, 4), (12, 12, 0, 0), (7, 1, 5, 1)):
        x, y = np.arange(n, dtype="f4"), np.float32([rows, low, many])
        want = [x.reshape(rows, -1), np.pad(x, low), np.broadcast_to(y, (many, 3))]
        same(executable.run_numpy([x, y]), want)
    with pytest.raises(shlo_disc.ShapeMismatchError, match="dynamic_reshape"):
        executable.run_numpy([np.ones(12, "f4"), np.float32([5, 0, 0])])
    computed = r"the result of stablehlo\.\w+ at <module>:\d+:\d+"
    told = rf"^{computed} holds the size n\d_\d, which must not be .* of {computed}\)$"
    with pytest.raises(shlo_disc.ShapeMismatchError, match=told):
        executable.run_numpy([np.ones(12, "f4"), np.float32([1, 0, -1])])


def test_sizes_of_one_shape_come_from_an_argument_and_from_data():
    text = """
    func.func @main(%a: tensor<1xi32>, %b: tensor<1xi32>) -> (tensor<?x?xi32>, tensor<?xi32>) {
      %q = stablehlo.divide %a, %b : tensor<1xi32>
      %s = stablehlo.concatenate %a, %q, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %0 = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi32>) -> tensor<?x?xi32>
      %r = stablehlo.reverse %s, dims = [0] : tensor<2xi32>
      %p = stablehlo.slice %r [1:2] : (tensor<2xi32>) -> tensor<1xi32>
      %1 = stablehlo.dynamic_iota %p, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %0, %1 : tensor<?x?xi32>, tensor<?xi32>
    }
    """
    executable = shlo_disc.compile(text)
    for a, b in ((7, 2), (0, 1), (1, 3)):
        want = np.broadcast_to(np.arange(a // b, dtype="i4"), (a, a // b)), np.arange(a, dtype="i4")
        same(executable.run_numpy([np.int32([a]), np.int32([b])]), want)


def test_options_reach_the_programs_they_are_for():
    executable = shlo_disc.compile(
        POSITIVE, name="kept", names=["v"], likely={"d0_0": [5]}, weak_results=[True, False, False]
    )
    assert [program.name for program in executable.programs] == ["kept_1", "kept_2"]
    assert executable.signature.arguments[0].name == "v"
    assert [r.weak_type for r in executable(VECTORS[0])] == [True, False, False]
    with pytest.raises(ValueError, match="q"):
        shlo_disc.compile(POSITIVE, likely={"q": [5]})


SET_SIZE = """
func.func @main(%x: tensor<10x?xf32>, %n: tensor<i32>) -> (tensor<?xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.set_dimension_size %x, %n, dim = 0
    : (tensor<10x?xf32>, tensor<i32>) -> tensor<?x?xf32, #stablehlo.bounds<10, ?>>
  %w = stablehlo.multiply %y, %y : tensor<?x?xf32, #stablehlo.bounds<10, ?>>
  %m = stablehlo.get_dimension_size %w, dim = 0
    : (tensor<?x?xf32, #stablehlo.bounds<10, ?>>) -> tensor<i32>
  %r = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<?x?xf32, #stablehlo.bounds<10, ?>>, tensor<f32>) -> tensor<?xf32>
  return %r, %m : tensor<?xf32>, tensor<i32>
}
"""


def test_set_dimension_size():
    executable = shlo_disc.compile(SET_SIZE)
    for n, m in ((3, 2), (0, 5), (10, 1), (7, 0)):
        x = np.arange(10 * m, dtype="f4").reshape(10, m)
        same(executable.run_numpy([x, np.int32(n)]), [(x[:n] ** 2).sum(0), np.int32(n)])
    with pytest.raises(shlo_disc.ShapeMismatchError, match="10 >= "):
        executable.run_numpy([np.ones((10, 2), "f4"), np.int32(11)])


@pytest.mark.parametrize("shapes", [None, [["n", "m"]]])
def test_arguments_keep_to_their_bounds(shapes):
    bounded = "tensor<?x?xf32, #stablehlo.bounds<10, ?>>"
    text = f"func.func @main(%x: {bounded}) -> {bounded} {{ return %x : {bounded} }}"
    executable = shlo_disc.compile(text, shapes=shapes)
    for n in (1, 10):
        assert executable.run_numpy([np.ones((n, 20), "f4")])[0].shape == (n, 20)
    with pytest.raises(shlo_disc.ShapeMismatchError, match="<= 10"):
        executable.run_numpy([np.ones((11, 2), "f4")])


BOUNDED, PAIRS = "tensor<?xf32, #stablehlo.bounds<8>>", "tensor<?x2xf32, #stablehlo.bounds<4, ?>>"


@pytest.mark.parametrize(
    ("op", "source", "result", "want"),
    [
        ("reshape %x", PAIRS, BOUNDED, lambda x: x.reshape(-1)),
        ("reshape %x", BOUNDED, PAIRS, lambda x: x.reshape(len(x) // 2, 2)),
        ("broadcast_in_dim %x, dims = [0]", BOUNDED, PAIRS.replace("4", "8"),
         lambda x: np.repeat(x, 2).reshape(len(x), 2)),
        ("negate %x", "tensor<?xf32>", BOUNDED, lambda x: -x),
    ],
)  # fmt: skip
def test_results_with_bounds(op, source, result, want):
    executable = shlo_disc.compile(
        f"func.func @main(%x: {source}) -> {result} {{\n"
        f"%0 = stablehlo.{op} : ({source}) -> {result}\nreturn %0 : {result} }}"
    )
    for n in (0, 2, 4):
        x = np.arange(n * (2 if source is PAIRS else 1), dtype="f4")
        x = x.reshape(-1, 2) if source is PAIRS else x
        same(executable.run_numpy([x]), [want(x)])
    if op == "reshape %x" and source is BOUNDED:
        with pytest.raises(ShapeMismatchError, match="dynamic_reshape needs"):
            executable.run_numpy([np.ones(3, "f4")])


def test_a_bounded_size_that_nothing_tells_is_refused():
    text = f"""func.func @main(%x: tensor<1xf32>) -> {BOUNDED} {{
      %0 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<1xf32>) -> {BOUNDED}
      return %0 : {BOUNDED} }}"""
    with pytest.raises(UnsupportedError, match=r":2:12: .* use stablehlo.dynamic_broadcast_in_dim"):
        shlo_disc.compile(text)


def test_assertions_of_a_program_in_turn_are_checked():
    executable = shlo_disc.compile(f"""
    func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {{
      {COUNT}
      %m = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %ok = stablehlo.compare LE, %m, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.custom_call @shape_assertion(%ok)
        {{error_message = "y is longer than x", has_side_effect = true}} : (tensor<i1>) -> ()
      %r = stablehlo.real_dynamic_slice %x, %first, %k, %step
        : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
      return %r : tensor<?xf32>
    }}""")
    x = np.float32([1, -2, 3])
    same(executable.run_numpy([x, x]), [x[:2]])
    with pytest.raises(ShapeMismatchError, match="y is longer than x: 2 >= 3 does not hold"):
        executable.run_numpy([x[:2], x])

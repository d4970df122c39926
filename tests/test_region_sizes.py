"""Sizes and guards of regions: they count only if the region runs, and data may give them."""

import json

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import InvalidModuleError, ShapeMismatchError
from shlo_disc.executables.data_sized import DataSizedExecutable
from tests.children import at_once
from tests.test_data_sized import COUNT, same

V, I1, I32, S = "tensor<?xf32>", "tensor<i1>", "tensor<i32>", "tensor<1xi32>"


def vector(*values):
    return np.array(values, "f4")


# --- guards of what does not run -----------------------------------------------------------------

BRANCHES = f"""
func.func @main(%x: {V}, %y: {V}, %k: {I32}, %n: {S}) -> tensor<f32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %c0 = stablehlo.constant dense<0> : {S}
  %c1 = stablehlo.constant dense<1> : {S}
  %c3 = stablehlo.constant dense<3> : {S}
  %many = stablehlo.multiply %n, %n : {S}
  %r = "stablehlo.case"(%k) ({{
    %0 = stablehlo.add %x, %y : {V}
    %t = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
      : ({V}, tensor<f32>) -> tensor<f32>
    stablehlo.return %t : tensor<f32>
  }}, {{
    %0 = stablehlo.dynamic_reshape %x, %c3 : ({V}, {S}) -> {V}
    %t = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
      : ({V}, tensor<f32>) -> tensor<f32>
    stablehlo.return %t : tensor<f32>
  }}, {{
    %0 = stablehlo.real_dynamic_slice %x, %c3, %n, %c1 : ({V}, {S}, {S}, {S}) -> {V}
    %t = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
      : ({V}, tensor<f32>) -> tensor<f32>
    stablehlo.return %t : tensor<f32>
  }}, {{
    %0 = stablehlo.dynamic_broadcast_in_dim %zero, %many, dims = [] : (tensor<f32>, {S}) -> {V}
    %t = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
      : ({V}, tensor<f32>) -> tensor<f32>
    stablehlo.return %t : tensor<f32>
  }}, {{
    %0 = stablehlo.negate %n : {S}
    %1 = stablehlo.dynamic_pad %x, %zero, %0, %c0, %c0 : ({V}, tensor<f32>, {S}, {S}, {S}) -> {V}
    %t = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]
      : ({V}, tensor<f32>) -> tensor<f32>
    stablehlo.return %t : tensor<f32>
  }}, {{
    %0 = stablehlo.slice %x [0:2] : ({V}) -> tensor<2xf32>
    %1 = stablehlo.concatenate %0, %y, dim = 0 : (tensor<2xf32>, {V}) -> {V}
    %t = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]
      : ({V}, tensor<f32>) -> tensor<f32>
    stablehlo.return %t : tensor<f32>
  }}, {{
    %0 = stablehlo.compare LE, %n, %c3 : ({S}, {S}) -> tensor<1xi1>
    %1 = stablehlo.reshape %0 : (tensor<1xi1>) -> {I1}
    stablehlo.custom_call @shape_assertion(%1)
      {{error_message = "at most three", has_side_effect = true}} : ({I1}) -> ()
    %t = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
      : ({V}, tensor<f32>) -> tensor<f32>
    stablehlo.return %t : tensor<f32>
  }}, {{
    %t = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
      : ({V}, tensor<f32>) -> tensor<f32>
    stablehlo.return %t : tensor<f32>
  }}) : ({I32}) -> tensor<f32>
  return %r : tensor<f32>
}}
"""


def branches(x, y, k, n):
    """What BRANCHES adds up; the name of the operation that refuses the sizes, if one does."""
    if k in (2, 6) and n < 0:
        return "holds the size n3_0, which must not be negative"
    if k == 0:
        return x + y if len(x) == len(y) else "stablehlo.add needs"
    if k == 1:
        return x if len(x) == 3 else "stablehlo.dynamic_reshape needs"
    if k == 2:
        return x[3:n] if 3 <= n <= len(x) else "stablehlo.real_dynamic_slice needs"
    if k == 3:
        return np.zeros(n * n, "f4") if abs(n) < 2**15.5 else "must not be negative"  # it wraps
    if k == 4:
        zeros = np.zeros(max(-n, 0), "f4")
        return np.concatenate([zeros, x[max(n, 0) :]]) if n <= len(x) else "dynamic_pad needs"
    if k == 5:
        return np.concatenate([x[:2], y]) if len(x) >= 2 else "stablehlo.slice needs"
    if k == 6:
        return y if n <= 3 else "at most three"
    return x


@pytest.fixture(scope="module")
def cased():
    return shlo_disc.compile(BRANCHES)


@pytest.mark.parametrize(
    ("x", "y", "n"),
    [(3, 3, 3), (5, 3, 4), (0, 4, 0), (3, 2, -1), (1, 1, 5), (6, 6, 50_000), (2, 7, -2)],
)
def test_guards_of_a_branch_are_checked_if_it_runs(cased, x, y, n):
    x, y = np.arange(x, dtype="f4"), np.arange(y, dtype="f4") * 2
    for k in range(-1, 9):
        wanted = branches(x, y, k if 0 <= k < 8 else 7, n)
        arguments = [x, y, np.int32(k), np.int32([n])]
        if isinstance(wanted, str):
            with pytest.raises(ShapeMismatchError, match=wanted):
                cased.run_numpy(arguments)
        else:
            same(cased.run_numpy(arguments), [wanted.sum()])
            same(cased(*arguments), [wanted.sum()])


def test_a_call_that_breaks_no_guard_runs_as_one_program(cased):
    fresh = shlo_disc.compile(BRANCHES)
    x = vector(1, 2, 3)
    same(fresh(x, x, np.int32(0), np.int32([3])), [np.float32(12)])
    assert not isinstance(fresh, DataSizedExecutable)
    assert fresh._apart is None  # nothing was compiled for broken guards
    assert "stablehlo.add needs d0_0 == d1_0 (if its region runs)" in fresh.explain()


def test_a_broken_guard_of_a_branch_is_told_as_any_other(cased):
    told = (
        r"stablehlo.add needs d0_0 == d1_0: 2 == 3 does not hold \(d0_0 = 2 was read from "
        r"dimension 0 of argument 0 \('args\[0\]'\)"
    )
    with pytest.raises(ShapeMismatchError, match=told):
        cased(vector(1, 2), vector(1, 2, 3), np.int32(0), np.int32([0]))
    with pytest.raises(ShapeMismatchError, match="needs"):
        cased.profile(vector(1, 2), vector(1, 2, 3), np.int32(7), np.int32([0]))


def test_guards_outside_of_regions_are_checked_at_every_call():
    made = shlo_disc.compile(f"""
    func.func @main(%x: {V}, %y: {V}, %z: {V}, %p: {I1}) -> ({V}, {V}) {{
      %r = "stablehlo.if"(%p) ({{
        %0 = stablehlo.add %x, %y : {V}
        stablehlo.return %0 : {V}
      }}, {{ stablehlo.return %x : {V} }}) : ({I1}) -> {V}
      %1 = stablehlo.multiply %x, %z : {V}
      return %r, %1 : {V}, {V}
    }}""")
    one, two, no = vector(1), vector(1, 2), np.bool_(False)
    same(made(two, one, two, no), [two, two * two])
    for y in (one, two):
        with pytest.raises(ShapeMismatchError, match="multiply needs d0_0 == d2_0: 2 == 1"):
            made(two, y, one, no)
    with pytest.raises(ShapeMismatchError, match="add needs d0_0 == d1_0: 2 == 1"):
        made(two, one, two, np.bool_(True))


def test_arrays_of_a_branch_that_does_not_run_may_be_too_large():
    made = shlo_disc.compile(f"""
    func.func @main(%x: {V}, %n: {S}, %p: {I1}) -> tensor<f32> {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %r = "stablehlo.if"(%p) ({{
        %s = stablehlo.concatenate %n, %n, %n, dim = 0 : ({S}, {S}, {S}) -> tensor<3xi32>
        %0 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<3xi32>) -> tensor<?x?x?xf32>
        %1 = "stablehlo.sort"(%0) <{{dimension = 0 : i64}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %g = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> {I1}
          stablehlo.return %g : {I1}
        }}) : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
        %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0, 1, 2]
          : (tensor<?x?x?xf32>, tensor<f32>) -> tensor<f32>
        stablehlo.return %2 : tensor<f32>
      }}, {{
        %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
          : ({V}, tensor<f32>) -> tensor<f32>
        stablehlo.return %0 : tensor<f32>
      }}) : ({I1}) -> tensor<f32>
      return %r : tensor<f32>
    }}""")
    x, yes, no = vector(1, 2), np.bool_(True), np.bool_(False)
    same(made(x, np.int32([3]), yes), [np.float32(27)])
    for n in (2**31 - 1, 2**20, 2**14, -1):  # wraps; beyond a limit; beyond this machine; negative
        same(made(x, np.int32([n]), no), [np.float32(3)])
    for n, error, said in (
        (2**31 - 1, ShapeMismatchError, r"2\*\*46"),
        (-1, ShapeMismatchError, "must not be negative"),
    ):
        with pytest.raises(error, match=said):
            made(x, np.int32([n]), yes)


def test_a_branch_that_is_valid_at_no_size_may_stand_unused():
    made = shlo_disc.compile(f"""
    func.func @main(%x: tensor<4xf32>, %p: {I1}) -> {V} {{
      %one = stablehlo.constant dense<1> : {S}
      %two = stablehlo.constant dense<2> : {S}
      %s = stablehlo.add %one, %two : {S}
      %w = stablehlo.add %two, %two : {S}
      %r = "stablehlo.if"(%p) ({{
        %0 = stablehlo.dynamic_reshape %x, %s : (tensor<4xf32>, {S}) -> {V}
        stablehlo.return %0 : {V}
      }}, {{
        %0 = stablehlo.dynamic_reshape %x, %w : (tensor<4xf32>, {S}) -> {V}
        stablehlo.return %0 : {V}
      }}) : ({I1}) -> {V}
      return %r : {V}
    }}""")
    x = vector(1, 2, 3, 4)
    same(made(x, np.bool_(False)), [x])
    with pytest.raises(
        (InvalidModuleError, ShapeMismatchError), match="dynamic_reshape needs 4 =="
    ):
        made(x, np.bool_(True))


@pytest.mark.parametrize("donated", [(), (0,)])
def test_loops_that_run_zero_times(donated):
    import jax.numpy as jnp

    made = shlo_disc.compile(
        f"""
    func.func @main(%x: {V}, %y: {V}, %n: {I32}) -> {V} {{
      %w:2 = stablehlo.while(%i = %n, %a = %x) : {I32}, {V}
      cond {{
        %zero = stablehlo.constant dense<0> : {I32}
        %c = stablehlo.compare GT, %i, %zero : ({I32}, {I32}) -> {I1}
        stablehlo.return %c : {I1}
      }} do {{
        %one = stablehlo.constant dense<1> : {I32}
        %j = stablehlo.subtract %i, %one : {I32}
        %d = stablehlo.add %a, %y : {V}
        stablehlo.return %j, %d : {I32}, {V}
      }}
      return %w#1 : {V}
    }}""",
        donated=donated,
    )
    x, y = vector(1, 2, 3), vector(5, 6)
    same(made(jnp.asarray(x), y, np.int32(0)), [x])
    same(made(jnp.asarray(x), x, np.int32(2)), [3 * x])
    with pytest.raises(ShapeMismatchError, match="add needs"):
        made(jnp.asarray(x), y, np.int32(1))


def test_a_size_of_a_branch_may_be_padding_elsewhere():
    made = shlo_disc.compile(f"""
    func.func @main(%x: {V}, %n: {S}, %p: {I1}) -> ({V}, {V}) {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %none = stablehlo.constant dense<0> : {S}
      %y = stablehlo.dynamic_pad %x, %zero, %n, %none, %none
        : ({V}, tensor<f32>, {S}, {S}, {S}) -> {V}
      %r = "stablehlo.if"(%p) ({{
        %0 = stablehlo.dynamic_iota %n, dim = 0 : ({S}) -> {V}
        %1 = stablehlo.concatenate %0, %x, dim = 0 : ({V}, {V}) -> {V}
        %2 = stablehlo.multiply %1, %y : {V}
        stablehlo.return %2 : {V}
      }}, {{ stablehlo.return %y : {V} }}) : ({I1}) -> {V}
      return %y, %r : {V}, {V}
    }}""")
    x, yes, no = vector(1, 2, 3), np.bool_(True), np.bool_(False)
    for n in (-3, -1, 0, 2):
        y = np.concatenate([np.zeros(max(n, 0), "f4"), x[max(-n, 0) :]])
        same(made(x, np.int32([n]), no), [y, y])
        if n >= 0:
            z = np.concatenate([np.arange(n, dtype="f4"), x])
            same(made(x, np.int32([n]), yes), [y, y * z])
        else:
            with pytest.raises(ShapeMismatchError, match="must not be negative"):
                made(x, np.int32([n]), yes)


# --- sizes that regions give ---------------------------------------------------------------------


def test_branches_may_give_results_of_unequal_sizes():
    made = shlo_disc.compile(f"""
    func.func @main(%x: {V}, %y: {V}, %p: {I1}) -> ({V}, {I32}) {{
      %r = "stablehlo.if"(%p) ({{ stablehlo.return %x : {V} }},
        {{ stablehlo.return %y : {V} }}) : ({I1}) -> {V}
      %t = stablehlo.add %r, %r : {V}
      %n = stablehlo.get_dimension_size %r, dim = 0 : ({V}) -> {I32}
      return %t, %n : {V}, {I32}
    }}""")

    def run(call):
        x, y, p = call
        r = x if p else y
        got = made.run_numpy([x, y, np.bool_(p)])
        np.testing.assert_array_equal(got[0], r + r)
        assert got[1] == len(r)

    calls = [(vector(1, 2, 3), vector(*range(n)), p) for n in (0, 2, 3, 9) for p in (False, True)]
    at_once(run, calls)


def test_a_size_counted_inside_a_branch():
    made = shlo_disc.compile(f"""
    func.func @main(%x: {V}, %p: {I1}) -> {V} {{
      %r = "stablehlo.if"(%p) ({{
        {COUNT}
        %s = stablehlo.real_dynamic_slice %x, %first, %k, %step : ({V}, {S}, {S}, {S}) -> {V}
        stablehlo.return %s : {V}
      }}, {{ stablehlo.return %x : {V} }}) : ({I1}) -> {V}
      return %r : {V}
    }}""")
    for x in (vector(1, -2, 3), vector(-1), vector()):
        same(made(x, np.bool_(True)), [x[: (x > 0).sum()]])
        same(made(x, np.bool_(False)), [x])


LOOP = f"""
func.func @main(%x: {V}, %n: {I32}, %y: tensor<5xi32>) -> ({V}, {I32}, {V}, {I32}) {{
  %c0 = stablehlo.constant dense<0> : {I32}
  %c1 = stablehlo.constant dense<1> : {I32}
  %first = stablehlo.constant dense<0> : {S}
  %step = stablehlo.constant dense<1> : {S}
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.tanh %x : {V}
  %w:3 = stablehlo.while(%i = %c0, %a = %x, %s = %c0) : {I32}, {V}, {I32}
  cond {{
    %c = stablehlo.compare LT, %i, %n : ({I32}, {I32}) -> {I1}
    stablehlo.return %c : {I1}
  }} do {{
    %v = stablehlo.dynamic_slice %y, %i, sizes = [1] : (tensor<5xi32>, {I32}) -> {S}
    BODY
    %j = stablehlo.add %i, %c1 : {I32}
    %u = stablehlo.reduce(%many init: %s) applies stablehlo.add across dimensions = [0]
      : (tensor<?xi32>, {I32}) -> {I32}
    stablehlo.return %j, %b, %u : {I32}, {V}, {I32}
  }}
  %m = stablehlo.get_dimension_size %w#1, dim = 0 : ({V}) -> {I32}
  return %w#1, %w#2, %t, %m : {V}, {I32}, {V}, {I32}
}}"""

BODIES = {
    "iota": (
        "%many = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>\n"
        "%b = stablehlo.negate %a : tensor<?xf32>",
        lambda x, a, v, i: (-a, np.arange(v).sum()),
    ),
    "slice": (
        "%l = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?xf32>) -> tensor<i32>\n"
        "%lv = stablehlo.reshape %l : (tensor<i32>) -> tensor<1xi32>\n"
        "%k = stablehlo.minimum %v, %lv : tensor<1xi32>\n"
        "%b = stablehlo.real_dynamic_slice %a, %first, %k, %step : "
        "(tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>\n"
        "%many = stablehlo.convert %b : (tensor<?xf32>) -> tensor<?xi32>",
        lambda x, a, v, i: (a[:v], a[:v].astype("i4").sum()),
    ),
    "pad": (
        "%b = stablehlo.dynamic_pad %a, %z, %v, %first, %first : (tensor<?xf32>, tensor<f32>, "
        "tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>\n"
        "%many = stablehlo.convert %b : (tensor<?xf32>) -> tensor<?xi32>",
        lambda x, a, v, i: (np.pad(a, (v, 0)), a.astype("i4").sum()),
    ),
    "reshape and broadcast": (
        "%k = stablehlo.concatenate %v, %step, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> "
        "tensor<2xi32>\n"
        "%m = stablehlo.dynamic_broadcast_in_dim %i, %k, dims = [] : (tensor<i32>, tensor<2xi32>) "
        "-> tensor<?x?xi32>\n"
        "%many = stablehlo.dynamic_reshape %m, %v : (tensor<?x?xi32>, tensor<1xi32>) -> "
        "tensor<?xi32>\n"
        "%b = stablehlo.concatenate %a, %t, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> "
        "tensor<?xf32>",
        lambda x, a, v, i: (np.concatenate([a, np.tanh(x)]), v * i),
    ),
    "set_dimension_size": (
        "%k = stablehlo.reshape %v : (tensor<1xi32>) -> tensor<i32>\n"
        "%five = stablehlo.set_dimension_size %y, %k, dim = 0 : (tensor<5xi32>, tensor<i32>) -> "
        "tensor<?xi32, #stablehlo.bounds<5>>\n"
        "%twice = stablehlo.add %five, %five : tensor<?xi32, #stablehlo.bounds<5>>\n"
        "%many = stablehlo.real_dynamic_slice %twice, %first, %v, %step : "
        "(tensor<?xi32, #stablehlo.bounds<5>>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> "
        "tensor<?xi32>\n"
        "%b = stablehlo.negate %a : tensor<?xf32>",
        lambda x, a, v, i: (-a, 2 * np.int32([3, 0, 5, 1, 2])[:v].sum()),
    ),
    "counter": (
        "%k = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>\n"
        "%many = stablehlo.dynamic_iota %k, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>\n"
        "%odd = stablehlo.and %i, %c1 : tensor<i32>\n"
        "%b = \"stablehlo.case\"(%odd) ({\n"
        "  %0 = stablehlo.concatenate %a, %x, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> "
        "tensor<?xf32>\n  stablehlo.return %0 : tensor<?xf32>\n}, {\n"
        "  stablehlo.return %a : tensor<?xf32>\n}) : (tensor<i32>) -> tensor<?xf32>",
        lambda x, a, v, i: (a if i % 2 else np.concatenate([a, x]), np.arange(i).sum()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_sizes_computed_in_a_loop(body):
    text, step = BODIES[body]
    made = shlo_disc.compile(LOOP.replace("BODY", text))
    y = np.int32([3, 0, 5, 1, 2])
    for x in (vector(1, 2, 3, 4), vector(), vector(7)):
        for n in (0, 1, 5):
            a, total = x, 0
            for i in range(n):
                a, more = step(x, a, int(y[i]), i)
                total += more
            got = made.run_numpy([x, np.int32(n), y])
            assert got[0].shape == a.shape
            np.testing.assert_allclose(got[0], a, 1e-6)
            assert (got[1], got[3]) == (total, len(a))
            np.testing.assert_allclose(got[2], np.tanh(x), 1e-6)


def test_what_is_told_of_a_program_with_regions_apart():
    made = shlo_disc.compile(LOOP.replace("BODY", BODIES["iota"][0]), name="looped")
    assert isinstance(made, DataSizedExecutable)
    assert str(made.signature).startswith("(args[0]: float32[d0_0], args[1]: int32[], args[2]")
    assert "looped_2_2" in made.as_text("disc")
    assert '"stablehlo.while"' not in made.as_text("disc")
    x, n, y = vector(1, 2), np.int32(3), np.int32([3, 0, 5, 1, 2])
    assert len(made.profile(x, n, y, calls=1)) == 2
    with pytest.raises(TypeError, match="takes 3"):
        made(x, n)
    with pytest.raises(TypeError, match="float32"):
        made(y, n, y)


def test_packed_copies_are_kept_outside_of_regions_only():
    m, w, words = "tensor<?x96xf32>", "tensor<96x96xf32>", "contracting_dims = [1] x [0]"
    made = shlo_disc.compile(f"""
    func.func @main(%x: {m}, %w: {w}, %n: {I32}, %y: tensor<5xi32>) -> {m} {{
      %c0 = stablehlo.constant dense<0> : {I32}
      %c1 = stablehlo.constant dense<1> : {I32}
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %zero = stablehlo.constant dense<0> : {S}
      %none = stablehlo.constant dense<0> : tensor<2xi32>
      %first = stablehlo.dot_general %x, %w, {words} : ({m}, {w}) -> {m}
      %r:2 = stablehlo.while(%i = %c0, %a = %first) : {I32}, {m}
      cond {{
        %c = stablehlo.compare LT, %i, %n : ({I32}, {I32}) -> {I1}
        stablehlo.return %c : {I1}
      }} do {{
        %j = stablehlo.add %i, %c1 : {I32}
        %0 = stablehlo.dot_general %a, %w, {words} : ({m}, {w}) -> {m}
        %s = stablehlo.dynamic_slice %y, %i, sizes = [1] : (tensor<5xi32>, {I32}) -> {S}
        %v = stablehlo.concatenate %s, %zero, dim = 0 : ({S}, {S}) -> tensor<2xi32>
        %1 = stablehlo.dynamic_pad %0, %z, %v, %none, %none
          : ({m}, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> {m}
        stablehlo.return %j, %1 : {I32}, {m}
      }}
      return %r#1 : {m}
    }}""")
    memory = [program["memory"] for program in json.loads(made.explain(format="json"))]
    kept = [one["packed_arguments"] for one in memory if one["keeps_packed"]]
    anew = [one["packed_arguments"] for one in memory if not one["keeps_packed"]]
    assert ["args[1]"] in kept
    assert any(anew)
    assert "copies kept packed beside: args[1]" in made.explain()
    assert "packed anew in each call: " in made.explain()


def test_rows_of_which_facts_leave_none():
    """Guards of a region are facts to the rest; here that half of n is all of it, so n is 0."""
    made = shlo_disc.compile(
        f"""
    func.func @main(%x: tensor<?xi32>, %q: {S}) -> tensor<?xi32> {{
      %two = stablehlo.constant dense<2> : {S}
      %one = stablehlo.constant dense<1> : {S}
      %zero = stablehlo.constant dense<0> : {I32}
      %h0 = stablehlo.add %q, %one : {S}
      %h = stablehlo.divide %h0, %two : {S}
      %s = stablehlo.concatenate %h, %two, dim = 0 : ({S}, {S}) -> tensor<2xi32>
      %r = stablehlo.dynamic_reshape %x, %s : (tensor<?xi32>, tensor<2xi32>) -> tensor<?x?xi32>
      %t = stablehlo.reduce(%r init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<?x?xi32>, {I32}) -> tensor<?xi32>
      return %t : tensor<?xi32>
    }}""",
        constraints=["floordiv(n1_0 + 1, 2) == n1_0 - mod(n1_0 + 1, 2) + 1"],
    )
    same(made.run_numpy([np.int32([]), np.int32([0])]), [np.int32([])])
    with pytest.raises(ShapeMismatchError):
        made.run_numpy([np.int32([1, 2]), np.int32([1])])


# --- loops that only read arrays of unknown sizes ------------------------------------------------

READS = {
    "dynamic_slice": """
    %p = stablehlo.dynamic_slice %x, %i, sizes = [1] : (tensor<?xf32>, tensor<i32>) -> tensor<1xf32>
    %e = stablehlo.reshape %p : (tensor<1xf32>) -> tensor<f32>""",
    "gather": """
    %at = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>
    %p = "stablehlo.gather"(%x, %at) <{dimension_numbers = #stablehlo.gather<offset_dims = [0],
      start_index_map = [0]>, slice_sizes = array<i64: 1>}>
      : (tensor<?xf32>, tensor<1xi32>) -> tensor<1xf32>
    %e = stablehlo.reshape %p : (tensor<1xf32>) -> tensor<f32>""",
    "slice": """
    %p = stablehlo.slice %x [0:1] : (tensor<?xf32>) -> tensor<1xf32>
    %e = stablehlo.reshape %p : (tensor<1xf32>) -> tensor<f32>""",
}


@pytest.mark.parametrize("name", READS)
def test_a_loop_that_does_not_run_reads_nothing(name):
    """All values in the loop have static sizes; the array that it reads has not."""
    run = shlo_disc.compile(
        f"""func.func @main(%x: {V}) -> tensor<f32> {{
  %n = stablehlo.get_dimension_size %x, dim = 0 : ({V}) -> {I32}
  %zero = stablehlo.constant dense<0> : {I32}
  %one = stablehlo.constant dense<1> : {I32}
  %start = stablehlo.constant dense<5.0> : tensor<f32>
  %r:2 = stablehlo.while(%i = %zero, %a = %start) : {I32}, tensor<f32>
  cond {{
    %c = stablehlo.compare LT, %i, %n : ({I32}, {I32}) -> {I1}
    stablehlo.return %c : {I1}
  }} do {{{READS[name]}
    %next = stablehlo.add %a, %e : tensor<f32>
    %j = stablehlo.add %i, %one : {I32}
    stablehlo.return %j, %next : {I32}, tensor<f32>
  }}
  return %r#1 : tensor<f32>
}}"""
    )
    for count in (3, 1, 0):
        x = np.arange(count, dtype="f4") + 1
        wanted = 5 + (count if name == "slice" else x.sum())
        same(run.run_numpy([x]), [np.float32(wanted)])
        same(run(x), [np.float32(wanted)])

"""The host program end to end: results, copies, loops and branches, from StableHLO text."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.mlir import ir, new_context, ops_of
from shlo_disc.lower.host import launches
from shlo_disc.lower.host.addresses import Addresses
from shlo_disc.lower.host.writer import HostWriter


def run(text: str, *arrays: object) -> list[np.ndarray]:
    return shlo_disc.compile(text).run_numpy([np.asarray(a) for a in arrays])


F32 = np.float32


def test_arguments_and_constants_may_be_results():
    x, c, again, twice = run(
        """func.func public @main(%x: tensor<?xf32>)
            -> (tensor<?xf32>, tensor<2xf32>, tensor<?xf32>, tensor<?xf32>) {
          %c = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
          %y = stablehlo.add %x, %x : tensor<?xf32>
          return %x, %c, %y, %y : tensor<?xf32>, tensor<2xf32>, tensor<?xf32>, tensor<?xf32>
        }""",
        np.arange(3, dtype=F32),
    )
    np.testing.assert_array_equal(x, [0, 1, 2])
    np.testing.assert_array_equal(c, [1, 2])
    np.testing.assert_array_equal(again, [0, 2, 4])
    np.testing.assert_array_equal(twice, [0, 2, 4])


LOOP = """func.func public @main(%n: tensor<i32>, %x: tensor<?xf32>, %y: tensor<?xf32>)
    -> (tensor<i32>, tensor<?xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y) : tensor<i32>, tensor<?xf32>, tensor<?xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %s = stablehlo.add %a, %b : tensor<?xf32>
    stablehlo.return %j, %b, %s : tensor<i32>, tensor<?xf32>, tensor<?xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<i32>, tensor<?xf32>, tensor<?xf32>
}"""


def test_sizes_that_mean_nothing_are_not_read():
    text = shlo_disc.compile(
        """func.func public @main(%x: tensor<4x?xf32>, %y: tensor<8xf32>) -> tensor<?xf32> {
          %z = stablehlo.constant dense<0.0> : tensor<f32>
          %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
              : (tensor<4x?xf32>, tensor<f32>) -> tensor<?xf32>
          return %r : tensor<?xf32>
        }"""
    ).host.text
    prepare, _, _ = text.partition("func.func @run")
    assert prepare.count("llvm.getelementptr %sizes[") == 1
    assert "llvm.getelementptr %sizes[1]" in prepare


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("size", [0, 1, 5, 100])
def test_a_loop_whose_carried_values_change_places(trips, size):
    a, b = np.arange(size, dtype=F32), np.ones(size, F32)
    i, p, q = run(LOOP, np.int32(trips), a, b)
    for _ in range(trips):
        a, b = b, a + b
    assert i == trips
    np.testing.assert_array_equal(p, a)
    np.testing.assert_array_equal(q, b)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
@pytest.mark.parametrize("shape", [(), (3,), (17,)])
def test_carried_values_of_known_sizes(shape, order):
    t = f"tensor<{''.join(f'{n}x' for n in shape)}f32>"
    following = [("%a", "%b", "%s")[k] for k in order]
    executable = shlo_disc.compile(
        f"""func.func public @main(%n: tensor<i32>, %x: {t}, %y: {t}, %z: {t}) -> ({t}, {t}, {t}) {{
          %zero = stablehlo.constant dense<0> : tensor<i32>
          %one = stablehlo.constant dense<1> : tensor<i32>
          %r:4 = stablehlo.while(%i = %zero, %a = %x, %b = %y, %c = %z) : tensor<i32>, {t}, {t}, {t}
          cond {{
            %g = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %g : tensor<i1>
          }} do {{
            %j = stablehlo.add %i, %one : tensor<i32>
            %s = stablehlo.subtract %a, %c : {t}
            stablehlo.return %j, {", ".join(following)} : tensor<i32>, {t}, {t}, {t}
          }}
          return %r#1, %r#2, %r#3 : {t}, {t}, {t}
        }}"""
    )
    copies = executable.as_text("host").count("func.func @inlined")
    assert copies == 1, "the subtraction is part of the host program"
    for trips in (0, 1, 2, 5):
        values = [np.full(shape, 10.0**k, F32) for k in range(3)]
        got = executable.run_numpy([np.int32(trips), *values])
        for _ in range(trips):
            a, b, c = values
            values = [(a, b, a - c)[k] for k in order]
        for x, y in zip(got, values, strict=True):
            np.testing.assert_array_equal(x, y)


STARTS = {
    "f16": ("1.5", np.float16(1.5)),
    "f64": ("-0.0", np.float64(-0.0)),
    "i8": ("-3", np.int8(-3)),
    "ui64": (str(2**64 - 1), np.uint64(2**64 - 1)),
    "i1": ("true", np.bool_(True)),
    "2xf32": ("[3.0, -2.0]", np.array([3, -2], F32)),
}


@pytest.mark.parametrize("element", STARTS)
def test_a_loop_that_begins_at_constants(element):
    t, (values, start) = f"tensor<{element}>", STARTS[element]
    executable = shlo_disc.compile(
        f"""func.func public @main(%n: tensor<i32>, %p: {t}) -> (tensor<i32>, {t}, {t}) {{
          %zero = stablehlo.constant dense<-2> : tensor<i32>
          %one = stablehlo.constant dense<1> : tensor<i32>
          %c = stablehlo.constant dense<{values}> : {t}
          %r:3 = stablehlo.while(%i = %zero, %a = %c, %b = %p) : tensor<i32>, {t}, {t}
          cond {{
            %g = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %g : tensor<i1>
          }} do {{
            %j = stablehlo.add %i, %one : tensor<i32>
            stablehlo.return %j, %b, %a : tensor<i32>, {t}, {t}
          }}
          return %r#0, %r#1, %r#2 : tensor<i32>, {t}, {t}
        }}"""
    )
    ahead, _ = executable.as_text("host").split("func.func @run")[1].split("scf.while")
    assert ahead.count("memcpy") == 1, "LLVM does not know where the loop begins"
    other = np.zeros_like(start)
    for n in (-3, 0, 1):
        i, a, b = executable.run_numpy([np.int32(n), other])
        assert i == max(n, -2)
        want = (start, other) if max(n, -2) % 2 == 0 else (other, start)
        assert [a.tobytes(), b.tobytes()] == [w.tobytes() for w in want]


ROWS_IN_A_LOOP = """func.func public @main(%n: tensor<i32>, %x: tensor<5x20xf32>) -> tensor<5xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %start = stablehlo.constant dense<0.0> : tensor<5xf32>
  %r:2 = stablehlo.while(%i = %zero, %s = %start) : tensor<i32>, tensor<5xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<5xf32>) -> tensor<5x20xf32>
    %y = stablehlo.add %b, %x : tensor<5x20xf32>
    %t = stablehlo.reduce(%y init: %none) applies stablehlo.add across dimensions = [1]
      : (tensor<5x20xf32>, tensor<f32>) -> tensor<5xf32>
    stablehlo.return %j, %t : tensor<i32>, tensor<5xf32>
  }
  return %r#1 : tensor<5xf32>
}"""


def test_a_long_kernel_in_a_loop_is_called_without_the_runtime(monkeypatch):
    monkeypatch.setattr(launches, "_COPIED_LINES", 0)
    executable = shlo_disc.compile(ROWS_IN_A_LOOP)
    _, body = executable.as_text("host").split("scf.while")
    calls = [line for line in body.splitlines() if "llvm.call" in line]
    assert len(calls) == 1
    assert "%ctx" not in calls[0], "five tasks, which are one chunk"
    (s,) = executable.run_numpy([np.int32(2), np.ones((5, 20), F32)])
    np.testing.assert_array_equal(s, [20 * 21] * 5)


def test_a_loop_in_a_loop():
    (got,) = run(
        """func.func public @main(%n: tensor<i32>, %x: tensor<?xf32>) -> tensor<?xf32> {
          %zero = stablehlo.constant dense<0> : tensor<i32>
          %one = stablehlo.constant dense<1> : tensor<i32>
          %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<?xf32>
          cond {
            %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %c : tensor<i1>
          } do {
            %q:2 = stablehlo.while(%k = %zero, %b = %a) : tensor<i32>, tensor<?xf32>
            cond {
              %c = stablehlo.compare LE, %k, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
              stablehlo.return %c : tensor<i1>
            } do {
              %l = stablehlo.add %k, %one : tensor<i32>
              %d = stablehlo.add %b, %x : tensor<?xf32>
              stablehlo.return %l, %d : tensor<i32>, tensor<?xf32>
            }
            %j = stablehlo.add %i, %one : tensor<i32>
            stablehlo.return %j, %q#1 : tensor<i32>, tensor<?xf32>
          }
          return %r#1 : tensor<?xf32>
        }""",
        np.int32(4),
        np.arange(7, dtype=F32),
    )
    np.testing.assert_array_equal(got, np.arange(7) * 11)


CASE = """func.func public @main(%i: tensor<i32>, %x: tensor<?xf32>)
    -> (tensor<?xf32>, tensor<?xf32>) {
  %r:2 = "stablehlo.case"(%i) ({
    %a = stablehlo.add %x, %x : tensor<?xf32>
    stablehlo.return %a, %x : tensor<?xf32>, tensor<?xf32>
  }, {
    %b = stablehlo.negate %x : tensor<?xf32>
    stablehlo.return %b, %b : tensor<?xf32>, tensor<?xf32>
  }, {
    stablehlo.return %x, %x : tensor<?xf32>, tensor<?xf32>
  }) : (tensor<i32>) -> (tensor<?xf32>, tensor<?xf32>)
  %s = stablehlo.multiply %r#0, %r#1 : tensor<?xf32>
  return %r#0, %s : tensor<?xf32>, tensor<?xf32>
}"""


@pytest.mark.parametrize(("index", "branch"), [(0, 0), (1, 1), (2, 2), (3, 2), (-1, 2)])
def test_case_takes_the_last_branch_outside_the_range(index, branch):
    x = np.arange(1, 6, dtype=F32)
    first, second = [(2 * x, x), (-x, -x), (x, x)][branch]
    got, product = run(CASE, np.int32(index), x)
    np.testing.assert_array_equal(got, first)
    np.testing.assert_array_equal(product, first * second)


@pytest.mark.parametrize("flag", [True, False])
def test_if(flag):
    (got,) = run(
        """func.func public @main(%p: tensor<i1>, %x: tensor<?xf32>) -> tensor<?xf32> {
          %r = "stablehlo.if"(%p) ({
            %a = stablehlo.add %x, %x : tensor<?xf32>
            stablehlo.return %a : tensor<?xf32>
          }, {
            stablehlo.return %x : tensor<?xf32>
          }) : (tensor<i1>) -> tensor<?xf32>
          return %r : tensor<?xf32>
        }""",
        np.bool_(flag),
        np.arange(3, dtype=F32),
    )
    np.testing.assert_array_equal(got, np.arange(3) * (2 if flag else 1))


def test_sizes_are_computed_once_in_the_entry():
    w = HostWriter("symbols", ["b", "t"])
    first = w.size(Expr.parse("2*b*t + 1"))
    assert w.size(Expr.parse("2*b*t + 1")) is first
    with w.if_(w.compare(first, "<", w.const(9))) as branch:
        w.size(Expr.parse("floordiv(t - 1, 2) + mod(b, 3)"))
        with branch.otherwise():
            w.store(w.size(Expr.parse("b + 5")), w.argument("symbols"))
    entry, inside = w.function("func.func @f(%symbols: !llvm.ptr)").split("scf.if")
    assert entry.count("arith.divsi") == 2
    assert "arith" not in inside
    assert inside.count("llvm.store") == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint16, np.bool_])
def test_constants_of_every_width(dtype):
    names = {"float16": "f16", "float64": "f64", "int8": "i8", "uint16": "ui16", "bool": "i1"}
    element = names[np.dtype(dtype).name]
    values = {"i1": "[true, false, true]"}.get(element, "[1, 0, 5]")
    if element.startswith("f"):
        values = "[1.0, 0.0, 5.0]"
    (got,) = run(
        f"""func.func public @main(%p: tensor<?xf32>) -> tensor<3x{element}> {{
          %c = stablehlo.constant dense<{values}> : tensor<3x{element}>
          return %c : tensor<3x{element}>
        }}""",
        np.zeros(2, F32),
    )
    np.testing.assert_array_equal(got, np.array([1, 0, 5]).astype(dtype))


T = "tensor<?xf32>"
READERS = {
    "a result": f"""(%n: tensor<i32>, %p: tensor<i1>, %x: {T}, %y: {T}) -> {T} {{
      return %x : {T} }}""",
    "a kernel": f"""(%n: tensor<i32>, %p: tensor<i1>, %x: {T}, %y: {T}) -> {T} {{
      %r = stablehlo.add %y, %y : {T}
      return %r : {T} }}""",
    "a size": f"""(%n: tensor<i32>, %p: tensor<i1>, %x: {T}, %y: {T}) -> tensor<i32> {{
      %r = "stablehlo.get_dimension_size"(%x) <{{dimension = 0 : i64}}> : ({T}) -> tensor<i32>
      return %r : tensor<i32> }}""",
    "a branch": f"""(%n: tensor<i32>, %p: tensor<i1>, %x: {T}, %y: {T}) -> {T} {{
      %r = "stablehlo.if"(%p) ({{
        stablehlo.return %x : {T}
      }}, {{
        stablehlo.return %y : {T}
      }}) : (tensor<i1>) -> {T}
      return %r : {T} }}""",
    "a scalar": f"""(%n: tensor<i32>, %p: tensor<i1>, %x: {T}, %y: {T}) -> tensor<i32> {{
      %r = stablehlo.add %n, %n : tensor<i32>
      return %r : tensor<i32> }}""",
    "a loop": f"""(%n: tensor<i32>, %p: tensor<i1>, %x: {T}, %y: {T}) -> ({T}, {T}) {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:4 = stablehlo.while(%i = %zero, %a = %x, %b = %y, %m = %n)
          : tensor<i32>, {T}, {T}, tensor<i32>
      cond {{
        %c = stablehlo.compare LT, %i, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %one = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %one : tensor<i32>
        %s = stablehlo.add %a, %a : {T}
        stablehlo.return %j, %s, %b, %m : tensor<i32>, {T}, {T}, tensor<i32>
      }}
      return %r#1, %r#1 : {T}, {T} }}""",
}
USED = {"a result": {2}, "a kernel": {3}, "a size": set(), "a branch": {1, 2, 3},
        "a scalar": {0}, "a loop": {0, 2}}  # fmt: skip


def loaded_and_used(text: str) -> set[int]:
    """The arguments whose address some operation of the host program `text` has as an operand."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        (run_,) = (
            op for op in ops_of(module, "func.func") if op.attributes["sym_name"].value == "run"
        )
        found = set()
        for use in run_.regions[0].blocks[0].arguments[1].uses:
            element = use.owner.operation
            (index,) = ir.DenseI32ArrayAttr(element.attributes["rawConstantIndices"])
            (load,) = (use.owner.operation for use in element.results[0].uses)
            assert load.name == "llvm.load"
            if any(True for _ in load.results[0].uses):
                found.add(index)
        return found


@pytest.mark.parametrize("reader", READERS)
def test_an_argument_is_unread_if_nothing_has_its_address(reader):
    host = shlo_disc.compile(f"func.func public @main{READERS[reader]}").host
    assert loaded_and_used(host.text) == USED[reader]
    assert set(host.unread_arguments) == {0, 1, 2, 3} - USED[reader]


def test_a_place_that_is_shared_is_no_use_until_its_address_is_taken():
    addresses = Addresses()
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(f"func.func @main(%x: {T}, %y: {T}) {{ return }}")
        x, y = ops_of(module, "func.func")[0].regions[0].blocks[0].arguments
        addresses.argument(x, 0, "%p0")
        addresses.same(y, x)
        assert y in addresses
        assert addresses.used == set()
        assert addresses[y] == "%p0"
        assert addresses.used == {0}


@pytest.mark.parametrize(
    "number",
    [
        lambda n, p: p // (n - 9),
        lambda n, p: p % (n - 9),
        lambda n, p: (p - 9) // n,
        lambda n, p: (n - 9) % (p - 9),
    ],
)
def test_quotients_and_remainders_of_any_sign(number):
    """Python rounds down, whatever the signs are."""

    @shlo_disc.jit
    def f(x, y):
        return jnp.full((3,), number(x.shape[0], y.shape[0])).sum()

    for n, p in ((4, 3), (7, 5), (8, 2)):
        assert f(np.ones(n, np.float32), np.ones(p, np.float32)) == 3 * number(n, p)
    assert f.cache_info().misses == 1

"""Scalars on the host: programs on a device that the host program reaches by operations only.

Each is compiled once, run at several sizes, and must read from the device as often as it says: the
host program waits there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ingest import foreign_calls, ingest
from shlo_disc.ir.mlir import ir, new_context, ops_of
from shlo_disc.lower.cpu.target import EMITTERS
from shlo_disc.lower.gpu.host_memory import GpuMemory
from shlo_disc.lower.host.writer import HostWriter
from shlo_disc.lower.plan import FfiCall, Input, Kernel, KernelPlan, Launch, Output
from shlo_disc.lower.target import Emitter
from shlo_disc.passes.base import Pipeline
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.op_classes import FREE
from shlo_disc.passes.pipeline import CLEANUP, planning
from shlo_disc.passes.records import Planned, planned
from tests.cases import slow
from tests.lower.device import FAR_MODEL, Emitted, Stream, StreamMemory, emitted

NO_WORK = FREE | {"disc.shape", "disc.yield", "stablehlo.constant"}

SIZES = (1, 4, 7)


def vector(n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(0.5, 2, n).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A function of arguments, and how often it reads."""

    function: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]
    """At size n."""
    reads: Callable[[int], int]
    """At size n."""
    shapes: tuple[str, ...] = ("n",)
    """Of the arguments, with symbols."""


def never(n: int) -> int:
    return 0


def once(n: int) -> int:
    return 1


def fori(x):
    return lax.fori_loop(0, 10, lambda i, a: a * 0.5 + i * x, x)


def over_all(x):
    """The bound is a size."""
    return lax.fori_loop(0, x.shape[0], lambda i, a: a.at[i].add(i), x)


def lstm(x, w):
    def step(carry, row):
        h, c = carry
        i, f, o, g = jnp.split(h @ w + jnp.tile(row, 4), 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (jnp.zeros(8), jnp.ones(8)), x)


def nested(x):
    def outer(i, a):
        return lax.fori_loop(0, i, lambda k, b: b + x * k, a) * 0.5

    return lax.fori_loop(0, 5, outer, x)


def while_small(x):
    return lax.while_loop(lambda a: a.sum() < 100, lambda a: a * 2, x)


def doublings(n: int) -> int:
    total, count = float(vector(n).sum()), 0
    while total < 100:
        total, count = 2 * total, count + 1
    return count


def while_small_counted(x):
    """The counter is a result, and one of two conditions."""
    return lax.while_loop(
        lambda s: (s[0] < 3) & (s[1].sum() < 100), lambda s: (s[0] + 1, s[1] * 2), (0, x)
    )


def branches_of_data(x):
    def step(a, row):
        return lax.cond(a.sum() > 2, lambda a: a - row, lambda a: a + row, a), None

    return lax.scan(step, jnp.zeros(1), x[:, None])[0]


def branches_of_counters(x):
    def step(i, a):
        ways = [lambda a: a + 1, lambda a: a * 2, lambda a: a - x]
        return lax.switch(i % 3, ways, a)

    return lax.fori_loop(0, 7, step, x)


def slices(x):
    def step(i, a):
        part = lax.dynamic_slice(a, (i,), (1,))
        return lax.dynamic_update_slice(a, part * 2 + i, (a.shape[0] - 1 - i,))

    return lax.fori_loop(0, x.shape[0], step, x)


def two_conditions_of_data(x, w):
    """Two kernels count, and another one computes whether both conditions hold."""
    return lax.while_loop(
        lambda s: ((s[0] > 50).sum() == 0) & ((s[1] < 1e9).sum() > 0),
        lambda s: (s[0] * 2, s[1] + 1),
        (x[:, 0] ** 2, w),
    )


def squares_doubled(n: int) -> int:
    largest, count = (rows(n)[0][:, 0] ** 2).max(), 0
    while largest <= 50:
        largest, count = 2 * largest, count + 1
    return count


def stored_where_computed(x):
    """An update is at a place that a kernel computes: another one stores it."""

    def step(i, s):
        k, a = s
        a = lax.dynamic_update_slice(a, jnp.tanh(x[:1] * i), (k,), allow_negative_indices=False)
        return jnp.argmax(x * jnp.sin(jnp.float32(i))), a

    return lax.fori_loop(0, 4, step, (jnp.argmin(x), x * 2))


def rates(x):
    """Kernels compute floats from numbers that conditions are computed from, too."""

    def step(i, a):
        k = lax.rem(i * 2, 3)
        a = a - 0.1 / (1 - 0.5 ** (i + 1.0)) * k
        return lax.cond(k == 0, lambda a: a + 1, lambda a: a * 2, a)

    def outer(s):
        i, a = s
        following = i + 1
        return following, a * (1 - 0.9**following)

    return lax.while_loop(lambda s: s[0] < 5, outer, (0, lax.fori_loop(0, 5, step, x)))


def numbers_of_kernels(x, w):
    """A kernel computes a number from two others: it is read, not the two."""

    def step(i, s):
        a, b = s
        k = lax.rem((a > i).sum() * 3 + (b > i).sum(), 5)
        b = b + jnp.sin(k * 0.1)
        return lax.cond(k > 2, lambda a: a + 1, lambda a: a * 2, a), b

    return lax.fori_loop(0, 4, step, (x[:, 0], w))


def flag(x):
    """A flag is carried: kernels compute it, the condition asks for it."""

    def step(s):
        _, a = s
        return a.sum() * 2 < 100, a * 2

    return lax.while_loop(lambda s: s[0], step, (True, x))


def bound_given(n, x):
    """The argument is the bound of a loop in a loop."""

    def outer(i, a):
        return lax.fori_loop(0, n, lambda k, b: b + k, a) * 0.5

    return lax.fori_loop(0, 3, outer, x), n + 1


def start_given(n, x):
    return lax.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 2, s[1] + s[0]), (n, x))


def nobody_asks(n, x):
    return n * 3 + 1, x * (n + 2)


def bound_computed(x):
    """A kernel counts, and a loop runs so often."""
    count = (x > 1).sum()
    return lax.fori_loop(0, count, lambda i, a: a + i, x), count


def place_computed(x):
    """Kernels read where a kernel says: the host does not ask."""

    def step(i, a):
        k = jnp.argmax(a)
        return lax.dynamic_update_slice(a, a[:1] * 0.5, (k,)) + lax.dynamic_slice(a, (k,), (1,))

    return lax.fori_loop(0, 4, step, x)


def numbers_of_branches(x):
    """A branch gives numbers, which index."""

    def step(i, a):
        k = lax.cond(i % 2 == 0, lambda: 0, lambda: i // 2)
        return a.at[k].add(1.5)

    return lax.fori_loop(0, 6, step, x)


def changing_places(x):
    """Numbers of the host change places, beside one that is sometimes of the device's."""

    def step(i, s):
        p, q, r, t, a = s
        return q + i, p, t, jnp.int32(a.sum()), a + p * r

    return lax.fori_loop(0, 6, step, (1, 2, 3, 4, x))


def one_after_the_other(x):
    for k in range(4):
        _, x = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + s[0]), (k, x))
    return x


def loop_in_a_branch(p, x):
    def many(x):
        return lax.fori_loop(0, 3, lambda i, a: a * i + x, x), 3

    return lax.cond(p > 1, many, lambda x: (x, p), x)


def asked_for_twice(x):
    """A number of a kernel's is a condition in the loop, and one after it."""

    def step(s):
        count, a = s
        a = lax.cond(count % 2 == 0, lambda a: a * 2, lambda a: a * 3, a)
        return (a < 50).sum(), a

    count, x = lax.while_loop(lambda s: s[0] > 0, step, (1, x))
    return lax.cond(count == 0, lambda x: x + 1, lambda x: x, x), count


def steps_of_asked(n: int) -> int:
    count, a, steps = 1, vector(n), 0
    while count:
        a = a * (3 if count % 2 else 2)
        count, steps = int((a < 50).sum()), steps + 1
    return steps


def with_number(number: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda n: (np.int32(number), vector(n))


def alone(n: int) -> tuple[Any, ...]:
    return (vector(n),)


def rows(n: int) -> tuple[Any, ...]:
    r = np.random.default_rng(n)
    return r.normal(size=(n, 8)).astype(np.float32), r.normal(size=(8, 32)).astype(np.float32) / 4


CASES = {
    "asked for twice": Case(asked_for_twice, alone, steps_of_asked),
    "bound computed": Case(bound_computed, alone, once),
    "bound given": Case(bound_given, with_number(4), once, ("", "n")),
    "branches of counters": Case(branches_of_counters, alone, never),
    "branches of data": Case(branches_of_data, alone, lambda n: n),
    "changing places": Case(changing_places, alone, never),
    "flag": Case(flag, alone, lambda n: max(doublings(n), 1)),
    "fori": Case(fori, alone, never),
    "loop in a branch": Case(loop_in_a_branch, with_number(2), once, ("", "n")),
    "lstm": Case(lstm, rows, never, ("n, 8", "8, 32")),
    "nested": Case(nested, alone, never),
    "nobody asks": Case(nobody_asks, with_number(5), never, ("", "n")),
    "numbers of branches": Case(numbers_of_branches, alone, never),
    "one after the other": Case(one_after_the_other, alone, never),
    "numbers of kernels": Case(numbers_of_kernels, rows, lambda n: 4, ("n, 8", "8, 32")),
    "over all": Case(over_all, alone, never),
    "place computed": Case(place_computed, alone, never),
    "rates": Case(rates, alone, never),
    "slices": Case(slices, alone, never),
    "start given": Case(start_given, with_number(-3), once, ("", "n")),
    "stored where computed": Case(stored_where_computed, alone, never),
    "two conditions of data": Case(
        two_conditions_of_data, rows, lambda n: squares_doubled(n) + 1, ("n, 8", "8, 32")
    ),
    "while small": Case(while_small, alone, lambda n: doublings(n) + 1),
    "while small, counted": Case(
        while_small_counted, alone, lambda n: min(doublings(n), 3) + 1
    ),
}  # fmt: skip


def compiled(case: Case, emitters: Mapping[str, Emitter] | None = None) -> Emitted:
    """One program for all sizes."""
    given = zip(case.shapes, case.arguments(3), strict=True)
    scope = export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), argument.dtype)
        for shape, argument in given
    ]
    text = export.export(jax.jit(case.function))(*specs).mlir_module()
    return emitted(text, StreamMemory(), emitters)


@pytest.mark.parametrize("name", CASES)
def test_results_and_reads(name):
    case = CASES[name]
    made = compiled(case)
    for n in SIZES:
        arguments = case.arguments(n)
        stream = Stream()
        got = stream.run(made, list(map(np.asarray, arguments)))
        for mine, want in zip(got, jax.tree.leaves(case.function(*arguments)), strict=True):
            np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-5)
        assert stream.done["read"] == case.reads(n), (n, stream.done)


TYPES = {"i1": np.bool_, "i8": np.int8, "ui8": np.uint8, "i16": np.int16, "ui16": np.uint16,
         "i32": np.int32, "ui32": np.uint32, "i64": np.int64, "ui64": np.uint64}  # fmt: skip


def counting(name: str) -> str:
    """A loop in which a number of this type is carried, added to an array, and a result."""
    t, a = f"tensor<{name}>", f"tensor<?x{name}>"
    numbers = ("true", "true") if name == "i1" else ("77", "3")
    first, factor = (f"stablehlo.constant dense<{number}> : {t}" for number in numbers)
    change = "xor" if name == "i1" else "multiply"
    return f"""func.func public @main(%x: {a}) -> ({t}, {a}) {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %first = {first}
      %shape = "stablehlo.get_dimension_size"(%x) <{{dimension = 0 : i64}}> : ({a}) -> tensor<i32>
      %sizes = stablehlo.reshape %shape : (tensor<i32>) -> tensor<1xi32>
      %r:3 = stablehlo.while(%i = %zero, %v = %first, %y = %x) : tensor<i32>, {t}, {a}
      cond {{
        %n = stablehlo.constant dense<11> : tensor<i32>
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %one = stablehlo.constant dense<1> : tensor<i32>
        %f = {factor}
        %j = stablehlo.add %i, %one : tensor<i32>
        %w = stablehlo.{change} %v, %f : {t}
        %b = stablehlo.dynamic_broadcast_in_dim %v, %sizes, dims = [] : ({t}, tensor<1xi32>) -> {a}
        %z = stablehlo.xor %y, %b : {a}
        stablehlo.return %j, %w, %z : tensor<i32>, {t}, {a}
      }}
      return %r#1, %r#2 : {t}, {a}
    }}"""


@pytest.mark.parametrize("name", TYPES)
def test_a_number_of_every_type(name):
    kind = TYPES[name]
    value = kind(1 if name == "i1" else 77)
    x = np.arange(5).astype(kind)
    stream = Stream()
    got, array = stream.run(emitted(counting(name), StreamMemory()), [x])
    with np.errstate(over="ignore"):
        for _ in range(11):
            x = x ^ value
            value = ~value if name == "i1" else value * kind(3)
    assert (got.dtype, got) == (value.dtype, value)
    np.testing.assert_array_equal(array, x)
    assert stream.done["by value"] == 11
    assert (stream.done["read"], stream.done["write"]) == (0, 1)


@pytest.mark.parametrize("name", TYPES)
def test_a_kernel_is_told_what_it_gets_by_value(name):
    """With its bytes, which are as many as the driver copies."""
    with new_context(), ir.Location.unknown():
        module = ingest(counting(name), ir.Context.current)
        Pipeline([*CLEANUP, *planning(FAR_MODEL)]).run(module)
        shapes = analyze(module)
        given = [
            planned(op, shapes).by_value
            for op in ops_of(module, "disc.fusion")
            if not kind_of(op).on_host
        ]
    assert [by for by in given if by] == [{1: np.dtype(TYPES[name]).itemsize}]


def test_a_call_of_the_runtime_gets_addresses_of_the_device(monkeypatch):
    # It is registered.
    monkeypatch.setattr(foreign_calls, "ffi_target", lambda *_, **__: None)
    text = """func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<3xf32>
      cond {
        %n = stablehlo.constant dense<5> : tensor<i32>
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %one : tensor<i32>
        %z = stablehlo.custom_call @plus(%j, %y) {api_version = 4 : i32}
          : (tensor<i32>, tensor<3xf32>) -> tensor<3xf32>
        stablehlo.return %j, %z : tensor<i32>, tensor<3xf32>
      }
      return %r#1 : tensor<3xf32>
    }"""

    def emit(fusion: Planned[Any], machine: Any) -> KernelPlan:
        call = FfiCall("plus", (), ("i32", "f32", "f32"), (0, 1, 1), (Input(0), Input(1)),
                       (Output(0),), (Expr.const(3), Expr.const(3)), ())  # fmt: skip
        return KernelPlan((call,))

    def handler(addresses: list[int]) -> None:
        number = ctypes.c_int32.from_address(addresses[0])
        before, after = (
            np.ctypeslib.as_array((ctypes.c_float * 3).from_address(address))
            for address in addresses[1:]
        )
        after[:] = before + number.value

    stream = Stream(handler)
    made = emitted(text, StreamMemory(), {**EMITTERS, "ffi": emit})
    (got,) = stream.run(made, [np.arange(3, dtype=np.float32)])
    np.testing.assert_array_equal(got, [15, 16, 17])
    assert (stream.done["write"], stream.done["read"]) == (5, 0)


@pytest.mark.parametrize("operations", range(12))
def test_a_loop_ends_after_a_failure(operations):
    """What is read is 0 then, of which the condition is true."""

    def function(x):
        return lax.while_loop(lambda a: (a > 100).sum() == 0, lambda a: a * 2, x)

    case = Case(function, alone, never)
    stream = Stream(operations=operations)
    stream.run(compiled(case), [np.ones(3, np.float32)])
    assert stream.done["after a failure"] < 8


def transfers(made: Emitted) -> list[str]:
    return sorted(use.name for use in made.host.uses if use.name in ("read", "write"))


@pytest.mark.parametrize("name", ["asked for twice", *slow(["lstm"]), "slices"])
def test_fusions_that_are_planned_again(name):
    """Homes are found anew where smaller fusions are in the place of larger ones."""

    def no_more_than(most: int) -> dict[str, Emitter]:
        def refusing(emit: Emitter) -> Emitter:
            def emitter(fusion: Planned[Any], machine: Any) -> KernelPlan:
                count = sum(v.operation.name not in NO_WORK for v in fusion.block.operations)
                if count > most:
                    raise ValueError("too much for this emitter")
                return emit(fusion, machine)

            return emitter

        return {kind: refusing(emit) for kind, emit in EMITTERS.items()}

    case = CASES[name]
    split, whole = compiled(case, no_more_than(1)), compiled(case)
    assert len(split.host.uses) > len(whole.host.uses)
    assert transfers(split) == transfers(whole)
    for n in SIZES:
        arguments = case.arguments(n)
        got = Stream().run(split, list(map(np.asarray, arguments)))
        for mine, want in zip(got, jax.tree.leaves(case.function(*arguments)), strict=True):
            np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-5)


def test_a_gpu_has_no_kernels_with_scratch_memory():
    launch = Launch(Kernel("k", ""), (), (), Expr.const(1), Expr.const(1), Expr.const(64))
    w = HostWriter("symbols", [])
    with pytest.raises(InternalError, match="k calls kernels or has scratch memory"):
        GpuMemory().launch(w, launch, w.null(), w.null(), w.null())


def test_a_number_that_is_read_is_computed_once():
    uses = compiled(CASES["numbers of kernels"]).host.uses
    assert sum("stablehlo.remainder" in dict(use.ops) for use in uses) == 1
    uses = compiled(CASES["rates"]).host.uses  # by a kernel, and for the condition
    assert [use.kind for use in uses if "stablehlo.remainder" in dict(use.ops)] == ["host", "loop"]

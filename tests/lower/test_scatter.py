"""Kinds scatter, dynamic_update_slice and select_and_scatter against the specification."""

# ruff: noqa: E501 - MLIR text
from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from shlo_disc.lower.cpu.codegen import assembly
from shlo_disc.lower.kernels.scatter import emit_scatter
from shlo_disc.lower.kernels.select_and_scatter import emit_select_and_scatter
from shlo_disc.lower.kernels.update_slice import emit_dynamic_update_slice
from shlo_disc.lower.plan import Input, Output
from shlo_disc.lower.target import parse
from tests.cases import crossed
from tests.lower.helpers import DTYPES, fusion_text, plan_of, run, sample, tensor


@dataclass(frozen=True)
class Numbers:
    """Scatter dimension numbers."""

    window: Sequence[int]
    inserted: Sequence[int]
    to: Sequence[int]
    vector: int
    batching: Sequence[int] = field(default=())
    index_batching: Sequence[int] = field(default=())

    def __str__(self) -> str:
        return (
            f"#stablehlo.scatter<update_window_dims = {list(self.window)}, "
            f"inserted_window_dims = {list(self.inserted)}, "
            f"input_batching_dims = {list(self.batching)}, "
            f"scatter_indices_batching_dims = {list(self.index_batching)}, "
            f"scatter_dims_to_operand_dims = {list(self.to)}, index_vector_dim = {self.vector}>"
        )


def want_scatter(x, indices, updates, numbers: Numbers, combine):
    """The specification, window by window, but windows partly outside are skipped (XLA)."""
    x = x.copy()
    gone = (*numbers.inserted, *numbers.batching)
    kept = [d for d in range(x.ndim) if d not in gone]
    extent = dict.fromkeys(range(x.ndim), 1)
    extent |= {o: updates.shape[d] for d, o in zip(numbers.window, kept, strict=True)}
    scattered = [d for d in range(updates.ndim) if d not in numbers.window]
    if numbers.vector == indices.ndim:
        indices = indices[..., None]
    index_dims = [d for d in range(indices.ndim) if d != numbers.vector]
    for batch in np.ndindex(*(updates.shape[d] for d in scattered)):
        at: list[object] = list(batch)
        at.insert(numbers.vector, slice(None))
        target = [0] * x.ndim
        for o, start in zip(numbers.to, indices[tuple(at)], strict=True):
            target[o] += int(start)
        for s, o in zip(numbers.index_batching, numbers.batching, strict=True):
            target[o] += batch[index_dims.index(s)]
        if any(target[o] < 0 or target[o] + extent[o] > x.shape[o] for o in numbers.to):
            continue
        where = tuple(slice(t, t + extent[o]) if o in kept else t for o, t in enumerate(target))
        own: list[object] = [slice(None)] * updates.ndim
        for d, place in zip(scattered, batch, strict=True):
            own[d] = place
        x[where] = combine(x[where], updates[tuple(own)])
    return x


BODIES = {
    "add": lambda a, b: a + b,
    "maximum": np.maximum,
    "or": lambda a, b: a | b,
}

CASES = {
    "rows": ("n,d", "s", "s,d", Numbers([1], [0], [0], 1)),
    "rows_by_vector": ("n,d", "s,1", "s,d", Numbers([1], [0], [0], 1)),
    "points": ("n,d", "s,2", "s", Numbers([], [0, 1], [0, 1], 1)),
    "vector_first": ("n,m,d", "2,s", "s,d", Numbers([1], [0, 1], [1, 0], 0)),
    "batched": ("b,n,d", "b,s,1", "b,s,d", Numbers([2], [1], [1], 2, [0], [0])),
    "one_window": ("n,d", "2", "k,m", Numbers([0, 1], [], [0, 1], 0)),
    "window_of_rows": ("n,d", "1", "k,d", Numbers([0, 1], [], [0], 0)),
    "window_in_front": ("n,d", "s,1", "d,s", Numbers([0], [0], [0], 1)),
    "last_moves": ("d,n", "s,1", "d,s", Numbers([0], [1], [1], 1)),
    "partial_window": ("n,d,e", "s,1", "s,k,e", Numbers([1, 2], [0], [0], 1)),
    "short_last": ("n,d,e", "s,1", "s,d,k", Numbers([1, 2], [0], [0], 1)),
}
ENVS = [
    {"b": 3, "n": 7, "m": 5, "d": 20, "e": 9, "k": 3, "s": 9},
    {"b": 1, "n": 1, "m": 1, "d": 1, "e": 1, "k": 1, "s": 1},
    {"b": 2, "n": 4, "m": 3, "d": 33, "e": 16, "k": 4, "s": 0},
    {"b": 0, "n": 5, "m": 4, "d": 2, "e": 3, "k": 2, "s": 4},
    {"b": 2, "n": 3, "m": 600, "d": 1037, "e": 2, "k": 2, "s": 4},
]


def scatter_plan(
    case: str, dtype: str, body: str, index: str = "i32", *, is_sorted: bool = False, machine=None
):
    operand, indices, updates, numbers = {**CASES, **SORTED}[case]
    flag = "indices_are_sorted = true, " if is_sorted else ""
    types = [tensor(operand, dtype), tensor(indices, index), tensor(updates, dtype)]
    text = f"""%p = "stablehlo.scatter"(%x, %i, %u) <{{{flag}scatter_dimension_numbers = {numbers}}}> ({{
      ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
        {body}
        stablehlo.return %r : tensor<{dtype}>
      }}) : ({", ".join(types)}) -> {types[0]}"""
    operands = [f"x: {operand} {dtype}", f"i: {indices} {index}", f"u: {updates} {dtype}"]
    module = fusion_text("scatter", operands, text, [f"p: {operand} {dtype}"])
    return plan_of(emit_scatter, module, machine)


SORTED = {
    "numbers": ("n", "s,1", "s", Numbers([], [0], [0], 1)),
    "rows": ("n,d", "s", "s,d", Numbers([1], [0], [0], 1)),
    "rows_of_16": ("n,16", "s,1", "s,16", Numbers([1], [0], [0], 1)),
    "rows_of_19": ("n,19", "s,1", "s,19", Numbers([1], [0], [0], 1)),
    "rows_of_320": ("n,320", "s,1", "s,320", Numbers([1], [0], [0], 1)),
    "pairs": ("n,m", "s,2", "s", Numbers([], [0, 1], [0, 1], 1)),
    "images": ("n,m,d", "s,1", "s,m,d", Numbers([1, 2], [0], [0], 1)),
}
"""Updates of one place are neighbours, which tasks of 512 updates cut anywhere."""


@pytest.mark.parametrize("case", SORTED)
def test_scatter_at_sorted_indices(case):
    operand, indices, updates, numbers = SORTED[case]
    text = "%r = stablehlo.add %a, %b : tensor<f32>"
    plan = scatter_plan(case, "f32", text, is_sorted=True)
    for n, m, d, s in ((7, 3, 5, 1600), (900, 2, 37, 1100), (1, 1, 1, 0), (0, 1, 3, 2)):
        env = {"n": n, "m": m, "d": d, "s": s}
        x, u = sample(shape(operand, env), "f32"), sample(shape(updates, env), "f32", 1)
        low = -(n % 2)  # the first place is inside, or not
        i = np.random.default_rng(5).integers(low, n + 1, shape(indices, env)).astype(np.int32)
        i = i[np.lexsort(i.T[::-1])] if i.ndim > 1 else np.sort(i)
        (got,) = run(plan, [x, i, u], env)
        assert got.tobytes() == want_scatter(x, i, u, numbers, BODIES["add"]).tobytes(), env


def shape(sizes: str, env: dict[str, int]) -> list[int]:
    return [int(s) if s.isdigit() else env[s] for s in sizes.split(",")]


def check_scatter(case: str, dtype: str = "f32", body: str = "add", index: str = "i32") -> None:
    text = f"%r = stablehlo.{body} %a, %b : tensor<{dtype}>"
    plan = scatter_plan(case, dtype, text, index)
    operand, indices, updates, numbers = CASES[case]
    for env in ENVS:
        x, u = sample(shape(operand, env), dtype), sample(shape(updates, env), dtype, 1)
        low = 0 if index.startswith("u") else -1
        rng = np.random.default_rng(5)
        i = rng.integers(low, max(x.shape) + 1, shape(indices, env)).astype(DTYPES[index])
        with np.errstate(over="ignore"):
            want = want_scatter(x, i, u, numbers, BODIES[body])
        (got,) = run(plan, [x, i, u], env)
        assert got.tobytes() == want.tobytes(), env


@pytest.mark.parametrize("case", CASES)
def test_scatter_add_in_order_of_the_indices(case):
    check_scatter(case)


@pytest.mark.parametrize(
    ("dtype", "body", "index"),
    [
        ("bf16", "add", "i64"),
        ("f64", "maximum", "i8"),
        ("i1", "or", "ui8"),
        ("ui16", "add", "ui64"),
    ],
)
def test_scatter_of_every_kind_of_element(dtype, body, index):
    check_scatter("rows", dtype, body, index)
    check_scatter("points", dtype, body, index)


def test_scatter_replaces_with_the_last_of_equal_indices():
    plan = scatter_plan("rows", "f32", "%r = stablehlo.reshape %b : (tensor<f32>) -> tensor<f32>")
    x, u = np.zeros((4, 40), np.float32), sample((3, 40), "f32")
    (got,) = run(plan, [x, np.array([2, 0, 2], np.int32), u])
    np.testing.assert_array_equal(got[2], u[2])
    np.testing.assert_array_equal(got[0], u[1])


@pytest.mark.skipif(shutil.which("objdump") is None, reason="shows machine code")
def test_a_maximum_stores_no_whole_vector_under_a_mask():
    """LLVM makes a masked store of `p = NaN in p ? p : max(p, u)`, which is slow on AVX2."""
    machine = parse("cpu:avx2").machine

    def masked(operation: str) -> int:
        body = f"%r = stablehlo.{operation} %a, %b : tensor<f32>"
        launch = scatter_plan("rows", "f32", body, machine=machine).plan.steps[-1]
        return assembly([launch.kernel.text], machine).count("vmaskmov")

    assert masked("maximum") == masked("add") > 0, "the tail alone"


def test_scatter_of_two_operands_where_one_result_is_not_read():
    types = "tensor<?xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>, tensor<?xi32>"
    numbers = Numbers([], [0], [0], 1)
    text = f"""%p:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) <{{scatter_dimension_numbers = {numbers}}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>):
        %r = stablehlo.add %a, %c : tensor<f32>
        %w = stablehlo.convert %a : (tensor<f32>) -> tensor<i32>
        %q = stablehlo.add %w, %d : tensor<i32>
        stablehlo.return %r, %q : tensor<f32>, tensor<i32>
      }}) : ({types}) -> (tensor<?xf32>, tensor<?xi32>)"""
    module = fusion_text(
        "scatter",
        ["x: n f32", "y: n i32", "i: s i32", "u: s f32", "v: s i32"],
        text,
        ["p#1: n i32"],
    )
    emitted = plan_of(emit_scatter, module)
    assert not emitted.plan.copies_operand
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.int32)
    i, u, v = (
        np.array([1, 3, 1], np.int32),
        np.full(3, 10, np.float32),
        np.array([1, 2, 3], np.int32),
    )
    (got,) = run(emitted, [x, y, i, u, v])
    np.testing.assert_array_equal(got, [0, 14, 0, 5, 0])


def test_the_copy_is_a_step_of_its_own():
    plan = scatter_plan("rows", "f32", "%r = stablehlo.add %a, %b : tensor<f32>").plan
    assert plan.copies_operand
    assert plan.steps[0].args == (Input(0), Output(0))
    assert Input(0) not in plan.steps[1].args


# ------------------------------------------------------------------ dynamic_update_slice


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i1", "i64"])
def test_dynamic_update_slice_clamps_its_start(dtype):
    text = f"""%p = stablehlo.dynamic_update_slice %x, %u, %i, %j, %k :
      (tensor<?x?x4x{dtype}>, tensor<?x?x4x{dtype}>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<?x?x4x{dtype}>"""
    operands = [f"x: b,n,4 {dtype}", f"u: c,m,4 {dtype}", "i: i32", "j: i32", "k: i32"]
    module = fusion_text("dynamic_update_slice", operands, text, [f"p: b,n,4 {dtype}"])
    emitted = plan_of(emit_dynamic_update_slice, module)
    assert emitted.plan.copies_operand
    sizes = (
        (1, 1, 1, 1),
        (3, 7, 2, 3),
        (3, 7, 3, 7),
        (3, 7, 0, 3),
        (5, 2000, 5, 1300),
        (0, 3, 0, 2),
    )
    for b, n, c, m in sizes:
        for start in ((0, 0, 0), (1, 2, 1), (-5, 100, 0)):
            x, u = sample((b, n, 4), dtype), sample((c, m, 4), dtype, 1)
            (got,) = run(emitted, [x, u, *(np.array(s, np.int32) for s in start)])
            at = [min(max(s, 0), d - k) for s, d, k in zip(start, x.shape, u.shape, strict=True)]
            want = x.copy()
            want[at[0] : at[0] + c, at[1] : at[1] + m, at[2] : at[2] + 4] = u
            assert got.tobytes() == want.tobytes(), (b, n, c, m, start)


def test_dynamic_update_slice_of_a_scalar():
    text = "%p = stablehlo.dynamic_update_slice %x, %u : (tensor<f32>, tensor<f32>) -> tensor<f32>"
    module = fusion_text("dynamic_update_slice", ["x: f32", "u: f32"], text, ["p: f32"])
    one, two = np.array(1, np.float32), np.array(2, np.float32)
    assert run(plan_of(emit_dynamic_update_slice, module), [one, two])[0] == 2


# ------------------------------------------------------------------ select_and_scatter

WINDOWS = [
    ((1, 2, 2, 1), (1, 2, 2, 1), ((0, 0), (0, 0), (0, 0), (0, 0))),
    ((1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))),
    ((2, 2, 2, 2), (1, 1, 1, 1), ((0, 0), (0, 0), (1, 0), (0, 1))),
]


def want_select_and_scatter(x, source, init, window, stride, padding):
    out = np.full(x.shape, init, x.dtype)
    for place in np.ndindex(*source.shape):
        best = None
        for w in np.ndindex(*window):
            at = tuple(
                a * t + k - p[0] for a, t, k, p in zip(place, stride, w, padding, strict=True)
            )
            inside = all(0 <= a < n for a, n in zip(at, x.shape, strict=True))
            if inside and (best is None or not x[best] >= x[at]):
                best = at
        if best is not None:
            out[best] += source[place]
    return out


@pytest.mark.parametrize(("dtype", "windows"), crossed(["f32", "bf16"], WINDOWS))
def test_select_and_scatter(dtype, windows):
    window, stride, padding = windows

    def pooled(sizes):
        return [
            (n + sum(p) - w) // t + 1
            for n, w, t, p in zip(sizes, window, stride, padding, strict=True)
        ]

    for sizes in ((2, 5, 7, 3), (1, 4, 4, 2), (3, 2, 2, 5)):
        xs, ss = ",".join(map(str, sizes)), ",".join(map(str, pooled(sizes)))
        array = "array<i64: {}>"
        text = f"""%p = "stablehlo.select_and_scatter"(%x, %s, %i) <{{
          window_dimensions = {array.format(", ".join(map(str, window)))},
          window_strides = {array.format(", ".join(map(str, stride)))},
          padding = dense<{[list(p) for p in padding]}> : tensor<4x2xi64>}}> ({{
          ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
            %r = stablehlo.compare GE, %a, %b : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>
            stablehlo.return %r : tensor<i1>
          }}, {{
          ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
            %r = stablehlo.add %a, %b : tensor<{dtype}>
            stablehlo.return %r : tensor<{dtype}>
          }}) : ({tensor(xs, dtype)}, {tensor(ss, dtype)}, tensor<{dtype}>) -> {tensor(xs, dtype)}"""
        operands = [f"x: {xs} {dtype}", f"s: {ss} {dtype}", f"i: {dtype}"]
        module = fusion_text("select_and_scatter", operands, text, [f"p: {xs} {dtype}"])
        x, s = sample(sizes, dtype), sample(pooled(sizes), dtype, 1)
        init = np.array(0.5).astype(DTYPES[dtype])
        (got,) = run(plan_of(emit_select_and_scatter, module), [x, s, init])
        want = want_select_and_scatter(x, s, init, window, stride, padding)
        np.testing.assert_array_equal(got, want)

"""Scatters by sorted indices, by atomic operations and by unique indices, interpreted."""

import numpy as np
import pytest

from shlo_disc.lower.gpu.scatter import FEW
from shlo_disc.lower.kernels.scatter import emit_scatter
from shlo_disc.lower.plan import Input, Output
from tests.cases import crossed
from tests.gpu import values
from tests.gpu.run import gpu_plan, launches_of, run_cpu, run_gpu
from tests.lower.helpers import fusion_text, plan_of, sample, tensor
from tests.lower.test_scatter import BODIES, CASES, Numbers, want_scatter

ROWS = Numbers([1], [0], [0], 1)
POINTS = Numbers([], [0], [0], 1)


def planned(operand, indices, updates, numbers, dtype="f32", body="add", unique=False):
    """Plans of a GPU and of the CPU."""
    types = [tensor(operand, dtype), tensor(indices, "i32"), tensor(updates, dtype)]
    unique_text = ", unique_indices = true" if unique else ""
    line = f"%r = stablehlo.{body} %a, %b : tensor<{dtype}>"
    if body == "set":
        line = f"%r = stablehlo.reshape %b : (tensor<{dtype}>) -> tensor<{dtype}>"
    text = f"""%p = "stablehlo.scatter"(%x, %i, %u) <{{
        scatter_dimension_numbers = {numbers}{unique_text}}}> ({{
      ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
        {line}
        stablehlo.return %r : tensor<{dtype}>
      }}) : ({", ".join(types)}) -> {types[0]}"""
    operands = [f"x: {operand} {dtype}", f"i: {indices} i32", f"u: {updates} {dtype}"]
    module = fusion_text("scatter", operands, text, [f"p: {operand} {dtype}"])
    return gpu_plan(module), plan_of(emit_scatter, module)


def names(plan, arrays, symbols=None):
    return [launch.kernel.name for launch in launches_of(plan, arrays, symbols)]


def check(plans, x, i, u, kernel):
    gpu, cpu = plans
    (want,) = run_cpu(cpu, [x, i, u])
    for seed in range(2):
        (found,) = run_gpu(gpu, [x, i, u], seed=seed)
        assert found.tobytes() == want.tobytes()
    assert kernel in names(gpu, [x, i, u])


@pytest.mark.parametrize(("columns", "dtype"), crossed(["d", "16"], ["f32", "bf16", "f64", "i8"]))
def test_rows_in_the_order_of_the_indices(dtype, columns):
    plans = planned(f"n,{columns}", "s", f"s,{columns}", ROWS, dtype)
    d = 5 if columns == "d" else 16
    for n, s in ((40, 9), (3, 100), (200, 1793)):
        i = np.random.default_rng(s).integers(-1, n + 1, s).astype(np.int32)
        i[:7] = i[0]
        check(plans, sample((n, d), dtype), i, sample((s, d), dtype, 1), "scatter_runs")


@pytest.mark.parametrize("body", ["add", "set", "multiply"])
def test_scalars_of_which_many_meet(body):
    plans = planned("n", "s", "s", POINTS, body=body)
    for n, s in ((1, 300), (5, 1791), (4000, 4000)):
        i = np.random.default_rng(s).integers(0, n, s).astype(np.int32)
        i[5] = n  # outside
        check(plans, sample((n,), "f32"), i, sample((s,), "f32", 1), "scatter_runs")


def test_as_many_passes_as_places_have_digits():
    """Windows outside of the operand have a place of their own, behind the last one."""
    plans = planned("n", "s", "s", POINTS)
    s = 3201
    for n, passes in ((254, 1), (255, 1), (256, 2), (65535, 2), (65536, 3)):
        i = np.random.default_rng(n).integers(-1, n + 1, s).astype(np.int32)
        i[::3] = i[0]
        arrays = [sample((n,), "f32"), i, sample((s,), "f32", 1)]
        check(plans, *arrays, "scatter_runs")
        found = [name for name in names(plans[0], arrays) if name.startswith("radix")]
        assert found == ["radix_count", "radix_move"] * passes


@pytest.mark.parametrize("case", ["points", "vector_first", "batched", "window_in_front",
                                  "last_moves"])  # fmt: skip
def test_every_arrangement_of_dimensions(case):
    operand, indices, updates, numbers = CASES[case]
    gpu, _ = planned(operand, indices, updates, numbers)
    env = {"b": 3, "n": 6, "m": 5, "d": 9, "s": 30}

    def shape(sizes):
        return [int(s) if s.isdigit() else env[s] for s in sizes.split(",")]

    x, u = sample(shape(operand), "f32"), sample(shape(updates), "f32", 1)
    i = np.random.default_rng(0).integers(-1, 7, shape(indices)).astype(np.int32)
    want = want_scatter(x, i, u, numbers, BODIES["add"])
    (found,) = run_gpu(gpu, [x, i, u])
    assert found.tobytes() == want.tobytes()
    assert "scatter_runs" in names(gpu, [x, i, u])


def test_two_operands_in_long_runs():
    types = "tensor<?xf32>, tensor<?xi16>, tensor<?xi32>, tensor<?xf32>, tensor<?xi16>"
    text = f"""%p:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) <{{
        scatter_dimension_numbers = {POINTS}}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<i16>, %c: tensor<f32>, %d: tensor<i16>):
        %r = stablehlo.add %a, %c : tensor<f32>
        %t = stablehlo.compare LT, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %q = stablehlo.select %t, %b, %d : tensor<i1>, tensor<i16>
        stablehlo.return %r, %q : tensor<f32>, tensor<i16>
      }}) : ({types}) -> (tensor<?xf32>, tensor<?xi16>)"""
    operands = ["x: n f32", "y: n i16", "i: s i32", "u: s f32", "v: s i16"]
    module = fusion_text("scatter", operands, text, ["p#0: n f32", "p#1: n i16"])
    arrays = [sample((3,), "f32"), sample((3,), "i16"), (np.arange(200) % 4).astype(np.int32)]
    arrays += [sample((200,), "f32", 1), sample((200,), "i16", 2)]
    found = run_gpu(gpu_plan(module), arrays)
    want = run_cpu(plan_of(emit_scatter, module), arrays)
    for got, expected in zip(found, want, strict=True):
        assert got.tobytes() == expected.tobytes()


def test_few_indices_and_windows_that_overlap_in_part_are_read_by_every_task():
    gpu, _ = planned("n,16", "s", "s,16", ROWS)
    arrays = [sample((5, 16), "f32"), np.zeros(FEW, np.int32), sample((FEW, 16), "f32")]
    assert names(gpu, arrays)[-1] == "scatter"
    numbers = Numbers([1], [], [0], 1)
    plans = planned("n", "s,1", "s,3", numbers)
    i = np.random.default_rng(0).integers(-1, 20, (40, 1)).astype(np.int32)
    check(plans, sample((20,), "f32"), i, sample((40, 3), "f32", 1), "scatter")


@pytest.mark.parametrize(
    ("body", "dtype"),
    crossed(["add", "maximum", "minimum", "and", "or", "xor"], ["i32", "ui32", "i64", "ui64"],
            also=[("maximum", "i32"), ("minimum", "ui64")]),
)  # fmt: skip
def test_integers_in_any_order(dtype, body):
    plans = planned("n,3", "s", "s,3", ROWS, dtype, body)
    for s in (0, 1, 200):
        i = np.random.default_rng(s).integers(-1, 8, s).astype(np.int32)
        x, u = values.sample(dtype, 21, 0), values.sample(dtype, 3 * s, 1)
        check(plans, x.reshape(7, 3), i, u.reshape(s, 3), "scatter_atomic")


@pytest.mark.parametrize("body", ["add", "set"])
@pytest.mark.parametrize("columns", ["d", "16"])
def test_unique_indices_are_updated_at_once(body, columns):
    plans = planned(f"n,{columns}", "s", f"s,{columns}", ROWS, "bf16", body, unique=True)
    d = 5 if columns == "d" else 16
    i = np.random.default_rng(0).permutation(60)[:50].astype(np.int32)
    check(plans, sample((55, d), "bf16"), i, sample((50, d), "bf16", 1), "scatter_each")


def test_the_copy_is_a_step_of_its_own():
    plan = planned("n,d", "s", "s,d", ROWS)[0].plan
    assert plan.copies_operand
    assert plan.steps[0].args == (Input(0), Output(0))

"""Ops that move elements, and reductions, as PTX: to the bit what the CPU computes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pytest

from shlo_disc.ir.element_types import ELEMENT_TYPES
from shlo_disc.lower.cpu.loop import emit
from shlo_disc.lower.cpu.machine import Machine
from tests.gpu.run import gpu_plan, run_cpu, run_gpu
from tests.gpu.values import difference, sample
from tests.lower.helpers import dtype_name, fusion_text, plan_of
from tests.lower.test_elemental_data_movement import CASES, Case, inputs_of

NARROW = Machine(vector_bytes=16)
"""Narrow vectors compile fast."""


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.op}-{CASES.index(c)}")
def test_moves_and_reductions_are_those_of_the_cpu(case: Case) -> None:
    """`test_every_rule_is_exercised` keeps a case for every row, so a new row is tested here."""
    text = fusion_text("loop", case.operands, case.body, [case.result])
    ptx, cpu = gpu_plan(text), plan_of(emit, text, NARROW)
    for env in case.sizes:
        inputs = inputs_of(case, env)
        (got,), (want,) = run_gpu(ptx, inputs, env), run_cpu(cpu, inputs, env)
        other = difference(dtype_name(got.dtype), got, want, exact=False)
        assert not other.any(), (env, got[other], want[other])


@dataclass(frozen=True)
class Typed:
    """An op on any element type T: `%r` of %x: array of T, others, and %c: tensor<T>."""

    name: str
    text: str
    x: str
    r: str
    others: tuple[str, ...] = ()
    exact: bool = True


GATHER = (
    '%r = "stablehlo.gather"(%x, %s) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims'
    " = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>, "
    "indices_are_sorted = false} : (tensor<?xT>, tensor<?x1xi32>) -> tensor<?xT>"
)
REDUCE = (
    "%r = stablehlo.reduce(%x init: %c) applies stablehlo.{} across dimensions = [1] : "
    "(tensor<?x3xT>, tensor<T>) -> tensor<?xT>"
)
TYPED = (
    Typed("gather", GATHER, "n", "m", ("s: m,1 i32",)),
    Typed("pad", "%r = stablehlo.pad %x, %c, low = [2], high = [-1], interior = [1] : "
          "(tensor<?xT>, tensor<T>) -> tensor<?xT>", "n", "2*n"),
    Typed("concatenate", "%r = stablehlo.concatenate %x, %x, dim = 0 : (tensor<?xT>, "
          "tensor<?xT>) -> tensor<?xT>", "n", "2*n"),
    Typed("dynamic_slice", "%r = stablehlo.dynamic_slice %x, %i, sizes = [1] : (tensor<?xT>, "
          "tensor<i64>) -> tensor<1xT>", "n", "1", ("i: i64",)),
    Typed("transpose", "%r = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x3xT>) -> "
          "tensor<3x?xT>", "n,3", "3,n"),
    Typed("reverse", "%r = stablehlo.reverse %x, dims = [0] : tensor<?xT>", "n", "n"),
    Typed("reduce-add", REDUCE.format("add"), "n,3", "n", (), exact=False),
    Typed("reduce-maximum", REDUCE.format("maximum"), "n,3", "n", (), exact=False),
)  # fmt: skip


@pytest.mark.parametrize("op", TYPED, ids=lambda op: op.name)
def test_every_element_type_is_moved(op: Typed) -> None:
    types = list(ELEMENT_TYPES)
    body = []
    for k, element in enumerate(types):
        one = {"f": "1.0", "b": "true"}.get(ELEMENT_TYPES[element].kind, "1")
        text = f"%c = stablehlo.constant dense<{one}> : tensor<T>\n{op.text}"
        body.append(re.sub(r"%([xcr])\b", rf"%\g<1>{k}", re.sub(r"\bT\b|(?<=x)T\b", element, text)))
    operands = [f"x{k}: {op.x} {element}" for k, element in enumerate(types)]
    results = [f"r{k}: {op.r} {element}" for k, element in enumerate(types)]
    text = fusion_text("loop", [*operands, *op.others], "\n".join(body), results)
    ptx, cpu = gpu_plan(text), plan_of(emit, text, NARROW)
    for n in (1, 29) if op.others else (0, 1, 29):
        shape = (n, 3) if "," in op.x else (n,)
        inputs = [sample(e, math.prod(shape), k).reshape(shape) for k, e in enumerate(types)]
        if op.name == "gather":
            inputs.append(np.array([[n - 1], [0], [n // 2], [-5], [n + 7]], np.int32))
        elif op.others:
            inputs.append(np.array(n - 1, np.int64))
        pairs = zip(types, run_gpu(ptx, inputs), run_cpu(cpu, inputs), strict=True)
        for element, got, want in pairs:
            other = difference(element, got, want, op.exact)
            assert not other.any(), (element, n, got[other], want[other])

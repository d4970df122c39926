"""A host program cut into small parts computes what the whole one does."""

import re

import numpy as np
import pytest

import shlo_disc
from shlo_disc.ir.mlir import ir, new_context, ops_of
from shlo_disc.lower.cpu import codegen, host_parts, object_code
from shlo_disc.lower.recent import Recent

pytestmark = pytest.mark.usefixtures("compiled_anew")

T = "tensor<?xf32>"
PROGRAM = f"""
func.func @main(%x: {T}, %n: tensor<i32>) -> ({T}, tensor<i32>, {T}) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %w:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, {T}
  cond {{
    %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %odd = stablehlo.and %i, %one : tensor<i32>
    %b = "stablehlo.case"(%odd) ({{
      %a = stablehlo.add %y, %x : {T}
      stablehlo.return %a : {T}
    }}, {{
      %a = stablehlo.multiply %y, %y : {T}
      %r = stablehlo.reverse %a, dims = [0] : {T}
      stablehlo.return %r : {T}
    }}) : (tensor<i32>) -> {T}
    stablehlo.return %j, %b : tensor<i32>, {T}
  }}
  %s = "stablehlo.sort"(%w#1) <{{dimension = 0 : i64, is_stable = true}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }}) : ({T}) -> {T}
  return %w#1, %w#0, %s : {T}, tensor<i32>, {T}
}}"""


def reference(x, n):
    y = x
    for i in range(n):
        y = (y * y)[::-1] if i % 2 else y + x
    return y, max(n, 0), np.sort(y)


@pytest.mark.parametrize(("whole", "part"), [(0, 1), (12, 5), (40, 17)])
def test_parts_compute_what_the_whole_does(monkeypatch, whole, part):
    lowered = []

    def kept(module):
        keep_parts(module)
        lowered.append(str(module))

    keep_parts = host_parts.keep_parts
    monkeypatch.setattr(host_parts, "OPTIMISED", host_parts.Limits(whole, part))
    monkeypatch.setattr(host_parts, "keep_parts", kept)
    # Host programs are kept by their texts, and this one has the same text each time.
    monkeypatch.setattr(codegen, "RECENT", Recent(1 << 20, codegen._kept_bytes))
    monkeypatch.setattr(codegen.RECENT, "get", lambda _: None)
    executable = shlo_disc.compile(PROGRAM)
    for size in (0, 1, 7, 1000):
        x = np.linspace(-1.5, 1.25, size, dtype=np.float32)
        for n in (0, 1, 4, -3):
            got = executable(x, np.int32(n))
            for a, b in zip(got, reference(x, n), strict=True):
                np.testing.assert_array_equal(a, b)
    names = set(re.findall(r"llvm\.func @(run_part\d+)", lowered[0]))
    assert len(names) >= 3
    assert lowered[0].count('passthrough = ["noinline"]') >= len(names)


def test_short_functions_stay_whole():
    with new_context(), ir.Location.unknown():
        for count in (10, 1900, 2500, 25_000):
            adds = "".join(f"  %v{k + 1} = arith.addi %v{k}, %v{k} : i64\n" for k in range(count))
            text = f"func.func @f(%v0: i64) -> i64 {{\n{adds}  return %v{count} : i64\n}}"
            module = ir.Module.parse(text)
            host_parts.cut_long_functions(module, host_parts.OPTIMISED)
            assert module.operation.verify()
            calls = len(ops_of(module, "func.call"))
            assert calls == 0 if count < host_parts.OPTIMISED.whole_ops else calls > count // 400


def test_a_program_that_runs_once_a_call_in_parts(monkeypatch):
    monkeypatch.setattr(host_parts, "UNOPTIMISED", host_parts.Limits(40, 17))
    lowered = []
    lower = object_code.lower_to_llvm

    def kept(*args, **options):
        module = lower(*args, **options)
        if options["host"]:
            lowered.append(str(module))
        return module

    monkeypatch.setattr(object_code, "lower_to_llvm", kept)
    run = shlo_disc.jit(lambda xs: [x * k for k, x in enumerate(xs)])
    given = [np.arange(n, dtype=np.float32) for n in (0, 1, 7, 1000) * 5]
    for k, got in enumerate(run(given)):
        np.testing.assert_array_equal(got, given[k] * np.float32(k))
    (text,) = lowered
    functions = text.count("llvm.func @")
    assert functions > 5
    assert text.count('passthrough = ["optnone", "noinline"]') == functions

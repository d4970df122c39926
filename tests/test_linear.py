"""Compile time is linear in the program: twice the arguments, operands or ops, twice the work.

Function calls of the compiling thread are counted, which no other load of the machine changes.
"""

from __future__ import annotations

import cProfile
import math
import time
from collections.abc import Callable, Iterable

import numpy as np
import pytest

import shlo_disc

V = "tensor<?xf32>"


def program(arguments: int, result: str, lines: Iterable[str], given: str) -> str:
    signature = ", ".join(f"%a{k}: {V}" for k in range(arguments))
    body = "\n".join(lines)
    return f"func.func @main({signature}) -> {result} {{\n{body}\nreturn {given} : {result} }}"


def arguments(n: int) -> str:
    """A sum of `n` arguments, whose sizes a call must give equal."""
    add = "stablehlo.add"
    lines = [f"%h{k} = {add} %{'h' if k > 1 else 'a'}{k - 1}, %a{k} : {V}" for k in range(1, n)]
    return program(n, V, lines, f"%h{n - 1}")


def concatenation(n: int) -> str:
    """Of `n` arguments, so the result's size has `n` terms."""
    values = ", ".join(f"%a{k}" for k in range(n))
    line = f"%r = stablehlo.concatenate {values}, dim = 0 : ({', '.join([V] * n)}) -> {V}"
    return program(n, V, [line], "%r")


def sizes(n: int) -> str:
    """The sum of `n` sizes as a number."""
    lines = [
        f"%n{k} = stablehlo.get_dimension_size %a{k}, dim = 0 : ({V}) -> tensor<i32>"
        for k in range(n)
    ]
    lines += [
        f"%s{k} = stablehlo.add %{'s' if k > 1 else 'n'}{k - 1}, %n{k} : tensor<i32>"
        for k in range(1, n)
    ]
    return program(n, "tensor<i32>", lines, f"%s{n - 1}")


def layers(n: int) -> str:
    """Products with additions, three ops each."""
    x, w = "tensor<?x8xf32>", "tensor<8x8xf32>"
    lines = [
        f"""%p{k} = stablehlo.dot_general %h{k}, %w, contracting_dims = [1] x [0]
             : ({x}, {w}) -> {x}
            %t{k} = stablehlo.tanh %p{k} : {x}
            %h{k + 1} = stablehlo.add %h{k}, %t{k} : {x}"""
        for k in range(n)
    ]
    body = "\n".join(lines)
    return f"func.func @main(%h0: {x}, %w: {w}) -> {x} {{\n{body}\nreturn %h{n} : {x} }}"


def work(text: str) -> int:
    profile = cProfile.Profile()
    profile.enable()
    shlo_disc.compile(text)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("build", [arguments, concatenation, layers])
def test_twice_the_program_is_twice_the_work(build: Callable[[int], str]):
    shlo_disc.compile(build(3))  # imports, tables and probes of the machine
    once, twice = work(build(150)), work(build(300))
    assert twice < 2.2 * once


def test_more_sizes_than_python_recurses():
    """The limit is 1000 calls in each other; every size is a term of the result's."""
    n = 1200
    total, joined = shlo_disc.compile(sizes(n)), shlo_disc.compile(concatenation(n))
    arrays = [np.full(k % 3, k, "f4") for k in range(n)]
    assert total.run_numpy(arrays)[0] == sum(map(len, arrays))
    np.testing.assert_array_equal(joined.run_numpy(arrays)[0], np.concatenate(arrays))


@pytest.mark.parametrize("op", ["multiply", "add"])
def test_more_factors_than_a_size_has(op: str):
    """Each step multiplies by a sum, so a term in all sizes would have thousands of terms."""
    n = 40
    lines = [
        f"%n{k} = stablehlo.get_dimension_size %a{k}, dim = 0 : ({V}) -> tensor<i32>"
        for k in range(n)
    ]
    lines += ["%h0 = stablehlo.add %n0, %n1 : tensor<i32>"]
    lines += [
        f"""%g{k} = stablehlo.{op} %n{k}, %n{k - 1} : tensor<i32>
            %h{k} = stablehlo.multiply %h{k - 1}, %g{k} : tensor<i32>"""
        for k in range(1, n)
    ]
    result = "tensor<?xi32>"
    lines += [
        "%z = stablehlo.constant dense<7> : tensor<i32>",
        f"%m = stablehlo.remainder %h{n - 1}, %z : tensor<i32>",
        "%s = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>",
        f"%r = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> {result}",
    ]
    start = time.process_time()
    compiled = shlo_disc.compile(program(n, result, lines, "%r"))
    assert time.process_time() - start < 20
    want = 2
    for _ in range(1, n):
        want *= 1 if op == "multiply" else 2
    wrapped = (want + 2**31) % 2**32 - 2**31
    (got,) = compiled.run_numpy([np.zeros(1, "f4")] * n)
    assert got.shape == (math.fmod(wrapped, 7),)


@pytest.mark.parametrize("depth", [31, 63, 200])
def test_quotients_of_quotients(depth):
    """What nests deeper than formulas may is computed as a number, also where it is a size."""
    lines = ["%m = stablehlo.get_dimension_size %a1, dim = 0 : (tensor<?xf32>) -> tensor<i32>"]
    lines += ["%n0 = stablehlo.get_dimension_size %a0, dim = 0 : (tensor<?xf32>) -> tensor<i32>"]
    for k in range(depth):
        lines += [
            f"%c{k} = stablehlo.constant dense<{k % 7 + 2}> : tensor<i32>",
            f"%p{k} = stablehlo.multiply %n{k}, %m : tensor<i32>",
            f"%q{k} = stablehlo.add %p{k}, %c{k} : tensor<i32>",
            f"%n{k + 1} = stablehlo.divide %q{k}, %c{k} : tensor<i32>",
        ]
    lines += [
        f"%s = stablehlo.reshape %n{depth} : (tensor<i32>) -> tensor<1xi32>",
        f"%r = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> {V}",
    ]
    compiled = shlo_disc.compile(program(2, V, lines, "%r"))
    for a, m in ((5, 3), (9, 4)):
        want = a
        for k in range(depth):
            want = (want * m + k % 7 + 2) // (k % 7 + 2)
        (got,) = compiled.run_numpy([np.zeros(a, "f4"), np.zeros(m, "f4")])
        assert got.shape == (want,)

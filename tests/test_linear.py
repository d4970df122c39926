"""Compile time is linear in the program: twice the arguments, operands or ops, twice the work.

Function calls of the compiling thread are counted, which no other load of the machine changes.
"""

from __future__ import annotations

import cProfile
import math
import time
import warnings
from collections.abc import Callable, Iterable

import numpy as np
import pytest

import shlo_disc
from shlo_disc.driver.stages import examine

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


def chain(lines: Callable[[int], str], n: int, given: str = "") -> str:
    """`lines(k)` computes %h(k+1) from %h(k), an array of one dynamic size."""
    body = "\n".join(map(lines, range(n)))
    return f"func.func @main(%h0: {V}{given}) -> {V} {{\n{body}\nreturn %h{n} : {V} }}"


def loops(n: int) -> str:
    """Loops, each of which starts from what the one before it gives."""
    lines = [
        f"""
        %r{k}:2 = stablehlo.while(%i{k} = %zero, %x{k} = %{f"r{k - 1}#1" if k else "a"})
          : tensor<i32>, {V}
        cond {{
          %p{k} = stablehlo.compare LT, %i{k}, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p{k} : tensor<i1>
        }} do {{
          %y{k} = stablehlo.tanh %x{k} : {V}
          %j{k} = stablehlo.add %i{k}, %one : tensor<i32>
          stablehlo.return %j{k}, %y{k} : tensor<i32>, {V}
        }}"""
        for k in range(n)
    ]
    body = "\n".join(lines)
    return f"""func.func @main(%a: {V}, %m: tensor<i32>) -> {V} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      {body}
      return %r{n - 1}#1 : {V} }}"""


def branches(n: int) -> str:
    """One `case`."""
    regions = ", ".join(
        f"""{{
          %c{k} = stablehlo.constant dense<{k}.0> : tensor<f32>
          %b{k} = stablehlo.add %s, %c{k} : tensor<f32>
          stablehlo.return %b{k} : tensor<f32> }}"""
        for k in range(n)
    )
    return f"""func.func @main(%i: tensor<i32>, %s: tensor<f32>) -> tensor<f32> {{
      %r = "stablehlo.case"(%i) ({regions}) : (tensor<i32>) -> tensor<f32>
      return %r : tensor<f32> }}"""


def conditionals(n: int) -> str:
    return chain(
        lambda k: (
            f"""%h{k + 1} = "stablehlo.if"(%p) ({{
          %a{k} = stablehlo.tanh %h{k} : {V}
          stablehlo.return %a{k} : {V} }}, {{
          %b{k} = stablehlo.negate %h{k} : {V}
          stablehlo.return %b{k} : {V} }}) : (tensor<i1>) -> {V}"""
        ),
        n,
        ", %p: tensor<i1>",
    )


def updates(n: int) -> str:
    """Slices of one array, each computed and written."""
    x, u = "tensor<?x4xf32>", "tensor<1x4xf32>"
    lines = [
        f"""%i{k} = stablehlo.add %i{k - 1}, %one : tensor<i32>
            %u{k} = stablehlo.tanh %u{k - 1} : {u}
            %h{k} = stablehlo.dynamic_update_slice %h{k - 1}, %u{k}, %i{k}, %zero
              : ({x}, {u}, tensor<i32>, tensor<i32>) -> {x}"""
        for k in range(1, n)
    ]
    body = "\n".join(lines)
    return f"""func.func @main(%h0: {x}, %u0: {u}, %i0: tensor<i32>) -> {x} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      {body}
      return %h{n - 1} : {x} }}"""


def sort(name: str, operand: str) -> str:
    return f"""%{name} = "stablehlo.sort"(%{operand}) ({{
      ^bb0(%l_{name}: tensor<f32>, %r_{name}: tensor<f32>):
        %p_{name} = stablehlo.compare LT, %l_{name}, %r_{name}
          : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %p_{name} : tensor<i1>
      }}) {{dimension = 0 : i64, is_stable = true}} : ({V}) -> {V}"""


def sorts(n: int) -> str:
    return chain(lambda k: sort(f"h{k + 1}", f"h{k}"), n)


def temporaries(n: int) -> str:
    """Two of each of `n` sizes."""
    lines = "\n".join(
        f"""{sort(f"x{k}", f"a{k}")}
            %y{k} = stablehlo.negate %x{k} : {V}
            {sort(f"z{k}", f"y{k}")}"""
        for k in range(n)
    )
    given = ", ".join(f"%a{k}: {V}" for k in range(n))
    types = ", ".join([V] * n)
    results = ", ".join(f"%z{k}" for k in range(n))
    return f"func.func @main({given}) -> ({types}) {{\n{lines}\nreturn {results} : {types} }}"


def scatters(n: int) -> str:
    numbers = (
        "#stablehlo.scatter<inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
    )
    return chain(
        lambda k: (
            f"""%h{k + 1} = "stablehlo.scatter"(%h{k}, %i, %u) ({{
          ^bb0(%a{k}: tensor<f32>, %b{k}: tensor<f32>):
            %s{k} = stablehlo.add %a{k}, %b{k} : tensor<f32>
            stablehlo.return %s{k} : tensor<f32>
          }}) {{scatter_dimension_numbers = {numbers}}} : ({V}, tensor<?x1xi32>, {V}) -> {V}"""
        ),
        n,
        f", %i: tensor<?x1xi32>, %u: {V}",
    )


def calls(n: int) -> str:
    """Of one function."""
    return chain(lambda k: f"%h{k + 1} = func.call @f(%h{k}) : ({V}) -> {V}", n) + (
        f"func.func private @f(%x: {V}) -> {V} {{ %y = stablehlo.tanh %x : {V}\n return %y : {V} }}"
    )


def weights(n: int) -> str:
    """A step of training: `n` weights less their gradients."""
    w = "tensor<8x8xf32>"
    given = ", ".join(f"%w{k}: {w}, %g{k}: {w}" for k in range(n))
    lines = "\n".join(f"%r{k} = stablehlo.subtract %w{k}, %g{k} : {w}" for k in range(n))
    types = ", ".join([w] * n)
    results = ", ".join(f"%r{k}" for k in range(n))
    return f"func.func @main({given}) -> ({types}) {{\n{lines}\nreturn {results} : {types} }}"


def work(text: str, compiling: Callable[..., object] = shlo_disc.compile, **options) -> int:
    profile = cProfile.Profile()
    profile.enable()
    compiling(text, **options)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("build", [arguments, concatenation])
def test_twice_the_program_is_twice_the_work(build: Callable[[int], str]):
    shlo_disc.compile(build(3))  # imports, tables and probes of the machine
    once, twice = work(build(150)), work(build(300))
    assert twice < 2.2 * once


@pytest.mark.parametrize(
    ("build", "n"),
    [
        (branches, 50),
        (layers, 150),
        (loops, 200),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (calls, 100),
                (conditionals, 100),
                (scatters, 100),
                (sorts, 100),
                (temporaries, 60),
                (updates, 100),
            )
        ),
    ],
)
def test_twice_the_program_is_twice_the_planning(build: Callable[[int], str], n: int):
    """Without machine code; `n` is where a walk of everything for each op is noticed."""
    examine(build(3))
    once, twice = work(build(n), examine), work(build(2 * n), examine)
    assert twice < 2.2 * once


def test_donated_arguments():
    """Twice as many, of one type, and twice as many results that may take their memory."""
    counts = []
    for n in (3, 100, 200):
        donated = range(0, 2 * n, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # results of one kernel that other arguments are for
            counts.append(work(weights(n), donated=list(donated)))
    assert counts[2] < 2.2 * counts[1]


def test_more_sizes_than_python_recurses():
    """The limit is 1000 calls in each other; every size is a term of the result's."""
    n = 1020
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

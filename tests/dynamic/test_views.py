"""`view_of`: every element is where first, sizes and strides say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.dynamic.views import View, dense_strides, outermost_first, view_of
from shlo_disc.ir.mlir import ir, new_context


def _tensor(sizes) -> str:
    return f"tensor<{''.join(f'{n}x' for n in sizes)}f32>"


def _slice(start, limit, step, before, after, name) -> str:
    bounds = ", ".join(f"{a}:{b}:{c}" for a, b, c in zip(start, limit, step, strict=True))
    return f"stablehlo.slice {name} [{bounds}] : ({before}) -> {after}"


@st.composite
def programs(draw) -> tuple[str, np.ndarray, tuple[int, ...]]:
    """(module, the positions its result reads, shape of its argument)."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    x = np.arange(math.prod(shape)).reshape(shape)
    lines: list[str] = []
    for k in range(draw(st.integers(0, 4))):
        name, before = f"%{k}", _tensor(x.shape)
        kind = draw(st.sampled_from(["transpose", "slice", "reshape", "reshape", "broadcast"]))
        if kind == "transpose":
            order = draw(st.permutations(range(x.ndim)))
            x = x.transpose(order)
            line = f"stablehlo.transpose {name}, dims = {order} : ({before}) -> {_tensor(x.shape)}"
        elif kind == "slice":
            start = [draw(st.integers(0, n)) for n in x.shape]
            limit = [draw(st.integers(s, n)) for s, n in zip(start, x.shape, strict=True)]
            step = [draw(st.integers(1, 3)) for _ in x.shape]
            x = x[tuple(slice(*b) for b in zip(start, limit, step, strict=True))]
            line = _slice(start, limit, step, before, _tensor(x.shape), name)
        elif kind == "broadcast":
            at, size = draw(st.integers(0, x.ndim)), draw(st.integers(1, 3))
            dims = [d for d in range(x.ndim + 1) if d != at]
            sizes = (*x.shape[:at], size, *x.shape[at:])
            x = np.broadcast_to(np.expand_dims(x, at), sizes)
            line = (
                f"stablehlo.broadcast_in_dim {name}, dims = {dims} : "
                f"({before}) -> {_tensor(x.shape)}"
            )
        else:
            sizes = [n for n in x.shape if draw(st.booleans()) or n != 1]
            at = draw(st.integers(0, len(sizes)))
            if at < len(sizes) and draw(st.booleans()):  # cut a dimension, or join two
                factor = draw(st.sampled_from([d for d in (1, 2, 3) if sizes[at] % d == 0]))
                sizes[at : at + 1] = [factor, sizes[at] // factor]
            elif at + 1 < len(sizes):
                sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
            x = x.reshape(sizes)
            line = f"stablehlo.reshape {name} : ({before}) -> {_tensor(x.shape)}"
        lines.append(f"  %{k + 1} = {line}")
    body = "\n".join(lines)
    last, kind = f"%{len(lines)}", _tensor(x.shape)
    text = (
        f"func.func @main(%0: {_tensor(shape)}) -> {kind} {{\n{body}\n  return {last} : {kind}\n}}"
    )
    return text, x, shape


def _view(text: str, through_broadcasts: bool = False) -> View | None:
    module = ir.Module.parse(text)
    block = module.body.operations[0].regions[0].blocks[0]
    (value,) = block.operations[len(block.operations) - 1].operands
    return view_of(value, [block.arguments[0]], analyze(module), through_broadcasts)


def _positions(view: View) -> np.ndarray:
    sizes = [s.value for s in view.sizes]
    at = np.full(sizes, view.first.value)
    for axis, (size, stride) in enumerate(zip(sizes, view.strides, strict=True)):
        steps = [1] * len(sizes)
        steps[axis] = size
        index = np.arange(size) // view.repeat(axis).value
        at = at + (index * stride.value).reshape(steps)
    return at


@given(programs())
@settings(deadline=None, max_examples=200)
def test_positions(program):
    text, expected, _ = program
    with new_context():
        if "broadcast" in text:
            assert _view(text) is None
        view = _view(text, through_broadcasts=True)
        if view is None:  # only where NumPy has to copy, too, or the array is empty
            assert "reshape" in text
        else:
            np.testing.assert_array_equal(_positions(view), expected)
            for axis in range(expected.ndim):
                pairs = np.diff(expected, axis=axis) == 0
                assert view.is_broadcast(axis) or not pairs.any()


def _of(body: str, kind: str, argument: str) -> View | None:
    return _view(f"func.func @main({argument}) -> {kind} {{\n{body}\n  return %y : {kind}\n}}")


def test_symbols():
    body = """
  %one = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
  %first = "disc.shape"() {dims = ["0", "h*d"]} : () -> tensor<2xi64>
  %last = "disc.shape"() {dims = ["t", "2*h*d"]} : () -> tensor<2xi64>
  %s = stablehlo.real_dynamic_slice %x, %first, %last, %one : (tensor<?x?xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>
  %heads = "disc.shape"() {dims = ["t", "h", "d"]} : () -> tensor<3xi64>
  %r = stablehlo.dynamic_reshape %s, %heads : (tensor<?x?xf32>, tensor<3xi64>) -> tensor<?x?x?xf32>
  %y = stablehlo.transpose %r, dims = [1, 0, 2] : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>"""  # noqa: E501
    argument = '%x: tensor<?x?xf32> {disc.shape = ["t", "3*h*d"]}'
    with new_context():
        view = _of(body, "tensor<?x?x?xf32>", argument)
        assert view is not None
        assert list(map(str, view.sizes)) == ["h", "t", "d"]
        assert list(map(str, view.strides)) == ["d", "3*d*h", "1"]
        assert str(view.first) == "d*h"


def test_repeats_over_several_dimensions_are_no_view():
    body = """
  %a = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<2xf32>) -> tensor<2x2x2xf32>
  %y = stablehlo.reshape %a : (tensor<2x2x2xf32>) -> tensor<4x2xf32>"""
    text = f"func.func @main(%x: tensor<2xf32>) -> tensor<4x2xf32> {{{body}\n  return %y : "
    with new_context():
        assert _view(text + "tensor<4x2xf32>\n}", through_broadcasts=True) is None


def test_repeated_heads():
    body = """
  %wide = "disc.shape"() {dims = ["b", "s", "h", "r", "d"]} : () -> tensor<5xi64>
  %w = stablehlo.dynamic_broadcast_in_dim %x, %wide, dims = [0, 1, 2, 4] : (tensor<?x?x?x?xf32>, tensor<5xi64>) -> tensor<?x?x?x?x?xf32>
  %heads = "disc.shape"() {dims = ["b", "s", "h*r", "d"]} : () -> tensor<4xi64>
  %r = stablehlo.dynamic_reshape %w, %heads : (tensor<?x?x?x?x?xf32>, tensor<4xi64>) -> tensor<?x?x?x?xf32>
  %y = stablehlo.transpose %r, dims = [0, 2, 1, 3] : (tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xf32>"""  # noqa: E501
    kind = "tensor<?x?x?x?xf32>"
    argument = f'%x: {kind} {{disc.shape = ["b", "s", "h", "d"]}}'
    text = f"func.func @main({argument}) -> {kind} {{\n{body}\n  return %y : {kind}\n}}"
    with new_context():
        assert _view(text) is None
        view = _view(text, through_broadcasts=True)
        assert view is not None
        assert list(map(str, view.strides)) == ["d*h*s", "d", "d*h", "1"]
        assert list(map(str, view.repeats)) == ["1", "r", "1", "1"]


@pytest.mark.parametrize(
    "body",
    [
        "%y = stablehlo.negate %x : tensor<4x6xf32>",
        "%t = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>\n"
        "%y = stablehlo.reshape %t : (tensor<6x4xf32>) -> tensor<4x6xf32>",
    ],
)
def test_no_view(body):
    with new_context():
        assert _of(body, "tensor<4x6xf32>", "%x: tensor<4x6xf32>") is None


def test_a_dimension_repeated_zero_times():
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<0xf32> {
  %wide = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<2xf32>) -> tensor<2x1xf32>
  %none = stablehlo.slice %wide [0:2, 0:0] : (tensor<2x1xf32>) -> tensor<2x0xf32>
  %y = stablehlo.reshape %none : (tensor<2x0xf32>) -> tensor<0xf32>
  return %y : tensor<0xf32>
}"""
    with new_context():
        assert _view(text, through_broadcasts=True) is None


@pytest.mark.parametrize(
    "sizes",
    [
        ["n", "3", "floordiv(o, 3)", "h - k + 1"],  # 3 * floordiv(o, 3) is o
        ["floordiv(o, 3)", "floordiv(n, b*t)", "b", "t"],  # a stride of less degree is larger
        ["2", "max(h - 3, 1)", "5", "h"],
    ],
)
@given(data=st.data())
@settings(deadline=None, max_examples=20)
def test_axes_of_an_array_in_any_order_are_told_outermost_first(sizes, data):
    facts = Constraints()
    facts.add_divisible(Expr.parse("o"), 3)
    for name in "bhknot":
        facts.add_lower(Expr.symbol(name), 1)
    facts.add_lower(Expr.parse("h - k"), 0)
    terms = list(map(Expr.parse, sizes))
    strides = list(map(facts.canonical, dense_strides(terms)))
    order = data.draw(st.permutations(range(len(terms))))
    found = outermost_first([(terms[k], strides[k]) for k in order], facts)
    assert [order[k] for k in found] == list(range(len(terms)))

"""A module as JAX lowered it: sizes are found, also where the compiler has other symbols."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.base.jax_module import JaxModule
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import ir, new_context, ops_of
from shlo_disc.jax.calls.lowered import lowered_module


def lowered(function, *shapes):
    scope = export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), np.float32)
        for shape in shapes
    ]
    return lowered_module("f", jax.jit(function), specs, {})


def main_of(module):
    (main,) = module.body.operations
    return main


def constraints(module):
    found = main_of(module).operation.attributes
    if "disc.constraints" not in found:
        return []
    return [ir.StringAttr(c).value for c in ir.ArrayAttr(found["disc.constraints"])]


def test_size_arguments_are_read_from_arrays():
    made = lowered(lambda x, y: x.sum() + y.shape[0] * y.sum(), "2*b + 1, 4", "t, 3*t")
    module = ingest(made.source(), new_context())
    types = [str(a.type) for a in main_of(module).arguments]
    assert types == ["tensor<?x4xf32>", "tensor<?x?xf32>"]
    assert not ops_of(module, "disc.dim")
    assert constraints(module) == []  # the shapes say it all


def test_a_size_that_no_dimension_shows_alone():
    made = lowered(lambda x, y: jnp.concatenate([x, y]) * (y.shape[0] - x.shape[0]), "a", "a + c")
    module = ingest(made.source(), new_context())
    assert len(main_of(module).arguments) == 2
    assert [str(op.attributes["dim"]) for op in ops_of(module, "disc.dim")] == ['"c"']


def test_other_symbols_of_the_compiler():
    made = lowered(lambda x, y: x.sum() + y.sum() * y.shape[0], "b, c", "d, 2*e + 1")
    source = made.source([["k", "3*k"], ["k", "n"]])
    assert source.sizes == {"b": "k", "c": "3*k", "d": "k", "e": "floordiv(n + 1, 2) - 1"}
    odd = ["mod(n + 1, 2) == 0", "floordiv(n + 1, 2) - 1 >= 1"]
    assert source.constraints == ["3*k >= 1", *odd]
    module = ingest(source, new_context())
    assert constraints(module) == source.constraints
    texts = [str(a) for a in main_of(module).arg_attrs]
    assert 'disc.shape = ["k", "3*k"]' in texts[0]
    assert 'disc.shape = ["k", "n"]' in texts[1]


def test_equal_sizes_that_the_compiler_tells_apart():
    source = lowered(lambda x, y: x + y, "b", "b").source([["m"], ["n"]])
    assert source.constraints == ["n == m"]


def test_damaged_text_is_an_error_with_its_line():
    text = """
      func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> {
        %y = stablehlo.add_ %x, %x : tensor<?xf32>
        return %y : tensor<?xf32>
      }"""
    with pytest.raises(InvalidModuleError, match="line 3"):
        ingest(JaxModule(text, [["b"]], [["b"]]), new_context())

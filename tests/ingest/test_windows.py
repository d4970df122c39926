"""Windows of a size or padding known at run time: what they become, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import export

from shlo_disc.errors import UnsupportedError
from shlo_disc.ingest import ingest
from shlo_disc.mlir import new_context, ops_of, walk


def ingested(f, *sizes):
    b, t = export.symbolic_shape("b, t")
    shape = tuple({"b": b, "t": t}.get(s, s) for s in sizes)
    exported = export.export(jax.jit(f))(jax.ShapeDtypeStruct(shape, jnp.float32))
    module = ingest(exported, new_context())
    names: set[str] = set()
    walk(module, lambda op: names.add(op.name))
    targets = [
        str(op.attributes["call_target_name"]) for op in ops_of(module, "stablehlo.custom_call")
    ]
    assert set(targets) <= {'"shape_assertion"'}
    return module, names


def test_a_constant_window_with_padding_from_sizes_stays_a_reduce_window():
    def pooled(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3, 3), (2, 2), "SAME")

    module, names = ingested(pooled, "b", "t")
    assert "stablehlo.dynamic_pad" in names
    (window,) = ops_of(module, "stablehlo.reduce_window")
    assert str(window.attributes["window_dimensions"]) == "array<i64: 3, 3>"
    assert str(window.attributes["window_strides"]) == "array<i64: 2, 2>"
    assert [op.operation.name for op in window.regions[0].blocks[0].operations] == [
        "stablehlo.maximum",
        "stablehlo.return",
    ]


@pytest.mark.parametrize("f", [jnp.cumsum, jnp.cumprod, jax.lax.cummax, jax.lax.cumlogsumexp])
def test_a_cumulative_reduction_keeps_its_window_and_has_its_reducer_inside(f):
    module, names = ingested(lambda x: f(x, axis=1), 3, "t")
    (window,) = ops_of(module, "disc.reduce_window")
    assert window.attributes["dimension"].value == 1
    assert len(window.operands) == 5
    assert len(window.regions[0].blocks[0].arguments) == 2
    assert "stablehlo.dynamic_pad" not in names


def test_a_convolution_with_padding_from_sizes_is_padded_first():
    def convolved(x):
        weights = jnp.ones((2, 1, 3, 3))
        return jax.lax.conv_general_dilated(x[None, None], weights, (2, 2), "SAME")

    module, names = ingested(convolved, "b", "t")
    assert {"stablehlo.dynamic_pad", "stablehlo.convolution"} <= names
    (convolution,) = ops_of(module, "stablehlo.convolution")
    assert "padding" not in convolution.attributes


def test_a_window_of_run_time_size_with_a_stride_is_refused():
    def strided(x):
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, (x.shape[0], 1), (2, 1), "VALID")

    with pytest.raises(
        UnsupportedError, match=r"test_windows.py:\d+: a window whose size is known"
    ):
        ingested(strided, "b", 4)


def test_two_axes_of_run_time_size_are_refused():
    def both(x):
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, x.shape, (1, 1), "VALID")

    with pytest.raises(UnsupportedError, match="must span one axis"):
        ingested(both, "b", "t")


def test_the_reducer_of_an_unused_window_is_dropped():
    module, names = ingested(lambda x: (jnp.cumsum(x, 1), x * 2)[1], "b", "t")
    assert [op.operation.name for op in module.body.operations] == ["func.func"]
    assert "stablehlo.multiply" in names

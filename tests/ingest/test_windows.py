"""Windows of a size or padding known at run time: what they become, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import new_context, ops_of, walk


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


def mean_pool(x, y):
    """Windows of both axes from sizes, one step a window."""
    window = (x.shape[0] // 2, y.shape[1])
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, window, "VALID") / 4


def strided(x, y):
    """A constant window along one axis; a stride from a size along the other, padded."""
    start = jnp.float32(-jnp.inf)
    return jax.lax.reduce_window(x, start, jax.lax.max, (2, 3), (y.shape[0], 2), "SAME")


def dilated(x, y):
    padding = ((y.shape[1], 1), (0, 2))
    return jax.lax.reduce_window(
        x, 1.0, jax.lax.mul, (y.shape[0], x.shape[1]), (1, 1), padding, base_dilation=(2, 3)
    )


def two_results(x, y):
    """The largest element of each window, and its place."""

    def larger(a, b):
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return tuple(jnp.where(first, u, v) for u, v in zip(a, b, strict=True))

    places = jax.lax.iota(jnp.int32, x.size).reshape(x.shape)
    none = (jnp.float32(-jnp.inf), jnp.int32(2**31 - 1))
    window = (y.shape[0], y.shape[1])
    return jax.lax.reduce_window((x, places), none, larger, window, (1, y.shape[0]), "VALID")


def spread(x, y):
    """Elements of windows lie apart, along an axis whose window is known at run time only."""
    window = (y.shape[0], 2)
    return jax.lax.reduce_window(
        x, 0.0, jax.lax.add, window, (2, 1), ((1, 2), (1, 0)), (1, 2), window_dilation=(2, 3)
    )


def spread_far(x, y):
    """No window fits at some sizes."""
    return jax.lax.reduce_window(
        x, 1.0, jax.lax.mul, (2, 1), (y.shape[1], 1), "VALID", window_dilation=(y.shape[0], 1)
    )


@pytest.mark.parametrize("f", [mean_pool, strided, dilated, spread, spread_far, two_results])
def test_windows_and_strides_of_run_time_size(f):
    ours, theirs = shlo_disc.jit(f), jax.jit(f)
    for shape, sizes in (((8, 7), (2, 3)), ((5, 4), (3, 4)), ((6, 9), (4, 5))):
        x = np.random.default_rng(0).standard_normal(shape).astype("f4")
        y = np.zeros(sizes, "f4")
        for got, want in zip(
            jax.tree.leaves(ours(x, y)), jax.tree.leaves(theirs(x, y)), strict=True
        ):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, 1e-6, 1e-6)
    assert ours.cache_info().misses == 1


def test_dilations_may_be_arguments():
    text = """
    func.func private @add(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.add %a, %b : tensor<f32>
      return %0 : tensor<f32>
    }
    func.func public @main(%x: tensor<?xf32>, %base: tensor<1xi32>, %between: tensor<1xi32>)
        -> tensor<?xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %w = stablehlo.constant dense<3> : tensor<1xi32>
      %one = stablehlo.constant dense<1> : tensor<1xi32>
      %p = stablehlo.constant dense<[[1, 2]]> : tensor<1x2xi32>
      %r = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %zero, %w, %one, %base,
        %between, %p) {called_computations = [@add]} : (tensor<?xf32>, tensor<f32>, tensor<1xi32>,
        tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1x2xi32>) -> tensor<?xf32>
      return %r : tensor<?xf32>
    }
    """
    executable = shlo_disc.compile(text)
    for n, base, between in ((5, 1, 1), (9, 1, 4), (6, 3, 2), (2, 1, 9), (1, 4, 1)):
        x = np.random.default_rng(n).standard_normal(n).astype("f4")
        given = [x, np.array([base], "i4"), np.array([between], "i4")]
        want = jax.lax.reduce_window(
            x, 0.0, jax.lax.add, (3,), (1,), ((1, 2),), (base,), (between,)
        )
        (got,) = executable.run_numpy(given)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, 1e-6, 1e-6)


def test_padding_may_be_a_matrix_that_is_an_argument():
    text = """
    func.func @main(%x: tensor<1x?x1xf32>, %w: tensor<3x1x1xf32>, %p: tensor<1x2xi64>)
        -> tensor<1x?x1xf32> {
      %r = "stablehlo.dynamic_conv"(%x, %w, %p) <{
        dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>,
        batch_group_count = 1 : i64, feature_group_count = 1 : i64}>
        : (tensor<1x?x1xf32>, tensor<3x1x1xf32>, tensor<1x2xi64>) -> tensor<1x?x1xf32>
      return %r : tensor<1x?x1xf32>
    }
    """
    executable = shlo_disc.compile(text)
    x, w = np.arange(5, dtype="f4"), np.float32([1, 2, 4])
    for low, high in ((0, 0), (1, 2), (3, 0), (-1, 0), (-2, 3), (4, -2)):
        (got,) = executable.run_numpy([x[None, :, None], w[:, None, None], np.array([[low, high]])])
        cropped = x[max(-low, 0) : len(x) - max(-high, 0)]
        want = np.correlate(np.pad(cropped, (max(low, 0), max(high, 0))), w, "valid")
        np.testing.assert_array_equal(got[0, :, 0], want)


def test_padding_of_complex_numbers_may_be_an_argument():
    text = """
    func.func @main(%x: tensor<1x?x1xcomplex<f32>>, %w: tensor<3x1x1xcomplex<f32>>,
        %p: tensor<1x2xi64>) -> tensor<1x?x1xcomplex<f32>> {
      %r = "stablehlo.dynamic_conv"(%x, %w, %p) <{
        dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>,
        batch_group_count = 1 : i64, feature_group_count = 1 : i64}>
        : (tensor<1x?x1xcomplex<f32>>, tensor<3x1x1xcomplex<f32>>, tensor<1x2xi64>)
        -> tensor<1x?x1xcomplex<f32>>
      return %r : tensor<1x?x1xcomplex<f32>>
    }
    """
    executable = shlo_disc.compile(text)
    x = (np.arange(5) + 1j * np.arange(5)[::-1]).astype("c8")
    w = np.array([1 + 1j, 2, -3j], "c8")
    for low, high in ((0, 0), (1, 2)):
        (got,) = executable.run_numpy([x[None, :, None], w[:, None, None], np.array([[low, high]])])
        want = np.convolve(np.pad(x, (low, high)), w[::-1], "valid")
        np.testing.assert_allclose(got[0, :, 0], want, rtol=1e-6)


def test_a_window_with_a_wrong_number_of_operands_is_malformed():
    text = """
    func.func private @add(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
      %c = stablehlo.add %a, %b : tensor<f32>
      return %c : tensor<f32>
    }
    func.func public @main(%x: tensor<?xf32>, %i: tensor<f32>, %n: tensor<1xi32>)
        -> tensor<?xf32> {
      %r = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %i, %n)
        {called_computations = [@add]}
        : (tensor<?xf32>, tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
      return %r : tensor<?xf32>
    }
    """
    with pytest.raises(InvalidModuleError, match="must have 7 operands and 1 results, not 3"):
        shlo_disc.compile(text)


def test_the_reducer_of_an_unused_window_is_dropped():
    module, names = ingested(lambda x: (jnp.cumsum(x, 1), x * 2)[1], "b", "t")
    assert [op.operation.name for op in module.body.operations] == ["func.func"]
    assert "stablehlo.multiply" in names

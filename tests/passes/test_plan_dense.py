"""Where the planner stops: what it does not take into the kernel of a product."""

import numpy as np

import shlo_disc


def test_single_elements_of_a_product_are_not_its_bands():
    """Scalars have no columns to be bands of; the planner looked at the last of their sizes."""
    text = """func.func @main(%a: tensor<2x?xf32>, %v: tensor<?xf32>) -> tensor<f32> {
      %p = stablehlo.dot_general %a, %v, contracting_dims = [1] x [0]
        : (tensor<2x?xf32>, tensor<?xf32>) -> tensor<2xf32>
      %0 = stablehlo.slice %p [0:1] : (tensor<2xf32>) -> tensor<1xf32>
      %1 = stablehlo.slice %p [1:2] : (tensor<2xf32>) -> tensor<1xf32>
      %2 = stablehlo.reshape %0 : (tensor<1xf32>) -> tensor<f32>
      %3 = stablehlo.reshape %1 : (tensor<1xf32>) -> tensor<f32>
      %4 = stablehlo.multiply %2, %3 : tensor<f32>
      %5 = stablehlo.tanh %4 : tensor<f32>
      return %5 : tensor<f32>
    }"""
    executable = shlo_disc.compile(text)
    rng = np.random.default_rng(0)
    for n in (0, 1, 7, 300):
        a, v = rng.normal(size=(2, n)).astype("f4"), rng.normal(size=n).astype("f4")
        (got,) = executable.run_numpy([a, v])
        np.testing.assert_allclose(got, np.tanh(np.prod(a @ v)), rtol=1e-4, atol=1e-6)

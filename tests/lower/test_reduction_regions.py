"""Regions of `reduce` and `reduce_window` that random modules have and JAX does not write."""

import numpy as np

import shlo_disc


def test_windows_over_an_iota_are_no_arg_max():
    """The second operand of a `reduce_window` may be an iota: only `reduce` has arg-max kernels."""
    executable = shlo_disc.compile(
        """func.func public @main(%x: tensor<2x5xi32>) -> (tensor<2x4xi32>, tensor<2x4xi32>) {
          %i = stablehlo.iota dim = 1 : tensor<2x5xi32>
          %low = stablehlo.constant dense<-2147483648> : tensor<i32>
          %high = stablehlo.constant dense<2147483647> : tensor<i32>
          %r:2 = "stablehlo.reduce_window"(%x, %i, %low, %high) ({
          ^bb0(%a: tensor<i32>, %p: tensor<i32>, %b: tensor<i32>, %q: tensor<i32>):
            %more = stablehlo.compare GT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
            %same = stablehlo.compare EQ, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
            %first = stablehlo.compare LT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
            %tie = stablehlo.and %same, %first : tensor<i1>
            %take = stablehlo.or %more, %tie : tensor<i1>
            %value = stablehlo.select %take, %a, %b : tensor<i1>, tensor<i32>
            %place = stablehlo.select %take, %p, %q : tensor<i1>, tensor<i32>
            stablehlo.return %value, %place : tensor<i32>, tensor<i32>
          }) {window_dimensions = array<i64: 1, 2>}
            : (tensor<2x5xi32>, tensor<2x5xi32>, tensor<i32>, tensor<i32>)
              -> (tensor<2x4xi32>, tensor<2x4xi32>)
          return %r#0, %r#1 : tensor<2x4xi32>, tensor<2x4xi32>
        }"""
    )
    x = np.array([[3, 3, 1, 5, 2], [-1, 0, 0, -7, 9]], np.int32)
    values, places = executable.run_numpy([x])
    pairs = np.stack([x[:, :-1], x[:, 1:]], -1)
    np.testing.assert_array_equal(values, pairs.max(-1))
    np.testing.assert_array_equal(places, pairs.argmax(-1) + np.arange(4))

module @jit_recurrent attributes {disc.passes_left = ["cse", "forward-carried", "expand-windows", "resolve-shapes", "simplify", "lay-out-images", "fold-transposes", "lift-transposes", "hoist-invariants", "hoist-projections", "cse", "sink-into-branches", "drop-barriers", "sink-constants", "sink-views", "stack-results", "broadcast-splats", "plan-fusion", "share-kernels", "place-scalars", "plan-buffers"], jax.uses_shape_polymorphism = true} {
  func.func public @main(%arg0: tensor<?x?x32xf32> {disc.name = "x", disc.shape = ["t", "b", "32"]}, %arg1: tensor<32x32xf32> {disc.name = "w", disc.shape = ["32", "32"]}) -> (tensor<?x?x32xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x?x32xf32>) -> tensor<i32>
    %1 = stablehlo.get_dimension_size %arg0, dim = 1 : (tensor<?x?x32xf32>) -> tensor<i32>
    %2 = stablehlo.compare GE, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%2, %0) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 't'. Using the following polymorphic shapes specifications: args[0].shape = (t, b, 32). Obtained dimension variables: 't' = {0} from specification 't' for dimension args[0].shape[0] (= {0}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
    %3 = stablehlo.compare GE, %1, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%3, %0, %1) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'b'. Using the following polymorphic shapes specifications: args[0].shape = (t, b, 32). Obtained dimension variables: 't' = {0} from specification 't' for dimension args[0].shape[0] (= {0}), 'b' = {1} from specification 'b' for dimension args[0].shape[1] (= {1}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<32> : tensor<1xi32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
    %5 = stablehlo.concatenate %4, %c_1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %6 = stablehlo.dynamic_broadcast_in_dim %cst, %5, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x32xf32>
    %7 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
    %8 = stablehlo.concatenate %7, %4, %c_1, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %9 = stablehlo.dynamic_broadcast_in_dim %cst, %8, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x32xf32>
    %10:5 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %arg1, %iterArg_3 = %c_0, %iterArg_4 = %6, %iterArg_5 = %9) : tensor<?x?x32xf32>, tensor<32x32xf32>, tensor<i32>, tensor<?x32xf32>, tensor<?x?x32xf32>
    cond {
      %11 = stablehlo.compare LT, %iterArg_3, %0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %11 : tensor<i1>
    } do {
      %c_6 = stablehlo.constant dense<0> : tensor<1xi32>
      %c_7 = stablehlo.constant dense<1> : tensor<1xi32>
      %11 = stablehlo.concatenate %c_7, %4, %c_1, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
      %12 = stablehlo.concatenate %c_6, %c_6, %c_6, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
      %13 = stablehlo.reshape %iterArg_3 : (tensor<i32>) -> tensor<1xi32>
      %14 = stablehlo.reshape %c_0 : (tensor<i32>) -> tensor<1xi32>
      %15 = stablehlo.concatenate %13, %14, %14, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
      %16 = stablehlo.subtract %8, %11 : tensor<3xi32>
      %17 = stablehlo.clamp %12, %15, %16 : tensor<3xi32>
      %18 = stablehlo.add %17, %11 : tensor<3xi32>
      %19 = stablehlo.concatenate %c_7, %c_7, %c_7, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
      %20 = "stablehlo.dynamic_gather"(%iterArg, %17, %11) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1, 2], start_index_map = [0, 1, 2]>, indices_are_sorted = true}> : (tensor<?x?x32xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<1x?x32xf32>
      %21 = stablehlo.dynamic_reshape %20, %5 : (tensor<1x?x32xf32>, tensor<2xi32>) -> tensor<?x32xf32>
      %22 = stablehlo.dot_general %iterArg_4, %iterArg_2, contracting_dims = [1] x [0] : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
      %23 = stablehlo.tanh %22 : tensor<?x32xf32>
      %24 = stablehlo.add %23, %21 : tensor<?x32xf32>
      %25 = stablehlo.dynamic_broadcast_in_dim %24, %11, dims = [1, 2] : (tensor<?x32xf32>, tensor<3xi32>) -> tensor<1x?x32xf32>
      %26 = stablehlo.dynamic_update_slice %iterArg_5, %25, %iterArg_3, %c_0, %c_0 : (tensor<?x?x32xf32>, tensor<1x?x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<?x?x32xf32>
      %27 = stablehlo.add %iterArg_3, %c : tensor<i32>
      stablehlo.return %iterArg, %iterArg_2, %27, %24, %26 : tensor<?x?x32xf32>, tensor<32x32xf32>, tensor<i32>, tensor<?x32xf32>, tensor<?x?x32xf32>
    }
    return %10#4 : tensor<?x?x32xf32>
  }
}

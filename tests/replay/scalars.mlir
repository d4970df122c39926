module @jit__counted attributes {disc.passes_left = ["cse", "forward-carried", "expand-windows", "resolve-shapes", "simplify", "lay-out-images", "fold-transposes", "lift-transposes", "hoist-invariants", "hoist-projections", "cse", "sink-into-branches", "drop-barriers", "sink-constants", "sink-views", "stack-results", "broadcast-splats", "plan-fusion", "share-kernels", "place-scalars", "plan-buffers"], jax.uses_shape_polymorphism = true} {
  func.func public @main(%arg0: tensor<?xf32> {disc.name = "x", disc.shape = ["n"]}) -> (tensor<?xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %1 = stablehlo.compare GE, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%1, %0) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'n'. Using the following polymorphic shapes specifications: args[0].shape = (n,). Obtained dimension variables: 'n' = {0} from specification 'n' for dimension args[0].shape[0] (= {0}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
    %c_0 = stablehlo.constant dense<3> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %2:4 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %c_1, %iterArg_3 = %c_1, %iterArg_4 = %arg0) : tensor<?xf32>, tensor<i32>, tensor<i32>, tensor<?xf32>
    cond {
      %3 = stablehlo.compare LT, %iterArg_2, %c_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %3 = stablehlo.add %iterArg_3, %c : tensor<i32>
      %4 = stablehlo.convert %0 : tensor<i32>
      %5 = stablehlo.compare LT, %iterArg_3, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %6 = stablehlo.convert %iterArg_3 : tensor<i32>
      %7 = stablehlo.add %6, %4 : tensor<i32>
      %8 = stablehlo.select %5, %7, %iterArg_3 : tensor<i1>, tensor<i32>
      %9 = stablehlo.dynamic_slice %iterArg, %8, sizes = [1] : (tensor<?xf32>, tensor<i32>) -> tensor<1xf32>
      %10 = stablehlo.reshape %9 : (tensor<1xf32>) -> tensor<f32>
      %11 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
      %12 = stablehlo.dynamic_broadcast_in_dim %10, %11, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
      %13 = stablehlo.multiply %iterArg_4, %12 : tensor<?xf32>
      %14 = stablehlo.convert %iterArg_3 : (tensor<i32>) -> tensor<f32>
      %15 = stablehlo.dynamic_broadcast_in_dim %14, %11, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
      %16 = stablehlo.add %13, %15 : tensor<?xf32>
      %17 = stablehlo.add %iterArg_2, %c : tensor<i32>
      stablehlo.return %iterArg, %17, %3, %16 : tensor<?xf32>, tensor<i32>, tensor<i32>, tensor<?xf32>
    }
    return %2#3 : tensor<?xf32>
  }
}

module @jit__lambda attributes {disc.passes_left = ["cse", "forward-carried", "expand-windows", "resolve-shapes", "simplify", "lay-out-images", "fold-transposes", "lift-transposes", "hoist-invariants", "hoist-projections", "cse", "sink-into-branches", "drop-barriers", "sink-constants", "sink-views", "stack-results", "broadcast-splats", "plan-fusion", "share-kernels", "place-scalars", "plan-buffers"], jax.uses_shape_polymorphism = true} {
  func.func public @main(%arg0: tensor<?x?xf32> {disc.name = "x", disc.shape = ["n", "m"]}) -> (tensor<?x5xf32> {jax.result_info = "result[0]"}, tensor<?x5xi32> {jax.result_info = "result[1]"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<-5> : tensor<i32>
    %c_1 = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
    %1 = stablehlo.get_dimension_size %arg0, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
    %2 = stablehlo.compare GE, %0, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%2, %0) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'n'. Using the following polymorphic shapes specifications: args[0].shape = (n, m). Obtained dimension variables: 'n' = {0} from specification 'n' for dimension args[0].shape[0] (= {0}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
    %3 = stablehlo.compare GE, %1, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%3, %0, %1) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'm'. Using the following polymorphic shapes specifications: args[0].shape = (n, m). Obtained dimension variables: 'n' = {0} from specification 'n' for dimension args[0].shape[0] (= {0}), 'm' = {1} from specification 'm' for dimension args[0].shape[1] (= {1}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
    %4 = stablehlo.convert %1 : tensor<i32>
    %5 = stablehlo.add %4, %c_0 : tensor<i32>
    %6 = stablehlo.compare GE, %5, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%6, %5, %0, %1) {api_version = 2 : i32, error_message = "Input shapes do not match the symbolic shape constraint m >= 5. Expected 'm - 5' to be greater or equal to 0, but found {0}.  Using the following polymorphic shapes specifications: args[0].shape = (n, m). Obtained dimension variables: 'n' = {1} from specification 'n' for dimension args[0].shape[0] (= {1}), 'm' = {2} from specification 'm' for dimension args[0].shape[1] (= {2}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %values, %indices = chlo.top_k(%arg0, k = 5) : tensor<?x?xf32> -> (tensor<?x5xf32>, tensor<?x5xi32>)
    return %values, %indices : tensor<?x5xf32>, tensor<?x5xi32>
  }
}

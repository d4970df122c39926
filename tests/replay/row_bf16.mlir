module @jit__layer_norm attributes {disc.passes_left = ["cse", "forward-carried", "expand-windows", "resolve-shapes", "simplify", "lay-out-images", "fold-transposes", "lift-transposes", "hoist-invariants", "hoist-projections", "cse", "sink-into-branches", "drop-barriers", "sink-constants", "sink-views", "stack-results", "broadcast-splats", "plan-fusion", "share-kernels", "place-scalars", "plan-buffers"], jax.uses_shape_polymorphism = true} {
  func.func public @main(%arg0: tensor<?x?xbf16> {disc.name = "x", disc.shape = ["n", "m"]}, %arg1: tensor<?xbf16> {disc.name = "scale", disc.shape = ["m"]}) -> (tensor<?x?xbf16> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x?xbf16>) -> tensor<i32>
    %1 = stablehlo.get_dimension_size %arg0, dim = 1 : (tensor<?x?xbf16>) -> tensor<i32>
    %2 = stablehlo.get_dimension_size %arg1, dim = 0 : (tensor<?xbf16>) -> tensor<i32>
    %3 = stablehlo.compare GE, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%3, %0) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'n'. Using the following polymorphic shapes specifications: args[0].shape = (n, m),args[1].shape = (m,). Obtained dimension variables: 'n' = {0} from specification 'n' for dimension args[0].shape[0] (= {0}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
    %4 = stablehlo.compare GE, %1, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%4, %0, %1) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'm'. Using the following polymorphic shapes specifications: args[0].shape = (n, m),args[1].shape = (m,). Obtained dimension variables: 'n' = {0} from specification 'n' for dimension args[0].shape[0] (= {0}), 'm' = {1} from specification 'm' for dimension args[0].shape[1] (= {1}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
    %5 = stablehlo.compare EQ, %2, %1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%5, %2, %1, %0) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Found inconsistency between dimension size args[1].shape[0] (= {0}) and the specification 'm' (= {1}). Using the following polymorphic shapes specifications: args[0].shape = (n, m),args[1].shape = (m,). Obtained dimension variables: 'n' = {2} from specification 'n' for dimension args[0].shape[0] (= {2}), 'm' = {1} from specification 'm' for dimension args[0].shape[1] (= {1}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %cst = stablehlo.constant dense<1.001360e-05> : tensor<bf16>
    %c_0 = stablehlo.constant dense<1> : tensor<1xi32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.convert %1 : (tensor<i32>) -> tensor<f32>
    %7 = stablehlo.convert %arg0 : (tensor<?x?xbf16>) -> tensor<?x?xf32>
    %8 = stablehlo.reduce(%7 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
    %9 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
    %10 = stablehlo.concatenate %9, %c_0, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %11 = stablehlo.dynamic_broadcast_in_dim %8, %10, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x1xf32>
    %12 = stablehlo.dynamic_broadcast_in_dim %6, %10, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x1xf32>
    %13 = stablehlo.divide %11, %12 : tensor<?x1xf32>
    %14 = stablehlo.convert %13 : (tensor<?x1xf32>) -> tensor<?x1xbf16>
    %15 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
    %16 = stablehlo.concatenate %9, %15, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %17 = stablehlo.dynamic_broadcast_in_dim %14, %16, dims = [0, 1] : (tensor<?x1xbf16>, tensor<2xi32>) -> tensor<?x?xbf16>
    %18 = stablehlo.subtract %arg0, %17 : tensor<?x?xbf16>
    %19 = stablehlo.multiply %18, %18 : tensor<?x?xbf16>
    %20 = stablehlo.convert %19 : (tensor<?x?xbf16>) -> tensor<?x?xf32>
    %21 = stablehlo.reduce(%20 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
    %22 = stablehlo.dynamic_broadcast_in_dim %21, %10, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x1xf32>
    %23 = stablehlo.divide %22, %12 : tensor<?x1xf32>
    %24 = stablehlo.convert %23 : (tensor<?x1xf32>) -> tensor<?x1xbf16>
    %25 = stablehlo.dynamic_broadcast_in_dim %cst, %10, dims = [] : (tensor<bf16>, tensor<2xi32>) -> tensor<?x1xbf16>
    %26 = stablehlo.add %24, %25 : tensor<?x1xbf16>
    %27 = stablehlo.rsqrt %26 : tensor<?x1xbf16>
    %28 = stablehlo.dynamic_broadcast_in_dim %27, %16, dims = [0, 1] : (tensor<?x1xbf16>, tensor<2xi32>) -> tensor<?x?xbf16>
    %29 = stablehlo.multiply %18, %28 : tensor<?x?xbf16>
    %30 = stablehlo.concatenate %c_0, %15, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %31 = stablehlo.dynamic_broadcast_in_dim %arg1, %30, dims = [1] : (tensor<?xbf16>, tensor<2xi32>) -> tensor<1x?xbf16>
    %32 = stablehlo.dynamic_broadcast_in_dim %31, %16, dims = [0, 1] : (tensor<1x?xbf16>, tensor<2xi32>) -> tensor<?x?xbf16>
    %33 = stablehlo.multiply %29, %32 : tensor<?x?xbf16>
    return %33 : tensor<?x?xbf16>
  }
}

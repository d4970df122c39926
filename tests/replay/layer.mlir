module @jit_layer attributes {disc.passes_left = ["cse", "forward-carried", "expand-windows", "resolve-shapes", "simplify", "lay-out-images", "fold-transposes", "lift-transposes", "hoist-invariants", "hoist-projections", "cse", "sink-into-branches", "drop-barriers", "sink-constants", "sink-views", "stack-results", "broadcast-splats", "plan-fusion", "share-kernels", "place-scalars", "plan-buffers"], jax.uses_shape_polymorphism = true} {
  func.func public @main(%arg0: tensor<?x?x64xf32> {disc.name = "x", disc.shape = ["b", "t", "64"]}, %arg1: tensor<64x64xf32> {disc.name = "q", disc.shape = ["64", "64"]}, %arg2: tensor<64x64xf32> {disc.name = "k", disc.shape = ["64", "64"]}, %arg3: tensor<64x64xf32> {disc.name = "v", disc.shape = ["64", "64"]}, %arg4: tensor<64x64xf32> {disc.name = "w", disc.shape = ["64", "64"]}) -> (tensor<?x?x64xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x?x64xf32>) -> tensor<i32>
    %1 = stablehlo.get_dimension_size %arg0, dim = 1 : (tensor<?x?x64xf32>) -> tensor<i32>
    %2 = stablehlo.compare GE, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%2, %0) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'b'. Using the following polymorphic shapes specifications: args[0].shape = (b, t, 64). Obtained dimension variables: 'b' = {0} from specification 'b' for dimension args[0].shape[0] (= {0}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
    %3 = stablehlo.compare GE, %1, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%3, %0, %1) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 't'. Using the following polymorphic shapes specifications: args[0].shape = (b, t, 64). Obtained dimension variables: 'b' = {0} from specification 'b' for dimension args[0].shape[0] (= {0}), 't' = {1} from specification 't' for dimension args[0].shape[1] (= {1}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
    %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_1 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %cst_2 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %cst_3 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %c_4 = stablehlo.constant dense<64> : tensor<1xi32>
    %cst_5 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %c_6 = stablehlo.constant dense<1> : tensor<1xi32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%arg0 init: %cst_7) applies stablehlo.add across dimensions = [2] : (tensor<?x?x64xf32>, tensor<f32>) -> tensor<?x?xf32>
    %5 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
    %6 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
    %7 = stablehlo.concatenate %5, %6, %c_6, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %8 = stablehlo.dynamic_broadcast_in_dim %4, %7, dims = [0, 1] : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %9 = stablehlo.dynamic_broadcast_in_dim %cst_5, %7, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %10 = stablehlo.divide %8, %9 : tensor<?x?x1xf32>
    %11 = stablehlo.concatenate %5, %6, %c_4, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %12 = stablehlo.dynamic_broadcast_in_dim %10, %11, dims = [0, 1, 2] : (tensor<?x?x1xf32>, tensor<3xi32>) -> tensor<?x?x64xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<?x?x64xf32>
    %14 = stablehlo.multiply %13, %13 : tensor<?x?x64xf32>
    %15 = stablehlo.reduce(%14 init: %cst_7) applies stablehlo.add across dimensions = [2] : (tensor<?x?x64xf32>, tensor<f32>) -> tensor<?x?xf32>
    %16 = stablehlo.dynamic_broadcast_in_dim %15, %7, dims = [0, 1] : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %17 = stablehlo.divide %16, %9 : tensor<?x?x1xf32>
    %18 = stablehlo.dynamic_broadcast_in_dim %cst_3, %7, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %19 = stablehlo.add %17, %18 : tensor<?x?x1xf32>
    %20 = stablehlo.rsqrt %19 : tensor<?x?x1xf32>
    %21 = stablehlo.dynamic_broadcast_in_dim %20, %11, dims = [0, 1, 2] : (tensor<?x?x1xf32>, tensor<3xi32>) -> tensor<?x?x64xf32>
    %22 = stablehlo.multiply %13, %21 : tensor<?x?x64xf32>
    %23 = stablehlo.dot_general %22, %arg1, contracting_dims = [2] x [0] : (tensor<?x?x64xf32>, tensor<64x64xf32>) -> tensor<?x?x64xf32>
    %24 = stablehlo.dot_general %22, %arg2, contracting_dims = [2] x [0] : (tensor<?x?x64xf32>, tensor<64x64xf32>) -> tensor<?x?x64xf32>
    %25 = stablehlo.multiply %23, %24 : tensor<?x?x64xf32>
    %26 = stablehlo.dot_general %22, %arg3, contracting_dims = [2] x [0] : (tensor<?x?x64xf32>, tensor<64x64xf32>) -> tensor<?x?x64xf32>
    %27 = stablehlo.add %25, %26 : tensor<?x?x64xf32>
    %28 = stablehlo.multiply %27, %27 : tensor<?x?x64xf32>
    %29 = stablehlo.multiply %28, %27 : tensor<?x?x64xf32>
    %30 = stablehlo.dynamic_broadcast_in_dim %cst_2, %11, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x64xf32>
    %31 = stablehlo.multiply %30, %29 : tensor<?x?x64xf32>
    %32 = stablehlo.add %27, %31 : tensor<?x?x64xf32>
    %33 = stablehlo.dynamic_broadcast_in_dim %cst_1, %11, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x64xf32>
    %34 = stablehlo.multiply %33, %32 : tensor<?x?x64xf32>
    %35 = stablehlo.tanh %34 : tensor<?x?x64xf32>
    %36 = stablehlo.dynamic_broadcast_in_dim %cst_0, %11, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x64xf32>
    %37 = stablehlo.add %36, %35 : tensor<?x?x64xf32>
    %38 = stablehlo.dynamic_broadcast_in_dim %cst, %11, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x64xf32>
    %39 = stablehlo.multiply %38, %37 : tensor<?x?x64xf32>
    %40 = stablehlo.multiply %27, %39 : tensor<?x?x64xf32>
    %41 = stablehlo.dot_general %40, %arg4, contracting_dims = [2] x [0] : (tensor<?x?x64xf32>, tensor<64x64xf32>) -> tensor<?x?x64xf32>
    %42 = stablehlo.add %arg0, %41 : tensor<?x?x64xf32>
    return %42 : tensor<?x?x64xf32>
  }
}

module @jit__lambda attributes {disc.passes_left = ["cse", "forward-carried", "expand-windows", "resolve-shapes", "simplify", "lay-out-images", "fold-transposes", "lift-transposes", "hoist-invariants", "hoist-projections", "cse", "sink-into-branches", "drop-barriers", "sink-constants", "sink-views", "stack-results", "broadcast-splats", "plan-fusion", "share-kernels", "place-scalars", "plan-buffers"], jax.uses_shape_polymorphism = true} {
  func.func public @main(%arg0: tensor<?x60xf32> {disc.name = "x", disc.shape = ["n", "60"]}) -> (tensor<?x31xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x60xf32>) -> tensor<i32>
    %1 = stablehlo.compare GE, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%1, %0) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'n'. Using the following polymorphic shapes specifications: args[0].shape = (n, 60). Obtained dimension variables: 'n' = {0} from specification 'n' for dimension args[0].shape[0] (= {0}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
    %2:2 = "disc.fft"(%arg0) {kind = "RFFT"} : (tensor<?x60xf32>) -> (tensor<?x31xf32>, tensor<?x31xf32>)
    %3 = stablehlo.abs %2#0 : tensor<?x31xf32>
    %4 = stablehlo.abs %2#1 : tensor<?x31xf32>
    %5 = stablehlo.maximum %3, %4 : tensor<?x31xf32>
    %6 = stablehlo.abs %5 : tensor<?x31xf32>
    %7 = stablehlo.bitcast_convert %6 : (tensor<?x31xf32>) -> tensor<?x31xi32>
    %c_0 = stablehlo.constant dense<23> : tensor<i32>
    %8 = stablehlo.get_dimension_size %2#0, dim = 0 : (tensor<?x31xf32>) -> tensor<i32>
    %9 = stablehlo.get_dimension_size %2#0, dim = 1 : (tensor<?x31xf32>) -> tensor<i32>
    %10 = stablehlo.reshape %8 : (tensor<i32>) -> tensor<1xi32>
    %11 = stablehlo.reshape %9 : (tensor<i32>) -> tensor<1xi32>
    %12 = stablehlo.concatenate %10, %11, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %13 = stablehlo.dynamic_broadcast_in_dim %c_0, %12, dims = [] : (tensor<i32>, tensor<2xi32>) -> tensor<?x31xi32>
    %14 = stablehlo.shift_right_logical %7, %13 : tensor<?x31xi32>
    %c_1 = stablehlo.constant dense<1> : tensor<i32>
    %15 = stablehlo.dynamic_broadcast_in_dim %c_1, %12, dims = [] : (tensor<i32>, tensor<2xi32>) -> tensor<?x31xi32>
    %c_2 = stablehlo.constant dense<253> : tensor<i32>
    %16 = stablehlo.dynamic_broadcast_in_dim %c_2, %12, dims = [] : (tensor<i32>, tensor<2xi32>) -> tensor<?x31xi32>
    %17 = stablehlo.maximum %14, %15 : tensor<?x31xi32>
    %18 = stablehlo.minimum %17, %16 : tensor<?x31xi32>
    %c_3 = stablehlo.constant dense<254> : tensor<i32>
    %19 = stablehlo.dynamic_broadcast_in_dim %c_3, %12, dims = [] : (tensor<i32>, tensor<2xi32>) -> tensor<?x31xi32>
    %20 = stablehlo.subtract %19, %18 : tensor<?x31xi32>
    %21 = stablehlo.shift_left %20, %13 : tensor<?x31xi32>
    %22 = stablehlo.bitcast_convert %21 : (tensor<?x31xi32>) -> tensor<?x31xf32>
    %23 = stablehlo.multiply %2#0, %22 : tensor<?x31xf32>
    %24 = stablehlo.subtract %19, %18 : tensor<?x31xi32>
    %25 = stablehlo.shift_left %24, %13 : tensor<?x31xi32>
    %26 = stablehlo.bitcast_convert %25 : (tensor<?x31xi32>) -> tensor<?x31xf32>
    %27 = stablehlo.multiply %2#1, %26 : tensor<?x31xf32>
    %28 = stablehlo.abs %2#0 : tensor<?x31xf32>
    %cst = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %29 = stablehlo.dynamic_broadcast_in_dim %cst, %12, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x31xf32>
    %30 = stablehlo.compare EQ, %28, %29 : (tensor<?x31xf32>, tensor<?x31xf32>) -> tensor<?x31xi1>
    %31 = stablehlo.abs %2#1 : tensor<?x31xf32>
    %32 = stablehlo.compare EQ, %31, %29 : (tensor<?x31xf32>, tensor<?x31xf32>) -> tensor<?x31xi1>
    %33 = stablehlo.or %30, %32 : tensor<?x31xi1>
    %34 = stablehlo.multiply %23, %23 : tensor<?x31xf32>
    %35 = stablehlo.multiply %27, %27 : tensor<?x31xf32>
    %36 = stablehlo.add %34, %35 : tensor<?x31xf32>
    %37 = stablehlo.sqrt %36 : tensor<?x31xf32>
    %38 = stablehlo.shift_left %18, %13 : tensor<?x31xi32>
    %39 = stablehlo.bitcast_convert %38 : (tensor<?x31xi32>) -> tensor<?x31xf32>
    %40 = stablehlo.multiply %37, %39 : tensor<?x31xf32>
    %41 = stablehlo.select %33, %29, %40 : tensor<?x31xi1>, tensor<?x31xf32>
    return %41 : tensor<?x31xf32>
  }
}

module @jit_loss attributes {disc.passes_left = ["cse", "forward-carried", "expand-windows", "resolve-shapes", "simplify", "lay-out-images", "fold-transposes", "lift-transposes", "hoist-invariants", "hoist-projections", "cse", "sink-into-branches", "drop-barriers", "sink-constants", "sink-views", "stack-results", "broadcast-splats", "plan-fusion", "share-kernels", "place-scalars", "plan-buffers"], jax.uses_shape_polymorphism = true} {
  func.func public @main(%arg0: tensor<?x20xf32> {disc.name = "x", disc.shape = ["b", "20"]}, %arg1: tensor<20x?xf32> {disc.name = "w", disc.shape = ["20", "h"]}, %arg2: tensor<?x10xf32> {disc.name = "u", disc.shape = ["h", "10"]}, %arg3: tensor<?x10xf32> {disc.name = "y", disc.shape = ["b", "10"]}) -> (tensor<20x?xf32> {jax.result_info = "result[0]"}, tensor<?x10xf32> {jax.result_info = "result[1]"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x20xf32>) -> tensor<i32>
    %1 = stablehlo.get_dimension_size %arg1, dim = 1 : (tensor<20x?xf32>) -> tensor<i32>
    %2 = stablehlo.get_dimension_size %arg2, dim = 0 : (tensor<?x10xf32>) -> tensor<i32>
    %3 = stablehlo.get_dimension_size %arg3, dim = 0 : (tensor<?x10xf32>) -> tensor<i32>
    %4 = stablehlo.compare GE, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%4, %0) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'b'. Using the following polymorphic shapes specifications: args[0].shape = (b, 20),args[1].shape = (20, h),args[2].shape = (h, 10),args[3].shape = (b, 10). Obtained dimension variables: 'b' = {0} from specification 'b' for dimension args[0].shape[0] (= {0}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
    %5 = stablehlo.compare GE, %1, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%5, %0, %1) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'h'. Using the following polymorphic shapes specifications: args[0].shape = (b, 20),args[1].shape = (20, h),args[2].shape = (h, 10),args[3].shape = (b, 10). Obtained dimension variables: 'b' = {0} from specification 'b' for dimension args[0].shape[0] (= {0}), 'h' = {1} from specification 'h' for dimension args[1].shape[1] (= {1}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
    %6 = stablehlo.compare EQ, %2, %1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%6, %2, %1, %0) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Found inconsistency between dimension size args[2].shape[0] (= {0}) and the specification 'h' (= {1}). Using the following polymorphic shapes specifications: args[0].shape = (b, 20),args[1].shape = (20, h),args[2].shape = (h, 10),args[3].shape = (b, 10). Obtained dimension variables: 'b' = {2} from specification 'b' for dimension args[0].shape[0] (= {2}), 'h' = {1} from specification 'h' for dimension args[1].shape[1] (= {1}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %7 = stablehlo.compare EQ, %3, %0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%7, %3, %0, %1) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Found inconsistency between dimension size args[3].shape[0] (= {0}) and the specification 'b' (= {1}). Using the following polymorphic shapes specifications: args[0].shape = (b, 20),args[1].shape = (20, h),args[2].shape = (h, 10),args[3].shape = (b, 10). Obtained dimension variables: 'b' = {1} from specification 'b' for dimension args[0].shape[0] (= {1}), 'h' = {2} from specification 'h' for dimension args[1].shape[1] (= {2}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %c_0 = stablehlo.constant dense<10> : tensor<1xi32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %8 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<?x20xf32>, tensor<20x?xf32>) -> tensor<?x?xf32>
    %9 = stablehlo.tanh %8 : tensor<?x?xf32>
    %10 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
    %11 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
    %12 = stablehlo.concatenate %10, %11, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %13 = stablehlo.dynamic_broadcast_in_dim %cst, %12, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x?xf32>
    %14 = stablehlo.subtract %13, %9 : tensor<?x?xf32>
    %15 = stablehlo.dot_general %9, %arg2, contracting_dims = [1] x [0] : (tensor<?x?xf32>, tensor<?x10xf32>) -> tensor<?x10xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %c_2 = stablehlo.constant dense<1> : tensor<1xi32>
    %cst_3 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %16 = stablehlo.reduce(%15 init: %cst_3) applies stablehlo.maximum across dimensions = [1] : (tensor<?x10xf32>, tensor<f32>) -> tensor<?xf32>
    %17 = stablehlo.dynamic_broadcast_in_dim %cst_3, %10, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
    %18 = stablehlo.maximum %17, %16 : tensor<?xf32>
    %19 = stablehlo.concatenate %10, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %20 = stablehlo.dynamic_broadcast_in_dim %18, %19, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x1xf32>
    %21 = stablehlo.concatenate %10, %c_0, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %22 = stablehlo.dynamic_broadcast_in_dim %20, %21, dims = [0, 1] : (tensor<?x1xf32>, tensor<2xi32>) -> tensor<?x10xf32>
    %23 = stablehlo.subtract %15, %22 : tensor<?x10xf32>
    %24 = stablehlo.exponential %23 : tensor<?x10xf32>
    %25 = stablehlo.reduce(%24 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<?x10xf32>, tensor<f32>) -> tensor<?xf32>
    %26 = stablehlo.dynamic_broadcast_in_dim %25, %19, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x1xf32>
    %27 = stablehlo.convert %0 : (tensor<i32>) -> tensor<f32>
    %28 = stablehlo.negate %cst : tensor<f32>
    %29 = stablehlo.divide %28, %27 : tensor<f32>
    %30 = stablehlo.dynamic_broadcast_in_dim %29, %10, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
    %31 = stablehlo.dynamic_broadcast_in_dim %30, %21, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x10xf32>
    %32 = stablehlo.multiply %31, %arg3 : tensor<?x10xf32>
    %33 = stablehlo.negate %32 : tensor<?x10xf32>
    %34 = stablehlo.reduce(%33 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<?x10xf32>, tensor<f32>) -> tensor<?xf32>
    %35 = stablehlo.dynamic_reshape %34, %19 : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x1xf32>
    %36 = stablehlo.divide %35, %26 : tensor<?x1xf32>
    %37 = stablehlo.reduce(%36 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<?x1xf32>, tensor<f32>) -> tensor<?xf32>
    %38 = stablehlo.dynamic_broadcast_in_dim %37, %21, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x10xf32>
    %39 = stablehlo.multiply %38, %24 : tensor<?x10xf32>
    %40 = stablehlo.add %32, %39 : tensor<?x10xf32>
    %41 = stablehlo.dot_general %40, %9, contracting_dims = [0] x [0] : (tensor<?x10xf32>, tensor<?x?xf32>) -> tensor<10x?xf32>
    %42 = stablehlo.transpose %41, dims = [1, 0] : (tensor<10x?xf32>) -> tensor<?x10xf32>
    %43 = stablehlo.dot_general %40, %arg2, contracting_dims = [1] x [1] : (tensor<?x10xf32>, tensor<?x10xf32>) -> tensor<?x?xf32>
    %44 = stablehlo.multiply %43, %14 : tensor<?x?xf32>
    %45 = stablehlo.multiply %44, %9 : tensor<?x?xf32>
    %46 = stablehlo.add %44, %45 : tensor<?x?xf32>
    %47 = stablehlo.dot_general %46, %arg0, contracting_dims = [0] x [0] : (tensor<?x?xf32>, tensor<?x20xf32>) -> tensor<?x20xf32>
    %48 = stablehlo.transpose %47, dims = [1, 0] : (tensor<?x20xf32>) -> tensor<20x?xf32>
    return %48, %42 : tensor<20x?xf32>, tensor<?x10xf32>
  }
}

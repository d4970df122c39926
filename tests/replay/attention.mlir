module @jit__attention attributes {disc.passes_left = ["cse", "forward-carried", "expand-windows", "resolve-shapes", "simplify", "lay-out-images", "fold-transposes", "lift-transposes", "hoist-invariants", "hoist-projections", "cse", "sink-into-branches", "drop-barriers", "sink-constants", "sink-views", "stack-results", "broadcast-splats", "plan-fusion", "share-kernels", "place-scalars", "plan-buffers"], jax.uses_shape_polymorphism = true} {
  func.func public @main(%arg0: tensor<?x?x?x64xbf16> {disc.name = "q", disc.shape = ["b", "t", "h", "64"]}, %arg1: tensor<?x?x?x64xbf16> {disc.name = "k", disc.shape = ["b", "s", "h", "64"]}, %arg2: tensor<?x?x?x64xbf16> {disc.name = "v", disc.shape = ["b", "s", "h", "64"]}) -> (tensor<?x?x?x64xbf16> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x?x?x64xbf16>) -> tensor<i32>
    %1 = stablehlo.get_dimension_size %arg0, dim = 1 : (tensor<?x?x?x64xbf16>) -> tensor<i32>
    %2 = stablehlo.get_dimension_size %arg0, dim = 2 : (tensor<?x?x?x64xbf16>) -> tensor<i32>
    %3 = stablehlo.get_dimension_size %arg1, dim = 0 : (tensor<?x?x?x64xbf16>) -> tensor<i32>
    %4 = stablehlo.get_dimension_size %arg1, dim = 1 : (tensor<?x?x?x64xbf16>) -> tensor<i32>
    %5 = stablehlo.get_dimension_size %arg1, dim = 2 : (tensor<?x?x?x64xbf16>) -> tensor<i32>
    %6 = stablehlo.get_dimension_size %arg2, dim = 0 : (tensor<?x?x?x64xbf16>) -> tensor<i32>
    %7 = stablehlo.get_dimension_size %arg2, dim = 1 : (tensor<?x?x?x64xbf16>) -> tensor<i32>
    %8 = stablehlo.get_dimension_size %arg2, dim = 2 : (tensor<?x?x?x64xbf16>) -> tensor<i32>
    %9 = stablehlo.compare GE, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%9, %0) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'b'. Using the following polymorphic shapes specifications: args[0].shape = (b, t, h, 64),args[1].shape = (b, s, h, 64),args[2].shape = (b, s, h, 64). Obtained dimension variables: 'b' = {0} from specification 'b' for dimension args[0].shape[0] (= {0}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
    %10 = stablehlo.compare GE, %1, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%10, %0, %1) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 't'. Using the following polymorphic shapes specifications: args[0].shape = (b, t, h, 64),args[1].shape = (b, s, h, 64),args[2].shape = (b, s, h, 64). Obtained dimension variables: 'b' = {0} from specification 'b' for dimension args[0].shape[0] (= {0}), 't' = {1} from specification 't' for dimension args[0].shape[1] (= {1}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
    %11 = stablehlo.compare GE, %2, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%11, %0, %1, %2) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'h'. Using the following polymorphic shapes specifications: args[0].shape = (b, t, h, 64),args[1].shape = (b, s, h, 64),args[2].shape = (b, s, h, 64). Obtained dimension variables: 'b' = {0} from specification 'b' for dimension args[0].shape[0] (= {0}), 't' = {1} from specification 't' for dimension args[0].shape[1] (= {1}), 'h' = {2} from specification 'h' for dimension args[0].shape[2] (= {2}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %12 = stablehlo.compare EQ, %3, %0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%12, %3, %0, %1, %2) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Found inconsistency between dimension size args[1].shape[0] (= {0}) and the specification 'b' (= {1}). Using the following polymorphic shapes specifications: args[0].shape = (b, t, h, 64),args[1].shape = (b, s, h, 64),args[2].shape = (b, s, h, 64). Obtained dimension variables: 'b' = {1} from specification 'b' for dimension args[0].shape[0] (= {1}), 't' = {2} from specification 't' for dimension args[0].shape[1] (= {2}), 'h' = {3} from specification 'h' for dimension args[0].shape[2] (= {3}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %13 = stablehlo.compare GE, %4, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%13, %0, %1, %2, %4) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 's'. Using the following polymorphic shapes specifications: args[0].shape = (b, t, h, 64),args[1].shape = (b, s, h, 64),args[2].shape = (b, s, h, 64). Obtained dimension variables: 'b' = {0} from specification 'b' for dimension args[0].shape[0] (= {0}), 't' = {1} from specification 't' for dimension args[0].shape[1] (= {1}), 'h' = {2} from specification 'h' for dimension args[0].shape[2] (= {2}), 's' = {3} from specification 's' for dimension args[1].shape[1] (= {3}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %14 = stablehlo.compare EQ, %5, %2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%14, %5, %2, %0, %1, %4) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Found inconsistency between dimension size args[1].shape[2] (= {0}) and the specification 'h' (= {1}). Using the following polymorphic shapes specifications: args[0].shape = (b, t, h, 64),args[1].shape = (b, s, h, 64),args[2].shape = (b, s, h, 64). Obtained dimension variables: 'b' = {2} from specification 'b' for dimension args[0].shape[0] (= {2}), 't' = {3} from specification 't' for dimension args[0].shape[1] (= {3}), 'h' = {1} from specification 'h' for dimension args[0].shape[2] (= {1}), 's' = {4} from specification 's' for dimension args[1].shape[1] (= {4}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %15 = stablehlo.compare EQ, %6, %0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%15, %6, %0, %1, %2, %4) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Found inconsistency between dimension size args[2].shape[0] (= {0}) and the specification 'b' (= {1}). Using the following polymorphic shapes specifications: args[0].shape = (b, t, h, 64),args[1].shape = (b, s, h, 64),args[2].shape = (b, s, h, 64). Obtained dimension variables: 'b' = {1} from specification 'b' for dimension args[0].shape[0] (= {1}), 't' = {2} from specification 't' for dimension args[0].shape[1] (= {2}), 'h' = {3} from specification 'h' for dimension args[0].shape[2] (= {3}), 's' = {4} from specification 's' for dimension args[1].shape[1] (= {4}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %16 = stablehlo.compare EQ, %7, %4, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%16, %7, %4, %0, %1, %2) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Found inconsistency between dimension size args[2].shape[1] (= {0}) and the specification 's' (= {1}). Using the following polymorphic shapes specifications: args[0].shape = (b, t, h, 64),args[1].shape = (b, s, h, 64),args[2].shape = (b, s, h, 64). Obtained dimension variables: 'b' = {2} from specification 'b' for dimension args[0].shape[0] (= {2}), 't' = {3} from specification 't' for dimension args[0].shape[1] (= {3}), 'h' = {4} from specification 'h' for dimension args[0].shape[2] (= {4}), 's' = {1} from specification 's' for dimension args[1].shape[1] (= {1}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %17 = stablehlo.compare EQ, %8, %2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%17, %8, %2, %0, %1, %4) {api_version = 2 : i32, error_message = "Input shapes do not match the polymorphic shapes specification. Found inconsistency between dimension size args[2].shape[2] (= {0}) and the specification 'h' (= {1}). Using the following polymorphic shapes specifications: args[0].shape = (b, t, h, 64),args[1].shape = (b, s, h, 64),args[2].shape = (b, s, h, 64). Obtained dimension variables: 'b' = {2} from specification 'b' for dimension args[0].shape[0] (= {2}), 't' = {3} from specification 't' for dimension args[0].shape[1] (= {3}), 'h' = {1} from specification 'h' for dimension args[0].shape[2] (= {1}), 's' = {4} from specification 's' for dimension args[1].shape[1] (= {4}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details.", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %cst_1 = stablehlo.constant dense<-1.000000e+30> : tensor<f32>
    %c_2 = stablehlo.constant dense<1> : tensor<1xi32>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %cst_4 = stablehlo.constant dense<1.250000e-01> : tensor<f32>
    %18 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>) -> tensor<?x?x?x?xf32>
    %19 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
    %20 = stablehlo.reshape %2 : (tensor<i32>) -> tensor<1xi32>
    %21 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
    %22 = stablehlo.reshape %4 : (tensor<i32>) -> tensor<1xi32>
    %23 = stablehlo.concatenate %19, %20, %21, %22, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %24 = stablehlo.dynamic_broadcast_in_dim %cst_4, %23, dims = [] : (tensor<f32>, tensor<4xi32>) -> tensor<?x?x?x?xf32>
    %25 = stablehlo.multiply %18, %24 : tensor<?x?x?x?xf32>
    %26 = stablehlo.dynamic_iota %21, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
    %27 = stablehlo.dynamic_broadcast_in_dim %c, %21, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
    %28 = stablehlo.multiply %27, %26 : tensor<?xi32>
    %29 = stablehlo.dynamic_broadcast_in_dim %c_3, %21, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
    %30 = stablehlo.add %29, %28 : tensor<?xi32>
    %31 = stablehlo.concatenate %21, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %32 = stablehlo.dynamic_broadcast_in_dim %30, %31, dims = [0] : (tensor<?xi32>, tensor<2xi32>) -> tensor<?x1xi32>
    %33 = stablehlo.dynamic_iota %22, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
    %34 = stablehlo.dynamic_broadcast_in_dim %c, %22, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
    %35 = stablehlo.multiply %34, %33 : tensor<?xi32>
    %36 = stablehlo.dynamic_broadcast_in_dim %c_3, %22, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
    %37 = stablehlo.add %36, %35 : tensor<?xi32>
    %38 = stablehlo.concatenate %c_2, %22, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %39 = stablehlo.dynamic_broadcast_in_dim %37, %38, dims = [1] : (tensor<?xi32>, tensor<2xi32>) -> tensor<1x?xi32>
    %40 = stablehlo.concatenate %21, %22, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %41 = stablehlo.dynamic_broadcast_in_dim %32, %40, dims = [0, 1] : (tensor<?x1xi32>, tensor<2xi32>) -> tensor<?x?xi32>
    %42 = stablehlo.dynamic_broadcast_in_dim %39, %40, dims = [0, 1] : (tensor<1x?xi32>, tensor<2xi32>) -> tensor<?x?xi32>
    %43 = stablehlo.compare GE, %41, %42, SIGNED : (tensor<?x?xi32>, tensor<?x?xi32>) -> tensor<?x?xi1>
    %44 = stablehlo.convert %cst_1 : tensor<f32>
    %45 = stablehlo.dynamic_broadcast_in_dim %43, %23, dims = [2, 3] : (tensor<?x?xi1>, tensor<4xi32>) -> tensor<?x?x?x?xi1>
    %46 = stablehlo.dynamic_broadcast_in_dim %44, %23, dims = [] : (tensor<f32>, tensor<4xi32>) -> tensor<?x?x?x?xf32>
    %47 = stablehlo.select %45, %25, %46 : tensor<?x?x?x?xi1>, tensor<?x?x?x?xf32>
    %48 = stablehlo.reduce(%47 init: %cst_0) applies stablehlo.maximum across dimensions = [3] : (tensor<?x?x?x?xf32>, tensor<f32>) -> tensor<?x?x?xf32>
    %49 = stablehlo.concatenate %19, %20, %21, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %50 = stablehlo.dynamic_broadcast_in_dim %cst_0, %49, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x?xf32>
    %51 = stablehlo.maximum %50, %48 : tensor<?x?x?xf32>
    %52 = stablehlo.concatenate %19, %20, %21, %c_2, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %53 = stablehlo.dynamic_broadcast_in_dim %51, %52, dims = [0, 1, 2] : (tensor<?x?x?xf32>, tensor<4xi32>) -> tensor<?x?x?x1xf32>
    %54 = stablehlo.dynamic_broadcast_in_dim %53, %23, dims = [0, 1, 2, 3] : (tensor<?x?x?x1xf32>, tensor<4xi32>) -> tensor<?x?x?x?xf32>
    %55 = stablehlo.subtract %47, %54 : tensor<?x?x?x?xf32>
    %56 = stablehlo.exponential %55 : tensor<?x?x?x?xf32>
    %57 = stablehlo.reduce(%56 init: %cst) applies stablehlo.add across dimensions = [3] : (tensor<?x?x?x?xf32>, tensor<f32>) -> tensor<?x?x?xf32>
    %58 = stablehlo.dynamic_broadcast_in_dim %57, %52, dims = [0, 1, 2] : (tensor<?x?x?xf32>, tensor<4xi32>) -> tensor<?x?x?x1xf32>
    %59 = stablehlo.dynamic_broadcast_in_dim %58, %23, dims = [0, 1, 2, 3] : (tensor<?x?x?x1xf32>, tensor<4xi32>) -> tensor<?x?x?x?xf32>
    %60 = stablehlo.divide %56, %59 : tensor<?x?x?x?xf32>
    %61 = stablehlo.convert %60 : (tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xbf16>
    %62 = stablehlo.dot_general %arg2, %61, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3] : (tensor<?x?x?x64xbf16>, tensor<?x?x?x?xbf16>) -> tensor<?x?x64x?xbf16>
    %63 = stablehlo.transpose %62, dims = [0, 3, 1, 2] : (tensor<?x?x64x?xbf16>) -> tensor<?x?x?x64xbf16>
    return %63 : tensor<?x?x?x64xbf16>
  }
}

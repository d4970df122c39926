// RUN: disc-opt %s --pass-pipeline=fold-reductions --split-input-file | expect

// The initial value takes part: 0.0 + -0.0 is 0.0.
func.func @main(%x: tensor<?x1xf32> {disc.shape = ["b", "1"]}) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x1xf32>, tensor<f32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x1xf32> {disc.shape = ["b", "1"]}) -> tensor<?xf32> {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %0 = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi64>
//       %1 = stablehlo.dynamic_reshape %arg0, %0 : (tensor<?x1xf32>, tensor<1xi64>) -> tensor<?xf32>
//       %2 = stablehlo.dynamic_broadcast_in_dim %cst, %0, dims = [] : (tensor<f32>, tensor<1xi64>) -> tensor<?xf32>
//       %3 = stablehlo.add %2, %1 : tensor<?xf32>
//       return %3 : tensor<?xf32>
//     }
//   }

// -----

// To a scalar, over two dimensions.
func.func @main(%x: tensor<1x1xf32>, %low: tensor<f32>) -> tensor<f32> {
  %y = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<1x1xf32>, tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<1x1xf32>, %arg1: tensor<f32>) -> tensor<f32> {
//       %0 = stablehlo.reshape %arg0 : (tensor<1x1xf32>) -> tensor<f32>
//       %1 = stablehlo.maximum %arg1, %0 : tensor<f32>
//       return %1 : tensor<f32>
//     }
//   }

// -----

// A size that may be more than 1 stays, also beside one that is 1.
func.func @main(%x: tensor<?x1xf32> {disc.shape = ["b", "1"]}) -> (tensor<1xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x1xf32>, tensor<f32>) -> tensor<1xf32>
  %z = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<?x1xf32>, tensor<f32>) -> tensor<f32>
  return %y, %z : tensor<1xf32>, tensor<f32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x1xf32> {disc.shape = ["b", "1"]}) -> (tensor<1xf32>, tensor<f32>) {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<?x1xf32>, tensor<f32>) -> tensor<1xf32>
//       %1 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<?x1xf32>, tensor<f32>) -> tensor<f32>
//       return %0, %1 : tensor<1xf32>, tensor<f32>
//     }
//   }

// -----

// Over no dimension: the initial value takes part here, too.
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}, %y: tensor<f32>) -> (tensor<?xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [] : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
  %b = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [] : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %a, %b : tensor<?xf32>, tensor<f32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["b"]}, %arg1: tensor<f32>) -> (tensor<?xf32>, tensor<f32>) {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %0 = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi64>
//       %1 = stablehlo.dynamic_broadcast_in_dim %cst, %0, dims = [] : (tensor<f32>, tensor<1xi64>) -> tensor<?xf32>
//       %2 = stablehlo.add %1, %arg0 : tensor<?xf32>
//       %3 = stablehlo.add %cst, %arg1 : tensor<f32>
//       return %2, %3 : tensor<?xf32>, tensor<f32>
//     }
//   }

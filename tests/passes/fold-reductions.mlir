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

// -----

// Products of one term: outer, of a batch, by a scalar, of a dimension of size 1.
func.func @main(%u: tensor<?xf32> {disc.shape = ["m"]}, %v: tensor<3xf32>, %s: tensor<f32>,
                %a: tensor<4x?x1xf32> {disc.shape = ["4", "m", "1"]}, %b: tensor<4x3x1xf32>)
    -> (tensor<?x3xf32>, tensor<3xf32>, tensor<4x?x3xf32>) {
  %p = stablehlo.dot_general %u, %v, contracting_dims = [] x [] : (tensor<?xf32>, tensor<3xf32>) -> tensor<?x3xf32>
  %q = stablehlo.dot_general %s, %v, contracting_dims = [] x [] : (tensor<f32>, tensor<3xf32>) -> tensor<3xf32>
  %r = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<4x?x1xf32>, tensor<4x3x1xf32>) -> tensor<4x?x3xf32>
  return %p, %q, %r : tensor<?x3xf32>, tensor<3xf32>, tensor<4x?x3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["m"]}, %arg1: tensor<3xf32>, %arg2: tensor<f32>, %arg3: tensor<4x?x1xf32> {disc.shape = ["4", "m", "1"]}, %arg4: tensor<4x3x1xf32>) -> (tensor<?x3xf32>, tensor<3xf32>, tensor<4x?x3xf32>) {
//       %0 = "disc.shape"() {dims = ["m", "3"]} : () -> tensor<2xi64>
//       %1 = stablehlo.dynamic_broadcast_in_dim %arg0, %0, dims = [0] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x3xf32>
//       %2 = stablehlo.dynamic_broadcast_in_dim %arg1, %0, dims = [1] : (tensor<3xf32>, tensor<2xi64>) -> tensor<?x3xf32>
//       %3 = stablehlo.multiply %1, %2 : tensor<?x3xf32>
//       %4 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<3xf32>
//       %5 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<3xf32>) -> tensor<3xf32>
//       %6 = stablehlo.multiply %4, %5 : tensor<3xf32>
//       %7 = "disc.shape"() {dims = ["4", "m"]} : () -> tensor<2xi64>
//       %8 = stablehlo.dynamic_reshape %arg3, %7 : (tensor<4x?x1xf32>, tensor<2xi64>) -> tensor<4x?xf32>
//       %9 = "disc.shape"() {dims = ["4", "m", "3"]} : () -> tensor<3xi64>
//       %10 = stablehlo.dynamic_broadcast_in_dim %8, %9, dims = [0, 1] : (tensor<4x?xf32>, tensor<3xi64>) -> tensor<4x?x3xf32>
//       %11 = stablehlo.reshape %arg4 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
//       %12 = stablehlo.dynamic_broadcast_in_dim %11, %9, dims = [0, 2] : (tensor<4x3xf32>, tensor<3xi64>) -> tensor<4x?x3xf32>
//       %13 = stablehlo.multiply %10, %12 : tensor<4x?x3xf32>
//       return %3, %6, %13 : tensor<?x3xf32>, tensor<3xf32>, tensor<4x?x3xf32>
//     }
//   }

// -----

// Sums in another type, and of a size that may be more than 1, stay.
func.func @main(%a: tensor<2x1xbf16>, %b: tensor<1x3xbf16>, %c: tensor<?xf32> {disc.shape = ["k"]})
    -> (tensor<2x3xf32>, tensor<f32>) {
  %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x1xbf16>, tensor<1x3xbf16>) -> tensor<2x3xf32>
  %q = stablehlo.dot_general %c, %c, contracting_dims = [0] x [0] : (tensor<?xf32>, tensor<?xf32>) -> tensor<f32>
  return %p, %q : tensor<2x3xf32>, tensor<f32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<2x1xbf16>, %arg1: tensor<1x3xbf16>, %arg2: tensor<?xf32> {disc.shape = ["k"]}) -> (tensor<2x3xf32>, tensor<f32>) {
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<2x1xbf16>, tensor<1x3xbf16>) -> tensor<2x3xf32>
//       %1 = stablehlo.dot_general %arg2, %arg2, contracting_dims = [0] x [0] : (tensor<?xf32>, tensor<?xf32>) -> tensor<f32>
//       return %0, %1 : tensor<2x3xf32>, tensor<f32>
//     }
//   }

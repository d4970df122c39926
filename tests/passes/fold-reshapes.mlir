// RUN: disc-opt %s --pass-pipeline=fold-reshapes --split-input-file | expect

func.func @main(%x: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<?x4xf32>, tensor<?x2x2xf32>) {
  %s = "disc.shape"() {dims = ["4*b"]} : () -> tensor<1xi32>
  %t = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
  %u = "disc.shape"() {dims = ["b", "2", "2"]} : () -> tensor<3xi32>
  %1 = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<1xi32>) -> tensor<?xf32>
  %2 = stablehlo.dynamic_reshape %1, %t : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  %3 = stablehlo.dynamic_reshape %2, %u : (tensor<?x4xf32>, tensor<3xi32>) -> tensor<?x2x2xf32>
  return %2, %3 : tensor<?x4xf32>, tensor<?x2x2xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<?x4xf32>, tensor<?x2x2xf32>) {
//       %0 = "disc.shape"() {dims = ["b", "2", "2"]} : () -> tensor<3xi32>
//       %1 = stablehlo.dynamic_reshape %arg0, %0 : (tensor<?x4xf32>, tensor<3xi32>) -> tensor<?x2x2xf32>
//       return %arg0, %1 : tensor<?x4xf32>, tensor<?x2x2xf32>
//     }
//   }

// -----

func.func @main(%x: tensor<?x4xf32> {disc.shape = ["b", "4"]}, %v: tensor<f32>) -> (tensor<2x3xf32>, tensor<?xf32>) {
  %c = stablehlo.constant dense<2.0> : tensor<6xf32>
  %s = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
  %t = "disc.shape"() {dims = ["4*b"]} : () -> tensor<1xi32>
  %1 = stablehlo.reshape %c : (tensor<6xf32>) -> tensor<2x3xf32>
  %2 = stablehlo.dynamic_broadcast_in_dim %v, %s, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x4xf32>
  %3 = stablehlo.dynamic_reshape %2, %t : (tensor<?x4xf32>, tensor<1xi32>) -> tensor<?xf32>
  return %1, %3 : tensor<2x3xf32>, tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["b", "4"]}, %arg1: tensor<f32>) -> (tensor<2x3xf32>, tensor<?xf32>) {
//       %cst = stablehlo.constant dense<2.000000e+00> : tensor<2x3xf32>
//       %0 = "disc.shape"() {dims = ["4*b"]} : () -> tensor<1xi64>
//       %1 = stablehlo.dynamic_broadcast_in_dim %arg1, %0, dims = [] : (tensor<f32>, tensor<1xi64>) -> tensor<?xf32>
//       return %cst, %1 : tensor<2x3xf32>, tensor<?xf32>
//     }
//   }

// -----

// Refused: b and c are not proved equal.
func.func @main(%x: tensor<?x?xf32> {disc.shape = ["b", "c"]}) -> tensor<?x?xf32> {
  %s = "disc.shape"() {dims = ["c", "b"]} : () -> tensor<2xi32>
  %1 = stablehlo.dynamic_reshape %x, %s : (tensor<?x?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %1 : tensor<?x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?xf32> {disc.shape = ["b", "c"]}) -> tensor<?x?xf32> {
//       %0 = "disc.shape"() {dims = ["c", "b"]} : () -> tensor<2xi32>
//       %1 = stablehlo.dynamic_reshape %arg0, %0 : (tensor<?x?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
//       return %1 : tensor<?x?xf32>
//     }
//   }

// -----

// A product of matrices of rank 2 has the dimensions that were merged before it, behind the bias, too.
func.func @main(%x: tensor<?x?x8xf32> {disc.shape = ["b", "t", "8"]}, %w: tensor<8x16xf32>, %c: tensor<16xf32>) -> tensor<?x?x16xf32> {
  %s = "disc.shape"() {dims = ["b*t", "8"]} : () -> tensor<2xi64>
  %1 = stablehlo.dynamic_reshape %x, %s : (tensor<?x?x8xf32>, tensor<2xi64>) -> tensor<?x8xf32>
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  %u = "disc.shape"() {dims = ["b*t", "16"]} : () -> tensor<2xi64>
  %3 = stablehlo.dynamic_broadcast_in_dim %c, %u, dims = [1] : (tensor<16xf32>, tensor<2xi64>) -> tensor<?x16xf32>
  %4 = stablehlo.add %2, %3 : tensor<?x16xf32>
  %v = "disc.shape"() {dims = ["b", "t", "16"]} : () -> tensor<3xi64>
  %5 = stablehlo.dynamic_reshape %4, %v : (tensor<?x16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
  return %5 : tensor<?x?x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?x8xf32> {disc.shape = ["b", "t", "8"]}, %arg1: tensor<8x16xf32>, %arg2: tensor<16xf32>) -> tensor<?x?x16xf32> {
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [0] : (tensor<?x?x8xf32>, tensor<8x16xf32>) -> tensor<?x?x16xf32>
//       %1 = "disc.shape"() {dims = ["b", "t", "16"]} : () -> tensor<3xi64>
//       %2 = stablehlo.dynamic_broadcast_in_dim %arg2, %1, dims = [2] : (tensor<16xf32>, tensor<3xi64>) -> tensor<?x?x16xf32>
//       %3 = stablehlo.add %0, %2 : tensor<?x?x16xf32>
//       return %3 : tensor<?x?x16xf32>
//     }
//   }

// -----

// Batch dimensions are split as far as both sides are made of the same sizes; keys stay whole.
func.func @main(%q: tensor<?x4x?x8xf32> {disc.shape = ["b", "4", "t", "8"]}, %k: tensor<?x2x2x3x?x8xf32> {disc.shape = ["b", "2", "2", "3", "s", "8"]}) -> tensor<?x?x?xf32> {
  %s = "disc.shape"() {dims = ["4*b", "t", "8"]} : () -> tensor<3xi64>
  %1 = stablehlo.dynamic_reshape %q, %s : (tensor<?x4x?x8xf32>, tensor<3xi64>) -> tensor<?x?x8xf32>
  %u = "disc.shape"() {dims = ["4*b", "3*s", "8"]} : () -> tensor<3xi64>
  %2 = stablehlo.dynamic_reshape %k, %u : (tensor<?x2x2x3x?x8xf32>, tensor<3xi64>) -> tensor<?x?x8xf32>
  %3 = stablehlo.dot_general %1, %2, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<?x?x8xf32>, tensor<?x?x8xf32>) -> tensor<?x?x?xf32>
  return %3 : tensor<?x?x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4x?x8xf32> {disc.shape = ["b", "4", "t", "8"]}, %arg1: tensor<?x2x2x3x?x8xf32> {disc.shape = ["b", "2", "2", "3", "s", "8"]}) -> tensor<?x?x?xf32> {
//       %0 = "disc.shape"() {dims = ["b", "4", "3*s", "8"]} : () -> tensor<4xi64>
//       %1 = stablehlo.dynamic_reshape %arg1, %0 : (tensor<?x2x2x3x?x8xf32>, tensor<4xi64>) -> tensor<?x4x?x8xf32>
//       %2 = stablehlo.dot_general %arg0, %1, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3] : (tensor<?x4x?x8xf32>, tensor<?x4x?x8xf32>) -> tensor<?x4x?x?xf32>
//       %3 = "disc.shape"() {dims = ["4*b", "t", "3*s"]} : () -> tensor<3xi64>
//       %4 = stablehlo.dynamic_reshape %2, %3 : (tensor<?x4x?x?xf32>, tensor<3xi64>) -> tensor<?x?x?xf32>
//       return %4 : tensor<?x?x?xf32>
//     }
//   }

// -----

// What is read twice stays behind the reshape, with the sums of its rows.
func.func @main(%x: tensor<?x4x?xf32> {disc.shape = ["b", "4", "t"]}) -> tensor<?x?xf32> {
  %s = "disc.shape"() {dims = ["4*b", "t"]} : () -> tensor<2xi64>
  %1 = stablehlo.dynamic_reshape %x, %s : (tensor<?x4x?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  %z = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
  %3 = stablehlo.dynamic_broadcast_in_dim %2, %s, dims = [0] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  %4 = stablehlo.divide %1, %3 : tensor<?x?xf32>
  return %4 : tensor<?x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4x?xf32> {disc.shape = ["b", "4", "t"]}) -> tensor<?x?xf32> {
//       %0 = "disc.shape"() {dims = ["4*b", "t"]} : () -> tensor<2xi64>
//       %1 = stablehlo.dynamic_reshape %arg0, %0 : (tensor<?x4x?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
//       %3 = stablehlo.dynamic_broadcast_in_dim %2, %0, dims = [0] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
//       %4 = stablehlo.divide %1, %3 : tensor<?x?xf32>
//       return %4 : tensor<?x?xf32>
//     }
//   }

// -----

// A function of one value goes before any reshape.
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["n", "8"]}) -> tensor<?x2x4xf32> {
  %s = "disc.shape"() {dims = ["n", "2", "4"]} : () -> tensor<3xi64>
  %1 = stablehlo.dynamic_reshape %x, %s : (tensor<?x8xf32>, tensor<3xi64>) -> tensor<?x2x4xf32>
  %2 = chlo.erf %1 : tensor<?x2x4xf32> -> tensor<?x2x4xf32>
  %h = stablehlo.constant dense<5.000000e-01> : tensor<f32>
  %3 = stablehlo.dynamic_broadcast_in_dim %h, %s, dims = [] : (tensor<f32>, tensor<3xi64>) -> tensor<?x2x4xf32>
  %4 = stablehlo.multiply %2, %3 : tensor<?x2x4xf32>
  return %4 : tensor<?x2x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["n", "8"]}) -> tensor<?x2x4xf32> {
//       %0 = "disc.shape"() {dims = ["n", "2", "4"]} : () -> tensor<3xi64>
//       %1 = chlo.erf %arg0 : tensor<?x8xf32> -> tensor<?x8xf32>
//       %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
//       %2 = "disc.shape"() {dims = ["n", "8"]} : () -> tensor<2xi64>
//       %3 = stablehlo.dynamic_broadcast_in_dim %cst, %2, dims = [] : (tensor<f32>, tensor<2xi64>) -> tensor<?x8xf32>
//       %4 = stablehlo.multiply %1, %3 : tensor<?x8xf32>
//       %5 = stablehlo.dynamic_reshape %4, %0 : (tensor<?x8xf32>, tensor<3xi64>) -> tensor<?x2x4xf32>
//       return %5 : tensor<?x2x4xf32>
//     }
//   }

// -----

// A number that a reshape repeats: so it is written where all sizes are 1.
func.func @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?x?xf32>
    attributes {disc.constraints = ["n <= 1"]} {
  %s = "disc.shape"() {dims = ["1", "n"]} : () -> tensor<2xi64>
  %1 = stablehlo.dynamic_reshape %x, %s : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  %h = stablehlo.constant dense<5.000000e-01> : tensor<1xf32>
  %2 = stablehlo.dynamic_reshape %h, %s : (tensor<1xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  %3 = stablehlo.multiply %1, %2 : tensor<?x?xf32>
  return %3 : tensor<?x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?x?xf32> attributes {disc.constraints = ["n <= 1"]} {
//       %cst = stablehlo.constant dense<5.000000e-01> : tensor<1xf32>
//       %0 = stablehlo.multiply %arg0, %cst : (tensor<?xf32>, tensor<1xf32>) -> tensor<1xf32>
//       %1 = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
//       %2 = stablehlo.dynamic_reshape %0, %1 : (tensor<1xf32>, tensor<2xi64>) -> tensor<?x?xf32>
//       return %2 : tensor<?x?xf32>
//     }
//   }

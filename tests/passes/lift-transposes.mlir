// RUN: disc-opt %s --pass-pipeline=lift-transposes --split-input-file | expect

// Scores that are scaled, reduced and transposed, with their maximum transposed as well (`vmap`).
func.func @main(%q: tensor<?x3x8xf32> {disc.shape = ["t", "3", "8"]}, %k: tensor<?x8xf32> {disc.shape = ["s", "8"]}) -> (tensor<3x?x?xf32>, tensor<3x?xf32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
  %sizes = "disc.shape"() {dims = ["t", "3", "s"]} : () -> tensor<3xi64>
  %scale = stablehlo.dynamic_broadcast_in_dim %half, %sizes, dims = [] : (tensor<f32>, tensor<3xi64>) -> tensor<?x3x?xf32>
  %x = stablehlo.multiply %s, %scale : tensor<?x3x?xf32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [2] : (tensor<?x3x?xf32>, tensor<f32>) -> tensor<?x3xf32>
  %y = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x3x?xf32>) -> tensor<3x?x?xf32>
  %n = stablehlo.transpose %m, dims = [1, 0] : (tensor<?x3xf32>) -> tensor<3x?xf32>
  return %y, %n : tensor<3x?x?xf32>, tensor<3x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x3x8xf32> {disc.shape = ["t", "3", "8"]}, %arg1: tensor<?x8xf32> {disc.shape = ["s", "8"]}) -> (tensor<3x?x?xf32>, tensor<3x?xf32>) {
//       %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
//       %cst_0 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
//       %1 = "disc.shape"() {dims = ["t", "3", "s"]} : () -> tensor<3xi64>
//       %2 = stablehlo.transpose %0, dims = [1, 0, 2] : (tensor<?x3x?xf32>) -> tensor<3x?x?xf32>
//       %3 = "disc.shape"() {dims = ["3", "t", "s"]} : () -> tensor<3xi64>
//       %4 = stablehlo.dynamic_broadcast_in_dim %cst_0, %3, dims = [] : (tensor<f32>, tensor<3xi64>) -> tensor<3x?x?xf32>
//       %5 = stablehlo.multiply %2, %4 : tensor<3x?x?xf32>
//       %6 = stablehlo.reduce(%5 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<3x?x?xf32>, tensor<f32>) -> tensor<3x?xf32>
//       return %5, %6 : tensor<3x?x?xf32>, tensor<3x?xf32>
//     }
//   }

// -----

// A reader that wants the product as it is: nothing moves.
func.func @main(%q: tensor<?x3x8xf32> {disc.shape = ["t", "3", "8"]}, %k: tensor<?x8xf32> {disc.shape = ["s", "8"]}) -> (tensor<3x?x?xf32>, tensor<?x3x?xf32>) {
  %s = stablehlo.dot_general %q, %k, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
  %x = stablehlo.negate %s : tensor<?x3x?xf32>
  %y = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x3x?xf32>) -> tensor<3x?x?xf32>
  return %y, %x : tensor<3x?x?xf32>, tensor<?x3x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x3x8xf32> {disc.shape = ["t", "3", "8"]}, %arg1: tensor<?x8xf32> {disc.shape = ["s", "8"]}) -> (tensor<3x?x?xf32>, tensor<?x3x?xf32>) {
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
//       %1 = stablehlo.negate %0 : tensor<?x3x?xf32>
//       %2 = stablehlo.transpose %1, dims = [1, 0, 2] : (tensor<?x3x?xf32>) -> tensor<3x?x?xf32>
//       return %2, %1 : tensor<3x?x?xf32>, tensor<?x3x?xf32>
//     }
//   }

// -----

// Neither where the innermost dimension would move, nor where another array would be transposed.
func.func @main(%q: tensor<?x3x8xf32> {disc.shape = ["t", "3", "8"]}, %k: tensor<?x8xf32> {disc.shape = ["s", "8"]}, %b: tensor<?x3x?xf32> {disc.shape = ["t", "3", "s"]}) -> (tensor<?x3x?xf32>, tensor<3x?x?xf32>) {
  %s = stablehlo.dot_general %q, %k, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
  %x = stablehlo.negate %s : tensor<?x3x?xf32>
  %y = stablehlo.transpose %x, dims = [2, 1, 0] : (tensor<?x3x?xf32>) -> tensor<?x3x?xf32>
  %t = stablehlo.dot_general %q, %k, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
  %z = stablehlo.add %t, %b : tensor<?x3x?xf32>
  %v = stablehlo.transpose %z, dims = [1, 0, 2] : (tensor<?x3x?xf32>) -> tensor<3x?x?xf32>
  return %y, %v : tensor<?x3x?xf32>, tensor<3x?x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x3x8xf32> {disc.shape = ["t", "3", "8"]}, %arg1: tensor<?x8xf32> {disc.shape = ["s", "8"]}, %arg2: tensor<?x3x?xf32> {disc.shape = ["t", "3", "s"]}) -> (tensor<?x3x?xf32>, tensor<3x?x?xf32>) {
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
//       %1 = stablehlo.negate %0 : tensor<?x3x?xf32>
//       %2 = stablehlo.transpose %1, dims = [2, 1, 0] : (tensor<?x3x?xf32>) -> tensor<?x3x?xf32>
//       %3 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
//       %4 = stablehlo.add %3, %arg2 : tensor<?x3x?xf32>
//       %5 = stablehlo.transpose %4, dims = [1, 0, 2] : (tensor<?x3x?xf32>) -> tensor<3x?x?xf32>
//       return %2, %5 : tensor<?x3x?xf32>, tensor<3x?x?xf32>
//     }
//   }

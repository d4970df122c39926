// RUN: disc-opt %s --pass-pipeline=fold-slices --split-input-file | expect

// A step of columns that are stacked, of which each is read.
func.func @main(%x: tensor<?x2xf32> {disc.shape = ["n", "2"]}, %a: tensor<1x?xf32> {disc.shape = ["1", "n"]}, %b: tensor<1x?xf32> {disc.shape = ["1", "n"]}) -> (tensor<?x1xf32>, tensor<?x1xf32>) {
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %sizes = "disc.shape"() {dims = ["2", "n"]} : () -> tensor<2xi64>
  %none = stablehlo.constant dense<0> : tensor<2xi64>
  %one = "disc.shape"() {dims = ["0", "1"]} : () -> tensor<2xi64>
  %middle = "disc.shape"() {dims = ["n", "1"]} : () -> tensor<2xi64>
  %end = "disc.shape"() {dims = ["n", "2"]} : () -> tensor<2xi64>
  %ones = stablehlo.constant dense<1> : tensor<2xi64>
  %joined = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1x?xf32>, tensor<1x?xf32>) -> tensor<2x?xf32>
  %h = stablehlo.dynamic_broadcast_in_dim %half, %sizes, dims = [] : (tensor<f32>, tensor<2xi64>) -> tensor<2x?xf32>
  %scaled = stablehlo.multiply %h, %joined : tensor<2x?xf32>
  %turned = stablehlo.transpose %scaled, dims = [1, 0] : (tensor<2x?xf32>) -> tensor<?x2xf32>
  %sum = stablehlo.add %x, %turned : tensor<?x2xf32>
  %first = stablehlo.real_dynamic_slice %sum, %none, %middle, %ones : (tensor<?x2xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x1xf32>
  %second = stablehlo.real_dynamic_slice %sum, %one, %end, %ones : (tensor<?x2xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x1xf32>
  return %first, %second : tensor<?x1xf32>, tensor<?x1xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x2xf32> {disc.shape = ["n", "2"]}, %arg1: tensor<1x?xf32> {disc.shape = ["1", "n"]}, %arg2: tensor<1x?xf32> {disc.shape = ["1", "n"]}) -> (tensor<?x1xf32>, tensor<?x1xf32>) {
//       %0 = "disc.shape"() {dims = ["0", "1"]} : () -> tensor<2xi64>
//       %1 = "disc.shape"() {dims = ["n", "1"]} : () -> tensor<2xi64>
//       %2 = "disc.shape"() {dims = ["n", "2"]} : () -> tensor<2xi64>
//       %3 = "disc.shape"() {dims = ["0", "0"]} : () -> tensor<2xi64>
//       %4 = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
//       %5 = stablehlo.real_dynamic_slice %arg0, %3, %1, %4 : (tensor<?x2xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x1xf32>
//       %6 = "disc.shape"() {dims = ["n"]} : () -> tensor<1xi64>
//       %7 = stablehlo.dynamic_reshape %5, %6 : (tensor<?x1xf32>, tensor<1xi64>) -> tensor<?xf32>
//       %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
//       %8 = stablehlo.dynamic_broadcast_in_dim %cst, %6, dims = [] : (tensor<f32>, tensor<1xi64>) -> tensor<?xf32>
//       %9 = stablehlo.dynamic_reshape %arg1, %6 : (tensor<1x?xf32>, tensor<1xi64>) -> tensor<?xf32>
//       %10 = stablehlo.multiply %8, %9 : tensor<?xf32>
//       %11 = stablehlo.add %7, %10 : tensor<?xf32>
//       %12 = stablehlo.dynamic_reshape %11, %1 : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x1xf32>
//       %13 = stablehlo.real_dynamic_slice %arg0, %0, %2, %4 : (tensor<?x2xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x1xf32>
//       %14 = stablehlo.dynamic_reshape %13, %6 : (tensor<?x1xf32>, tensor<1xi64>) -> tensor<?xf32>
//       %15 = stablehlo.dynamic_reshape %arg2, %6 : (tensor<1x?xf32>, tensor<1xi64>) -> tensor<?xf32>
//       %16 = stablehlo.multiply %8, %15 : tensor<?xf32>
//       %17 = stablehlo.add %14, %16 : tensor<?xf32>
//       %18 = stablehlo.dynamic_reshape %17, %1 : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x1xf32>
//       return %12, %18 : tensor<?x1xf32>, tensor<?x1xf32>
//     }
//   }

// -----

// The second operand has both columns.
func.func @main(%a: tensor<9x1xf32>, %b: tensor<9x2xf32>) -> tensor<9x1xf32> {
  %joined = stablehlo.concatenate %a, %b, dim = 1 : (tensor<9x1xf32>, tensor<9x2xf32>) -> tensor<9x3xf32>
  %y = stablehlo.slice %joined [0:9, 2:3] : (tensor<9x3xf32>) -> tensor<9x1xf32>
  return %y : tensor<9x1xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x1xf32>, %arg1: tensor<9x2xf32>) -> tensor<9x1xf32> {
//       %0 = stablehlo.slice %arg1 [0:9, 1:2] : (tensor<9x2xf32>) -> tensor<9x1xf32>
//       %1 = stablehlo.reshape %0 : (tensor<9x1xf32>) -> tensor<9xf32>
//       %2 = stablehlo.reshape %1 : (tensor<9xf32>) -> tensor<9x1xf32>
//       return %2 : tensor<9x1xf32>
//     }
//   }

// -----

// Refused: the sum is read in whole, too; and the product is a kernel whose results are added to.
func.func @main(%a: tensor<9x1xf32>, %b: tensor<9x1xf32>, %w: tensor<1x2xf32>) -> (tensor<9x1xf32>, tensor<9x2xf32>, tensor<9x1xf32>) {
  %joined = stablehlo.concatenate %a, %b, dim = 1 : (tensor<9x1xf32>, tensor<9x1xf32>) -> tensor<9x2xf32>
  %doubled = stablehlo.add %joined, %joined : tensor<9x2xf32>
  %y = stablehlo.slice %doubled [0:9, 1:2] : (tensor<9x2xf32>) -> tensor<9x1xf32>
  %product = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<9x1xf32>, tensor<1x2xf32>) -> tensor<9x2xf32>
  %added = stablehlo.add %product, %joined : tensor<9x2xf32>
  %z = stablehlo.slice %added [0:9, 1:2] : (tensor<9x2xf32>) -> tensor<9x1xf32>
  return %y, %doubled, %z : tensor<9x1xf32>, tensor<9x2xf32>, tensor<9x1xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x1xf32>, %arg1: tensor<9x1xf32>, %arg2: tensor<1x2xf32>) -> (tensor<9x1xf32>, tensor<9x2xf32>, tensor<9x1xf32>) {
//       %0 = stablehlo.concatenate %arg0, %arg1, dim = 1 : (tensor<9x1xf32>, tensor<9x1xf32>) -> tensor<9x2xf32>
//       %1 = stablehlo.add %0, %0 : tensor<9x2xf32>
//       %2 = stablehlo.slice %1 [0:9, 1:2] : (tensor<9x2xf32>) -> tensor<9x1xf32>
//       %3 = stablehlo.dot_general %arg0, %arg2, contracting_dims = [1] x [0] : (tensor<9x1xf32>, tensor<1x2xf32>) -> tensor<9x2xf32>
//       %4 = stablehlo.add %3, %0 : tensor<9x2xf32>
//       %5 = stablehlo.slice %4 [0:9, 1:2] : (tensor<9x2xf32>) -> tensor<9x1xf32>
//       return %2, %1, %5 : tensor<9x1xf32>, tensor<9x2xf32>, tensor<9x1xf32>
//     }
//   }

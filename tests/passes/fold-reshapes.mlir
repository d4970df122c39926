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

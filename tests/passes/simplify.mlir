// RUN: disc-opt %s --pass-pipeline=simplify | expect
// Rules feed each other: the constant folds, then it is neutral, then the reshapes meet.

func.func @main(%x: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> tensor<?x4xf32> {
  %s = "disc.shape"() {dims = ["4*b"]} : () -> tensor<1xi32>
  %t = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
  %two = stablehlo.constant dense<2.0> : tensor<f32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %one = stablehlo.multiply %two, %half : tensor<f32>
  %ones = stablehlo.dynamic_broadcast_in_dim %one, %s, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %1 = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<1xi32>) -> tensor<?xf32>
  %2 = stablehlo.multiply %1, %ones : tensor<?xf32>
  %3 = stablehlo.dynamic_reshape %2, %t : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  return %3 : tensor<?x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> tensor<?x4xf32> {
//       return %arg0 : tensor<?x4xf32>
//     }
//   }

// RUN: disc-opt %s --pass-pipeline=cse | expect

func.func @main(%x: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %s = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
  %t = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
  %y = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  %z = stablehlo.dynamic_reshape %x, %t : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  return %y, %z : tensor<?x4xf32>, tensor<?x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
//       %0 = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
//       %1 = stablehlo.dynamic_reshape %arg0, %0 : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
//       return %1, %1 : tensor<?x4xf32>, tensor<?x4xf32>
//     }
//   }

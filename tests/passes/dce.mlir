// RUN: disc-opt %s --pass-pipeline=dce | expect

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %s = "disc.dim"() {dim = "b"} : () -> tensor<i32>
  %y = stablehlo.exponential %x : tensor<4xf32>
  %z = stablehlo.tanh %y : tensor<4xf32>
  return %x : tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
//       return %arg0 : tensor<4xf32>
//     }
//   }

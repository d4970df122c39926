// RUN: disc-opt %s --pass-pipeline=broadcast-splats | expect

// A large splat becomes a number, broadcast; small ones and those of several numbers stay.
func.func @main() -> (tensor<1024x1024xf32>, tensor<2x1000000xi8>, tensor<4xf32>, tensor<2xf32>) {
  %0 = stablehlo.constant dense<1.0> : tensor<1024x1024xf32>
  %1 = stablehlo.constant dense<-3> : tensor<2x1000000xi8>
  %2 = stablehlo.constant dense<1.0> : tensor<4xf32>
  %3 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  return %0, %1, %2, %3 : tensor<1024x1024xf32>, tensor<2x1000000xi8>, tensor<4xf32>, tensor<2xf32>
}
// EXPECT:
//   module {
//     func.func @main() -> (tensor<1024x1024xf32>, tensor<2x1000000xi8>, tensor<4xf32>, tensor<2xf32>) {
//       %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
//       %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1024x1024xf32>
//       %c = stablehlo.constant dense<-3> : tensor<i8>
//       %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i8>) -> tensor<2x1000000xi8>
//       %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<4xf32>
//       %cst_1 = stablehlo.constant dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>
//       return %0, %1, %cst_0, %cst_1 : tensor<1024x1024xf32>, tensor<2x1000000xi8>, tensor<4xf32>, tensor<2xf32>
//     }
//   }

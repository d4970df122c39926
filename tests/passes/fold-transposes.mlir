// RUN: disc-opt %s --pass-pipeline=fold-transposes --split-input-file | expect

func.func @main(%x: tensor<2x?x4xf32>) -> (tensor<2x?x4xf32>, tensor<4x2x?xf32>, tensor<2x?x4xf32>) {
  %1 = stablehlo.transpose %x, dims = [1, 2, 0] : (tensor<2x?x4xf32>) -> tensor<?x4x2xf32>
  %2 = stablehlo.transpose %1, dims = [2, 0, 1] : (tensor<?x4x2xf32>) -> tensor<2x?x4xf32>
  %3 = stablehlo.transpose %1, dims = [1, 2, 0] : (tensor<?x4x2xf32>) -> tensor<4x2x?xf32>
  %4 = stablehlo.transpose %x, dims = [0, 1, 2] : (tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  return %2, %3, %4 : tensor<2x?x4xf32>, tensor<4x2x?xf32>, tensor<2x?x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<2x?x4xf32>) -> (tensor<2x?x4xf32>, tensor<4x2x?xf32>, tensor<2x?x4xf32>) {
//       %0 = stablehlo.transpose %arg0, dims = [2, 0, 1] : (tensor<2x?x4xf32>) -> tensor<4x2x?xf32>
//       return %arg0, %0, %arg0 : tensor<2x?x4xf32>, tensor<4x2x?xf32>, tensor<2x?x4xf32>
//     }
//   }

// -----

// Only a dimension of size 1 moves.
func.func @main(%x: tensor<?x1x?xf32> {disc.shape = ["b", "1", "t"]}) -> tensor<?x?x1xf32> {
  %1 = stablehlo.transpose %x, dims = [0, 2, 1] : (tensor<?x1x?xf32>) -> tensor<?x?x1xf32>
  return %1 : tensor<?x?x1xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x1x?xf32> {disc.shape = ["b", "1", "t"]}) -> tensor<?x?x1xf32> {
//       %0 = "disc.shape"() {dims = ["b", "t", "1"]} : () -> tensor<3xi64>
//       %1 = stablehlo.dynamic_reshape %arg0, %0 : (tensor<?x1x?xf32>, tensor<3xi64>) -> tensor<?x?x1xf32>
//       return %1 : tensor<?x?x1xf32>
//     }
//   }

// -----

// A dot reads either layout, on both sides and with batch dimensions.
func.func @main(%x: tensor<?x12x64xf32>, %y: tensor<12x?x64xf32>) -> tensor<12x?x?xf32> {
  %1 = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x12x64xf32>) -> tensor<12x?x64xf32>
  %2 = stablehlo.transpose %y, dims = [0, 2, 1] : (tensor<12x?x64xf32>) -> tensor<12x64x?xf32>
  %3 = stablehlo.dot_general %1, %2, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<12x?x64xf32>, tensor<12x64x?xf32>) -> tensor<12x?x?xf32>
  return %3 : tensor<12x?x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x12x64xf32>, %arg1: tensor<12x?x64xf32>) -> tensor<12x?x?xf32> {
//       %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [1] x [0], contracting_dims = [2] x [2], precision = [HIGHEST, HIGHEST] : (tensor<?x12x64xf32>, tensor<12x?x64xf32>) -> tensor<12x?x?xf32>
//       return %0 : tensor<12x?x?xf32>
//     }
//   }

// -----

// Refused: the free dimensions of the result would change places.
func.func @main(%x: tensor<?x3x64xf32>, %y: tensor<64x5xf32>) -> tensor<3x?x5xf32> {
  %1 = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x3x64xf32>) -> tensor<3x?x64xf32>
  %2 = stablehlo.dot_general %1, %y, contracting_dims = [2] x [0] : (tensor<3x?x64xf32>, tensor<64x5xf32>) -> tensor<3x?x5xf32>
  return %2 : tensor<3x?x5xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x3x64xf32>, %arg1: tensor<64x5xf32>) -> tensor<3x?x5xf32> {
//       %0 = stablehlo.transpose %arg0, dims = [1, 0, 2] : (tensor<?x3x64xf32>) -> tensor<3x?x64xf32>
//       %1 = stablehlo.dot_general %0, %arg1, contracting_dims = [2] x [0] : (tensor<3x?x64xf32>, tensor<64x5xf32>) -> tensor<3x?x5xf32>
//       return %1 : tensor<3x?x5xf32>
//     }
//   }

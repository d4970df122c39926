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

// -----

// Queries and values are cut from one product and scaled before their dimensions are exchanged.
func.func @main(%x: tensor<?x?x3x4x8xf32> {disc.shape = ["b", "t", "3", "4", "8"]}, %k: tensor<?x4x8x?xf32> {disc.shape = ["b", "4", "8", "t"]}) -> tensor<?x4x?x?xf32> {
  %1 = stablehlo.transpose %x, dims = [2, 0, 3, 1, 4] : (tensor<?x?x3x4x8xf32>) -> tensor<3x?x4x?x8xf32>
  %a = stablehlo.constant dense<[1, 0, 0, 0, 0]> : tensor<5xi64>
  %b = "disc.shape"() {dims = ["2", "b", "4", "t", "8"]} : () -> tensor<5xi64>
  %c = stablehlo.constant dense<1> : tensor<5xi64>
  %2 = stablehlo.real_dynamic_slice %1, %a, %b, %c : (tensor<3x?x4x?x8xf32>, tensor<5xi64>, tensor<5xi64>, tensor<5xi64>) -> tensor<1x?x4x?x8xf32>
  %s = "disc.shape"() {dims = ["b", "4", "t", "8"]} : () -> tensor<4xi64>
  %3 = stablehlo.dynamic_reshape %2, %s : (tensor<1x?x4x?x8xf32>, tensor<4xi64>) -> tensor<?x4x?x8xf32>
  %h = stablehlo.constant dense<5.000000e-01> : tensor<f32>
  %4 = stablehlo.dynamic_broadcast_in_dim %h, %s, dims = [] : (tensor<f32>, tensor<4xi64>) -> tensor<?x4x?x8xf32>
  %5 = stablehlo.multiply %3, %4 : tensor<?x4x?x8xf32>
  %6 = stablehlo.dot_general %5, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2] : (tensor<?x4x?x8xf32>, tensor<?x4x8x?xf32>) -> tensor<?x4x?x?xf32>
  return %6 : tensor<?x4x?x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?x3x4x8xf32> {disc.shape = ["b", "t", "3", "4", "8"]}, %arg1: tensor<?x4x8x?xf32> {disc.shape = ["b", "4", "8", "t"]}) -> tensor<?x4x?x?xf32> {
//       %0 = "disc.shape"() {dims = ["0", "0", "1", "0", "0"]} : () -> tensor<5xi64>
//       %1 = "disc.shape"() {dims = ["b", "t", "2", "4", "8"]} : () -> tensor<5xi64>
//       %2 = "disc.shape"() {dims = ["1", "1", "1", "1", "1"]} : () -> tensor<5xi64>
//       %3 = stablehlo.real_dynamic_slice %arg0, %0, %1, %2 : (tensor<?x?x3x4x8xf32>, tensor<5xi64>, tensor<5xi64>, tensor<5xi64>) -> tensor<?x?x1x4x8xf32>
//       %4 = "disc.shape"() {dims = ["b", "t", "4", "8"]} : () -> tensor<4xi64>
//       %5 = stablehlo.dynamic_reshape %3, %4 : (tensor<?x?x1x4x8xf32>, tensor<4xi64>) -> tensor<?x?x4x8xf32>
//       %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
//       %6 = stablehlo.dynamic_broadcast_in_dim %cst, %4, dims = [] : (tensor<f32>, tensor<4xi64>) -> tensor<?x?x4x8xf32>
//       %7 = stablehlo.multiply %5, %6 : tensor<?x?x4x8xf32>
//       %8 = stablehlo.dot_general %7, %arg1, batching_dims = [0, 2] x [0, 1], contracting_dims = [3] x [2] : (tensor<?x?x4x8xf32>, tensor<?x4x8x?xf32>) -> tensor<?x4x?x?xf32>
//       return %8 : tensor<?x4x?x?xf32>
//     }
//   }

// -----

// A static slice; a vector of one number for each channel goes along, a residual in another order does not.
func.func @main(%x: tensor<2x6x5xf32>, %v: tensor<5xf32>, %r: tensor<5x2x4xf32>) -> (tensor<5x2x4xf32>, tensor<5x2x4xf32>) {
  %1 = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<2x6x5xf32>) -> tensor<5x2x6xf32>
  %2 = stablehlo.slice %1 [0:5, 0:2, 1:5] : (tensor<5x2x6xf32>) -> tensor<5x2x4xf32>
  %3 = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<5xf32>) -> tensor<5x2x4xf32>
  %4 = stablehlo.add %2, %3 : tensor<5x2x4xf32>
  %5 = stablehlo.multiply %4, %r : tensor<5x2x4xf32>
  return %4, %5 : tensor<5x2x4xf32>, tensor<5x2x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<2x6x5xf32>, %arg1: tensor<5xf32>, %arg2: tensor<5x2x4xf32>) -> (tensor<5x2x4xf32>, tensor<5x2x4xf32>) {
//       %0 = stablehlo.slice %arg0 [0:2, 1:5, 0:5] : (tensor<2x6x5xf32>) -> tensor<2x4x5xf32>
//       %1 = stablehlo.broadcast_in_dim %arg1, dims = [2] : (tensor<5xf32>) -> tensor<2x4x5xf32>
//       %2 = stablehlo.add %0, %1 : tensor<2x4x5xf32>
//       %3 = stablehlo.transpose %2, dims = [2, 0, 1] : (tensor<2x4x5xf32>) -> tensor<5x2x4xf32>
//       %4 = stablehlo.multiply %3, %arg2 : tensor<5x2x4xf32>
//       return %3, %4 : tensor<5x2x4xf32>, tensor<5x2x4xf32>
//     }
//   }

// -----

// A product in another order is not moved: its kernel writes it so.
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %w: tensor<8x16xf32>) -> tensor<16x?xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
  %3 = stablehlo.tanh %2 : tensor<16x?xf32>
  return %3 : tensor<16x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %arg1: tensor<8x16xf32>) -> tensor<16x?xf32> {
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
//       %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
//       %2 = stablehlo.tanh %1 : tensor<16x?xf32>
//       return %2 : tensor<16x?xf32>
//     }
//   }

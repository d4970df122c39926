// RUN: disc-opt %s --pass-pipeline=fold-reverses --split-input-file | expect

// The gradient of a convolution's image; a kernel that is turned twice is read forwards.
func.func @main(%x: tensor<?x?x?x8xf32> {disc.shape = ["b", "h", "w", "8"]}, %w: tensor<8x4x3x3xf32>) -> (tensor<?x?x?x4xf32>, tensor<?x?x?x4xf32>) {
  %r = stablehlo.reverse %w, dims = [2, 3] : tensor<8x4x3x3xf32>
  %y = stablehlo.convolution(%x, %r) dim_numbers = [b, 0, 1, f]x[i, o, 0, 1]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x?x?x8xf32>, tensor<8x4x3x3xf32>) -> tensor<?x?x?x4xf32>
  %z = stablehlo.convolution(%x, %r) dim_numbers = [b, 0, 1, f]x[i, o, 0, 1]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]], reverse = [true, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x?x?x8xf32>, tensor<8x4x3x3xf32>) -> tensor<?x?x?x4xf32>
  return %y, %z : tensor<?x?x?x4xf32>, tensor<?x?x?x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?x?x8xf32> {disc.shape = ["b", "h", "w", "8"]}, %arg1: tensor<8x4x3x3xf32>) -> (tensor<?x?x?x4xf32>, tensor<?x?x?x4xf32>) {
//       %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[i, o, 0, 1]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]], reverse = [true, true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x?x?x8xf32>, tensor<8x4x3x3xf32>) -> tensor<?x?x?x4xf32>
//       %1 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[i, o, 0, 1]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]], reverse = [false, true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x?x?x8xf32>, tensor<8x4x3x3xf32>) -> tensor<?x?x?x4xf32>
//       return %0, %1 : tensor<?x?x?x4xf32>, tensor<?x?x?x4xf32>
//     }
//   }

// -----

// Reversed features stay as they are.
func.func @main(%x: tensor<2x5x8xf32>, %w: tensor<8x4x3xf32>) -> tensor<2x3x4xf32> {
  %r = stablehlo.reverse %w, dims = [1, 2] : tensor<8x4x3xf32>
  %y = stablehlo.convolution(%x, %r) dim_numbers = [b, 0, f]x[i, o, 0]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x5x8xf32>, tensor<8x4x3xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<2x5x8xf32>, %arg1: tensor<8x4x3xf32>) -> tensor<2x3x4xf32> {
//       %0 = stablehlo.reverse %arg1, dims = [1, 2] : tensor<8x4x3xf32>
//       %1 = stablehlo.convolution(%arg0, %0) dim_numbers = [b, 0, f]x[i, o, 0]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x5x8xf32>, tensor<8x4x3xf32>) -> tensor<2x3x4xf32>
//       return %1 : tensor<2x3x4xf32>
//     }
//   }

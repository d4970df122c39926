// RUN: disc-opt %s --pass-pipeline=lay-out-images,fold-transposes --split-input-file | expect

// Two convolutions with a bias, a pool and a pad between them, and a mean behind: one transpose.
func.func @main(%x: tensor<?x3x?x?xf32> {disc.shape = ["b", "3", "h", "w"]}, %k: tensor<16x3x3x3xf32>, %l: tensor<16x16x1x1xf32>, %c: tensor<16xf32>) -> tensor<?x16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %y = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x3x?x?xf32>, tensor<16x3x3x3xf32>) -> tensor<?x16x?x?xf32>
  %sizes = "disc.shape"() {dims = ["b", "16", "h", "w"]} : () -> tensor<4xi64>
  %bias = stablehlo.dynamic_broadcast_in_dim %c, %sizes, dims = [1] : (tensor<16xf32>, tensor<4xi64>) -> tensor<?x16x?x?xf32>
  %z = stablehlo.add %y, %bias : tensor<?x16x?x?xf32>
  %p = "stablehlo.reduce_window"(%z, %low) <{window_dimensions = array<i64: 1, 1, 3, 3>, window_strides = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [0, 0], [1, 1], [2, 0]]> : tensor<4x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<?x16x?x?xf32>, tensor<f32>) -> tensor<?x16x?x?xf32>
  %q = stablehlo.pad %p, %zero, low = [0, 0, 1, 0], high = [0, 0, 0, 2], interior = [0, 0, 0, 0] : (tensor<?x16x?x?xf32>, tensor<f32>) -> tensor<?x16x?x?xf32>
  %r = stablehlo.convolution(%q, %l) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x16x?x?xf32>, tensor<16x16x1x1xf32>) -> tensor<?x16x?x?xf32>
  %s = stablehlo.reduce(%r init: %zero) applies stablehlo.add across dimensions = [2, 3] : (tensor<?x16x?x?xf32>, tensor<f32>) -> tensor<?x16xf32>
  return %s : tensor<?x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x3x?x?xf32> {disc.shape = ["b", "3", "h", "w"]}, %arg1: tensor<16x3x3x3xf32>, %arg2: tensor<16x16x1x1xf32>, %arg3: tensor<16xf32>) -> tensor<?x16xf32> {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
//       %0 = stablehlo.transpose %arg0, dims = [0, 2, 3, 1] : (tensor<?x3x?x?xf32>) -> tensor<?x?x?x3xf32>
//       %1 = stablehlo.convolution(%0, %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x?x?x3xf32>, tensor<16x3x3x3xf32>) -> tensor<?x?x?x16xf32>
//       %2 = "disc.shape"() {dims = ["b", "16", "h", "w"]} : () -> tensor<4xi64>
//       %3 = "disc.shape"() {dims = ["b", "h", "w", "16"]} : () -> tensor<4xi64>
//       %4 = stablehlo.dynamic_broadcast_in_dim %arg3, %3, dims = [3] : (tensor<16xf32>, tensor<4xi64>) -> tensor<?x?x?x16xf32>
//       %5 = stablehlo.add %1, %4 : tensor<?x?x?x16xf32>
//       %6 = "stablehlo.reduce_window"(%5, %cst_0) <{padding = dense<[[0, 0], [1, 1], [2, 0], [0, 0]]> : tensor<4x2xi64>, window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 1, 1, 1>}> ({
//       ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
//         %10 = stablehlo.maximum %arg4, %arg5 : tensor<f32>
//         stablehlo.return %10 : tensor<f32>
//       }) : (tensor<?x?x?x16xf32>, tensor<f32>) -> tensor<?x?x?x16xf32>
//       %7 = stablehlo.pad %6, %cst, low = [0, 1, 0, 0], high = [0, 0, 2, 0], interior = [0, 0, 0, 0] : (tensor<?x?x?x16xf32>, tensor<f32>) -> tensor<?x?x?x16xf32>
//       %8 = stablehlo.convolution(%7, %arg2) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x?x?x16xf32>, tensor<16x16x1x1xf32>) -> tensor<?x?x?x16xf32>
//       %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [1, 2] : (tensor<?x?x?x16xf32>, tensor<f32>) -> tensor<?x16xf32>
//       return %9 : tensor<?x16xf32>
//     }
//   }

// -----

// Readers of every kind at the ends: a reduction of the batch, an op that is not turned, a result.
func.func @main(%x: tensor<2x8x4x4xf32>, %k: tensor<8x8x1x1xf32>) -> (tensor<8x4x4xf32>, tensor<2x128xf32>, tensor<2x8x4x4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %half = stablehlo.constant dense<0.5> : tensor<2x8x4x4xf32>
  %v = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<8x8x1x1xf32>) -> tensor<2x8x4x4xf32>
  %y = stablehlo.convolution(%v, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<8x8x1x1xf32>) -> tensor<2x8x4x4xf32>
  %z = stablehlo.multiply %y, %half : tensor<2x8x4x4xf32>
  %r = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<2x8x4x4xf32>, tensor<f32>) -> tensor<8x4x4xf32>
  %f = stablehlo.reshape %z : (tensor<2x8x4x4xf32>) -> tensor<2x128xf32>
  return %r, %f, %z : tensor<8x4x4xf32>, tensor<2x128xf32>, tensor<2x8x4x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<2x8x4x4xf32>, %arg1: tensor<8x8x1x1xf32>) -> (tensor<8x4x4xf32>, tensor<2x128xf32>, tensor<2x8x4x4xf32>) {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %cst_0 = stablehlo.constant dense<5.000000e-01> : tensor<2x4x4x8xf32>
//       %0 = stablehlo.transpose %arg0, dims = [0, 2, 3, 1] : (tensor<2x8x4x4xf32>) -> tensor<2x4x4x8xf32>
//       %1 = stablehlo.convolution(%0, %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x4x8xf32>, tensor<8x8x1x1xf32>) -> tensor<2x4x4x8xf32>
//       %2 = stablehlo.convolution(%1, %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x4x8xf32>, tensor<8x8x1x1xf32>) -> tensor<2x4x4x8xf32>
//       %3 = stablehlo.multiply %2, %cst_0 : tensor<2x4x4x8xf32>
//       %4 = stablehlo.transpose %3, dims = [0, 3, 1, 2] : (tensor<2x4x4x8xf32>) -> tensor<2x8x4x4xf32>
//       %5 = stablehlo.reduce(%3 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<2x4x4x8xf32>, tensor<f32>) -> tensor<4x4x8xf32>
//       %6 = stablehlo.transpose %5, dims = [2, 0, 1] : (tensor<4x4x8xf32>) -> tensor<8x4x4xf32>
//       %7 = stablehlo.reshape %4 : (tensor<2x8x4x4xf32>) -> tensor<2x128xf32>
//       return %6, %7, %4 : tensor<8x4x4xf32>, tensor<2x128xf32>, tensor<2x8x4x4xf32>
//     }
//   }

// -----

// The gradient of a kernel reads images as they are, whichever side they are on; one feature stays.
func.func @main(%x: tensor<2x8x4x4xf32>, %k: tensor<8x8x3x3xf32>, %one: tensor<1x8x1x1xf32>) -> (tensor<8x8x3x3xf32>, tensor<2x1x4x4xf32>) {
  %v = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<8x8x3x3xf32>) -> tensor<2x8x4x4xf32>
  %y = stablehlo.convolution(%v, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<8x8x3x3xf32>) -> tensor<2x8x4x4xf32>
  %g = stablehlo.convolution(%x, %y) dim_numbers = [f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<2x8x4x4xf32>) -> tensor<8x8x3x3xf32>
  %s = stablehlo.convolution(%x, %one) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<1x8x1x1xf32>) -> tensor<2x1x4x4xf32>
  return %g, %s : tensor<8x8x3x3xf32>, tensor<2x1x4x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<2x8x4x4xf32>, %arg1: tensor<8x8x3x3xf32>, %arg2: tensor<1x8x1x1xf32>) -> (tensor<8x8x3x3xf32>, tensor<2x1x4x4xf32>) {
//       %0 = stablehlo.transpose %arg0, dims = [0, 2, 3, 1] : (tensor<2x8x4x4xf32>) -> tensor<2x4x4x8xf32>
//       %1 = stablehlo.convolution(%0, %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x4x8xf32>, tensor<8x8x3x3xf32>) -> tensor<2x4x4x8xf32>
//       %2 = stablehlo.convolution(%1, %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x4x8xf32>, tensor<8x8x3x3xf32>) -> tensor<2x4x4x8xf32>
//       %3 = stablehlo.convolution(%0, %2) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[f, b, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x4x8xf32>, tensor<2x4x4x8xf32>) -> tensor<8x8x3x3xf32>
//       %4 = stablehlo.convolution(%0, %arg2) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x4x8xf32>, tensor<1x8x1x1xf32>) -> tensor<2x1x4x4xf32>
//       return %3, %4 : tensor<8x8x3x3xf32>, tensor<2x1x4x4xf32>
//     }
//   }

// -----

// One convolution alone: nothing is turned.
func.func @main(%x: tensor<2x8x4x4xf32>, %k: tensor<8x8x3x3xf32>) -> tensor<2x8x4x4xf32> {
  %y = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<8x8x3x3xf32>) -> tensor<2x8x4x4xf32>
  return %y : tensor<2x8x4x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<2x8x4x4xf32>, %arg1: tensor<8x8x3x3xf32>) -> tensor<2x8x4x4xf32> {
//       %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<8x8x3x3xf32>) -> tensor<2x8x4x4xf32>
//       return %0 : tensor<2x8x4x4xf32>
//     }
//   }

// -----

// Two regions meet at a convolution of each feature, which stays: it reads one and begins the other.
func.func @main(%x: tensor<2x8x4x4xf32>, %k: tensor<8x8x1x1xf32>, %own: tensor<8x1x3x3xf32>) -> tensor<2x8x4x4xf32> {
  %a = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<8x8x1x1xf32>) -> tensor<2x8x4x4xf32>
  %b = stablehlo.convolution(%a, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<8x8x1x1xf32>) -> tensor<2x8x4x4xf32>
  %d = stablehlo.convolution(%b, %own) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 8 : i64} : (tensor<2x8x4x4xf32>, tensor<8x1x3x3xf32>) -> tensor<2x8x4x4xf32>
  %n = stablehlo.tanh %d : tensor<2x8x4x4xf32>
  %e = stablehlo.convolution(%n, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<8x8x1x1xf32>) -> tensor<2x8x4x4xf32>
  %f = stablehlo.convolution(%e, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x4x4xf32>, tensor<8x8x1x1xf32>) -> tensor<2x8x4x4xf32>
  return %f : tensor<2x8x4x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<2x8x4x4xf32>, %arg1: tensor<8x8x1x1xf32>, %arg2: tensor<8x1x3x3xf32>) -> tensor<2x8x4x4xf32> {
//       %0 = stablehlo.transpose %arg0, dims = [0, 2, 3, 1] : (tensor<2x8x4x4xf32>) -> tensor<2x4x4x8xf32>
//       %1 = stablehlo.convolution(%0, %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x4x8xf32>, tensor<8x8x1x1xf32>) -> tensor<2x4x4x8xf32>
//       %2 = stablehlo.convolution(%1, %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x4x8xf32>, tensor<8x8x1x1xf32>) -> tensor<2x4x4x8xf32>
//       %3 = stablehlo.convolution(%2, %arg2) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 8 : i64} : (tensor<2x4x4x8xf32>, tensor<8x1x3x3xf32>) -> tensor<2x4x4x8xf32>
//       %4 = stablehlo.tanh %3 : tensor<2x4x4x8xf32>
//       %5 = stablehlo.convolution(%4, %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x4x8xf32>, tensor<8x8x1x1xf32>) -> tensor<2x4x4x8xf32>
//       %6 = stablehlo.convolution(%5, %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x4x8xf32>, tensor<8x8x1x1xf32>) -> tensor<2x4x4x8xf32>
//       %7 = stablehlo.transpose %6, dims = [0, 3, 1, 2] : (tensor<2x4x4x8xf32>) -> tensor<2x8x4x4xf32>
//       return %7 : tensor<2x8x4x4xf32>
//     }
//   }

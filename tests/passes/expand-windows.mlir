// RUN: disc-opt %s --pass-pipeline=expand-windows,resolve-shapes,cse --split-input-file | expect

// A window over all that comes before is a scan; one over all that comes behind, in reverse.
func.func @main(%x: tensor<3x?xf32> {disc.shape = ["3", "t"]}) -> (tensor<3x?xf32>, tensor<3x?xf32>) {
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %t = "disc.dim"() {dim = "t"} : () -> tensor<i32>
  %before = "disc.dim"() {dim = "t - 1"} : () -> tensor<i32>
  %y = "disc.reduce_window"(%x, %init, %t, %before, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {dimension = 1 : i64} : (tensor<3x?xf32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x?xf32>
  %z = "disc.reduce_window"(%x, %init, %t, %zero, %before) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {dimension = 1 : i64} : (tensor<3x?xf32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x?xf32>
  return %y, %z : tensor<3x?xf32>, tensor<3x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<3x?xf32> {disc.shape = ["3", "t"]}) -> (tensor<3x?xf32>, tensor<3x?xf32>) {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %0 = "disc.scan"(%arg0, %cst) ({
//       ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
//         %2 = stablehlo.add %arg1, %arg2 : tensor<f32>
//         stablehlo.return %2 : tensor<f32>
//       }) {dimension = 1 : i64, reverse = false} : (tensor<3x?xf32>, tensor<f32>) -> tensor<3x?xf32>
//       %1 = "disc.scan"(%arg0, %cst) ({
//       ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
//         %2 = stablehlo.add %arg1, %arg2 : tensor<f32>
//         stablehlo.return %2 : tensor<f32>
//       }) {dimension = 1 : i64, reverse = true} : (tensor<3x?xf32>, tensor<f32>) -> tensor<3x?xf32>
//       return %0, %1 : tensor<3x?xf32>, tensor<3x?xf32>
//     }
//   }

// -----

// A constant window of the whole dimension likewise.
func.func @main(%x: tensor<4x5xf32>) -> (tensor<4x5xf32>, tensor<4x5xf32>) {
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %y = "stablehlo.reduce_window"(%x, %init) <{padding = dense<[[3, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 4, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4x5xf32>, tensor<f32>) -> tensor<4x5xf32>
  %z = "stablehlo.reduce_window"(%x, %init) <{padding = dense<[[2, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 3, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4x5xf32>, tensor<f32>) -> tensor<4x5xf32>
  return %y, %z : tensor<4x5xf32>, tensor<4x5xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>, tensor<4x5xf32>) {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %0 = "disc.scan"(%arg0, %cst) ({
//       ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
//         %2 = stablehlo.maximum %arg1, %arg2 : tensor<f32>
//         stablehlo.return %2 : tensor<f32>
//       }) {dimension = 0 : i64, reverse = false} : (tensor<4x5xf32>, tensor<f32>) -> tensor<4x5xf32>
//       %1 = "stablehlo.reduce_window"(%arg0, %cst) <{padding = dense<[[2, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 3, 1>}> ({
//       ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
//         %2 = stablehlo.maximum %arg1, %arg2 : tensor<f32>
//         stablehlo.return %2 : tensor<f32>
//       }) : (tensor<4x5xf32>, tensor<f32>) -> tensor<4x5xf32>
//       return %0, %1 : tensor<4x5xf32>, tensor<4x5xf32>
//     }
//   }

// -----

// Any other window is a loop that doubles what it has combined. A set bit of the window's size takes
// in the window of that length, behind what the result has so far. Cleaned up to be read.
func.func @main(%x: tensor<?xf32> {disc.shape = ["t"]}) -> tensor<?xf32> {
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %half = "disc.dim"() {dim = "floordiv(t, 2) + 1"} : () -> tensor<i32>
  %y = "disc.reduce_window"(%x, %init, %half, %two, %two) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {dimension = 0 : i64} : (tensor<?xf32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["t"]}) -> tensor<?xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<1> : tensor<i32>
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %c_1 = stablehlo.constant dense<0> : tensor<1xi32>
//       %c_2 = stablehlo.constant dense<1> : tensor<1xi32>
//       %0 = "disc.shape"() {dims = ["floordiv(t + 1, 2) + 4"]} : () -> tensor<1xi32>
//       %1 = "disc.shape"() {dims = ["t + 4"]} : () -> tensor<1xi32>
//       %2 = "disc.dim"() {dim = "floordiv(t, 2) + 1"} : () -> tensor<i32>
//       %3 = stablehlo.pad %arg0, %cst, low = [2], high = [2], interior = [0] : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
//       %4 = stablehlo.dynamic_broadcast_in_dim %cst, %1, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
//       %5:4 = stablehlo.while(%iterArg = %c_0, %iterArg_3 = %c, %iterArg_4 = %4, %iterArg_5 = %3) : tensor<i32>, tensor<i32>, tensor<?xf32>, tensor<?xf32>
//       cond {
//         %7 = stablehlo.compare LE, %iterArg, %2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %7 : tensor<i1>
//       } do {
//         %7 = stablehlo.and %2, %iterArg : tensor<i32>
//         %8 = stablehlo.compare NE, %7, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         %9 = stablehlo.dynamic_iota %1, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
//         %10 = stablehlo.dynamic_broadcast_in_dim %iterArg_3, %1, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
//         %11 = stablehlo.add %9, %10 : tensor<?xi32>
//         %12 = "stablehlo.gather"(%iterArg_5, %11) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = true, slice_sizes = array<i64: 1>}> : (tensor<?xf32>, tensor<?xi32>) -> tensor<?xf32>
//         %13 = stablehlo.add %iterArg_4, %12 : tensor<?xf32>
//         %14 = stablehlo.select %8, %13, %iterArg_4 : tensor<i1>, tensor<?xf32>
//         %15 = stablehlo.dynamic_broadcast_in_dim %iterArg, %1, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
//         %16 = stablehlo.add %9, %15 : tensor<?xi32>
//         %17 = "stablehlo.gather"(%iterArg_5, %16) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = true, slice_sizes = array<i64: 1>}> : (tensor<?xf32>, tensor<?xi32>) -> tensor<?xf32>
//         %18 = stablehlo.add %iterArg_5, %17 : tensor<?xf32>
//         %19 = stablehlo.add %iterArg_3, %7 : tensor<i32>
//         %20 = stablehlo.add %iterArg, %iterArg : tensor<i32>
//         stablehlo.return %20, %19, %14, %18 : tensor<i32>, tensor<i32>, tensor<?xf32>, tensor<?xf32>
//       }
//       %6 = stablehlo.real_dynamic_slice %5#2, %c_1, %0, %c_2 : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
//       return %6 : tensor<?xf32>
//     }
//   }

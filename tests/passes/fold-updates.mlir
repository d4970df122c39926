// RUN: disc-opt %s --pass-pipeline=fold-updates --split-input-file | expect

// The derivative of x[i, :]: the start is clamped, the window is added where it is.
func.func @main(%acc: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %v: tensor<1x4xf32>, %i: tensor<i32>) -> tensor<?x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sizes = "disc.shape"() {dims = ["n", "4"]} : () -> tensor<2xi32>
  %zeros = stablehlo.dynamic_broadcast_in_dim %zero, %sizes, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x4xf32>
  %u = stablehlo.dynamic_update_slice %zeros, %v, %i, %c0 : (tensor<?x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<?x4xf32>
  %y = stablehlo.add %acc, %u : tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %arg1: tensor<1x4xf32>, %arg2: tensor<i32>) -> tensor<?x4xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %0 = "disc.dim"() {dim = "min(n - 1, 2147483647)"} : () -> tensor<i32>
//       %1 = stablehlo.clamp %c, %arg2, %0 : tensor<i32>
//       %2 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
//       %3 = "stablehlo.scatter"(%arg0, %2, %arg1) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
//       ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
//         %4 = stablehlo.add %arg3, %arg4 : tensor<f32>
//         stablehlo.return %4 : tensor<f32>
//       }) : (tensor<?x4xf32>, tensor<1xi32>, tensor<1x4xf32>) -> tensor<?x4xf32>
//       return %3 : tensor<?x4xf32>
//     }
//   }

// -----

// Behind a conversion and a transpose; several starts are one place. -0.0 is a zero, too.
func.func @main(%acc: tensor<8x6xf32>, %v: tensor<2x3xbf16>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<8x6xf32> {
  %zeros = stablehlo.constant dense<-0.0> : tensor<6x8xbf16>
  %u = stablehlo.dynamic_update_slice %zeros, %v, %i, %j : (tensor<6x8xbf16>, tensor<2x3xbf16>, tensor<i32>, tensor<i32>) -> tensor<6x8xbf16>
  %f = stablehlo.convert %u : (tensor<6x8xbf16>) -> tensor<6x8xf32>
  %t = stablehlo.transpose %f, dims = [1, 0] : (tensor<6x8xf32>) -> tensor<8x6xf32>
  %y = stablehlo.add %t, %acc : tensor<8x6xf32>
  return %y : tensor<8x6xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<8x6xf32>, %arg1: tensor<2x3xbf16>, %arg2: tensor<i32>, %arg3: tensor<i32>) -> tensor<8x6xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %0 = "disc.dim"() {dim = "4"} : () -> tensor<i32>
//       %1 = stablehlo.clamp %c, %arg2, %0 : tensor<i32>
//       %2 = "disc.dim"() {dim = "5"} : () -> tensor<i32>
//       %3 = stablehlo.clamp %c, %arg3, %2 : tensor<i32>
//       %4 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
//       %5 = stablehlo.reshape %3 : (tensor<i32>) -> tensor<1xi32>
//       %6 = stablehlo.concatenate %4, %5, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
//       %7 = stablehlo.convert %arg1 : (tensor<2x3xbf16>) -> tensor<2x3xf32>
//       %8 = stablehlo.transpose %7, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
//       %9 = "stablehlo.scatter"(%arg0, %6, %8) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], scatter_dims_to_operand_dims = [1, 0]>, unique_indices = true}> ({
//       ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
//         %10 = stablehlo.add %arg4, %arg5 : tensor<f32>
//         stablehlo.return %10 : tensor<f32>
//       }) : (tensor<8x6xf32>, tensor<2xi32>, tensor<3x2xf32>) -> tensor<8x6xf32>
//       return %9 : tensor<8x6xf32>
//     }
//   }

// -----

// A scatter that adds, of another shape than the sum; both updates of a sum go into the third.
func.func @main(%acc: tensor<8xf32>, %v: tensor<5x2xf32>, %k: tensor<5x1xi32>, %i: tensor<i32>, %w: tensor<1xf32>) -> tensor<8xf32> {
  %zeros = stablehlo.constant dense<0.0> : tensor<8xf32>
  %zeros2 = stablehlo.constant dense<0.0> : tensor<4x2xf32>
  %a = stablehlo.dynamic_update_slice %zeros, %w, %i : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
  %b = "stablehlo.scatter"(%zeros2, %k, %v) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %y, %x : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4x2xf32>, tensor<5x1xi32>, tensor<5x2xf32>) -> tensor<4x2xf32>
  %c = stablehlo.reshape %b : (tensor<4x2xf32>) -> tensor<8xf32>
  %d = stablehlo.add %a, %c : tensor<8xf32>
  %y = stablehlo.add %acc, %d : tensor<8xf32>
  return %y : tensor<8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<8xf32>, %arg1: tensor<5x2xf32>, %arg2: tensor<5x1xi32>, %arg3: tensor<i32>, %arg4: tensor<1xf32>) -> tensor<8xf32> {
//       %0 = "disc.dim"() {dim = "7"} : () -> tensor<i32>
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %1 = stablehlo.clamp %c, %arg3, %0 : tensor<i32>
//       %2 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
//       %3 = "stablehlo.scatter"(%arg0, %2, %arg4) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
//       ^bb0(%arg5: tensor<f32>, %arg6: tensor<f32>):
//         %7 = stablehlo.add %arg5, %arg6 : tensor<f32>
//         stablehlo.return %7 : tensor<f32>
//       }) : (tensor<8xf32>, tensor<1xi32>, tensor<1xf32>) -> tensor<8xf32>
//       %4 = stablehlo.reshape %3 : (tensor<8xf32>) -> tensor<4x2xf32>
//       %5 = "stablehlo.scatter"(%4, %arg2, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
//       ^bb0(%arg5: tensor<f32>, %arg6: tensor<f32>):
//         %7 = stablehlo.add %arg5, %arg6 : tensor<f32>
//         stablehlo.return %7 : tensor<f32>
//       }) : (tensor<4x2xf32>, tensor<5x1xi32>, tensor<5x2xf32>) -> tensor<4x2xf32>
//       %6 = stablehlo.reshape %5 : (tensor<4x2xf32>) -> tensor<8xf32>
//       return %6 : tensor<8xf32>
//     }
//   }

// -----

// Refused: an array that is not zeros, one that several read behind a conversion, a scatter that
// may write an element twice, and a rounded sum of several updates of one element.
func.func @main(%acc: tensor<8xf32>, %k: tensor<5x1xi32>, %v: tensor<5xf32>, %h: tensor<5xbf16>, %i: tensor<i32>, %w: tensor<1xbf16>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %ones = stablehlo.constant dense<1.0> : tensor<8xf32>
  %zeros = stablehlo.constant dense<0.0> : tensor<8xf32>
  %halves = stablehlo.constant dense<0.0> : tensor<8xbf16>
  %one = stablehlo.constant dense<1.0> : tensor<1xf32>
  %a = stablehlo.dynamic_update_slice %ones, %one, %i : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
  %b = stablehlo.add %acc, %a : tensor<8xf32>
  %c = stablehlo.dynamic_update_slice %halves, %w, %i : (tensor<8xbf16>, tensor<1xbf16>, tensor<i32>) -> tensor<8xbf16>
  %d = stablehlo.convert %c : (tensor<8xbf16>) -> tensor<8xf32>
  %e = stablehlo.add %acc, %d : tensor<8xf32>
  %f = "stablehlo.scatter"(%zeros, %k, %v) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    stablehlo.return %y : tensor<f32>
  }) : (tensor<8xf32>, tensor<5x1xi32>, tensor<5xf32>) -> tensor<8xf32>
  %g = stablehlo.add %acc, %f : tensor<8xf32>
  %l = "stablehlo.scatter"(%halves, %k, %h) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
    %s = stablehlo.add %y, %x : tensor<bf16>
    stablehlo.return %s : tensor<bf16>
  }) : (tensor<8xbf16>, tensor<5x1xi32>, tensor<5xbf16>) -> tensor<8xbf16>
  %m = stablehlo.convert %l : (tensor<8xbf16>) -> tensor<8xf32>
  %n = stablehlo.add %acc, %m : tensor<8xf32>
  return %b, %d, %e, %g, %n : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<8xf32>, %arg1: tensor<5x1xi32>, %arg2: tensor<5xf32>, %arg3: tensor<5xbf16>, %arg4: tensor<i32>, %arg5: tensor<1xbf16>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
//       %cst = stablehlo.constant dense<1.000000e+00> : tensor<8xf32>
//       %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<8xf32>
//       %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<8xbf16>
//       %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<1xf32>
//       %0 = stablehlo.dynamic_update_slice %cst, %cst_2, %arg4 : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
//       %1 = stablehlo.add %arg0, %0 : tensor<8xf32>
//       %2 = stablehlo.dynamic_update_slice %cst_1, %arg5, %arg4 : (tensor<8xbf16>, tensor<1xbf16>, tensor<i32>) -> tensor<8xbf16>
//       %3 = stablehlo.convert %2 : (tensor<8xbf16>) -> tensor<8xf32>
//       %4 = stablehlo.add %arg0, %3 : tensor<8xf32>
//       %5 = "stablehlo.scatter"(%cst_0, %arg1, %arg2) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
//       ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
//         stablehlo.return %arg7 : tensor<f32>
//       }) : (tensor<8xf32>, tensor<5x1xi32>, tensor<5xf32>) -> tensor<8xf32>
//       %6 = stablehlo.add %arg0, %5 : tensor<8xf32>
//       %7 = "stablehlo.scatter"(%cst_1, %arg1, %arg3) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
//       ^bb0(%arg6: tensor<bf16>, %arg7: tensor<bf16>):
//         %10 = stablehlo.add %arg7, %arg6 : tensor<bf16>
//         stablehlo.return %10 : tensor<bf16>
//       }) : (tensor<8xbf16>, tensor<5x1xi32>, tensor<5xbf16>) -> tensor<8xbf16>
//       %8 = stablehlo.convert %7 : (tensor<8xbf16>) -> tensor<8xf32>
//       %9 = stablehlo.add %arg0, %8 : tensor<8xf32>
//       return %1, %3, %4, %6, %9 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
//     }
//   }

// -----

// A loop that adds up from zeros adds to the sum; one that reads its own sum, or returns another
// value in its place, stays as it is.
func.func @main(%acc: tensor<8xf32>, %v: tensor<1xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c4 = stablehlo.constant dense<4> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<8xf32>
  %a:3 = stablehlo.while(%i = %c0, %s = %zeros, %t = %zeros) : tensor<i32>, tensor<8xf32>, tensor<8xf32>
  cond {
    %p = stablehlo.compare LT, %i, %c4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %u = stablehlo.dynamic_update_slice %zeros, %v, %i : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
    %w = stablehlo.dynamic_slice %t, %i, sizes = [1] : (tensor<8xf32>, tensor<i32>) -> tensor<1xf32>
    %x = stablehlo.dynamic_update_slice %zeros, %w, %i : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
    %s1 = stablehlo.add %s, %u : tensor<8xf32>
    %t1 = stablehlo.add %t, %x : tensor<8xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %s1, %t1 : tensor<i32>, tensor<8xf32>, tensor<8xf32>
  }
  %y = stablehlo.add %acc, %a#1 : tensor<8xf32>
  %z = stablehlo.add %a#2, %acc : tensor<8xf32>
  %b:3 = stablehlo.while(%i = %c0, %s = %zeros, %t = %acc) : tensor<i32>, tensor<8xf32>, tensor<8xf32>
  cond {
    %p = stablehlo.compare LT, %i, %c4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %t, %s : tensor<i32>, tensor<8xf32>, tensor<8xf32>
  }
  %o = stablehlo.add %acc, %b#1 : tensor<8xf32>
  return %y, %z, %o : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<8xf32>, %arg1: tensor<1xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<1> : tensor<i32>
//       %c_1 = stablehlo.constant dense<4> : tensor<i32>
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<8xf32>
//       %0:3 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg0, %iterArg_3 = %cst) : tensor<i32>, tensor<8xf32>, tensor<8xf32>
//       cond {
//         %4 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %4 : tensor<i1>
//       } do {
//         %4 = stablehlo.dynamic_slice %iterArg_3, %iterArg, sizes = [1] : (tensor<8xf32>, tensor<i32>) -> tensor<1xf32>
//         %5 = "disc.dim"() {dim = "7"} : () -> tensor<i32>
//         %6 = stablehlo.clamp %c, %iterArg, %5 : tensor<i32>
//         %7 = stablehlo.reshape %6 : (tensor<i32>) -> tensor<1xi32>
//         %8 = "stablehlo.scatter"(%iterArg_2, %7, %arg1) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
//         ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
//           %11 = stablehlo.add %arg2, %arg3 : tensor<f32>
//           stablehlo.return %11 : tensor<f32>
//         }) : (tensor<8xf32>, tensor<1xi32>, tensor<1xf32>) -> tensor<8xf32>
//         %9 = "stablehlo.scatter"(%iterArg_3, %7, %4) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
//         ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
//           %11 = stablehlo.add %arg2, %arg3 : tensor<f32>
//           stablehlo.return %11 : tensor<f32>
//         }) : (tensor<8xf32>, tensor<1xi32>, tensor<1xf32>) -> tensor<8xf32>
//         %10 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         stablehlo.return %10, %8, %9 : tensor<i32>, tensor<8xf32>, tensor<8xf32>
//       }
//       %1 = stablehlo.add %0#2, %arg0 : tensor<8xf32>
//       %2:3 = stablehlo.while(%iterArg = %c, %iterArg_2 = %cst, %iterArg_3 = %arg0) : tensor<i32>, tensor<8xf32>, tensor<8xf32>
//       cond {
//         %4 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %4 : tensor<i1>
//       } do {
//         %4 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         stablehlo.return %4, %iterArg_3, %iterArg_2 : tensor<i32>, tensor<8xf32>, tensor<8xf32>
//       }
//       %3 = stablehlo.add %arg0, %2#1 : tensor<8xf32>
//       return %0#1, %1, %3 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
//     }
//   }

// -----

// What turns, cuts and pads the updated array does so with the place.
func.func @main(%acc: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %v: tensor<2x4xf32>, %i: tensor<i32>, %w: tensor<1xf32>, %b: tensor<9xf32>) -> (tensor<?x4xf32>, tensor<9xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sizes = "disc.shape"() {dims = ["n", "4"]} : () -> tensor<2xi32>
  %zeros = stablehlo.dynamic_broadcast_in_dim %zero, %sizes, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x4xf32>
  %u = stablehlo.dynamic_update_slice %zeros, %v, %i, %c0 : (tensor<?x4xf32>, tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> tensor<?x4xf32>
  %r = stablehlo.reverse %u, dims = [0, 1] : tensor<?x4xf32>
  %y = stablehlo.add %acc, %r : tensor<?x4xf32>
  %eight = stablehlo.constant dense<0.0> : tensor<8xf32>
  %t = stablehlo.dynamic_update_slice %eight, %w, %i : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
  %s = stablehlo.slice %t [3:8] : (tensor<8xf32>) -> tensor<5xf32>
  %p = stablehlo.pad %s, %zero, low = [-1], high = [2], interior = [1] : (tensor<5xf32>, tensor<f32>) -> tensor<10xf32>
  %q = stablehlo.slice %p [1:10] : (tensor<10xf32>) -> tensor<9xf32>
  %z = stablehlo.add %b, %q : tensor<9xf32>
  return %y, %z : tensor<?x4xf32>, tensor<9xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %arg1: tensor<2x4xf32>, %arg2: tensor<i32>, %arg3: tensor<1xf32>, %arg4: tensor<9xf32>) -> (tensor<?x4xf32>, tensor<9xf32>) {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %0 = "disc.dim"() {dim = "min(n - 2, 2147483647)"} : () -> tensor<i32>
//       %1 = stablehlo.clamp %c, %arg2, %0 : tensor<i32>
//       %2 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
//       %3 = stablehlo.convert %2 : (tensor<1xi32>) -> tensor<1xi64>
//       %4 = "disc.dim"() {dim = "-1"} : () -> tensor<i64>
//       %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i64>) -> tensor<1xi64>
//       %6 = stablehlo.multiply %3, %5 : tensor<1xi64>
//       %7 = "disc.dim"() {dim = "n - 2"} : () -> tensor<i64>
//       %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<i64>) -> tensor<1xi64>
//       %9 = stablehlo.add %6, %8 : tensor<1xi64>
//       %10 = stablehlo.reverse %arg1, dims = [0] : tensor<2x4xf32>
//       %11 = stablehlo.reverse %10, dims = [1] : tensor<2x4xf32>
//       %12 = "stablehlo.scatter"(%arg0, %9, %11) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
//       ^bb0(%arg5: tensor<f32>, %arg6: tensor<f32>):
//         %38 = stablehlo.add %arg5, %arg6 : tensor<f32>
//         stablehlo.return %38 : tensor<f32>
//       }) : (tensor<?x4xf32>, tensor<1xi64>, tensor<2x4xf32>) -> tensor<?x4xf32>
//       %13 = "disc.dim"() {dim = "7"} : () -> tensor<i32>
//       %14 = stablehlo.clamp %c, %arg2, %13 : tensor<i32>
//       %15 = stablehlo.reshape %14 : (tensor<i32>) -> tensor<1xi32>
//       %16 = stablehlo.convert %15 : (tensor<1xi32>) -> tensor<1xi64>
//       %17 = "disc.dim"() {dim = "-3"} : () -> tensor<i64>
//       %18 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<i64>) -> tensor<1xi64>
//       %19 = stablehlo.add %16, %18 : tensor<1xi64>
//       %20 = "disc.dim"() {dim = "4"} : () -> tensor<i64>
//       %21 = stablehlo.broadcast_in_dim %20, dims = [] : (tensor<i64>) -> tensor<1xi64>
//       %c_0 = stablehlo.constant dense<0> : tensor<1xi64>
//       %22 = stablehlo.compare GE, %19, %c_0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi1>
//       %23 = stablehlo.compare LE, %19, %21 : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi1>
//       %24 = stablehlo.and %22, %23 : tensor<1xi1>
//       %c_1 = stablehlo.constant dense<-1099511627776> : tensor<1xi64>
//       %25 = stablehlo.select %24, %19, %c_1 : tensor<1xi1>, tensor<1xi64>
//       %26 = "disc.dim"() {dim = "2"} : () -> tensor<i64>
//       %27 = stablehlo.broadcast_in_dim %26, dims = [] : (tensor<i64>) -> tensor<1xi64>
//       %28 = stablehlo.multiply %25, %27 : tensor<1xi64>
//       %29 = stablehlo.add %28, %5 : tensor<1xi64>
//       %30 = "disc.dim"() {dim = "9"} : () -> tensor<i64>
//       %31 = stablehlo.broadcast_in_dim %30, dims = [] : (tensor<i64>) -> tensor<1xi64>
//       %32 = stablehlo.compare GE, %29, %c_0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi1>
//       %33 = stablehlo.compare LE, %29, %31 : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi1>
//       %34 = stablehlo.and %32, %33 : tensor<1xi1>
//       %35 = stablehlo.select %34, %29, %c_1 : tensor<1xi1>, tensor<1xi64>
//       %36 = stablehlo.add %35, %5 : tensor<1xi64>
//       %37 = "stablehlo.scatter"(%arg4, %36, %arg3) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
//       ^bb0(%arg5: tensor<f32>, %arg6: tensor<f32>):
//         %38 = stablehlo.add %arg5, %arg6 : tensor<f32>
//         stablehlo.return %38 : tensor<f32>
//       }) : (tensor<9xf32>, tensor<1xi64>, tensor<1xf32>) -> tensor<9xf32>
//       return %12, %37 : tensor<?x4xf32>, tensor<9xf32>
//     }
//   }

// -----

// Branches give out the place and the update, the other one zeros.
func.func @main(%acc: tensor<8xf32>, %v: tensor<1xf32>, %i: tensor<i32>, %k: tensor<i32>) -> (tensor<8xf32>, tensor<i32>) {
  %zeros = stablehlo.constant dense<0.0> : tensor<8xf32>
  %c:2 = "stablehlo.case"(%k) ({
    stablehlo.return %zeros, %i : tensor<8xf32>, tensor<i32>
  }, {
    %u = stablehlo.dynamic_update_slice %zeros, %v, %i : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
    stablehlo.return %u, %k : tensor<8xf32>, tensor<i32>
  }) : (tensor<i32>) -> (tensor<8xf32>, tensor<i32>)
  %y = stablehlo.add %c#0, %acc : tensor<8xf32>
  return %y, %c#1 : tensor<8xf32>, tensor<i32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<8xf32>, %arg1: tensor<1xf32>, %arg2: tensor<i32>, %arg3: tensor<i32>) -> (tensor<8xf32>, tensor<i32>) {
//       %0:2 = "stablehlo.case"(%arg3) ({
//         stablehlo.return %arg0, %arg2 : tensor<8xf32>, tensor<i32>
//       }, {
//         %c = stablehlo.constant dense<0> : tensor<i32>
//         %1 = "disc.dim"() {dim = "7"} : () -> tensor<i32>
//         %2 = stablehlo.clamp %c, %arg2, %1 : tensor<i32>
//         %3 = stablehlo.reshape %2 : (tensor<i32>) -> tensor<1xi32>
//         %4 = "stablehlo.scatter"(%arg0, %3, %arg1) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
//         ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
//           %5 = stablehlo.add %arg4, %arg5 : tensor<f32>
//           stablehlo.return %5 : tensor<f32>
//         }) : (tensor<8xf32>, tensor<1xi32>, tensor<1xf32>) -> tensor<8xf32>
//         stablehlo.return %4, %arg3 : tensor<8xf32>, tensor<i32>
//       }) : (tensor<i32>) -> (tensor<8xf32>, tensor<i32>)
//       return %0#0, %0#1 : tensor<8xf32>, tensor<i32>
//     }
//   }

// -----

// Refused: a window of two elements that a slice may cut, and branches of which one has all of an array.
func.func @main(%acc: tensor<6xf32>, %v: tensor<2xf32>, %i: tensor<i32>, %k: tensor<i32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %zeros = stablehlo.constant dense<0.0> : tensor<8xf32>
  %u = stablehlo.dynamic_update_slice %zeros, %v, %i : (tensor<8xf32>, tensor<2xf32>, tensor<i32>) -> tensor<8xf32>
  %s = stablehlo.slice %u [1:7] : (tensor<8xf32>) -> tensor<6xf32>
  %y = stablehlo.add %acc, %s : tensor<6xf32>
  %c = "stablehlo.case"(%k) ({
    stablehlo.return %s : tensor<6xf32>
  }, {
    stablehlo.return %acc : tensor<6xf32>
  }) : (tensor<i32>) -> tensor<6xf32>
  %z = stablehlo.add %c, %acc : tensor<6xf32>
  return %y, %z : tensor<6xf32>, tensor<6xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<6xf32>, %arg1: tensor<2xf32>, %arg2: tensor<i32>, %arg3: tensor<i32>) -> (tensor<6xf32>, tensor<6xf32>) {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<8xf32>
//       %0 = stablehlo.dynamic_update_slice %cst, %arg1, %arg2 : (tensor<8xf32>, tensor<2xf32>, tensor<i32>) -> tensor<8xf32>
//       %1 = stablehlo.slice %0 [1:7] : (tensor<8xf32>) -> tensor<6xf32>
//       %2 = stablehlo.add %arg0, %1 : tensor<6xf32>
//       %3 = "stablehlo.case"(%arg3) ({
//         stablehlo.return %1 : tensor<6xf32>
//       }, {
//         stablehlo.return %arg0 : tensor<6xf32>
//       }) : (tensor<i32>) -> tensor<6xf32>
//       %4 = stablehlo.add %3, %arg0 : tensor<6xf32>
//       return %2, %4 : tensor<6xf32>, tensor<6xf32>
//     }
//   }

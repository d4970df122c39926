// RUN: disc-opt %s --pass-pipeline=fold-scatters --split-input-file | expect

// scatter_add(0, i[:, None].expand(-1, 64), x), as PyTorch has it.
func.func @main(%x: tensor<9x64xf32>, %i: tensor<?xi64> {disc.shape = ["n"]}, %u: tensor<?x64xf32> {disc.shape = ["n", "64"]}) -> tensor<9x64xf32> {
  %rows = "disc.shape"() {dims = ["n", "64"]} : () -> tensor<2xi64>
  %column = "disc.shape"() {dims = ["n", "64", "1"]} : () -> tensor<3xi64>
  %wide = stablehlo.dynamic_broadcast_in_dim %i, %rows, dims = [0] : (tensor<?xi64>, tensor<2xi64>) -> tensor<?x64xi64>
  %a = stablehlo.dynamic_reshape %wide, %column : (tensor<?x64xi64>, tensor<3xi64>) -> tensor<?x64x1xi64>
  %b = stablehlo.dynamic_iota %column, dim = 1 : (tensor<3xi64>) -> tensor<?x64x1xi64>
  %places = stablehlo.concatenate %a, %b, dim = 2 : (tensor<?x64x1xi64>, tensor<?x64x1xi64>) -> tensor<?x64x2xi64>
  %y = "stablehlo.scatter"(%x, %places, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    %sum = stablehlo.add %old, %new : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<9x64xf32>, tensor<?x64x2xi64>, tensor<?x64xf32>) -> tensor<9x64xf32>
  return %y : tensor<9x64xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x64xf32>, %arg1: tensor<?xi64> {disc.shape = ["n"]}, %arg2: tensor<?x64xf32> {disc.shape = ["n", "64"]}) -> tensor<9x64xf32> {
//       %0 = "disc.shape"() {dims = ["n"]} : () -> tensor<1xi64>
//       %1 = stablehlo.dynamic_broadcast_in_dim %arg1, %0, dims = [0] : (tensor<?xi64>, tensor<1xi64>) -> tensor<?xi64>
//       %2 = "disc.shape"() {dims = ["n", "1"]} : () -> tensor<2xi64>
//       %3 = stablehlo.dynamic_reshape %1, %2 : (tensor<?xi64>, tensor<2xi64>) -> tensor<?x1xi64>
//       %4 = "stablehlo.scatter"(%arg0, %3, %arg2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
//       ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
//         %5 = stablehlo.add %arg3, %arg4 : tensor<f32>
//         stablehlo.return %5 : tensor<f32>
//       }) : (tensor<9x64xf32>, tensor<?x1xi64>, tensor<?x64xf32>) -> tensor<9x64xf32>
//       return %4 : tensor<9x64xf32>
//     }
//   }

// -----

// x.at[i[:, None], arange(3)], as JAX has it: negative indices count from behind.
func.func @main(%x: tensor<9x3xf32>, %i: tensor<5x1xi32>, %u: tensor<5x3xf32>) -> tensor<9x3xf32> {
  %counts = stablehlo.constant dense<[[0, 1, 2]]> : tensor<1x3xi32>
  %none = stablehlo.constant dense<0> : tensor<1x3xi32>
  %all = stablehlo.constant dense<3> : tensor<1x3xi32>
  %is_below = stablehlo.compare LT, %counts, %none, SIGNED : (tensor<1x3xi32>, tensor<1x3xi32>) -> tensor<1x3xi1>
  %above = stablehlo.add %counts, %all : tensor<1x3xi32>
  %wrapped = stablehlo.select %is_below, %above, %counts : tensor<1x3xi1>, tensor<1x3xi32>
  %a = stablehlo.broadcast_in_dim %i, dims = [0, 1] : (tensor<5x1xi32>) -> tensor<5x3x1xi32>
  %b = stablehlo.broadcast_in_dim %wrapped, dims = [2, 1] : (tensor<1x3xi32>) -> tensor<5x3x1xi32>
  %places = stablehlo.concatenate %a, %b, dim = 2 : (tensor<5x3x1xi32>, tensor<5x3x1xi32>) -> tensor<5x3x2xi32>
  %y = "stablehlo.scatter"(%x, %places, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<9x3xf32>, tensor<5x3x2xi32>, tensor<5x3xf32>) -> tensor<9x3xf32>
  return %y : tensor<9x3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x3xf32>, %arg1: tensor<5x1xi32>, %arg2: tensor<5x3xf32>) -> tensor<9x3xf32> {
//       %0 = stablehlo.reshape %arg1 : (tensor<5x1xi32>) -> tensor<5xi32>
//       %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
//       %2 = "stablehlo.scatter"(%arg0, %1, %arg2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
//       ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
//         stablehlo.return %arg4 : tensor<f32>
//       }) : (tensor<9x3xf32>, tensor<5x1xi32>, tensor<5x3xf32>) -> tensor<9x3xf32>
//       return %2 : tensor<9x3xf32>
//     }
//   }

// -----

// More elements than the operand has: those are dropped, a window would be dropped as a whole.
func.func @main(%x: tensor<9x3xf32>, %i: tensor<5xi32>, %u: tensor<5x4xf32>) -> tensor<9x3xf32> {
  %a = stablehlo.broadcast_in_dim %i, dims = [0] : (tensor<5xi32>) -> tensor<5x4x1xi32>
  %b = stablehlo.iota dim = 1 : tensor<5x4x1xi32>
  %places = stablehlo.concatenate %a, %b, dim = 2 : (tensor<5x4x1xi32>, tensor<5x4x1xi32>) -> tensor<5x4x2xi32>
  %y = "stablehlo.scatter"(%x, %places, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<9x3xf32>, tensor<5x4x2xi32>, tensor<5x4xf32>) -> tensor<9x3xf32>
  return %y : tensor<9x3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x3xf32>, %arg1: tensor<5xi32>, %arg2: tensor<5x4xf32>) -> tensor<9x3xf32> {
//       %0 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<5xi32>) -> tensor<5x4x1xi32>
//       %1 = stablehlo.iota dim = 1 : tensor<5x4x1xi32>
//       %2 = stablehlo.concatenate %0, %1, dim = 2 : (tensor<5x4x1xi32>, tensor<5x4x1xi32>) -> tensor<5x4x2xi32>
//       %3 = "stablehlo.scatter"(%arg0, %2, %arg2) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
//       ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
//         stablehlo.return %arg4 : tensor<f32>
//       }) : (tensor<9x3xf32>, tensor<5x4x2xi32>, tensor<5x4xf32>) -> tensor<9x3xf32>
//       return %3 : tensor<9x3xf32>
//     }
//   }

// -----

// Windows whose dimensions are in another order, and rows that have another place in each column.
func.func @main(%x: tensor<9x3xf32>, %i: tensor<5xi32>, %j: tensor<5x3xi32>, %w: tensor<5x3xf32>) -> (tensor<2x9x3xf32>, tensor<9x3xf32>) {
  %zeros = stablehlo.constant dense<0.0> : tensor<2x9x3xf32>
  %two = stablehlo.constant dense<1.0> : tensor<3x5x2xf32>
  %a = stablehlo.broadcast_in_dim %i, dims = [1] : (tensor<5xi32>) -> tensor<3x5x1xi32>
  %b = stablehlo.iota dim = 0 : tensor<3x5x1xi32>
  %places = stablehlo.concatenate %a, %b, dim = 2 : (tensor<3x5x1xi32>, tensor<3x5x1xi32>) -> tensor<3x5x2xi32>
  %y = "stablehlo.scatter"(%zeros, %places, %two) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [1, 2], scatter_dims_to_operand_dims = [1, 2], index_vector_dim = 2>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<2x9x3xf32>, tensor<3x5x2xi32>, tensor<3x5x2xf32>) -> tensor<2x9x3xf32>
  %c = stablehlo.reshape %j : (tensor<5x3xi32>) -> tensor<5x3x1xi32>
  %d = stablehlo.iota dim = 1 : tensor<5x3x1xi32>
  %each = stablehlo.concatenate %c, %d, dim = 2 : (tensor<5x3x1xi32>, tensor<5x3x1xi32>) -> tensor<5x3x2xi32>
  %z = "stablehlo.scatter"(%x, %each, %w) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<9x3xf32>, tensor<5x3x2xi32>, tensor<5x3xf32>) -> tensor<9x3xf32>
  return %y, %z : tensor<2x9x3xf32>, tensor<9x3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x3xf32>, %arg1: tensor<5xi32>, %arg2: tensor<5x3xi32>, %arg3: tensor<5x3xf32>) -> (tensor<2x9x3xf32>, tensor<9x3xf32>) {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<2x9x3xf32>
//       %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<3x5x2xf32>
//       %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<5xi32>) -> tensor<3x5x1xi32>
//       %1 = "stablehlo.scatter"(%cst, %0, %cst_0) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [1], input_batching_dims = [2], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}> ({
//       ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
//         stablehlo.return %arg5 : tensor<f32>
//       }) : (tensor<2x9x3xf32>, tensor<3x5x1xi32>, tensor<3x5x2xf32>) -> tensor<2x9x3xf32>
//       %2 = stablehlo.reshape %arg2 : (tensor<5x3xi32>) -> tensor<5x3x1xi32>
//       %3 = stablehlo.iota dim = 1 : tensor<5x3x1xi32>
//       %4 = stablehlo.concatenate %2, %3, dim = 2 : (tensor<5x3x1xi32>, tensor<5x3x1xi32>) -> tensor<5x3x2xi32>
//       %5 = "stablehlo.scatter"(%arg0, %4, %arg3) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
//       ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
//         stablehlo.return %arg5 : tensor<f32>
//       }) : (tensor<9x3xf32>, tensor<5x3x2xi32>, tensor<5x3xf32>) -> tensor<9x3xf32>
//       return %1, %5 : tensor<2x9x3xf32>, tensor<9x3xf32>
//     }
//   }

// -----

// What counts ones never decreases; numbers that were widened are read as they are.
func.func @main(%x: tensor<9x3xf32>, %starts: tensor<?x1xi64> {disc.shape = ["b", "1"]}, %u: tensor<7x3xf32>) -> tensor<9x3xf32> {
  %zeros = stablehlo.constant dense<0> : tensor<7xi32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %count = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi64>
  %ones = stablehlo.dynamic_broadcast_in_dim %one, %count, dims = [] : (tensor<i32>, tensor<1xi64>) -> tensor<?xi32>
  %counts = "stablehlo.scatter"(%zeros, %starts, %ones) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%old: tensor<i32>, %new: tensor<i32>):
    %sum = stablehlo.add %old, %new : tensor<i32>
    stablehlo.return %sum : tensor<i32>
  }) : (tensor<7xi32>, tensor<?x1xi64>, tensor<?xi32>) -> tensor<7xi32>
  %bags = "disc.scan"(%counts, %none) ({
  ^bb0(%old: tensor<i32>, %new: tensor<i32>):
    %sum = stablehlo.add %old, %new : tensor<i32>
    stablehlo.return %sum : tensor<i32>
  }) {dimension = 0 : i64, reverse = false} : (tensor<7xi32>, tensor<i32>) -> tensor<7xi32>
  %wide = stablehlo.convert %bags : (tensor<7xi32>) -> tensor<7xi64>
  %places = stablehlo.reshape %wide : (tensor<7xi64>) -> tensor<7x1xi64>
  %y = "stablehlo.scatter"(%x, %places, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<9x3xf32>, tensor<7x1xi64>, tensor<7x3xf32>) -> tensor<9x3xf32>
  return %y : tensor<9x3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x3xf32>, %arg1: tensor<?x1xi64> {disc.shape = ["b", "1"]}, %arg2: tensor<7x3xf32>) -> tensor<9x3xf32> {
//       %c = stablehlo.constant dense<0> : tensor<7xi32>
//       %c_0 = stablehlo.constant dense<1> : tensor<i32>
//       %c_1 = stablehlo.constant dense<0> : tensor<i32>
//       %0 = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi64>
//       %1 = stablehlo.dynamic_broadcast_in_dim %c_0, %0, dims = [] : (tensor<i32>, tensor<1xi64>) -> tensor<?xi32>
//       %2 = "stablehlo.scatter"(%c, %arg1, %1) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
//       ^bb0(%arg3: tensor<i32>, %arg4: tensor<i32>):
//         %6 = stablehlo.add %arg3, %arg4 : tensor<i32>
//         stablehlo.return %6 : tensor<i32>
//       }) : (tensor<7xi32>, tensor<?x1xi64>, tensor<?xi32>) -> tensor<7xi32>
//       %3 = "disc.scan"(%2, %c_1) ({
//       ^bb0(%arg3: tensor<i32>, %arg4: tensor<i32>):
//         %6 = stablehlo.add %arg3, %arg4 : tensor<i32>
//         stablehlo.return %6 : tensor<i32>
//       }) {dimension = 0 : i64, reverse = false} : (tensor<7xi32>, tensor<i32>) -> tensor<7xi32>
//       %4 = stablehlo.reshape %3 : (tensor<7xi32>) -> tensor<7x1xi32>
//       %5 = "stablehlo.scatter"(%arg0, %4, %arg2) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
//       ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
//         stablehlo.return %arg4 : tensor<f32>
//       }) : (tensor<9x3xf32>, tensor<7x1xi32>, tensor<7x3xf32>) -> tensor<9x3xf32>
//       return %5 : tensor<9x3xf32>
//     }
//   }

// -----

// x.at[0].set(v), of one element at least.
func.func @main(%x: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %v: tensor<4xf32>) -> tensor<?x4xf32> {
  %first = stablehlo.constant dense<0> : tensor<1xi32>
  %y = "stablehlo.scatter"(%x, %first, %v) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<?x4xf32>, tensor<1xi32>, tensor<4xf32>) -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %arg1: tensor<4xf32>) -> tensor<?x4xf32> {
//       %0 = stablehlo.reshape %arg1 : (tensor<4xf32>) -> tensor<1x4xf32>
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %1 = stablehlo.dynamic_update_slice %arg0, %0, %c, %c : (tensor<?x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<?x4xf32>
//       return %1 : tensor<?x4xf32>
//     }
//   }

// -----

// The last place of what was rolled: one of two pieces.
func.func @main(%x: tensor<?xf32> {disc.shape = ["n"]}, %v: tensor<f32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %n = "disc.shape"() {dims = ["n"]} : () -> tensor<1xi32>
  %last = "disc.sizes"() {dims = ["n - 1"]} : () -> tensor<1xi32>
  %head = stablehlo.real_dynamic_slice %x, %zero, %one, %one : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %rest = stablehlo.real_dynamic_slice %x, %one, %n, %one : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %rolled = stablehlo.concatenate %rest, %head, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %y = "stablehlo.scatter"(%rolled, %last, %v) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<?xf32>, tensor<1xi32>, tensor<f32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["n"]}, %arg1: tensor<f32>) -> tensor<?xf32> {
//       %c = stablehlo.constant dense<1> : tensor<1xi32>
//       %0 = "disc.shape"() {dims = ["n"]} : () -> tensor<1xi32>
//       %1 = stablehlo.real_dynamic_slice %arg0, %c, %0, %c : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
//       %2 = stablehlo.reshape %arg1 : (tensor<f32>) -> tensor<1xf32>
//       %3 = stablehlo.concatenate %1, %2, dim = 0 : (tensor<?xf32>, tensor<1xf32>) -> tensor<?xf32>
//       return %3 : tensor<?xf32>
//     }
//   }

// -----

// Refused: there may be no third element; and a sum is not set.
func.func @main(%x: tensor<?xf32> {disc.shape = ["n"]}, %v: tensor<f32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %third = stablehlo.constant dense<2> : tensor<1xi32>
  %y = "stablehlo.scatter"(%x, %third, %v) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<?xf32>, tensor<1xi32>, tensor<f32>) -> tensor<?xf32>
  %z = "stablehlo.scatter"(%x, %zero, %v) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    %sum = stablehlo.add %old, %new : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<?xf32>, tensor<1xi32>, tensor<f32>) -> tensor<?xf32>
  return %y, %z : tensor<?xf32>, tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["n"]}, %arg1: tensor<f32>) -> (tensor<?xf32>, tensor<?xf32>) {
//       %c = stablehlo.constant dense<0> : tensor<1xi32>
//       %c_0 = stablehlo.constant dense<2> : tensor<1xi32>
//       %0 = "stablehlo.scatter"(%arg0, %c_0, %arg1) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
//       ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
//         stablehlo.return %arg3 : tensor<f32>
//       }) : (tensor<?xf32>, tensor<1xi32>, tensor<f32>) -> tensor<?xf32>
//       %1 = "stablehlo.scatter"(%arg0, %c, %arg1) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
//       ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
//         %2 = stablehlo.add %arg2, %arg3 : tensor<f32>
//         stablehlo.return %2 : tensor<f32>
//       }) : (tensor<?xf32>, tensor<1xi32>, tensor<f32>) -> tensor<?xf32>
//       return %0, %1 : tensor<?xf32>, tensor<?xf32>
//     }
//   }

// -----

// x.scatter_add(1, i, u), as PyTorch has it: a batch for each row. Not where the operand has more rows.
func.func @main(%x: tensor<?x16xf32> {disc.shape = ["n", "16"]}, %i: tensor<?x4xi64> {disc.shape = ["n", "4"]}, %u: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %w: tensor<?x16xf32> {disc.shape = ["n + 1", "16"]}) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
  %column = "disc.shape"() {dims = ["n", "4", "1"]} : () -> tensor<3xi64>
  %a = stablehlo.dynamic_iota %column, dim = 0 : (tensor<3xi64>) -> tensor<?x4x1xi64>
  %b = stablehlo.dynamic_reshape %i, %column : (tensor<?x4xi64>, tensor<3xi64>) -> tensor<?x4x1xi64>
  %places = stablehlo.concatenate %a, %b, dim = 2 : (tensor<?x4x1xi64>, tensor<?x4x1xi64>) -> tensor<?x4x2xi64>
  %y = "stablehlo.scatter"(%x, %places, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    %sum = stablehlo.add %old, %new : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<?x16xf32>, tensor<?x4x2xi64>, tensor<?x4xf32>) -> tensor<?x16xf32>
  %z = "stablehlo.scatter"(%w, %places, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    %sum = stablehlo.add %old, %new : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<?x16xf32>, tensor<?x4x2xi64>, tensor<?x4xf32>) -> tensor<?x16xf32>
  return %y, %z : tensor<?x16xf32>, tensor<?x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x16xf32> {disc.shape = ["n", "16"]}, %arg1: tensor<?x4xi64> {disc.shape = ["n", "4"]}, %arg2: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %arg3: tensor<?x16xf32> {disc.shape = ["n + 1", "16"]}) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
//       %0 = "disc.shape"() {dims = ["n", "4", "1"]} : () -> tensor<3xi64>
//       %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<3xi64>) -> tensor<?x4x1xi64>
//       %2 = stablehlo.dynamic_reshape %arg1, %0 : (tensor<?x4xi64>, tensor<3xi64>) -> tensor<?x4x1xi64>
//       %3 = stablehlo.concatenate %1, %2, dim = 2 : (tensor<?x4x1xi64>, tensor<?x4x1xi64>) -> tensor<?x4x2xi64>
//       %4 = "stablehlo.scatter"(%arg0, %2, %arg2) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}> ({
//       ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
//         %6 = stablehlo.add %arg4, %arg5 : tensor<f32>
//         stablehlo.return %6 : tensor<f32>
//       }) : (tensor<?x16xf32>, tensor<?x4x1xi64>, tensor<?x4xf32>) -> tensor<?x16xf32>
//       %5 = "stablehlo.scatter"(%arg3, %3, %arg2) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
//       ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
//         %6 = stablehlo.add %arg4, %arg5 : tensor<f32>
//         stablehlo.return %6 : tensor<f32>
//       }) : (tensor<?x16xf32>, tensor<?x4x2xi64>, tensor<?x4xf32>) -> tensor<?x16xf32>
//       return %4, %5 : tensor<?x16xf32>, tensor<?x16xf32>
//     }
//   }

// RUN: disc-opt %s --pass-pipeline=fold-selects --split-input-file | expect

// Places of what is not chosen are outside: a window is skipped there.
module @scatter {
  func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}, %p: tensor<i1>, %k: tensor<1xi32>, %v: tensor<f32>) -> tensor<?xf32> {
    %0 = "disc.shape"() {dims = ["n"]} : () -> tensor<1xi32>
    %1 = stablehlo.dynamic_broadcast_in_dim %p, %0, dims = [] : (tensor<i1>, tensor<1xi32>) -> tensor<?xi1>
    %2 = "stablehlo.scatter"(%x, %k, %v) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      stablehlo.return %b : tensor<f32>
    }) : (tensor<?xf32>, tensor<1xi32>, tensor<f32>) -> tensor<?xf32>
    %3 = stablehlo.select %1, %x, %2 : tensor<?xi1>, tensor<?xf32>
    return %3 : tensor<?xf32>
  }
}
// EXPECT:
//   module @scatter {
//     func.func public @main(%arg0: tensor<?xf32> {disc.shape = ["n"]}, %arg1: tensor<i1>, %arg2: tensor<1xi32>, %arg3: tensor<f32>) -> tensor<?xf32> {
//       %c = stablehlo.constant dense<-1> : tensor<1xi32>
//       %0 = stablehlo.select %arg1, %c, %arg2 : tensor<i1>, tensor<1xi32>
//       %1 = "stablehlo.scatter"(%arg0, %0, %arg3) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
//       ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
//         stablehlo.return %arg5 : tensor<f32>
//       }) : (tensor<?xf32>, tensor<1xi32>, tensor<f32>) -> tensor<?xf32>
//       return %1 : tensor<?xf32>
//     }
//   }

// -----

// A start would be clamped, so what is there is written; rows are chosen one by one.
module @slice_of_rows {
  func.func public @main(%x: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %p: tensor<8xi1>, %i: tensor<i32>, %v: tensor<2x8xf32>) -> tensor<?x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = "disc.shape"() {dims = ["n", "8"]} : () -> tensor<2xi32>
    %1 = stablehlo.dynamic_broadcast_in_dim %p, %0, dims = [1] : (tensor<8xi1>, tensor<2xi32>) -> tensor<?x8xi1>
    %2 = stablehlo.dynamic_update_slice %x, %v, %i, %c : (tensor<?x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<?x8xf32>
    %3 = stablehlo.select %1, %2, %x : tensor<?x8xi1>, tensor<?x8xf32>
    return %3 : tensor<?x8xf32>
  }
}
// EXPECT:
//   module @slice_of_rows {
//     func.func public @main(%arg0: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %arg1: tensor<8xi1>, %arg2: tensor<i32>, %arg3: tensor<2x8xf32>) -> tensor<?x8xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %0 = stablehlo.dynamic_slice %arg0, %arg2, %c, sizes = [2, 8] : (tensor<?x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
//       %1 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<8xi1>) -> tensor<2x8xi1>
//       %2 = stablehlo.select %1, %arg3, %0 : tensor<2x8xi1>, tensor<2x8xf32>
//       %3 = stablehlo.dynamic_update_slice %arg0, %2, %arg2, %c : (tensor<?x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<?x8xf32>
//       return %3 : tensor<?x8xf32>
//     }
//   }

// -----

// The choice goes along a dimension that the update has a part of.
module @part_of_a_choice {
  func.func public @main(%x: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %p: tensor<?xi1> {disc.shape = ["n"]}, %i: tensor<i32>, %v: tensor<2x8xf32>) -> tensor<?x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = "disc.shape"() {dims = ["n", "8"]} : () -> tensor<2xi32>
    %1 = stablehlo.dynamic_broadcast_in_dim %p, %0, dims = [0] : (tensor<?xi1>, tensor<2xi32>) -> tensor<?x8xi1>
    %2 = stablehlo.dynamic_update_slice %x, %v, %i, %c : (tensor<?x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<?x8xf32>
    %3 = stablehlo.select %1, %2, %x : tensor<?x8xi1>, tensor<?x8xf32>
    return %3 : tensor<?x8xf32>
  }
}
// EXPECT:
//   module @part_of_a_choice {
//     func.func public @main(%arg0: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %arg1: tensor<?xi1> {disc.shape = ["n"]}, %arg2: tensor<i32>, %arg3: tensor<2x8xf32>) -> tensor<?x8xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %0 = "disc.shape"() {dims = ["n", "8"]} : () -> tensor<2xi32>
//       %1 = stablehlo.dynamic_broadcast_in_dim %arg1, %0, dims = [0] : (tensor<?xi1>, tensor<2xi32>) -> tensor<?x8xi1>
//       %2 = stablehlo.dynamic_update_slice %arg0, %arg3, %arg2, %c : (tensor<?x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<?x8xf32>
//       %3 = stablehlo.select %1, %2, %arg0 : tensor<?x8xi1>, tensor<?x8xf32>
//       return %3 : tensor<?x8xf32>
//     }
//   }

// -----

// A derivative: what a step changes, and what it leaves; the first is set to 0 where it was written.
module @sum_of_both_sides {
  func.func public @main(%g: tensor<?xf32> {disc.shape = ["n"]}, %p: tensor<i1>, %k: tensor<1xi32>) -> (tensor<?xf32>, tensor<1xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %zero = stablehlo.constant dense<0.000000e+00> : tensor<1xf32>
    %0 = "disc.shape"() {dims = ["n"]} : () -> tensor<1xi32>
    %zeros = stablehlo.dynamic_broadcast_in_dim %cst, %0, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
    %1 = stablehlo.select %p, %g, %zeros : tensor<i1>, tensor<?xf32>
    %2 = stablehlo.select %p, %zeros, %g : tensor<i1>, tensor<?xf32>
    %3 = stablehlo.reshape %k : (tensor<1xi32>) -> tensor<i32>
    %4 = stablehlo.dynamic_update_slice %1, %zero, %3 : (tensor<?xf32>, tensor<1xf32>, tensor<i32>) -> tensor<?xf32>
    %5 = stablehlo.add %2, %4 : tensor<?xf32>
    %6 = stablehlo.dynamic_slice %1, %3, sizes = [1] : (tensor<?xf32>, tensor<i32>) -> tensor<1xf32>
    return %5, %6 : tensor<?xf32>, tensor<1xf32>
  }
}
// EXPECT:
//   module @sum_of_both_sides {
//     func.func public @main(%arg0: tensor<?xf32> {disc.shape = ["n"]}, %arg1: tensor<i1>, %arg2: tensor<1xi32>) -> (tensor<?xf32>, tensor<1xf32>) {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<1xf32>
//       %0 = stablehlo.reshape %arg2 : (tensor<1xi32>) -> tensor<i32>
//       %1 = stablehlo.dynamic_slice %arg0, %0, sizes = [1] : (tensor<?xf32>, tensor<i32>) -> tensor<1xf32>
//       %2 = stablehlo.select %arg1, %cst, %1 : tensor<i1>, tensor<1xf32>
//       %3 = stablehlo.dynamic_update_slice %arg0, %2, %0 : (tensor<?xf32>, tensor<1xf32>, tensor<i32>) -> tensor<?xf32>
//       %4 = stablehlo.select %arg1, %1, %cst : tensor<i1>, tensor<1xf32>
//       return %3, %4 : tensor<?xf32>, tensor<1xf32>
//     }
//   }

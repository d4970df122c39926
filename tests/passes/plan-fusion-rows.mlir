// RUN: disc-opt %s --pass-pipeline=cleanup,plan-fusion --split-input-file | expect

// Softmax is one row fusion: two reductions and what is between and behind them.
func.func public @main(%x: tensor<?x64xf32> {disc.shape = ["b", "64"]}) -> tensor<?x64xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["b", "64"]} : () -> tensor<2xi32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<?x64xf32>, tensor<f32>) -> tensor<?xf32>
  %mb = stablehlo.dynamic_broadcast_in_dim %m, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x64xf32>
  %d = stablehlo.subtract %x, %mb : tensor<?x64xf32>
  %e = stablehlo.exponential %d : tensor<?x64xf32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x64xf32>, tensor<f32>) -> tensor<?xf32>
  %tb = stablehlo.dynamic_broadcast_in_dim %t, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x64xf32>
  %y = stablehlo.divide %e, %tb : tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x64xf32> {disc.shape = ["b", "64"]}) -> tensor<?x64xf32> {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?x64xf32>):
//         %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
//         %1 = stablehlo.reduce(%arg1 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<?x64xf32>, tensor<f32>) -> tensor<?xf32>
//         %2 = "disc.shape"() {dims = ["b", "64"]} : () -> tensor<2xi32>
//         %3 = stablehlo.dynamic_broadcast_in_dim %1, %2, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x64xf32>
//         %4 = stablehlo.subtract %arg1, %3 : tensor<?x64xf32>
//         %5 = stablehlo.exponential %4 : tensor<?x64xf32>
//         %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %6 = stablehlo.reduce(%5 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<?x64xf32>, tensor<f32>) -> tensor<?xf32>
//         %7 = stablehlo.dynamic_broadcast_in_dim %6, %2, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x64xf32>
//         %8 = stablehlo.divide %5, %7 : tensor<?x64xf32>
//         "disc.yield"(%8) : (tensor<?x64xf32>) -> ()
//       }) {kind = "row", name = "reduce_subtract_exponential_divide", reduced = array<i64: 1>, why = ["fused: 4 values never stored, 1040*b bytes less to move"]} : (tensor<?x64xf32>) -> tensor<?x64xf32>
//       return %0 : tensor<?x64xf32>
//     }
//   }

// -----

// A mask computed from indices is computed where it is used.
func.func public @main(%x: tensor<?x?x?xf32> {disc.shape = ["b", "t", "t"]}) -> tensor<?x?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %square = "disc.shape"() {dims = ["t", "t"]} : () -> tensor<2xi32>
  %shape = "disc.shape"() {dims = ["b", "t", "t"]} : () -> tensor<3xi32>
  %i = stablehlo.dynamic_iota %square, dim = 0 : (tensor<2xi32>) -> tensor<?x?xi32>
  %j = stablehlo.dynamic_iota %square, dim = 1 : (tensor<2xi32>) -> tensor<?x?xi32>
  %c = stablehlo.compare GE, %i, %j : (tensor<?x?xi32>, tensor<?x?xi32>) -> tensor<?x?xi1>
  %mask = stablehlo.dynamic_broadcast_in_dim %c, %shape, dims = [1, 2] : (tensor<?x?xi1>, tensor<3xi32>) -> tensor<?x?x?xi1>
  %low = stablehlo.dynamic_broadcast_in_dim %zero, %shape, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x?xf32>
  %y = stablehlo.select %mask, %x, %low : tensor<?x?x?xi1>, tensor<?x?x?xf32>
  %sum = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<?x?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
  return %sum : tensor<?x?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x?x?xf32> {disc.shape = ["b", "t", "t"]}) -> tensor<?x?xf32> {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?x?x?xf32>):
//         %1 = "disc.shape"() {dims = ["t", "t"]} : () -> tensor<2xi32>
//         %2 = stablehlo.dynamic_iota %1, dim = 0 : (tensor<2xi32>) -> tensor<?x?xi32>
//         %3 = stablehlo.dynamic_iota %1, dim = 1 : (tensor<2xi32>) -> tensor<?x?xi32>
//         %4 = stablehlo.compare GE, %2, %3 : (tensor<?x?xi32>, tensor<?x?xi32>) -> tensor<?x?xi1>
//         %5 = "disc.shape"() {dims = ["b", "t", "t"]} : () -> tensor<3xi32>
//         %6 = stablehlo.dynamic_broadcast_in_dim %4, %5, dims = [1, 2] : (tensor<?x?xi1>, tensor<3xi32>) -> tensor<?x?x?xi1>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %7 = stablehlo.dynamic_broadcast_in_dim %cst, %5, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x?xf32>
//         %8 = stablehlo.select %6, %arg1, %7 : tensor<?x?x?xi1>, tensor<?x?x?xf32>
//         %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<?x?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
//         "disc.yield"(%9) : (tensor<?x?xf32>) -> ()
//       }) {kind = "row", name = "select_reduce", reduced = array<i64: 2>, why = ["fused: 1 value never stored, 8*b*t^2 bytes less to move"]} : (tensor<?x?x?xf32>) -> tensor<?x?xf32>
//       return %0 : tensor<?x?xf32>
//     }
//   }

// -----

// Channels first, the rows are in parts: one kernel, too.
func.func @main(%x: tensor<?x64x?xf32> {disc.shape = ["n", "64", "p"]}) -> tensor<?x64x?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["n", "64", "p"]} : () -> tensor<3xi64>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 2] : (tensor<?x64x?xf32>, tensor<f32>) -> tensor<64xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1] : (tensor<64xf32>, tensor<3xi64>) -> tensor<?x64x?xf32>
  %y = stablehlo.subtract %x, %b : tensor<?x64x?xf32>
  return %y : tensor<?x64x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x64x?xf32> {disc.shape = ["n", "64", "p"]}) -> tensor<?x64x?xf32> {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?x64x?xf32>):
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %1 = stablehlo.reduce(%arg1 init: %cst) applies stablehlo.add across dimensions = [0, 2] : (tensor<?x64x?xf32>, tensor<f32>) -> tensor<64xf32>
//         %2 = "disc.shape"() {dims = ["n", "64", "p"]} : () -> tensor<3xi64>
//         %3 = stablehlo.dynamic_broadcast_in_dim %1, %2, dims = [1] : (tensor<64xf32>, tensor<3xi64>) -> tensor<?x64x?xf32>
//         %4 = stablehlo.subtract %arg1, %3 : tensor<?x64x?xf32>
//         "disc.yield"(%4) : (tensor<?x64x?xf32>) -> ()
//       }) {kind = "row", name = "reduce_subtract", reduced = array<i64: 0, 2>, why = ["fused: 1 value never stored, 512 bytes less to move"]} : (tensor<?x64x?xf32>) -> tensor<?x64x?xf32>
//       return %0 : tensor<?x64x?xf32>
//     }
//   }

// -----

// What reads a row cluster's values in other dimensions is in its kernel: a group-norm and the gain
// behind it.
func.func @main(%x: tensor<?x?xf32> {disc.shape = ["n", "4*p"]}, %g: tensor<4xf32>) -> tensor<?x4x?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["n", "4*p"]} : () -> tensor<2xi64>
  %t = "disc.shape"() {dims = ["n", "4", "p"]} : () -> tensor<3xi64>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [0] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  %c = stablehlo.subtract %x, %b : tensor<?x?xf32>
  %r = stablehlo.dynamic_reshape %c, %t : (tensor<?x?xf32>, tensor<3xi64>) -> tensor<?x4x?xf32>
  %h = stablehlo.dynamic_broadcast_in_dim %g, %t, dims = [1] : (tensor<4xf32>, tensor<3xi64>) -> tensor<?x4x?xf32>
  %y = stablehlo.multiply %r, %h : tensor<?x4x?xf32>
  return %y : tensor<?x4x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?xf32> {disc.shape = ["n", "4*p"]}, %arg1: tensor<4xf32>) -> tensor<?x4x?xf32> {
//       %0 = "disc.fusion"(%arg0, %arg1) ({
//       ^bb0(%arg2: tensor<?x?xf32>, %arg3: tensor<4xf32>):
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %1 = stablehlo.reduce(%arg2 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
//         %2 = "disc.shape"() {dims = ["n", "4*p"]} : () -> tensor<2xi64>
//         %3 = stablehlo.dynamic_broadcast_in_dim %1, %2, dims = [0] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
//         %4 = stablehlo.subtract %arg2, %3 : tensor<?x?xf32>
//         %5 = "disc.shape"() {dims = ["n", "4", "p"]} : () -> tensor<3xi64>
//         %6 = stablehlo.dynamic_reshape %4, %5 : (tensor<?x?xf32>, tensor<3xi64>) -> tensor<?x4x?xf32>
//         %7 = stablehlo.dynamic_broadcast_in_dim %arg3, %5, dims = [1] : (tensor<4xf32>, tensor<3xi64>) -> tensor<?x4x?xf32>
//         %8 = stablehlo.multiply %6, %7 : tensor<?x4x?xf32>
//         "disc.yield"(%8) : (tensor<?x4x?xf32>) -> ()
//       }) {kind = "row", name = "reduce_subtract_multiply", reduced = array<i64: 1>, why = ["fused: 2 values never stored, 32*n*p + 8*n bytes less to move"]} : (tensor<?x?xf32>, tensor<4xf32>) -> tensor<?x4x?xf32>
//       return %0 : tensor<?x4x?xf32>
//     }
//   }

// -----

// Rows that a row kernel looks up may be at places that are computed: a gather's start is computed
// where it is read.
func.func @main(%x: tensor<?x?xf32> {disc.shape = ["m", "d"]}, %i: tensor<?x1xi32> {disc.shape = ["n", "1"]}) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %w = "disc.shape"() {dims = ["1", "d"]} : () -> tensor<2xi64>
  %k = stablehlo.multiply %i, %i : tensor<?x1xi32>
  %g = "stablehlo.dynamic_gather"(%x, %k, %w) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x?xf32>, tensor<?x1xi32>, tensor<2xi64>) -> tensor<?x?xf32>
  %s = stablehlo.reduce(%g init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
  return %s : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?xf32> {disc.shape = ["m", "d"]}, %arg1: tensor<?x1xi32> {disc.shape = ["n", "1"]}) -> tensor<?xf32> {
//       %0 = "disc.fusion"(%arg1, %arg0) ({
//       ^bb0(%arg2: tensor<?x1xi32>, %arg3: tensor<?x?xf32>):
//         %1 = stablehlo.multiply %arg2, %arg2 : tensor<?x1xi32>
//         %2 = "disc.shape"() {dims = ["1", "d"]} : () -> tensor<2xi64>
//         %3 = "stablehlo.dynamic_gather"(%arg3, %1, %2) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x?xf32>, tensor<?x1xi32>, tensor<2xi64>) -> tensor<?x?xf32>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
//         "disc.yield"(%4) : (tensor<?xf32>) -> ()
//       }) {kind = "row", name = "multiply_dynamic_gather_reduce", reduced = array<i64: 1>, why = ["fused: 2 values never stored, 8*d*n + 8*n bytes less to move"]} : (tensor<?x1xi32>, tensor<?x?xf32>) -> tensor<?xf32>
//       return %0 : tensor<?xf32>
//     }
//   }

// -----

// Not at places that a reduction of the rows tells.
func.func @main(%x: tensor<?x?xi32> {disc.shape = ["m", "d"]}, %i: tensor<?x?xi32> {disc.shape = ["n", "d"]}) -> tensor<?xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %w = "disc.shape"() {dims = ["1", "d"]} : () -> tensor<2xi64>
  %t = "disc.shape"() {dims = ["n", "1"]} : () -> tensor<2xi64>
  %r = stablehlo.reduce(%i init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x?xi32>, tensor<i32>) -> tensor<?xi32>
  %k = stablehlo.dynamic_reshape %r, %t : (tensor<?xi32>, tensor<2xi64>) -> tensor<?x1xi32>
  %g = "stablehlo.dynamic_gather"(%x, %k, %w) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x?xi32>, tensor<?x1xi32>, tensor<2xi64>) -> tensor<?x?xi32>
  %s = stablehlo.reduce(%g init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x?xi32>, tensor<i32>) -> tensor<?xi32>
  return %s : tensor<?xi32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?xi32> {disc.shape = ["m", "d"]}, %arg1: tensor<?x?xi32> {disc.shape = ["n", "d"]}) -> tensor<?xi32> {
//       %0 = "disc.fusion"(%arg1) ({
//       ^bb0(%arg2: tensor<?x?xi32>):
//         %c = stablehlo.constant dense<0> : tensor<i32>
//         %2 = stablehlo.reduce(%arg2 init: %c) applies stablehlo.add across dimensions = [1] : (tensor<?x?xi32>, tensor<i32>) -> tensor<?xi32>
//         "disc.yield"(%2) : (tensor<?xi32>) -> ()
//       }) {kind = "row", name = "reduce", reduced = array<i64: 1>} : (tensor<?x?xi32>) -> tensor<?xi32>
//       %1 = "disc.fusion"(%arg0, %0) ({
//       ^bb0(%arg2: tensor<?x?xi32>, %arg3: tensor<?xi32>):
//         %2 = "disc.shape"() {dims = ["n", "1"]} : () -> tensor<2xi64>
//         %3 = stablehlo.dynamic_reshape %arg3, %2 : (tensor<?xi32>, tensor<2xi64>) -> tensor<?x1xi32>
//         %4 = "disc.shape"() {dims = ["1", "d"]} : () -> tensor<2xi64>
//         %5 = "stablehlo.dynamic_gather"(%arg2, %3, %4) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x?xi32>, tensor<?x1xi32>, tensor<2xi64>) -> tensor<?x?xi32>
//         %c = stablehlo.constant dense<0> : tensor<i32>
//         %6 = stablehlo.reduce(%5 init: %c) applies stablehlo.add across dimensions = [1] : (tensor<?x?xi32>, tensor<i32>) -> tensor<?xi32>
//         "disc.yield"(%6) : (tensor<?xi32>) -> ()
//       }) {kind = "row", name = "dynamic_gather_reduce", not_fused = ["reduce: a row would need elements of another row"], reduced = array<i64: 1>, why = ["fused: 1 value never stored, 8*d*n bytes less to move"]} : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?xi32>
//       return %1 : tensor<?xi32>
//     }
//   }

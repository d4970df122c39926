// RUN: disc-opt %s --pass-pipeline=cleanup,plan-fusion --split-input-file | expect

// Ops over spaces not proved equal stay apart, and a reduction of leading dimensions takes in its
// operand when nobody else reads it.
func.func public @main(%x: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %z: tensor<?xf32> {disc.shape = ["m"]}) -> (tensor<4xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.tanh %x : tensor<?x4xf32>
  %u = stablehlo.tanh %z : tensor<?xf32>
  %c = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %c, %u : tensor<4xf32>, tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %arg1: tensor<?xf32> {disc.shape = ["m"]}) -> (tensor<4xf32>, tensor<?xf32>) {
//       %0 = "disc.fusion"(%arg1) ({
//       ^bb0(%arg2: tensor<?xf32>):
//         %2 = stablehlo.tanh %arg2 : tensor<?xf32>
//         "disc.yield"(%2) : (tensor<?xf32>) -> ()
//       }) {kind = "loop", name = "tanh"} : (tensor<?xf32>) -> tensor<?xf32>
//       %1 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg2: tensor<?x4xf32>):
//         %2 = stablehlo.tanh %arg2 : tensor<?x4xf32>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<?x4xf32>, tensor<f32>) -> tensor<4xf32>
//         "disc.yield"(%3) : (tensor<4xf32>) -> ()
//       }) {kind = "column", name = "tanh_reduce", reduced = array<i64: 0>, why = ["fused: 1 value never stored, 32*n bytes less to move"]} : (tensor<?x4xf32>) -> tensor<4xf32>
//       return %1, %0 : tensor<4xf32>, tensor<?xf32>
//     }
//   }

// -----

// Batch-norm, channels last, is one kernel over columns: both sums and what reads them.
func.func @main(%x: tensor<?x64xf32> {disc.shape = ["n", "64"]}) -> (tensor<?x64xf32>, tensor<64xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["n", "64"]} : () -> tensor<2xi64>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x64xf32>, tensor<f32>) -> tensor<64xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1] : (tensor<64xf32>, tensor<2xi64>) -> tensor<?x64xf32>
  %c = stablehlo.subtract %x, %b : tensor<?x64xf32>
  %d = stablehlo.multiply %c, %c : tensor<?x64xf32>
  %e = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x64xf32>, tensor<f32>) -> tensor<64xf32>
  %f = stablehlo.dynamic_broadcast_in_dim %e, %s, dims = [1] : (tensor<64xf32>, tensor<2xi64>) -> tensor<?x64xf32>
  %y = stablehlo.divide %c, %f : tensor<?x64xf32>
  return %y, %a : tensor<?x64xf32>, tensor<64xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x64xf32> {disc.shape = ["n", "64"]}) -> (tensor<?x64xf32>, tensor<64xf32>) {
//       %0:2 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?x64xf32>):
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %1 = stablehlo.reduce(%arg1 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<?x64xf32>, tensor<f32>) -> tensor<64xf32>
//         %2 = "disc.shape"() {dims = ["n", "64"]} : () -> tensor<2xi64>
//         %3 = stablehlo.dynamic_broadcast_in_dim %1, %2, dims = [1] : (tensor<64xf32>, tensor<2xi64>) -> tensor<?x64xf32>
//         %4 = stablehlo.subtract %arg1, %3 : tensor<?x64xf32>
//         %5 = stablehlo.multiply %4, %4 : tensor<?x64xf32>
//         %6 = stablehlo.reduce(%5 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<?x64xf32>, tensor<f32>) -> tensor<64xf32>
//         %7 = stablehlo.dynamic_broadcast_in_dim %6, %2, dims = [1] : (tensor<64xf32>, tensor<2xi64>) -> tensor<?x64xf32>
//         %8 = stablehlo.divide %4, %7 : tensor<?x64xf32>
//         "disc.yield"(%1, %8) : (tensor<64xf32>, tensor<?x64xf32>) -> ()
//       }) {kind = "column", name = "reduce_subtract_multiply_divide", reduced = array<i64: 0>, why = ["fused: 3 values never stored, 1024*n + 512 bytes less to move"]} : (tensor<?x64xf32>) -> (tensor<64xf32>, tensor<?x64xf32>)
//       return %0#1, %0#0 : tensor<?x64xf32>, tensor<64xf32>
//     }
//   }

// -----

// Sums along columns that share what they read are one kernel; a sum along rows of it is another.
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %z: tensor<?x8xf32> {disc.shape = ["n", "8"]}) -> (tensor<8xf32>, tensor<8xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
  %p = stablehlo.multiply %x, %z : tensor<?x8xf32>
  %b = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
  %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x8xf32>, tensor<f32>) -> tensor<?xf32>
  return %a, %b, %r : tensor<8xf32>, tensor<8xf32>, tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %arg1: tensor<?x8xf32> {disc.shape = ["n", "8"]}) -> (tensor<8xf32>, tensor<8xf32>, tensor<?xf32>) {
//       %0:2 = "disc.fusion"(%arg0, %arg1) ({
//       ^bb0(%arg2: tensor<?x8xf32>, %arg3: tensor<?x8xf32>):
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %2 = stablehlo.reduce(%arg2 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
//         %3 = stablehlo.multiply %arg2, %arg3 : tensor<?x8xf32>
//         %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
//         "disc.yield"(%2, %4) : (tensor<8xf32>, tensor<8xf32>) -> ()
//       }) {kind = "column", name = "reduce_multiply", reduced = array<i64: 0>, why = ["fused: 1 value never stored, 64*n bytes less to move"]} : (tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
//       %1 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg2: tensor<?x8xf32>):
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %2 = stablehlo.reduce(%arg2 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<?x8xf32>, tensor<f32>) -> tensor<?xf32>
//         "disc.yield"(%2) : (tensor<?xf32>) -> ()
//       }) {kind = "row", name = "reduce", reduced = array<i64: 1>} : (tensor<?x8xf32>) -> tensor<?xf32>
//       return %0#0, %0#1, %1 : tensor<8xf32>, tensor<8xf32>, tensor<?xf32>
//     }
//   }

// -----

// A column's sum along the rows of a square matrix is not the column's: two kernels. Few static rows
// alone stay a loop.
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  %b = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<8xf32>) -> tensor<8x8xf32>
  %y = stablehlo.subtract %x, %b : tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<8x8xf32>) -> tensor<8x8xf32> {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<8x8xf32>):
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %2 = stablehlo.reduce(%arg1 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
//         "disc.yield"(%2) : (tensor<8xf32>) -> ()
//       }) {kind = "loop", name = "reduce"} : (tensor<8x8xf32>) -> tensor<8xf32>
//       %1 = "disc.fusion"(%arg0, %0) ({
//       ^bb0(%arg1: tensor<8x8xf32>, %arg2: tensor<8xf32>):
//         %2 = stablehlo.broadcast_in_dim %arg2, dims = [0] : (tensor<8xf32>) -> tensor<8x8xf32>
//         %3 = stablehlo.subtract %arg1, %2 : tensor<8x8xf32>
//         "disc.yield"(%3) : (tensor<8x8xf32>) -> ()
//       }) {kind = "loop", name = "subtract", not_fused = ["reduce: a column would need elements of another column"]} : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
//       return %1 : tensor<8x8xf32>
//     }
//   }

// -----

// Sums over equally many rows to small results share a launch though they share no operand.
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %y: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %z: tensor<?x8xf32> {disc.shape = ["m", "8"]}) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
  %b = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
  %c = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
  return %a, %b, %c : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %arg1: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %arg2: tensor<?x8xf32> {disc.shape = ["m", "8"]}) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
//       %0:2 = "disc.fusion"(%arg0, %arg1) ({
//       ^bb0(%arg3: tensor<?x8xf32>, %arg4: tensor<?x8xf32>):
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %2 = stablehlo.reduce(%arg3 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
//         %3 = stablehlo.reduce(%arg4 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
//         "disc.yield"(%2, %3) : (tensor<8xf32>, tensor<8xf32>) -> ()
//       }) {kind = "column", name = "reduce", reduced = array<i64: 0>, why = ["small kernels over 8 elements fused horizontally: launches saved"]} : (tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
//       %1 = "disc.fusion"(%arg2) ({
//       ^bb0(%arg3: tensor<?x8xf32>):
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %2 = stablehlo.reduce(%arg3 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
//         "disc.yield"(%2) : (tensor<8xf32>) -> ()
//       }) {kind = "column", name = "reduce", reduced = array<i64: 0>} : (tensor<?x8xf32>) -> tensor<8xf32>
//       return %0#0, %0#1, %1 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
//     }
//   }

// RUN: disc-opt %s --pass-pipeline=cleanup,plan-fusion --split-input-file | expect

// Attention is one kernel: both products, the row work between them and the transpose behind.
func.func public @main(%q: tensor<?x?x4x64xf32> {disc.shape = ["b", "t", "4", "64"]}, %k: tensor<?x?x4x64xf32> {disc.shape = ["b", "s", "4", "64"]}, %v: tensor<?x?x4x64xf32> {disc.shape = ["b", "s", "4", "64"]}) -> tensor<?x?x4x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %shape = "disc.shape"() {dims = ["b", "4", "t", "s"]} : () -> tensor<4xi32>
  %scores = stablehlo.dot_general %q, %k, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x?xf32>
  %sum = stablehlo.reduce(%scores init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
  %sums = stablehlo.dynamic_broadcast_in_dim %sum, %shape, dims = [0, 1, 2] : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
  %w = stablehlo.divide %scores, %sums : tensor<?x4x?x?xf32>
  %mix = stablehlo.dot_general %w, %v, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1] : (tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
  %y = stablehlo.transpose %mix, dims = [0, 2, 1, 3] : (tensor<?x4x?x64xf32>) -> tensor<?x?x4x64xf32>
  return %y : tensor<?x?x4x64xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x?x4x64xf32> {disc.shape = ["b", "t", "4", "64"]}, %arg1: tensor<?x?x4x64xf32> {disc.shape = ["b", "s", "4", "64"]}, %arg2: tensor<?x?x4x64xf32> {disc.shape = ["b", "s", "4", "64"]}) -> tensor<?x?x4x64xf32> {
//       %0 = "disc.fusion"(%arg0, %arg1, %arg2) ({
//       ^bb0(%arg3: tensor<?x?x4x64xf32>, %arg4: tensor<?x?x4x64xf32>, %arg5: tensor<?x?x4x64xf32>):
//         %1 = stablehlo.dot_general %arg3, %arg4, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x?xf32>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [3] : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
//         %3 = "disc.shape"() {dims = ["b", "4", "t", "s"]} : () -> tensor<4xi32>
//         %4 = stablehlo.dynamic_broadcast_in_dim %2, %3, dims = [0, 1, 2] : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
//         %5 = stablehlo.divide %1, %4 : tensor<?x4x?x?xf32>
//         %6 = stablehlo.dot_general %5, %arg5, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1] : (tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
//         %7 = stablehlo.transpose %6, dims = [0, 2, 1, 3] : (tensor<?x4x?x64xf32>) -> tensor<?x?x4x64xf32>
//         "disc.yield"(%7) : (tensor<?x?x4x64xf32>) -> ()
//       }) {kind = "attention", name = "dot_general_reduce_divide_transpose", why = ["fused: 4 values never stored, 64*b*s*t + 2080*b*t bytes less to move"]} : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x?x4x64xf32>
//       return %0 : tensor<?x?x4x64xf32>
//     }
//   }

// -----

// Keys repeated for the query heads of a group are read where they are; values repeated along their
// own dimension are not, and must exist.
func.func public @main(%q: tensor<?x?x4x64xf32> {disc.shape = ["b", "t", "4", "64"]}, %k: tensor<?x?x2x64xf32> {disc.shape = ["b", "s", "2", "64"]}, %v: tensor<?x?x4x32xf32> {disc.shape = ["b", "s", "4", "32"]}) -> tensor<?x4x?x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %groups = "disc.shape"() {dims = ["b", "s", "2", "2", "64"]} : () -> tensor<5xi32>
  %wide = stablehlo.dynamic_broadcast_in_dim %k, %groups, dims = [0, 1, 2, 4] : (tensor<?x?x2x64xf32>, tensor<5xi32>) -> tensor<?x?x2x2x64xf32>
  %heads = "disc.shape"() {dims = ["b", "s", "4", "64"]} : () -> tensor<4xi32>
  %keys = stablehlo.dynamic_reshape %wide, %heads : (tensor<?x?x2x2x64xf32>, tensor<4xi32>) -> tensor<?x?x4x64xf32>
  %twice = "disc.shape"() {dims = ["b", "s", "4", "32", "2"]} : () -> tensor<5xi32>
  %pairs = stablehlo.dynamic_broadcast_in_dim %v, %twice, dims = [0, 1, 2, 3] : (tensor<?x?x4x32xf32>, tensor<5xi32>) -> tensor<?x?x4x32x2xf32>
  %values = stablehlo.dynamic_reshape %pairs, %heads : (tensor<?x?x4x32x2xf32>, tensor<4xi32>) -> tensor<?x?x4x64xf32>
  %scores = stablehlo.dot_general %q, %keys, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x?xf32>
  %shape = "disc.shape"() {dims = ["b", "4", "t", "s"]} : () -> tensor<4xi32>
  %sum = stablehlo.reduce(%scores init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
  %sums = stablehlo.dynamic_broadcast_in_dim %sum, %shape, dims = [0, 1, 2] : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
  %w = stablehlo.divide %scores, %sums : tensor<?x4x?x?xf32>
  %mix = stablehlo.dot_general %w, %values, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1] : (tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
  return %mix : tensor<?x4x?x64xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x?x4x64xf32> {disc.shape = ["b", "t", "4", "64"]}, %arg1: tensor<?x?x2x64xf32> {disc.shape = ["b", "s", "2", "64"]}, %arg2: tensor<?x?x4x32xf32> {disc.shape = ["b", "s", "4", "32"]}) -> tensor<?x4x?x64xf32> {
//       %0 = "disc.shape"() {dims = ["b", "s", "4", "64"]} : () -> tensor<4xi32>
//       %1 = "disc.fusion"(%arg2) ({
//       ^bb0(%arg3: tensor<?x?x4x32xf32>):
//         %4 = "disc.shape"() {dims = ["b", "s", "4", "32", "2"]} : () -> tensor<5xi32>
//         %5 = stablehlo.dynamic_broadcast_in_dim %arg3, %4, dims = [0, 1, 2, 3] : (tensor<?x?x4x32xf32>, tensor<5xi32>) -> tensor<?x?x4x32x2xf32>
//         "disc.yield"(%5) : (tensor<?x?x4x32x2xf32>) -> ()
//       }) {kind = "loop", name = "dynamic_broadcast_in_dim"} : (tensor<?x?x4x32xf32>) -> tensor<?x?x4x32x2xf32>
//       %2 = stablehlo.dynamic_reshape %1, %0 : (tensor<?x?x4x32x2xf32>, tensor<4xi32>) -> tensor<?x?x4x64xf32>
//       %3 = "disc.fusion"(%arg1, %arg0, %2) ({
//       ^bb0(%arg3: tensor<?x?x2x64xf32>, %arg4: tensor<?x?x4x64xf32>, %arg5: tensor<?x?x4x64xf32>):
//         %4 = "disc.shape"() {dims = ["b", "s", "2", "2", "64"]} : () -> tensor<5xi32>
//         %5 = stablehlo.dynamic_broadcast_in_dim %arg3, %4, dims = [0, 1, 2, 4] : (tensor<?x?x2x64xf32>, tensor<5xi32>) -> tensor<?x?x2x2x64xf32>
//         %6 = "disc.shape"() {dims = ["b", "s", "4", "64"]} : () -> tensor<4xi32>
//         %7 = stablehlo.dynamic_reshape %5, %6 : (tensor<?x?x2x2x64xf32>, tensor<4xi32>) -> tensor<?x?x4x64xf32>
//         %8 = stablehlo.dot_general %arg4, %7, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x?xf32>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [3] : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
//         %10 = "disc.shape"() {dims = ["b", "4", "t", "s"]} : () -> tensor<4xi32>
//         %11 = stablehlo.dynamic_broadcast_in_dim %9, %10, dims = [0, 1, 2] : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
//         %12 = stablehlo.divide %8, %11 : tensor<?x4x?x?xf32>
//         %13 = stablehlo.dot_general %12, %arg5, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1] : (tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
//         "disc.yield"(%13) : (tensor<?x4x?x64xf32>) -> ()
//       }) {kind = "attention", name = "dynamic_broadcast_in_dim_dynamic_reshape_dot_general_reduce_etc", why = ["fused: 5 values never stored, 64*b*s*t + 4096*b*s + 32*b*t bytes less to move"]} : (tensor<?x?x2x64xf32>, tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
//       return %3 : tensor<?x4x?x64xf32>
//     }
//   }

// -----

// Scores that are read by somebody else must exist: three kernels.
func.func public @main(%q: tensor<?x?x64xf32> {disc.shape = ["b", "t", "64"]}, %k: tensor<?x?x64xf32> {disc.shape = ["b", "s", "64"]}) -> (tensor<?x?x64xf32>, tensor<?x?xf32>, tensor<?x?x?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %shape = "disc.shape"() {dims = ["b", "t", "s"]} : () -> tensor<3xi32>
  %scores = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x?xf32>
  %sum = stablehlo.reduce(%scores init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<?x?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
  %sums = stablehlo.dynamic_broadcast_in_dim %sum, %shape, dims = [0, 1] : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<?x?x?xf32>
  %w = stablehlo.divide %scores, %sums : tensor<?x?x?xf32>
  %mix = stablehlo.dot_general %w, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<?x?x?xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  return %mix, %sum, %scores : tensor<?x?x64xf32>, tensor<?x?xf32>, tensor<?x?x?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x?x64xf32> {disc.shape = ["b", "t", "64"]}, %arg1: tensor<?x?x64xf32> {disc.shape = ["b", "s", "64"]}) -> (tensor<?x?x64xf32>, tensor<?x?xf32>, tensor<?x?x?xf32>) {
//       %0 = "disc.fusion"(%arg0, %arg1) ({
//       ^bb0(%arg2: tensor<?x?x64xf32>, %arg3: tensor<?x?x64xf32>):
//         %3 = stablehlo.dot_general %arg2, %arg3, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x?xf32>
//         "disc.yield"(%3) : (tensor<?x?x?xf32>) -> ()
//       }) {kind = "dense", name = "dot_general"} : (tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x?xf32>
//       %1:2 = "disc.fusion"(%0) ({
//       ^bb0(%arg2: tensor<?x?x?xf32>):
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %3 = stablehlo.reduce(%arg2 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<?x?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
//         %4 = "disc.shape"() {dims = ["b", "t", "s"]} : () -> tensor<3xi32>
//         %5 = stablehlo.dynamic_broadcast_in_dim %3, %4, dims = [0, 1] : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<?x?x?xf32>
//         %6 = stablehlo.divide %arg2, %5 : tensor<?x?x?xf32>
//         "disc.yield"(%3, %6) : (tensor<?x?xf32>, tensor<?x?x?xf32>) -> ()
//       }) {kind = "row", name = "reduce_divide", not_fused = ["dot_general: the rows of the product are in another order"], reduced = array<i64: 2>} : (tensor<?x?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?x?xf32>)
//       %2 = "disc.fusion"(%1#1, %arg1) ({
//       ^bb0(%arg2: tensor<?x?x?xf32>, %arg3: tensor<?x?x64xf32>):
//         %3 = stablehlo.dot_general %arg2, %arg3, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<?x?x?xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
//         "disc.yield"(%3) : (tensor<?x?x64xf32>) -> ()
//       }) {kind = "dense", name = "dot_general", not_fused = ["divide: it is not row work on one product alone, so this is no attention"]} : (tensor<?x?x?xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
//       return %2, %1#0, %0 : tensor<?x?x64xf32>, tensor<?x?xf32>, tensor<?x?x?xf32>
//     }
//   }

// -----

// A bias that two attentions share has a kernel of its own: as a second result of the first one's
// rows it would keep that attention apart.
func.func public @main(%q0: tensor<?x?x4x64xf32> {disc.shape = ["b", "t", "4", "64"]}, %q1: tensor<?x?x4x64xf32> {disc.shape = ["b", "t", "4", "64"]}, %k: tensor<?x?x4x64xf32> {disc.shape = ["b", "s", "4", "64"]}, %v: tensor<?x?x4x64xf32> {disc.shape = ["b", "s", "4", "64"]}, %p: tensor<?x4x?x?xf32> {disc.shape = ["b", "4", "t", "s"]}) -> (tensor<?x4x?x64xf32>, tensor<?x4x?x64xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %shape = "disc.shape"() {dims = ["b", "4", "t", "s"]} : () -> tensor<4xi32>
  %bias = stablehlo.exponential %p : tensor<?x4x?x?xf32>
  %scores0 = stablehlo.dot_general %q0, %k, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x?xf32>
  %biased0 = stablehlo.add %scores0, %bias : tensor<?x4x?x?xf32>
  %sum0 = stablehlo.reduce(%biased0 init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
  %sums0 = stablehlo.dynamic_broadcast_in_dim %sum0, %shape, dims = [0, 1, 2] : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
  %w0 = stablehlo.divide %biased0, %sums0 : tensor<?x4x?x?xf32>
  %mix0 = stablehlo.dot_general %w0, %v, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1] : (tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
  %scores1 = stablehlo.dot_general %q1, %k, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x?xf32>
  %biased1 = stablehlo.add %scores1, %bias : tensor<?x4x?x?xf32>
  %sum1 = stablehlo.reduce(%biased1 init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
  %sums1 = stablehlo.dynamic_broadcast_in_dim %sum1, %shape, dims = [0, 1, 2] : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
  %w1 = stablehlo.divide %biased1, %sums1 : tensor<?x4x?x?xf32>
  %mix1 = stablehlo.dot_general %w1, %v, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1] : (tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
  return %mix0, %mix1 : tensor<?x4x?x64xf32>, tensor<?x4x?x64xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x?x4x64xf32> {disc.shape = ["b", "t", "4", "64"]}, %arg1: tensor<?x?x4x64xf32> {disc.shape = ["b", "t", "4", "64"]}, %arg2: tensor<?x?x4x64xf32> {disc.shape = ["b", "s", "4", "64"]}, %arg3: tensor<?x?x4x64xf32> {disc.shape = ["b", "s", "4", "64"]}, %arg4: tensor<?x4x?x?xf32> {disc.shape = ["b", "4", "t", "s"]}) -> (tensor<?x4x?x64xf32>, tensor<?x4x?x64xf32>) {
//       %0 = "disc.fusion"(%arg4) ({
//       ^bb0(%arg5: tensor<?x4x?x?xf32>):
//         %3 = stablehlo.exponential %arg5 : tensor<?x4x?x?xf32>
//         "disc.yield"(%3) : (tensor<?x4x?x?xf32>) -> ()
//       }) {kind = "loop", name = "exponential"} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
//       %1 = "disc.fusion"(%arg0, %arg2, %0, %arg3) ({
//       ^bb0(%arg5: tensor<?x?x4x64xf32>, %arg6: tensor<?x?x4x64xf32>, %arg7: tensor<?x4x?x?xf32>, %arg8: tensor<?x?x4x64xf32>):
//         %3 = stablehlo.dot_general %arg5, %arg6, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x?xf32>
//         %4 = stablehlo.add %3, %arg7 : tensor<?x4x?x?xf32>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %5 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [3] : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
//         %6 = "disc.shape"() {dims = ["b", "4", "t", "s"]} : () -> tensor<4xi32>
//         %7 = stablehlo.dynamic_broadcast_in_dim %5, %6, dims = [0, 1, 2] : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
//         %8 = stablehlo.divide %4, %7 : tensor<?x4x?x?xf32>
//         %9 = stablehlo.dot_general %8, %arg8, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1] : (tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
//         "disc.yield"(%9) : (tensor<?x4x?x64xf32>) -> ()
//       }) {kind = "attention", name = "dot_general_add_reduce_divide", not_fused = ["exponential: it is added to several scores: with a second result their rows are no attention"], why = ["fused: 4 values never stored, 96*b*s*t + 32*b*t bytes less to move"]} : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>, tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
//       %2 = "disc.fusion"(%arg1, %arg2, %0, %arg3) ({
//       ^bb0(%arg5: tensor<?x?x4x64xf32>, %arg6: tensor<?x?x4x64xf32>, %arg7: tensor<?x4x?x?xf32>, %arg8: tensor<?x?x4x64xf32>):
//         %3 = stablehlo.dot_general %arg5, %arg6, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x?xf32>
//         %4 = stablehlo.add %3, %arg7 : tensor<?x4x?x?xf32>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %5 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [3] : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
//         %6 = "disc.shape"() {dims = ["b", "4", "t", "s"]} : () -> tensor<4xi32>
//         %7 = stablehlo.dynamic_broadcast_in_dim %5, %6, dims = [0, 1, 2] : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
//         %8 = stablehlo.divide %4, %7 : tensor<?x4x?x?xf32>
//         %9 = stablehlo.dot_general %8, %arg8, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1] : (tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
//         "disc.yield"(%9) : (tensor<?x4x?x64xf32>) -> ()
//       }) {kind = "attention", name = "dot_general_add_reduce_divide", not_fused = ["exponential: it is added to several scores: with a second result their rows are no attention"], why = ["fused: 4 values never stored, 96*b*s*t + 32*b*t bytes less to move"]} : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>, tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
//       return %1, %2 : tensor<?x4x?x64xf32>, tensor<?x4x?x64xf32>
//     }
//   }

// RUN: disc-opt %s --pass-pipeline=cleanup,sink-views,plan-fusion --split-input-file | expect

// A dot takes in the element-wise ops behind it; its operands come from memory.
func.func public @main(%x: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %w: tensor<8x4xf32>, %bias: tensor<4xf32>) -> tensor<?x4xf32> {
  %s = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
  %t = stablehlo.tanh %x : tensor<?x8xf32>
  %d = stablehlo.dot_general %t, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %bias, %s, dims = [1] : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  %y = stablehlo.add %d, %b : tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %arg1: tensor<8x4xf32>, %arg2: tensor<4xf32>) -> tensor<?x4xf32> {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg3: tensor<?x8xf32>):
//         %2 = stablehlo.tanh %arg3 : tensor<?x8xf32>
//         "disc.yield"(%2) : (tensor<?x8xf32>) -> ()
//       }) {kind = "loop", name = "tanh"} : (tensor<?x8xf32>) -> tensor<?x8xf32>
//       %1 = "disc.fusion"(%0, %arg1, %arg2) ({
//       ^bb0(%arg3: tensor<?x8xf32>, %arg4: tensor<8x4xf32>, %arg5: tensor<4xf32>):
//         %2 = stablehlo.dot_general %arg3, %arg4, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
//         %3 = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
//         %4 = stablehlo.dynamic_broadcast_in_dim %arg5, %3, dims = [1] : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
//         %5 = stablehlo.add %2, %4 : tensor<?x4xf32>
//         "disc.yield"(%5) : (tensor<?x4xf32>) -> ()
//       }) {kind = "dense", name = "dot_general_add", why = ["fused: 1 value never stored, 32*b bytes less to move"]} : (tensor<?x8xf32>, tensor<8x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
//       return %1 : tensor<?x4xf32>
//     }
//   }

// -----

// A recurrent step: where to read is computed by whoever reads, and the entry of the projection is
// read by the product's epilogue.
func.func public @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x8xf32>, %h: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %h) : tensor<i32>, tensor<4x8xf32>
  cond {
    %c = stablehlo.compare LT, %i, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %back = stablehlo.subtract %nine, %i : tensor<i32>
    %s = stablehlo.dynamic_slice %xs, %back, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %y, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %u = stablehlo.add %p, %x : tensor<4x8xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<4x8xf32>
  }
  return %r#1 : tensor<4x8xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<9x4x8xf32>, %arg1: tensor<8x8xf32>, %arg2: tensor<4x8xf32>) -> tensor<4x8xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg2) : tensor<i32>, tensor<4x8xf32> attributes {disc.steps = "9"}
//       cond {
//         %1 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg3: tensor<i32>):
//           %c_1 = stablehlo.constant dense<9> : tensor<i32>
//           %2 = stablehlo.compare LT, %arg3, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//           "disc.yield"(%2) : (tensor<i1>) -> ()
//         }) {kind = "host", name = "compare"} : (tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = "disc.fusion"(%arg0, %iterArg, %iterArg_0, %arg1) ({
//         ^bb0(%arg3: tensor<9x4x8xf32>, %arg4: tensor<i32>, %arg5: tensor<4x8xf32>, %arg6: tensor<8x8xf32>):
//           %c_1 = stablehlo.constant dense<9> : tensor<i32>
//           %3 = stablehlo.subtract %c_1, %arg4 : tensor<i32>
//           %c_2 = stablehlo.constant dense<0> : tensor<i32>
//           %4 = stablehlo.dynamic_slice %arg3, %3, %c_2, %c_2, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
//           %5 = stablehlo.dot_general %arg5, %arg6, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
//           %6 = stablehlo.reshape %4 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
//           %7 = stablehlo.add %5, %6 : tensor<4x8xf32>
//           "disc.yield"(%7) : (tensor<4x8xf32>) -> ()
//         }) {kind = "dense", name = "dynamic_slice_dot_general_add", why = ["fused: 2 values never stored, 512 bytes less to move"]} : (tensor<9x4x8xf32>, tensor<i32>, tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
//         %2 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg3: tensor<i32>):
//           %c_1 = stablehlo.constant dense<1> : tensor<i32>
//           %3 = stablehlo.add %arg3, %c_1 : tensor<i32>
//           "disc.yield"(%3) : (tensor<i32>) -> ()
//         }) {kind = "host", name = "add"} : (tensor<i32>) -> tensor<i32>
//         stablehlo.return %2, %1 : tensor<i32>, tensor<4x8xf32>
//       }
//       return %0#1 : tensor<4x8xf32>
//     }
//   }

// -----

// A convolution takes in bias and activation; what stays in the kernel is counted.
func.func public @main(%x: tensor<?x8x10x3xf32> {disc.shape = ["b", "8", "10", "3"]}, %w: tensor<3x3x3x10xf32>, %bias: tensor<10xf32>) -> tensor<?x6x8x10xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["b", "6", "8", "10"]} : () -> tensor<4xi32>
  %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x8x10x3xf32>, tensor<3x3x3x10xf32>) -> tensor<?x6x8x10xf32>
  %bb = stablehlo.dynamic_broadcast_in_dim %bias, %s, dims = [3] : (tensor<10xf32>, tensor<4xi32>) -> tensor<?x6x8x10xf32>
  %zb = stablehlo.dynamic_broadcast_in_dim %zero, %s, dims = [] : (tensor<f32>, tensor<4xi32>) -> tensor<?x6x8x10xf32>
  %a = stablehlo.add %c, %bb : tensor<?x6x8x10xf32>
  %y = stablehlo.maximum %a, %zb : tensor<?x6x8x10xf32>
  return %y : tensor<?x6x8x10xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x8x10x3xf32> {disc.shape = ["b", "8", "10", "3"]}, %arg1: tensor<3x3x3x10xf32>, %arg2: tensor<10xf32>) -> tensor<?x6x8x10xf32> {
//       %0 = "disc.fusion"(%arg0, %arg1, %arg2) ({
//       ^bb0(%arg3: tensor<?x8x10x3xf32>, %arg4: tensor<3x3x3x10xf32>, %arg5: tensor<10xf32>):
//         %1 = stablehlo.convolution(%arg3, %arg4) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x8x10x3xf32>, tensor<3x3x3x10xf32>) -> tensor<?x6x8x10xf32>
//         %2 = "disc.shape"() {dims = ["b", "6", "8", "10"]} : () -> tensor<4xi32>
//         %3 = stablehlo.dynamic_broadcast_in_dim %arg5, %2, dims = [3] : (tensor<10xf32>, tensor<4xi32>) -> tensor<?x6x8x10xf32>
//         %4 = stablehlo.add %1, %3 : tensor<?x6x8x10xf32>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %5 = stablehlo.dynamic_broadcast_in_dim %cst, %2, dims = [] : (tensor<f32>, tensor<4xi32>) -> tensor<?x6x8x10xf32>
//         %6 = stablehlo.maximum %4, %5 : tensor<?x6x8x10xf32>
//         "disc.yield"(%6) : (tensor<?x6x8x10xf32>) -> ()
//       }) {kind = "conv", name = "convolution_add_maximum", why = ["fused: 2 values never stored, 7680*b bytes less to move"]} : (tensor<?x8x10x3xf32>, tensor<3x3x3x10xf32>, tensor<10xf32>) -> tensor<?x6x8x10xf32>
//       return %0 : tensor<?x6x8x10xf32>
//     }
//   }

// -----

// A product reads part of a matrix through slice, reshape and transpose in place.
func.func @main(%x: tensor<?x96xf32> {disc.shape = ["t", "96"]}, %w: tensor<4x8x5xf32>) -> tensor<4x?x5xf32> {
  %one = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
  %first = "disc.shape"() {dims = ["0", "32"]} : () -> tensor<2xi64>
  %last = "disc.shape"() {dims = ["t", "64"]} : () -> tensor<2xi64>
  %s = stablehlo.real_dynamic_slice %x, %first, %last, %one : (tensor<?x96xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x32xf32>
  %heads = "disc.shape"() {dims = ["t", "4", "8"]} : () -> tensor<3xi64>
  %r = stablehlo.dynamic_reshape %s, %heads : (tensor<?x32xf32>, tensor<3xi64>) -> tensor<?x4x8xf32>
  %t = stablehlo.transpose %r, dims = [1, 0, 2] : (tensor<?x4x8xf32>) -> tensor<4x?x8xf32>
  %y = stablehlo.dot_general %t, %w, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x?x8xf32>, tensor<4x8x5xf32>) -> tensor<4x?x5xf32>
  return %y : tensor<4x?x5xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x96xf32> {disc.shape = ["t", "96"]}, %arg1: tensor<4x8x5xf32>) -> tensor<4x?x5xf32> {
//       %0 = "disc.fusion"(%arg0, %arg1) ({
//       ^bb0(%arg2: tensor<?x96xf32>, %arg3: tensor<4x8x5xf32>):
//         %1 = "disc.shape"() {dims = ["0", "32"]} : () -> tensor<2xi64>
//         %2 = "disc.shape"() {dims = ["t", "64"]} : () -> tensor<2xi64>
//         %3 = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
//         %4 = stablehlo.real_dynamic_slice %arg2, %1, %2, %3 : (tensor<?x96xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x32xf32>
//         %5 = "disc.shape"() {dims = ["t", "4", "8"]} : () -> tensor<3xi64>
//         %6 = stablehlo.dynamic_reshape %4, %5 : (tensor<?x32xf32>, tensor<3xi64>) -> tensor<?x4x8xf32>
//         %7 = stablehlo.dot_general %6, %arg3, batching_dims = [1] x [0], contracting_dims = [2] x [1] : (tensor<?x4x8xf32>, tensor<4x8x5xf32>) -> tensor<4x?x5xf32>
//         "disc.yield"(%7) : (tensor<4x?x5xf32>) -> ()
//       }) {kind = "dense", name = "real_dynamic_slice_dynamic_reshape_dot_general", why = ["fused: 2 values never stored, 512*t bytes less to move"]} : (tensor<?x96xf32>, tensor<4x8x5xf32>) -> tensor<4x?x5xf32>
//       return %0 : tensor<4x?x5xf32>
//     }
//   }

// -----

// A weight is dequantised while the product copies blocks of it; what is computed for the left
// operand, or by an expensive op, is stored.
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %q: tensor<8x16xi8>, %s: tensor<16xf32>, %w: tensor<8x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
  %f = stablehlo.convert %q : (tensor<8x16xi8>) -> tensor<8x16xf32>
  %t = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
  %m = stablehlo.multiply %f, %t : tensor<8x16xf32>
  %y = stablehlo.dot_general %x, %m, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  %n = stablehlo.negate %x : tensor<?x8xf32>
  %e = stablehlo.exponential %w : tensor<8x16xf32>
  %z = stablehlo.dot_general %n, %e, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  return %y, %z : tensor<?x16xf32>, tensor<?x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %arg1: tensor<8x16xi8>, %arg2: tensor<16xf32>, %arg3: tensor<8x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
//       %0 = "disc.fusion"(%arg1, %arg2, %arg0) ({
//       ^bb0(%arg4: tensor<8x16xi8>, %arg5: tensor<16xf32>, %arg6: tensor<?x8xf32>):
//         %4 = stablehlo.convert %arg4 : (tensor<8x16xi8>) -> tensor<8x16xf32>
//         %5 = stablehlo.broadcast_in_dim %arg5, dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
//         %6 = stablehlo.multiply %4, %5 : tensor<8x16xf32>
//         %7 = stablehlo.dot_general %arg6, %6, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
//         "disc.yield"(%7) : (tensor<?x16xf32>) -> ()
//       }) {kind = "dense", name = "convert_multiply_dot_general", why = ["fused: 2 values never stored, 2048 bytes less to move"]} : (tensor<8x16xi8>, tensor<16xf32>, tensor<?x8xf32>) -> tensor<?x16xf32>
//       %1 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg4: tensor<?x8xf32>):
//         %4 = stablehlo.negate %arg4 : tensor<?x8xf32>
//         "disc.yield"(%4) : (tensor<?x8xf32>) -> ()
//       }) {kind = "loop", name = "negate"} : (tensor<?x8xf32>) -> tensor<?x8xf32>
//       %2 = "disc.fusion"(%arg3) ({
//       ^bb0(%arg4: tensor<8x16xf32>):
//         %4 = stablehlo.exponential %arg4 : tensor<8x16xf32>
//         "disc.yield"(%4) : (tensor<8x16xf32>) -> ()
//       }) {kind = "loop", name = "exponential"} : (tensor<8x16xf32>) -> tensor<8x16xf32>
//       %3 = "disc.fusion"(%1, %2) ({
//       ^bb0(%arg4: tensor<?x8xf32>, %arg5: tensor<8x16xf32>):
//         %4 = stablehlo.dot_general %arg4, %arg5, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
//         "disc.yield"(%4) : (tensor<?x16xf32>) -> ()
//       }) {kind = "dense", name = "dot_general", not_fused = ["exponential: computed in every block of the product it would cost more than stored"]} : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
//       return %0, %3 : tensor<?x16xf32>, tensor<?x16xf32>
//     }
//   }

// -----

// Products of one transposed array share a kernel, each with a view of its own.
func.func @main(%x: tensor<?x?x8xf32> {disc.shape = ["b", "t", "8"]}, %v: tensor<8x4xf32>, %w: tensor<8x4xf32>) -> (tensor<?x?x4xf32>, tensor<?x?x4xf32>) {
  %s = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %y = stablehlo.dot_general %s, %v, contracting_dims = [2] x [0] : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
  %t = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %z = stablehlo.dot_general %t, %w, contracting_dims = [2] x [0] : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
  return %y, %z : tensor<?x?x4xf32>, tensor<?x?x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?x8xf32> {disc.shape = ["b", "t", "8"]}, %arg1: tensor<8x4xf32>, %arg2: tensor<8x4xf32>) -> (tensor<?x?x4xf32>, tensor<?x?x4xf32>) {
//       %0:2 = "disc.fusion"(%arg0, %arg1, %arg2) ({
//       ^bb0(%arg3: tensor<?x?x8xf32>, %arg4: tensor<8x4xf32>, %arg5: tensor<8x4xf32>):
//         %1 = stablehlo.transpose %arg3, dims = [1, 0, 2] : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
//         %2 = stablehlo.dot_general %1, %arg4, contracting_dims = [2] x [0] : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
//         %3 = stablehlo.transpose %arg3, dims = [1, 0, 2] : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
//         %4 = stablehlo.dot_general %3, %arg5, contracting_dims = [2] x [0] : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
//         "disc.yield"(%2, %4) : (tensor<?x?x4xf32>, tensor<?x?x4xf32>) -> ()
//       }) {kind = "dense", name = "transpose_dot_general", why = ["fused: 2 values never stored, 128*b*t bytes less to move"]} : (tensor<?x?x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<?x?x4xf32>, tensor<?x?x4xf32>)
//       return %0#0, %0#1 : tensor<?x?x4xf32>, tensor<?x?x4xf32>
//     }
//   }

// -----

// Two gates and what is computed of them: no sum is stored.
func.func @main(%h: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %w: tensor<8x32xf32>) -> tensor<?x16xf32> {
  %s = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
  %sizes = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi64>
  %ends = "disc.shape"() {dims = ["b", "32"]} : () -> tensor<2xi64>
  %zeros = stablehlo.constant dense<0> : tensor<2xi64>
  %second = stablehlo.constant dense<[0, 16]> : tensor<2xi64>
  %ones = stablehlo.constant dense<1> : tensor<2xi64>
  %a = stablehlo.real_dynamic_slice %s, %zeros, %sizes, %ones : (tensor<?x32xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x16xf32>
  %b = stablehlo.real_dynamic_slice %s, %second, %ends, %ones : (tensor<?x32xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x16xf32>
  %g = stablehlo.logistic %b : tensor<?x16xf32>
  %y = stablehlo.multiply %a, %g : tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %arg1: tensor<8x32xf32>) -> tensor<?x16xf32> {
//       %c = stablehlo.constant dense<[0, 16]> : tensor<2xi64>
//       %0 = "disc.fusion"(%arg0, %arg1, %c) ({
//       ^bb0(%arg2: tensor<?x8xf32>, %arg3: tensor<8x32xf32>, %arg4: tensor<2xi64>):
//         %1 = stablehlo.dot_general %arg2, %arg3, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
//         %c_0 = stablehlo.constant dense<0> : tensor<2xi64>
//         %2 = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi64>
//         %c_1 = stablehlo.constant dense<1> : tensor<2xi64>
//         %3 = stablehlo.real_dynamic_slice %1, %c_0, %2, %c_1 : (tensor<?x32xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x16xf32>
//         %4 = "disc.shape"() {dims = ["b", "32"]} : () -> tensor<2xi64>
//         %5 = stablehlo.real_dynamic_slice %1, %arg4, %4, %c_1 : (tensor<?x32xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x16xf32>
//         %6 = stablehlo.logistic %5 : tensor<?x16xf32>
//         %7 = stablehlo.multiply %3, %6 : tensor<?x16xf32>
//         "disc.yield"(%7) : (tensor<?x16xf32>) -> ()
//       }) {kind = "dense", name = "dot_general_real_dynamic_slice_logistic_multiply", why = ["fused: 4 values never stored, 640*b bytes less to move"]} : (tensor<?x8xf32>, tensor<8x32xf32>, tensor<2xi64>) -> tensor<?x16xf32>
//       return %0 : tensor<?x16xf32>
//     }
//   }

// -----

// Parts of several widths are read from memory.
func.func @main(%h: tensor<16x8xf32>, %w: tensor<8x33xf32>) -> (tensor<16x16xf32>, tensor<16x17xf32>) {
  %s = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<16x8xf32>, tensor<8x33xf32>) -> tensor<16x33xf32>
  %a = stablehlo.slice %s [0:16, 0:16] : (tensor<16x33xf32>) -> tensor<16x16xf32>
  %b = stablehlo.slice %s [0:16, 16:33] : (tensor<16x33xf32>) -> tensor<16x17xf32>
  %x = stablehlo.negate %a : tensor<16x16xf32>
  %y = stablehlo.negate %b : tensor<16x17xf32>
  return %x, %y : tensor<16x16xf32>, tensor<16x17xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<16x8xf32>, %arg1: tensor<8x33xf32>) -> (tensor<16x16xf32>, tensor<16x17xf32>) {
//       %0 = "disc.fusion"(%arg0, %arg1) ({
//       ^bb0(%arg2: tensor<16x8xf32>, %arg3: tensor<8x33xf32>):
//         %3 = stablehlo.dot_general %arg2, %arg3, contracting_dims = [1] x [0] : (tensor<16x8xf32>, tensor<8x33xf32>) -> tensor<16x33xf32>
//         "disc.yield"(%3) : (tensor<16x33xf32>) -> ()
//       }) {kind = "dense", name = "dot_general"} : (tensor<16x8xf32>, tensor<8x33xf32>) -> tensor<16x33xf32>
//       %1 = "disc.fusion"(%0) ({
//       ^bb0(%arg2: tensor<16x33xf32>):
//         %3 = stablehlo.slice %arg2 [0:16, 0:16] : (tensor<16x33xf32>) -> tensor<16x16xf32>
//         %4 = stablehlo.negate %3 : tensor<16x16xf32>
//         "disc.yield"(%4) : (tensor<16x16xf32>) -> ()
//       }) {kind = "loop", name = "slice_negate", not_fused = ["dot_general: the product is read at several places"], why = ["fused: 1 value never stored, 2048 bytes less to move"]} : (tensor<16x33xf32>) -> tensor<16x16xf32>
//       %2 = "disc.fusion"(%0) ({
//       ^bb0(%arg2: tensor<16x33xf32>):
//         %3 = stablehlo.slice %arg2 [0:16, 16:33] : (tensor<16x33xf32>) -> tensor<16x17xf32>
//         %4 = stablehlo.negate %3 : tensor<16x17xf32>
//         "disc.yield"(%4) : (tensor<16x17xf32>) -> ()
//       }) {kind = "loop", name = "slice_negate", not_fused = ["dot_general: the product is read at several places"], why = ["fused: 1 value never stored, 2176 bytes less to move"]} : (tensor<16x33xf32>) -> tensor<16x17xf32>
//       return %1, %2 : tensor<16x16xf32>, tensor<16x17xf32>
//     }
//   }

// -----

// Rows that are normalised follow their product in one kernel; rows of its transpose do not.
func.func @main(%h: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %w: tensor<8x32xf32>, %v: tensor<8x16xf32>) -> (tensor<?x32xf32>, tensor<16x?xf32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %s = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
  %m = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<?x32xf32>, tensor<f32>) -> tensor<?xf32>
  %sizes = "disc.shape"() {dims = ["b", "32"]} : () -> tensor<2xi64>
  %n = stablehlo.dynamic_broadcast_in_dim %m, %sizes, dims = [0] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x32xf32>
  %y = stablehlo.subtract %s, %n : tensor<?x32xf32>
  %t = stablehlo.dot_general %h, %v, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  %u = stablehlo.transpose %t, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
  %p = stablehlo.reduce(%u init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<16x?xf32>, tensor<f32>) -> tensor<16xf32>
  %others = "disc.shape"() {dims = ["16", "b"]} : () -> tensor<2xi64>
  %q = stablehlo.dynamic_broadcast_in_dim %p, %others, dims = [0] : (tensor<16xf32>, tensor<2xi64>) -> tensor<16x?xf32>
  %z = stablehlo.subtract %u, %q : tensor<16x?xf32>
  return %y, %z : tensor<?x32xf32>, tensor<16x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %arg1: tensor<8x32xf32>, %arg2: tensor<8x16xf32>) -> (tensor<?x32xf32>, tensor<16x?xf32>) {
//       %0 = "disc.fusion"(%arg0, %arg1) ({
//       ^bb0(%arg3: tensor<?x8xf32>, %arg4: tensor<8x32xf32>):
//         %3 = stablehlo.dot_general %arg3, %arg4, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
//         %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
//         %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<?x32xf32>, tensor<f32>) -> tensor<?xf32>
//         %5 = "disc.shape"() {dims = ["b", "32"]} : () -> tensor<2xi64>
//         %6 = stablehlo.dynamic_broadcast_in_dim %4, %5, dims = [0] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x32xf32>
//         %7 = stablehlo.subtract %3, %6 : tensor<?x32xf32>
//         "disc.yield"(%7) : (tensor<?x32xf32>) -> ()
//       }) {given = 0 : i64, kind = "dense", name = "dot_general_reduce_subtract", reduced = array<i64: 1>, why = ["fused: 2 values never stored, 264*b bytes less to move"]} : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
//       %1 = "disc.fusion"(%arg0, %arg2) ({
//       ^bb0(%arg3: tensor<?x8xf32>, %arg4: tensor<8x16xf32>):
//         %3 = stablehlo.dot_general %arg3, %arg4, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
//         %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
//         "disc.yield"(%4) : (tensor<16x?xf32>) -> ()
//       }) {kind = "dense", name = "dot_general_transpose", why = ["fused: 1 value never stored, 128*b bytes less to move"]} : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<16x?xf32>
//       %2 = "disc.fusion"(%1) ({
//       ^bb0(%arg3: tensor<16x?xf32>):
//         %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
//         %3 = stablehlo.reduce(%arg3 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<16x?xf32>, tensor<f32>) -> tensor<16xf32>
//         %4 = "disc.shape"() {dims = ["16", "b"]} : () -> tensor<2xi64>
//         %5 = stablehlo.dynamic_broadcast_in_dim %3, %4, dims = [0] : (tensor<16xf32>, tensor<2xi64>) -> tensor<16x?xf32>
//         %6 = stablehlo.subtract %arg3, %5 : tensor<16x?xf32>
//         "disc.yield"(%6) : (tensor<16x?xf32>) -> ()
//       }) {kind = "row", name = "reduce_subtract", not_fused = ["transpose: the rows of the product are in another order"], reduced = array<i64: 1>, why = ["fused: 1 value never stored, 128 bytes less to move"]} : (tensor<16x?xf32>) -> tensor<16x?xf32>
//       return %0, %2 : tensor<?x32xf32>, tensor<16x?xf32>
//     }
//   }

// -----

// Views that one loop has taken are read in place, too, if only the product reads them.
func.func public @main(%x: tensor<?x2x128xf32> {disc.shape = ["n", "2", "128"]}, %q: tensor<1x2x1x64xf32>) -> tensor<1x2x1x?xf32> {
  %s = "disc.shape"() {dims = ["0", "1", "0"]} : () -> tensor<3xi64>
  %e = "disc.shape"() {dims = ["n", "2", "128"]} : () -> tensor<3xi64>
  %o = "disc.shape"() {dims = ["1", "1", "1"]} : () -> tensor<3xi64>
  %h = "disc.shape"() {dims = ["n", "2", "64"]} : () -> tensor<3xi64>
  %b = "disc.shape"() {dims = ["1", "2", "n", "64"]} : () -> tensor<4xi64>
  %1 = stablehlo.real_dynamic_slice %x, %s, %e, %o : (tensor<?x2x128xf32>, tensor<3xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<?x1x128xf32>
  %2 = stablehlo.dynamic_reshape %1, %h : (tensor<?x1x128xf32>, tensor<3xi64>) -> tensor<?x2x64xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0, 2] : (tensor<?x2x64xf32>) -> tensor<2x?x64xf32>
  %4 = stablehlo.dynamic_reshape %3, %b : (tensor<2x?x64xf32>, tensor<4xi64>) -> tensor<1x2x?x64xf32>
  %5 = stablehlo.dot_general %q, %4, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3] : (tensor<1x2x1x64xf32>, tensor<1x2x?x64xf32>) -> tensor<1x2x1x?xf32>
  return %5 : tensor<1x2x1x?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x2x128xf32> {disc.shape = ["n", "2", "128"]}, %arg1: tensor<1x2x1x64xf32>) -> tensor<1x2x1x?xf32> {
//       %0 = "disc.fusion"(%arg0, %arg1) ({
//       ^bb0(%arg2: tensor<?x2x128xf32>, %arg3: tensor<1x2x1x64xf32>):
//         %1 = "disc.shape"() {dims = ["0", "1", "0"]} : () -> tensor<3xi64>
//         %2 = "disc.shape"() {dims = ["n", "2", "128"]} : () -> tensor<3xi64>
//         %3 = "disc.shape"() {dims = ["1", "1", "1"]} : () -> tensor<3xi64>
//         %4 = stablehlo.real_dynamic_slice %arg2, %1, %2, %3 : (tensor<?x2x128xf32>, tensor<3xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<?x1x128xf32>
//         %5 = "disc.shape"() {dims = ["n", "2", "64"]} : () -> tensor<3xi64>
//         %6 = stablehlo.dynamic_reshape %4, %5 : (tensor<?x1x128xf32>, tensor<3xi64>) -> tensor<?x2x64xf32>
//         %7 = stablehlo.transpose %6, dims = [1, 0, 2] : (tensor<?x2x64xf32>) -> tensor<2x?x64xf32>
//         %8 = "disc.shape"() {dims = ["1", "2", "n", "64"]} : () -> tensor<4xi64>
//         %9 = stablehlo.dynamic_reshape %7, %8 : (tensor<2x?x64xf32>, tensor<4xi64>) -> tensor<1x2x?x64xf32>
//         %10 = stablehlo.dot_general %arg3, %9, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3] : (tensor<1x2x1x64xf32>, tensor<1x2x?x64xf32>) -> tensor<1x2x1x?xf32>
//         "disc.yield"(%10) : (tensor<1x2x1x?xf32>) -> ()
//       }) {kind = "dense", name = "real_dynamic_slice_dynamic_reshape_transpose_dot_general", why = ["fused: 4 values never stored, 4096*n bytes less to move"]} : (tensor<?x2x128xf32>, tensor<1x2x1x64xf32>) -> tensor<1x2x1x?xf32>
//       return %0 : tensor<1x2x1x?xf32>
//     }
//   }

// -----

// Weights with a scale for each group of rows, two rows in each of bytes, are computed by the product.
func.func public @main(%x: tensor<?x64xf32> {disc.shape = ["b", "64"]}, %w: tensor<32x8xi8>, %scale: tensor<4x8xf32>) -> tensor<?x8xf32> {
  %c4 = stablehlo.constant dense<4> : tensor<i8>
  %four = stablehlo.broadcast_in_dim %c4, dims = [] : (tensor<i8>) -> tensor<32x8xi8>
  %high = stablehlo.shift_right_arithmetic %w, %four : tensor<32x8xi8>
  %a = stablehlo.reshape %w : (tensor<32x8xi8>) -> tensor<32x1x8xi8>
  %b = stablehlo.reshape %high : (tensor<32x8xi8>) -> tensor<32x1x8xi8>
  %both = stablehlo.concatenate %a, %b, dim = 1 : (tensor<32x1x8xi8>, tensor<32x1x8xi8>) -> tensor<32x2x8xi8>
  %wide = stablehlo.convert %both : (tensor<32x2x8xi8>) -> tensor<32x2x8xf32>
  %groups = stablehlo.reshape %wide : (tensor<32x2x8xf32>) -> tensor<4x16x8xf32>
  %scales = stablehlo.broadcast_in_dim %scale, dims = [0, 2] : (tensor<4x8xf32>) -> tensor<4x16x8xf32>
  %scaled = stablehlo.multiply %groups, %scales : tensor<4x16x8xf32>
  %rows = stablehlo.reshape %scaled : (tensor<4x16x8xf32>) -> tensor<64x8xf32>
  %y = stablehlo.dot_general %x, %rows, contracting_dims = [1] x [0] : (tensor<?x64xf32>, tensor<64x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x64xf32> {disc.shape = ["b", "64"]}, %arg1: tensor<32x8xi8>, %arg2: tensor<4x8xf32>) -> tensor<?x8xf32> {
//       %0 = "disc.fusion"(%arg1, %arg2, %arg0) ({
//       ^bb0(%arg3: tensor<32x8xi8>, %arg4: tensor<4x8xf32>, %arg5: tensor<?x64xf32>):
//         %c = stablehlo.constant dense<4> : tensor<i8>
//         %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i8>) -> tensor<32x8xi8>
//         %2 = stablehlo.shift_right_arithmetic %arg3, %1 : tensor<32x8xi8>
//         %3 = stablehlo.reshape %arg3 : (tensor<32x8xi8>) -> tensor<32x1x8xi8>
//         %4 = stablehlo.reshape %2 : (tensor<32x8xi8>) -> tensor<32x1x8xi8>
//         %5 = stablehlo.concatenate %3, %4, dim = 1 : (tensor<32x1x8xi8>, tensor<32x1x8xi8>) -> tensor<32x2x8xi8>
//         %6 = stablehlo.convert %5 : (tensor<32x2x8xi8>) -> tensor<32x2x8xf32>
//         %7 = stablehlo.reshape %6 : (tensor<32x2x8xf32>) -> tensor<4x16x8xf32>
//         %8 = stablehlo.broadcast_in_dim %arg4, dims = [0, 2] : (tensor<4x8xf32>) -> tensor<4x16x8xf32>
//         %9 = stablehlo.multiply %7, %8 : tensor<4x16x8xf32>
//         %10 = stablehlo.reshape %9 : (tensor<4x16x8xf32>) -> tensor<64x8xf32>
//         %11 = stablehlo.dot_general %arg5, %10, contracting_dims = [1] x [0] : (tensor<?x64xf32>, tensor<64x8xf32>) -> tensor<?x8xf32>
//         "disc.yield"(%11) : (tensor<?x8xf32>) -> ()
//       }) {kind = "dense", name = "shift_right_arithmetic_concatenate_convert_multiply_etc", why = ["fused: 5 values never stored, 13824 bytes less to move"]} : (tensor<32x8xi8>, tensor<4x8xf32>, tensor<?x64xf32>) -> tensor<?x8xf32>
//       return %0 : tensor<?x8xf32>
//     }
//   }

// -----

// Not where a reshape tears the columns of the product apart.
func.func public @main(%x: tensor<?x64xf32> {disc.shape = ["b", "64"]}, %w: tensor<8x64xi8>) -> tensor<?x8xf32> {
  %wide = stablehlo.convert %w : (tensor<8x64xi8>) -> tensor<8x64xf32>
  %rows = stablehlo.reshape %wide : (tensor<8x64xf32>) -> tensor<64x8xf32>
  %y = stablehlo.dot_general %x, %rows, contracting_dims = [1] x [0] : (tensor<?x64xf32>, tensor<64x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x64xf32> {disc.shape = ["b", "64"]}, %arg1: tensor<8x64xi8>) -> tensor<?x8xf32> {
//       %0 = "disc.fusion"(%arg1) ({
//       ^bb0(%arg2: tensor<8x64xi8>):
//         %3 = stablehlo.convert %arg2 : (tensor<8x64xi8>) -> tensor<8x64xf32>
//         "disc.yield"(%3) : (tensor<8x64xf32>) -> ()
//       }) {kind = "loop", name = "convert"} : (tensor<8x64xi8>) -> tensor<8x64xf32>
//       %1 = stablehlo.reshape %0 : (tensor<8x64xf32>) -> tensor<64x8xf32>
//       %2 = "disc.fusion"(%arg0, %1) ({
//       ^bb0(%arg2: tensor<?x64xf32>, %arg3: tensor<64x8xf32>):
//         %3 = stablehlo.dot_general %arg2, %arg3, contracting_dims = [1] x [0] : (tensor<?x64xf32>, tensor<64x8xf32>) -> tensor<?x8xf32>
//         "disc.yield"(%3) : (tensor<?x8xf32>) -> ()
//       }) {kind = "dense", name = "dot_general", not_fused = ["convert: neighbours in memory are no neighbours in it"]} : (tensor<?x64xf32>, tensor<64x8xf32>) -> tensor<?x8xf32>
//       return %2 : tensor<?x8xf32>
//     }
//   }

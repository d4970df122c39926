// RUN: disc-opt %s --pass-pipeline=sink-views --split-input-file | expect

// A part of a weight: into the loop, where the product keeps its panels.
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %w: tensor<8x24xf32>) -> tensor<?x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<5> : tensor<i32>
  %part = stablehlo.slice %w [0:8, 8:16] : (tensor<8x24xf32>) -> tensor<8x8xf32>
  %r:2 = stablehlo.while(%i = %zero, %s = %x) : tensor<i32>, tensor<?x8xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %y = stablehlo.dot_general %s, %part, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %y : tensor<i32>, tensor<?x8xf32>
  }
  return %r#1 : tensor<?x8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %arg1: tensor<8x24xf32>) -> tensor<?x8xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<1> : tensor<i32>
//       %c_1 = stablehlo.constant dense<5> : tensor<i32>
//       %0:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg0) : tensor<i32>, tensor<?x8xf32>
//       cond {
//         %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = stablehlo.slice %arg1 [0:8, 8:16] : (tensor<8x24xf32>) -> tensor<8x8xf32>
//         %2 = stablehlo.dot_general %iterArg_2, %1, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
//         %3 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         stablehlo.return %3, %2 : tensor<i32>, tensor<?x8xf32>
//       }
//       return %0#1 : tensor<?x8xf32>
//     }
//   }

// -----

// Computed weights have no panels that are kept: the slice is one copy before the loop.
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %w: tensor<8x24xf32>) -> tensor<?x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<5> : tensor<i32>
  %e = stablehlo.exponential %w : tensor<8x24xf32>
  %part = stablehlo.slice %e [0:8, 8:16] : (tensor<8x24xf32>) -> tensor<8x8xf32>
  %r:2 = stablehlo.while(%i = %zero, %s = %x) : tensor<i32>, tensor<?x8xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %y = stablehlo.dot_general %s, %part, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %y : tensor<i32>, tensor<?x8xf32>
  }
  return %r#1 : tensor<?x8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %arg1: tensor<8x24xf32>) -> tensor<?x8xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<1> : tensor<i32>
//       %c_1 = stablehlo.constant dense<5> : tensor<i32>
//       %0 = stablehlo.exponential %arg1 : tensor<8x24xf32>
//       %1 = stablehlo.slice %0 [0:8, 8:16] : (tensor<8x24xf32>) -> tensor<8x8xf32>
//       %2:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg0) : tensor<i32>, tensor<?x8xf32>
//       cond {
//         %3 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %3 : tensor<i1>
//       } do {
//         %3 = stablehlo.dot_general %iterArg_2, %1, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
//         %4 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         stablehlo.return %4, %3 : tensor<i32>, tensor<?x8xf32>
//       }
//       return %2#1 : tensor<?x8xf32>
//     }
//   }

// -----

// Two products of one slice have a copy each.
func.func @main(%x: tensor<?x16xf32> {disc.shape = ["b", "16"]}, %v: tensor<8x4xf32>, %w: tensor<8x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %one = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
  %first = "disc.shape"() {dims = ["0", "8"]} : () -> tensor<2xi64>
  %last = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi64>
  %s = stablehlo.real_dynamic_slice %x, %first, %last, %one : (tensor<?x16xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x8xf32>
  %y = stablehlo.dot_general %s, %v, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  %z = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  return %y, %z : tensor<?x4xf32>, tensor<?x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x16xf32> {disc.shape = ["b", "16"]}, %arg1: tensor<8x4xf32>, %arg2: tensor<8x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
//       %0 = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
//       %1 = "disc.shape"() {dims = ["0", "8"]} : () -> tensor<2xi64>
//       %2 = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi64>
//       %3 = stablehlo.real_dynamic_slice %arg0, %1, %2, %0 : (tensor<?x16xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x8xf32>
//       %4 = stablehlo.dot_general %3, %arg1, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
//       %5 = stablehlo.real_dynamic_slice %arg0, %1, %2, %0 : (tensor<?x16xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x8xf32>
//       %6 = stablehlo.dot_general %5, %arg2, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
//       return %4, %6 : tensor<?x4xf32>, tensor<?x4xf32>
//     }
//   }

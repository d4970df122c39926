// RUN: disc-opt %s --pass-pipeline=sum-integers --split-input-file | expect

// Scales that are numbers become one.
func.func @main(%q: tensor<4x32xui8>, %p: tensor<32x8xi8>) -> tensor<4x8xf32> {
  %s = stablehlo.constant dense<0.5> : tensor<4x32xf32>
  %t = stablehlo.constant dense<0.25> : tensor<32x8xf32>
  %q1 = stablehlo.convert %q : (tensor<4x32xui8>) -> tensor<4x32xf32>
  %a = stablehlo.multiply %q1, %s : tensor<4x32xf32>
  %p1 = stablehlo.convert %p : (tensor<32x8xi8>) -> tensor<32x8xf32>
  %b = stablehlo.multiply %t, %p1 : tensor<32x8xf32>
  %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4x32xui8>, %arg1: tensor<32x8xi8>) -> tensor<4x8xf32> {
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] {disc.why = "sums of integers: both operands were dequantised from 8 bits"} : (tensor<4x32xui8>, tensor<32x8xi8>) -> tensor<4x8xi32>
//       %1 = stablehlo.convert %0 : (tensor<4x8xi32>) -> tensor<4x8xf32>
//       %cst = stablehlo.constant dense<1.250000e-01> : tensor<4x8xf32>
//       %2 = stablehlo.multiply %1, %cst : tensor<4x8xf32>
//       return %2 : tensor<4x8xf32>
//     }
//   }

// -----

// A zero point of each side, of integers and of floats, and scales of rows and of columns.
func.func @main(%q: tensor<4x32xui8>, %p: tensor<8x32xi8>, %s: tensor<4x1xf32>, %t: tensor<8xf32>, %w: tensor<8xi8>) -> tensor<4x8xf32> {
  %z = stablehlo.constant dense<128> : tensor<4x32xi32>
  %q1 = stablehlo.convert %q : (tensor<4x32xui8>) -> tensor<4x32xi32>
  %q2 = stablehlo.subtract %q1, %z : tensor<4x32xi32>
  %q3 = stablehlo.convert %q2 : (tensor<4x32xi32>) -> tensor<4x32xf32>
  %s1 = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x32xf32>
  %a = stablehlo.multiply %q3, %s1 : tensor<4x32xf32>
  %w1 = stablehlo.convert %w : (tensor<8xi8>) -> tensor<8xf32>
  %w2 = stablehlo.broadcast_in_dim %w1, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %p1 = stablehlo.convert %p : (tensor<8x32xi8>) -> tensor<8x32xf32>
  %p2 = stablehlo.subtract %p1, %w2 : tensor<8x32xf32>
  %t1 = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %b = stablehlo.multiply %p2, %t1 : tensor<8x32xf32>
  %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4x32xui8>, %arg1: tensor<8x32xi8>, %arg2: tensor<4x1xf32>, %arg3: tensor<8xf32>, %arg4: tensor<8xi8>) -> tensor<4x8xf32> {
//       %0 = stablehlo.convert %arg4 : (tensor<8xi8>) -> tensor<8xf32>
//       %1 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [1] {disc.why = "sums of integers: both operands were dequantised from 8 bits"} : (tensor<4x32xui8>, tensor<8x32xi8>) -> tensor<4x8xi32>
//       %c = stablehlo.constant dense<128> : tensor<i32>
//       %2 = stablehlo.convert %c : tensor<i32>
//       %3 = stablehlo.convert %0 : (tensor<8xf32>) -> tensor<8xi32>
//       %4 = stablehlo.convert %arg0 : (tensor<4x32xui8>) -> tensor<4x32xi32>
//       %c_0 = stablehlo.constant dense<0> : tensor<i32>
//       %5 = stablehlo.reduce(%4 init: %c_0) applies stablehlo.add across dimensions = [1] : (tensor<4x32xi32>, tensor<i32>) -> tensor<4xi32>
//       %6 = stablehlo.broadcast_in_dim %3, dims = [1] : (tensor<8xi32>) -> tensor<4x8xi32>
//       %7 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<4xi32>) -> tensor<4x8xi32>
//       %8 = stablehlo.multiply %6, %7 : tensor<4x8xi32>
//       %9 = stablehlo.subtract %1, %8 : tensor<4x8xi32>
//       %10 = stablehlo.convert %arg1 : (tensor<8x32xi8>) -> tensor<8x32xi32>
//       %11 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<8xi32>) -> tensor<8x32xi32>
//       %12 = stablehlo.subtract %10, %11 : tensor<8x32xi32>
//       %13 = stablehlo.reduce(%12 init: %c_0) applies stablehlo.add across dimensions = [1] : (tensor<8x32xi32>, tensor<i32>) -> tensor<8xi32>
//       %14 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<i32>) -> tensor<4x8xi32>
//       %15 = stablehlo.broadcast_in_dim %13, dims = [1] : (tensor<8xi32>) -> tensor<4x8xi32>
//       %16 = stablehlo.multiply %14, %15 : tensor<4x8xi32>
//       %17 = stablehlo.subtract %9, %16 : tensor<4x8xi32>
//       %18 = stablehlo.convert %17 : (tensor<4x8xi32>) -> tensor<4x8xf32>
//       %19 = stablehlo.reshape %arg2 : (tensor<4x1xf32>) -> tensor<4xf32>
//       %20 = stablehlo.broadcast_in_dim %19, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
//       %21 = stablehlo.broadcast_in_dim %arg3, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
//       %22 = stablehlo.abs %20 : tensor<4x8xf32>
//       %23 = stablehlo.abs %21 : tensor<4x8xf32>
//       %24 = stablehlo.compare LT, %22, %23 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>
//       %25 = stablehlo.select %24, %20, %21 : tensor<4x8xi1>, tensor<4x8xf32>
//       %26 = stablehlo.select %24, %21, %20 : tensor<4x8xi1>, tensor<4x8xf32>
//       %27 = stablehlo.multiply %18, %25 : tensor<4x8xf32>
//       %28 = stablehlo.multiply %27, %26 : tensor<4x8xf32>
//       return %28 : tensor<4x8xf32>
//     }
//   }

// -----

// Refused: a scale of each product; a sum that may not fit; a depth that no guard can bound.
func.func @main(%q: tensor<4x32xi8>, %p: tensor<32x8xi8>, %s: tensor<32xf32>, %q2: tensor<1x140000xi8>, %p2: tensor<140000x1xi8>, %q3: tensor<4x?xi8>, %p3: tensor<?x8xi8>) -> (tensor<4x8xf32>, tensor<1x1xf32>, tensor<4x8xf32>) {
  %s1 = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<32xf32>) -> tensor<4x32xf32>
  %0 = stablehlo.convert %q : (tensor<4x32xi8>) -> tensor<4x32xf32>
  %a = stablehlo.multiply %0, %s1 : tensor<4x32xf32>
  %b = stablehlo.convert %p : (tensor<32x8xi8>) -> tensor<32x8xf32>
  %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %a2 = stablehlo.convert %q2 : (tensor<1x140000xi8>) -> tensor<1x140000xf32>
  %b2 = stablehlo.convert %p2 : (tensor<140000x1xi8>) -> tensor<140000x1xf32>
  %y2 = stablehlo.dot_general %a2, %b2, contracting_dims = [1] x [0] : (tensor<1x140000xf32>, tensor<140000x1xf32>) -> tensor<1x1xf32>
  %a3 = stablehlo.convert %q3 : (tensor<4x?xi8>) -> tensor<4x?xf32>
  %b3 = stablehlo.convert %p3 : (tensor<?x8xi8>) -> tensor<?x8xf32>
  %y3 = stablehlo.dot_general %a3, %b3, contracting_dims = [1] x [0] : (tensor<4x?xf32>, tensor<?x8xf32>) -> tensor<4x8xf32>
  return %y, %y2, %y3 : tensor<4x8xf32>, tensor<1x1xf32>, tensor<4x8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4x32xi8>, %arg1: tensor<32x8xi8>, %arg2: tensor<32xf32>, %arg3: tensor<1x140000xi8>, %arg4: tensor<140000x1xi8>, %arg5: tensor<4x?xi8>, %arg6: tensor<?x8xi8>) -> (tensor<4x8xf32>, tensor<1x1xf32>, tensor<4x8xf32>) {
//       %0 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<32xf32>) -> tensor<4x32xf32>
//       %1 = stablehlo.convert %arg0 : (tensor<4x32xi8>) -> tensor<4x32xf32>
//       %2 = stablehlo.multiply %1, %0 : tensor<4x32xf32>
//       %3 = stablehlo.convert %arg1 : (tensor<32x8xi8>) -> tensor<32x8xf32>
//       %4 = stablehlo.dot_general %2, %3, contracting_dims = [1] x [0] {disc.why = "sums of floats: a scale changes along the sum"} : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
//       %5 = stablehlo.convert %arg3 : (tensor<1x140000xi8>) -> tensor<1x140000xf32>
//       %6 = stablehlo.convert %arg4 : (tensor<140000x1xi8>) -> tensor<140000x1xf32>
//       %7 = stablehlo.dot_general %5, %6, contracting_dims = [1] x [0] {disc.why = "sums of floats: a sum of more than 131071 products may not fit into 32 bits"} : (tensor<1x140000xf32>, tensor<140000x1xf32>) -> tensor<1x1xf32>
//       %8 = stablehlo.convert %arg5 : (tensor<4x?xi8>) -> tensor<4x?xf32>
//       %9 = stablehlo.convert %arg6 : (tensor<?x8xi8>) -> tensor<?x8xf32>
//       %10 = stablehlo.dot_general %8, %9, contracting_dims = [1] x [0] {disc.why = "sums of floats: a sum may be empty: 0, whatever the scales are"} : (tensor<4x?xf32>, tensor<?x8xf32>) -> tensor<4x8xf32>
//       return %4, %7, %10 : tensor<4x8xf32>, tensor<1x1xf32>, tensor<4x8xf32>
//     }
//   }

// RUN: disc-opt %s --pass-pipeline=simplify-algebra --split-input-file | expect

// Softmax leaves maximum(-inf, x); attention divides by a power of two.
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<?xf32> {
  %s = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi32>
  %inf = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %eight = stablehlo.constant dense<8.0> : tensor<f32>
  %1 = stablehlo.dynamic_broadcast_in_dim %inf, %s, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %2 = stablehlo.maximum %1, %x : tensor<?xf32>
  %3 = stablehlo.dynamic_broadcast_in_dim %eight, %s, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %4 = stablehlo.divide %2, %3 : tensor<?xf32>
  return %4 : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<?xf32> {
//       %cst = stablehlo.constant dense<1.250000e-01> : tensor<f32>
//       %0 = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi64>
//       %1 = stablehlo.dynamic_broadcast_in_dim %cst, %0, dims = [] : (tensor<f32>, tensor<1xi64>) -> tensor<?xf32>
//       %2 = stablehlo.multiply %arg0, %1 : tensor<?xf32>
//       return %2 : tensor<?xf32>
//     }
//   }

// -----

// Exact for every float.
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
  %minus_zero = stablehlo.constant dense<-0.0> : tensor<4xf32>
  %one = stablehlo.constant dense<1.0> : tensor<4xf32>
  %a = stablehlo.add %x, %minus_zero : tensor<4xf32>
  %b = stablehlo.subtract %x, %zero : tensor<4xf32>
  %c = stablehlo.multiply %one, %x : tensor<4xf32>
  %d = stablehlo.divide %x, %one : tensor<4xf32>
  %n = stablehlo.negate %x : tensor<4xf32>
  %e = stablehlo.negate %n : tensor<4xf32>
  return %a, %b, %c, %d, %e : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
//       return %arg0, %arg0, %arg0, %arg0, %arg0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
//     }
//   }

// -----

// Wrong for some float, right for integers.
func.func @main(%x: tensor<4xf32>, %i: tensor<4xi32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
  %minus_zero = stablehlo.constant dense<-0.0> : tensor<4xf32>
  %three = stablehlo.constant dense<3.0> : tensor<4xf32>
  %no = stablehlo.constant dense<0> : tensor<4xi32>
  %a = stablehlo.add %x, %zero : tensor<4xf32>
  %b = stablehlo.subtract %x, %minus_zero : tensor<4xf32>
  %c = stablehlo.multiply %x, %zero : tensor<4xf32>
  %d = stablehlo.subtract %x, %x : tensor<4xf32>
  %e = stablehlo.divide %x, %three : tensor<4xf32>
  %f = stablehlo.add %i, %no : tensor<4xi32>
  %g = stablehlo.multiply %i, %no : tensor<4xi32>
  %h = stablehlo.subtract %i, %i : tensor<4xi32>
  return %a, %b, %c, %d, %e, %f, %g, %h : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<4xi32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<4xf32>
//       %cst_0 = stablehlo.constant dense<-0.000000e+00> : tensor<4xf32>
//       %cst_1 = stablehlo.constant dense<3.000000e+00> : tensor<4xf32>
//       %c = stablehlo.constant dense<0> : tensor<4xi32>
//       %0 = stablehlo.add %arg0, %cst : tensor<4xf32>
//       %1 = stablehlo.subtract %arg0, %cst_0 : tensor<4xf32>
//       %2 = stablehlo.multiply %arg0, %cst : tensor<4xf32>
//       %3 = stablehlo.subtract %arg0, %arg0 : tensor<4xf32>
//       %4 = stablehlo.divide %arg0, %cst_1 : tensor<4xf32>
//       return %0, %1, %2, %3, %4, %arg1, %c, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>
//     }
//   }

// -----

// A slice of all elements is the array; one that leaves out an element is not.
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["n", "8"]}) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %zeros = stablehlo.constant dense<0> : tensor<2xi64>
  %ones = stablehlo.constant dense<1> : tensor<2xi64>
  %all = "disc.shape"() {dims = ["n", "8"]} : () -> tensor<2xi64>
  %fewer = "disc.shape"() {dims = ["n - 1", "8"]} : () -> tensor<2xi64>
  %a = stablehlo.real_dynamic_slice %x, %zeros, %all, %ones : (tensor<?x8xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x8xf32>
  %b = stablehlo.real_dynamic_slice %x, %zeros, %fewer, %ones : (tensor<?x8xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x8xf32>
  return %a, %b : tensor<?x8xf32>, tensor<?x8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["n", "8"]}) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
//       %c = stablehlo.constant dense<0> : tensor<2xi64>
//       %c_0 = stablehlo.constant dense<1> : tensor<2xi64>
//       %0 = "disc.shape"() {dims = ["n - 1", "8"]} : () -> tensor<2xi64>
//       %1 = stablehlo.real_dynamic_slice %arg0, %c, %0, %c_0 : (tensor<?x8xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x8xf32>
//       return %arg0, %1 : tensor<?x8xf32>, tensor<?x8xf32>
//     }
//   }

// RUN: disc-opt %s --pass-pipeline=fold-constants --split-input-file | expect

// A function of a broadcast constant is a broadcast constant.
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<?xf32> {
  %s = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %1 = stablehlo.dynamic_broadcast_in_dim %half, %s, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %2 = stablehlo.log %1 : tensor<?xf32>
  return %2 : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<?xf32> {
//       %cst = stablehlo.constant dense<-0.693147182> : tensor<f32>
//       %0 = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi64>
//       %1 = stablehlo.dynamic_broadcast_in_dim %cst, %0, dims = [] : (tensor<f32>, tensor<1xi64>) -> tensor<?xf32>
//       return %1 : tensor<?xf32>
//     }
//   }

// -----

// Integers wrap; comparisons and moved elements are constants, too.
func.func @main() -> (tensor<2xi8>, tensor<2xi1>, tensor<4xi8>, tensor<1xi8>, tensor<2x1xi8>) {
  %a = stablehlo.constant dense<[127, 4]> : tensor<2xi8>
  %b = stablehlo.constant dense<[1, 3]> : tensor<2xi8>
  %c = stablehlo.constant dense<4> : tensor<2xi8>
  %1 = stablehlo.add %a, %b : tensor<2xi8>
  %2 = stablehlo.compare GT, %a, %c, SIGNED : (tensor<2xi8>, tensor<2xi8>) -> tensor<2xi1>
  %3 = stablehlo.concatenate %a, %a, dim = 0 : (tensor<2xi8>, tensor<2xi8>) -> tensor<4xi8>
  %4 = stablehlo.slice %a [1:2] : (tensor<2xi8>) -> tensor<1xi8>
  %5 = stablehlo.reshape %a : (tensor<2xi8>) -> tensor<2x1xi8>
  return %1, %2, %3, %4, %5 : tensor<2xi8>, tensor<2xi1>, tensor<4xi8>, tensor<1xi8>, tensor<2x1xi8>
}
// EXPECT:
//   module {
//     func.func @main() -> (tensor<2xi8>, tensor<2xi1>, tensor<4xi8>, tensor<1xi8>, tensor<2x1xi8>) {
//       %c = stablehlo.constant dense<[-128, 7]> : tensor<2xi8>
//       %c_0 = stablehlo.constant dense<[true, false]> : tensor<2xi1>
//       %c_1 = stablehlo.constant dense<[127, 4, 127, 4]> : tensor<4xi8>
//       %c_2 = stablehlo.constant dense<4> : tensor<1xi8>
//       %c_3 = stablehlo.constant dense<[[127], [4]]> : tensor<2x1xi8>
//       return %c, %c_0, %c_1, %c_2, %c_3 : tensor<2xi8>, tensor<2xi1>, tensor<4xi8>, tensor<1xi8>, tensor<2x1xi8>
//     }
//   }

// -----

// Refused: integer division by zero, a float that no integer holds, and a constant that is large.
func.func @main() -> (tensor<i32>, tensor<i32>, tensor<4000xi32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>
  %1 = stablehlo.divide %one, %zero : tensor<i32>
  %2 = stablehlo.convert %nan : (tensor<f32>) -> tensor<i32>
  %a = stablehlo.constant dense<1> : tensor<2000xi32>
  %b = stablehlo.constant dense<2> : tensor<2000xi32>
  %3 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<2000xi32>, tensor<2000xi32>) -> tensor<4000xi32>
  return %1, %2, %3 : tensor<i32>, tensor<i32>, tensor<4000xi32>
}
// EXPECT:
//   module {
//     func.func @main() -> (tensor<i32>, tensor<i32>, tensor<4000xi32>) {
//       %c = stablehlo.constant dense<1> : tensor<i32>
//       %c_0 = stablehlo.constant dense<0> : tensor<i32>
//       %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
//       %0 = stablehlo.divide %c, %c_0 : tensor<i32>
//       %1 = stablehlo.convert %cst : (tensor<f32>) -> tensor<i32>
//       %c_1 = stablehlo.constant dense<1> : tensor<2000xi32>
//       %c_2 = stablehlo.constant dense<2> : tensor<2000xi32>
//       %2 = stablehlo.concatenate %c_1, %c_2, dim = 0 : (tensor<2000xi32>, tensor<2000xi32>) -> tensor<4000xi32>
//       return %0, %1, %2 : tensor<i32>, tensor<i32>, tensor<4000xi32>
//     }
//   }

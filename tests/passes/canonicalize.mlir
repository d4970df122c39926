// RUN: disc-opt %s --pass-pipeline=canonicalize | expect
// Float identities that are wrong for some value must survive.

func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
  %a = stablehlo.add %x, %zero : tensor<4xf32>
  %b = stablehlo.multiply %x, %zero : tensor<4xf32>
  %c = stablehlo.subtract %x, %x : tensor<4xf32>
  return %a, %b, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<4xf32>
//       %0 = stablehlo.add %arg0, %cst : tensor<4xf32>
//       %1 = stablehlo.multiply %arg0, %cst : tensor<4xf32>
//       %2 = stablehlo.subtract %arg0, %arg0 : tensor<4xf32>
//       return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
//     }
//   }

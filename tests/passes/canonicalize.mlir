// RUN: disc-opt %s --pass-pipeline=canonicalize | filecheck %s
// Float identities that are wrong for some value must survive.

func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
  // CHECK: stablehlo.add
  // CHECK: stablehlo.multiply
  // CHECK: stablehlo.subtract
  %a = stablehlo.add %x, %zero : tensor<4xf32>
  %b = stablehlo.multiply %x, %zero : tensor<4xf32>
  %c = stablehlo.subtract %x, %x : tensor<4xf32>
  return %a, %b, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

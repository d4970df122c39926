// RUN: disc-opt %s --pass-pipeline=fold-reductions --split-input-file | filecheck %s

// The initial value takes part: 0.0 + -0.0 is 0.0.
// CHECK-LABEL: func.func @main
// CHECK-NOT: stablehlo.reduce
// CHECK: %[[X:.+]] = stablehlo.dynamic_reshape %arg0
// CHECK: %[[B:.+]] = stablehlo.dynamic_broadcast_in_dim %cst
// CHECK: %[[Y:.+]] = stablehlo.add %[[B]], %[[X]] : tensor<?xf32>
// CHECK: return %[[Y]]
func.func @main(%x: tensor<?x1xf32> {disc.shape = ["b", "1"]}) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x1xf32>, tensor<f32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

// To a scalar, over two dimensions.
// CHECK-LABEL: func.func @main
// CHECK: %[[X:.+]] = stablehlo.reshape %arg0 : (tensor<1x1xf32>) -> tensor<f32>
// CHECK: stablehlo.maximum %arg1, %[[X]] : tensor<f32>
func.func @main(%x: tensor<1x1xf32>, %low: tensor<f32>) -> tensor<f32> {
  %y = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<1x1xf32>, tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}

// -----

// A size that may be more than 1 stays, also beside one that is 1.
// CHECK-LABEL: func.func @main
// CHECK-COUNT-2: stablehlo.reduce
func.func @main(%x: tensor<?x1xf32> {disc.shape = ["b", "1"]}) -> (tensor<1xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x1xf32>, tensor<f32>) -> tensor<1xf32>
  %z = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<?x1xf32>, tensor<f32>) -> tensor<f32>
  return %y, %z : tensor<1xf32>, tensor<f32>
}

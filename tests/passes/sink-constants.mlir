// RUN: disc-opt %s --pass-pipeline=sink-constants --split-input-file | filecheck %s

// Each body gets its own copy, and what is computed from constants with it.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.sort
// CHECK: ^bb0(%[[A:.+]]: tensor<f32>, %{{.+}}: tensor<f32>):
// CHECK-NEXT: %[[Z:.+]] = stablehlo.constant dense<0.000000e+00>
// CHECK-NEXT: %[[N:.+]] = stablehlo.negate %[[Z]]
// CHECK-NEXT: stablehlo.compare LT, %[[A]], %[[N]]
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.negate %zero : tensor<f32>
  %y = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

// Control flow reads what it likes.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.constant dense<1.000000e+00>
// CHECK: stablehlo.if
// CHECK-NOT: stablehlo.constant
// CHECK: return
func.func @main(%x: tensor<f32>, %p: tensor<i1>) -> tensor<f32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %y = "stablehlo.if"(%p) ({
    stablehlo.return %one : tensor<f32>
  }, {
    %s = stablehlo.add %x, %one : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<i1>) -> tensor<f32>
  return %y : tensor<f32>
}

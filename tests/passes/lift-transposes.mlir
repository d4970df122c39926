// RUN: disc-opt %s --pass-pipeline=lift-transposes --split-input-file | filecheck %s

// Scores that are scaled, reduced and transposed, with their maximum transposed as well (`vmap`).
// CHECK-LABEL: func.func @main
// CHECK: %[[S:.+]] = stablehlo.dot_general
// CHECK: %[[T:.+]] = stablehlo.transpose %[[S]], dims = [1, 0, 2] : (tensor<?x3x?xf32>) -> tensor<3x?x?xf32>
// CHECK: %[[M:.+]] = stablehlo.multiply %[[T]], %{{.+}} : tensor<3x?x?xf32>
// CHECK: %[[R:.+]] = stablehlo.reduce(%[[M]] init: %{{.+}}) applies stablehlo.maximum across dimensions = [2] : (tensor<3x?x?xf32>, tensor<f32>) -> tensor<3x?xf32>
// CHECK-NOT: stablehlo.transpose
// CHECK: return %[[M]], %[[R]]
func.func @main(%q: tensor<?x3x8xf32> {disc.shape = ["t", "3", "8"]}, %k: tensor<?x8xf32> {disc.shape = ["s", "8"]}) -> (tensor<3x?x?xf32>, tensor<3x?xf32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
  %sizes = "disc.shape"() {dims = ["t", "3", "s"]} : () -> tensor<3xi64>
  %scale = stablehlo.dynamic_broadcast_in_dim %half, %sizes, dims = [] : (tensor<f32>, tensor<3xi64>) -> tensor<?x3x?xf32>
  %x = stablehlo.multiply %s, %scale : tensor<?x3x?xf32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [2] : (tensor<?x3x?xf32>, tensor<f32>) -> tensor<?x3xf32>
  %y = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x3x?xf32>) -> tensor<3x?x?xf32>
  %n = stablehlo.transpose %m, dims = [1, 0] : (tensor<?x3xf32>) -> tensor<3x?xf32>
  return %y, %n : tensor<3x?x?xf32>, tensor<3x?xf32>
}

// -----

// A reader that wants the product as it is: nothing moves.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.dot_general
// CHECK-NEXT: stablehlo.negate %{{.+}} : tensor<?x3x?xf32>
// CHECK-NEXT: stablehlo.transpose
func.func @main(%q: tensor<?x3x8xf32> {disc.shape = ["t", "3", "8"]}, %k: tensor<?x8xf32> {disc.shape = ["s", "8"]}) -> (tensor<3x?x?xf32>, tensor<?x3x?xf32>) {
  %s = stablehlo.dot_general %q, %k, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
  %x = stablehlo.negate %s : tensor<?x3x?xf32>
  %y = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x3x?xf32>) -> tensor<3x?x?xf32>
  return %y, %x : tensor<3x?x?xf32>, tensor<?x3x?xf32>
}

// -----

// Neither where the innermost dimension would move, nor where another array would be transposed.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.dot_general
// CHECK-NEXT: stablehlo.negate
// CHECK-NEXT: stablehlo.transpose
// CHECK: stablehlo.dot_general
// CHECK-NEXT: stablehlo.add
// CHECK-NEXT: stablehlo.transpose
func.func @main(%q: tensor<?x3x8xf32> {disc.shape = ["t", "3", "8"]}, %k: tensor<?x8xf32> {disc.shape = ["s", "8"]}, %b: tensor<?x3x?xf32> {disc.shape = ["t", "3", "s"]}) -> (tensor<?x3x?xf32>, tensor<3x?x?xf32>) {
  %s = stablehlo.dot_general %q, %k, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
  %x = stablehlo.negate %s : tensor<?x3x?xf32>
  %y = stablehlo.transpose %x, dims = [2, 1, 0] : (tensor<?x3x?xf32>) -> tensor<?x3x?xf32>
  %t = stablehlo.dot_general %q, %k, contracting_dims = [2] x [1] : (tensor<?x3x8xf32>, tensor<?x8xf32>) -> tensor<?x3x?xf32>
  %z = stablehlo.add %t, %b : tensor<?x3x?xf32>
  %v = stablehlo.transpose %z, dims = [1, 0, 2] : (tensor<?x3x?xf32>) -> tensor<3x?x?xf32>
  return %y, %v : tensor<?x3x?xf32>, tensor<3x?x?xf32>
}

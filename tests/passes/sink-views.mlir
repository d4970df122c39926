// RUN: disc-opt %s --pass-pipeline=sink-views --split-input-file | filecheck %s

// A part of a weight: into the loop, where the product keeps its panels.
// CHECK-LABEL: func.func @main
// CHECK-NOT: stablehlo.slice
// CHECK: stablehlo.while
// CHECK: do {
// CHECK: %[[W:.+]] = stablehlo.slice %arg1
// CHECK: stablehlo.dot_general %{{.+}}, %[[W]]
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

// -----

// Computed weights have no panels that are kept: the slice is one copy before the loop.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.slice
// CHECK: stablehlo.while
// CHECK-NOT: stablehlo.slice
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

// -----

// Two products of one slice have a copy each.
// CHECK-LABEL: func.func @main
// CHECK: %[[A:.+]] = stablehlo.real_dynamic_slice
// CHECK-NEXT: stablehlo.dot_general %[[A]], %arg1
// CHECK-NEXT: %[[B:.+]] = stablehlo.real_dynamic_slice
// CHECK-NEXT: stablehlo.dot_general %[[B]], %arg2
func.func @main(%x: tensor<?x16xf32> {disc.shape = ["b", "16"]}, %v: tensor<8x4xf32>, %w: tensor<8x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %one = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
  %first = "disc.shape"() {dims = ["0", "8"]} : () -> tensor<2xi64>
  %last = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi64>
  %s = stablehlo.real_dynamic_slice %x, %first, %last, %one : (tensor<?x16xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x8xf32>
  %y = stablehlo.dot_general %s, %v, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  %z = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  return %y, %z : tensor<?x4xf32>, tensor<?x4xf32>
}

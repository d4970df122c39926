// RUN: disc-opt %s --pass-pipeline=hoist-projections --split-input-file | filecheck %s

// One product of all steps; the loop reads its entry.
// CHECK-LABEL: func.func @main
// CHECK: %[[P:.+]] = stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [0] : (tensor<9x4x8xf32>, tensor<8x16xf32>) -> tensor<9x4x16xf32>
// CHECK: stablehlo.while
// CHECK: do {
// CHECK: %[[E:.+]] = stablehlo.dynamic_slice %[[P]], %{{.+}}, %{{.+}}, %{{.+}}, sizes = [1, 4, 16]
// CHECK: %[[R:.+]] = stablehlo.reshape %[[E]] : (tensor<1x4x16xf32>) -> tensor<4x16xf32>
// CHECK-NOT: dot_general
// CHECK: stablehlo.add %[[R]]
func.func @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x16xf32>, %h: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %h) : tensor<i32>, tensor<4x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %u = stablehlo.add %p, %y : tensor<4x16xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<4x16xf32>
  }
  return %r#1 : tensor<4x16xf32>
}

// -----

// A loop that may end early computes what it needs only.
// CHECK-LABEL: func.func @main
// CHECK-NOT: dot_general
// CHECK: do {
// CHECK: stablehlo.dot_general
func.func @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x16xf32>, %h: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %h) : tensor<i32>, tensor<4x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %u = stablehlo.add %p, %y : tensor<4x16xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<4x16xf32>
  }
  return %r#1 : tensor<4x16xf32>
}

// -----

// A weight that changes in the loop stays.
// CHECK-LABEL: func.func @main
// CHECK-NOT: dot_general
// CHECK: do {
// CHECK: stablehlo.dot_general
func.func @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %w) : tensor<i32>, tensor<8x8xf32>
  cond {
    %c = stablehlo.compare LT, %i, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %q = stablehlo.concatenate %p, %p, dim = 0 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %u = stablehlo.add %q, %y : tensor<8x8xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x8xf32>
  }
  return %r#1 : tensor<8x8xf32>
}

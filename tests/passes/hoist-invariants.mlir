// RUN: disc-opt %s --pass-pipeline=hoist-invariants --split-input-file | filecheck %s

// The product leaves with the broadcast it reads; the other broadcast and the counter stay.
// CHECK-LABEL: func.func @main
// CHECK: %[[B:.+]] = stablehlo.broadcast_in_dim %arg1, dims = [1]
// CHECK: %[[P:.+]] = stablehlo.multiply %arg2, %[[B]]
// CHECK: stablehlo.while
// CHECK: do {
// CHECK: stablehlo.broadcast_in_dim %arg1, dims = [0]
// CHECK: stablehlo.add %{{.+}}, %[[P]]
func.func @main(%x: tensor<4x4xf32>, %b: tensor<4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
    %p = stablehlo.multiply %w, %s : tensor<4x4xf32>
    %t = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
    %u = stablehlo.add %y, %p : tensor<4x4xf32>
    %v = stablehlo.add %u, %t : tensor<4x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %v : tensor<i32>, tensor<4x4xf32>
  }
  return %r#1 : tensor<4x4xf32>
}

// -----

// Out of two loops; an integer division stays, for it may trap.
// CHECK-LABEL: func.func @main
// CHECK: %[[E:.+]] = stablehlo.exponential %arg0
// CHECK: stablehlo.while
// CHECK: stablehlo.while
// CHECK: stablehlo.divide %arg1, %arg1
// CHECK: stablehlo.add %{{.+}}, %[[E]]
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s:2 = stablehlo.while(%k = %i, %t = %y) : tensor<i32>, tensor<4xf32>
    cond {
      %c = stablehlo.compare LT, %k, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.divide %n, %n : tensor<i32>
      %l = stablehlo.add %k, %one : tensor<i32>
      %e = stablehlo.exponential %x : tensor<4xf32>
      %z = stablehlo.add %t, %e : tensor<4xf32>
      stablehlo.return %l, %z : tensor<i32>, tensor<4xf32>
    }
    stablehlo.return %s#0, %s#1 : tensor<i32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}

// RUN: disc-opt %s --pass-pipeline=forward-carried --split-input-file | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: %[[R:.+]]:2 = stablehlo.while(%[[I:.+]] = %{{.+}}, %[[Y:.+]] = %arg0) : tensor<i32>, tensor<?xf32>
// CHECK: stablehlo.compare  LT, %[[I]], %arg2
// CHECK: stablehlo.multiply %[[Y]], %arg1
// CHECK: return %[[R]]#1, %arg1
func.func @main(%x: tensor<?xf32>, %w: tensor<?xf32>, %n: tensor<i32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:4 = stablehlo.while(%v = %w, %i = %zero, %m = %n, %y = %x) : tensor<?xf32>, tensor<i32>, tensor<i32>, tensor<?xf32>
  cond {
    %c = stablehlo.compare LT, %i, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %z = stablehlo.multiply %y, %v : tensor<?xf32>
    stablehlo.return %v, %j, %m, %z : tensor<?xf32>, tensor<i32>, tensor<i32>, tensor<?xf32>
  }
  return %r#3, %r#0 : tensor<?xf32>, tensor<?xf32>
}

// -----

// An inner loop that only passes a value on makes it unchanged in the outer loop too; a value
// written but never read is dropped.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.while(%{{[^,]+}} = %{{[^,]+}}) : tensor<i32>
// CHECK: stablehlo.while(%{{[^,]+}} = %{{[^,]+}}) : tensor<i32>
// CHECK: return %arg0
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %y = %x, %u = %x) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s:2 = stablehlo.while(%k = %i, %t = %y) : tensor<i32>, tensor<4xf32>
    cond {
      %c = stablehlo.compare LT, %k, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %l = stablehlo.add %k, %one : tensor<i32>
      stablehlo.return %l, %t : tensor<i32>, tensor<4xf32>
    }
    %v = stablehlo.tanh %s#1 : tensor<4xf32>
    stablehlo.return %s#0, %s#1, %v : tensor<i32>, tensor<4xf32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}

// -----

// Refused: two values change places.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.while(%{{[^,]+}} = %{{[^,]+}}, %{{[^,]+}} = %arg0, %{{[^,]+}} = %arg1)
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %b, %a : tensor<i32>, tensor<4xf32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}

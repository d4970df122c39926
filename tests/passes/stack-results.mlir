// RUN: disc-opt %s --pass-pipeline=stack-results --split-input-file | filecheck %s

// Every slice is written: the zeros are not.
// CHECK-LABEL: func.func @main
// CHECK: %[[E:.+]] = "disc.empty"() {dims = ["t", "4"]}
// CHECK: stablehlo.while({{.*}} = %[[E]])
// CHECK-SAME: disc.stacked = array<i64: 1>
func.func @main(%x: tensor<?x4xf32> {disc.shape = ["t", "4"]}, %y: tensor<1x4xf32>, %zeros: tensor<?x4xf32> {disc.shape = ["t", "4"]}) -> tensor<?x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = "disc.dim"() {dim = "t"} : () -> tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<?x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %u = stablehlo.dynamic_update_slice %s, %y, %i, %zero : (tensor<?x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<?x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<?x4xf32>
  }
  return %r#1 : tensor<?x4xf32>
}

// -----

// From the last slice to the first.
// CHECK-LABEL: func.func @main
// CHECK: "disc.empty"() {dims = ["7", "4"]}
func.func @main(%y: tensor<1x4xf32>, %zeros: tensor<7x4xf32>) -> tensor<7x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<7> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<7x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %rest = stablehlo.subtract %n, %i : tensor<i32>
    %at = stablehlo.subtract %rest, %one : tensor<i32>
    %u = stablehlo.dynamic_update_slice %s, %y, %at, %zero : (tensor<7x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<7x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<7x4xf32>
  }
  return %r#1 : tensor<7x4xf32>
}

// -----

// One step too few, from 1, two at a time, or to another place: some first values stay.
// CHECK-LABEL: func.func @main
// CHECK-NOT: disc.empty
func.func @main(%y: tensor<1x4xf32>, %zeros: tensor<8x4xf32>, %p: tensor<i32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %seven = stablehlo.constant dense<7> : tensor<i32>
  %eight = stablehlo.constant dense<8> : tensor<i32>
  %a:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %seven : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %u = stablehlo.dynamic_update_slice %s, %y, %i, %zero : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x4xf32>
  }
  %b:2 = stablehlo.while(%i = %one, %s = %zeros) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %u = stablehlo.dynamic_update_slice %s, %y, %i, %zero : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x4xf32>
  }
  %d:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %u = stablehlo.dynamic_update_slice %s, %y, %i, %zero : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %two : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x4xf32>
  }
  %e:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %at = stablehlo.add %i, %p : tensor<i32>
    %u = stablehlo.dynamic_update_slice %s, %y, %at, %zero : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x4xf32>
  }
  return %a#1, %b#1, %d#1, %e#1 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
}

// -----

// The loop reads what it has written so far: what is not yet written is read, too.
// CHECK-LABEL: func.func @main
// CHECK-NOT: disc.empty
func.func @main(%zeros: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %eight = stablehlo.constant dense<8> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %y = stablehlo.slice %s [7:8, 0:4] : (tensor<8x4xf32>) -> tensor<1x4xf32>
    %u = stablehlo.dynamic_update_slice %s, %y, %i, %zero : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x4xf32>
  }
  return %r#1 : tensor<8x4xf32>
}

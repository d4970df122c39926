// RUN: disc-opt %s --pass-pipeline=expand-windows --split-input-file | filecheck %s

// A window over all that comes before is a scan; one over all that comes behind, in reverse.
// CHECK-LABEL: func.func @main
// CHECK-NOT: stablehlo.while
// CHECK: "disc.scan"(%arg0, %{{.+}}) ({
// CHECK: stablehlo.add
// CHECK: {dimension = 1 : i64, reverse = false}
// CHECK: "disc.scan"
// CHECK: {dimension = 1 : i64, reverse = true}
func.func @main(%x: tensor<3x?xf32> {disc.shape = ["3", "t"]}) -> (tensor<3x?xf32>, tensor<3x?xf32>) {
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %t = "disc.dim"() {dim = "t"} : () -> tensor<i32>
  %before = "disc.dim"() {dim = "t - 1"} : () -> tensor<i32>
  %y = "disc.reduce_window"(%x, %init, %t, %before, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {dimension = 1 : i64} : (tensor<3x?xf32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x?xf32>
  %z = "disc.reduce_window"(%x, %init, %t, %zero, %before) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {dimension = 1 : i64} : (tensor<3x?xf32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x?xf32>
  return %y, %z : tensor<3x?xf32>, tensor<3x?xf32>
}

// -----

// A constant window of the whole dimension likewise.
// CHECK-LABEL: func.func @main
// CHECK: "disc.scan"
// CHECK: {dimension = 0 : i64, reverse = false}
// CHECK: stablehlo.reduce_window
func.func @main(%x: tensor<4x5xf32>) -> (tensor<4x5xf32>, tensor<4x5xf32>) {
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %y = "stablehlo.reduce_window"(%x, %init) <{padding = dense<[[3, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 4, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4x5xf32>, tensor<f32>) -> tensor<4x5xf32>
  %z = "stablehlo.reduce_window"(%x, %init) <{padding = dense<[[2, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 3, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4x5xf32>, tensor<f32>) -> tensor<4x5xf32>
  return %y, %z : tensor<4x5xf32>, tensor<4x5xf32>
}

// -----

// Any other window is a loop that doubles what it has combined.
// CHECK-LABEL: func.func @main
// CHECK-NOT: disc.reduce_window
// CHECK: stablehlo.dynamic_pad
// CHECK: stablehlo.while
// CHECK: stablehlo.and
// CHECK: stablehlo.dynamic_gather
// CHECK: stablehlo.real_dynamic_slice
func.func @main(%x: tensor<3x?xf32> {disc.shape = ["3", "t"]}) -> tensor<3x?xf32> {
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %half = "disc.dim"() {dim = "floordiv(t, 2) + 1"} : () -> tensor<i32>
  %y = "disc.reduce_window"(%x, %init, %half, %two, %two) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {dimension = 1 : i64} : (tensor<3x?xf32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x?xf32>
  return %y : tensor<3x?xf32>
}

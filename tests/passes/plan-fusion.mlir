// RUN: disc-opt %s --pass-pipeline=cleanup,plan-fusion --split-input-file | filecheck %s

// Softmax is one row fusion: two reductions and what is between and behind them.
// CHECK-LABEL: func.func public @main
// CHECK: %[[S:.+]] = "disc.fusion"(%arg0)
// CHECK: stablehlo.reduce({{.*}}) applies stablehlo.maximum
// CHECK: stablehlo.exponential
// CHECK: stablehlo.reduce({{.*}}) applies stablehlo.add
// CHECK: stablehlo.divide
// CHECK: kind = "row"
// CHECK-SAME: rows = 1
// CHECK-NEXT: return %[[S]]
func.func public @main(%x: tensor<?x64xf32> {disc.shape = ["b", "64"]}) -> tensor<?x64xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["b", "64"]} : () -> tensor<2xi32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<?x64xf32>, tensor<f32>) -> tensor<?xf32>
  %mb = stablehlo.dynamic_broadcast_in_dim %m, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x64xf32>
  %d = stablehlo.subtract %x, %mb : tensor<?x64xf32>
  %e = stablehlo.exponential %d : tensor<?x64xf32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x64xf32>, tensor<f32>) -> tensor<?xf32>
  %tb = stablehlo.dynamic_broadcast_in_dim %t, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x64xf32>
  %y = stablehlo.divide %e, %tb : tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// -----

// A value with two readers in one cluster is computed once; one read from outside is a result too.
// CHECK-LABEL: func.func public @main
// CHECK: %[[F:.+]]:2 = "disc.fusion"(%arg0)
// CHECK: %[[T:.+]] = stablehlo.tanh
// CHECK: %[[A:.+]] = stablehlo.add %[[T]], %[[T]]
// CHECK: "disc.yield"(%[[T]], %[[A]])
// CHECK: return %[[F]]#0, %[[F]]#1
func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> (tensor<?xf32>, tensor<?xf32>) {
  %t = stablehlo.tanh %x : tensor<?xf32>
  %a = stablehlo.add %t, %t : tensor<?xf32>
  return %t, %a : tensor<?xf32>, tensor<?xf32>
}

// -----

// No cycle: sort stands between two element-wise ops that also read each other.
// CHECK-LABEL: func.func public @main
// CHECK: %[[A:.+]] = "disc.fusion"(%arg0)
// CHECK: kind = "loop"
// CHECK: %[[S:.+]] = "disc.fusion"(%[[A]])
// CHECK: kind = "sort"
// CHECK: "disc.fusion"(%[[A]], %[[S]])
// CHECK: kind = "loop"
func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> {
  %a = stablehlo.tanh %x : tensor<?xf32>
  %s = "stablehlo.sort"(%a) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %c = stablehlo.compare LT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<?xf32>) -> tensor<?xf32>
  %y = stablehlo.add %a, %s : tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

// A dot takes in the element-wise ops behind it; its operands come from memory.
// CHECK-LABEL: func.func public @main
// CHECK: %[[X:.+]] = "disc.fusion"(%arg0)
// CHECK: kind = "loop", name = "tanh"
// CHECK: "disc.fusion"(%[[X]], %arg1, %arg2)
// CHECK: stablehlo.dot_general
// CHECK: stablehlo.add
// CHECK: kind = "dense", name = "dot_general_add"
func.func public @main(%x: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %w: tensor<8x4xf32>, %bias: tensor<4xf32>) -> tensor<?x4xf32> {
  %s = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
  %t = stablehlo.tanh %x : tensor<?x8xf32>
  %d = stablehlo.dot_general %t, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %bias, %s, dims = [1] : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  %y = stablehlo.add %d, %b : tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

// Ops over spaces not proved equal stay apart, and a reduction of leading dimensions takes in its
// operand when nobody else reads it.
// CHECK-LABEL: func.func public @main
// CHECK: "disc.fusion"(%arg1)
// CHECK: kind = "loop", name = "tanh"
// CHECK: "disc.fusion"(%arg0)
// CHECK: stablehlo.tanh
// CHECK: stablehlo.reduce
// CHECK: kind = "loop", name = "tanh_reduce"
func.func public @main(%x: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %z: tensor<?xf32> {disc.shape = ["m"]}) -> (tensor<4xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.tanh %x : tensor<?x4xf32>
  %u = stablehlo.tanh %z : tensor<?xf32>
  %c = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %c, %u : tensor<4xf32>, tensor<?xf32>
}

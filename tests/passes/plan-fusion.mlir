// RUN: disc-opt %s --pass-pipeline=cleanup,plan-fusion --split-input-file | filecheck %s

// Softmax is one row fusion: two reductions and what is between and behind them.
// CHECK-LABEL: func.func public @main
// CHECK: %[[S:.+]] = "disc.fusion"(%arg0)
// CHECK: stablehlo.reduce({{.*}}) applies stablehlo.maximum
// CHECK: stablehlo.exponential
// CHECK: stablehlo.reduce({{.*}}) applies stablehlo.add
// CHECK: stablehlo.divide
// CHECK: kind = "row"
// CHECK-SAME: reduced = array<i64: 1>
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
// CHECK: kind = "column", name = "tanh_reduce"
func.func public @main(%x: tensor<?x4xf32> {disc.shape = ["n", "4"]}, %z: tensor<?xf32> {disc.shape = ["m"]}) -> (tensor<4xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.tanh %x : tensor<?x4xf32>
  %u = stablehlo.tanh %z : tensor<?xf32>
  %c = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %c, %u : tensor<4xf32>, tensor<?xf32>
}

// -----

// Attention is one kernel: both products, the row work between them and the transpose behind.
// CHECK-LABEL: func.func public @main
// CHECK: %[[A:.+]] = "disc.fusion"(%arg0, %arg1, %arg2)
// CHECK: stablehlo.dot_general
// CHECK: stablehlo.reduce
// CHECK: stablehlo.divide
// CHECK: stablehlo.dot_general
// CHECK: stablehlo.transpose
// CHECK: kind = "attention"
// CHECK-NEXT: return %[[A]]
func.func public @main(%q: tensor<?x?x4x64xf32> {disc.shape = ["b", "t", "4", "64"]}, %k: tensor<?x?x4x64xf32> {disc.shape = ["b", "s", "4", "64"]}, %v: tensor<?x?x4x64xf32> {disc.shape = ["b", "s", "4", "64"]}) -> tensor<?x?x4x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %shape = "disc.shape"() {dims = ["b", "4", "t", "s"]} : () -> tensor<4xi32>
  %scores = stablehlo.dot_general %q, %k, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x?xf32>
  %sum = stablehlo.reduce(%scores init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
  %sums = stablehlo.dynamic_broadcast_in_dim %sum, %shape, dims = [0, 1, 2] : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
  %w = stablehlo.divide %scores, %sums : tensor<?x4x?x?xf32>
  %mix = stablehlo.dot_general %w, %v, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1] : (tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
  %y = stablehlo.transpose %mix, dims = [0, 2, 1, 3] : (tensor<?x4x?x64xf32>) -> tensor<?x?x4x64xf32>
  return %y : tensor<?x?x4x64xf32>
}

// -----

// Keys repeated for the query heads of a group are read where they are; values repeated along their
// own dimension are not, and must exist.
// CHECK-LABEL: func.func public @main
// CHECK: %[[V:.+]] = "disc.fusion"(%arg2)
// CHECK: kind = "loop", name = "dynamic_broadcast_in_dim"
// CHECK: %[[W:.+]] = stablehlo.dynamic_reshape %[[V]]
// CHECK: "disc.fusion"(%arg1, %arg0, %[[W]])
// CHECK: stablehlo.dynamic_broadcast_in_dim %{{.+}}, %{{.+}}, dims = [0, 1, 2, 4]
// CHECK: stablehlo.dot_general
// CHECK: kind = "attention"
func.func public @main(%q: tensor<?x?x4x64xf32> {disc.shape = ["b", "t", "4", "64"]}, %k: tensor<?x?x2x64xf32> {disc.shape = ["b", "s", "2", "64"]}, %v: tensor<?x?x4x32xf32> {disc.shape = ["b", "s", "4", "32"]}) -> tensor<?x4x?x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %groups = "disc.shape"() {dims = ["b", "s", "2", "2", "64"]} : () -> tensor<5xi32>
  %wide = stablehlo.dynamic_broadcast_in_dim %k, %groups, dims = [0, 1, 2, 4] : (tensor<?x?x2x64xf32>, tensor<5xi32>) -> tensor<?x?x2x2x64xf32>
  %heads = "disc.shape"() {dims = ["b", "s", "4", "64"]} : () -> tensor<4xi32>
  %keys = stablehlo.dynamic_reshape %wide, %heads : (tensor<?x?x2x2x64xf32>, tensor<4xi32>) -> tensor<?x?x4x64xf32>
  %twice = "disc.shape"() {dims = ["b", "s", "4", "32", "2"]} : () -> tensor<5xi32>
  %pairs = stablehlo.dynamic_broadcast_in_dim %v, %twice, dims = [0, 1, 2, 3] : (tensor<?x?x4x32xf32>, tensor<5xi32>) -> tensor<?x?x4x32x2xf32>
  %values = stablehlo.dynamic_reshape %pairs, %heads : (tensor<?x?x4x32x2xf32>, tensor<4xi32>) -> tensor<?x?x4x64xf32>
  %scores = stablehlo.dot_general %q, %keys, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x?xf32>
  %shape = "disc.shape"() {dims = ["b", "4", "t", "s"]} : () -> tensor<4xi32>
  %sum = stablehlo.reduce(%scores init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
  %sums = stablehlo.dynamic_broadcast_in_dim %sum, %shape, dims = [0, 1, 2] : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
  %w = stablehlo.divide %scores, %sums : tensor<?x4x?x?xf32>
  %mix = stablehlo.dot_general %w, %values, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1] : (tensor<?x4x?x?xf32>, tensor<?x?x4x64xf32>) -> tensor<?x4x?x64xf32>
  return %mix : tensor<?x4x?x64xf32>
}

// -----

// Scores that are read by somebody else must exist: three kernels.
// CHECK-LABEL: func.func public @main
// CHECK: kind = "dense"
// CHECK: kind = "row"
// CHECK: kind = "dense"
// CHECK-NOT: kind = "attention"
func.func public @main(%q: tensor<?x?x64xf32> {disc.shape = ["b", "t", "64"]}, %k: tensor<?x?x64xf32> {disc.shape = ["b", "s", "64"]}) -> (tensor<?x?x64xf32>, tensor<?x?xf32>, tensor<?x?x?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %shape = "disc.shape"() {dims = ["b", "t", "s"]} : () -> tensor<3xi32>
  %scores = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x?xf32>
  %sum = stablehlo.reduce(%scores init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<?x?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
  %sums = stablehlo.dynamic_broadcast_in_dim %sum, %shape, dims = [0, 1] : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<?x?x?xf32>
  %w = stablehlo.divide %scores, %sums : tensor<?x?x?xf32>
  %mix = stablehlo.dot_general %w, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<?x?x?xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  return %mix, %sum, %scores : tensor<?x?x64xf32>, tensor<?x?xf32>, tensor<?x?x?xf32>
}

// -----

// A mask computed from indices is computed where it is used.
// CHECK-LABEL: func.func public @main
// CHECK: %[[S:.+]] = "disc.fusion"(%arg0)
// CHECK: stablehlo.dynamic_iota
// CHECK: stablehlo.compare GE
// CHECK: stablehlo.select
// CHECK: kind = "row"
// CHECK-NEXT: return %[[S]]
func.func public @main(%x: tensor<?x?x?xf32> {disc.shape = ["b", "t", "t"]}) -> tensor<?x?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %square = "disc.shape"() {dims = ["t", "t"]} : () -> tensor<2xi32>
  %shape = "disc.shape"() {dims = ["b", "t", "t"]} : () -> tensor<3xi32>
  %i = stablehlo.dynamic_iota %square, dim = 0 : (tensor<2xi32>) -> tensor<?x?xi32>
  %j = stablehlo.dynamic_iota %square, dim = 1 : (tensor<2xi32>) -> tensor<?x?xi32>
  %c = stablehlo.compare GE, %i, %j : (tensor<?x?xi32>, tensor<?x?xi32>) -> tensor<?x?xi1>
  %mask = stablehlo.dynamic_broadcast_in_dim %c, %shape, dims = [1, 2] : (tensor<?x?xi1>, tensor<3xi32>) -> tensor<?x?x?xi1>
  %low = stablehlo.dynamic_broadcast_in_dim %zero, %shape, dims = [] : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x?xf32>
  %y = stablehlo.select %mask, %x, %low : tensor<?x?x?xi1>, tensor<?x?x?xf32>
  %sum = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<?x?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
  return %sum : tensor<?x?xf32>
}

// -----

// A recurrent step: where to read is computed by whoever reads, and the entry of the projection is
// read by the product's epilogue.
// CHECK-LABEL: func.func public @main
// CHECK: do {
// CHECK: "disc.fusion"
// CHECK: stablehlo.dynamic_slice
// CHECK: stablehlo.dot_general
// CHECK: stablehlo.add
// CHECK: kind = "dense"
// CHECK-NOT: kind = "loop", name = "dynamic_slice"
func.func public @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x8xf32>, %h: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %h) : tensor<i32>, tensor<4x8xf32>
  cond {
    %c = stablehlo.compare LT, %i, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %back = stablehlo.subtract %nine, %i : tensor<i32>
    %s = stablehlo.dynamic_slice %xs, %back, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %y, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %u = stablehlo.add %p, %x : tensor<4x8xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<4x8xf32>
  }
  return %r#1 : tensor<4x8xf32>
}

// -----

// Recomputed, not stored: the negation is cheap and reads no more bytes than it would take. Its two
// readers, a row kernel and a transpose, cannot share a kernel.
// CHECK-LABEL: func.func public @main
// CHECK: "disc.fusion"(%arg0)
// CHECK: stablehlo.negate
// CHECK: kind = "row"
// CHECK-SAME: why = ["fused: 1 value never stored, 128*b bytes less to move"]
// CHECK: "disc.fusion"(%arg0)
// CHECK: stablehlo.negate
// CHECK: stablehlo.transpose
// CHECK: kind = "loop"
// CHECK-SAME: why = ["negate computed again here: reads 64*b bytes, stored it would be 64*b"]
// CHECK-NOT: "disc.fusion"
func.func public @main(%x: tensor<?x16xf32> {disc.shape = ["b", "16"]}) -> (tensor<?xf32>, tensor<16x?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.negate %x : tensor<?x16xf32>
  %r = stablehlo.reduce(%n init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x16xf32>, tensor<f32>) -> tensor<?xf32>
  %t = stablehlo.transpose %n, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
  return %r, %t : tensor<?xf32>, tensor<16x?xf32>
}

// -----

// Stored: an exponential costs more than a load, and a sum reads more than it would take.
// CHECK-LABEL: func.func public @main
// CHECK-COUNT-2: "disc.fusion"
// CHECK-NOT: computed again
func.func public @main(%x: tensor<?x16xf32> {disc.shape = ["b", "16"]}) -> (tensor<?xf32>, tensor<16x?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.exponential %x : tensor<?x16xf32>
  %r = stablehlo.reduce(%n init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x16xf32>, tensor<f32>) -> tensor<?xf32>
  %t = stablehlo.transpose %n, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
  return %r, %t : tensor<?xf32>, tensor<16x?xf32>
}

// -----

// Small kernels over one static shape share a launch; one over another shape does not.
// CHECK-LABEL: func.func public @main
// CHECK: "disc.fusion"(%arg0, %arg1)
// CHECK: stablehlo.tanh
// CHECK: stablehlo.sine
// CHECK: why = ["small kernels over 8 x 4 elements side by side: launches saved"]
// CHECK: "disc.fusion"(%arg2)
// CHECK: stablehlo.cosine
func.func public @main(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>, %z: tensor<4x8xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>) {
  %a = stablehlo.tanh %x : tensor<8x4xf32>
  %b = stablehlo.sine %y : tensor<8x4xf32>
  %c = stablehlo.cosine %z : tensor<4x8xf32>
  return %a, %b, %c : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>
}

// -----

// A convolution takes in bias and activation; what stays in the kernel is counted.
// CHECK-LABEL: func.func public @main
// CHECK: "disc.fusion"(%arg0, %arg1, %arg2)
// CHECK: stablehlo.convolution
// CHECK: stablehlo.add
// CHECK: stablehlo.maximum
// CHECK: kind = "conv"
// CHECK-SAME: why = ["fused: 2 values never stored, 7680*b bytes less to move"]
// CHECK-NOT: "disc.fusion"
func.func public @main(%x: tensor<?x8x10x3xf32> {disc.shape = ["b", "8", "10", "3"]}, %w: tensor<3x3x3x10xf32>, %bias: tensor<10xf32>) -> tensor<?x6x8x10xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["b", "6", "8", "10"]} : () -> tensor<4xi32>
  %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<?x8x10x3xf32>, tensor<3x3x3x10xf32>) -> tensor<?x6x8x10xf32>
  %bb = stablehlo.dynamic_broadcast_in_dim %bias, %s, dims = [3] : (tensor<10xf32>, tensor<4xi32>) -> tensor<?x6x8x10xf32>
  %zb = stablehlo.dynamic_broadcast_in_dim %zero, %s, dims = [] : (tensor<f32>, tensor<4xi32>) -> tensor<?x6x8x10xf32>
  %a = stablehlo.add %c, %bb : tensor<?x6x8x10xf32>
  %y = stablehlo.maximum %a, %zb : tensor<?x6x8x10xf32>
  return %y : tensor<?x6x8x10xf32>
}

// -----

// A broadcast that a gather reads from memory is computed in the kernels that read it otherwise: they
// do not wait for the gather's copy, which waits for them.
// CHECK-LABEL: func.func public @main
// CHECK: %[[R:.+]]:2 = "disc.fusion"(%arg0)
// CHECK: kind = "row"
// CHECK: %[[B:.+]] = "disc.fusion"(%[[R]]#0)
// CHECK: stablehlo.dynamic_broadcast_in_dim
// CHECK: %[[G:.+]] = "disc.fusion"(%[[B]], %arg1)
// CHECK: "stablehlo.dynamic_gather"
// CHECK: return %[[R]]#1, %[[G]]
func.func public @main(%x: tensor<?x16xf32> {disc.shape = ["b", "16"]}, %i: tensor<3x1xi32>) -> (tensor<?x16xf32>, tensor<3x16xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi32>
  %n = "disc.shape"() {dims = ["1", "16"]} : () -> tensor<2xi32>
  %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x16xf32>, tensor<f32>) -> tensor<?xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %r, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x16xf32>
  %y = stablehlo.multiply %x, %b : tensor<?x16xf32>
  %g = "stablehlo.dynamic_gather"(%b, %i, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false}> : (tensor<?x16xf32>, tensor<3x1xi32>, tensor<2xi32>) -> tensor<3x16xf32>
  return %y, %g : tensor<?x16xf32>, tensor<3x16xf32>
}

// -----

// Counters and conditions are no kernels: the host program computes them.
// CHECK-LABEL: func.func public @main
// CHECK: "disc.fusion"(%arg0)
// CHECK: stablehlo.add
// CHECK: stablehlo.compare
// CHECK: kind = "host"
// CHECK: "disc.fusion"(%arg1)
// CHECK: kind = "loop"
func.func public @main(%i: tensor<i32>, %x: tensor<f32>) -> (tensor<i32>, tensor<i1>, tensor<f32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %j = stablehlo.add %i, %one : tensor<i32>
  %c = stablehlo.compare LT, %j, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %y = stablehlo.negate %x : tensor<f32>
  return %j, %c, %y : tensor<i32>, tensor<i1>, tensor<f32>
}

// -----

// Broadcast, a value would be computed for every row: it is stored.
// CHECK-LABEL: func.func public @main
// CHECK-NOT: computed again
// CHECK: return
func.func public @main(%v: tensor<16xf32>, %x: tensor<?x16xf32> {disc.shape = ["b", "16"]}, %y: tensor<16x16xf32>) -> (tensor<?x16xf32>, tensor<16x16xf32>, tensor<16xf32>) {
  %s = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi32>
  %n = stablehlo.negate %v : tensor<16xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %n, %s, dims = [1] : (tensor<16xf32>, tensor<2xi32>) -> tensor<?x16xf32>
  %a = stablehlo.add %x, %b : tensor<?x16xf32>
  %c = stablehlo.broadcast_in_dim %n, dims = [0] : (tensor<16xf32>) -> tensor<16x16xf32>
  %d = stablehlo.add %y, %c : tensor<16x16xf32>
  %e = stablehlo.reverse %v, dims = [0] : tensor<16xf32>
  return %a, %d, %e : tensor<?x16xf32>, tensor<16x16xf32>, tensor<16xf32>
}

// -----

// A product reads part of a matrix through slice, reshape and transpose in place.
// CHECK-LABEL: func.func @main
// CHECK: "disc.fusion"(%arg0, %arg1)
// CHECK: stablehlo.real_dynamic_slice
// CHECK: stablehlo.dynamic_reshape
// CHECK: stablehlo.dot_general
// CHECK: kind = "dense"
// CHECK-NOT: "disc.fusion"
func.func @main(%x: tensor<?x96xf32> {disc.shape = ["t", "96"]}, %w: tensor<4x8x5xf32>) -> tensor<4x?x5xf32> {
  %one = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
  %first = "disc.shape"() {dims = ["0", "32"]} : () -> tensor<2xi64>
  %last = "disc.shape"() {dims = ["t", "64"]} : () -> tensor<2xi64>
  %s = stablehlo.real_dynamic_slice %x, %first, %last, %one : (tensor<?x96xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x32xf32>
  %heads = "disc.shape"() {dims = ["t", "4", "8"]} : () -> tensor<3xi64>
  %r = stablehlo.dynamic_reshape %s, %heads : (tensor<?x32xf32>, tensor<3xi64>) -> tensor<?x4x8xf32>
  %t = stablehlo.transpose %r, dims = [1, 0, 2] : (tensor<?x4x8xf32>) -> tensor<4x?x8xf32>
  %y = stablehlo.dot_general %t, %w, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x?x8xf32>, tensor<4x8x5xf32>) -> tensor<4x?x5xf32>
  return %y : tensor<4x?x5xf32>
}

// -----

// A weight is dequantised while the product copies blocks of it; what is computed for the left
// operand, or by an expensive op, is stored.
// CHECK-LABEL: func.func @main
// CHECK: "disc.fusion"(%arg{{.}}, %arg{{.}}, %arg{{.}})
// CHECK: stablehlo.convert
// CHECK: stablehlo.multiply
// CHECK: stablehlo.dot_general
// CHECK: kind = "dense"
// CHECK: kind = "loop"
// CHECK: kind = "loop"
// CHECK: kind = "dense", name = "dot_general", not_fused = ["exponential: computed in every block of the product it would cost more than stored"]
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %q: tensor<8x16xi8>, %s: tensor<16xf32>, %w: tensor<8x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
  %f = stablehlo.convert %q : (tensor<8x16xi8>) -> tensor<8x16xf32>
  %t = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
  %m = stablehlo.multiply %f, %t : tensor<8x16xf32>
  %y = stablehlo.dot_general %x, %m, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  %n = stablehlo.negate %x : tensor<?x8xf32>
  %e = stablehlo.exponential %w : tensor<8x16xf32>
  %z = stablehlo.dot_general %n, %e, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  return %y, %z : tensor<?x16xf32>, tensor<?x16xf32>
}

// -----

// A slice that several kernels read is no array of its own: each reads it where it is.
// CHECK-LABEL: func.func @main
// CHECK: "disc.fusion"(%arg0)
// CHECK: stablehlo.real_dynamic_slice
// CHECK: kind = "row"
// CHECK: "disc.fusion"(%arg0)
// CHECK: stablehlo.real_dynamic_slice
// CHECK: kind = "loop", name = "transpose"
// CHECK-SAME: real_dynamic_slice, negate computed again here: reads 32*b bytes, stored it would be 32*b
// CHECK-NOT: "disc.fusion"
func.func @main(%x: tensor<?x16xf32> {disc.shape = ["b", "16"]}) -> (tensor<8x?xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
  %first = "disc.shape"() {dims = ["0", "8"]} : () -> tensor<2xi64>
  %last = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi64>
  %s = stablehlo.real_dynamic_slice %x, %first, %last, %one : (tensor<?x16xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x8xf32>
  %n = stablehlo.negate %s : tensor<?x8xf32>
  %t = stablehlo.transpose %n, dims = [1, 0] : (tensor<?x8xf32>) -> tensor<8x?xf32>
  %r = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x8xf32>, tensor<f32>) -> tensor<?xf32>
  return %t, %r : tensor<8x?xf32>, tensor<?xf32>
}

// -----

// Products of one transposed array share a kernel, each with a view of its own.
// CHECK-LABEL: func.func @main
// CHECK: "disc.fusion"
// CHECK-COUNT-2: stablehlo.dot_general
// CHECK: kind = "dense"
// CHECK-NOT: "disc.fusion"
func.func @main(%x: tensor<?x?x8xf32> {disc.shape = ["b", "t", "8"]}, %v: tensor<8x4xf32>, %w: tensor<8x4xf32>) -> (tensor<?x?x4xf32>, tensor<?x?x4xf32>) {
  %s = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %y = stablehlo.dot_general %s, %v, contracting_dims = [2] x [0] : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
  %t = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %z = stablehlo.dot_general %t, %w, contracting_dims = [2] x [0] : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
  return %y, %z : tensor<?x?x4xf32>, tensor<?x?x4xf32>
}

// -----

// Two gates and what is computed of them: no sum is stored.
// CHECK-LABEL: func.func @main
// CHECK: "disc.fusion"
// CHECK: stablehlo.dot_general
// CHECK: stablehlo.multiply
// CHECK: kind = "dense", name = "dot_general_real_dynamic_slice_logistic_multiply", why = ["fused: 4 values never stored
// CHECK-NOT: "disc.fusion"
func.func @main(%h: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %w: tensor<8x32xf32>) -> tensor<?x16xf32> {
  %s = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
  %sizes = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi64>
  %ends = "disc.shape"() {dims = ["b", "32"]} : () -> tensor<2xi64>
  %zeros = stablehlo.constant dense<0> : tensor<2xi64>
  %second = stablehlo.constant dense<[0, 16]> : tensor<2xi64>
  %ones = stablehlo.constant dense<1> : tensor<2xi64>
  %a = stablehlo.real_dynamic_slice %s, %zeros, %sizes, %ones : (tensor<?x32xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x16xf32>
  %b = stablehlo.real_dynamic_slice %s, %second, %ends, %ones : (tensor<?x32xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x16xf32>
  %g = stablehlo.logistic %b : tensor<?x16xf32>
  %y = stablehlo.multiply %a, %g : tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// -----

// Parts of several widths are read from memory.
// CHECK-LABEL: func.func @main
// CHECK: kind = "dense", name = "dot_general"
// CHECK: kind = "loop"
func.func @main(%h: tensor<16x8xf32>, %w: tensor<8x33xf32>) -> (tensor<16x16xf32>, tensor<16x17xf32>) {
  %s = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<16x8xf32>, tensor<8x33xf32>) -> tensor<16x33xf32>
  %a = stablehlo.slice %s [0:16, 0:16] : (tensor<16x33xf32>) -> tensor<16x16xf32>
  %b = stablehlo.slice %s [0:16, 16:33] : (tensor<16x33xf32>) -> tensor<16x17xf32>
  %x = stablehlo.negate %a : tensor<16x16xf32>
  %y = stablehlo.negate %b : tensor<16x17xf32>
  return %x, %y : tensor<16x16xf32>, tensor<16x17xf32>
}

// -----

// Rows that are normalised follow their product in one kernel; rows of its transpose do not.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.dot_general
// CHECK: stablehlo.reduce
// CHECK: given = 0 : i64, kind = "dense"
// CHECK-SAME: reduced = array<i64: 1>
// CHECK: stablehlo.dot_general
// CHECK: kind = "dense", name = "dot_general_transpose"
// CHECK: kind = "row", name = "reduce_subtract", not_fused = ["transpose: the rows of the product are in another order"]
func.func @main(%h: tensor<?x8xf32> {disc.shape = ["b", "8"]}, %w: tensor<8x32xf32>, %v: tensor<8x16xf32>) -> (tensor<?x32xf32>, tensor<16x?xf32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %s = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
  %m = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<?x32xf32>, tensor<f32>) -> tensor<?xf32>
  %sizes = "disc.shape"() {dims = ["b", "32"]} : () -> tensor<2xi64>
  %n = stablehlo.dynamic_broadcast_in_dim %m, %sizes, dims = [0] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x32xf32>
  %y = stablehlo.subtract %s, %n : tensor<?x32xf32>
  %t = stablehlo.dot_general %h, %v, contracting_dims = [1] x [0] : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  %u = stablehlo.transpose %t, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
  %p = stablehlo.reduce(%u init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<16x?xf32>, tensor<f32>) -> tensor<16xf32>
  %others = "disc.shape"() {dims = ["16", "b"]} : () -> tensor<2xi64>
  %q = stablehlo.dynamic_broadcast_in_dim %p, %others, dims = [0] : (tensor<16xf32>, tensor<2xi64>) -> tensor<16x?xf32>
  %z = stablehlo.subtract %u, %q : tensor<16x?xf32>
  return %y, %z : tensor<?x32xf32>, tensor<16x?xf32>
}

// -----

// A scatter computes cheap updates itself; what is costly is done before.
// CHECK-LABEL: func.func @main
// CHECK: "disc.fusion"(%arg0, %arg2, %arg1)
// CHECK: stablehlo.negate
// CHECK: "stablehlo.scatter"
// CHECK: kind = "scatter", name = "negate_scatter"
// CHECK: kind = "loop", name = "exponential"
// CHECK: kind = "scatter", name = "scatter", not_fused = ["exponential: updates that may meet follow each other: costly work would wait for them"]
func.func @main(%x: tensor<8xf32>, %i: tensor<8x1xi32>, %u: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %n = stablehlo.negate %u : tensor<8xf32>
  %a = "stablehlo.scatter"(%x, %i, %n) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<8xf32>, tensor<8x1xi32>, tensor<8xf32>) -> tensor<8xf32>
  %e = stablehlo.exponential %u : tensor<8xf32>
  %b = "stablehlo.scatter"(%x, %i, %e) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<8xf32>, tensor<8x1xi32>, tensor<8xf32>) -> tensor<8xf32>
  return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// -----

// Batch-norm, channels last, is one kernel over columns: both sums and what reads them.
// CHECK-LABEL: func.func @main
// CHECK: %[[F:.+]]:2 = "disc.fusion"(%arg0)
// CHECK: stablehlo.reduce
// CHECK: stablehlo.subtract
// CHECK: stablehlo.reduce
// CHECK: stablehlo.divide
// CHECK: kind = "column"
// CHECK-SAME: reduced = array<i64: 0>
// CHECK-NEXT: return %[[F]]#1, %[[F]]#0
func.func @main(%x: tensor<?x64xf32> {disc.shape = ["n", "64"]}) -> (tensor<?x64xf32>, tensor<64xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["n", "64"]} : () -> tensor<2xi64>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x64xf32>, tensor<f32>) -> tensor<64xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1] : (tensor<64xf32>, tensor<2xi64>) -> tensor<?x64xf32>
  %c = stablehlo.subtract %x, %b : tensor<?x64xf32>
  %d = stablehlo.multiply %c, %c : tensor<?x64xf32>
  %e = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x64xf32>, tensor<f32>) -> tensor<64xf32>
  %f = stablehlo.dynamic_broadcast_in_dim %e, %s, dims = [1] : (tensor<64xf32>, tensor<2xi64>) -> tensor<?x64xf32>
  %y = stablehlo.divide %c, %f : tensor<?x64xf32>
  return %y, %a : tensor<?x64xf32>, tensor<64xf32>
}

// -----

// Channels first, the rows are in parts: one kernel, too.
// CHECK-LABEL: func.func @main
// CHECK: %[[F:.+]] = "disc.fusion"(%arg0)
// CHECK: stablehlo.reduce
// CHECK: stablehlo.subtract
// CHECK: kind = "row"
// CHECK-SAME: reduced = array<i64: 0, 2>
// CHECK-NEXT: return %[[F]]
func.func @main(%x: tensor<?x64x?xf32> {disc.shape = ["n", "64", "p"]}) -> tensor<?x64x?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["n", "64", "p"]} : () -> tensor<3xi64>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 2] : (tensor<?x64x?xf32>, tensor<f32>) -> tensor<64xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1] : (tensor<64xf32>, tensor<3xi64>) -> tensor<?x64x?xf32>
  %y = stablehlo.subtract %x, %b : tensor<?x64x?xf32>
  return %y : tensor<?x64x?xf32>
}

// -----

// Sums along columns that share what they read are one kernel; a sum along rows of it is another.
// CHECK-LABEL: func.func @main
// CHECK: %[[C:.+]]:2 = "disc.fusion"(%arg0, %arg1)
// CHECK: kind = "column"
// CHECK: %[[R:.+]] = "disc.fusion"(%arg0)
// CHECK: kind = "row"
// CHECK-NEXT: return %[[C]]#0, %[[C]]#1, %[[R]]
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %z: tensor<?x8xf32> {disc.shape = ["n", "8"]}) -> (tensor<8xf32>, tensor<8xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
  %p = stablehlo.multiply %x, %z : tensor<?x8xf32>
  %b = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
  %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x8xf32>, tensor<f32>) -> tensor<?xf32>
  return %a, %b, %r : tensor<8xf32>, tensor<8xf32>, tensor<?xf32>
}

// -----

// A column's sum along the rows of a square matrix is not the column's: two kernels. Few static rows
// alone stay a loop.
// CHECK-LABEL: func.func @main
// CHECK: %[[A:.+]] = "disc.fusion"(%arg0)
// CHECK: kind = "loop", name = "reduce"
// CHECK: "disc.fusion"(%arg0, %[[A]])
// CHECK: kind = "loop", name = "subtract", not_fused = ["reduce: a column would need elements of another column"]
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  %b = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<8xf32>) -> tensor<8x8xf32>
  %y = stablehlo.subtract %x, %b : tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

// -----

// Sums over equally many rows to small results share a launch though they share no operand.
// CHECK-LABEL: func.func @main
// CHECK: %[[F:.+]]:2 = "disc.fusion"(%arg0, %arg1)
// CHECK: kind = "column"
// CHECK-SAME: small kernels over 8 elements side by side
// CHECK-NEXT: "disc.fusion"(%arg2)
// CHECK: kind = "column"
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %y: tensor<?x8xf32> {disc.shape = ["n", "8"]}, %z: tensor<?x8xf32> {disc.shape = ["m", "8"]}) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
  %b = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
  %c = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<?x8xf32>, tensor<f32>) -> tensor<8xf32>
  return %a, %b, %c : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// What reads a row cluster's values in other dimensions is in its kernel: a group-norm and the gain
// behind it.
// CHECK-LABEL: func.func @main
// CHECK: %[[F:.+]] = "disc.fusion"(%arg0, %arg1)
// CHECK: stablehlo.reduce
// CHECK: stablehlo.subtract
// CHECK: stablehlo.dynamic_reshape
// CHECK: stablehlo.multiply
// CHECK: kind = "row"
// CHECK-SAME: reduced = array<i64: 1>
// CHECK-NEXT: return %[[F]]
func.func @main(%x: tensor<?x?xf32> {disc.shape = ["n", "4*p"]}, %g: tensor<4xf32>) -> tensor<?x4x?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "disc.shape"() {dims = ["n", "4*p"]} : () -> tensor<2xi64>
  %t = "disc.shape"() {dims = ["n", "4", "p"]} : () -> tensor<3xi64>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [0] : (tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  %c = stablehlo.subtract %x, %b : tensor<?x?xf32>
  %r = stablehlo.dynamic_reshape %c, %t : (tensor<?x?xf32>, tensor<3xi64>) -> tensor<?x4x?xf32>
  %h = stablehlo.dynamic_broadcast_in_dim %g, %t, dims = [1] : (tensor<4xf32>, tensor<3xi64>) -> tensor<?x4x?xf32>
  %y = stablehlo.multiply %r, %h : tensor<?x4x?xf32>
  return %y : tensor<?x4x?xf32>
}

// -----

// Rows that a row kernel looks up may be at places that are computed: a gather's start is computed
// where it is read.
// CHECK-LABEL: func.func @main
// CHECK: %[[F:.+]] = "disc.fusion"(
// CHECK: stablehlo.multiply
// CHECK: stablehlo.dynamic_gather
// CHECK: stablehlo.reduce
// CHECK: kind = "row"
// CHECK-NEXT: return %[[F]]
func.func @main(%x: tensor<?x?xf32> {disc.shape = ["m", "d"]}, %i: tensor<?x1xi32> {disc.shape = ["n", "1"]}) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %w = "disc.shape"() {dims = ["1", "d"]} : () -> tensor<2xi64>
  %k = stablehlo.multiply %i, %i : tensor<?x1xi32>
  %g = "stablehlo.dynamic_gather"(%x, %k, %w) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x?xf32>, tensor<?x1xi32>, tensor<2xi64>) -> tensor<?x?xf32>
  %s = stablehlo.reduce(%g init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
  return %s : tensor<?xf32>
}

// -----

// Not at places that a reduction of the rows tells.
// CHECK-LABEL: func.func @main
// CHECK-COUNT-2: kind = "row"
func.func @main(%x: tensor<?x?xi32> {disc.shape = ["m", "d"]}, %i: tensor<?x?xi32> {disc.shape = ["n", "d"]}) -> tensor<?xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %w = "disc.shape"() {dims = ["1", "d"]} : () -> tensor<2xi64>
  %t = "disc.shape"() {dims = ["n", "1"]} : () -> tensor<2xi64>
  %r = stablehlo.reduce(%i init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x?xi32>, tensor<i32>) -> tensor<?xi32>
  %k = stablehlo.dynamic_reshape %r, %t : (tensor<?xi32>, tensor<2xi64>) -> tensor<?x1xi32>
  %g = "stablehlo.dynamic_gather"(%x, %k, %w) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x?xi32>, tensor<?x1xi32>, tensor<2xi64>) -> tensor<?x?xi32>
  %s = stablehlo.reduce(%g init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x?xi32>, tensor<i32>) -> tensor<?xi32>
  return %s : tensor<?xi32>
}

// RUN: disc-opt %s --pass-pipeline=cleanup,plan-fusion --split-input-file | expect

// A value with two readers in one cluster is computed once; one read from outside is a result too.
func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> (tensor<?xf32>, tensor<?xf32>) {
  %t = stablehlo.tanh %x : tensor<?xf32>
  %a = stablehlo.add %t, %t : tensor<?xf32>
  return %t, %a : tensor<?xf32>, tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?xf32> {disc.shape = ["n"]}) -> (tensor<?xf32>, tensor<?xf32>) {
//       %0:2 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?xf32>):
//         %1 = stablehlo.tanh %arg1 : tensor<?xf32>
//         %2 = stablehlo.add %1, %1 : tensor<?xf32>
//         "disc.yield"(%1, %2) : (tensor<?xf32>, tensor<?xf32>) -> ()
//       }) {kind = "loop", name = "tanh_add"} : (tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>)
//       return %0#0, %0#1 : tensor<?xf32>, tensor<?xf32>
//     }
//   }

// -----

// No cycle: sort stands between two element-wise ops that also read each other.
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
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?xf32>):
//         %3 = stablehlo.tanh %arg1 : tensor<?xf32>
//         "disc.yield"(%3) : (tensor<?xf32>) -> ()
//       }) {kind = "loop", name = "tanh"} : (tensor<?xf32>) -> tensor<?xf32>
//       %1 = "disc.fusion"(%0) ({
//       ^bb0(%arg1: tensor<?xf32>):
//         %3 = "stablehlo.sort"(%arg1) <{dimension = 0 : i64, is_stable = true}> ({
//         ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
//           %4 = stablehlo.compare LT, %arg2, %arg3 : (tensor<f32>, tensor<f32>) -> tensor<i1>
//           stablehlo.return %4 : tensor<i1>
//         }) : (tensor<?xf32>) -> tensor<?xf32>
//         "disc.yield"(%3) : (tensor<?xf32>) -> ()
//       }) {kind = "sort", name = "sort"} : (tensor<?xf32>) -> tensor<?xf32>
//       %2 = "disc.fusion"(%0, %1) ({
//       ^bb0(%arg1: tensor<?xf32>, %arg2: tensor<?xf32>):
//         %3 = stablehlo.add %arg1, %arg2 : tensor<?xf32>
//         "disc.yield"(%3) : (tensor<?xf32>) -> ()
//       }) {kind = "loop", name = "add", not_fused = ["tanh: another kernel stands between them"]} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
//       return %2 : tensor<?xf32>
//     }
//   }

// -----

// Recomputed, not stored: the negation is cheap and reads no more bytes than it would take. Its two
// readers, a row kernel and a transpose, cannot share a kernel.
func.func public @main(%x: tensor<?x16xf32> {disc.shape = ["b", "16"]}) -> (tensor<?xf32>, tensor<16x?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.negate %x : tensor<?x16xf32>
  %r = stablehlo.reduce(%n init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x16xf32>, tensor<f32>) -> tensor<?xf32>
  %t = stablehlo.transpose %n, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
  return %r, %t : tensor<?xf32>, tensor<16x?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x16xf32> {disc.shape = ["b", "16"]}) -> (tensor<?xf32>, tensor<16x?xf32>) {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?x16xf32>):
//         %2 = stablehlo.negate %arg1 : tensor<?x16xf32>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<?x16xf32>, tensor<f32>) -> tensor<?xf32>
//         "disc.yield"(%3) : (tensor<?xf32>) -> ()
//       }) {kind = "row", name = "negate_reduce", reduced = array<i64: 1>, why = ["fused: 1 value never stored, 128*b bytes less to move"]} : (tensor<?x16xf32>) -> tensor<?xf32>
//       %1 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?x16xf32>):
//         %2 = stablehlo.negate %arg1 : tensor<?x16xf32>
//         %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
//         "disc.yield"(%3) : (tensor<16x?xf32>) -> ()
//       }) {kind = "loop", name = "transpose", not_fused = ["negate: a row would need elements of another row"], why = ["negate computed again here: reads 64*b bytes, stored it would be 64*b"]} : (tensor<?x16xf32>) -> tensor<16x?xf32>
//       return %0, %1 : tensor<?xf32>, tensor<16x?xf32>
//     }
//   }

// -----

// Stored: an exponential costs more than a load, and a sum reads more than it would take.
func.func public @main(%x: tensor<?x16xf32> {disc.shape = ["b", "16"]}) -> (tensor<?xf32>, tensor<16x?xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.exponential %x : tensor<?x16xf32>
  %r = stablehlo.reduce(%n init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x16xf32>, tensor<f32>) -> tensor<?xf32>
  %t = stablehlo.transpose %n, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
  return %r, %t : tensor<?xf32>, tensor<16x?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x16xf32> {disc.shape = ["b", "16"]}) -> (tensor<?xf32>, tensor<16x?xf32>) {
//       %0:2 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?x16xf32>):
//         %2 = stablehlo.exponential %arg1 : tensor<?x16xf32>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<?x16xf32>, tensor<f32>) -> tensor<?xf32>
//         "disc.yield"(%2, %3) : (tensor<?x16xf32>, tensor<?xf32>) -> ()
//       }) {kind = "row", name = "exponential_reduce", reduced = array<i64: 1>} : (tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?xf32>)
//       %1 = "disc.fusion"(%0#0) ({
//       ^bb0(%arg1: tensor<?x16xf32>):
//         %2 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<?x16xf32>) -> tensor<16x?xf32>
//         "disc.yield"(%2) : (tensor<16x?xf32>) -> ()
//       }) {kind = "loop", name = "transpose", not_fused = ["exponential: a row would need elements of another row"]} : (tensor<?x16xf32>) -> tensor<16x?xf32>
//       return %0#1, %1 : tensor<?xf32>, tensor<16x?xf32>
//     }
//   }

// -----

// Small kernels over one static shape share a launch; one over another shape does not.
func.func public @main(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>, %z: tensor<4x8xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>) {
  %a = stablehlo.tanh %x : tensor<8x4xf32>
  %b = stablehlo.sine %y : tensor<8x4xf32>
  %c = stablehlo.cosine %z : tensor<4x8xf32>
  return %a, %b, %c : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<8x4xf32>, %arg1: tensor<8x4xf32>, %arg2: tensor<4x8xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>) {
//       %0:2 = "disc.fusion"(%arg0, %arg1) ({
//       ^bb0(%arg3: tensor<8x4xf32>, %arg4: tensor<8x4xf32>):
//         %2 = stablehlo.tanh %arg3 : tensor<8x4xf32>
//         %3 = stablehlo.sine %arg4 : tensor<8x4xf32>
//         "disc.yield"(%2, %3) : (tensor<8x4xf32>, tensor<8x4xf32>) -> ()
//       }) {kind = "loop", name = "tanh_sine", why = ["small kernels over 8 x 4 elements fused horizontally: launches saved"]} : (tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>)
//       %1 = "disc.fusion"(%arg2) ({
//       ^bb0(%arg3: tensor<4x8xf32>):
//         %2 = stablehlo.cosine %arg3 : tensor<4x8xf32>
//         "disc.yield"(%2) : (tensor<4x8xf32>) -> ()
//       }) {kind = "loop", name = "cosine"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
//       return %0#0, %0#1, %1 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>
//     }
//   }

// -----

// A broadcast that a gather reads from memory is computed in the kernels that read it otherwise: they
// do not wait for the gather's copy, which waits for them.
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
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?x16xf32> {disc.shape = ["b", "16"]}, %arg1: tensor<3x1xi32>) -> (tensor<?x16xf32>, tensor<3x16xf32>) {
//       %0:2 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg2: tensor<?x16xf32>):
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %3 = stablehlo.reduce(%arg2 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<?x16xf32>, tensor<f32>) -> tensor<?xf32>
//         %4 = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi32>
//         %5 = stablehlo.dynamic_broadcast_in_dim %3, %4, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x16xf32>
//         %6 = stablehlo.multiply %arg2, %5 : tensor<?x16xf32>
//         "disc.yield"(%3, %6) : (tensor<?xf32>, tensor<?x16xf32>) -> ()
//       }) {kind = "row", name = "reduce_multiply", reduced = array<i64: 1>} : (tensor<?x16xf32>) -> (tensor<?xf32>, tensor<?x16xf32>)
//       %1 = "disc.fusion"(%0#0) ({
//       ^bb0(%arg2: tensor<?xf32>):
//         %3 = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi32>
//         %4 = stablehlo.dynamic_broadcast_in_dim %arg2, %3, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x16xf32>
//         "disc.yield"(%4) : (tensor<?x16xf32>) -> ()
//       }) {kind = "loop", name = "dynamic_broadcast_in_dim"} : (tensor<?xf32>) -> tensor<?x16xf32>
//       %2 = "disc.fusion"(%1, %arg1) ({
//       ^bb0(%arg2: tensor<?x16xf32>, %arg3: tensor<3x1xi32>):
//         %3 = "disc.shape"() {dims = ["1", "16"]} : () -> tensor<2xi32>
//         %4 = "stablehlo.dynamic_gather"(%arg2, %arg3, %3) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false}> : (tensor<?x16xf32>, tensor<3x1xi32>, tensor<2xi32>) -> tensor<3x16xf32>
//         "disc.yield"(%4) : (tensor<3x16xf32>) -> ()
//       }) {kind = "loop", name = "dynamic_gather"} : (tensor<?x16xf32>, tensor<3x1xi32>) -> tensor<3x16xf32>
//       return %0#1, %2 : tensor<?x16xf32>, tensor<3x16xf32>
//     }
//   }

// -----

// Counters and conditions are no kernels: the host program computes them.
func.func public @main(%i: tensor<i32>, %x: tensor<f32>) -> (tensor<i32>, tensor<i1>, tensor<f32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %j = stablehlo.add %i, %one : tensor<i32>
  %c = stablehlo.compare LT, %j, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %y = stablehlo.negate %x : tensor<f32>
  return %j, %c, %y : tensor<i32>, tensor<i1>, tensor<f32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<i32>, %arg1: tensor<f32>) -> (tensor<i32>, tensor<i1>, tensor<f32>) {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg2: tensor<i32>):
//         %c = stablehlo.constant dense<1> : tensor<i32>
//         %3 = stablehlo.add %arg2, %c : tensor<i32>
//         "disc.yield"(%3) : (tensor<i32>) -> ()
//       }) {kind = "host", name = "add"} : (tensor<i32>) -> tensor<i32>
//       %1 = "disc.fusion"(%0) ({
//       ^bb0(%arg2: tensor<i32>):
//         %c = stablehlo.constant dense<10> : tensor<i32>
//         %3 = stablehlo.compare LT, %arg2, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         "disc.yield"(%3) : (tensor<i1>) -> ()
//       }) {kind = "host", name = "compare"} : (tensor<i32>) -> tensor<i1>
//       %2 = "disc.fusion"(%arg1) ({
//       ^bb0(%arg2: tensor<f32>):
//         %3 = stablehlo.negate %arg2 : tensor<f32>
//         "disc.yield"(%3) : (tensor<f32>) -> ()
//       }) {kind = "loop", name = "negate"} : (tensor<f32>) -> tensor<f32>
//       return %0, %1, %2 : tensor<i32>, tensor<i1>, tensor<f32>
//     }
//   }

// -----

// Broadcast, a value would be computed for every row: it is stored.
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
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<16xf32>, %arg1: tensor<?x16xf32> {disc.shape = ["b", "16"]}, %arg2: tensor<16x16xf32>) -> (tensor<?x16xf32>, tensor<16x16xf32>, tensor<16xf32>) {
//       %0:2 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg3: tensor<16xf32>):
//         %3 = stablehlo.negate %arg3 : tensor<16xf32>
//         %4 = stablehlo.reverse %arg3, dims = [0] : tensor<16xf32>
//         "disc.yield"(%3, %4) : (tensor<16xf32>, tensor<16xf32>) -> ()
//       }) {kind = "loop", name = "negate_reverse", why = ["small kernels over 16 elements fused horizontally: launches saved"]} : (tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>)
//       %1 = "disc.fusion"(%arg1, %0#0) ({
//       ^bb0(%arg3: tensor<?x16xf32>, %arg4: tensor<16xf32>):
//         %3 = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi32>
//         %4 = stablehlo.dynamic_broadcast_in_dim %arg4, %3, dims = [1] : (tensor<16xf32>, tensor<2xi32>) -> tensor<?x16xf32>
//         %5 = stablehlo.add %arg3, %4 : tensor<?x16xf32>
//         "disc.yield"(%5) : (tensor<?x16xf32>) -> ()
//       }) {kind = "loop", name = "add", not_fused = ["negate: it is broadcast: its elements would be computed several times"]} : (tensor<?x16xf32>, tensor<16xf32>) -> tensor<?x16xf32>
//       %2 = "disc.fusion"(%arg2, %0#0) ({
//       ^bb0(%arg3: tensor<16x16xf32>, %arg4: tensor<16xf32>):
//         %3 = stablehlo.broadcast_in_dim %arg4, dims = [0] : (tensor<16xf32>) -> tensor<16x16xf32>
//         %4 = stablehlo.add %arg3, %3 : tensor<16x16xf32>
//         "disc.yield"(%4) : (tensor<16x16xf32>) -> ()
//       }) {kind = "loop", name = "add", not_fused = ["negate: it is broadcast: its elements would be computed several times"]} : (tensor<16x16xf32>, tensor<16xf32>) -> tensor<16x16xf32>
//       return %1, %2, %0#1 : tensor<?x16xf32>, tensor<16x16xf32>, tensor<16xf32>
//     }
//   }

// -----

// A slice that several kernels read is no array of its own: each reads it where it is.
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
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x16xf32> {disc.shape = ["b", "16"]}) -> (tensor<8x?xf32>, tensor<?xf32>) {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?x16xf32>):
//         %2 = "disc.shape"() {dims = ["0", "8"]} : () -> tensor<2xi64>
//         %3 = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi64>
//         %4 = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
//         %5 = stablehlo.real_dynamic_slice %arg1, %2, %3, %4 : (tensor<?x16xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x8xf32>
//         %6 = stablehlo.negate %5 : tensor<?x8xf32>
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %7 = stablehlo.reduce(%5 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<?x8xf32>, tensor<f32>) -> tensor<?xf32>
//         "disc.yield"(%7) : (tensor<?xf32>) -> ()
//       }) {kind = "row", name = "real_dynamic_slice_negate_reduce", reduced = array<i64: 1>, why = ["fused: 2 values never stored, 128*b bytes less to move"]} : (tensor<?x16xf32>) -> tensor<?xf32>
//       %1 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?x16xf32>):
//         %2 = "disc.shape"() {dims = ["0", "8"]} : () -> tensor<2xi64>
//         %3 = "disc.shape"() {dims = ["b", "16"]} : () -> tensor<2xi64>
//         %4 = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
//         %5 = stablehlo.real_dynamic_slice %arg1, %2, %3, %4 : (tensor<?x16xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x8xf32>
//         %6 = stablehlo.negate %5 : tensor<?x8xf32>
//         %7 = stablehlo.transpose %6, dims = [1, 0] : (tensor<?x8xf32>) -> tensor<8x?xf32>
//         "disc.yield"(%7) : (tensor<8x?xf32>) -> ()
//       }) {kind = "loop", name = "transpose", not_fused = ["negate: it is read at other places, too"], why = ["real_dynamic_slice, negate computed again here: reads 32*b bytes, stored it would be 32*b"]} : (tensor<?x16xf32>) -> tensor<8x?xf32>
//       return %1, %0 : tensor<8x?xf32>, tensor<?xf32>
//     }
//   }

// -----

// A scatter computes cheap updates itself; what is costly is done before.
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
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<8xf32>, %arg1: tensor<8x1xi32>, %arg2: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
//       %0 = "disc.fusion"(%arg0, %arg2, %arg1) ({
//       ^bb0(%arg3: tensor<8xf32>, %arg4: tensor<8xf32>, %arg5: tensor<8x1xi32>):
//         %3 = stablehlo.negate %arg4 : tensor<8xf32>
//         %4 = "stablehlo.scatter"(%arg3, %arg5, %3) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
//         ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
//           stablehlo.return %arg7 : tensor<f32>
//         }) : (tensor<8xf32>, tensor<8x1xi32>, tensor<8xf32>) -> tensor<8xf32>
//         "disc.yield"(%4) : (tensor<8xf32>) -> ()
//       }) {kind = "scatter", name = "negate_scatter", why = ["fused: 1 value never stored, 64 bytes less to move"]} : (tensor<8xf32>, tensor<8xf32>, tensor<8x1xi32>) -> tensor<8xf32>
//       %1 = "disc.fusion"(%arg2) ({
//       ^bb0(%arg3: tensor<8xf32>):
//         %3 = stablehlo.exponential %arg3 : tensor<8xf32>
//         "disc.yield"(%3) : (tensor<8xf32>) -> ()
//       }) {kind = "loop", name = "exponential"} : (tensor<8xf32>) -> tensor<8xf32>
//       %2 = "disc.fusion"(%arg0, %arg1, %1) ({
//       ^bb0(%arg3: tensor<8xf32>, %arg4: tensor<8x1xi32>, %arg5: tensor<8xf32>):
//         %3 = "stablehlo.scatter"(%arg3, %arg4, %arg5) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
//         ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
//           stablehlo.return %arg7 : tensor<f32>
//         }) : (tensor<8xf32>, tensor<8x1xi32>, tensor<8xf32>) -> tensor<8xf32>
//         "disc.yield"(%3) : (tensor<8xf32>) -> ()
//       }) {kind = "scatter", name = "scatter", not_fused = ["exponential: updates that may meet follow each other: costly work would wait for them"]} : (tensor<8xf32>, tensor<8x1xi32>, tensor<8xf32>) -> tensor<8xf32>
//       return %0, %2 : tensor<8xf32>, tensor<8xf32>
//     }
//   }

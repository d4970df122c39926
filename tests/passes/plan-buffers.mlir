// RUN: disc-opt %s --pass-pipeline=plan-buffers --split-input-file | expect

// The second temporary takes the first one's slot (sizes proved equal); the result goes to the caller.
func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> {
  %a = "disc.fusion"(%x) ({
  ^bb0(%v: tensor<?xf32>):
    %t = stablehlo.tanh %v : tensor<?xf32>
    "disc.yield"(%t) : (tensor<?xf32>) -> ()
  }) {kind = "sort", name = "a"} : (tensor<?xf32>) -> tensor<?xf32>
  %b = "disc.fusion"(%a) ({
  ^bb0(%v: tensor<?xf32>):
    %t = stablehlo.tanh %v : tensor<?xf32>
    "disc.yield"(%t) : (tensor<?xf32>) -> ()
  }) {kind = "sort", name = "b"} : (tensor<?xf32>) -> tensor<?xf32>
  %c = "disc.fusion"(%b) ({
  ^bb0(%v: tensor<?xf32>):
    %t = stablehlo.tanh %v : tensor<?xf32>
    "disc.yield"(%t) : (tensor<?xf32>) -> ()
  }) {kind = "sort", name = "c"} : (tensor<?xf32>) -> tensor<?xf32>
  %d = "disc.fusion"(%c) ({
  ^bb0(%v: tensor<?xf32>):
    %t = stablehlo.tanh %v : tensor<?xf32>
    "disc.yield"(%t) : (tensor<?xf32>) -> ()
  }) {kind = "sort", name = "d"} : (tensor<?xf32>) -> tensor<?xf32>
  return %d : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> attributes {disc.arena = ["4*n", "4*n"]} {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<?xf32>):
//         %4 = stablehlo.tanh %arg1 : tensor<?xf32>
//         "disc.yield"(%4) : (tensor<?xf32>) -> ()
//       }) {disc.buffers = ["slot:0"], kind = "sort", name = "a"} : (tensor<?xf32>) -> tensor<?xf32>
//       %1 = "disc.fusion"(%0) ({
//       ^bb0(%arg1: tensor<?xf32>):
//         %4 = stablehlo.tanh %arg1 : tensor<?xf32>
//         "disc.yield"(%4) : (tensor<?xf32>) -> ()
//       }) {disc.buffers = ["slot:1"], kind = "sort", name = "b"} : (tensor<?xf32>) -> tensor<?xf32>
//       %2 = "disc.fusion"(%1) ({
//       ^bb0(%arg1: tensor<?xf32>):
//         %4 = stablehlo.tanh %arg1 : tensor<?xf32>
//         "disc.yield"(%4) : (tensor<?xf32>) -> ()
//       }) {disc.buffers = ["slot:0"], kind = "sort", name = "c"} : (tensor<?xf32>) -> tensor<?xf32>
//       %3 = "disc.fusion"(%2) ({
//       ^bb0(%arg1: tensor<?xf32>):
//         %4 = stablehlo.tanh %arg1 : tensor<?xf32>
//         "disc.yield"(%4) : (tensor<?xf32>) -> ()
//       }) {disc.buffers = ["result:0"], kind = "sort", name = "d"} : (tensor<?xf32>) -> tensor<?xf32>
//       return %3 : tensor<?xf32>
//     }
//   }

// -----

// A loop that stacks rows: the counter swaps between two slots, the array is updated in place, in the
// buffer its zeros were written to, which is the caller's.
func.func public @main(%n: tensor<i32>, %x: tensor<1x?xf32> {disc.shape = ["1", "k"]}) -> tensor<8x?xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %z = "disc.fusion"() ({
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %s = "disc.shape"() {dims = ["8", "k"]} : () -> tensor<2xi32>
    %b = stablehlo.dynamic_broadcast_in_dim %c, %s, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<8x?xf32>
    "disc.yield"(%b) : (tensor<8x?xf32>) -> ()
  }) {kind = "loop", name = "zeros"} : () -> tensor<8x?xf32>
  %r:2 = stablehlo.while(%i = %i0, %a = %z) : tensor<i32>, tensor<8x?xf32>
  cond {
    %c = "disc.fusion"(%i, %n) ({
    ^bb0(%u: tensor<i32>, %v: tensor<i32>):
      %l = stablehlo.compare LT, %u, %v : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "disc.yield"(%l) : (tensor<i1>) -> ()
    }) {kind = "loop", name = "less"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = "disc.fusion"(%i) ({
    ^bb0(%u: tensor<i32>):
      %one = stablehlo.constant dense<1> : tensor<i32>
      %l = stablehlo.add %u, %one : tensor<i32>
      "disc.yield"(%l) : (tensor<i32>) -> ()
    }) {kind = "loop", name = "count"} : (tensor<i32>) -> tensor<i32>
    %b = "disc.fusion"(%a, %x, %i, %i0) ({
    ^bb0(%u: tensor<8x?xf32>, %v: tensor<1x?xf32>, %p: tensor<i32>, %q: tensor<i32>):
      %l = stablehlo.dynamic_update_slice %u, %v, %p, %q : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
      "disc.yield"(%l) : (tensor<8x?xf32>) -> ()
    }) {kind = "dynamic_update_slice", name = "store"} : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
    stablehlo.return %j, %b : tensor<i32>, tensor<8x?xf32>
  }
  return %r#1 : tensor<8x?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<i32>, %arg1: tensor<1x?xf32> {disc.shape = ["1", "k"]}) -> tensor<8x?xf32> attributes {disc.arena = ["4", "4", "1"]} {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %0 = "disc.fusion"() ({
//         %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %2 = "disc.shape"() {dims = ["8", "k"]} : () -> tensor<2xi32>
//         %3 = stablehlo.dynamic_broadcast_in_dim %cst, %2, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<8x?xf32>
//         "disc.yield"(%3) : (tensor<8x?xf32>) -> ()
//       }) {disc.buffers = ["result:0"], kind = "loop", name = "zeros"} : () -> tensor<8x?xf32>
//       %1:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %0) : tensor<i32>, tensor<8x?xf32> attributes {disc.carries = ["swap:0,1", "inplace:init"]}
//       cond {
//         %2 = "disc.fusion"(%iterArg, %arg0) ({
//         ^bb0(%arg2: tensor<i32>, %arg3: tensor<i32>):
//           %3 = stablehlo.compare LT, %arg2, %arg3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//           "disc.yield"(%3) : (tensor<i1>) -> ()
//         }) {disc.buffers = ["slot:2"], kind = "loop", name = "less"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %2 : tensor<i1>
//       } do {
//         %2 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg2: tensor<i32>):
//           %c_1 = stablehlo.constant dense<1> : tensor<i32>
//           %4 = stablehlo.add %arg2, %c_1 : tensor<i32>
//           "disc.yield"(%4) : (tensor<i32>) -> ()
//         }) {disc.buffers = ["next:0"], kind = "loop", name = "count"} : (tensor<i32>) -> tensor<i32>
//         %3 = "disc.fusion"(%iterArg_0, %arg1, %iterArg, %c) ({
//         ^bb0(%arg2: tensor<8x?xf32>, %arg3: tensor<1x?xf32>, %arg4: tensor<i32>, %arg5: tensor<i32>):
//           %4 = stablehlo.dynamic_update_slice %arg2, %arg3, %arg4, %arg5 : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
//           "disc.yield"(%4) : (tensor<8x?xf32>) -> ()
//         }) {disc.buffers = ["inplace"], kind = "dynamic_update_slice", name = "store"} : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
//         stablehlo.return %2, %3 : tensor<i32>, tensor<8x?xf32>
//       }
//       return %1#1 : tensor<8x?xf32>
//     }
//   }

// -----

// An argument is never updated in place: the first step of the fusion copies it.
func.func public @main(%a: tensor<8xf32>, %x: tensor<1xf32>, %p: tensor<i32>) -> tensor<8xf32> {
  %b = "disc.fusion"(%a, %x, %p) ({
  ^bb0(%u: tensor<8xf32>, %v: tensor<1xf32>, %q: tensor<i32>):
    %l = stablehlo.dynamic_update_slice %u, %v, %q : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
    "disc.yield"(%l) : (tensor<8xf32>) -> ()
  }) {kind = "dynamic_update_slice", name = "store"} : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
  return %b : tensor<8xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<8xf32>, %arg1: tensor<1xf32>, %arg2: tensor<i32>) -> tensor<8xf32> attributes {disc.arena = []} {
//       %0 = "disc.fusion"(%arg0, %arg1, %arg2) ({
//       ^bb0(%arg3: tensor<8xf32>, %arg4: tensor<1xf32>, %arg5: tensor<i32>):
//         %1 = stablehlo.dynamic_update_slice %arg3, %arg4, %arg5 : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
//         "disc.yield"(%1) : (tensor<8xf32>) -> ()
//       }) {disc.buffers = ["result:0"], kind = "dynamic_update_slice", name = "store"} : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
//       return %0 : tensor<8xf32>
//     }
//   }

// -----

// The updates are the operand itself: in place, later updates would read what earlier ones wrote.
func.func public @main(%x: tensor<8xf32>, %i: tensor<8x1xi32>) -> tensor<8xf32> {
  %a = "disc.fusion"(%x) ({
  ^bb0(%v: tensor<8xf32>):
    %t = stablehlo.tanh %v : tensor<8xf32>
    "disc.yield"(%t) : (tensor<8xf32>) -> ()
  }) {kind = "loop", name = "a"} : (tensor<8xf32>) -> tensor<8xf32>
  %b = "disc.fusion"(%a, %i) ({
  ^bb0(%u: tensor<8xf32>, %p: tensor<8x1xi32>):
    %l = "stablehlo.scatter"(%u, %p, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%old: tensor<f32>, %new: tensor<f32>):
      %s = stablehlo.add %old, %new : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<8xf32>, tensor<8x1xi32>, tensor<8xf32>) -> tensor<8xf32>
    "disc.yield"(%l) : (tensor<8xf32>) -> ()
  }) {kind = "scatter", name = "b"} : (tensor<8xf32>, tensor<8x1xi32>) -> tensor<8xf32>
  return %b : tensor<8xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<8xf32>, %arg1: tensor<8x1xi32>) -> tensor<8xf32> attributes {disc.arena = ["32"]} {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg2: tensor<8xf32>):
//         %2 = stablehlo.tanh %arg2 : tensor<8xf32>
//         "disc.yield"(%2) : (tensor<8xf32>) -> ()
//       }) {disc.buffers = ["slot:0"], kind = "loop", name = "a"} : (tensor<8xf32>) -> tensor<8xf32>
//       %1 = "disc.fusion"(%0, %arg1) ({
//       ^bb0(%arg2: tensor<8xf32>, %arg3: tensor<8x1xi32>):
//         %2 = "stablehlo.scatter"(%arg2, %arg3, %arg2) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
//         ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
//           %3 = stablehlo.add %arg4, %arg5 : tensor<f32>
//           stablehlo.return %3 : tensor<f32>
//         }) : (tensor<8xf32>, tensor<8x1xi32>, tensor<8xf32>) -> tensor<8xf32>
//         "disc.yield"(%2) : (tensor<8xf32>) -> ()
//       }) {disc.buffers = ["result:0"], kind = "scatter", name = "b"} : (tensor<8xf32>, tensor<8x1xi32>) -> tensor<8xf32>
//       return %1 : tensor<8xf32>
//     }
//   }

// -----

// A state that a loop stacks is written where it belongs, and read there by the next step.
func.func public @main(%x: tensor<1x?xf32> {disc.shape = ["1", "b"]}) -> tensor<8x?xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %e = "disc.empty"() {dims = ["8", "b"]} : () -> tensor<8x?xf32>
  %r:3 = stablehlo.while(%i = %i0, %h = %x, %a = %e) : tensor<i32>, tensor<1x?xf32>, tensor<8x?xf32> attributes {disc.stacked = array<i64: 2>}
  cond {
    %c = "disc.fusion"(%i) ({
    ^bb0(%u: tensor<i32>):
      %eight = stablehlo.constant dense<8> : tensor<i32>
      %l = stablehlo.compare LT, %u, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "disc.yield"(%l) : (tensor<i1>) -> ()
    }) {kind = "host", name = "less"} : (tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %g = "disc.fusion"(%h) ({
    ^bb0(%u: tensor<1x?xf32>):
      %l = stablehlo.tanh %u : tensor<1x?xf32>
      "disc.yield"(%l) : (tensor<1x?xf32>) -> ()
    }) {kind = "loop", name = "step"} : (tensor<1x?xf32>) -> tensor<1x?xf32>
    %b = "disc.fusion"(%a, %g, %i, %i0) ({
    ^bb0(%u: tensor<8x?xf32>, %v: tensor<1x?xf32>, %p: tensor<i32>, %q: tensor<i32>):
      %l = stablehlo.dynamic_update_slice %u, %v, %p, %q : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
      "disc.yield"(%l) : (tensor<8x?xf32>) -> ()
    }) {kind = "dynamic_update_slice", name = "store"} : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
    %j = "disc.fusion"(%i) ({
    ^bb0(%u: tensor<i32>):
      %one = stablehlo.constant dense<1> : tensor<i32>
      %l = stablehlo.add %u, %one : tensor<i32>
      "disc.yield"(%l) : (tensor<i32>) -> ()
    }) {kind = "host", name = "count"} : (tensor<i32>) -> tensor<i32>
    stablehlo.return %j, %g, %b : tensor<i32>, tensor<1x?xf32>, tensor<8x?xf32>
  }
  return %r#2 : tensor<8x?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<1x?xf32> {disc.shape = ["1", "b"]}) -> tensor<8x?xf32> attributes {disc.arena = ["4", "4", "1"]} {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %0 = "disc.empty"() {dims = ["8", "b"]} : () -> tensor<8x?xf32>
//       %1:3 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg0, %iterArg_1 = %0) : tensor<i32>, tensor<1x?xf32>, tensor<8x?xf32> attributes {disc.carries = ["swap:0,1", "stored", "inplace:result:0"], disc.stacked = array<i64: 2>}
//       cond {
//         %2 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg1: tensor<i32>):
//           %c_2 = stablehlo.constant dense<8> : tensor<i32>
//           %3 = stablehlo.compare LT, %arg1, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//           "disc.yield"(%3) : (tensor<i1>) -> ()
//         }) {disc.buffers = ["slot:2"], kind = "host", name = "less"} : (tensor<i32>) -> tensor<i1>
//         stablehlo.return %2 : tensor<i1>
//       } do {
//         %2 = "disc.fusion"(%iterArg_0) ({
//         ^bb0(%arg1: tensor<1x?xf32>):
//           %5 = stablehlo.tanh %arg1 : tensor<1x?xf32>
//           "disc.yield"(%5) : (tensor<1x?xf32>) -> ()
//         }) {disc.buffers = ["update:0"], kind = "loop", name = "step"} : (tensor<1x?xf32>) -> tensor<1x?xf32>
//         %3 = "disc.fusion"(%iterArg_1, %2, %iterArg, %c) ({
//         ^bb0(%arg1: tensor<8x?xf32>, %arg2: tensor<1x?xf32>, %arg3: tensor<i32>, %arg4: tensor<i32>):
//           %5 = stablehlo.dynamic_update_slice %arg1, %arg2, %arg3, %arg4 : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
//           "disc.yield"(%5) : (tensor<8x?xf32>) -> ()
//         }) {disc.buffers = ["inplace"], disc.stored = 0 : i64, kind = "dynamic_update_slice", name = "store"} : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
//         %4 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg1: tensor<i32>):
//           %c_2 = stablehlo.constant dense<1> : tensor<i32>
//           %5 = stablehlo.add %arg1, %c_2 : tensor<i32>
//           "disc.yield"(%5) : (tensor<i32>) -> ()
//         }) {disc.buffers = ["next:0"], kind = "host", name = "count"} : (tensor<i32>) -> tensor<i32>
//         stablehlo.return %4, %2, %3 : tensor<i32>, tensor<1x?xf32>, tensor<8x?xf32>
//       }
//       return %1#2 : tensor<8x?xf32>
//     }
//   }

// -----

// Not where the array is not known to be one of slices: a step would read what it overwrites.
func.func public @main(%x: tensor<1x?xf32> {disc.shape = ["1", "b"]}, %e: tensor<8x?xf32> {disc.shape = ["8", "b"]}) -> tensor<8x?xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %i0, %h = %x, %a = %e) : tensor<i32>, tensor<1x?xf32>, tensor<8x?xf32>
  cond {
    %c = "disc.fusion"(%i) ({
    ^bb0(%u: tensor<i32>):
      %eight = stablehlo.constant dense<8> : tensor<i32>
      %l = stablehlo.compare LT, %u, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "disc.yield"(%l) : (tensor<i1>) -> ()
    }) {kind = "host", name = "less"} : (tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %g = "disc.fusion"(%h) ({
    ^bb0(%u: tensor<1x?xf32>):
      %l = stablehlo.tanh %u : tensor<1x?xf32>
      "disc.yield"(%l) : (tensor<1x?xf32>) -> ()
    }) {kind = "loop", name = "step"} : (tensor<1x?xf32>) -> tensor<1x?xf32>
    %b = "disc.fusion"(%a, %g, %i, %i0) ({
    ^bb0(%u: tensor<8x?xf32>, %v: tensor<1x?xf32>, %p: tensor<i32>, %q: tensor<i32>):
      %l = stablehlo.dynamic_update_slice %u, %v, %p, %q : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
      "disc.yield"(%l) : (tensor<8x?xf32>) -> ()
    }) {kind = "dynamic_update_slice", name = "store"} : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
    %j = "disc.fusion"(%i) ({
    ^bb0(%u: tensor<i32>):
      %one = stablehlo.constant dense<1> : tensor<i32>
      %l = stablehlo.add %u, %one : tensor<i32>
      "disc.yield"(%l) : (tensor<i32>) -> ()
    }) {kind = "host", name = "count"} : (tensor<i32>) -> tensor<i32>
    stablehlo.return %j, %g, %b : tensor<i32>, tensor<1x?xf32>, tensor<8x?xf32>
  }
  return %r#2 : tensor<8x?xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<1x?xf32> {disc.shape = ["1", "b"]}, %arg1: tensor<8x?xf32> {disc.shape = ["8", "b"]}) -> tensor<8x?xf32> attributes {disc.arena = ["4", "4", "4*b", "4*b", "1"]} {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %0:3 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg0, %iterArg_1 = %arg1) : tensor<i32>, tensor<1x?xf32>, tensor<8x?xf32> attributes {disc.carries = ["swap:0,1", "swap:2,3", "inplace:result:0"]}
//       cond {
//         %1 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg2: tensor<i32>):
//           %c_2 = stablehlo.constant dense<8> : tensor<i32>
//           %2 = stablehlo.compare LT, %arg2, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//           "disc.yield"(%2) : (tensor<i1>) -> ()
//         }) {disc.buffers = ["slot:4"], kind = "host", name = "less"} : (tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = "disc.fusion"(%iterArg_0) ({
//         ^bb0(%arg2: tensor<1x?xf32>):
//           %4 = stablehlo.tanh %arg2 : tensor<1x?xf32>
//           "disc.yield"(%4) : (tensor<1x?xf32>) -> ()
//         }) {disc.buffers = ["next:1"], kind = "loop", name = "step"} : (tensor<1x?xf32>) -> tensor<1x?xf32>
//         %2 = "disc.fusion"(%iterArg_1, %1, %iterArg, %c) ({
//         ^bb0(%arg2: tensor<8x?xf32>, %arg3: tensor<1x?xf32>, %arg4: tensor<i32>, %arg5: tensor<i32>):
//           %4 = stablehlo.dynamic_update_slice %arg2, %arg3, %arg4, %arg5 : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
//           "disc.yield"(%4) : (tensor<8x?xf32>) -> ()
//         }) {disc.buffers = ["inplace"], kind = "dynamic_update_slice", name = "store"} : (tensor<8x?xf32>, tensor<1x?xf32>, tensor<i32>, tensor<i32>) -> tensor<8x?xf32>
//         %3 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg2: tensor<i32>):
//           %c_2 = stablehlo.constant dense<1> : tensor<i32>
//           %4 = stablehlo.add %arg2, %c_2 : tensor<i32>
//           "disc.yield"(%4) : (tensor<i32>) -> ()
//         }) {disc.buffers = ["next:0"], kind = "host", name = "count"} : (tensor<i32>) -> tensor<i32>
//         stablehlo.return %3, %1, %2 : tensor<i32>, tensor<1x?xf32>, tensor<8x?xf32>
//       }
//       return %0#2 : tensor<8x?xf32>
//     }
//   }

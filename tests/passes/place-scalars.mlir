// RUN: disc-opt %s --pass-pipeline=place-scalars --split-input-file | expect

// A counter: the host has it, kernels get it by value, the caller gets a copy at the end. The constant
// is on both sides, because the product of the loop begins with it, too.
func.func public @main(%x: tensor<4xi32>) -> (tensor<i32>, tensor<i32>) attributes {disc.far_memory} {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %s = %zero) : tensor<i32>, tensor<i32>
  cond {
    %p = "disc.fusion"(%i) ({
    ^bb0(%u: tensor<i32>):
      %n = stablehlo.constant dense<9> : tensor<i32>
      %l = stablehlo.compare LT, %u, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "disc.yield"(%l) : (tensor<i1>) -> ()
    }) {kind = "host", name = "less"} : (tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %t = "disc.fusion"(%x, %i, %s) ({
    ^bb0(%a: tensor<4xi32>, %u: tensor<i32>, %v: tensor<i32>):
      %d = stablehlo.dynamic_slice %a, %u, sizes = [1] : (tensor<4xi32>, tensor<i32>) -> tensor<1xi32>
      %e = stablehlo.reshape %d : (tensor<1xi32>) -> tensor<i32>
      %m = stablehlo.add %e, %v : tensor<i32>
      "disc.yield"(%m) : (tensor<i32>) -> ()
    }) {kind = "loop", name = "sum"} : (tensor<4xi32>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %j = "disc.fusion"(%i) ({
    ^bb0(%u: tensor<i32>):
      %n = stablehlo.constant dense<1> : tensor<i32>
      %l = stablehlo.add %u, %n : tensor<i32>
      "disc.yield"(%l) : (tensor<i32>) -> ()
    }) {kind = "host", name = "count"} : (tensor<i32>) -> tensor<i32>
    stablehlo.return %j, %t : tensor<i32>, tensor<i32>
  }
  return %r#0, %r#1 : tensor<i32>, tensor<i32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<4xi32>) -> (tensor<i32>, tensor<i32>) attributes {disc.far_memory} {
//       %c = stablehlo.constant {disc.on_host = array<i64: 0>} dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<0> : tensor<i32>
//       %0:2 = stablehlo.while(%iterArg = %c, %iterArg_1 = %c_0) : tensor<i32>, tensor<i32> attributes {disc.on_host = array<i64: 0>}
//       cond {
//         %2 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg1: tensor<i32>):
//           %c_2 = stablehlo.constant dense<9> : tensor<i32>
//           %3 = stablehlo.compare LT, %arg1, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//           "disc.yield"(%3) : (tensor<i1>) -> ()
//         }) {disc.on_host = array<i64: 0>, kind = "host", name = "less"} : (tensor<i32>) -> tensor<i1>
//         stablehlo.return %2 : tensor<i1>
//       } do {
//         %2 = "disc.fusion"(%arg0, %iterArg, %iterArg_1) ({
//         ^bb0(%arg1: tensor<4xi32>, %arg2: tensor<i32>, %arg3: tensor<i32>):
//           %4 = stablehlo.dynamic_slice %arg1, %arg2, sizes = [1] : (tensor<4xi32>, tensor<i32>) -> tensor<1xi32>
//           %5 = stablehlo.reshape %4 : (tensor<1xi32>) -> tensor<i32>
//           %6 = stablehlo.add %5, %arg3 : tensor<i32>
//           "disc.yield"(%6) : (tensor<i32>) -> ()
//         }) {disc.by_value = array<i64: 1>, kind = "loop", name = "sum"} : (tensor<4xi32>, tensor<i32>, tensor<i32>) -> tensor<i32>
//         %3 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg1: tensor<i32>):
//           %c_2 = stablehlo.constant dense<1> : tensor<i32>
//           %4 = stablehlo.add %arg1, %c_2 : tensor<i32>
//           "disc.yield"(%4) : (tensor<i32>) -> ()
//         }) {disc.on_host = array<i64: 0>, kind = "host", name = "count"} : (tensor<i32>) -> tensor<i32>
//         stablehlo.return %3, %2 : tensor<i32>, tensor<i32>
//       }
//       %1 = "disc.fusion"(%0#0) ({
//       ^bb0(%arg1: tensor<i32>):
//         "disc.yield"(%arg1) : (tensor<i32>) -> ()
//       }) {disc.transfer, kind = "host", name = "write", why = ["write: the target reads it"]} : (tensor<i32>) -> tensor<i32>
//       return %1, %0#1 : tensor<i32>, tensor<i32>
//     }
//   }

// -----

// A condition computed from data is read once a step; an argument once, before the outer loop.
func.func public @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> attributes {disc.far_memory} {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %p = "disc.fusion"(%i, %n) ({
    ^bb0(%u: tensor<i32>, %v: tensor<i32>):
      %l = stablehlo.compare LT, %u, %v : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "disc.yield"(%l) : (tensor<i1>) -> ()
    }) {kind = "host", name = "less"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %q = stablehlo.while(%b = %a) : tensor<4xf32>
    cond {
      %p = "disc.fusion"(%b) ({
      ^bb0(%u: tensor<4xf32>):
        %c = stablehlo.constant dense<1.0> : tensor<1xf32>
        %d = stablehlo.slice %u [0:1] : (tensor<4xf32>) -> tensor<1xf32>
        %l = stablehlo.compare LT, %d, %c : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
        %e = stablehlo.reshape %l : (tensor<1xi1>) -> tensor<i1>
        "disc.yield"(%e) : (tensor<i1>) -> ()
      }) {kind = "loop", name = "small"} : (tensor<4xf32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %c = "disc.fusion"(%b) ({
      ^bb0(%u: tensor<4xf32>):
        %l = stablehlo.add %u, %u : tensor<4xf32>
        "disc.yield"(%l) : (tensor<4xf32>) -> ()
      }) {kind = "loop", name = "twice"} : (tensor<4xf32>) -> tensor<4xf32>
      stablehlo.return %c : tensor<4xf32>
    }
    %j = "disc.fusion"(%i, %n) ({
    ^bb0(%u: tensor<i32>, %v: tensor<i32>):
      %l = stablehlo.add %u, %v : tensor<i32>
      "disc.yield"(%l) : (tensor<i32>) -> ()
    }) {kind = "host", name = "count"} : (tensor<i32>, tensor<i32>) -> tensor<i32>
    stablehlo.return %j, %q : tensor<i32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<i32>, %arg1: tensor<4xf32>) -> tensor<4xf32> attributes {disc.far_memory} {
//       %c = stablehlo.constant {disc.on_host = array<i64: 0>} dense<0> : tensor<i32>
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg2: tensor<i32>):
//         "disc.yield"(%arg2) : (tensor<i32>) -> ()
//       }) {disc.on_host = array<i64: 0>, disc.transfer, kind = "host", name = "read", why = ["read: waits for the target"]} : (tensor<i32>) -> tensor<i32>
//       %1:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg1) : tensor<i32>, tensor<4xf32> attributes {disc.on_host = array<i64: 0>}
//       cond {
//         %2 = "disc.fusion"(%iterArg, %0) ({
//         ^bb0(%arg2: tensor<i32>, %arg3: tensor<i32>):
//           %3 = stablehlo.compare LT, %arg2, %arg3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//           "disc.yield"(%3) : (tensor<i1>) -> ()
//         }) {disc.on_host = array<i64: 0>, kind = "host", name = "less"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %2 : tensor<i1>
//       } do {
//         %2 = stablehlo.while(%iterArg_1 = %iterArg_0) : tensor<4xf32>
//         cond {
//           %4 = "disc.fusion"(%iterArg_1) ({
//           ^bb0(%arg2: tensor<4xf32>):
//             %cst = stablehlo.constant dense<1.000000e+00> : tensor<1xf32>
//             %6 = stablehlo.slice %arg2 [0:1] : (tensor<4xf32>) -> tensor<1xf32>
//             %7 = stablehlo.compare LT, %6, %cst : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
//             %8 = stablehlo.reshape %7 : (tensor<1xi1>) -> tensor<i1>
//             "disc.yield"(%8) : (tensor<i1>) -> ()
//           }) {kind = "loop", name = "small"} : (tensor<4xf32>) -> tensor<i1>
//           %5 = "disc.fusion"(%4) ({
//           ^bb0(%arg2: tensor<i1>):
//             "disc.yield"(%arg2) : (tensor<i1>) -> ()
//           }) {disc.on_host = array<i64: 0>, disc.transfer, kind = "host", name = "read", why = ["read: waits for the target"]} : (tensor<i1>) -> tensor<i1>
//           stablehlo.return %5 : tensor<i1>
//         } do {
//           %4 = "disc.fusion"(%iterArg_1) ({
//           ^bb0(%arg2: tensor<4xf32>):
//             %5 = stablehlo.add %arg2, %arg2 : tensor<4xf32>
//             "disc.yield"(%5) : (tensor<4xf32>) -> ()
//           }) {kind = "loop", name = "twice"} : (tensor<4xf32>) -> tensor<4xf32>
//           stablehlo.return %4 : tensor<4xf32>
//         }
//         %3 = "disc.fusion"(%iterArg, %0) ({
//         ^bb0(%arg2: tensor<i32>, %arg3: tensor<i32>):
//           %4 = stablehlo.add %arg2, %arg3 : tensor<i32>
//           "disc.yield"(%4) : (tensor<i32>) -> ()
//         }) {disc.on_host = array<i64: 0>, kind = "host", name = "count"} : (tensor<i32>, tensor<i32>) -> tensor<i32>
//         stablehlo.return %3, %2 : tensor<i32>, tensor<4xf32>
//       }
//       return %1#1 : tensor<4xf32>
//     }
//   }

// -----

// Nobody asks for this one: a kernel computes it, and the host program does not wait.
func.func public @main(%n: tensor<i32>) -> tensor<i32> attributes {disc.far_memory} {
  %j = "disc.fusion"(%n) ({
  ^bb0(%u: tensor<i32>):
    %l = stablehlo.add %u, %u : tensor<i32>
    "disc.yield"(%l) : (tensor<i32>) -> ()
  }) {kind = "host", name = "twice"} : (tensor<i32>) -> tensor<i32>
  return %j : tensor<i32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<i32>) -> tensor<i32> attributes {disc.far_memory} {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg1: tensor<i32>):
//         %1 = stablehlo.add %arg1, %arg1 : tensor<i32>
//         "disc.yield"(%1) : (tensor<i32>) -> ()
//       }) {kind = "loop", name = "twice"} : (tensor<i32>) -> tensor<i32>
//       return %0 : tensor<i32>
//     }
//   }

// -----

// What one branch alone asks for is read in that branch.
func.func public @main(%p: tensor<i1>, %n: tensor<i32>) -> tensor<i32> attributes {disc.far_memory} {
  %r = "stablehlo.if"(%p) ({
    %q = "stablehlo.case"(%n) ({
      %c = stablehlo.constant dense<1> : tensor<i32>
      stablehlo.return %c : tensor<i32>
    }, {
      %c = stablehlo.constant dense<2> : tensor<i32>
      stablehlo.return %c : tensor<i32>
    }) : (tensor<i32>) -> tensor<i32>
    stablehlo.return %q : tensor<i32>
  }, {
    stablehlo.return %n : tensor<i32>
  }) : (tensor<i1>) -> tensor<i32>
  return %r : tensor<i32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<i1>, %arg1: tensor<i32>) -> tensor<i32> attributes {disc.far_memory} {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg2: tensor<i1>):
//         "disc.yield"(%arg2) : (tensor<i1>) -> ()
//       }) {disc.on_host = array<i64: 0>, disc.transfer, kind = "host", name = "read", why = ["read: waits for the target"]} : (tensor<i1>) -> tensor<i1>
//       %1 = "stablehlo.if"(%0) ({
//         %2 = "disc.fusion"(%arg1) ({
//         ^bb0(%arg2: tensor<i32>):
//           "disc.yield"(%arg2) : (tensor<i32>) -> ()
//         }) {disc.on_host = array<i64: 0>, disc.transfer, kind = "host", name = "read", why = ["read: waits for the target"]} : (tensor<i32>) -> tensor<i32>
//         %3 = "stablehlo.case"(%2) ({
//           %c = stablehlo.constant {disc.on_host = array<i64: 0>} dense<1> : tensor<i32>
//           stablehlo.return %c : tensor<i32>
//         }, {
//           %c = stablehlo.constant {disc.on_host = array<i64: 0>} dense<2> : tensor<i32>
//           stablehlo.return %c : tensor<i32>
//         }) {disc.on_host = array<i64: 0>} : (tensor<i32>) -> tensor<i32>
//         %4 = "disc.fusion"(%3) ({
//         ^bb0(%arg2: tensor<i32>):
//           "disc.yield"(%arg2) : (tensor<i32>) -> ()
//         }) {disc.transfer, kind = "host", name = "write", why = ["write: the target reads it"]} : (tensor<i32>) -> tensor<i32>
//         stablehlo.return %4 : tensor<i32>
//       }, {
//         stablehlo.return %arg1 : tensor<i32>
//       }) : (tensor<i1>) -> tensor<i32>
//       return %1 : tensor<i32>
//     }
//   }

// -----

// A carried flag that kernels compute and the condition asks for: read at the end of a step.
func.func public @main(%p: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> attributes {disc.far_memory} {
  %r:2 = stablehlo.while(%g = %p, %a = %x) : tensor<i1>, tensor<4xf32>
  cond {
    stablehlo.return %g : tensor<i1>
  } do {
    %h = "disc.fusion"(%a) ({
    ^bb0(%u: tensor<4xf32>):
      %c = stablehlo.constant dense<1.0> : tensor<1xf32>
      %d = stablehlo.slice %u [0:1] : (tensor<4xf32>) -> tensor<1xf32>
      %l = stablehlo.compare LT, %d, %c : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
      %e = stablehlo.reshape %l : (tensor<1xi1>) -> tensor<i1>
      "disc.yield"(%e) : (tensor<i1>) -> ()
    }) {kind = "loop", name = "small"} : (tensor<4xf32>) -> tensor<i1>
    %b = "disc.fusion"(%a) ({
    ^bb0(%u: tensor<4xf32>):
      %l = stablehlo.add %u, %u : tensor<4xf32>
      "disc.yield"(%l) : (tensor<4xf32>) -> ()
    }) {kind = "loop", name = "twice"} : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.return %h, %b : tensor<i1>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<i1>, %arg1: tensor<4xf32>) -> tensor<4xf32> attributes {disc.far_memory} {
//       %0 = "disc.fusion"(%arg0) ({
//       ^bb0(%arg2: tensor<i1>):
//         "disc.yield"(%arg2) : (tensor<i1>) -> ()
//       }) {disc.on_host = array<i64: 0>, disc.transfer, kind = "host", name = "read", why = ["read: waits for the target"]} : (tensor<i1>) -> tensor<i1>
//       %1:2 = stablehlo.while(%iterArg = %0, %iterArg_0 = %arg1) : tensor<i1>, tensor<4xf32> attributes {disc.on_host = array<i64: 0>}
//       cond {
//         stablehlo.return %iterArg : tensor<i1>
//       } do {
//         %2 = "disc.fusion"(%iterArg_0) ({
//         ^bb0(%arg2: tensor<4xf32>):
//           %cst = stablehlo.constant dense<1.000000e+00> : tensor<1xf32>
//           %5 = stablehlo.slice %arg2 [0:1] : (tensor<4xf32>) -> tensor<1xf32>
//           %6 = stablehlo.compare LT, %5, %cst : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
//           %7 = stablehlo.reshape %6 : (tensor<1xi1>) -> tensor<i1>
//           "disc.yield"(%7) : (tensor<i1>) -> ()
//         }) {kind = "loop", name = "small"} : (tensor<4xf32>) -> tensor<i1>
//         %3 = "disc.fusion"(%iterArg_0) ({
//         ^bb0(%arg2: tensor<4xf32>):
//           %5 = stablehlo.add %arg2, %arg2 : tensor<4xf32>
//           "disc.yield"(%5) : (tensor<4xf32>) -> ()
//         }) {kind = "loop", name = "twice"} : (tensor<4xf32>) -> tensor<4xf32>
//         %4 = "disc.fusion"(%2) ({
//         ^bb0(%arg2: tensor<i1>):
//           "disc.yield"(%arg2) : (tensor<i1>) -> ()
//         }) {disc.on_host = array<i64: 0>, disc.transfer, kind = "host", name = "read", why = ["read: waits for the target"]} : (tensor<i1>) -> tensor<i1>
//         stablehlo.return %4, %3 : tensor<i1>, tensor<4xf32>
//       }
//       return %1#1 : tensor<4xf32>
//     }
//   }

// -----

// A call of the runtime is given addresses of the target; so is what reads the number in another shape.
func.func public @main(%x: tensor<4xf32>) -> tensor<1xi32> attributes {disc.far_memory} {
  %one = "disc.fusion"() ({
    %c = "disc.dim"() {dim = "n"} : () -> tensor<i32>
    "disc.yield"(%c) : (tensor<i32>) -> ()
  }) {kind = "host", name = "size"} : () -> tensor<i32>
  %y = "disc.fusion"(%one, %x) ({
  ^bb0(%u: tensor<i32>, %v: tensor<4xf32>):
    %l = stablehlo.custom_call @f(%u, %v) {api_version = 4 : i32} : (tensor<i32>, tensor<4xf32>) -> tensor<4xf32>
    "disc.yield"(%l) : (tensor<4xf32>) -> ()
  }) {kind = "ffi", name = "call"} : (tensor<i32>, tensor<4xf32>) -> tensor<4xf32>
  %z = stablehlo.reshape %one : (tensor<i32>) -> tensor<1xi32>
  return %z : tensor<1xi32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<4xf32>) -> tensor<1xi32> attributes {disc.far_memory} {
//       %0 = "disc.fusion"() ({
//         %6 = "disc.dim"() {dim = "n"} : () -> tensor<i32>
//         "disc.yield"(%6) : (tensor<i32>) -> ()
//       }) {disc.on_host = array<i64: 0>, kind = "host", name = "size"} : () -> tensor<i32>
//       %1 = "disc.fusion"(%0) ({
//       ^bb0(%arg1: tensor<i32>):
//         "disc.yield"(%arg1) : (tensor<i32>) -> ()
//       }) {disc.transfer, kind = "host", name = "write", why = ["write: the target reads it"]} : (tensor<i32>) -> tensor<i32>
//       %2 = "disc.fusion"(%1, %arg0) ({
//       ^bb0(%arg1: tensor<i32>, %arg2: tensor<4xf32>):
//         %6 = stablehlo.custom_call @f(%arg1, %arg2) {api_version = 4 : i32} : (tensor<i32>, tensor<4xf32>) -> tensor<4xf32>
//         "disc.yield"(%6) : (tensor<4xf32>) -> ()
//       }) {kind = "ffi", name = "call"} : (tensor<i32>, tensor<4xf32>) -> tensor<4xf32>
//       %3 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
//       %4 = "disc.fusion"(%0) ({
//       ^bb0(%arg1: tensor<i32>):
//         "disc.yield"(%arg1) : (tensor<i32>) -> ()
//       }) {disc.transfer, kind = "host", name = "write", why = ["write: the target reads it"]} : (tensor<i32>) -> tensor<i32>
//       %5 = stablehlo.reshape %4 : (tensor<i32>) -> tensor<1xi32>
//       return %5 : tensor<1xi32>
//     }
//   }

// -----

// A kernel computes the condition of a branch from the counter, beside a float: so does the host.
func.func public @main(%x: tensor<f32>) -> tensor<f32> attributes {disc.far_memory} {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<f32>
  cond {
    %p = "disc.fusion"(%i) ({
    ^bb0(%u: tensor<i32>):
      %n = stablehlo.constant dense<9> : tensor<i32>
      %l = stablehlo.compare LT, %u, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "disc.yield"(%l) : (tensor<i1>) -> ()
    }) {kind = "host", name = "less"} : (tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %t:2 = "disc.fusion"(%a, %i) ({
    ^bb0(%v: tensor<f32>, %u: tensor<i32>):
      %n = stablehlo.constant dense<3> : tensor<i32>
      %m = stablehlo.remainder %u, %n : tensor<i32>
      %f = stablehlo.convert %m : (tensor<i32>) -> tensor<f32>
      %s = stablehlo.add %v, %f : tensor<f32>
      "disc.yield"(%s, %m) : (tensor<f32>, tensor<i32>) -> ()
    }) {kind = "loop", name = "sum"} : (tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
    %b = "stablehlo.case"(%t#1) ({
      stablehlo.return %t#0 : tensor<f32>
    }, {
      stablehlo.return %a : tensor<f32>
    }) : (tensor<i32>) -> tensor<f32>
    %j = "disc.fusion"(%i) ({
    ^bb0(%u: tensor<i32>):
      %n = stablehlo.constant dense<1> : tensor<i32>
      %l = stablehlo.add %u, %n : tensor<i32>
      "disc.yield"(%l) : (tensor<i32>) -> ()
    }) {kind = "host", name = "count"} : (tensor<i32>) -> tensor<i32>
    stablehlo.return %j, %b : tensor<i32>, tensor<f32>
  }
  return %r#1 : tensor<f32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<f32>) -> tensor<f32> attributes {disc.far_memory} {
//       %c = stablehlo.constant {disc.on_host = array<i64: 0>} dense<0> : tensor<i32>
//       %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg0) : tensor<i32>, tensor<f32> attributes {disc.on_host = array<i64: 0>}
//       cond {
//         %1 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg1: tensor<i32>):
//           %c_1 = stablehlo.constant dense<9> : tensor<i32>
//           %2 = stablehlo.compare LT, %arg1, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//           "disc.yield"(%2) : (tensor<i1>) -> ()
//         }) {disc.on_host = array<i64: 0>, kind = "host", name = "less"} : (tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg1: tensor<i32>):
//           %c_1 = stablehlo.constant dense<3> : tensor<i32>
//           %5 = stablehlo.remainder %arg1, %c_1 : tensor<i32>
//           "disc.yield"(%5) : (tensor<i32>) -> ()
//         }) {disc.on_host = array<i64: 0>, kind = "host", name = "remainder", why = ["remainder: asked for here"]} : (tensor<i32>) -> tensor<i32>
//         %2:2 = "disc.fusion"(%iterArg_0, %iterArg) ({
//         ^bb0(%arg1: tensor<f32>, %arg2: tensor<i32>):
//           %c_1 = stablehlo.constant dense<3> : tensor<i32>
//           %5 = stablehlo.remainder %arg2, %c_1 : tensor<i32>
//           %6 = stablehlo.convert %5 : (tensor<i32>) -> tensor<f32>
//           %7 = stablehlo.add %arg1, %6 : tensor<f32>
//           "disc.yield"(%7, %5) : (tensor<f32>, tensor<i32>) -> ()
//         }) {disc.by_value = array<i64: 1>, kind = "loop", name = "sum"} : (tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
//         %3 = "stablehlo.case"(%1) ({
//           stablehlo.return %2#0 : tensor<f32>
//         }, {
//           stablehlo.return %iterArg_0 : tensor<f32>
//         }) : (tensor<i32>) -> tensor<f32>
//         %4 = "disc.fusion"(%iterArg) ({
//         ^bb0(%arg1: tensor<i32>):
//           %c_1 = stablehlo.constant dense<1> : tensor<i32>
//           %5 = stablehlo.add %arg1, %c_1 : tensor<i32>
//           "disc.yield"(%5) : (tensor<i32>) -> ()
//         }) {disc.on_host = array<i64: 0>, kind = "host", name = "count"} : (tensor<i32>) -> tensor<i32>
//         stablehlo.return %4, %3 : tensor<i32>, tensor<f32>
//       }
//       return %0#1 : tensor<f32>
//     }
//   }

// -----

// Memory is the host's own: nothing changes.
func.func public @main(%p: tensor<i1>) -> tensor<i32> {
  %c = stablehlo.constant dense<1> : tensor<i32>
  %r = "stablehlo.if"(%p) ({
    stablehlo.return %c : tensor<i32>
  }, {
    stablehlo.return %c : tensor<i32>
  }) : (tensor<i1>) -> tensor<i32>
  return %r : tensor<i32>
}
// EXPECT:
//   module {
//     func.func public @main(%arg0: tensor<i1>) -> tensor<i32> {
//       %c = stablehlo.constant dense<1> : tensor<i32>
//       %0 = "stablehlo.if"(%arg0) ({
//         stablehlo.return %c : tensor<i32>
//       }, {
//         stablehlo.return %c : tensor<i32>
//       }) : (tensor<i1>) -> tensor<i32>
//       return %0 : tensor<i32>
//     }
//   }

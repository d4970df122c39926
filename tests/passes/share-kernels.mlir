// RUN: disc-opt %s --pass-pipeline=plan-fusion,share-kernels --split-input-file | expect

// Four branches scale by four numbers: one kernel. The number 1.0 is the same in all and stays.
func.func @main(%x: tensor<5x3xf32>, %i: tensor<i32>) -> tensor<5x3xf32> {
  %r = "stablehlo.case"(%i) ({
    %c = stablehlo.constant dense<0.5> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
    %d = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
    %m = stablehlo.multiply %x, %b : tensor<5x3xf32>
    %a = stablehlo.add %m, %d : tensor<5x3xf32>
    stablehlo.return %a : tensor<5x3xf32>
  }, {
    %c = stablehlo.constant dense<0.25> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
    %d = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
    %m = stablehlo.multiply %x, %b : tensor<5x3xf32>
    %a = stablehlo.add %m, %d : tensor<5x3xf32>
    stablehlo.return %a : tensor<5x3xf32>
  }, {
    %c = stablehlo.constant dense<0.125> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
    %d = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
    %m = stablehlo.multiply %x, %b : tensor<5x3xf32>
    %a = stablehlo.add %m, %d : tensor<5x3xf32>
    stablehlo.return %a : tensor<5x3xf32>
  }, {
    %c = stablehlo.constant dense<2.0> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
    %d = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
    %m = stablehlo.multiply %x, %b : tensor<5x3xf32>
    %a = stablehlo.add %m, %d : tensor<5x3xf32>
    stablehlo.return %a : tensor<5x3xf32>
  }) : (tensor<i32>) -> tensor<5x3xf32>
  return %r : tensor<5x3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<5x3xf32>, %arg1: tensor<i32>) -> tensor<5x3xf32> {
//       %0 = "stablehlo.case"(%arg1) ({
//         %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
//         %1 = "disc.fusion"(%arg0, %cst) ({
//         ^bb0(%arg2: tensor<5x3xf32>, %arg3: tensor<f32>):
//           %2 = stablehlo.broadcast_in_dim %arg3, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
//           %3 = stablehlo.multiply %arg2, %2 : tensor<5x3xf32>
//           %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
//           %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
//           %5 = stablehlo.add %3, %4 : tensor<5x3xf32>
//           "disc.yield"(%5) : (tensor<5x3xf32>) -> ()
//         }) {kind = "loop", name = "multiply_add", why = ["fused: 1 value never stored, 120 bytes less to move", "shared: one kernel for 4 fusions that differ in numbers, read from memory"]} : (tensor<5x3xf32>, tensor<f32>) -> tensor<5x3xf32>
//         stablehlo.return %1 : tensor<5x3xf32>
//       }, {
//         %cst = stablehlo.constant dense<2.500000e-01> : tensor<f32>
//         %1 = "disc.fusion"(%arg0, %cst) ({
//         ^bb0(%arg2: tensor<5x3xf32>, %arg3: tensor<f32>):
//           %2 = stablehlo.broadcast_in_dim %arg3, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
//           %3 = stablehlo.multiply %arg2, %2 : tensor<5x3xf32>
//           %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
//           %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
//           %5 = stablehlo.add %3, %4 : tensor<5x3xf32>
//           "disc.yield"(%5) : (tensor<5x3xf32>) -> ()
//         }) {kind = "loop", name = "multiply_add", why = ["fused: 1 value never stored, 120 bytes less to move", "shared: one kernel for 4 fusions that differ in numbers, read from memory"]} : (tensor<5x3xf32>, tensor<f32>) -> tensor<5x3xf32>
//         stablehlo.return %1 : tensor<5x3xf32>
//       }, {
//         %cst = stablehlo.constant dense<1.250000e-01> : tensor<f32>
//         %1 = "disc.fusion"(%arg0, %cst) ({
//         ^bb0(%arg2: tensor<5x3xf32>, %arg3: tensor<f32>):
//           %2 = stablehlo.broadcast_in_dim %arg3, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
//           %3 = stablehlo.multiply %arg2, %2 : tensor<5x3xf32>
//           %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
//           %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
//           %5 = stablehlo.add %3, %4 : tensor<5x3xf32>
//           "disc.yield"(%5) : (tensor<5x3xf32>) -> ()
//         }) {kind = "loop", name = "multiply_add", why = ["fused: 1 value never stored, 120 bytes less to move", "shared: one kernel for 4 fusions that differ in numbers, read from memory"]} : (tensor<5x3xf32>, tensor<f32>) -> tensor<5x3xf32>
//         stablehlo.return %1 : tensor<5x3xf32>
//       }, {
//         %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
//         %1 = "disc.fusion"(%arg0, %cst) ({
//         ^bb0(%arg2: tensor<5x3xf32>, %arg3: tensor<f32>):
//           %2 = stablehlo.broadcast_in_dim %arg3, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
//           %3 = stablehlo.multiply %arg2, %2 : tensor<5x3xf32>
//           %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
//           %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
//           %5 = stablehlo.add %3, %4 : tensor<5x3xf32>
//           "disc.yield"(%5) : (tensor<5x3xf32>) -> ()
//         }) {kind = "loop", name = "multiply_add", why = ["fused: 1 value never stored, 120 bytes less to move", "shared: one kernel for 4 fusions that differ in numbers, read from memory"]} : (tensor<5x3xf32>, tensor<f32>) -> tensor<5x3xf32>
//         stablehlo.return %1 : tensor<5x3xf32>
//       }) : (tensor<i32>) -> tensor<5x3xf32>
//       return %0 : tensor<5x3xf32>
//     }
//   }

// -----

// Exponents stay: a kernel that knows one may multiply.
func.func @main(%x: tensor<5x3xf32>, %i: tensor<i32>) -> tensor<5x3xf32> {
  %r = "stablehlo.case"(%i) ({
    %c = stablehlo.constant dense<2.0> : tensor<5x3xf32>
    %m = stablehlo.power %x, %c : tensor<5x3xf32>
    stablehlo.return %m : tensor<5x3xf32>
  }, {
    %c = stablehlo.constant dense<3.0> : tensor<5x3xf32>
    %m = stablehlo.power %x, %c : tensor<5x3xf32>
    stablehlo.return %m : tensor<5x3xf32>
  }, {
    %c = stablehlo.constant dense<4.0> : tensor<5x3xf32>
    %m = stablehlo.power %x, %c : tensor<5x3xf32>
    stablehlo.return %m : tensor<5x3xf32>
  }, {
    %c = stablehlo.constant dense<5.0> : tensor<5x3xf32>
    %m = stablehlo.power %x, %c : tensor<5x3xf32>
    stablehlo.return %m : tensor<5x3xf32>
  }) : (tensor<i32>) -> tensor<5x3xf32>
  return %r : tensor<5x3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<5x3xf32>, %arg1: tensor<i32>) -> tensor<5x3xf32> {
//       %0 = "stablehlo.case"(%arg1) ({
//         %1 = "disc.fusion"(%arg0) ({
//         ^bb0(%arg2: tensor<5x3xf32>):
//           %cst = stablehlo.constant dense<2.000000e+00> : tensor<5x3xf32>
//           %2 = stablehlo.power %arg2, %cst : tensor<5x3xf32>
//           "disc.yield"(%2) : (tensor<5x3xf32>) -> ()
//         }) {kind = "loop", name = "power"} : (tensor<5x3xf32>) -> tensor<5x3xf32>
//         stablehlo.return %1 : tensor<5x3xf32>
//       }, {
//         %1 = "disc.fusion"(%arg0) ({
//         ^bb0(%arg2: tensor<5x3xf32>):
//           %cst = stablehlo.constant dense<3.000000e+00> : tensor<5x3xf32>
//           %2 = stablehlo.power %arg2, %cst : tensor<5x3xf32>
//           "disc.yield"(%2) : (tensor<5x3xf32>) -> ()
//         }) {kind = "loop", name = "power"} : (tensor<5x3xf32>) -> tensor<5x3xf32>
//         stablehlo.return %1 : tensor<5x3xf32>
//       }, {
//         %1 = "disc.fusion"(%arg0) ({
//         ^bb0(%arg2: tensor<5x3xf32>):
//           %cst = stablehlo.constant dense<4.000000e+00> : tensor<5x3xf32>
//           %2 = stablehlo.power %arg2, %cst : tensor<5x3xf32>
//           "disc.yield"(%2) : (tensor<5x3xf32>) -> ()
//         }) {kind = "loop", name = "power"} : (tensor<5x3xf32>) -> tensor<5x3xf32>
//         stablehlo.return %1 : tensor<5x3xf32>
//       }, {
//         %1 = "disc.fusion"(%arg0) ({
//         ^bb0(%arg2: tensor<5x3xf32>):
//           %cst = stablehlo.constant dense<5.000000e+00> : tensor<5x3xf32>
//           %2 = stablehlo.power %arg2, %cst : tensor<5x3xf32>
//           "disc.yield"(%2) : (tensor<5x3xf32>) -> ()
//         }) {kind = "loop", name = "power"} : (tensor<5x3xf32>) -> tensor<5x3xf32>
//         stablehlo.return %1 : tensor<5x3xf32>
//       }) : (tensor<i32>) -> tensor<5x3xf32>
//       return %0 : tensor<5x3xf32>
//     }
//   }

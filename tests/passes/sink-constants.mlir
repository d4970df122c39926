// RUN: disc-opt %s --pass-pipeline=sink-constants --split-input-file | expect

// Each body gets its own copy, and what is computed from constants with it.
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.negate %zero : tensor<f32>
  %y = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32>) -> tensor<?xf32> {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %0 = stablehlo.negate %cst : tensor<f32>
//       %1 = "stablehlo.sort"(%arg0) <{dimension = 0 : i64, is_stable = true}> ({
//       ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
//         %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//         %2 = stablehlo.negate %cst_0 : tensor<f32>
//         %3 = stablehlo.compare LT, %arg1, %2 : (tensor<f32>, tensor<f32>) -> tensor<i1>
//         stablehlo.return %3 : tensor<i1>
//       }) : (tensor<?xf32>) -> tensor<?xf32>
//       return %1 : tensor<?xf32>
//     }
//   }

// -----

// Control flow reads what it likes.
func.func @main(%x: tensor<f32>, %p: tensor<i1>) -> tensor<f32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %y = "stablehlo.if"(%p) ({
    stablehlo.return %one : tensor<f32>
  }, {
    %s = stablehlo.add %x, %one : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<i1>) -> tensor<f32>
  return %y : tensor<f32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<f32>, %arg1: tensor<i1>) -> tensor<f32> {
//       %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
//       %0 = "stablehlo.if"(%arg1) ({
//         stablehlo.return %cst : tensor<f32>
//       }, {
//         %1 = stablehlo.add %arg0, %cst : tensor<f32>
//         stablehlo.return %1 : tensor<f32>
//       }) : (tensor<i1>) -> tensor<f32>
//       return %0 : tensor<f32>
//     }
//   }

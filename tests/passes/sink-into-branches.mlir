// RUN: disc-opt %s --pass-pipeline=sink-into-branches --split-input-file | expect

// The exponential and the constant it is multiplied by go into the branch that reads them; the sine,
// which both branches read, the cosine, which decides, and the logarithm, which is returned, stay.
func.func @main(%x: tensor<4xf32>, %a: tensor<f32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %two = stablehlo.constant dense<2.0> : tensor<4xf32>
  %e = stablehlo.exponential %x : tensor<4xf32>
  %m = stablehlo.multiply %e, %two : tensor<4xf32>
  %s = stablehlo.sine %x : tensor<4xf32>
  %l = stablehlo.log %x : tensor<4xf32>
  %c = stablehlo.cosine %a : tensor<f32>
  %p = stablehlo.compare GT, %c, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %r = "stablehlo.if"(%p) ({
    %u = stablehlo.add %m, %s : tensor<4xf32>
    stablehlo.return %u : tensor<4xf32>
  }, {
    %d = stablehlo.subtract %l, %s : tensor<4xf32>
    stablehlo.return %d : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %r, %l : tensor<4xf32>, tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<f32>) -> (tensor<4xf32>, tensor<4xf32>) {
//       %0 = stablehlo.sine %arg0 : tensor<4xf32>
//       %1 = stablehlo.log %arg0 : tensor<4xf32>
//       %2 = stablehlo.cosine %arg1 : tensor<f32>
//       %3 = stablehlo.compare GT, %2, %arg1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
//       %4 = "stablehlo.if"(%3) ({
//         %cst = stablehlo.constant dense<2.000000e+00> : tensor<4xf32>
//         %5 = stablehlo.exponential %arg0 : tensor<4xf32>
//         %6 = stablehlo.multiply %5, %cst : tensor<4xf32>
//         %7 = stablehlo.add %6, %0 : tensor<4xf32>
//         stablehlo.return %7 : tensor<4xf32>
//       }, {
//         %5 = stablehlo.subtract %1, %0 : tensor<4xf32>
//         stablehlo.return %5 : tensor<4xf32>
//       }) : (tensor<i1>) -> tensor<4xf32>
//       return %4, %1 : tensor<4xf32>, tensor<4xf32>
//     }
//   }

// -----

// Through a branch into a branch of it, but not into its loop; random numbers stay.
func.func @main(%p: tensor<i1>, %k: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %shape = stablehlo.constant dense<4> : tensor<1xi64>
  %random = stablehlo.rng %zero, %one, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
  %e = stablehlo.exponential %x : tensor<4xf32>
  %r = "stablehlo.if"(%p) ({
    %q = "stablehlo.case"(%k) ({
      stablehlo.return %x : tensor<4xf32>
    }, {
      %first = stablehlo.constant dense<0> : tensor<i32>
      %l:2 = stablehlo.while(%i = %first, %y = %random) : tensor<i32>, tensor<4xf32>
      cond {
        %c = stablehlo.compare LT, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %step = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %step : tensor<i32>
        %z = stablehlo.add %y, %e : tensor<4xf32>
        stablehlo.return %j, %z : tensor<i32>, tensor<4xf32>
      }
      stablehlo.return %l#1 : tensor<4xf32>
    }) : (tensor<i32>) -> tensor<4xf32>
    stablehlo.return %q : tensor<4xf32>
  }, {
    stablehlo.return %x : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<i1>, %arg1: tensor<i32>, %arg2: tensor<4xf32>) -> tensor<4xf32> {
//       %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
//       %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
//       %c = stablehlo.constant dense<4> : tensor<1xi64>
//       %0 = stablehlo.rng %cst, %cst_0, %c, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
//       %1 = "stablehlo.if"(%arg0) ({
//         %2 = "stablehlo.case"(%arg1) ({
//           stablehlo.return %arg2 : tensor<4xf32>
//         }, {
//           %3 = stablehlo.exponential %arg2 : tensor<4xf32>
//           %c_1 = stablehlo.constant dense<0> : tensor<i32>
//           %4:2 = stablehlo.while(%iterArg = %c_1, %iterArg_2 = %0) : tensor<i32>, tensor<4xf32>
//           cond {
//             %5 = stablehlo.compare LT, %iterArg, %arg1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//             stablehlo.return %5 : tensor<i1>
//           } do {
//             %c_3 = stablehlo.constant dense<1> : tensor<i32>
//             %5 = stablehlo.add %iterArg, %c_3 : tensor<i32>
//             %6 = stablehlo.add %iterArg_2, %3 : tensor<4xf32>
//             stablehlo.return %5, %6 : tensor<i32>, tensor<4xf32>
//           }
//           stablehlo.return %4#1 : tensor<4xf32>
//         }) : (tensor<i32>) -> tensor<4xf32>
//         stablehlo.return %2 : tensor<4xf32>
//       }, {
//         stablehlo.return %arg2 : tensor<4xf32>
//       }) : (tensor<i1>) -> tensor<4xf32>
//       return %1 : tensor<4xf32>
//     }
//   }

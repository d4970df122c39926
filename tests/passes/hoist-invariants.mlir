// RUN: disc-opt %s --pass-pipeline=hoist-invariants --split-input-file | expect

// The product leaves with the broadcast it reads; the other broadcast and the counter stay.
func.func @main(%x: tensor<4x4xf32>, %b: tensor<4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
    %p = stablehlo.multiply %w, %s : tensor<4x4xf32>
    %t = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
    %u = stablehlo.add %y, %p : tensor<4x4xf32>
    %v = stablehlo.add %u, %t : tensor<4x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %v : tensor<i32>, tensor<4x4xf32>
  }
  return %r#1 : tensor<4x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4x4xf32>, %arg1: tensor<4xf32>, %arg2: tensor<4x4xf32>) -> tensor<4x4xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<3> : tensor<i32>
//       %c_1 = stablehlo.constant dense<1> : tensor<i32>
//       %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
//       %1 = stablehlo.multiply %arg2, %0 : tensor<4x4xf32>
//       %2:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg0) : tensor<i32>, tensor<4x4xf32>
//       cond {
//         %3 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %3 : tensor<i1>
//       } do {
//         %3 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
//         %4 = stablehlo.add %iterArg_2, %1 : tensor<4x4xf32>
//         %5 = stablehlo.add %4, %3 : tensor<4x4xf32>
//         %6 = stablehlo.add %iterArg, %c_1 : tensor<i32>
//         stablehlo.return %6, %5 : tensor<i32>, tensor<4x4xf32>
//       }
//       return %2#1 : tensor<4x4xf32>
//     }
//   }

// -----

// Out of two loops; an integer division stays, for it may trap.
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s:2 = stablehlo.while(%k = %i, %t = %y) : tensor<i32>, tensor<4xf32>
    cond {
      %c = stablehlo.compare LT, %k, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.divide %n, %n : tensor<i32>
      %l = stablehlo.add %k, %one : tensor<i32>
      %e = stablehlo.exponential %x : tensor<4xf32>
      %z = stablehlo.add %t, %e : tensor<4xf32>
      stablehlo.return %l, %z : tensor<i32>, tensor<4xf32>
    }
    stablehlo.return %s#0, %s#1 : tensor<i32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<i32>) -> tensor<4xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<3> : tensor<i32>
//       %0 = stablehlo.exponential %arg0 : tensor<4xf32>
//       %1:2 = stablehlo.while(%iterArg = %c, %iterArg_1 = %arg0) : tensor<i32>, tensor<4xf32>
//       cond {
//         %2 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %2 : tensor<i1>
//       } do {
//         %2:2 = stablehlo.while(%iterArg_2 = %iterArg, %iterArg_3 = %iterArg_1) : tensor<i32>, tensor<4xf32>
//         cond {
//           %3 = stablehlo.compare LT, %iterArg_2, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//           stablehlo.return %3 : tensor<i1>
//         } do {
//           %3 = stablehlo.divide %arg1, %arg1 : tensor<i32>
//           %4 = stablehlo.add %iterArg_2, %3 : tensor<i32>
//           %5 = stablehlo.add %iterArg_3, %0 : tensor<4xf32>
//           stablehlo.return %4, %5 : tensor<i32>, tensor<4xf32>
//         }
//         stablehlo.return %2#0, %2#1 : tensor<i32>, tensor<4xf32>
//       }
//       return %1#1 : tensor<4xf32>
//     }
//   }

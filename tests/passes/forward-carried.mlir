// RUN: disc-opt %s --pass-pipeline=forward-carried --split-input-file | expect

func.func @main(%x: tensor<?xf32>, %w: tensor<?xf32>, %n: tensor<i32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:4 = stablehlo.while(%v = %w, %i = %zero, %m = %n, %y = %x) : tensor<?xf32>, tensor<i32>, tensor<i32>, tensor<?xf32>
  cond {
    %c = stablehlo.compare LT, %i, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %z = stablehlo.multiply %y, %v : tensor<?xf32>
    stablehlo.return %v, %j, %m, %z : tensor<?xf32>, tensor<i32>, tensor<i32>, tensor<?xf32>
  }
  return %r#3, %r#0 : tensor<?xf32>, tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32>, %arg1: tensor<?xf32>, %arg2: tensor<i32>) -> (tensor<?xf32>, tensor<?xf32>) {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<1> : tensor<i32>
//       %0:2 = stablehlo.while(%iterArg = %c, %iterArg_1 = %arg0) : tensor<i32>, tensor<?xf32>
//       cond {
//         %1 = stablehlo.compare LT, %iterArg, %arg2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         %2 = stablehlo.multiply %iterArg_1, %arg1 : tensor<?xf32>
//         stablehlo.return %1, %2 : tensor<i32>, tensor<?xf32>
//       }
//       return %0#1, %arg1 : tensor<?xf32>, tensor<?xf32>
//     }
//   }

// -----

// An inner loop that only passes a value on makes it unchanged in the outer loop too; a value
// written but never read is dropped.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %y = %x, %u = %x) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s:2 = stablehlo.while(%k = %i, %t = %y) : tensor<i32>, tensor<4xf32>
    cond {
      %c = stablehlo.compare LT, %k, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %l = stablehlo.add %k, %one : tensor<i32>
      stablehlo.return %l, %t : tensor<i32>, tensor<4xf32>
    }
    %v = stablehlo.tanh %s#1 : tensor<4xf32>
    stablehlo.return %s#0, %s#1, %v : tensor<i32>, tensor<4xf32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<3> : tensor<i32>
//       %c_1 = stablehlo.constant dense<1> : tensor<i32>
//       %0 = stablehlo.while(%iterArg = %c) : tensor<i32>
//       cond {
//         %1 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = stablehlo.while(%iterArg_2 = %iterArg) : tensor<i32>
//         cond {
//           %3 = stablehlo.compare LT, %iterArg_2, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//           stablehlo.return %3 : tensor<i1>
//         } do {
//           %3 = stablehlo.add %iterArg_2, %c_1 : tensor<i32>
//           stablehlo.return %3 : tensor<i32>
//         }
//         %2 = stablehlo.tanh %arg0 : tensor<4xf32>
//         stablehlo.return %1 : tensor<i32>
//       }
//       return %arg0 : tensor<4xf32>
//     }
//   }

// -----

// Refused: two values change places.
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %b, %a : tensor<i32>, tensor<4xf32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<4xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<3> : tensor<i32>
//       %c_1 = stablehlo.constant dense<1> : tensor<i32>
//       %0:3 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg0, %iterArg_3 = %arg1) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
//       cond {
//         %1 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = stablehlo.add %iterArg, %c_1 : tensor<i32>
//         stablehlo.return %1, %iterArg_3, %iterArg_2 : tensor<i32>, tensor<4xf32>, tensor<4xf32>
//       }
//       return %0#1 : tensor<4xf32>
//     }
//   }

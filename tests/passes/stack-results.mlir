// RUN: disc-opt %s --pass-pipeline=stack-results --split-input-file | expect

// Every slice is written: the zeros are not.
func.func @main(%x: tensor<?x4xf32> {disc.shape = ["t", "4"]}, %y: tensor<1x4xf32>, %zeros: tensor<?x4xf32> {disc.shape = ["t", "4"]}) -> tensor<?x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = "disc.dim"() {dim = "t"} : () -> tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<?x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %u = stablehlo.dynamic_update_slice %s, %y, %i, %zero : (tensor<?x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<?x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<?x4xf32>
  }
  return %r#1 : tensor<?x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["t", "4"]}, %arg1: tensor<1x4xf32>, %arg2: tensor<?x4xf32> {disc.shape = ["t", "4"]}) -> tensor<?x4xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<1> : tensor<i32>
//       %0 = "disc.dim"() {dim = "t"} : () -> tensor<i32>
//       %1 = "disc.empty"() {dims = ["t", "4"]} : () -> tensor<?x4xf32>
//       %2:2 = stablehlo.while(%iterArg = %c, %iterArg_1 = %1) : tensor<i32>, tensor<?x4xf32> attributes {disc.stacked = array<i64: 1>}
//       cond {
//         %3 = stablehlo.compare LT, %iterArg, %0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %3 : tensor<i1>
//       } do {
//         %3 = stablehlo.dynamic_update_slice %iterArg_1, %arg1, %iterArg, %c : (tensor<?x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<?x4xf32>
//         %4 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         stablehlo.return %4, %3 : tensor<i32>, tensor<?x4xf32>
//       }
//       return %2#1 : tensor<?x4xf32>
//     }
//   }

// -----

// From the last slice to the first.
func.func @main(%y: tensor<1x4xf32>, %zeros: tensor<7x4xf32>) -> tensor<7x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<7> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<7x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %rest = stablehlo.subtract %n, %i : tensor<i32>
    %at = stablehlo.subtract %rest, %one : tensor<i32>
    %u = stablehlo.dynamic_update_slice %s, %y, %at, %zero : (tensor<7x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<7x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<7x4xf32>
  }
  return %r#1 : tensor<7x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<1x4xf32>, %arg1: tensor<7x4xf32>) -> tensor<7x4xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<1> : tensor<i32>
//       %c_1 = stablehlo.constant dense<7> : tensor<i32>
//       %0 = "disc.empty"() {dims = ["7", "4"]} : () -> tensor<7x4xf32>
//       %1:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %0) : tensor<i32>, tensor<7x4xf32> attributes {disc.stacked = array<i64: 1>}
//       cond {
//         %2 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %2 : tensor<i1>
//       } do {
//         %2 = stablehlo.subtract %c_1, %iterArg : tensor<i32>
//         %3 = stablehlo.subtract %2, %c_0 : tensor<i32>
//         %4 = stablehlo.dynamic_update_slice %iterArg_2, %arg0, %3, %c : (tensor<7x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<7x4xf32>
//         %5 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         stablehlo.return %5, %4 : tensor<i32>, tensor<7x4xf32>
//       }
//       return %1#1 : tensor<7x4xf32>
//     }
//   }

// -----

// One step too few, from 1, two at a time, or to another place: some first values stay.
func.func @main(%y: tensor<1x4xf32>, %zeros: tensor<8x4xf32>, %p: tensor<i32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %seven = stablehlo.constant dense<7> : tensor<i32>
  %eight = stablehlo.constant dense<8> : tensor<i32>
  %a:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %seven : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %u = stablehlo.dynamic_update_slice %s, %y, %i, %zero : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x4xf32>
  }
  %b:2 = stablehlo.while(%i = %one, %s = %zeros) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %u = stablehlo.dynamic_update_slice %s, %y, %i, %zero : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x4xf32>
  }
  %d:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %u = stablehlo.dynamic_update_slice %s, %y, %i, %zero : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %two : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x4xf32>
  }
  %e:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %at = stablehlo.add %i, %p : tensor<i32>
    %u = stablehlo.dynamic_update_slice %s, %y, %at, %zero : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x4xf32>
  }
  return %a#1, %b#1, %d#1, %e#1 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<1x4xf32>, %arg1: tensor<8x4xf32>, %arg2: tensor<i32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<1> : tensor<i32>
//       %c_1 = stablehlo.constant dense<2> : tensor<i32>
//       %c_2 = stablehlo.constant dense<7> : tensor<i32>
//       %c_3 = stablehlo.constant dense<8> : tensor<i32>
//       %0:2 = stablehlo.while(%iterArg = %c, %iterArg_4 = %arg1) : tensor<i32>, tensor<8x4xf32>
//       cond {
//         %4 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %4 : tensor<i1>
//       } do {
//         %4 = stablehlo.dynamic_update_slice %iterArg_4, %arg0, %iterArg, %c : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
//         %5 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         stablehlo.return %5, %4 : tensor<i32>, tensor<8x4xf32>
//       }
//       %1:2 = stablehlo.while(%iterArg = %c_0, %iterArg_4 = %arg1) : tensor<i32>, tensor<8x4xf32>
//       cond {
//         %4 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %4 : tensor<i1>
//       } do {
//         %4 = stablehlo.dynamic_update_slice %iterArg_4, %arg0, %iterArg, %c : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
//         %5 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         stablehlo.return %5, %4 : tensor<i32>, tensor<8x4xf32>
//       }
//       %2:2 = stablehlo.while(%iterArg = %c, %iterArg_4 = %arg1) : tensor<i32>, tensor<8x4xf32>
//       cond {
//         %4 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %4 : tensor<i1>
//       } do {
//         %4 = stablehlo.dynamic_update_slice %iterArg_4, %arg0, %iterArg, %c : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
//         %5 = stablehlo.add %iterArg, %c_1 : tensor<i32>
//         stablehlo.return %5, %4 : tensor<i32>, tensor<8x4xf32>
//       }
//       %3:2 = stablehlo.while(%iterArg = %c, %iterArg_4 = %arg1) : tensor<i32>, tensor<8x4xf32>
//       cond {
//         %4 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %4 : tensor<i1>
//       } do {
//         %4 = stablehlo.add %iterArg, %arg2 : tensor<i32>
//         %5 = stablehlo.dynamic_update_slice %iterArg_4, %arg0, %4, %c : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
//         %6 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         stablehlo.return %6, %5 : tensor<i32>, tensor<8x4xf32>
//       }
//       return %0#1, %1#1, %2#1, %3#1 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
//     }
//   }

// -----

// The loop reads what it has written so far: what is not yet written is read, too.
func.func @main(%zeros: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %eight = stablehlo.constant dense<8> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %s = %zeros) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %y = stablehlo.slice %s [7:8, 0:4] : (tensor<8x4xf32>) -> tensor<1x4xf32>
    %u = stablehlo.dynamic_update_slice %s, %y, %i, %zero : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x4xf32>
  }
  return %r#1 : tensor<8x4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<8x4xf32>) -> tensor<8x4xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<1> : tensor<i32>
//       %c_1 = stablehlo.constant dense<8> : tensor<i32>
//       %0:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg0) : tensor<i32>, tensor<8x4xf32>
//       cond {
//         %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = stablehlo.slice %iterArg_2 [7:8, 0:4] : (tensor<8x4xf32>) -> tensor<1x4xf32>
//         %2 = stablehlo.dynamic_update_slice %iterArg_2, %1, %iterArg, %c : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
//         %3 = stablehlo.add %iterArg, %c_0 : tensor<i32>
//         stablehlo.return %3, %2 : tensor<i32>, tensor<8x4xf32>
//       }
//       return %0#1 : tensor<8x4xf32>
//     }
//   }

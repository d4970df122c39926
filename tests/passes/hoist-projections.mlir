// RUN: disc-opt %s --pass-pipeline=hoist-projections --split-input-file | expect

// One product of all steps; the loop reads its entry.
func.func @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x16xf32>, %h: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %h) : tensor<i32>, tensor<4x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %u = stablehlo.add %p, %y : tensor<4x16xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<4x16xf32>
  }
  return %r#1 : tensor<4x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x4x8xf32>, %arg1: tensor<8x16xf32>, %arg2: tensor<4x16xf32>) -> tensor<4x16xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<9> : tensor<i32>
//       %c_1 = stablehlo.constant dense<1> : tensor<i32>
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [0] : (tensor<9x4x8xf32>, tensor<8x16xf32>) -> tensor<9x4x16xf32>
//       %1:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg2) : tensor<i32>, tensor<4x16xf32>
//       cond {
//         %2 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %2 : tensor<i1>
//       } do {
//         %2 = stablehlo.dynamic_slice %0, %iterArg, %c, %c, sizes = [1, 4, 16] : (tensor<9x4x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x16xf32>
//         %3 = stablehlo.reshape %2 : (tensor<1x4x16xf32>) -> tensor<4x16xf32>
//         %4 = stablehlo.add %3, %iterArg_2 : tensor<4x16xf32>
//         %5 = stablehlo.add %iterArg, %c_1 : tensor<i32>
//         stablehlo.return %5, %4 : tensor<i32>, tensor<4x16xf32>
//       }
//       return %1#1 : tensor<4x16xf32>
//     }
//   }

// -----

// A loop that may end early computes what it needs only.
func.func @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x16xf32>, %h: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %h) : tensor<i32>, tensor<4x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %u = stablehlo.add %p, %y : tensor<4x16xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<4x16xf32>
  }
  return %r#1 : tensor<4x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x4x8xf32>, %arg1: tensor<8x16xf32>, %arg2: tensor<4x16xf32>) -> tensor<4x16xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<3> : tensor<i32>
//       %c_1 = stablehlo.constant dense<1> : tensor<i32>
//       %0:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg2) : tensor<i32>, tensor<4x16xf32>
//       cond {
//         %1 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = stablehlo.dynamic_slice %arg0, %iterArg, %c, %c, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
//         %2 = stablehlo.reshape %1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
//         %3 = stablehlo.dot_general %2, %arg1, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
//         %4 = stablehlo.add %3, %iterArg_2 : tensor<4x16xf32>
//         %5 = stablehlo.add %iterArg, %c_1 : tensor<i32>
//         stablehlo.return %5, %4 : tensor<i32>, tensor<4x16xf32>
//       }
//       return %0#1 : tensor<4x16xf32>
//     }
//   }

// -----

// A weight that changes in the loop stays.
func.func @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %w) : tensor<i32>, tensor<8x8xf32>
  cond {
    %c = stablehlo.compare LT, %i, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %q = stablehlo.concatenate %p, %p, dim = 0 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %u = stablehlo.add %q, %y : tensor<8x8xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8x8xf32>
  }
  return %r#1 : tensor<8x8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x4x8xf32>, %arg1: tensor<8x8xf32>) -> tensor<8x8xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<9> : tensor<i32>
//       %c_1 = stablehlo.constant dense<1> : tensor<i32>
//       %0:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg1) : tensor<i32>, tensor<8x8xf32>
//       cond {
//         %1 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = stablehlo.dynamic_slice %arg0, %iterArg, %c, %c, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
//         %2 = stablehlo.reshape %1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
//         %3 = stablehlo.dot_general %2, %iterArg_2, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
//         %4 = stablehlo.concatenate %3, %3, dim = 0 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
//         %5 = stablehlo.add %4, %iterArg_2 : tensor<8x8xf32>
//         %6 = stablehlo.add %iterArg, %c_1 : tensor<i32>
//         stablehlo.return %6, %5 : tensor<i32>, tensor<8x8xf32>
//       }
//       return %0#1 : tensor<8x8xf32>
//     }
//   }

// -----

// TensorFlow's loops count twice, up to one number.
func.func @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x16xf32>, %h: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%k = %zero, %i = %zero, %y = %h) : tensor<i32>, tensor<i32>, tensor<4x16xf32>
  cond {
    %c = stablehlo.compare LT, %k, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %d = stablehlo.compare LT, %i, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %e = stablehlo.and %c, %d : tensor<i1>
    stablehlo.return %e : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %u = stablehlo.add %p, %y : tensor<4x16xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %l = stablehlo.add %k, %one : tensor<i32>
    stablehlo.return %l, %j, %u : tensor<i32>, tensor<i32>, tensor<4x16xf32>
  }
  return %r#2 : tensor<4x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x4x8xf32>, %arg1: tensor<8x16xf32>, %arg2: tensor<4x16xf32>) -> tensor<4x16xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<9> : tensor<i32>
//       %c_1 = stablehlo.constant dense<1> : tensor<i32>
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [0] : (tensor<9x4x8xf32>, tensor<8x16xf32>) -> tensor<9x4x16xf32>
//       %1:3 = stablehlo.while(%iterArg = %c, %iterArg_2 = %c, %iterArg_3 = %arg2) : tensor<i32>, tensor<i32>, tensor<4x16xf32>
//       cond {
//         %2 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         %3 = stablehlo.compare LT, %iterArg_2, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         %4 = stablehlo.and %2, %3 : tensor<i1>
//         stablehlo.return %4 : tensor<i1>
//       } do {
//         %2 = stablehlo.dynamic_slice %0, %iterArg_2, %c, %c, sizes = [1, 4, 16] : (tensor<9x4x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x16xf32>
//         %3 = stablehlo.reshape %2 : (tensor<1x4x16xf32>) -> tensor<4x16xf32>
//         %4 = stablehlo.add %3, %iterArg_3 : tensor<4x16xf32>
//         %5 = stablehlo.add %iterArg_2, %c_1 : tensor<i32>
//         %6 = stablehlo.add %iterArg, %c_1 : tensor<i32>
//         stablehlo.return %6, %5, %4 : tensor<i32>, tensor<i32>, tensor<4x16xf32>
//       }
//       return %1#2 : tensor<4x16xf32>
//     }
//   }

// -----

// The second condition ends the loop early.
func.func @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x16xf32>, %h: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%k = %zero, %i = %zero, %y = %h) : tensor<i32>, tensor<i32>, tensor<4x16xf32>
  cond {
    %c = stablehlo.compare LT, %k, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %d = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %e = stablehlo.and %c, %d : tensor<i1>
    stablehlo.return %e : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %u = stablehlo.add %p, %y : tensor<4x16xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %l = stablehlo.add %k, %one : tensor<i32>
    stablehlo.return %l, %j, %u : tensor<i32>, tensor<i32>, tensor<4x16xf32>
  }
  return %r#2 : tensor<4x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x4x8xf32>, %arg1: tensor<8x16xf32>, %arg2: tensor<4x16xf32>) -> tensor<4x16xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<9> : tensor<i32>
//       %c_1 = stablehlo.constant dense<3> : tensor<i32>
//       %c_2 = stablehlo.constant dense<1> : tensor<i32>
//       %0:3 = stablehlo.while(%iterArg = %c, %iterArg_3 = %c, %iterArg_4 = %arg2) : tensor<i32>, tensor<i32>, tensor<4x16xf32>
//       cond {
//         %1 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         %2 = stablehlo.compare LT, %iterArg_3, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         %3 = stablehlo.and %1, %2 : tensor<i1>
//         stablehlo.return %3 : tensor<i1>
//       } do {
//         %1 = stablehlo.dynamic_slice %arg0, %iterArg_3, %c, %c, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
//         %2 = stablehlo.reshape %1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
//         %3 = stablehlo.dot_general %2, %arg1, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
//         %4 = stablehlo.add %3, %iterArg_4 : tensor<4x16xf32>
//         %5 = stablehlo.add %iterArg_3, %c_2 : tensor<i32>
//         %6 = stablehlo.add %iterArg, %c_2 : tensor<i32>
//         stablehlo.return %6, %5, %4 : tensor<i32>, tensor<i32>, tensor<4x16xf32>
//       }
//       return %0#2 : tensor<4x16xf32>
//     }
//   }

// -----

// A slice whose sizes are numbers reads no entry of a product with an unknown size.
func.func @main(%xs: tensor<9x4x8xf32>, %w: tensor<8x?xf32>, %h: tensor<4x?xf32>) -> tensor<4x?xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %h) : tensor<i32>, tensor<4x?xf32>
  cond {
    %c = stablehlo.compare LT, %i, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %x = stablehlo.reshape %s : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x?xf32>) -> tensor<4x?xf32>
    %u = stablehlo.add %p, %y : tensor<4x?xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %u : tensor<i32>, tensor<4x?xf32>
  }
  return %r#1 : tensor<4x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<9x4x8xf32>, %arg1: tensor<8x?xf32>, %arg2: tensor<4x?xf32>) -> tensor<4x?xf32> {
//       %c = stablehlo.constant dense<0> : tensor<i32>
//       %c_0 = stablehlo.constant dense<9> : tensor<i32>
//       %c_1 = stablehlo.constant dense<1> : tensor<i32>
//       %0:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg2) : tensor<i32>, tensor<4x?xf32>
//       cond {
//         %1 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %1 : tensor<i1>
//       } do {
//         %1 = stablehlo.dynamic_slice %arg0, %iterArg, %c, %c, sizes = [1, 4, 8] : (tensor<9x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
//         %2 = stablehlo.reshape %1 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
//         %3 = stablehlo.dot_general %2, %arg1, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x?xf32>) -> tensor<4x?xf32>
//         %4 = stablehlo.add %3, %iterArg_2 : tensor<4x?xf32>
//         %5 = stablehlo.add %iterArg, %c_1 : tensor<i32>
//         stablehlo.return %5, %4 : tensor<i32>, tensor<4x?xf32>
//       }
//       return %0#1 : tensor<4x?xf32>
//     }
//   }

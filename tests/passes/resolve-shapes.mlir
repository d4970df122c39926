// RUN: disc-opt %s --pass-pipeline=resolve-shapes --split-input-file | expect

// Shape arithmetic becomes terms and disappears; sizes used as data become disc.dim.
func.func @main(%x: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<?xf32>, tensor<f32>) {
  %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<i32>
  %n = stablehlo.multiply %b, %four : tensor<i32>
  %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %y = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<1xi32>) -> tensor<?xf32>
  %f = stablehlo.convert %b : (tensor<i32>) -> tensor<f32>
  return %y, %f : tensor<?xf32>, tensor<f32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<?xf32>, tensor<f32>) {
//       %0 = "disc.dim"() {dim = "b"} : () -> tensor<i32>
//       %1 = "disc.shape"() {dims = ["4*b"]} : () -> tensor<1xi32>
//       %2 = stablehlo.dynamic_reshape %arg0, %1 : (tensor<?x4xf32>, tensor<1xi32>) -> tensor<?xf32>
//       %3 = stablehlo.convert %0 : (tensor<i32>) -> tensor<f32>
//       return %2, %3 : tensor<?xf32>, tensor<f32>
//     }
//   }

// -----

// An assertion becomes a guard with its message.
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %a = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %b = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %ok = stablehlo.compare EQ, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%ok, %b, %a) {has_side_effect = true, error_message = "got {0} for {1}", api_version = 2 : i32} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
  %z = stablehlo.add %x, %y : tensor<?xf32>
  return %z : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32>, %arg1: tensor<?xf32>) -> tensor<?xf32> {
//       "disc.guard"() {lhs = "d0_0", message = "got d1_0 for d0_0", op = "==", rhs = "d1_0"} : () -> ()
//       %0 = stablehlo.add %arg0, %arg1 : tensor<?xf32>
//       return %0 : tensor<?xf32>
//     }
//   }

// -----

// What is static becomes a static op.
func.func @main(%x: tensor<?xf32>, %v: tensor<f32>, %w: tensor<8xf32>) -> (tensor<?xf32>, tensor<3xf32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %low = stablehlo.reshape %one : (tensor<i32>) -> tensor<1xi32>
  %two = stablehlo.add %one, %one : tensor<i32>
  %high = stablehlo.reshape %two : (tensor<i32>) -> tensor<1xi32>
  %none = stablehlo.constant dense<0> : tensor<1xi32>
  %y = stablehlo.dynamic_pad %x, %v, %low, %high, %none : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %five = stablehlo.constant dense<5> : tensor<1xi32>
  %stride = stablehlo.constant dense<1> : tensor<1xi32>
  %z = stablehlo.real_dynamic_slice %w, %high, %five, %stride : (tensor<8xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xf32>
  return %y, %z : tensor<?xf32>, tensor<3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32>, %arg1: tensor<f32>, %arg2: tensor<8xf32>) -> (tensor<?xf32>, tensor<3xf32>) {
//       %0 = stablehlo.pad %arg0, %arg1, low = [1], high = [2], interior = [0] : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
//       %1 = stablehlo.slice %arg2 [2:5] : (tensor<8xf32>) -> tensor<3xf32>
//       return %0, %1 : tensor<?xf32>, tensor<3xf32>
//     }
//   }

// -----

// Sizes inside control flow are the same terms; a second size used as data stays one value.
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<?xf32>
  cond {
    %c = stablehlo.compare LT, %i, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %z = stablehlo.tanh %y : tensor<?xf32>
    stablehlo.return %j, %z : tensor<i32>, tensor<?xf32>
  }
  return %r#1 : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<?xf32> {
//       %c = stablehlo.constant dense<1> : tensor<i32>
//       %c_0 = stablehlo.constant dense<0> : tensor<i32>
//       %0 = "disc.dim"() {dim = "b"} : () -> tensor<i32>
//       %1:2 = stablehlo.while(%iterArg = %c_0, %iterArg_1 = %arg0) : tensor<i32>, tensor<?xf32>
//       cond {
//         %2 = stablehlo.compare LT, %iterArg, %0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
//         stablehlo.return %2 : tensor<i1>
//       } do {
//         %2 = stablehlo.add %iterArg, %c : tensor<i32>
//         %3 = stablehlo.tanh %iterArg_1 : tensor<?xf32>
//         stablehlo.return %2, %3 : tensor<i32>, tensor<?xf32>
//       }
//       return %1#1 : tensor<?xf32>
//     }
//   }

// -----

// A computed list of sizes may be empty.
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<0xi32> {
  %i = stablehlo.iota dim = 0 : tensor<0xi32>
  return %i : tensor<0xi32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<0xi32> {
//       %c = stablehlo.constant dense<> : tensor<0xi32>
//       return %c : tensor<0xi32>
//     }
//   }

// -----

// An array of sizes is data where memory is needed, and a shape where an op reads it as one.
func.func @main(%x: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<4x?xf32>, tensor<2xi32>) {
  %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %one = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.concatenate %four, %one, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %y = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<4x?xf32>
  return %y, %s : tensor<4x?xf32>, tensor<2xi32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<4x?xf32>, tensor<2xi32>) {
//       %0 = "disc.sizes"() {dims = ["4", "b"]} : () -> tensor<2xi32>
//       %1 = "disc.shape"() {dims = ["4", "b"]} : () -> tensor<2xi32>
//       %2 = stablehlo.dynamic_reshape %arg0, %1 : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<4x?xf32>
//       return %2, %0 : tensor<4x?xf32>, tensor<2xi32>
//     }
//   }

// -----

// Scalars are replaced wherever they are read, also behind arrays of one truth value.
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<1xi1> {
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %one = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
  %c = stablehlo.compare GT, %one, %zero : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
  return %c : tensor<1xi1>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<1xi1> {
//       %c = stablehlo.constant dense<0> : tensor<1xi32>
//       %0 = "disc.sizes"() {dims = ["b"]} : () -> tensor<1xi32>
//       %1 = stablehlo.compare GT, %0, %c : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
//       return %1 : tensor<1xi1>
//     }
//   }

// -----

// Floats of sizes are rounded once, from 64 bits, where 32 may not do; integers are not.
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> (tensor<f32>, tensor<f32>, tensor<i32>) {
  %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %n = stablehlo.multiply %b, %b : tensor<i32>
  %f = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
  %g = stablehlo.convert %b : (tensor<i32>) -> tensor<f32>
  return %f, %g, %n : tensor<f32>, tensor<f32>, tensor<i32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["b"]}) -> (tensor<f32>, tensor<f32>, tensor<i32>) {
//       %0 = "disc.dim"() {dim = "b^2"} : () -> tensor<i32>
//       %1 = "disc.dim"() {dim = "b"} : () -> tensor<i32>
//       %2 = "disc.dim"() {dim = "b^2"} : () -> tensor<i64>
//       %3 = stablehlo.convert %2 : (tensor<i64>) -> tensor<f32>
//       %4 = stablehlo.convert %1 : (tensor<i32>) -> tensor<f32>
//       return %3, %4, %0 : tensor<f32>, tensor<f32>, tensor<i32>
//     }
//   }

// -----

// A size that nothing reads is gone, though no other op has changed.
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %a = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %b = stablehlo.convert %a : (tensor<i32>) -> tensor<i64>
  return %x : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32>) -> tensor<?xf32> {
//       return %arg0 : tensor<?xf32>
//     }
//   }

// RUN: disc-opt %s --pass-pipeline=fold-gathers --split-input-file | expect

// x[:, 2*n:] of a size that is known only as a symbol.
func.func @main(%w: tensor<?x?xf32> {disc.shape = ["k", "3*n"]}) -> tensor<?x?xf32> {
  %start = "disc.sizes"() {dims = ["2*n"]} : () -> tensor<1xi32>
  %sizes = "disc.shape"() {dims = ["k", "n"]} : () -> tensor<2xi32>
  %y = "stablehlo.dynamic_gather"(%w, %start, %sizes) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], start_index_map = [1]>}> : (tensor<?x?xf32>, tensor<1xi32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?xf32> {disc.shape = ["k", "3*n"]}) -> tensor<?x?xf32> {
//       %0 = "disc.shape"() {dims = ["0", "2*n"]} : () -> tensor<2xi64>
//       %1 = "disc.shape"() {dims = ["k", "3*n"]} : () -> tensor<2xi64>
//       %2 = "disc.shape"() {dims = ["1", "1"]} : () -> tensor<2xi64>
//       %3 = stablehlo.real_dynamic_slice %arg0, %0, %1, %2 : (tensor<?x?xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>
//       return %3 : tensor<?x?xf32>
//     }
//   }

// -----

// A dimension that goes away is a reshape behind the slice; static ones are a static slice.
func.func @main(%x: tensor<4x3xf32>) -> tensor<4xf32> {
  %start = stablehlo.constant dense<1> : tensor<1xi32>
  %y = "stablehlo.gather"(%x, %start) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1], start_index_map = [1]>, slice_sizes = array<i64: 4, 1>}> : (tensor<4x3xf32>, tensor<1xi32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4x3xf32>) -> tensor<4xf32> {
//       %0 = stablehlo.slice %arg0 [0:4, 1:2] : (tensor<4x3xf32>) -> tensor<4x1xf32>
//       %1 = stablehlo.reshape %0 : (tensor<4x1xf32>) -> tensor<4xf32>
//       return %1 : tensor<4xf32>
//     }
//   }

// -----

// A start that the gather would clamp, one that may be beyond the end, and one that is data stay.
func.func @main(%x: tensor<?x3xf32> {disc.shape = ["n", "3"]}, %i: tensor<1xi32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %low = stablehlo.constant dense<-1> : tensor<1xi32>
  %high = stablehlo.constant dense<7> : tensor<1xi32>
  %a = "stablehlo.gather"(%x, %low) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}> : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<3xf32>
  %b = "stablehlo.gather"(%x, %high) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}> : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<3xf32>
  %c = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}> : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<3xf32>
  return %a, %b, %c : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x3xf32> {disc.shape = ["n", "3"]}, %arg1: tensor<1xi32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
//       %c = stablehlo.constant dense<-1> : tensor<1xi32>
//       %c_0 = stablehlo.constant dense<7> : tensor<1xi32>
//       %0 = "stablehlo.gather"(%arg0, %c) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}> : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<3xf32>
//       %1 = "stablehlo.gather"(%arg0, %c_0) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}> : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<3xf32>
//       %2 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}> : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<3xf32>
//       return %0, %1, %2 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
//     }
//   }

// -----

// x[1::2] and x[::-3], as JAX writes them: the second is the reverse of a gather in reversed order.
func.func @main(%x: tensor<?x?xf32> {disc.shape = ["n", "k"]}) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  "disc.guard"() {lhs = "n", op = ">=", rhs = "1", message = "n is positive"} : () -> ()
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %half = "disc.shape"() {dims = ["floordiv(n, 2)"]} : () -> tensor<1xi32>
  %ones = stablehlo.dynamic_broadcast_in_dim %one, %half, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
  %twos = stablehlo.dynamic_broadcast_in_dim %two, %half, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
  %i = stablehlo.dynamic_iota %half, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %even = stablehlo.multiply %twos, %i : tensor<?xi32>
  %odd = stablehlo.add %ones, %even : tensor<?xi32>
  %half1 = "disc.shape"() {dims = ["floordiv(n, 2)", "1"]} : () -> tensor<2xi32>
  %at = stablehlo.dynamic_reshape %odd, %half1 : (tensor<?xi32>, tensor<2xi32>) -> tensor<?x1xi32>
  %row = "disc.shape"() {dims = ["1", "k"]} : () -> tensor<2xi32>
  %y = "stablehlo.dynamic_gather"(%x, %at, %row) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x?xf32>, tensor<?x1xi32>, tensor<2xi32>) -> tensor<?x?xf32>
  %last = "disc.dim"() {dim = "n - 1"} : () -> tensor<i32>
  %three = stablehlo.constant dense<-3> : tensor<i32>
  %third = "disc.shape"() {dims = ["floordiv(n + 2, 3)"]} : () -> tensor<1xi32>
  %lasts = stablehlo.dynamic_broadcast_in_dim %last, %third, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
  %threes = stablehlo.dynamic_broadcast_in_dim %three, %third, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
  %j = stablehlo.dynamic_iota %third, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %down = stablehlo.multiply %threes, %j : tensor<?xi32>
  %from = stablehlo.add %lasts, %down : tensor<?xi32>
  %up = stablehlo.reverse %from, dims = [0] : tensor<?xi32>
  %third1 = "disc.shape"() {dims = ["floordiv(n + 2, 3)", "1"]} : () -> tensor<2xi32>
  %where = stablehlo.dynamic_reshape %up, %third1 : (tensor<?xi32>, tensor<2xi32>) -> tensor<?x1xi32>
  %g = "stablehlo.dynamic_gather"(%x, %where, %row) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x?xf32>, tensor<?x1xi32>, tensor<2xi32>) -> tensor<?x?xf32>
  %z = stablehlo.reverse %g, dims = [0] : tensor<?x?xf32>
  return %y, %z : tensor<?x?xf32>, tensor<?x?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?xf32> {disc.shape = ["n", "k"]}) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
//       "disc.guard"() {lhs = "n", message = "n is positive", op = ">=", rhs = "1"} : () -> ()
//       %0 = "disc.shape"() {dims = ["1", "0"]} : () -> tensor<2xi64>
//       %1 = "disc.shape"() {dims = ["max(n - mod(n, 2), 1)", "k"]} : () -> tensor<2xi64>
//       %2 = "disc.shape"() {dims = ["2", "1"]} : () -> tensor<2xi64>
//       %3 = stablehlo.real_dynamic_slice %arg0, %0, %1, %2 : (tensor<?x?xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>
//       %4 = "disc.shape"() {dims = ["mod(n + 2, 3)", "0"]} : () -> tensor<2xi64>
//       %5 = "disc.shape"() {dims = ["n", "k"]} : () -> tensor<2xi64>
//       %6 = "disc.shape"() {dims = ["3", "1"]} : () -> tensor<2xi64>
//       %7 = stablehlo.real_dynamic_slice %arg0, %4, %5, %6 : (tensor<?x?xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>
//       %8 = stablehlo.reverse %7, dims = [0] : tensor<?x?xf32>
//       return %3, %8 : tensor<?x?xf32>, tensor<?x?xf32>
//     }
//   }

// -----

// Steps that leave the array at some size, that are data, or that stand still are no slice.
func.func @main(%x: tensor<?x3xf32> {disc.shape = ["n", "3"]}, %i: tensor<?x1xi32> {disc.shape = ["n", "1"]}) -> (tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %all = "disc.shape"() {dims = ["n"]} : () -> tensor<1xi32>
  %column = "disc.shape"() {dims = ["n", "1"]} : () -> tensor<2xi32>
  %row = "disc.shape"() {dims = ["1", "3"]} : () -> tensor<2xi32>
  %ones = stablehlo.dynamic_broadcast_in_dim %one, %all, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
  %j = stablehlo.dynamic_iota %all, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %shifted = stablehlo.add %ones, %j : tensor<?xi32>
  %far = stablehlo.dynamic_reshape %shifted, %column : (tensor<?xi32>, tensor<2xi32>) -> tensor<?x1xi32>
  %still = stablehlo.dynamic_reshape %ones, %column : (tensor<?xi32>, tensor<2xi32>) -> tensor<?x1xi32>
  %a = "stablehlo.dynamic_gather"(%x, %far, %row) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x3xf32>, tensor<?x1xi32>, tensor<2xi32>) -> tensor<?x3xf32>
  %b = "stablehlo.dynamic_gather"(%x, %i, %row) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x3xf32>, tensor<?x1xi32>, tensor<2xi32>) -> tensor<?x3xf32>
  %c = "stablehlo.dynamic_gather"(%x, %still, %row) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x3xf32>, tensor<?x1xi32>, tensor<2xi32>) -> tensor<?x3xf32>
  return %a, %b, %c : tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x3xf32> {disc.shape = ["n", "3"]}, %arg1: tensor<?x1xi32> {disc.shape = ["n", "1"]}) -> (tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>) {
//       %c = stablehlo.constant dense<1> : tensor<i32>
//       %0 = "disc.shape"() {dims = ["n"]} : () -> tensor<1xi32>
//       %1 = "disc.shape"() {dims = ["n", "1"]} : () -> tensor<2xi32>
//       %2 = "disc.shape"() {dims = ["1", "3"]} : () -> tensor<2xi32>
//       %3 = stablehlo.dynamic_broadcast_in_dim %c, %0, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
//       %4 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
//       %5 = stablehlo.add %3, %4 : tensor<?xi32>
//       %6 = stablehlo.dynamic_reshape %5, %1 : (tensor<?xi32>, tensor<2xi32>) -> tensor<?x1xi32>
//       %7 = stablehlo.dynamic_reshape %3, %1 : (tensor<?xi32>, tensor<2xi32>) -> tensor<?x1xi32>
//       %8 = "stablehlo.dynamic_gather"(%arg0, %6, %2) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x3xf32>, tensor<?x1xi32>, tensor<2xi32>) -> tensor<?x3xf32>
//       %9 = "stablehlo.dynamic_gather"(%arg0, %arg1, %2) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x3xf32>, tensor<?x1xi32>, tensor<2xi32>) -> tensor<?x3xf32>
//       %10 = "stablehlo.dynamic_gather"(%arg0, %7, %2) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (tensor<?x3xf32>, tensor<?x1xi32>, tensor<2xi32>) -> tensor<?x3xf32>
//       return %8, %9, %10 : tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>
//     }
//   }

// RUN: disc-opt %s --pass-pipeline=fold-broadcasts --split-input-file | expect

// A reshape that adds dimensions of size 1 is not needed under a broadcast.
func.func @main(%x: tensor<?x?x768xf32> {disc.shape = ["b", "t", "768"]}, %w: tensor<768xf32>) -> tensor<?x?x768xf32> {
  %s = "disc.shape"() {dims = ["b", "t", "768"]} : () -> tensor<3xi32>
  %1 = stablehlo.reshape %w : (tensor<768xf32>) -> tensor<1x1x768xf32>
  %2 = stablehlo.dynamic_broadcast_in_dim %1, %s, dims = [0, 1, 2] : (tensor<1x1x768xf32>, tensor<3xi32>) -> tensor<?x?x768xf32>
  return %2 : tensor<?x?x768xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?x768xf32> {disc.shape = ["b", "t", "768"]}, %arg1: tensor<768xf32>) -> tensor<?x?x768xf32> {
//       %0 = "disc.shape"() {dims = ["b", "t", "768"]} : () -> tensor<3xi32>
//       %1 = stablehlo.dynamic_broadcast_in_dim %arg1, %0, dims = [2] : (tensor<768xf32>, tensor<3xi32>) -> tensor<?x?x768xf32>
//       return %1 : tensor<?x?x768xf32>
//     }
//   }

// -----

// Two broadcasts are one; a broadcast to its own shape is none.
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> (tensor<?x?x3xf32>, tensor<?xf32>) {
  %s = "disc.shape"() {dims = ["b", "3"]} : () -> tensor<2xi32>
  %t = "disc.shape"() {dims = ["2*b", "b", "3"]} : () -> tensor<3xi32>
  %u = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi32>
  %1 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x3xf32>
  %2 = stablehlo.dynamic_broadcast_in_dim %1, %t, dims = [1, 2] : (tensor<?x3xf32>, tensor<3xi32>) -> tensor<?x?x3xf32>
  %3 = stablehlo.dynamic_broadcast_in_dim %x, %u, dims = [0] : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>
  return %2, %3 : tensor<?x?x3xf32>, tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["b"]}) -> (tensor<?x?x3xf32>, tensor<?xf32>) {
//       %0 = "disc.shape"() {dims = ["2*b", "b", "3"]} : () -> tensor<3xi32>
//       %1 = stablehlo.dynamic_broadcast_in_dim %arg0, %0, dims = [1] : (tensor<?xf32>, tensor<3xi32>) -> tensor<?x?x3xf32>
//       return %1, %arg0 : tensor<?x?x3xf32>, tensor<?xf32>
//     }
//   }

// -----

// Refused: the sizes are not proved equal (x may have size 1), and a reshape that moves elements.
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}, %y: tensor<6xf32>) -> (tensor<?xf32>, tensor<2x3xf32>) {
  %u = "disc.shape"() {dims = ["c"]} : () -> tensor<1xi32>
  %1 = stablehlo.dynamic_broadcast_in_dim %x, %u, dims = [0] : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>
  %2 = stablehlo.reshape %y : (tensor<6xf32>) -> tensor<2x3xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %4 = stablehlo.broadcast_in_dim %2, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %5 = stablehlo.reshape %4 : (tensor<3x2xf32>) -> tensor<2x3xf32>
  %6 = stablehlo.add %3, %5 : tensor<2x3xf32>
  return %1, %6 : tensor<?xf32>, tensor<2x3xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32> {disc.shape = ["b"]}, %arg1: tensor<6xf32>) -> (tensor<?xf32>, tensor<2x3xf32>) {
//       %0 = "disc.shape"() {dims = ["c"]} : () -> tensor<1xi32>
//       %1 = stablehlo.dynamic_broadcast_in_dim %arg0, %0, dims = [0] : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>
//       %2 = stablehlo.reshape %arg1 : (tensor<6xf32>) -> tensor<2x3xf32>
//       %3 = stablehlo.broadcast_in_dim %2, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
//       %4 = stablehlo.reshape %3 : (tensor<3x2xf32>) -> tensor<2x3xf32>
//       %5 = stablehlo.add %2, %4 : tensor<2x3xf32>
//       return %1, %5 : tensor<?xf32>, tensor<2x3xf32>
//     }
//   }

// -----

// A broadcast that only adds dimensions of size 1 is a reshape, which is no kernel.
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["b", "8"]}) -> tensor<1x?x8xf32> {
  %s = "disc.shape"() {dims = ["1", "b", "8"]} : () -> tensor<3xi32>
  %y = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1, 2] : (tensor<?x8xf32>, tensor<3xi32>) -> tensor<1x?x8xf32>
  return %y : tensor<1x?x8xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x8xf32> {disc.shape = ["b", "8"]}) -> tensor<1x?x8xf32> {
//       %0 = "disc.shape"() {dims = ["1", "b", "8"]} : () -> tensor<3xi64>
//       %1 = stablehlo.dynamic_reshape %arg0, %0 : (tensor<?x8xf32>, tensor<3xi64>) -> tensor<1x?x8xf32>
//       return %1 : tensor<1x?x8xf32>
//     }
//   }

// -----

// A batch times one matrix is no batch of products.
func.func @main(%x: tensor<?x?x8xf32> {disc.shape = ["b", "t", "8"]}, %w: tensor<8x16xf32>) -> tensor<?x?x16xf32> {
  %s = "disc.shape"() {dims = ["b", "8", "16"]} : () -> tensor<3xi64>
  %1 = stablehlo.dynamic_broadcast_in_dim %w, %s, dims = [1, 2] : (tensor<8x16xf32>, tensor<3xi64>) -> tensor<?x8x16xf32>
  %2 = stablehlo.dot_general %x, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<?x?x8xf32>, tensor<?x8x16xf32>) -> tensor<?x?x16xf32>
  return %2 : tensor<?x?x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?x?x8xf32> {disc.shape = ["b", "t", "8"]}, %arg1: tensor<8x16xf32>) -> tensor<?x?x16xf32> {
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [0] : (tensor<?x?x8xf32>, tensor<8x16xf32>) -> tensor<?x?x16xf32>
//       return %0 : tensor<?x?x16xf32>
//     }
//   }

// -----

// A batch of one is none, either.
func.func @main(%x: tensor<1x?x8xf32> {disc.shape = ["1", "t", "8"]}, %w: tensor<8x16xf32>) -> tensor<1x?x16xf32> {
  %1 = stablehlo.reshape %w : (tensor<8x16xf32>) -> tensor<1x8x16xf32>
  %2 = stablehlo.dot_general %x, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x?x8xf32>, tensor<1x8x16xf32>) -> tensor<1x?x16xf32>
  return %2 : tensor<1x?x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<1x?x8xf32> {disc.shape = ["1", "t", "8"]}, %arg1: tensor<8x16xf32>) -> tensor<1x?x16xf32> {
//       %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [0] : (tensor<1x?x8xf32>, tensor<8x16xf32>) -> tensor<1x?x16xf32>
//       return %0 : tensor<1x?x16xf32>
//     }
//   }

// -----

// Refused: the batch is not one of size 1; the reshape does more than add it.
func.func @main(%x: tensor<2x?x8xf32> {disc.shape = ["2", "t", "8"]}, %w: tensor<16x16xf32>, %y: tensor<1x?x8xf32> {disc.shape = ["1", "t", "8"]}, %v: tensor<4x2x16xf32>) -> (tensor<2x?x16xf32>, tensor<1x?x16xf32>) {
  %1 = stablehlo.reshape %w : (tensor<16x16xf32>) -> tensor<2x8x16xf32>
  %2 = stablehlo.dot_general %x, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x?x8xf32>, tensor<2x8x16xf32>) -> tensor<2x?x16xf32>
  %3 = stablehlo.reshape %v : (tensor<4x2x16xf32>) -> tensor<1x8x16xf32>
  %4 = stablehlo.dot_general %y, %3, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x?x8xf32>, tensor<1x8x16xf32>) -> tensor<1x?x16xf32>
  return %2, %4 : tensor<2x?x16xf32>, tensor<1x?x16xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<2x?x8xf32> {disc.shape = ["2", "t", "8"]}, %arg1: tensor<16x16xf32>, %arg2: tensor<1x?x8xf32> {disc.shape = ["1", "t", "8"]}, %arg3: tensor<4x2x16xf32>) -> (tensor<2x?x16xf32>, tensor<1x?x16xf32>) {
//       %0 = stablehlo.reshape %arg1 : (tensor<16x16xf32>) -> tensor<2x8x16xf32>
//       %1 = stablehlo.dot_general %arg0, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x?x8xf32>, tensor<2x8x16xf32>) -> tensor<2x?x16xf32>
//       %2 = stablehlo.reshape %arg3 : (tensor<4x2x16xf32>) -> tensor<1x8x16xf32>
//       %3 = stablehlo.dot_general %arg2, %2, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x?x8xf32>, tensor<1x8x16xf32>) -> tensor<1x?x16xf32>
//       return %1, %3 : tensor<2x?x16xf32>, tensor<1x?x16xf32>
//     }
//   }

// RUN: disc-opt %s --pass-pipeline=fold-broadcasts --split-input-file | filecheck %s

// A reshape that adds dimensions of size 1 is not needed under a broadcast.
// CHECK-LABEL: func.func @main
// CHECK-NOT: reshape
// CHECK: stablehlo.dynamic_broadcast_in_dim %arg1, %{{.+}}, dims = [2]
func.func @main(%x: tensor<?x?x768xf32> {disc.shape = ["b", "t", "768"]}, %w: tensor<768xf32>) -> tensor<?x?x768xf32> {
  %s = "disc.shape"() {dims = ["b", "t", "768"]} : () -> tensor<3xi32>
  %1 = stablehlo.reshape %w : (tensor<768xf32>) -> tensor<1x1x768xf32>
  %2 = stablehlo.dynamic_broadcast_in_dim %1, %s, dims = [0, 1, 2] : (tensor<1x1x768xf32>, tensor<3xi32>) -> tensor<?x?x768xf32>
  return %2 : tensor<?x?x768xf32>
}

// -----

// Two broadcasts are one; a broadcast to its own shape is none.
// CHECK-LABEL: func.func @main
// CHECK: %[[Y:.+]] = stablehlo.dynamic_broadcast_in_dim %arg0, %{{.+}}, dims = [1]
// CHECK-NEXT: return %[[Y]], %arg0
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> (tensor<?x?x3xf32>, tensor<?xf32>) {
  %s = "disc.shape"() {dims = ["b", "3"]} : () -> tensor<2xi32>
  %t = "disc.shape"() {dims = ["2*b", "b", "3"]} : () -> tensor<3xi32>
  %u = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi32>
  %1 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x3xf32>
  %2 = stablehlo.dynamic_broadcast_in_dim %1, %t, dims = [1, 2] : (tensor<?x3xf32>, tensor<3xi32>) -> tensor<?x?x3xf32>
  %3 = stablehlo.dynamic_broadcast_in_dim %x, %u, dims = [0] : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>
  return %2, %3 : tensor<?x?x3xf32>, tensor<?xf32>
}

// -----

// Refused: the sizes are not proved equal (x may have size 1), and a reshape that moves elements.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.dynamic_broadcast_in_dim %arg0
// CHECK: stablehlo.reshape %arg1
// CHECK: stablehlo.broadcast_in_dim %{{.+}}, dims = [1, 0]
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

// -----

// A broadcast that only adds dimensions of size 1 is a reshape, which is no kernel.
// CHECK-LABEL: func.func @main
// CHECK: %[[R:.+]] = stablehlo.dynamic_reshape %arg0, %{{.+}} : (tensor<?x8xf32>, tensor<3xi64>) -> tensor<1x?x8xf32>
// CHECK: return %[[R]]
func.func @main(%x: tensor<?x8xf32> {disc.shape = ["b", "8"]}) -> tensor<1x?x8xf32> {
  %s = "disc.shape"() {dims = ["1", "b", "8"]} : () -> tensor<3xi32>
  %y = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1, 2] : (tensor<?x8xf32>, tensor<3xi32>) -> tensor<1x?x8xf32>
  return %y : tensor<1x?x8xf32>
}

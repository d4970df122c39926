// RUN: disc-opt %s --pass-pipeline=cse | filecheck %s

func.func @main(%x: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  // CHECK-COUNT-1: "disc.shape"()
  // CHECK-NOT: "disc.shape"()
  %s = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
  %t = "disc.shape"() {dims = ["b", "4"]} : () -> tensor<2xi32>
  // CHECK: %[[Y:.+]] = stablehlo.dynamic_reshape
  // CHECK-NEXT: return %[[Y]], %[[Y]]
  %y = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  %z = stablehlo.dynamic_reshape %x, %t : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  return %y, %z : tensor<?x4xf32>, tensor<?x4xf32>
}

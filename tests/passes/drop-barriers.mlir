// RUN: disc-opt %s --pass-pipeline=cse,drop-barriers | filecheck %s

// What is computed from a value and from the value behind a barrier stays apart.
// CHECK-LABEL: func.func @main
// CHECK-NOT: optimization_barrier
// CHECK: %[[A:.*]] = stablehlo.sine %arg0
// CHECK: %[[B:.*]] = stablehlo.sine %arg0
// CHECK: stablehlo.multiply %[[A]], %[[B]]
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %a = stablehlo.sine %x : tensor<?xf32>
  %x1 = stablehlo.optimization_barrier %x : tensor<?xf32>
  %b = stablehlo.sine %x1 : tensor<?xf32>
  %y = stablehlo.multiply %a, %b : tensor<?xf32>
  return %y : tensor<?xf32>
}

// RUN: disc-opt %s --pass-pipeline=cse,drop-barriers | expect

// What is computed from a value and from the value behind a barrier stays apart.
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %a = stablehlo.sine %x : tensor<?xf32>
  %x1 = stablehlo.optimization_barrier %x : tensor<?xf32>
  %b = stablehlo.sine %x1 : tensor<?xf32>
  %y = stablehlo.multiply %a, %b : tensor<?xf32>
  return %y : tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xf32>) -> tensor<?xf32> {
//       %0 = stablehlo.sine %arg0 : tensor<?xf32>
//       %1 = stablehlo.sine %arg0 : tensor<?xf32>
//       %2 = stablehlo.multiply %0, %1 : tensor<?xf32>
//       return %2 : tensor<?xf32>
//     }
//   }

// RUN: disc-opt %s --pass-pipeline=fold-converts --split-input-file | expect

func.func @main(%x: tensor<?xbf16>, %i: tensor<?xi8>) -> (tensor<?xbf16>, tensor<?xf32>) {
  %1 = stablehlo.convert %x : (tensor<?xbf16>) -> tensor<?xf32>
  %2 = stablehlo.convert %1 : (tensor<?xf32>) -> tensor<?xbf16>
  %3 = stablehlo.convert %i : (tensor<?xi8>) -> tensor<?xi32>
  %4 = stablehlo.convert %3 : (tensor<?xi32>) -> tensor<?xf32>
  return %2, %4 : tensor<?xbf16>, tensor<?xf32>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<?xbf16>, %arg1: tensor<?xi8>) -> (tensor<?xbf16>, tensor<?xf32>) {
//       %0 = stablehlo.convert %arg1 : (tensor<?xi8>) -> tensor<?xf32>
//       return %arg0, %0 : tensor<?xbf16>, tensor<?xf32>
//     }
//   }

// -----

// Refused: f16 cannot hold every bf16, f32 not every i32, ui8 not -1.
func.func @main(%x: tensor<4xbf16>, %i: tensor<4xi32>, %j: tensor<4xi8>) -> (tensor<4xbf16>, tensor<4xi32>, tensor<4xi8>) {
  %1 = stablehlo.convert %x : (tensor<4xbf16>) -> tensor<4xf16>
  %2 = stablehlo.convert %1 : (tensor<4xf16>) -> tensor<4xbf16>
  %3 = stablehlo.convert %i : (tensor<4xi32>) -> tensor<4xf32>
  %4 = stablehlo.convert %3 : (tensor<4xf32>) -> tensor<4xi32>
  %5 = stablehlo.convert %j : (tensor<4xi8>) -> tensor<4xui8>
  %6 = stablehlo.convert %5 : (tensor<4xui8>) -> tensor<4xi8>
  return %2, %4, %6 : tensor<4xbf16>, tensor<4xi32>, tensor<4xi8>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4xbf16>, %arg1: tensor<4xi32>, %arg2: tensor<4xi8>) -> (tensor<4xbf16>, tensor<4xi32>, tensor<4xi8>) {
//       %0 = stablehlo.convert %arg0 : (tensor<4xbf16>) -> tensor<4xf16>
//       %1 = stablehlo.convert %0 : (tensor<4xf16>) -> tensor<4xbf16>
//       %2 = stablehlo.convert %arg1 : (tensor<4xi32>) -> tensor<4xf32>
//       %3 = stablehlo.convert %2 : (tensor<4xf32>) -> tensor<4xi32>
//       %4 = stablehlo.convert %arg2 : (tensor<4xi8>) -> tensor<4xui8>
//       %5 = stablehlo.convert %4 : (tensor<4xui8>) -> tensor<4xi8>
//       return %1, %3, %5 : tensor<4xbf16>, tensor<4xi32>, tensor<4xi8>
//     }
//   }

// -----

// Refused: -1 becomes 0 by way of f32, and 255 directly. To a type that holds every i8 both agree.
func.func @main(%x: tensor<4xi8>) -> (tensor<4xui8>, tensor<4xi16>) {
  %1 = stablehlo.convert %x : (tensor<4xi8>) -> tensor<4xf32>
  %2 = stablehlo.convert %1 : (tensor<4xf32>) -> tensor<4xui8>
  %3 = stablehlo.convert %1 : (tensor<4xf32>) -> tensor<4xi16>
  return %2, %3 : tensor<4xui8>, tensor<4xi16>
}
// EXPECT:
//   module {
//     func.func @main(%arg0: tensor<4xi8>) -> (tensor<4xui8>, tensor<4xi16>) {
//       %0 = stablehlo.convert %arg0 : (tensor<4xi8>) -> tensor<4xf32>
//       %1 = stablehlo.convert %0 : (tensor<4xf32>) -> tensor<4xui8>
//       %2 = stablehlo.convert %arg0 : (tensor<4xi8>) -> tensor<4xi16>
//       return %1, %2 : tensor<4xui8>, tensor<4xi16>
//     }
//   }

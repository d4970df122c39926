// RUN: disc-opt %s --pass-pipeline=simplify-algebra --split-input-file | filecheck %s

// Softmax leaves maximum(-inf, x); attention divides by a power of two.
// CHECK-LABEL: func.func @main
// CHECK: %[[C:.+]] = stablehlo.constant dense<1.250000e-01> : tensor<f32>
// CHECK: %[[B:.+]] = stablehlo.dynamic_broadcast_in_dim %[[C]]
// CHECK: stablehlo.multiply %arg0, %[[B]]
// CHECK-NEXT: return
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<?xf32> {
  %s = "disc.shape"() {dims = ["b"]} : () -> tensor<1xi32>
  %inf = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %eight = stablehlo.constant dense<8.0> : tensor<f32>
  %1 = stablehlo.dynamic_broadcast_in_dim %inf, %s, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %2 = stablehlo.maximum %1, %x : tensor<?xf32>
  %3 = stablehlo.dynamic_broadcast_in_dim %eight, %s, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %4 = stablehlo.divide %2, %3 : tensor<?xf32>
  return %4 : tensor<?xf32>
}

// -----

// Exact for every float.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: return %arg0, %arg0, %arg0, %arg0, %arg0
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
  %minus_zero = stablehlo.constant dense<-0.0> : tensor<4xf32>
  %one = stablehlo.constant dense<1.0> : tensor<4xf32>
  %a = stablehlo.add %x, %minus_zero : tensor<4xf32>
  %b = stablehlo.subtract %x, %zero : tensor<4xf32>
  %c = stablehlo.multiply %one, %x : tensor<4xf32>
  %d = stablehlo.divide %x, %one : tensor<4xf32>
  %n = stablehlo.negate %x : tensor<4xf32>
  %e = stablehlo.negate %n : tensor<4xf32>
  return %a, %b, %c, %d, %e : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Wrong for some float, right for integers.
// CHECK-LABEL: func.func @main
// CHECK-DAG: stablehlo.add %arg0
// CHECK-DAG: stablehlo.subtract %arg0, %cst
// CHECK-DAG: stablehlo.multiply %arg0
// CHECK-DAG: stablehlo.subtract %arg0, %arg0
// CHECK-DAG: stablehlo.divide %arg0
// CHECK: return %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}, %arg1, %[[Z:.+]], %[[Z]]
func.func @main(%x: tensor<4xf32>, %i: tensor<4xi32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
  %minus_zero = stablehlo.constant dense<-0.0> : tensor<4xf32>
  %three = stablehlo.constant dense<3.0> : tensor<4xf32>
  %no = stablehlo.constant dense<0> : tensor<4xi32>
  %a = stablehlo.add %x, %zero : tensor<4xf32>
  %b = stablehlo.subtract %x, %minus_zero : tensor<4xf32>
  %c = stablehlo.multiply %x, %zero : tensor<4xf32>
  %d = stablehlo.subtract %x, %x : tensor<4xf32>
  %e = stablehlo.divide %x, %three : tensor<4xf32>
  %f = stablehlo.add %i, %no : tensor<4xi32>
  %g = stablehlo.multiply %i, %no : tensor<4xi32>
  %h = stablehlo.subtract %i, %i : tensor<4xi32>
  return %a, %b, %c, %d, %e, %f, %g, %h : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>
}

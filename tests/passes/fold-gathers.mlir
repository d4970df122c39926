// RUN: disc-opt %s --pass-pipeline=fold-gathers --split-input-file | filecheck %s

// x[:, 2*n:] of a size that is known only as a symbol.
// CHECK-LABEL: func.func @main
// CHECK-NOT: dynamic_gather
// CHECK-DAG: %[[FIRST:.+]] = "disc.shape"() {dims = ["0", "2*n"]}
// CHECK-DAG: %[[LAST:.+]] = "disc.shape"() {dims = ["k", "3*n"]}
// CHECK-DAG: %[[ONES:.+]] = "disc.shape"() {dims = ["1", "1"]}
// CHECK: stablehlo.real_dynamic_slice %arg0, %[[FIRST]], %[[LAST]], %[[ONES]]
func.func @main(%w: tensor<?x?xf32> {disc.shape = ["k", "3*n"]}) -> tensor<?x?xf32> {
  %start = "disc.shape"() {dims = ["2*n"]} : () -> tensor<1xi32>
  %sizes = "disc.shape"() {dims = ["k", "n"]} : () -> tensor<2xi32>
  %y = "stablehlo.dynamic_gather"(%w, %start, %sizes) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], start_index_map = [1]>}> : (tensor<?x?xf32>, tensor<1xi32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// -----

// A dimension that goes away is a reshape behind the slice; static ones are a static slice.
// CHECK-LABEL: func.func @main
// CHECK: %[[S:.+]] = stablehlo.slice %arg0 [0:4, 1:2] : (tensor<4x3xf32>) -> tensor<4x1xf32>
// CHECK: stablehlo.reshape %[[S]] : (tensor<4x1xf32>) -> tensor<4xf32>
func.func @main(%x: tensor<4x3xf32>) -> tensor<4xf32> {
  %start = stablehlo.constant dense<1> : tensor<1xi32>
  %y = "stablehlo.gather"(%x, %start) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1], start_index_map = [1]>, slice_sizes = array<i64: 4, 1>}> : (tensor<4x3xf32>, tensor<1xi32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// A start that the gather would clamp, one that may be beyond the end, and one that is data stay.
// CHECK-LABEL: func.func @main
// CHECK-COUNT-3: "stablehlo.gather"
func.func @main(%x: tensor<?x3xf32> {disc.shape = ["n", "3"]}, %i: tensor<1xi32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %low = stablehlo.constant dense<-1> : tensor<1xi32>
  %high = stablehlo.constant dense<7> : tensor<1xi32>
  %a = "stablehlo.gather"(%x, %low) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}> : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<3xf32>
  %b = "stablehlo.gather"(%x, %high) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}> : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<3xf32>
  %c = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}> : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<3xf32>
  return %a, %b, %c : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// RUN: disc-opt %s --pass-pipeline=resolve-shapes --split-input-file | filecheck %s

// Shape arithmetic becomes terms and disappears; sizes used as data become disc.dim.
// CHECK-LABEL: func.func @main(%arg0: tensor<?x4xf32> {disc.shape = ["b", "4"]})
// CHECK-DAG: %[[S:.+]] = "disc.shape"() {dims = ["4*b"]} : () -> tensor<1xi32>
// CHECK-DAG: %[[D:.+]] = "disc.dim"() {dim = "b"} : () -> tensor<i32>
// CHECK-NOT: get_dimension_size
// CHECK: stablehlo.dynamic_reshape %arg0, %[[S]]
// CHECK: stablehlo.convert %[[D]] : (tensor<i32>) -> tensor<f32>
func.func @main(%x: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<?xf32>, tensor<f32>) {
  %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<i32>
  %n = stablehlo.multiply %b, %four : tensor<i32>
  %s = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %y = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<1xi32>) -> tensor<?xf32>
  %f = stablehlo.convert %b : (tensor<i32>) -> tensor<f32>
  return %y, %f : tensor<?xf32>, tensor<f32>
}

// -----

// An assertion becomes a guard with its message.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: "disc.guard"() {lhs = "d0_0", message = "got d1_0 for d0_0", op = "==", rhs = "d1_0"}
// CHECK-NEXT: stablehlo.add
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %a = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %b = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %ok = stablehlo.compare EQ, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%ok, %b, %a) {has_side_effect = true, error_message = "got {0} for {1}", api_version = 2 : i32} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
  %z = stablehlo.add %x, %y : tensor<?xf32>
  return %z : tensor<?xf32>
}

// -----

// What is static becomes a static op.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.pad %arg0, %arg1, low = [1], high = [2], interior = [0]
// CHECK: stablehlo.slice
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

// -----

// Sizes inside control flow are the same terms; a second size used as data stays one value.
// CHECK-LABEL: func.func @main
// CHECK: %[[D:.+]] = "disc.dim"() {dim = "b"} : () -> tensor<i32>
// CHECK: stablehlo.while
// CHECK: stablehlo.compare  LT, %{{.+}}, %[[D]]
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

// -----

// A computed list of sizes may be empty.
// CHECK-LABEL: func.func @main
// CHECK: %[[C:.+]] = stablehlo.constant dense<> : tensor<0xi32>
// CHECK: return %[[C]]
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<0xi32> {
  %i = stablehlo.iota dim = 0 : tensor<0xi32>
  return %i : tensor<0xi32>
}

// -----

// An array of sizes is data where memory is needed, and a shape where an op reads it as one.
// CHECK-LABEL: func.func @main
// CHECK-DAG: %[[S:.+]] = "disc.shape"() {dims = ["4", "b"]} : () -> tensor<2xi32>
// CHECK-DAG: %[[V:.+]] = "disc.sizes"() {dims = ["4", "b"]} : () -> tensor<2xi32>
// CHECK: stablehlo.dynamic_reshape %{{.+}}, %[[S]]
// CHECK: return %{{.+}}, %[[V]]
func.func @main(%x: tensor<?x4xf32> {disc.shape = ["b", "4"]}) -> (tensor<4x?xf32>, tensor<2xi32>) {
  %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %one = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.concatenate %four, %one, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %y = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<4x?xf32>
  return %y, %s : tensor<4x?xf32>, tensor<2xi32>
}

// -----

// Scalars are replaced wherever they are read, also behind arrays of one truth value.
// CHECK-LABEL: func.func @main
// CHECK-NOT: get_dimension_size
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> tensor<1xi1> {
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %one = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
  %c = stablehlo.compare GT, %one, %zero : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
  return %c : tensor<1xi1>
}

// -----

// Floats of sizes are rounded once, from 64 bits, where 32 may not do; integers are not.
// CHECK-LABEL: func.func @main
// CHECK-DAG: %[[W:.+]] = "disc.dim"() {dim = "b^2"} : () -> tensor<i64>
// CHECK-DAG: %[[N:.+]] = "disc.dim"() {dim = "b^2"} : () -> tensor<i32>
// CHECK-DAG: %[[B:.+]] = "disc.dim"() {dim = "b"} : () -> tensor<i32>
// CHECK-DAG: %[[F:.+]] = stablehlo.convert %[[W]] : (tensor<i64>) -> tensor<f32>
// CHECK-DAG: %[[G:.+]] = stablehlo.convert %[[B]] : (tensor<i32>) -> tensor<f32>
// CHECK: return %[[F]], %[[G]], %[[N]]
func.func @main(%x: tensor<?xf32> {disc.shape = ["b"]}) -> (tensor<f32>, tensor<f32>, tensor<i32>) {
  %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %n = stablehlo.multiply %b, %b : tensor<i32>
  %f = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
  %g = stablehlo.convert %b : (tensor<i32>) -> tensor<f32>
  return %f, %g, %n : tensor<f32>, tensor<f32>, tensor<i32>
}

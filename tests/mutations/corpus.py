"""Small modules that together use most of what the compiler reads."""

from __future__ import annotations

import functools

from shlo_disc.mlir import ir, new_context, stablehlo

_HEADER = """module @m attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%x: tensor<?x4xf32> {disc.shape = ["b", "4"], disc.name = "x"}, """

TEXTS = (
    # Sizes, broadcasts, reductions, a call.
    _HEADER
    + """%y: tensor<4xf32> loc("y")) -> (tensor<?x4xf32> {jax.result_info = "out"})
      attributes {disc.constraints = ["b >= 1", "mod(b, 2) == 0"]} {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %d = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %four = stablehlo.constant dense<4> : tensor<1xi32>
    %e = stablehlo.reshape %d : (tensor<i32>) -> tensor<1xi32>
    %s = stablehlo.concatenate %e, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %b = stablehlo.dynamic_broadcast_in_dim %y, %s, dims = [1]
      : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
    %r = stablehlo.reduce(%b init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<?x4xf32>, tensor<f32>) -> tensor<?xf32>
    %m = stablehlo.dynamic_broadcast_in_dim %r, %s, dims = [0]
      : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x4xf32>
    %c = call @f(%m) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %z = stablehlo.add %c, %x : tensor<?x4xf32>
    return %z : tensor<?x4xf32>
  }
  func.func private @f(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %0 = stablehlo.tanh %x : tensor<?x4xf32>
    return %0 : tensor<?x4xf32>
  }
}
""",
    # Products, a convolution, transposes, slices, pads.
    _HEADER
    + """%w: tensor<4x6xf32>, %i: tensor<1x8x8x2xf32>, %k: tensor<3x3x2x5xf32>)
      -> (tensor<?x6xf32>, tensor<1x6x6x5xf32>, tensor<8x3xf32>) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0], precision = [DEFAULT, HIGHEST]
      : (tensor<?x4xf32>, tensor<4x6xf32>) -> tensor<?x6xf32>
    %1 = stablehlo.convolution(%i, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {stride = [1, 1], pad = [[0, 0], [0, 0]], rhs_dilate = [1, 1]}
      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x8x8x2xf32>, tensor<3x3x2x5xf32>) -> tensor<1x6x6x5xf32>
    %2 = stablehlo.transpose %w, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
    %3 = stablehlo.slice %2 [0:6, 0:4:2] : (tensor<6x4xf32>) -> tensor<6x2xf32>
    %p = stablehlo.constant dense<1.5> : tensor<f32>
    %4 = stablehlo.pad %3, %p, low = [1, 0], high = [1, 0], interior = [0, 1]
      : (tensor<6x2xf32>, tensor<f32>) -> tensor<8x3xf32>
    return %0, %1, %4 : tensor<?x6xf32>, tensor<1x6x6x5xf32>, tensor<8x3xf32>
  }
}
""",
    # Control flow.
    """func.func public @main(%x: tensor<7xf32>, %n: tensor<i32>) -> (tensor<7xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %w:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<7xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %u = stablehlo.slice %y [2:4] : (tensor<7xf32>) -> tensor<2xf32>
    %v = stablehlo.dynamic_update_slice %y, %u, %i
      : (tensor<7xf32>, tensor<2xf32>, tensor<i32>) -> tensor<7xf32>
    stablehlo.return %j, %v : tensor<i32>, tensor<7xf32>
  }
  %q = "stablehlo.case"(%n) ({
    %a = stablehlo.cosine %x : tensor<7xf32>
    stablehlo.return %a : tensor<7xf32>
  }, {
    stablehlo.return %w#1 : tensor<7xf32>
  }) : (tensor<i32>) -> tensor<7xf32>
  return %q, %w#0 : tensor<7xf32>, tensor<i32>
}
""",
    # Indexing and sorting.
    """func.func public @main(%x: tensor<9x4xf32>, %i: tensor<3x1xi32>) ->
    (tensor<3x4xf32>, tensor<9x4xf32>, tensor<9x4xf32>) {
  %g = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 4>, indices_are_sorted = false}>
    : (tensor<9x4xf32>, tensor<3x1xi32>) -> tensor<3x4xf32>
  %s = "stablehlo.scatter"(%x, %i, %g) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
    index_vector_dim = 1>, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<9x4xf32>, tensor<3x1xi32>, tensor<3x4xf32>) -> tensor<9x4xf32>
  %o = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<9x4xf32>) -> tensor<9x4xf32>
  return %g, %s, %o : tensor<3x4xf32>, tensor<9x4xf32>, tensor<9x4xf32>
}
""",
    # Constants, casts, bits, windows, locations.
    """#l = loc("model.py":3:7)
func.func public @main(%x: tensor<6xf32>) -> (tensor<6xi8>, tensor<2xf32>, tensor<6xui32>) {
  %c = stablehlo.constant dense<[1.0, -2.5, 0x7FC00000, 3.0e5, -0.0, 1.0]> : tensor<6xf32> loc(#l)
  %h = stablehlo.constant dense<"0x003C00400044004600480049"> : tensor<6xf16>
  %0 = stablehlo.convert %h : (tensor<6xf16>) -> tensor<6xf32> loc(callsite(#l at "f"(#l)))
  %1 = stablehlo.maximum %0, %c : tensor<6xf32> loc(fused<"k">[#l, "n"])
  %2 = stablehlo.convert %1 : (tensor<6xf32>) -> tensor<6xi8>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = "stablehlo.reduce_window"(%x, %z) <{window_dimensions = array<i64: 3>,
    window_strides = array<i64: 3>, padding = dense<0> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<6xf32>, tensor<f32>) -> tensor<2xf32>
  %4 = stablehlo.bitcast_convert %x : (tensor<6xf32>) -> tensor<6xui32>
  %i = stablehlo.iota dim = 0 : tensor<6xui32>
  %5 = stablehlo.shift_left %4, %i : tensor<6xui32>
  return %2, %3, %5 : tensor<6xi8>, tensor<2xf32>, tensor<6xui32>
}
""",
)


@functools.cache
def artifacts() -> tuple[bytes, ...]:
    """The same modules as portable artifacts."""
    found = []
    for text in TEXTS:
        with new_context(), ir.Location.unknown():
            module = str(ir.Module.parse(text))
            version = stablehlo.get_current_version()
            found.append(stablehlo.serialize_portable_artifact_str(module, version))
    return tuple(found)

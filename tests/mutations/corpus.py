"""Small modules that together use most of what the compiler reads."""

from __future__ import annotations

import functools

from shlo_disc.ir.mlir import ir, new_context, stablehlo

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
    # Custom calls of every kind that is expanded, and assertions.
    """func.func public @main(%x: tensor<?x6xf32>, %n: tensor<2xui64>) -> (tensor<?x6xf32>,
    tensor<?x3xf32>, tensor<?x2xf32>, tensor<?xui32>, tensor<?x6xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %j = stablehlo.constant dense<-1> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<2xi32>
  %d = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x6xf32>) -> tensor<i32>
  %e = stablehlo.reshape %d : (tensor<i32>) -> tensor<1xi32>
  %six = stablehlo.constant dense<6> : tensor<1xi32>
  %s = stablehlo.concatenate %e, %six, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %k0 = stablehlo.constant dense<1> : tensor<i32>
  %ok = stablehlo.compare GE, %d, %k0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%ok, %d) {error_message = "{0} rows",
    has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
  %p = stablehlo.constant dense<0> : tensor<2x2xi32>
  %0 = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %z, %one, %one, %one, %one, %p)
    {called_computations = [@add]} : (tensor<?x6xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>,
    tensor<2xi32>, tensor<2xi32>, tensor<2x2xi32>) -> tensor<?x6xf32>
  %i = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi32>) -> tensor<?x6xi32>
  %1:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %z, %j) {called_computations = [@greater],
    mhlo.backend_config = {aggregate_to_topk = true, recall_target = 0.9 : f32,
    reduction_dim = 1 : i64, reduction_input_size_override = -1 : i64, top_k = 3 : i64}}
    : (tensor<?x6xf32>, tensor<?x6xi32>, tensor<f32>, tensor<i32>)
    -> (tensor<?x3xf32>, tensor<?x3xi32>)
  %k = stablehlo.constant dense<2> : tensor<i32>
  %2:2 = stablehlo.custom_call @stablehlo.dynamic_top_k(%x, %k) : (tensor<?x6xf32>, tensor<i32>)
    -> (tensor<?x2xf32>, tensor<?x2xi32>)
  %3:2 = stablehlo.custom_call @stablehlo.dynamic_rng_bit_generator(%n, %e)
    {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>, tensor<1xi32>)
    -> (tensor<2xui64>, tensor<?xui32>)
  %4 = stablehlo.custom_call @chlo.erfc(%x) : (tensor<?x6xf32>) -> tensor<?x6xf32>
  %5 = stablehlo.custom_call @Sharding(%4) {backend_config = "", mhlo.sharding = "{replicated}"}
    : (tensor<?x6xf32>) -> tensor<?x6xf32>
  return %0, %1#0, %2#0, %3#1, %5 : tensor<?x6xf32>, tensor<?x3xf32>, tensor<?x2xf32>,
    tensor<?xui32>, tensor<?x6xf32>
}
func.func private @add(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.add %a, %b : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @greater(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>)
    -> tensor<i1> {
  %0 = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}
""",
    # Complex numbers, transforms, collectives of one device.
    """func.func @main(%x: tensor<?x4xcomplex<f32>>, %y: tensor<?x4xf32>) ->
    (tensor<?x4xcomplex<f32>>, tensor<?xf32>, tensor<?x3xcomplex<f32>>, tensor<?x4xf32>) {
  %c = stablehlo.constant dense<(1.0, -2.0)> : tensor<4xcomplex<f32>>
  %z = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
  %d = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xcomplex<f32>>) -> tensor<i32>
  %e = stablehlo.reshape %d : (tensor<i32>) -> tensor<1xi32>
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %s = stablehlo.concatenate %e, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %b = stablehlo.dynamic_broadcast_in_dim %c, %s, dims = [1]
    : (tensor<4xcomplex<f32>>, tensor<2xi32>) -> tensor<?x4xcomplex<f32>>
  %m = stablehlo.multiply %x, %b : tensor<?x4xcomplex<f32>>
  %0 = stablehlo.fft %m, type = FFT, length = [4]
    : (tensor<?x4xcomplex<f32>>) -> tensor<?x4xcomplex<f32>>
  %r = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<?x4xcomplex<f32>>, tensor<complex<f32>>) -> tensor<?xcomplex<f32>>
  %1 = stablehlo.abs %r : (tensor<?xcomplex<f32>>) -> tensor<?xf32>
  %n = stablehlo.constant dense<4> : tensor<i32>
  %2 = stablehlo.custom_call @stablehlo.dynamic_fft(%y, %n) {backend_config = "RFFT"}
    : (tensor<?x4xf32>, tensor<i32>) -> tensor<?x3xcomplex<f32>>
  %3 = "stablehlo.all_reduce"(%y) <{replica_groups = dense<0> : tensor<1x1xi64>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %t = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %t : tensor<f32>
  }) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %4 = "stablehlo.collective_permute"(%3) <{source_target_pairs = dense<0> : tensor<1x2xi64>}>
    : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %u = stablehlo.tuple %4, %1 : tuple<tensor<?x4xf32>, tensor<?xf32>>
  %v = stablehlo.get_tuple_element %u[0]
    : (tuple<tensor<?x4xf32>, tensor<?xf32>>) -> tensor<?x4xf32>
  %w = "stablehlo.async_start"(%v) ({
  ^bb0(%p: tensor<?x4xf32>):
    %q = "stablehlo.all_gather"(%p) <{all_gather_dim = 0 : i64,
      replica_groups = dense<0> : tensor<1x1xi64>}> : (tensor<?x4xf32>) -> tensor<?x4xf32>
    stablehlo.return %q : tensor<?x4xf32>
  }) : (tensor<?x4xf32>) -> !stablehlo.future<tensor<?x4xf32>>
  %5 = "stablehlo.async_done"(%w) : (!stablehlo.future<tensor<?x4xf32>>) -> tensor<?x4xf32>
  return %0, %1, %2, %5 : tensor<?x4xcomplex<f32>>, tensor<?xf32>, tensor<?x3xcomplex<f32>>,
    tensor<?x4xf32>
}
""",
    # CHLO and composites.
    """func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) ->
    (tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x4xf32>, tensor<?x4xi1>, tensor<?x4xf32>) {
  %0 = chlo.broadcast_add %x, %y : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %v, %i = chlo.top_k(%x, k = 2) : tensor<?x4xf32> -> (tensor<?x2xf32>, tensor<?x2xi32>)
  %1 = chlo.sinh %0 : tensor<?x4xf32> -> tensor<?x4xf32>
  %2 = chlo.erf %1 : tensor<?x4xf32> -> tensor<?x4xf32>
  %3 = chlo.broadcast_compare %x, %y {comparison_direction = #chlo<comparison_direction LT>,
    compare_type = #chlo<comparison_type FLOAT>}
    : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xi1>
  %4 = stablehlo.composite "chlo.erf_inv" %x {composite_attributes = {n = 1 : i64},
    decomposition = @f, version = 1 : i32} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %5 = stablehlo.composite "my.op" %4 {composite_attributes = {}, decomposition = @f}
    : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %2, %v, %1, %3, %5 : tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x4xf32>, tensor<?x4xi1>,
    tensor<?x4xf32>
}
func.func private @f(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = chlo.acosh %x : tensor<?x4xf32> -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
""",
    # Quantized types.
    """!q = !quant.uniform<i8:f32, 0.5:3>
!w = !quant.uniform<i8:f32, 0.5>
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4x!w>, %v: tensor<4x4x!q>)
    -> (tensor<4x4xf32>, tensor<4x4x!q>) {
  %0 = stablehlo.uniform_quantize %x : (tensor<4x4xf32>) -> tensor<4x4x!q>
  %1 = stablehlo.add %0, %v : tensor<4x4x!q>
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0]
    : (tensor<4x4x!q>, tensor<4x4x!w>) -> tensor<4x4x!quant.uniform<i32:f32, 0.25>>
  %3 = stablehlo.uniform_dequantize %2
    : (tensor<4x4x!quant.uniform<i32:f32, 0.25>>) -> tensor<4x4xf32>
  %4 = stablehlo.transpose %1, dims = [1, 0] : (tensor<4x4x!q>) -> tensor<4x4x!q>
  return %3, %4 : tensor<4x4xf32>, tensor<4x4x!q>
}
""",
    # Linear algebra and FFI calls, computations in wider types.
    """func.func @main(%a: tensor<?x3x3xf32>, %b: tensor<?x3x2xf32>, %m: tensor<3x3xf32>,
    %i: tensor<?xi8>) -> (tensor<?x3x3xf32>, tensor<?x3x2xf32>, tensor<3x3xf32>, tensor<i32>) {
  %0 = stablehlo.cholesky %a, lower = true : tensor<?x3x3xf32>
  %1 = "stablehlo.triangular_solve"(%0, %b) <{left_side = true, lower = true,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}>
    : (tensor<?x3x3xf32>, tensor<?x3x2xf32>) -> tensor<?x3x2xf32>
  %2:2 = stablehlo.custom_call @lapack_spotrf_ffi(%m) {mhlo.backend_config = {uplo = 76 : ui8},
    api_version = 4 : i32, operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
    output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0],
      operand_index = 0, operand_tuple_indices = []>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]}
    : (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<i32>)
  %z = stablehlo.constant dense<0> : tensor<i8>
  %3 = "stablehlo.reduce"(%i, %z) <{dimensions = array<i64: 0>}> ({
  ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %s = stablehlo.add %p, %q : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) : (tensor<?xi8>, tensor<i8>) -> tensor<i32>
  return %0, %1, %2#0, %3 : tensor<?x3x3xf32>, tensor<?x3x2xf32>, tensor<3x3xf32>, tensor<i32>
}
""",
)


@functools.cache
def artifacts() -> tuple[bytes, ...]:
    """The same modules as portable artifacts, which hold no CHLO."""
    found = []
    for text in (text for text in TEXTS if " chlo." not in text):
        with new_context(), ir.Location.unknown():
            module = str(ir.Module.parse(text))
            version = stablehlo.get_current_version()
            found.append(stablehlo.serialize_portable_artifact_str(module, version))
    return tuple(found)

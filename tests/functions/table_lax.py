"""Cases of `jax.lax`."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tests.functions.cases import Case, Leave, case, each

ELEMENTWISE = {
    **each(
        "abs asinh atan bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf erfc exp exp2 expm1 floor "
        "is_finite lgamma logistic neg round sign sin sinh square tan tanh",
        "n m",
    ),
    **each("log log1p reciprocal rsqrt sqrt", "positive: n m"),
    **each("acos asin atanh erf_inv", "open: n m"),
    "acosh": case("above: n m"),
    **each("bitwise_not clz population_count", "int: n m"),
    **each("add atan2 div eq ge gt le lt max min mul ne nextafter rem sub", "n m", "n m"),
    **each("igamma igamma_grad_a igammac pow random_gamma_grad", "positive: n m", "positive: n m"),
    **each("zeta", "above: n m", "above: n m"),
    **each("bitwise_and bitwise_or bitwise_xor", "int: n m", "int: n m"),
    **each("shift_left shift_right_arithmetic shift_right_logical", "int: n m", "whole: n m"),
    "mulhi": case("word: n m", "word: n m"),
    "betainc": case("positive: n m", "positive: n m", "unit: n m"),
    "clamp": case(lambda x, y: lax.clamp(-0.5, x, 0.75), "n m", "n m"),
    "clamp/arrays": case("n m", "n m", "n m"),
    "complex": case("n m", "n m"),
    "conj": case("n m"),
    **{
        name: case(lambda x, y, f=getattr(lax, name): f(lax.complex(x, y)), "n m", "n m")
        for name in ("imag", "real")
    },
    "integer_pow": case(lambda x: lax.integer_pow(x, 3), "n m"),
    "nextafter": case("n m", "n m"),
    "polygamma": case(lambda x: lax.polygamma(jnp.full_like(x, 2.0), x), "positive: n m"),
    "select": case("bool: n m", "n m", "n m"),
    "select_n": case("index(3): n m", "n m", "n m", "n m"),
    "convert_element_type": case(lambda x: lax.convert_element_type(x, "bfloat16"), "n m"),
    "bitcast_convert_type": case(lambda x: lax.bitcast_convert_type(x, "int32"), "n m"),
    "bitcast_convert_type/bytes": case(lambda x: lax.bitcast_convert_type(x, "uint8"), "n m"),
    "reduce_precision": case(lambda x: lax.reduce_precision(x, 5, 7), "n m"),
    "stop_gradient": case("n m"),
    "optimization_barrier": case("n m"),
    "dce_sink": case(lambda x: (lax.dce_sink(x), x)[1], "n m"),
    "stage": case("n m"),
    "platform_dependent": case(lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), "n m"),
    "composite": case(lambda x: lax.composite(lambda y: jnp.sin(y) * 2, "my.sine")(x), "n m"),
}  # fmt: skip

SHAPES = {
    "broadcast": case(lambda x: lax.broadcast(x, (3,)), "n m"),
    "broadcast_in_dim": case(lambda x, y: lax.broadcast_in_dim(x, y.shape, (1,)), "m", "n m"),
    "broadcast_like": case("n m", "n m"),
    "broadcast_to_rank": case(lambda x: lax.broadcast_to_rank(x, 4), "n m"),
    "broadcasted_iota": case(lambda x: lax.broadcasted_iota("int32", x.shape, 1), "n m"),
    "collapse": case(lambda x: lax.collapse(x, 0, 2), "n m 3"),
    "concatenate": case(lambda x, y: lax.concatenate([x, y], 1), "n m", "n 3"),
    "empty": case(lambda x: lax.empty(x.shape, x.dtype) * 0, "n m"),
    "expand_dims": case(lambda x: lax.expand_dims(x, (0, 2)), "n m"),
    "full": case(lambda x: lax.full(x.shape, 7), "n m"),
    "full_like": case(lambda x: lax.full_like(x, 1.5), "n m"),
    "iota": case(lambda x: lax.iota("float32", x.shape[0]), "n"),
    "pad": case(lambda x: lax.pad(x, 1.0, ((1, 2, 0), (0, -1, 2))), "n m"),
    "pad/interior": case(lambda x: lax.pad(x, 0.0, ((-1, 2, 1), (0, 0, 0))), "n+1 m"),
    "reshape": case(lambda x: lax.reshape(x, (x.shape[1], x.shape[0])), "n m"),
    "reshape/dimensions": case(lambda x: lax.reshape(x, (x.size,), (1, 0)), "n m"),
    "rev": case(lambda x: lax.rev(x, (0, 1)), "n m"),
    "shape_as_value": case(lambda x: lax.shape_as_value(x.shape), "n m"),
    "slice": case(lambda x: lax.slice(x, (1, 0), x.shape, (2, 1)), "n+1 m"),
    "slice_in_dim": case(lambda x: lax.slice_in_dim(x, -2, None, axis=0), "n+2 m"),
    "split": case(lambda x: lax.split(x, (1, 3), axis=1), "n 4"),
    "squeeze": case(lambda x: lax.squeeze(x, (1,)), "n 1 m"),
    "stack": case(lambda x, y: lax.stack([x, y], 1), "n m", "n m"),
    "tile": case(lambda x: lax.tile(x, (2, 3)), "n m"),
    "transpose": case(lambda x: lax.transpose(x, (2, 0, 1)), "n m 3"),
    "unstack": case(lambda x: lax.unstack(x, axis=1), "n 3"),
}  # fmt: skip

REDUCTIONS = {
    **{
        name: case(lambda x, f=getattr(lax, name): (f(x, 0), f(x, axis=1, reverse=True)), "n m")
        for name in "cumlogsumexp cummax cummin cumprod cumsum".split()
    },
    **{
        name: case(lambda x, f=getattr(lax, name): f(x, (0,)), "n m")
        for name in "reduce_max reduce_min reduce_prod reduce_sum".split()
    },
    **{
        name: case(lambda x, f=getattr(lax, name): f(x, (1,)), "bool: n m")
        for name in "reduce_and reduce_or".split()
    },
    "reduce_xor": case(lambda x: lax.reduce_xor(x, (0,)), "int: n m"),
    "argmax": case(lambda x: lax.argmax(x, 1, "int32"), "n m"),
    "argmin": case(lambda x: lax.argmin(x, 0, "int32"), "n m"),
    "reduce": case(lambda x: lax.reduce(x, 1.0, lax.mul, (0, 1)), "n m"),
    "reduce/two": case(
        lambda x, i: lax.reduce(
            (x, i), (-jnp.inf, -1),
            lambda a, b: (jnp.maximum(a[0], b[0]), jnp.where(a[0] > b[0], a[1], b[1])), (1,),
        ),
        "n m", "int: n m",
    ),
    "reduce_window": case(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (1, 1), "SAME"), "n m"),
    "reduce_window/valid": case(lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (2, 1), "VALID"), "n+1 m+1"),
    "sort": case(lambda x: lax.sort(x, dimension=0), "n m"),
    "sort/two": case(lambda x, y: lax.sort((x, y), num_keys=2), "index(3): n m", "n m"),
    "sort_key_val": case("n m", "int: n m"),
    "top_k": case(lambda x: lax.top_k(x, 1), "n m"),
    "approx_max_k": case(lambda x: lax.approx_max_k(x, 1), "n m"),
    "approx_min_k": case(lambda x: lax.approx_min_k(x, 1), "n m"),
    "associative_scan": case(lambda x: lax.associative_scan(jnp.maximum, x), "n m"),
}  # fmt: skip

ROWS = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
INTO_ROWS = lax.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)

LOOKUPS = {
    "dynamic_index_in_dim": case(lambda x, i: lax.dynamic_index_in_dim(x, i, 0), "n m", "index(n):"),
    "dynamic_slice": case(lambda x, i: lax.dynamic_slice(x, (i, 0), (2, x.shape[1])), "n+1 m", "index(n):"),
    "dynamic_slice_in_dim": case(lambda x, i: lax.dynamic_slice_in_dim(x, i, 1, 1), "n m", "int:"),
    "dynamic_update_index_in_dim": case(
        lambda x, y, i: lax.dynamic_update_index_in_dim(x, y, i, 0), "n m", "m", "index(n):"
    ),
    "dynamic_update_slice": case(lambda x, y, i: lax.dynamic_update_slice(x, y, (i, 0)), "n+1 m", "2 m", "int:"),
    "dynamic_update_slice_in_dim": case(
        lambda x, y, i: lax.dynamic_update_slice_in_dim(x, y, i, 1), "n m+1", "n 1", "index(m):"
    ),
    "gather": case(lambda x, i: lax.gather(x, i, ROWS, (1, x.shape[1]), mode="clip"), "n m", "index(n): 7 1"),
    "index_in_dim": case(lambda x: lax.index_in_dim(x, -1, 0), "n m"),
    "index_take": case(lambda x, i: lax.index_take(x, [i], (0,)), "n m", "index(n): 5", reason="JAX puts the sizes into an array of NumPy"),
    **{
        name: case(lambda x, i, y, f=getattr(lax, name): f(x, i, y, INTO_ROWS), "n m", "index(n): 3 1", "3 m")
        for name in "scatter_add scatter_max scatter_min scatter_mul scatter_sub".split()
    },
    "scatter": case(lambda x, i, y: lax.scatter(x, i[:, None], y, INTO_ROWS), "n m", "places: n", "n m"),
    "scatter_apply": case(
        lambda x, i: lax.scatter_apply(x, i[:, None], jnp.sin, INTO_ROWS, update_shape=x.shape), "n m", "places: n"
    ),
}  # fmt: skip

PRODUCTS = {
    "batch_matmul": case("3 n m", "3 m n"),
    "dot": case("n m", "m 3"),
    "dot_general": case(
        lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))), "3 n m", "3 m 2"
    ),
    "ragged_dot": case("n m", "3 m 4", "index(3): 3"),
    "ragged_dot_general": case(
        lambda x, y, g: lax.ragged_dot_general(
            x, y, g, lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])
        ),
        "n m", "3 m 4", "index(3): 3",
    ),
    "conv": case(lambda x, k: lax.conv(x, k, (1, 1), "SAME"), "n 3 m 8", "4 3 3 3"),
    "conv/strides": case(lambda x, k: lax.conv(x, k, (2, 1), "VALID"), "2 3 n+2 m+2", "4 3 3 3"),
    "conv_general_dilated": case(
        lambda x, k: lax.conv_general_dilated(
            x, k, (1, 2), "SAME", rhs_dilation=(2, 1), dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        "2 n m 3", "3 3 3 4",
    ),
    "conv_general_dilated/groups": case(
        lambda x, k: lax.conv_general_dilated(
            x, k, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=4
        ),
        "n m 4", "3 1 8",
    ),
    "conv_general_dilated_local": case(
        lambda x, k: lax.conv_general_dilated_local(x, k, (1,), "VALID", (2,)), "n 3 m+1", "4 6 m"
    ),
    "conv_general_dilated_patches": case(
        lambda x: lax.conv_general_dilated_patches(x, (3, 3), (1, 1), "SAME"), "2 3 n m"
    ),
    "conv_transpose": case(lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"), "2 n m 3", "3 3 3 4"),
    "conv_with_general_padding": case(
        lambda x, k: lax.conv_with_general_padding(x, k, (1, 1), ((1, 1), (0, 2)), None, None), "2 3 n+1 m+1", "4 3 3 3"
    ),
}  # fmt: skip

CONTROL = {
    "cond": case(lambda k, x: lax.cond(k, jnp.sin, lambda y: y * 2, x), "bool:", "n m"),
    "switch": case(
        lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda y: y + 1], x), "index(3):", "n m"
    ),
    "fori_loop": case(lambda x: lax.fori_loop(0, x.shape[0], lambda i, y: y * 0.5 + x[i], x[0]), "n m"),
    "while_loop": case(lambda x: lax.while_loop(lambda y: y.sum() < 50, lambda y: y * 2, x), "positive: n m"),
    "scan": case(lambda c, x: lax.scan(lambda a, b: (a * 0.5 + b, a.sum()), c, x), "m", "n m"),
    "map": case(lambda x: lax.map(lambda row: row / (1 + abs(row).sum()), x), "n m"),
    "map/batches": case(lambda x: lax.map(jnp.sin, x, batch_size=2), "n m"),
    "custom_linear_solve": case(
        lambda d, b: lax.custom_linear_solve(lambda x: d * x, b, lambda _, y: y / d, symmetric=True), "above: n", "n"
    ),
    "custom_root": case(
        lambda x: lax.custom_root(
            lambda y: y**2 - x, jnp.ones_like(x),
            lambda f, y: lax.fori_loop(0, 9, lambda _, z: z - f(z) / (2 * z), y),
            lambda g, y: y / g(jnp.ones_like(y)),
        ),
        "positive: n",
    ),
    "rng_bit_generator": case(lambda k, x: lax.rng_bit_generator(k, x.shape), "word: 4", "n m"),
}  # fmt: skip

LAX: dict[str, Case] = {
    **ELEMENTWISE, **SHAPES, **REDUCTIONS, **LOOKUPS, **PRODUCTS, **CONTROL,
}  # fmt: skip

LEFT_OUT: Leave = {
    "gives no array": "after_all axis_size broadcast_shapes conv_dimension_numbers "
    "DotDimensionNumbers conv_general_permutations conv_general_shape_tuple conv_shape_tuple "
    "conv_transpose_shape_tuple create_token dtype padtype_to_pads reduce_window_shape_tuple",
    "needs a mesh or a mapped axis": "all_gather all_to_all axis_index pbroadcast pcast pmax pmean "
    "pmin ppermute precv psend pshuffle psum psum_scatter pswapaxes ragged_all_to_all "
    "with_sharding_constraint",
    "its numbers are not determined": "rng_uniform",
    "CPUs of JAX have none": "scaled_dot",
    "a case of jax.numpy.fft": "fft",
}

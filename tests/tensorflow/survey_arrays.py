"""Functions of elements, shapes and indices, with sizes that vary."""

from __future__ import annotations

import tensorflow as tf

from tests.tensorflow.samples import (
    F,
    I,
    L,
    N,
    P,
    Sample,
    X,
)

D, U = tf.float64, tf.uint8
XY = ([N, N], F)
XYZ = ([N, N, 8], F)
T3 = ([N, N, N], F)


def lists_joined(x):
    """The rows of all elements of a list; the number of each is known at a call."""
    first = tf.TensorArray(F, 2, element_shape=[None, 8]).write(0, x).write(1, -x)
    second = tf.TensorArray(F, 3)  # the rank of what it gives is found by its elements
    _, second = tf.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a.write(i, x * 2)), (0, second)
    )
    third = tf.TensorArray(F, 0, dynamic_size=True).unstack(tf.stack([x, x + 1]))
    return first.concat(), second.concat(), third.concat()


ARRAYS: dict[str, Sample] = {
    "lists_joined": Sample(lists_joined, [X]),
    "unary_1": Sample(
        lambda x: (
            tf.abs(x),
            tf.sign(x),
            -x,
            tf.square(x),
            tf.sqrt(tf.abs(x)),
            tf.math.rsqrt(tf.abs(x) + 1),
            tf.exp(x),
            tf.math.expm1(x),
            tf.math.log1p(tf.abs(x)),
            tf.math.log(tf.abs(x) + 0.1),
        ),
        [X],
    ),
    "unary_2": Sample(
        lambda x: (
            tf.sin(x),
            tf.cos(x),
            tf.tan(x),
            tf.asin(tf.tanh(x)),
            tf.acos(tf.tanh(x)),
            tf.atan(x),
            tf.sinh(x),
            tf.cosh(x),
            tf.tanh(x),
            tf.asinh(x),
            tf.acosh(tf.abs(x) + 1),
            tf.atanh(tf.tanh(x) * 0.9),
        ),
        [X],
    ),
    "unary_3": Sample(
        lambda x: (
            tf.sigmoid(x),
            tf.math.softplus(x),
            tf.nn.softsign(x),
            tf.nn.elu(x),
            tf.nn.selu(x),
            tf.nn.relu6(x * 4),
            tf.nn.leaky_relu(x),
            tf.nn.silu(x),
            tf.nn.gelu(x, True),
            tf.math.log_sigmoid(x),
        ),
        [X],
    ),
    "rounding": Sample(
        lambda x: (
            tf.floor(x * 3),
            tf.math.ceil(x * 3),
            tf.round(tf.floor(x * 6) / 2),
            tf.math.rint(tf.floor(x * 6) / 2),
            tf.math.reciprocal(x),
            tf.math.reciprocal_no_nan(tf.floor(x)),
        ),
        [X],
    ),
    "nonfinite": Sample(
        lambda x: (
            tf.math.is_nan(tf.math.log(x)),
            tf.math.is_inf(1 / tf.floor(x)),
            tf.math.is_finite(tf.math.log(x)),
            tf.where(tf.math.is_nan(tf.math.log(x)), 0.0, 1.0),
        ),
        [X],
    ),
    "lgamma": Sample(
        lambda x: (tf.math.lgamma(tf.abs(x) + 0.1), tf.math.digamma(tf.abs(x) + 0.1)),
        [X],
        tolerance=1e-4,
    ),
    "xlogy": Sample(
        lambda x, y: (
            tf.math.xlogy(tf.abs(x), tf.abs(y) + 0.1),
            tf.math.xdivy(x, y),
            tf.math.multiply_no_nan(x, tf.floor(y)),
            tf.math.divide_no_nan(x, tf.floor(y)),
            tf.math.atan2(x, y),
            tf.pow(tf.abs(x) + 0.1, y),
            tf.math.squared_difference(x, y),
            tf.math.xlog1py(tf.abs(x), tf.abs(y)),
        ),
        [X, X],
    ),
    "broadcast_binary": Sample(
        lambda x, y: (x + y, x * y, tf.maximum(x, y), x - y, tf.minimum(x, y)),
        [([N, 1, N], F), ([N, 1], F)],
        least=0,
    ),
    "broadcast_unknown": Sample(lambda x, y: x + y, [([N, N], F), ([N, N], F)]),
    "mod_float": Sample(
        lambda x, y: (tf.math.floormod(x, y), tf.math.floordiv(x, y), tf.truncatemod(x, y)),
        [X, X],
        tolerance=1e-4,
    ),
    "mod_int": Sample(
        lambda x, y: (
            tf.math.floormod(x - 5, y - 7),
            tf.math.floordiv(x - 5, y - 7),
            tf.truncatediv(x - 5, y - 7),
            tf.truncatemod(x - 5, y - 7),
        ),
        [([N, 8], I), ([N, 8], I)],
        high=6,
    ),
    "zeta": Sample(
        lambda x, y: tf.math.zeta(tf.abs(x) + 1.1, tf.abs(y) + 0.1), [X, X], tolerance=1e-4
    ),
    "polygamma": Sample(lambda x: tf.math.polygamma(2.0, tf.abs(x) + 0.5), [X], tolerance=1e-3),
    "bitwise": Sample(
        lambda x, y: (
            tf.bitwise.bitwise_and(x, y),
            tf.bitwise.bitwise_or(x, y),
            tf.bitwise.bitwise_xor(x, y),
            tf.bitwise.invert(x),
            tf.bitwise.left_shift(x, y),
            tf.bitwise.right_shift(x, y),
        ),
        [([N], I), ([N], I)],
        high=9,
    ),
    "clip_norms": Sample(
        lambda x: (tf.clip_by_norm(x, 1.0), tf.clip_by_global_norm([x, x], 1.0)[0]), [X]
    ),
    "add_n": Sample(lambda x, y: (tf.add_n([x, y, x]), tf.math.accumulate_n([x, y])), [X, X]),
    "compare": Sample(
        lambda x, y: (
            x > y,
            x >= y,
            x < y,
            x <= y,
            tf.equal(x, y),
            tf.not_equal(x, y),
            tf.math.logical_xor(x > 0, y > 0),
        ),
        [X, X],
    ),
    "casts": Sample(
        lambda x: (
            tf.cast(x * 3, I),
            tf.cast(x * 3, L),
            tf.cast(tf.abs(x) * 3, U),
            tf.cast(x, P),
            tf.cast(x > 0, F),
            tf.cast(x, D),
            tf.cast(x, tf.float16),
            tf.cast(x * 5, tf.int8),
        ),
        [X],
    ),
    "saturate": Sample(
        lambda x: (tf.saturate_cast(x * 200, U), tf.saturate_cast(x * 200, tf.int8)), [X]
    ),
    "bitcast": Sample(lambda x: tf.bitcast(x, I), [X]),
    "complex": Sample(
        lambda x: (
            tf.math.real(tf.complex(x, x) * tf.complex(x, -x)),
            tf.abs(tf.complex(x, x)),
            tf.math.angle(tf.complex(x, x)),
        ),
        [X],
    ),
    "concat_many": Sample(
        lambda x, y, z: (tf.concat([x, y, z], 1), tf.concat([x, x], -1)),
        [([3, N, 2], F), ([3, N, 2], F), ([3, N, 2], F)],
    ),
    "tile_vector": Sample(tf.tile, [XY, ([2], I)]),
    "tile_shape": Sample(lambda x, y: tf.tile(x, [tf.shape(y)[0], 1, 2]), [([1, N, 3], F), X]),
    "stack_dyn": Sample(
        lambda x, y: (tf.stack([x, y], 2), tf.stack([tf.shape(x)[0], tf.shape(x)[1] * 2])), [XY, XY]
    ),
    "linspace": Sample(lambda x: tf.linspace(0.0, 1.0, tf.shape(x)[0] + 1), [X]),
    "range_float": Sample(
        lambda x: (
            tf.range(0.0, tf.cast(tf.shape(x)[0], F), 0.5),
            tf.range(tf.shape(x)[0], 0, -1),
            tf.range(3, tf.shape(x)[0] * 2, 3),
        ),
        [X],
        least=2,
    ),
    "fill": Sample(
        lambda x: (
            tf.fill([tf.shape(x)[0], 3], 2.0),
            tf.fill(tf.shape(x), x[0, 0]),
            tf.ones_like(x),
            tf.zeros_like(x, I),
        ),
        [X],
        least=1,
    ),
    "broadcast_shapes": Sample(
        lambda x, y: tf.broadcast_to(x, tf.broadcast_dynamic_shape(tf.shape(x), tf.shape(y))),
        [([N, 1], F), ([1, N], F)],
    ),
    "expand_squeeze": Sample(
        lambda x: (
            tf.expand_dims(x, -1),
            tf.expand_dims(x, 0),
            tf.squeeze(x[:, None], 1),
            tf.squeeze(x[None, :, None], [0, 2]),
        ),
        [X],
    ),
    "slice_dyn": Sample(
        lambda x: (
            tf.slice(x, [1, 0], [tf.shape(x)[0] - 1, -1]),
            tf.slice(x, [tf.shape(x)[0] - 1, 2], [1, 3]),
        ),
        [X],
        least=1,
    ),
    "slice_vector": Sample(lambda x, i: tf.slice(x, i, [1, 2]), [X, ([2], I)], least=3),
    "pad_runtime": Sample(tf.pad, [X, ([2, 2], I)]),
    "pad_value": Sample(
        lambda x: (
            tf.pad(x, [[0, 1], [2, 0]], constant_values=3.0),
            tf.pad(x, [[tf.shape(x)[0], 0], [0, 8 - tf.shape(x)[1]]]),
        ),
        [([N, 8], F)],
    ),
    "pad_to_multiple": Sample(lambda x: tf.pad(x, [[0, -tf.shape(x)[0] % 4], [0, 0]]), [X]),
    "mirror_runtime": Sample(
        lambda x: tf.pad(x, [[0, tf.shape(x)[0] // 2], [1, 1]], "SYMMETRIC"), [X], least=1
    ),
    "where_broadcast": Sample(
        lambda x, m: (tf.where(m[:, None], x, 0.0), tf.where(m[:, None], 1.0, x)), [X, ([N], P)]
    ),
    "where_v1": Sample(lambda x, m: tf.compat.v1.where(m, x, -x), [X, ([N], P)]),
    "unique": Sample(tf.unique, [([N], I)], high=5),
    "unique_counts": Sample(tf.unique_with_counts, [([N], I)], high=5),
    "meshgrid": Sample(
        lambda x, y: (tf.meshgrid(x, y), tf.meshgrid(x, y, indexing="ij")), [([N], F), ([N], F)]
    ),
    "meshgrid_sizes": Sample(
        lambda x: tf.meshgrid(tf.range(tf.shape(x)[0]), tf.range(tf.shape(x)[1])), [XY]
    ),
    "transpose_any": Sample(
        lambda x: (tf.transpose(x), tf.transpose(x, [1, 0, 2]), tf.linalg.matrix_transpose(x)), [T3]
    ),
    "transpose_runtime": Sample(
        lambda x: tf.transpose(x, tf.concat([[1, 0], tf.range(2, tf.rank(x))], 0)), [T3]
    ),
    "reverse_more": Sample(lambda x: (tf.reverse(x, [0, 1]), tf.reverse(x, [-1])), [XY]),
    "reverse_sequence": Sample(
        lambda x, i: tf.reverse_sequence(x, tf.minimum(i, tf.shape(x)[1]), 1),
        [XYZ, ([N], I)],
        high=6,
    ),
    "roll_dyn": Sample(
        lambda x: (
            tf.roll(x, 1, 0),
            tf.roll(x, [1, -2], [0, 1]),
            tf.roll(x, tf.shape(x)[0] // 2, 0),
        ),
        [XY],
    ),
    "strided_1": Sample(
        lambda x: (x[::3, ::-2], x[-3:-1], x[..., ::2], x[:, tf.newaxis, ..., -1]), [T3]
    ),
    "strided_2": Sample(
        lambda x: (
            x[tf.shape(x)[0] // 2 :],
            x[: tf.shape(x)[0] // 2, None],
            x[-tf.shape(x)[0] :],
            x[:-1],
        ),
        [XY],
    ),
    "strided_3": Sample(
        lambda x: (x[::-1, ::-1], x[5:1:-1], x[:, 2:-2:2], x[100:], x[-100:2]), [XY]
    ),
    "strided_last": Sample(lambda x: (x[:, -1], x[-1], x[..., -1, :]), [XYZ], least=1),
    "strided_index": Sample(lambda x, i: (x[i], x[:, i]), [([N, N], F), ([], I)], least=3),
    "strided_stride": Sample(lambda x: x[:: tf.shape(x)[1]], [([N, 3], F)]),
    "sequence_mask": Sample(
        lambda i: (tf.sequence_mask(i, 5), tf.sequence_mask(i)), [([N], I)], least=1, high=6
    ),
    "sequence_mask_sizes": Sample(
        lambda i, x: tf.sequence_mask(i, tf.shape(x)[1], F), [([N], I), XY], high=6
    ),
    "repeat_vector": Sample(lambda x, i: tf.repeat(x, i, axis=0), [X, ([N], I)]),
    "repeat_flat": Sample(
        lambda x: (tf.repeat(x, 2), tf.repeat(x, 3, axis=1), tf.repeat(x, tf.shape(x)[0], axis=0)),
        [XY],
    ),
    "sizes": Sample(
        lambda x: (tf.size(x), tf.rank(x), tf.shape(x), tf.size(x, L), tf.shape(x, L)), [XYZ]
    ),
    "shape_math": Sample(
        lambda x: (
            tf.reduce_prod(tf.shape(x)),
            tf.cast(tf.shape(x)[0], F) / tf.cast(tf.shape(x)[1] + 1, F),
            tf.shape(x)[::-1],
            tf.concat([tf.shape(x)[:1], [4]], 0),
        ),
        [XYZ],
    ),
    "reshape_more": Sample(
        lambda x: (
            tf.reshape(x, [-1]),
            tf.reshape(x, [tf.shape(x)[0], tf.shape(x)[1] * 8]),
            tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], 0)),
            tf.reshape(x, [tf.shape(x)[0], -1, 2, 4]),
        ),
        [XYZ],
        least=1,
    ),
    "split_dyn": Sample(lambda x: tf.split(tf.concat([x, x, x], 0), 3), [X]),
    "split_v_dyn": Sample(lambda x: tf.split(x, [1, tf.shape(x)[0] - 1], 0), [X], least=1),
    "unstack_more": Sample(lambda x: tf.unstack(x, axis=-2), [([N, 3, N], F)]),
    "identity": Sample(
        lambda x: (tf.identity(x), tf.stop_gradient(x), tf.ensure_shape(x, [None, 8])), [X]
    ),
    "eye_more": Sample(
        lambda x: (tf.eye(tf.shape(x)[0], tf.shape(x)[1]), tf.eye(3, batch_shape=[tf.shape(x)[0]])),
        [XY],
    ),
    "gather_more": Sample(
        lambda x, i: (
            tf.gather(x, i, axis=0),
            tf.gather(x, i, axis=-1),
            tf.gather(x, i[:, None], axis=1),
        ),
        [([N, 4, 5], F), ([N], I)],
        least=3,
    ),
    "gather_2d": Sample(tf.gather, [X, ([N, N], I)], least=3),
    "gather_batch_more": Sample(
        lambda x, i: tf.gather(x, i, batch_dims=1), [([N, 5, 3], F), ([N, N], I)]
    ),
    "gather_argmax": Sample(
        lambda x: tf.gather(x, tf.argmax(x, 1), axis=1, batch_dims=1), [([N, 5], F)]
    ),
    "gather_nd_more": Sample(
        lambda x, i: (tf.gather_nd(x, i), tf.gather_nd(x, i[:, :1])),
        [([N, 4, 5], F), ([N, 2], I)],
        least=3,
    ),
    "gather_nd_batch": Sample(
        lambda x, i: tf.gather_nd(x, i, batch_dims=1), [([N, 4, 5], F), ([N, 2, 1], I)]
    ),
    "scatter_nd_dyn": Sample(
        lambda i, u, x: tf.scatter_nd(i, u, tf.shape(x)),
        [([N, 1], I), ([N, 8], F), ([N, 8], F)],
        least=3,
    ),
    "scatter_nd_computed": Sample(
        lambda i, u, n: (
            tf.scatter_nd(i, u[:, 0], n + 4),
            tf.scatter_nd(i[:, :1], u, tf.concat([n[:1] + 4, tf.shape(u)[1:]], 0)),
        ),
        [([N, 2], I), ([N, N], F), ([2], I)],
        least=1,
        high=4,
    ),
    "scatter_update": Sample(
        lambda i, u: tf.tensor_scatter_nd_update(tf.zeros([10, 4]), i[:1], u[:1]),
        [([N, 1], I), ([N, 4], F)],
    ),
    "scatter_minmax": Sample(
        lambda i, u: (
            tf.tensor_scatter_nd_max(tf.zeros([10, 4]), i, u),
            tf.tensor_scatter_nd_min(tf.zeros([10, 4]), i, u),
            tf.tensor_scatter_nd_sub(tf.zeros([10, 4]), i, u),
        ),
        [([N, 1], I), ([N, 4], F)],
    ),
    "scatter_add_dyn": Sample(tf.tensor_scatter_nd_add, [X, ([N, 1], I), X], least=3),
    "scatter_scalar": Sample(
        tf.tensor_scatter_nd_add,
        [([N, 4], F), ([N, 2], I), ([N], F)],
        least=3,
    ),
    "partition": Sample(lambda x, i: tf.dynamic_partition(x, i, 3), [X, ([N], I)]),
    "stitch": Sample(
        lambda x: tf.dynamic_stitch(
            [tf.range(tf.shape(x)[0]) * 2, tf.range(tf.shape(x)[0]) * 2 + 1], [x, -x]
        ),
        [X],
    ),
    "segment_sum_sorted": Sample(
        lambda x, i: (tf.math.segment_sum(x, tf.sort(i)),), [X, ([N], I)], least=1, high=4
    ),
    "segment_mean": Sample(
        lambda x, i: tf.math.segment_mean(x, tf.sort(i)), [X, ([N], I)], least=1, high=4
    ),
    "segment_max": Sample(
        lambda x, i: tf.math.segment_max(x, tf.sort(i)), [X, ([N], I)], least=1, high=4
    ),
    "unsorted_segments": Sample(
        lambda x, i: (
            tf.math.unsorted_segment_max(x, i, 3),
            tf.math.unsorted_segment_min(x, i, 3),
            tf.math.unsorted_segment_prod(x, i, 3),
            tf.math.unsorted_segment_mean(x, i, 3),
            tf.math.unsorted_segment_sqrt_n(x, i, 3),
        ),
        [X, ([N], I)],
    ),
    "unsorted_segment_dyn": Sample(
        lambda x, i: tf.math.unsorted_segment_sum(x, i, tf.shape(x)[0]), [X, ([N], I)], least=3
    ),
    "unsorted_segment_2d": Sample(
        lambda x, i: tf.math.unsorted_segment_sum(x, i, 4), [XYZ, ([N, N], I)]
    ),
    "searchsorted": Sample(
        lambda x, y: (tf.searchsorted(tf.sort(x), y), tf.searchsorted(tf.sort(x), y, side="right")),
        [([N], F), ([N], F)],
    ),
    "bucketize": Sample(lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 1.0]), [X]),
    "bincount": Sample(
        lambda i: (tf.math.bincount(i, minlength=5, maxlength=5), tf.math.bincount(i)),
        [([N], I)],
        high=5,
        least=1,
    ),
    "confusion": Sample(
        lambda i, j: tf.math.confusion_matrix(i, j, 5), [([N], I), ([N], I)], high=5
    ),
    "in_top_k": Sample(lambda i, x: tf.math.in_top_k(i, x, 3), [([N], I), X], high=8),
    "one_hot_more": Sample(
        lambda i: (
            tf.one_hot(i, 4),
            tf.one_hot(i - 1, 4, dtype=P, on_value=True, off_value=False),
            tf.one_hot(i, 3, axis=1),
        ),
        [([N, N], I)],
        high=6,
    ),
}

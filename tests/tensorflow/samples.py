"""Functions of TensorFlow with their arguments: what each op becomes is tried at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

N = None
F, I, L, P = tf.float32, tf.int32, tf.int64, tf.bool  # noqa: E741


def variable(*shape: int, seed: int = 0) -> tf.Variable:
    numbers = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return tf.Variable(0.2 * numbers)


W = variable(8, 8)
TABLE = variable(50, 16)
KERNEL = variable(3, 3, 3, 6)
DEPTHWISE = variable(3, 3, 3, 2)


class Block(tf.Module):
    """A transformer block of 32 channels; `einsum`: without reshapes."""

    def __init__(self, *, einsum: bool = False) -> None:
        super().__init__()
        self.einsum = einsum
        self.q, self.k, self.v = (variable(32, 4, 8, seed=k) for k in range(3))
        self.o = variable(4, 8, 32, seed=3)
        self.up, self.down = variable(32, 128, seed=4), variable(128, 32, seed=5)

    def norm(self, x):
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-5)

    def heads(self, x, w):
        if self.einsum:
            return tf.einsum("bsd,dhe->bhse", x, w)
        b, s = tf.shape(x)[0], tf.shape(x)[1]
        return tf.transpose(tf.reshape(x @ tf.reshape(w, [32, 32]), [b, s, 4, 8]), [0, 2, 1, 3])

    def merged(self, x):
        if self.einsum:
            return tf.einsum("bhse,hed->bsd", x, self.o)
        b, s = tf.shape(x)[0], tf.shape(x)[2]
        x = tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [b, s, 32])
        return x @ tf.reshape(self.o, [32, 32])

    def __call__(self, x):
        y = self.norm(x)
        q, k, v = (self.heads(y, w) for w in (self.q, self.k, self.v))
        x += self.merged(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 8**0.5) @ v)
        return x + tf.nn.gelu(self.norm(x) @ self.up) @ self.down


@dataclass(frozen=True)
class Sample:
    """A function, and the sizes and element types of its arguments."""

    function: Callable[..., Any]
    arguments: Sequence[tuple[Sequence[int | None], tf.DType]]
    least: int = 0
    """The smallest size that it takes."""
    high: int = 3
    """Integers are below."""
    tolerance: float = 2e-5

    def specs(self) -> list[tf.TensorSpec]:
        return [tf.TensorSpec(shape, dtype) for shape, dtype in self.arguments]

    def values(self, sizes: Sequence[int], seed: int = 0) -> list[np.ndarray]:
        """Arguments; the k-th dynamic size of each is the k-th of `sizes`."""
        rng = np.random.default_rng(seed)
        found = []
        for shape, dtype in self.arguments:
            given = iter(sizes)
            full = [max(next(given), self.least) if n is None else n for n in shape]
            if dtype.is_floating:
                found.append(rng.standard_normal(full, np.float32).astype(dtype.as_numpy_dtype))
            elif dtype == tf.bool:
                found.append(rng.integers(0, 2, full).astype(bool))
            else:
                found.append(rng.integers(0, self.high, full).astype(dtype.as_numpy_dtype))
        return found


def loop(x):
    return tf.while_loop(
        lambda i, a: i < tf.shape(x)[0], lambda i, a: (i + 1, a * 0.5 + x[i]), (0, tf.zeros([8]))
    )[1]


def shape(x):
    return tf.shape(x)


def steps(x, step, **options):
    """A list of what `step` gives for each index of `x`."""
    count = tf.shape(x)[0]
    found = tf.TensorArray(F, count, **options)
    return tf.while_loop(
        lambda i, a: i < count, lambda i, a: (i + 1, a.write(i, step(i))), (0, found)
    )[1].stack()


def written(x):
    return tf.TensorArray(F, 3).write(0, x).write(2, x * 2).write(1, -x).stack()


def in_a_branch(x):
    def step(i, a):
        return i + 1, tf.cond(i % 2 > 0, lambda: a.write(i, x[i] * 2), lambda: a.write(i, -x[i]))

    empty = tf.TensorArray(F, tf.shape(x)[0], element_shape=[8])
    return tf.while_loop(lambda i, a: i < tf.shape(x)[0], step, (0, empty))[1].stack()


def scan_gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.scan(lambda a, r: tf.sigmoid(a + r), x)
    return tape.gradient(y, x)


H = tf.bfloat16
W16 = tf.Variable(tf.cast(variable(8, 80), H))


def constants_of_bfloat16(x):
    """Constants written as a number, as a list and, as those of no number, by their bits."""
    table = tf.constant(np.arange(64).reshape(8, 8) * 1.37, H)
    ends = tf.constant([np.inf, -np.inf, -1e9, 3e38, 0.0, -0.0, 1.0, 2.0], H)
    y = tf.minimum(tf.maximum(x @ table, tf.constant(-np.inf, H)), ends)
    return y, tf.where(x > 0, x, tf.constant(-1e9, H))


KERNEL3 = variable(2, 3, 2, 3, 4)
VOLUME = ([N, N, N, N, 3], F)
X = ([N, 8], F)
IMAGE = ([N, N, N, 3], F)

SAMPLES: dict[str, Sample] = {
    # -- the functions of the probe ----------------------------------------------------------------
    "mlp": Sample(lambda x: tf.nn.softmax(tf.nn.relu(x @ W) @ W), [([N, N, 8], F)]),
    "block": Sample(Block(), [([N, N, 32], F)]),
    "block_einsum": Sample(Block(einsum=True), [([N, N, 32], F)]),
    "embedding": Sample(lambda i: tf.nn.embedding_lookup(TABLE, i), [([N, N], I)]),
    "masked_softmax": Sample(
        lambda x, m: tf.nn.softmax(tf.where(m, x, -1e9)), [([N, N], F), ([N, N], P)]
    ),
    "reshape_runtime": Sample(lambda x: tf.reshape(x, [shape(x)[0] * 2, 4]), [X]),
    "reshape_minus_one": Sample(lambda x: tf.reshape(x, [-1, 4]), [X]),
    "gather": Sample(lambda x, i: tf.gather(x, i), [X, ([N], I)], least=3),
    "strided_slice": Sample(lambda x: x[1:, ::2], [X]),
    "where": Sample(lambda x: tf.where(x > 0, x, 0.0), [X]),
    "while": Sample(loop, [X]),
    "cumsum": Sample(lambda x: tf.cumsum(x, 0), [X]),
    "top_k": Sample(lambda x: tf.math.top_k(x, 2), [X]),
    "one_hot": Sample(lambda i: tf.one_hot(i, 5), [([N], I)], high=7),
    "concat": Sample(lambda x, y: tf.concat([x, y], 0), [X, X]),
    "split": Sample(lambda x: tf.split(x, 2, 1)[1], [X]),
    "tile": Sample(lambda x: tf.tile(x, [2, 1]), [X]),
    "tile_runtime": Sample(lambda x: tf.tile(x[:1], [shape(x)[0], 1]), [X], least=1),
    "pad": Sample(lambda x: tf.pad(x, [[1, 2], [0, 0]]), [X]),
    "transposed_matmul": Sample(lambda x: tf.matmul(x, x, transpose_b=True), [X]),
    "argmax": Sample(lambda x: tf.argmax(x, 0), [X], least=1),
    "reduce_mean": Sample(lambda x: tf.reduce_mean(x, 0), [X], least=1),
    "broadcast_to": Sample(lambda x: tf.broadcast_to(x[:, :1], shape(x)), [X]),
    "zeros": Sample(lambda x: tf.zeros([shape(x)[0], 3]), [X]),
    "stack": Sample(lambda x: tf.stack([x, x], 1), [X]),
    "scatter_add": Sample(
        lambda i, u: tf.tensor_scatter_nd_add(tf.zeros([10, 4]), i, u), [([N, 1], I), ([N, 4], F)]
    ),
    "conv_same": Sample(lambda x: tf.nn.conv2d(x, KERNEL, 1, "SAME"), [IMAGE], least=1),
    "conv_valid": Sample(lambda x: tf.nn.conv2d(x, KERNEL, 1, "VALID"), [IMAGE], least=3),
    "max_pool": Sample(lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), [IMAGE], least=2),
    "gelu": Sample(tf.nn.gelu, [X]),
    "l2_normalize": Sample(lambda x: tf.math.l2_normalize(x, 0), [X]),
    "nonzero": Sample(lambda x: tf.where(x > 0), [X]),
    "sort": Sample(lambda x: tf.sort(x, 0), [X]),
    "resize_nearest": Sample(
        lambda x: tf.image.resize(x, shape(x)[1:3] * 2, "nearest"), [IMAGE], least=1
    ),
    "segment_sum": Sample(
        lambda x, i: tf.math.unsorted_segment_sum(x, i, 5), [X, ([N], I)], high=5
    ),
    "cond": Sample(lambda x: tf.cond(shape(x)[0] > 3, lambda: x * 2, lambda: x + 1), [X]),
    # -- losses and norms, three dimensions --------------------------------------------------------
    "sparse_softmax_loss": Sample(
        lambda i, x: tf.nn.sparse_softmax_cross_entropy_with_logits(i, x), [([N], I), X], high=8
    ),
    "sparse_softmax_loss_of_lists": Sample(
        lambda i, x: tf.nn.sparse_softmax_cross_entropy_with_logits(i, x),
        [([N, N], L), ([N, N, 8], F)],
        high=8,
    ),
    "sparse_softmax_gradient": Sample(
        lambda i, x: tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=i),
        [([N], I), X],
        high=8,
    ),
    "softmax_loss": Sample(
        lambda y, x: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(y), x), [X, X]
    ),
    "norm": Sample(
        lambda x: (
            tf.norm(x, axis=1),
            tf.math.reduce_euclidean_norm(x, [-1, 0], keepdims=True),
            tf.math.reduce_euclidean_norm(x, 1),
        ),
        [X],
    ),
    "erfinv": Sample(lambda x: tf.math.erfinv(tf.tanh(x)), [X]),
    "conv3d": Sample(
        lambda x: tf.nn.conv3d(x, KERNEL3, [1, 2, 1, 2, 1], "SAME"), [VOLUME], least=1
    ),
    "conv3d_valid": Sample(lambda x: tf.nn.conv3d(x, KERNEL3, [1] * 5, "VALID"), [VOLUME], least=3),
    "conv3d_transposed": Sample(
        lambda x: tf.nn.conv3d_transpose(
            x, KERNEL3, tf.concat([shape(x)[:1], 2 * shape(x)[1:4], [3]], 0), 2
        ),
        [([N, N, N, N, 4], F)],
        least=1,
    ),
    "max_pool3d": Sample(lambda x: tf.nn.max_pool3d(x, 2, 2, "SAME"), [VOLUME], least=1),
    "max_pool3d_valid": Sample(lambda x: tf.nn.max_pool3d(x, 2, 1, "VALID"), [VOLUME], least=2),
    "avg_pool3d": Sample(lambda x: tf.nn.avg_pool3d(x, 3, 2, "SAME"), [VOLUME], least=1),
    "batches_and_space": Sample(
        lambda x: tf.batch_to_space(
            tf.space_to_batch(x, [2, 3], [[0, 0], [1, 1]])[:, :, :, :2], [2, 3], [[0, 1], [2, 0]]
        ),
        [([N, 4, 7, 3], F)],
    ),
    "dilated_causal": Sample(
        lambda x: tf.nn.convolution(
            tf.pad(x, [[0, 0], [4, 0], [0, 0]]), KERNEL[0], padding="VALID", dilations=2
        ),
        [([N, N, 3], F)],
        least=1,
    ),
    # -- diagonals ---------------------------------------------------------------------------------
    "diagonal": Sample(lambda x: (tf.linalg.diag(x), tf.eye(shape(x)[0])), [([N, N], F)], least=1),
    "diagonal_part": Sample(
        lambda x: (tf.linalg.diag_part(x), tf.linalg.trace(x)), [([N, N, N], F)], least=1
    ),
    "diagonal_set": Sample(
        lambda x: tf.linalg.set_diag(x, 2 * tf.linalg.diag_part(x)), [([N, N, N], F)], least=1
    ),
    # -- bfloat16 ----------------------------------------------------------------------------------
    "bfloat16": Sample(lambda x: tf.tanh(x @ W16) + 1, [([N, 8], H)], tolerance=2e-2),
    "bfloat16_rounds": Sample(lambda x: tf.cast(tf.cast(x, H), F), [X], tolerance=0),
    "bfloat16_constants": Sample(constants_of_bfloat16, [([N, 8], H)], tolerance=2e-2),
    "bfloat16_moves": Sample(lambda x: tf.reshape(x[::-1], [-1, 2])[1:], [([N, 8], H)]),
    "bfloat16_loop": Sample(
        lambda x: tf.scan(lambda a, r: a * 0.5 + r, x), [([N, 8], H)], least=1, tolerance=2e-2
    ),
    "bfloat16_norm": Sample(
        lambda x: tf.cast(tf.nn.softmax(tf.cast(x, F)), H) * x, [([N, 8], H)], tolerance=2e-2
    ),
    # -- lists of tensors --------------------------------------------------------------------------
    "list": Sample(lambda x: steps(x, lambda i: x[i] * 2), [X], least=1),
    "list_of_lists": Sample(
        lambda x: steps(x, lambda i: steps(x[i], lambda j: x[i, j] * 2)), [([N, N, 8], F)], least=1
    ),
    "list_in_a_branch": Sample(in_a_branch, [X]),
    "list_gather": Sample(
        lambda x, i: tf.TensorArray(F, tf.shape(x)[0]).unstack(x).gather(i), [X, ([N], I)], least=3
    ),
    "list_size": Sample(
        lambda x: tf.raw_ops.TensorListLength(
            input_handle=tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=[8])
        ),
        [X],
    ),
    "list_written": Sample(written, [([N, N], F)]),
    "map": Sample(
        lambda x: tf.map_fn(lambda r: r * 2 + tf.reduce_sum(r), x), [([N, N, 8], F)], least=1
    ),
    "map_of_two": Sample(
        lambda x, y: tf.map_fn(
            lambda pair: (pair[0] @ tf.transpose(pair[1]), pair[1][0]),
            (x, y),
            fn_output_signature=(F, F),
        ),
        [([N, N, 8], F)] * 2,
        least=1,
    ),
    "scan": Sample(lambda x: tf.scan(lambda a, r: a * 0.5 + r, x), [([N, N, 8], F)], least=1),
    "scan_backwards": Sample(
        lambda x: tf.scan(lambda a, r: a * 0.5 + r, x, tf.zeros([8]), reverse=True), [X]
    ),
    "fold": Sample(lambda x: tf.foldl(lambda a, r: a + r, x), [([N, N, 8], F)], least=1),
    "scan_gradient": Sample(scan_gradient, [X], least=1),
    # -- further ops, and what the rows of `shlo_disc.tensorflow.ops` can be asked -----------------
    "argsort": Sample(lambda x: tf.argsort(x, 1, direction="DESCENDING"), [([N, N], F)]),
    "avg_pool_same": Sample(lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), [IMAGE], least=1),
    "batch_matmul": Sample(tf.matmul, [([N, 4, 8], F), ([N, 8, 3], F)]),
    "boolean_mask": Sample(lambda x, m: tf.boolean_mask(x, m), [X, ([N], P)]),
    "clip": Sample(lambda x: tf.clip_by_value(x, -0.5, 0.5), [X]),
    "conv_strided": Sample(lambda x: tf.nn.conv2d(x, KERNEL, 2, "SAME"), [IMAGE], least=1),
    "cumprod": Sample(lambda x: tf.math.cumprod(x, 1), [([N, N], F)]),
    "cumsum_exclusive": Sample(lambda x: tf.cumsum(x, 1, exclusive=True), [([N, N], F)]),
    "cumsum_reverse": Sample(lambda x: tf.cumsum(x, 0, reverse=True), [([N, N], I)]),
    "cumsum_both": Sample(lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True), [([N, N], F)]),
    "depthwise": Sample(
        lambda x: tf.nn.depthwise_conv2d(x, DEPTHWISE, [1, 1, 1, 1], "SAME"), [IMAGE], least=1
    ),
    "einsum": Sample(lambda x, y: tf.einsum("bij,bkj->bik", x, y), [([N, N, 8], F)] * 2),
    "erf": Sample(lambda x: (tf.math.erf(x), tf.math.erfc(x)), [X]),
    "float16": Sample(lambda x: x * 2 + 1, [([N, 8], tf.float16)]),
    "float64": Sample(lambda x: tf.tanh(x) @ tf.transpose(x), [([N, 8], tf.float64)]),
    "gather_axis": Sample(lambda x, i: tf.gather(x, i, axis=1), [X, ([N], I)]),
    "gather_batch": Sample(
        lambda x, i: tf.gather(x, i, axis=1, batch_dims=1), [([N, 5], F), ([N, 2], I)]
    ),
    "gather_nd": Sample(tf.gather_nd, [X, ([N, 2], I)], least=3),
    "int64": Sample(lambda x: x // 2 + x % 3, [([N, 8], L)], high=100),
    "layer_norm": Sample(
        lambda x: tf.nn.batch_normalization(
            x, *tf.nn.moments(x, -1, keepdims=True), None, None, 1e-5
        ),
        [([N, N, 8], F)],
    ),
    "log_softmax": Sample(tf.nn.log_softmax, [X]),
    "logical": Sample(lambda m: (~m, tf.reduce_any(m, 0), tf.reduce_all(m, 1)), [([N, 4], P)]),
    "matrix_band_part": Sample(lambda x: tf.linalg.band_part(x, -1, 0), [([N, N], F)]),
    "one_hot_first": Sample(lambda i: tf.one_hot(i, 4, axis=0, dtype=I), [([N, N], I)], high=6),
    "one_hot_values": Sample(
        lambda i: tf.one_hot(i, 3, on_value=5.0, off_value=-1.0, axis=1), [([N, N], L)]
    ),
    "one_hot_runtime": Sample(lambda i, x: tf.one_hot(i, shape(x)[0]), [([N], I), X]),
    "pad_reflect": Sample(lambda x: tf.pad(x, [[1, 1], [0, 0]], "REFLECT"), [X], least=2),
    "range": Sample(lambda x: tf.range(shape(x)[0]), [X]),
    "range_step": Sample(lambda x: tf.range(1, shape(x)[0], 2), [X], least=1),
    "repeat": Sample(lambda x: tf.repeat(x, 3, axis=0), [X]),
    "resize_bilinear": Sample(lambda x: tf.image.resize(x, shape(x)[1:3] * 2), [IMAGE], least=1),
    "resize_bilinear_down": Sample(lambda x: tf.image.resize(x, [3, 4]), [IMAGE], least=1),
    "resize_nearest_odd": Sample(lambda x: tf.image.resize(x, [7, 5], "nearest"), [IMAGE], least=1),
    "resize_legacy": Sample(
        lambda x: tf.compat.v1.image.resize_bilinear(x, [7, 5], align_corners=True),
        [IMAGE],
        least=1,
    ),
    "reverse": Sample(lambda x: tf.reverse(x, [0]), [X]),
    "roll": Sample(lambda x: tf.roll(x, 2, 1), [X]),
    "scatter_nd": Sample(lambda i, u: tf.scatter_nd(i, u, [10, 4]), [([N, 1], I), ([N, 4], F)]),
    "ensure_shape": Sample(lambda x: tf.ensure_shape(x, [N, 8]), [X]),
    "slice": Sample(lambda x: tf.slice(x, [0, 2], [-1, 3]), [X]),
    "slice_negative": Sample(lambda x: (x[::-1], x[-2:], x[:-1, ::-2], x[3:0:-1]), [X]),
    "slice_shapes": Sample(
        lambda x: (x[..., 0], x[:, None], x[..., None, 1:3], x[:0]), [([N, N, 8], F)]
    ),
    "slice_one": Sample(lambda x: (x[0], x[-1], x[1, 2:]), [X], least=2),
    "slice_runtime": Sample(lambda x, i: (x[: i[0]], x[i[0] :]), [X, ([1], I)]),
    "space_to_depth": Sample(lambda x: tf.nn.space_to_depth(x, 2), [([N, 4, 6, 3], F)]),
    "split_sizes": Sample(lambda x: tf.split(x, [3, 5], 1), [X]),
    "squeeze": Sample(lambda x: tf.squeeze(tf.expand_dims(x, 1), 1), [X]),
    "top_k_runtime": Sample(lambda x: tf.math.top_k(x, shape(x)[1] // 2)[0], [([N, N], F)]),
    "transpose_conv": Sample(
        lambda x: tf.nn.conv2d_transpose(
            x, KERNEL, [shape(x)[0], 2 * shape(x)[1], 2 * shape(x)[2], 3], 2, "SAME"
        ),
        [([N, N, N, 6], F)],
        least=1,
    ),
    "depth_to_space": Sample(lambda x: tf.nn.depth_to_space(x, 2), [([N, N, N, 8], F)]),
    "dilated": Sample(lambda x: tf.nn.conv2d(x, KERNEL, 1, "SAME", dilations=2), [IMAGE], least=1),
    "max_pool_same": Sample(lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), [IMAGE], least=1),
    "pad_symmetric": Sample(lambda x: tf.pad(x, [[2, 1], [0, 3]], "SYMMETRIC"), [X], least=2),
    "unstack": Sample(lambda x: tf.unstack(x, axis=1), [([N, 3], F)]),
    "reshape_infers": Sample(lambda x: tf.reshape(x, [shape(x)[0], -1]), [([N, N, 4], F)], least=1),
}

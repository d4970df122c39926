"""Functions of numbers in order, matrices, signals, layers and images; gradients, branches."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.tensorflow.samples import (
    DEPTHWISE,
    IMAGE,
    KERNEL,
    KERNEL3,
    F,
    I,
    N,
    Sample,
    W,
    X,
    variable,
)

D, U = tf.float64, tf.uint8
V2 = variable(40, 8)
XY = ([N, N], F)
XYZ = ([N, N, 8], F)
T3 = ([N, N, N], F)


def spd(x):
    """Matrices that are symmetric and positive definite."""
    return tf.matmul(x, x, transpose_b=True) + 3 * tf.eye(tf.shape(x)[-2])


def filter_gradients(x):
    """Of a filter, with strides, dilations and paddings."""
    w = tf.identity(KERNEL)
    found = [
        tf.nn.conv2d(x, w, 1, "SAME"),
        tf.nn.conv2d(x, w, 2, "SAME"),
        tf.nn.conv2d(x, w, [1, 2, 1, 1], "VALID"),
        tf.nn.conv2d(x, w, 1, [[0, 0], [1, 0], [0, 2], [0, 0]]),
    ]
    return [tf.gradients(tf.reduce_sum(y**2), [w, x]) for y in found]


def depthwise_gradients(x):
    w = tf.identity(DEPTHWISE)
    found = [
        tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"),
        tf.nn.depthwise_conv2d(x, w, [1, 2, 2, 1], "SAME"),
        tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "VALID"),
    ]
    return [tf.gradients(tf.reduce_sum(y**2), [w, x]) for y in found]


def transforms_of_known_sizes(x, fixed):
    """TensorFlow's converter goes wrong at these: casts of real numbers, and shorter lengths."""
    found = []
    for real in (x, fixed):
        both = tf.cast(real, tf.complex64)
        found += [
            *(tf.signal.fft(both), tf.signal.ifft(both), tf.signal.fft2d(both)),
            *(tf.signal.ifft2d(both), tf.signal.rfft(real, [5]), tf.signal.irfft(both, [6])),
            *(tf.signal.rfft2d(real, [2, 5]), tf.signal.irfft2d(both, [3, 6])),
        ]
    return found


def tiled_filters(x):
    """The number of channels of the filter is a size that a call computes, as in tf.image.ssim."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        channels = tf.shape(x)[-1]
        kernel = tf.tile(tf.reshape(tf.range(9.0), [3, 3, 1, 1]), [1, 1, channels, 1])
        y = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "VALID")
        total = tf.reduce_sum(y * y) / 100
    return y, tape.gradient(total, x)


def volume_gradients(x):
    w = tf.identity(KERNEL3)
    return tf.gradients(tf.reduce_sum(tf.nn.conv3d(x, w, [1, 2, 1, 1, 1], "SAME") ** 2), [w, x])


MODELS: dict[str, Sample] = {
    "sort_more": Sample(
        lambda x: (
            tf.sort(x, direction="DESCENDING"),
            tf.sort(x, 0),
            tf.argsort(x, stable=True),
            tf.argsort(x, 0),
        ),
        [XY],
    ),
    "sort_int": Sample(
        lambda x: (tf.sort(x), tf.sort(x, direction="DESCENDING"), tf.argsort(x, stable=True)),
        [([N, N], I)],
        high=5,
    ),
    "top_k_more": Sample(
        lambda x: (
            tf.math.top_k(x, 1),
            tf.math.top_k(x, 3, sorted=True),
            tf.math.top_k(tf.cast(x * 3, I), 2),
        ),
        [([N, N, 5], F)],
    ),
    "argmax_more": Sample(
        lambda x: (tf.argmax(x), tf.argmax(x, 1, I), tf.argmin(x, -1), tf.argmin(x, 0)),
        [XY],
        least=1,
    ),
    "cumsum_more": Sample(
        lambda x: (
            tf.cumsum(x),
            tf.cumsum(x, -1),
            tf.cumsum(tf.cast(x * 3, I), 1),
            tf.math.cumprod(x, exclusive=True),
            tf.cumsum(tf.cast(x > 0, I), 1),
        ),
        [XY],
    ),
    "percentile": Sample(lambda x: tf.sort(x, 0)[tf.shape(x)[0] // 2], [X], least=1),
    "reduce_all_kinds": Sample(
        lambda x: (
            tf.reduce_sum(x),
            tf.reduce_mean(x, [0, 1]),
            tf.reduce_max(x, 1),
            tf.reduce_min(x, 0),
            tf.reduce_prod(x, -1),
            tf.reduce_logsumexp(x, 1),
            tf.math.reduce_std(x, 1),
            tf.math.reduce_variance(x, 0, keepdims=True),
        ),
        [XYZ],
        least=1,
        tolerance=1e-4,
    ),
    "reduce_empty": Sample(
        lambda x: (
            tf.reduce_sum(x, 0),
            tf.reduce_prod(x, 0),
            tf.reduce_max(x, 0),
            tf.reduce_min(x, 0),
            tf.reduce_any(x > 0, 0),
            tf.reduce_all(x > 0, 0),
            tf.reduce_mean(x, 0),
        ),
        [X],
    ),
    "reduce_int": Sample(
        lambda x: (
            tf.reduce_sum(x, 0),
            tf.reduce_mean(x, 0),
            tf.reduce_max(x),
            tf.reduce_prod(x + 1, 1),
            tf.math.count_nonzero(x, 1),
            tf.math.zero_fraction(x),
        ),
        [([N, N], I)],
        least=1,
    ),
    "reduce_runtime_axis": Sample(lambda x: tf.reduce_sum(x, tf.range(1, tf.rank(x))), [T3]),
    "norms": Sample(
        lambda x: (
            tf.norm(x),
            tf.norm(x, 1, axis=1),
            tf.norm(x, np.inf, axis=0),
            tf.linalg.normalize(x, axis=1)[0],
        ),
        [XY],
        least=1,
    ),
    "logsumexp_empty": Sample(lambda x: tf.reduce_logsumexp(x, 0), [X]),
    "moments": Sample(
        lambda x: (tf.nn.moments(x, [0, 1]), tf.nn.weighted_moments(x, 0, tf.abs(x))),
        [XYZ],
        least=1,
        tolerance=1e-4,
    ),
    "matmuls": Sample(
        lambda x, y: (
            tf.matmul(x, y, transpose_b=True),
            tf.linalg.matvec(x, y[0]),
            tf.tensordot(x, y, [[1], [1]]),
            tf.matmul(x, y, transpose_a=True) if False else tf.matmul(x, x, adjoint_a=True),
        ),
        [X, X],
        least=1,
    ),
    "matmul_broadcast": Sample(tf.matmul, [([N, 1, N, 8], F), ([N, 8, 3], F)]),
    "einsums": Sample(
        lambda x: (
            tf.einsum("bi,bj->bij", x, x),
            tf.einsum("bi,bi->b", x, x),
            tf.einsum("...i,ij->...j", x, W),
            tf.einsum("bi->ib", x),
            tf.einsum("bi->b", x),
        ),
        [X],
    ),
    "einsum_attention": Sample(
        lambda x, y: tf.einsum(
            "bqhd,bkhd->bhqk",
            tf.reshape(x, [tf.shape(x)[0], tf.shape(x)[1], 2, 4]),
            tf.reshape(y, [tf.shape(x)[0], tf.shape(y)[1], 2, 4]),
        ),
        [XYZ, XYZ],
        least=1,
    ),
    "band_part_more": Sample(
        lambda x: (
            tf.linalg.band_part(x, 0, -1),
            tf.linalg.band_part(x, 1, 2),
            tf.linalg.band_part(tf.ones([tf.shape(x)[1], tf.shape(x)[1]]), -1, 0),
        ),
        [T3],
        least=2,
    ),
    "cholesky": Sample(
        lambda x: tf.linalg.cholesky(spd(x)), [([N, N, 4], F)], least=1, tolerance=1e-4
    ),
    "triangular_solve": Sample(
        lambda x, y: tf.linalg.triangular_solve(
            tf.linalg.band_part(spd(x), -1, 0), tf.ones([tf.shape(x)[0], 2])
        ),
        [X, X],
        least=1,
        tolerance=1e-4,
    ),
    "cholesky_solve": Sample(
        lambda x: tf.linalg.cholesky_solve(
            tf.linalg.cholesky(spd(x)), tf.ones([tf.shape(x)[0], 1])
        ),
        [X],
        least=1,
        tolerance=1e-4,
    ),
    "lstsq": Sample(
        lambda x: tf.linalg.lstsq(x, tf.ones([tf.shape(x)[0], 1]), l2_regularizer=0.5),
        [([N, 4], F)],
        least=1,
        tolerance=1e-3,
    ),
    "triangular_solve_batches": Sample(
        lambda x, y: (
            tf.linalg.triangular_solve(spd(x)[0], y),
            tf.linalg.triangular_solve(spd(x)[:1, None], y[None], adjoint=True),
            tf.linalg.triangular_solve(spd(x), y[:1], lower=False),
        ),
        [([N, 4, 4], F), ([N, 4, N], F)],
        least=1,
        tolerance=1e-3,
    ),
    "linear_systems": Sample(
        lambda x, y: (
            tf.linalg.solve(spd(x), y),
            tf.linalg.solve(spd(x) + tf.linalg.band_part(x, 0, -1), y, adjoint=True),
            tf.linalg.solve(x[0], y[0]),
        ),
        [([N, 5, 5], F), ([N, 5, N], F)],
        least=1,
        tolerance=1e-3,
    ),
    "inverses": Sample(
        lambda x: (
            tf.linalg.inv(spd(x) + x),
            tf.linalg.inv(spd(x) + x, adjoint=True),
            tf.linalg.inv(tf.cast(spd(x), D)[0]),
        ),
        [([N, 4, 4], F)],
        least=1,
        tolerance=1e-4,
    ),
    "determinants": Sample(
        lambda x: (
            tf.linalg.det(x),
            tf.linalg.slogdet(x),
            tf.linalg.logdet(spd(x)),
            tf.linalg.det(tf.cast(x, D)[0]),
        ),
        [([N, 5, 5], F)],
        least=1,
        tolerance=1e-4,
    ),
    "pinv": Sample(tf.linalg.pinv, [([5, 3], F)], tolerance=1e-3),
    "fft": Sample(
        lambda x: tf.abs(tf.signal.fft(tf.cast(x, tf.complex64))), [XY], tolerance=1e-4, least=1
    ),
    "rfft": Sample(lambda x: tf.abs(tf.signal.rfft(x)), [XY], tolerance=1e-4, least=2),
    "rfft_length": Sample(lambda x: tf.signal.rfft(x, [16]), [XY], tolerance=1e-4, least=1),
    "irfft": Sample(lambda x: tf.signal.irfft(tf.signal.rfft(x)), [([N, 8], F)], tolerance=1e-4),
    "fft2d": Sample(
        lambda x: tf.abs(tf.signal.fft2d(tf.cast(x, tf.complex64))),
        [([N, 6, 8], F)],
        tolerance=1e-4,
    ),
    "transforms_of_known_sizes": Sample(
        transforms_of_known_sizes, [([N, 4, 8], F), ([4, 8], F)], tolerance=1e-4
    ),
    "filters_tiled_to_the_channels": Sample(
        tiled_filters, [([N, N, N, 3], F)], least=3, tolerance=1e-4
    ),
    "overlap_add": Sample(lambda x: tf.signal.overlap_and_add(x, 2), [([2, N, 4], F)], least=1),
    "dct": Sample(tf.signal.dct, [([N, 8], F)], tolerance=1e-4),
    "window": Sample(lambda x: tf.signal.hann_window(tf.shape(x)[0] + 1), [X]),
    "conv1d": Sample(
        lambda x: (
            tf.nn.conv1d(x, KERNEL[0], 1, "SAME"),
            tf.nn.conv1d(x, KERNEL[0], 2, "SAME"),
            tf.nn.conv1d(x, KERNEL[0], 1, "VALID"),
        ),
        [([N, N, 3], F)],
        least=3,
    ),
    "conv1d_dilated": Sample(
        lambda x: tf.nn.conv1d(x, KERNEL[0], 1, "SAME", dilations=2), [([N, N, 3], F)], least=1
    ),
    "conv1d_transpose": Sample(
        lambda x: tf.nn.conv1d_transpose(x, KERNEL[0], [tf.shape(x)[0], tf.shape(x)[1] * 2, 3], 2),
        [([N, N, 6], F)],
        least=1,
    ),
    "conv_explicit": Sample(
        lambda x: tf.nn.conv2d(x, KERNEL, [1, 2, 1, 1], [[0, 0], [1, 2], [0, 1], [0, 0]]),
        [IMAGE],
        least=2,
    ),
    "conv_grouped": Sample(
        lambda x: tf.nn.conv2d(x, KERNEL[:, :, :1], 1, "SAME"), [IMAGE], least=1
    ),
    "conv_nchw": Sample(
        lambda x: tf.transpose(
            tf.nn.conv2d(tf.transpose(x, [0, 2, 3, 1]), KERNEL, 1, "SAME"), [0, 3, 1, 2]
        ),
        [([N, 3, N, N], F)],
        least=1,
    ),
    "separable": Sample(
        lambda x: tf.nn.separable_conv2d(
            x, DEPTHWISE, KERNEL[:1, :1, :1] * tf.ones([1, 1, 6, 1]), [1, 2, 2, 1], "SAME"
        ),
        [IMAGE],
        least=1,
    ),
    "depthwise_more": Sample(
        lambda x: (
            tf.nn.depthwise_conv2d(x, DEPTHWISE, [1, 2, 2, 1], "SAME"),
            tf.nn.depthwise_conv2d(x, DEPTHWISE, [1, 1, 1, 1], "VALID"),
            tf.nn.depthwise_conv2d(x, DEPTHWISE, [1, 1, 1, 1], "SAME", dilations=[2, 2]),
        ),
        [IMAGE],
        least=3,
    ),
    "atrous": Sample(lambda x: tf.nn.atrous_conv2d(x, KERNEL, 2, "SAME"), [IMAGE], least=1),
    "conv_transpose_valid": Sample(
        lambda x: tf.nn.conv2d_transpose(
            x,
            KERNEL,
            [tf.shape(x)[0], 2 * tf.shape(x)[1] + 1, 2 * tf.shape(x)[2] + 1, 3],
            2,
            "VALID",
        ),
        [([N, N, N, 6], F)],
        least=1,
    ),
    "pool1d": Sample(
        lambda x: (
            tf.nn.max_pool1d(x, 2, 2, "VALID"),
            tf.nn.avg_pool1d(x, 3, 1, "SAME"),
            tf.nn.max_pool1d(x, 3, 2, "SAME"),
        ),
        [([N, N, 3], F)],
        least=3,
    ),
    "avg_pool_valid": Sample(
        lambda x: tf.nn.avg_pool2d(x, [2, 3], [1, 2], "VALID"), [IMAGE], least=3
    ),
    "pool_general": Sample(
        lambda x: tf.nn.pool(x, [2, 2], "MAX", [1, 1], "SAME"), [IMAGE], least=1
    ),
    "max_pool_int": Sample(
        lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"), [([N, N, N, 3], I)], least=2
    ),
    "fused_batch_norm": Sample(
        lambda x: tf.compat.v1.nn.fused_batch_norm(
            x, tf.ones(3), tf.zeros(3), tf.zeros(3) + 0.1, tf.ones(3), is_training=False
        )[0],
        [IMAGE],
        least=1,
    ),
    "softmaxes": Sample(
        lambda x: (tf.nn.softmax(x), tf.nn.softmax(x, 0), tf.nn.log_softmax(x, 1)),
        [([N, N, N], F)],
        least=1,
    ),
    "bias_add": Sample(lambda x: tf.nn.bias_add(x, tf.range(3.0)), [IMAGE]),
    "losses": Sample(
        lambda x, y: (
            tf.nn.l2_loss(x),
            tf.nn.sigmoid_cross_entropy_with_logits(tf.sigmoid(y), x),
            tf.nn.weighted_cross_entropy_with_logits(tf.sigmoid(y), x, 2.0),
            tf.nn.log_poisson_loss(tf.abs(y), x),
            tf.nn.crelu(x),
        ),
        [X, X],
    ),
    "embedding_more": Sample(
        lambda i: (tf.nn.embedding_lookup(W, i, max_norm=1.0), tf.gather(W, i)),
        [([N, N], I)],
        high=8,
    ),
    "nn_normalize": Sample(
        lambda x: (
            tf.nn.l2_normalize(x, -1),
            tf.nn.batch_normalization(x, 0.1, 1.2, 0.5, 2.0, 1e-3),
        ),
        [XYZ],
    ),
    "space_to_depth_dyn": Sample(
        lambda x: tf.nn.space_to_depth(tf.concat([tf.concat([x, x], 1)] * 2, 2), 2),
        [IMAGE],
        least=1,
    ),
    "resize_u8": Sample(
        lambda x: tf.image.resize(x, [7, 5]), [([N, N, N, 3], U)], least=1, high=255
    ),
    "resize_nearest_u8": Sample(
        lambda x: tf.image.resize(x, [7, 5], "nearest"), [([N, N, N, 3], U)], least=1, high=255
    ),
    "resize_area": Sample(
        lambda x: (
            tf.image.resize(x, [3, 11], "area"),
            tf.image.resize(x, tf.shape(x)[1:3] * 2, "area"),
            tf.compat.v1.image.resize_area(x, [7, 1], align_corners=True),
        ),
        [IMAGE],
        least=1,
    ),
    "crops": Sample(
        lambda x, b, i: (
            tf.image.crop_and_resize(x, b, i, [3, 1], extrapolation_value=-7),
            tf.image.crop_and_resize(x, b, i, tf.shape(x)[1:3] + 1, "nearest"),
        ),
        [IMAGE, ([N, 4], F), ([N], I)],
        least=3,
    ),
    "suppression": Sample(
        lambda b, s: tf.image.non_max_suppression_padded(
            tf.abs(b), s, 5, pad_to_max_output_size=True
        ),
        [([N, 4], F), ([N], F)],
        least=1,
    ),
    "resize_keep": Sample(
        lambda x: tf.image.resize(x, [8, 8], preserve_aspect_ratio=True), [IMAGE], least=1
    ),
    "resize_with_pad": Sample(
        lambda x: tf.image.resize_with_pad(x, 8, 8), [([2, N, N, 3], F)], least=1
    ),
    "crop_or_pad": Sample(
        lambda x: tf.image.resize_with_crop_or_pad(x, 5, 5), [([2, N, N, 3], F)], least=1
    ),
    "central_crop": Sample(lambda x: tf.image.central_crop(x, 0.5), [IMAGE], least=2),
    "flips": Sample(
        lambda x: (
            tf.image.flip_left_right(x),
            tf.image.flip_up_down(x),
            tf.image.rot90(x),
            tf.image.transpose(x),
        ),
        [IMAGE],
        least=1,
    ),
    "standardize": Sample(tf.image.per_image_standardization, [IMAGE], least=1, tolerance=1e-4),
    "gray": Sample(
        lambda x: (tf.image.rgb_to_grayscale(x), tf.image.grayscale_to_rgb(x[..., :1])), [IMAGE]
    ),
    "image_metrics": Sample(
        lambda x: (tf.image.total_variation(x), tf.image.psnr(tf.sigmoid(x), tf.sigmoid(-x), 1.0)),
        [IMAGE],
        least=2,
        tolerance=1e-4,
    ),
    "sobel": Sample(tf.image.sobel_edges, [IMAGE], least=2),
    "pad_box": Sample(
        lambda x: tf.image.pad_to_bounding_box(x, 1, 2, 20, 20), [([2, N, N, 3], F)], least=1
    ),
    "crop_box": Sample(lambda x: tf.image.crop_to_bounding_box(x, 0, 1, 2, 2), [IMAGE], least=3),
    "resampled": Sample(
        lambda x: (
            tf.image.resize(x, [6, 11], "bicubic"),
            tf.image.resize(x, tf.shape(x)[1:3] * 2, "lanczos3"),
            tf.image.resize(x, [4, 3], antialias=True),
            tf.image.resize(x, [14, 3], "mitchellcubic", antialias=True),
            tf.compat.v1.image.resize_bicubic(x, [7, 5]),
            tf.compat.v1.image.resize_bicubic(x, [7, 5], align_corners=True),
        ),
        [IMAGE],
        least=1,
        tolerance=1e-4,
    ),
    "translated": Sample(
        lambda x: [
            tf.raw_ops.ScaleAndTranslate(
                images=x,
                size=[6, 8],
                scale=[1.5, 0.7],
                translation=[0.5, -1.0],
                kernel_type=kernel,
                antialias=antialias,
            )
            for kernel in ("box", "gaussian", "keyscubic", "triangle", "lanczos1", "lanczos5")
            for antialias in (True, False)
        ],
        [IMAGE],
        least=1,
        tolerance=1e-4,
    ),
    "colours": Sample(
        lambda x: (
            tf.image.rgb_to_hsv(tf.sigmoid(x)),
            tf.image.hsv_to_rgb(tf.sigmoid(x)),
            tf.image.adjust_hue(tf.sigmoid(x), -0.2),
            tf.image.adjust_saturation(tf.sigmoid(x), 1.7),
            tf.image.adjust_contrast(x, 1.3),
            tf.image.rgb_to_hsv(tf.zeros_like(x)),
            tf.linalg.cross(x, tf.reverse(x, [-1])),
        ),
        [IMAGE],
        least=1,
        tolerance=1e-4,
    ),
    "patches": Sample(
        lambda x: (
            tf.image.extract_patches(x, [1, 3, 2, 1], [1, 2, 1, 1], [1, 1, 2, 1], "SAME"),
            tf.image.extract_patches(x, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"),
        ),
        [IMAGE],
        least=3,
    ),
    "image_dtype": Sample(
        lambda x: (tf.image.convert_image_dtype(x, F), tf.cast(x, F) / 255.0),
        [([N, N, N, 3], U)],
        high=255,
    ),
    "case": Sample(
        lambda x: tf.case(
            [(tf.shape(x)[0] > 4, lambda: x * 2), (tf.shape(x)[0] > 2, lambda: x + 1)], lambda: -x
        ),
        [X],
    ),
    "switch_case": Sample(
        lambda x, i: tf.switch_case(i, [lambda: x, lambda: -x, lambda: x * 2]), [X, ([], I)]
    ),
    "while_sum": Sample(
        lambda x: tf.while_loop(
            lambda i, a: tf.reduce_sum(a) < 10.0,
            lambda i, a: (i + 1, a + tf.abs(x) + 0.1),
            (0, tf.zeros_like(x)),
        )[0],
        [X],
        least=1,
    ),
    "grad_dense": Sample(lambda x: tf.gradients(tf.reduce_sum(tf.tanh(x @ W + x) ** 2), [x]), [X]),
    "grad_softmax": Sample(
        lambda x: tf.gradients(tf.reduce_sum(tf.nn.log_softmax(x @ W)[:, 0]), [x]), [X]
    ),
    "grad_conv": Sample(
        lambda x: tf.gradients(tf.reduce_sum(tf.nn.conv2d(x, KERNEL, 2, "SAME") ** 2), [x]),
        [IMAGE],
        least=1,
        tolerance=1e-4,
    ),
    "grad_pool": Sample(
        lambda x: tf.gradients(tf.reduce_sum(tf.nn.max_pool2d(x, 2, 2, "VALID") ** 2), [x]),
        [IMAGE],
        least=2,
    ),
    "grad_avg_pool": Sample(
        lambda x: tf.gradients(tf.reduce_sum(tf.nn.avg_pool2d(x, 2, 2, "SAME") ** 2), [x]),
        [IMAGE],
        least=2,
    ),
    "grad_slices": Sample(
        lambda x: tf.gradients(
            tf.reduce_sum(x[1:, ::2] ** 2) + tf.reduce_sum(tf.concat([x, x], 0)), [x]
        ),
        [X],
        least=1,
    ),
    "grad_cumsum": Sample(
        lambda x: tf.gradients(tf.reduce_sum(tf.cumsum(x) ** 2), [x]), [X], tolerance=1e-4
    ),
    "grad_reduce": Sample(
        lambda x: tf.gradients(tf.reduce_sum(tf.reduce_max(x, 1) * tf.reduce_mean(x, 1)), [x]),
        [X],
        least=1,
    ),
    "switch_case_variables": Sample(
        lambda x, i: tf.switch_case(
            i, [lambda: x @ W, lambda: -x, lambda: tf.cond(i > 2, lambda: x * 2, lambda: x @ W + 1)]
        ),
        [X, ([], I)],
        high=5,
    ),
    "switch_case_weights": Sample(
        lambda x, i: tf.switch_case(
            i, [lambda: x @ tf.transpose(V2), lambda: (x * 2) @ tf.transpose(V2 + 1)]
        ),
        [X, ([], I)],
        high=5,
    ),
    "transforms_of_images": Sample(
        lambda x: (
            tf.abs(tf.signal.ifft2d(tf.signal.fft2d(tf.cast(x, tf.complex64)))),
            tf.signal.irfft2d(tf.signal.rfft2d(x, [6, 8]), [6, 8]),
            tf.abs(tf.signal.ifft(tf.cast(x, tf.complex64))),
        ),
        [([N, N, 8], F)],
        least=1,
        tolerance=1e-4,
    ),
    "transforms_of_volumes": Sample(
        lambda x: (
            tf.abs(tf.signal.ifft3d(tf.signal.fft3d(tf.cast(x, tf.complex64)))),
            tf.signal.irfft3d(tf.signal.rfft3d(x)),
        ),
        [([N, N, 4, 6], F)],
        least=1,
        tolerance=1e-4,
    ),
    "segment_min_prod": Sample(
        lambda x, i: (
            tf.math.segment_min(x, tf.sort(i)),
            tf.math.segment_prod(x, tf.sort(i)),
        ),
        [X, ([N], I)],
        least=1,
        high=4,
    ),
    "reductions_at_computed_axes": Sample(
        lambda x: [
            reduce(y, tf.concat([[0], tf.range(2, tf.rank(x))], 0), keepdims=True)
            for reduce, y in [
                (tf.reduce_sum, x),
                (tf.reduce_mean, x),
                (tf.reduce_max, x),
                (tf.reduce_min, x),
                (tf.reduce_prod, x),
                (tf.reduce_any, x > 1),
                (tf.reduce_all, x > -1),
            ]
        ],
        [T3],
        least=1,
        tolerance=1e-4,
    ),
    "grad_filter": Sample(filter_gradients, [IMAGE], least=3, tolerance=1e-3),
    "grad_filter_3d": Sample(volume_gradients, [([N, N, N, N, 3], F)], least=3, tolerance=1e-3),
    "grad_broadcast": Sample(
        lambda x, y: tf.gradients(tf.reduce_sum(tf.tanh(tf.transpose(x) * y + y)), [x, y]),
        [([N, N, N], F), ([N], F)],
        least=1,
        tolerance=1e-4,
    ),
    "einsum_ellipsis": Sample(
        lambda x: (tf.einsum("...ij->...ji", x), tf.einsum("...i->...", x)), [([N, N, N, 8], F)]
    ),
    "grad_depthwise": Sample(depthwise_gradients, [IMAGE], least=3, tolerance=1e-3),
    "grad_max_pools": Sample(
        lambda x: [
            tf.gradients(tf.reduce_sum(tf.nn.max_pool2d(x, *how) ** 2), [x])
            for how in ((2, 2, "SAME"), (3, 2, "SAME"), (3, 1, "VALID"))
        ],
        [IMAGE],
        least=3,
        tolerance=1e-4,
    ),
    "grad_max_pool_3d": Sample(
        lambda x: tf.gradients(tf.reduce_sum(tf.nn.max_pool3d(x, 2, 2, "SAME") ** 2), [x]),
        [([N, N, N, N, 3], F)],
        least=1,
        tolerance=1e-4,
    ),
}

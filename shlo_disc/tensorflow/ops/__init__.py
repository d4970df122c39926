"""Ops that TensorFlow's converter leaves, or expands badly: what each becomes.

They pass through the converter under the name `tf.Disc...`, which it does not know.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.mixed.rewriter import Rule, operation
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.colours import (
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    cross,
    from_hue,
    to_hue,
)
from shlo_disc.tensorflow.ops.crops import crop_and_resize
from shlo_disc.tensorflow.ops.diagonals import (
    matrix_diagonal,
    matrix_of_diagonal,
    matrix_with_diagonal,
)
from shlo_disc.tensorflow.ops.einsums import sum_of_products
from shlo_disc.tensorflow.ops.images import patches, resize_bilinear, resize_nearest
from shlo_disc.tensorflow.ops.lists import (
    list_concatenation,
    list_element,
    list_element_shape,
    list_from_tensor,
    list_gather,
    list_length,
    list_reserve,
    list_set,
    list_stack,
)
from shlo_disc.tensorflow.ops.losses import euclidean_norm, sigmoid_gradient, sparse_softmax_loss
from shlo_disc.tensorflow.ops.matrices import (
    cholesky,
    inverse,
    log_matrix_determinant,
    matrix_determinant,
    solve,
    triangular_solve,
)
from shlo_disc.tensorflow.ops.moves import (
    batch_to_space,
    concatenate,
    depth_to_space,
    gather,
    mirror_pad,
    pad,
    reverse_sequence,
    roll,
    slice_,
    space_to_batch,
    space_to_depth,
    split,
    split_sizes,
    unpack,
)
from shlo_disc.tensorflow.ops.ordering import (
    cumulative_product,
    cumulative_sum,
    one_hot,
    top_k,
    where,
)
from shlo_disc.tensorflow.ops.ranges import broadcast_arguments, numbers, shapes, tile
from shlo_disc.tensorflow.ops.reductions import (
    concat_offset,
    reduction,
    sum_to,
    transpose,
)
from shlo_disc.tensorflow.ops.refused import REFUSED
from shlo_disc.tensorflow.ops.resampling import resize_area, resize_bicubic, scale_and_translate
from shlo_disc.tensorflow.ops.scattering import scatter_nd
from shlo_disc.tensorflow.ops.searching import bound, bucketize, in_top_k, unique
from shlo_disc.tensorflow.ops.segments import (
    bincount,
    dynamic_partition,
    dynamic_stitch,
    segments,
    unsorted_segments,
)
from shlo_disc.tensorflow.ops.shapes import (
    broadcast,
    cast,
    ensured,
    reshape,
    strided_slice,
    strided_slice_gradient,
)
from shlo_disc.tensorflow.ops.stacks import STACKS
from shlo_disc.tensorflow.ops.transforms import (
    complex_transform,
    inverse_real_transform,
    real_transform,
)
from shlo_disc.tensorflow.ops.typed import of_its_type
from shlo_disc.tensorflow.ops.windows import (
    average_pool,
    average_pool_gradient,
    convolution,
    depthwise,
    depthwise_filter_gradient,
    depthwise_gradient,
    filter_gradient,
    max_pool,
    max_pool_gradient,
    transposed_convolution,
)

__all__ = ["JOINED", "LEFT", "OPS", "PREFIX", "REFUSED", "STACKS", "rules"]

PREFIX = "tf.Disc"

OPS: dict[str, Rule] = {
    "AvgPool": average_pool,
    "AvgPool3D": average_pool,
    "BatchToSpaceND": batch_to_space,
    "BroadcastTo": broadcast,
    "Cast": cast,
    "Conv2D": convolution,
    "Conv2DBackpropInput": transposed_convolution,
    "Conv3D": convolution,
    "Conv3DBackpropInputV2": transposed_convolution,
    "Cumprod": cumulative_product,
    "Cumsum": cumulative_sum,
    "DepthToSpace": depth_to_space,
    "DepthwiseConv2dNative": depthwise,
    "DepthwiseConv2dNativeBackpropFilter": depthwise_filter_gradient,
    "DepthwiseConv2dNativeBackpropInput": depthwise_gradient,
    "Einsum": sum_of_products,
    "EnsureShape": ensured,
    "Erf": operation("chlo.erf"),
    "Erfc": operation("chlo.erfc"),
    "Erfinv": operation("chlo.erf_inv"),
    "EuclideanNorm": euclidean_norm,
    "FFT": complex_transform("FFT", 1),
    "FFT2D": complex_transform("FFT", 2),
    "FFT3D": complex_transform("FFT", 3),
    "IFFT": complex_transform("IFFT", 1),
    "IFFT2D": complex_transform("IFFT", 2),
    "IFFT3D": complex_transform("IFFT", 3),
    "IRFFT": inverse_real_transform(1),
    "IRFFT2D": inverse_real_transform(2),
    "IRFFT3D": inverse_real_transform(3),
    "LogMatrixDeterminant": log_matrix_determinant,
    "MatrixDeterminant": matrix_determinant,
    "MatrixDiagPartV3": matrix_diagonal,
    "MatrixDiagV3": matrix_of_diagonal,
    "MatrixInverse": inverse,
    "MatrixSetDiagV3": matrix_with_diagonal,
    "MatrixSolve": solve,
    "MaxPool": max_pool,
    "MaxPool3D": max_pool,
    "MaxPool3DGrad": max_pool_gradient,
    "MaxPoolGrad": max_pool_gradient,
    "MirrorPad": mirror_pad,
    "OneHot": one_hot,
    "RFFT": real_transform(1),
    "RFFT2D": real_transform(2),
    "RFFT3D": real_transform(3),
    "Range": numbers,
    "Reshape": reshape,
    "ResizeBilinear": resize_bilinear,
    "ResizeNearestNeighbor": resize_nearest,
    "Roll": roll,
    "SigmoidGrad": sigmoid_gradient,
    "Slice": slice_,
    "SpaceToBatchND": space_to_batch,
    "SpaceToDepth": space_to_depth,
    "SparseSoftmaxCrossEntropyWithLogits": sparse_softmax_loss,
    "Split": split,
    "SplitV": split_sizes,
    "StridedSlice": strided_slice,
    "TensorListConcatV2": list_concatenation,
    "TensorListElementShape": list_element_shape,
    "TensorListFromTensor": list_from_tensor,
    "TensorListGather": list_gather,
    "TensorListGetItem": list_element,
    "TensorListLength": list_length,
    "TensorListReserve": list_reserve,
    "TensorListSetItem": list_set,
    "TensorListStack": list_stack,
    "TopKV2": top_k,
    "Unpack": unpack,
    "Where": where,
}
"""Op of TensorFlow -> the values of its results; these pass through the converter in any case."""

LEFT: dict[str, Rule] = {
    "AdjustContrastv2": adjust_contrast,
    "AdjustHue": adjust_hue,
    "AdjustSaturation": adjust_saturation,
    "All": reduction("and"),
    "Any": reduction("or"),
    "AvgPoolGrad": average_pool_gradient,
    "BroadcastArgs": broadcast_arguments,
    "Bucketize": bucketize,
    "Cholesky": cholesky,
    "ConcatOffset": concat_offset,
    "ConcatV2": concatenate,
    "Conv2DBackpropFilter": filter_gradient,
    "Conv3DBackpropFilterV2": filter_gradient,
    "CropAndResize": crop_and_resize,
    "Cross": cross,
    "DenseBincount": bincount,
    "DynamicPartition": dynamic_partition,
    "DynamicStitch": dynamic_stitch,
    "ExtractImagePatches": patches,
    "GatherV2": gather,
    "HSVToRGB": from_hue,
    "InTopKV2": in_top_k,
    "LowerBound": bound("LT"),
    "MatrixTriangularSolve": triangular_solve,
    "Max": reduction("maximum"),
    "Mean": reduction("add", is_mean=True),
    "Min": reduction("minimum"),
    "Pad": pad,
    "PadV2": pad,
    "Prod": reduction("multiply"),
    "RGBToHSV": to_hue,
    "ResizeArea": resize_area,
    "ResizeBicubic": resize_bicubic,
    "ReverseSequence": reverse_sequence,
    "ScaleAndTranslate": scale_and_translate,
    "ScatterNd": scatter_nd,
    "SegmentMax": segments("maximum"),
    "SegmentMean": segments("add", is_mean=True),
    "SegmentMin": segments("minimum"),
    "SegmentProd": segments("multiply"),
    "SegmentSum": segments("add"),
    "ShapeN": shapes,
    "StridedSliceGrad": strided_slice_gradient,
    "Sum": reduction("add"),
    "SumTo": sum_to,
    "Tile": tile,
    "Transpose": transpose,
    "TruncateMod": operation("stablehlo.remainder"),
    "Unique": unique(has_counts=False),
    "UniqueWithCounts": unique(has_counts=True),
    "UnsortedSegmentMax": unsorted_segments("maximum"),
    "UnsortedSegmentMin": unsorted_segments("minimum"),
    "UnsortedSegmentProd": unsorted_segments("multiply"),
    "UnsortedSegmentSum": unsorted_segments("add"),
    "UpperBound": bound("LE"),
}
"""The same for operations that pass only through programs where the converter leaves them."""

JOINED = ("BroadcastGradientArgs",)
"""Operations that become part of one that uses them, before rules are asked."""


def rules() -> dict[str, Rule]:
    """The same by the name in the module. They raise UnsupportedError with the place of the op."""
    return {f"{PREFIX}{name}": _placed(name, rule) for name, rule in (OPS | LEFT | REFUSED).items()}


def _placed(name: str, rule: Rule) -> Rule:
    def placed(sizes: Sizes, op: ir.Operation) -> list[ir.Value]:
        try:
            values = rule(sizes, op)
        except UnsupportedError as error:
            raise UnsupportedError(f"{source_line(op)}: {name}: {error}") from None
        return [of_its_type(value, r.type) for value, r in zip(values, op.results, strict=True)]

    return placed

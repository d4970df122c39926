"""Ops that TensorFlow's converter leaves, or expands badly: what each becomes.

They pass through the converter under the name `tf.Disc...`, which it does not know.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.mixed.rewriter import Rule, operation
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops import (
    colours,
    crops,
    diagonals,
    einsums,
    images,
    lists,
    losses,
    matrices,
    moves,
    ordering,
    ranges,
    reductions,
    resampling,
    scattering,
    searching,
    segments,
    shapes,
    transforms,
    windows,
)
from shlo_disc.tensorflow.ops.refused import REFUSED
from shlo_disc.tensorflow.ops.stacks import STACKS
from shlo_disc.tensorflow.ops.typed import of_its_type

__all__ = ["JOINED", "LEFT", "OPS", "PREFIX", "REFUSED", "STACKS", "rules"]

PREFIX = "tf.Disc"

OPS: dict[str, Rule] = {
    "AvgPool": windows.average_pool,
    "AvgPool3D": windows.average_pool,
    "BatchToSpaceND": moves.batch_to_space,
    "BroadcastTo": shapes.broadcast,
    "Cast": shapes.cast,
    "Conv2D": windows.convolution,
    "Conv2DBackpropInput": windows.transposed_convolution,
    "Conv3D": windows.convolution,
    "Conv3DBackpropInputV2": windows.transposed_convolution,
    "Cumprod": ordering.cumulative_product,
    "Cumsum": ordering.cumulative_sum,
    "DepthToSpace": moves.depth_to_space,
    "DepthwiseConv2dNative": windows.depthwise,
    "DepthwiseConv2dNativeBackpropFilter": windows.depthwise_filter_gradient,
    "DepthwiseConv2dNativeBackpropInput": windows.depthwise_gradient,
    "Einsum": einsums.sum_of_products,
    "EnsureShape": shapes.ensured,
    "Erf": operation("chlo.erf"),
    "Erfc": operation("chlo.erfc"),
    "Erfinv": operation("chlo.erf_inv"),
    "EuclideanNorm": losses.euclidean_norm,
    "FFT": transforms.complex_transform("FFT", 1),
    "FFT2D": transforms.complex_transform("FFT", 2),
    "FFT3D": transforms.complex_transform("FFT", 3),
    "IFFT": transforms.complex_transform("IFFT", 1),
    "IFFT2D": transforms.complex_transform("IFFT", 2),
    "IFFT3D": transforms.complex_transform("IFFT", 3),
    "IRFFT": transforms.inverse_real_transform(1),
    "IRFFT2D": transforms.inverse_real_transform(2),
    "IRFFT3D": transforms.inverse_real_transform(3),
    "LogMatrixDeterminant": matrices.log_matrix_determinant,
    "MatrixDeterminant": matrices.matrix_determinant,
    "MatrixDiagPartV3": diagonals.matrix_diagonal,
    "MatrixDiagV3": diagonals.matrix_of_diagonal,
    "MatrixInverse": matrices.inverse,
    "MatrixSetDiagV3": diagonals.matrix_with_diagonal,
    "MatrixSolve": matrices.solve,
    "MaxPool": windows.max_pool,
    "MaxPool3D": windows.max_pool,
    "MaxPool3DGrad": windows.max_pool_gradient,
    "MaxPoolGrad": windows.max_pool_gradient,
    "MirrorPad": moves.mirror_pad,
    "OneHot": ordering.one_hot,
    "RFFT": transforms.real_transform(1),
    "RFFT2D": transforms.real_transform(2),
    "RFFT3D": transforms.real_transform(3),
    "Range": ranges.numbers,
    "Reshape": shapes.reshape,
    "ResizeBilinear": images.resize_bilinear,
    "ResizeNearestNeighbor": images.resize_nearest,
    "Roll": moves.roll,
    "SigmoidGrad": losses.sigmoid_gradient,
    "Slice": moves.slice_,
    "SpaceToBatchND": moves.space_to_batch,
    "SpaceToDepth": moves.space_to_depth,
    "SparseSoftmaxCrossEntropyWithLogits": losses.sparse_softmax_loss,
    "Split": moves.split,
    "SplitV": moves.split_sizes,
    "StridedSlice": shapes.strided_slice,
    "TensorListConcatV2": lists.list_concatenation,
    "TensorListElementShape": lists.list_element_shape,
    "TensorListFromTensor": lists.list_from_tensor,
    "TensorListGather": lists.list_gather,
    "TensorListGetItem": lists.list_element,
    "TensorListLength": lists.list_length,
    "TensorListReserve": lists.list_reserve,
    "TensorListSetItem": lists.list_set,
    "TensorListStack": lists.list_stack,
    "TopKV2": ordering.top_k,
    "Unpack": moves.unpack,
    "Where": ordering.where,
}
"""Op of TensorFlow -> the values of its results; these pass through the converter in any case."""

LEFT: dict[str, Rule] = {
    "AdjustContrastv2": colours.adjust_contrast,
    "AdjustHue": colours.adjust_hue,
    "AdjustSaturation": colours.adjust_saturation,
    "All": reductions.reduction("and"),
    "Any": reductions.reduction("or"),
    "AvgPoolGrad": windows.average_pool_gradient,
    "BroadcastArgs": ranges.broadcast_arguments,
    "Bucketize": searching.bucketize,
    "Cholesky": matrices.cholesky,
    "ConcatOffset": reductions.concat_offset,
    "ConcatV2": moves.concatenate,
    "Conv2DBackpropFilter": windows.filter_gradient,
    "Conv3DBackpropFilterV2": windows.filter_gradient,
    "CropAndResize": crops.crop_and_resize,
    "Cross": colours.cross,
    "DenseBincount": segments.bincount,
    "DynamicPartition": segments.dynamic_partition,
    "DynamicStitch": segments.dynamic_stitch,
    "ExtractImagePatches": images.patches,
    "GatherV2": moves.gather,
    "HSVToRGB": colours.from_hue,
    "InTopKV2": searching.in_top_k,
    "LowerBound": searching.bound("LT"),
    "MatrixTriangularSolve": matrices.triangular_solve,
    "Max": reductions.reduction("maximum"),
    "Mean": reductions.reduction("add", is_mean=True),
    "Min": reductions.reduction("minimum"),
    "Pad": moves.pad,
    "PadV2": moves.pad,
    "Prod": reductions.reduction("multiply"),
    "RGBToHSV": colours.to_hue,
    "ResizeArea": resampling.resize_area,
    "ResizeBicubic": resampling.resize_bicubic,
    "ReverseSequence": moves.reverse_sequence,
    "ScaleAndTranslate": resampling.scale_and_translate,
    "ScatterNd": scattering.scatter_nd,
    "SegmentMax": segments.segments("maximum"),
    "SegmentMean": segments.segments("add", is_mean=True),
    "SegmentMin": segments.segments("minimum"),
    "SegmentProd": segments.segments("multiply"),
    "SegmentSum": segments.segments("add"),
    "ShapeN": ranges.shapes,
    "StridedSliceGrad": shapes.strided_slice_gradient,
    "Sum": reductions.reduction("add"),
    "SumTo": reductions.sum_to,
    "Tile": ranges.tile,
    "Transpose": reductions.transpose,
    "TruncateMod": operation("stablehlo.remainder"),
    "Unique": searching.unique(has_counts=False),
    "UniqueWithCounts": searching.unique(has_counts=True),
    "UnsortedSegmentMax": segments.unsorted_segments("maximum"),
    "UnsortedSegmentMin": segments.unsorted_segments("minimum"),
    "UnsortedSegmentProd": segments.unsorted_segments("multiply"),
    "UnsortedSegmentSum": segments.unsorted_segments("add"),
    "UpperBound": searching.bound("LE"),
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

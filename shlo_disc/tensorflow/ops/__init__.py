"""Ops that TensorFlow's converter leaves, or expands badly: what each becomes.

They pass through the converter under the name `tf.Disc...`, which it does not know.
"""

from __future__ import annotations

from shlo_disc.errors import UnsupportedError
from shlo_disc.ingest.mixed.rewriter import Rule, operation
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.locations import source_line
from shlo_disc.mlir import ir
from shlo_disc.tensorflow.ops.diagonals import (
    matrix_diagonal,
    matrix_of_diagonal,
    matrix_with_diagonal,
)
from shlo_disc.tensorflow.ops.images import resize_bilinear, resize_nearest
from shlo_disc.tensorflow.ops.lists import (
    list_element,
    list_from_tensor,
    list_gather,
    list_length,
    list_reserve,
    list_set,
    list_stack,
)
from shlo_disc.tensorflow.ops.losses import euclidean_norm, sparse_softmax_loss
from shlo_disc.tensorflow.ops.moves import (
    batch_to_space,
    depth_to_space,
    mirror_pad,
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
from shlo_disc.tensorflow.ops.shapes import broadcast, cast, reshape, strided_slice
from shlo_disc.tensorflow.ops.typed import of_its_type
from shlo_disc.tensorflow.ops.windows import (
    average_pool,
    convolution,
    depthwise,
    max_pool,
    transposed_convolution,
)

__all__ = ["OPS", "PREFIX", "rules"]

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
    "Erf": operation("chlo.erf"),
    "Erfc": operation("chlo.erfc"),
    "Erfinv": operation("chlo.erf_inv"),
    "EuclideanNorm": euclidean_norm,
    "MatrixDiagPartV3": matrix_diagonal,
    "MatrixDiagV3": matrix_of_diagonal,
    "MatrixSetDiagV3": matrix_with_diagonal,
    "MaxPool": max_pool,
    "MaxPool3D": max_pool,
    "MirrorPad": mirror_pad,
    "OneHot": one_hot,
    "Reshape": reshape,
    "ResizeBilinear": resize_bilinear,
    "ResizeNearestNeighbor": resize_nearest,
    "Roll": roll,
    "Slice": slice_,
    "SpaceToBatchND": space_to_batch,
    "SpaceToDepth": space_to_depth,
    "SparseSoftmaxCrossEntropyWithLogits": sparse_softmax_loss,
    "Split": split,
    "SplitV": split_sizes,
    "StridedSlice": strided_slice,
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
"""Op of TensorFlow -> the values of its results."""


def rules() -> dict[str, Rule]:
    """The same by the name in the module. They raise UnsupportedError with the place of the op."""
    return {f"{PREFIX}{name}": _placed(name, rule) for name, rule in OPS.items()}


def _placed(name: str, rule: Rule) -> Rule:
    def placed(sizes: Sizes, op: ir.Operation) -> list[ir.Value]:
        try:
            values = rule(sizes, op)
        except UnsupportedError as error:
            raise UnsupportedError(f"{source_line(op)}: {name}: {error}") from None
        return [of_its_type(value, r.type) for value, r in zip(values, op.results, strict=True)]

    return placed

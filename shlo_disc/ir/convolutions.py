"""The dimensions of a `convolution`, said once.

    [b, 0, 1, f] x [0, 1, i, o] -> [b, 0, 1, f]     input: batch 0, feature 3, spatial (1, 2)
                                                    kernel: input feature 2, output feature 3
Source: convolution in the StableHLO specification.
"""

from __future__ import annotations

from shlo_disc.base.records import dataclass
from shlo_disc.ir.mlir import ir, stablehlo


@dataclass(frozen=True)
class ImageDims:
    """The dimensions of the input or of the result of a convolution."""

    batch: int
    feature: int
    spatial: tuple[int, ...]


@dataclass(frozen=True)
class ConvNumbers:
    """The dimensions of both operands and of the result; spatial ones go together by place."""

    input: ImageDims
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output: ImageDims


def conv_numbers(op: ir.Operation) -> ConvNumbers:
    """The attribute `dimension_numbers` of a convolution."""
    n = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    return ConvNumbers(
        ImageDims(
            n.input_batch_dimension, n.input_feature_dimension, tuple(n.input_spatial_dimensions)
        ),
        n.kernel_input_feature_dimension,
        n.kernel_output_feature_dimension,
        tuple(n.kernel_spatial_dimensions),
        ImageDims(
            n.output_batch_dimension, n.output_feature_dimension, tuple(n.output_spatial_dimensions)
        ),
    )


def window_numbers(op: ir.Operation, name: str) -> tuple[int, ...]:
    """An attribute of a convolution with a number for each spatial dimension, 1 where it is absent:
    `window_strides`, `lhs_dilation` or `rhs_dilation`.
    """
    if name not in op.attributes:
        return (1,) * len(conv_numbers(op).input.spatial)
    return tuple(int(x) for x in ir.DenseI64ArrayAttr(op.attributes[name]))


def comes_in_phases(op: ir.Operation) -> bool:
    """True for a dilated input whose results at every n-th place are convolutions without dilation.

    That is so where the window moves by one, and its size is a number.
    """
    dilations = window_numbers(op, "lhs_dilation")
    strides, reaches = (window_numbers(op, name) for name in ("window_strides", "rhs_dilation"))
    kernel, dims = ir.ShapedType(op.operands[1].type), conv_numbers(op).kernel_spatial
    dilated = [i for i, n in enumerate(dilations) if n != 1]
    return bool(dilated) and all(
        strides[i] == reaches[i] == 1 and not kernel.is_dynamic_dim(dims[i]) for i in dilated
    )

"""The dimensions of a `convolution`, said once.

    [b, 0, 1, f] x [0, 1, i, o] -> [b, 0, 1, f]     input: batch 0, feature 3, spatial (1, 2)
                                                    kernel: input feature 2, output feature 3
Source: convolution in the StableHLO specification.
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_disc.mlir import ir, stablehlo

__all__ = ["ConvNumbers", "ImageDims", "conv_numbers"]


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

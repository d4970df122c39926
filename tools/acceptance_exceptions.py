"""Outside programs that miss the tolerance stated with them, each with its cause.

`tools/acceptance.py` runs the programs. It reports a program below that passes, or misses for
another cause, or is none of the archive's. `docs/coverage.md` prints this list.
"""

from __future__ import annotations

from enum import Enum

from shlo_disc.base.records import dataclass


class Cause(Enum):
    """Why results differ from the expectation; the tool checks it for every result that does."""

    INEXACT = (
        "rounding: the expectation is about as far from the sums in f64 as the result, or farther"
    )
    LAPACK = "LAPACK: absolute values agree, and factors of size one are free"
    TIES = "ties: both results are places of equal elements"
    RANDOM = "random numbers: `stablehlo.rng` is refused, since a call would depend on others"
    PROGRAM = "the program itself: the StableHLO interpreter gets the results of shlo_disc from it"
    INPUT = "the input: bucket boundaries are not sorted, so that no result is the right one"
    SHAPES = "the program itself: a call is refused, since the program is for other sizes alone"

    @property
    def is_foreign(self) -> bool:
        """Whether the case is wrong: the program does not say what its source means."""
        return self in (Cause.INPUT, Cause.PROGRAM, Cause.SHAPES)


@dataclass(frozen=True)
class Miss:
    """Programs of one archive that miss for the same reason."""

    archive: str
    cause: Cause
    reason: str
    names: tuple[str, ...]


CASES = {
    "jax_export": 140,
    "stablehlo_dynamic": 408,
    "stablehlo_interpret": 218,
    "stablehlo_math": 25,
    "stablehlo_quantized": 94,
    "stablehlo_static": 1123,
    "torch_e2e": 738,
}
"""The archives and how many programs of each have a trustworthy expectation."""

MISSES = (
    Miss(
        "jax_export",
        Cause.INEXACT,
        "Sums of products that cancel, against a relative tolerance of 1e-6.",
        ("ragged_dot_mode_3_batch_60217d",),
    ),
    Miss(
        "jax_export",
        Cause.LAPACK,
        "Schur forms of singular matrices by LAPACK's `gees` of another machine. On one machine,"
        " results have the bits of `jax.jit`.",
        (
            "schur_shape_complex64_3_3_poly_w_w_compute_schur_vectors_False_bdc683",
            "schur_shape_float32_3_3_poly_w_w_compute_schur_vectors_False_c69d5b",
        ),
    ),
    Miss(
        "jax_export",
        Cause.TIES,
        "Top-k of bf16 numbers, some of which are equal.",
        ("vmap_approx_top_k_large_True_max_True_op_bfloat16_16_256__9e04e5",),
    ),
    Miss(
        "stablehlo_dynamic",
        Cause.INEXACT,
        "Sums of 3 to 64 products, which the interpreter adds one by one in f32, each product"
        " rounded. XLA's CPU compiler misses them, too.",
        (
            "conv_general_dilated_1d_2_dynamic[3]",
            "conv_general_dilated_1d_2_dynamic[5]",
            "conv_general_dilated_1d_stride_1_dynamic[3]",
            "conv_general_dilated_1d_stride_1_dynamic[5]",
            "conv_general_dilated_dynamic[3]",
            "conv_general_dilated_dynamic[5]",
            "einsum_3_alt_dynamic[5]",
            "einsum_4_alt_dynamic[3]",
            "vmap_dot_general_batch_dimensions_lhs_float32_8_4_3_3_4_rhs_float32_4_8_3_4_2_dynamic[3]",
            "vmap_dot_general_batch_dimensions_lhs_float32_8_4_3_3_4_rhs_float32_4_8_3_4_2_dynamic[5]",
        ),
    ),
    Miss(
        "stablehlo_dynamic",
        Cause.INEXACT,
        "The quotient of two sums of 96 elements, which the interpreter adds one by one: it is off"
        " by 5.2 ULP, the result by 0.8.",
        ("average_dynamic[3]",),
    ),
    Miss(
        "stablehlo_static",
        Cause.INEXACT,
        "Prefix sums in bf16, which the expectation rounds after every element. Results are"
        " rounded once.",
        ("cumsum_bfloat16_8_9",),
    ),
    Miss(
        "torch_e2e",
        Cause.RANDOM,
        "Means of random numbers.",
        (
            "RandIntLowModule_basic",
            "RandIntModule_basic",
            "RandIntPinMemoryModule_basic",
            "RandnDtypeDeviceModule_basic",
            "RandnGeneratorF64Module_basic",
        ),
    ),
    Miss(
        "torch_e2e",
        Cause.PROGRAM,
        "torch-mlir lowers a remainder with the sign of the divisor to one with the sign of the"
        " dividend.",
        (
            "ElementwiseRemainderScalarModule_Float_NegativeDivisor_basic",
            "ElementwiseRemainderScalarModule_Int_Float_NegativeDividend_basic",
            "ElementwiseRemainderScalarModule_Int_NegativeDividend_basic",
            "ElementwiseRemainderTensorModule_Float_NegativeDivisor_basic",
            "ElementwiseRemainderTensorModule_Int_Float_NegativeDividend_basic",
            "ElementwiseRemainderTensorModule_Int_NegativeDividend_basic",
        ),
    ),
    Miss(
        "torch_e2e",
        Cause.PROGRAM,
        "torch-mlir pads pools in ceil mode on both sides, or not at all.",
        (
            "AvgPool2dCeilModeFullDimIndivisibleByStrideModule_basic",
            "MaxPool1dStaticCeilModeTrueModule_basic",
            "MaxPool1dWithIndicesCeilModeModule_basic",
            "MaxPool2dCeilModeTrueModule_basic",
        ),
    ),
    Miss(
        "torch_e2e",
        Cause.PROGRAM,
        "torch-mlir starts a maximum of unsigned 8-bit numbers at 128.",
        ("ReduceMaxAlongDimUnsignedInt_basic",),
    ),
    Miss(
        "torch_e2e",
        Cause.PROGRAM,
        "torch.export has made a number of the first sizes a constant.",
        ("PrimMaxIntModule_basic", "TorchPrimLoopForLikeModule_basic"),
    ),
    Miss(
        "torch_e2e",
        Cause.INPUT,
        "`torch.bucketize` searches, the program counts.",
        ("BucketizeTensorFloatModule_basic", "BucketizeTensorModule_basic"),
    ),
    Miss(
        "torch_e2e",
        Cause.SHAPES,
        "torch.export has made the first size a constant.",
        ("ReshapeAliasExpandModule_basic",),
    ),
    Miss(
        "torch_e2e",
        Cause.SHAPES,
        "torch-mlir takes an end of a slice that is clamped to 0 for the end of the array.",
        ("SliceOutOfLowerBoundEndIndexModule_basic",),
    ),
)
"""At most 1 % of all programs for causes on this side, and 3 % of an archive for others:
`tests/project/test_acceptance.py`."""

EXCEPTIONS = {(miss.archive, name): miss.cause for miss in MISSES for name in miss.names}
"""The cause of every program that misses, by archive and name."""

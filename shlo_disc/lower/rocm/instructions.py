"""AMD's matrix instructions: sums of 16 x 16 products in the registers of a wave.

    D[i, j] = C[i, j] + sum over k of A[i, k] * B[j, k]

Lane l gives row `l % 16` of A and of B. Its place along K is the number of its group, `l // 16`.
Of D it has column `l % 16`; sum r of group g is row `count * g + r`, or `groups * r + g`. Lanes of
`MatrixInstruction` have rows of D: what is A there is B here.

==========  ================================  =================================================
MFMA        gfx90a, gfx942, gfx950            waves of 64; f16, bf16, f32 and f64
WMMA        gfx1100, gfx1201                  waves of 32; f16, bf16, i8 and ui8
==========  ================================  =================================================

MFMA of gfx942 and gfx950 takes i8, too. Sums are f32, of f64 f64, of integers i32. On gfx1100 both
groups of a wave give the same elements, all along K.

Sources: AMD's matrix instruction calculator, github.com/ROCm/amd_matrix_instruction_calculator.
AMD's "CDNA 3 Instruction Set Architecture", "Matrix Arithmetic Instructions". The same of RDNA 3
and RDNA 4, "Wave Matrix Multiply Accumulate". LLVM's "User Guide for AMDGPU Backend".
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.lower.gpu.builder import GpuBuilder
from shlo_disc.lower.gpu.matrix_instruction import MatrixInstruction
from shlo_disc.lower.values.typed import IndexValue, Register, element_type, lanes_of, vector_type

_SIDE = 16


@dataclass(frozen=True, kw_only=True)
class AmdInstruction(MatrixInstruction):
    """One instruction; see the module."""

    intrinsic: str
    """LLVM's name."""
    signs: int | None = None
    """Whether WMMA of integers takes elements with signs; None: it does not ask."""

    def place(self, lane: IndexValue) -> tuple[IndexValue, IndexValue]:
        """See `MatrixInstruction.place`."""
        return lane % self.side, lane // self.side

    def multiply(
        self, b: GpuBuilder, a: Sequence[Register], other: Register, sums: Sequence[Register]
    ) -> list[Register]:
        """See `MatrixInstruction.multiply`; what is given first becomes the columns of a lane."""
        (own,), (before,) = a, sums
        if self.wave == 64:  # MFMA: no operand is broadcast or permuted
            given = [other, own, before, *[b.constant(0, "i32")] * 3]
        elif self.signs is None:
            given = [other, own, before]
        else:
            sign, wraps = b.constant(self.signs, "i1"), b.constant(0, "i1")
            given = [sign, other, sign, own, before, wraps]
        return [b.intrinsic(self.intrinsic, *given, type_=self.sums_type)]


def _mfma(
    name: str, operand: str, each: int, sums: str = "f32", *, is_strided: bool = False
) -> AmdInstruction:
    return AmdInstruction(
        intrinsic=f"llvm.amdgcn.mfma.{sums}.{name}", operand=operand, each=each, depth=4 * each,
        wave=64, side=_SIDE, sums=sums, is_strided=is_strided,
    )  # fmt: skip


def _wmma(
    name: str, operand: str, each: int, sums: str = "f32", *, signs: int | None = None
) -> AmdInstruction:
    # Of gfx1100 both groups give all 16 elements.
    suffix = f"v8{sums}.v{lanes_of(operand)}{element_type(operand)}"
    return AmdInstruction(
        intrinsic=f"llvm.amdgcn.wmma.{sums}.16x16x16.{name}.{suffix}", operand=operand, each=each,
        depth=16, wave=32, side=_SIDE, sums=sums, is_strided=each == 16, signs=signs,
    )  # fmt: skip


_CDNA = {
    "bf16": _mfma("16x16x16bf16.1k", vector_type(4, "i16"), 4),
    "f16": _mfma("16x16x16f16", vector_type(4, "f16"), 4),
    "f32": _mfma("16x16x4f32", "f32", 1),
    "f64": _mfma("16x16x4f64", "f64", 1, "f64", is_strided=True),
}

_TABLES: dict[str, dict[str, AmdInstruction]] = {
    "gfx90a": _CDNA,
    "gfx942": {**_CDNA, "i8": _mfma("16x16x32.i8", "i64", 8, "i32")},
    "gfx950": {
        **_CDNA,
        "i8": _mfma("16x16x64.i8", vector_type(4, "i32"), 16, "i32"),
        "bf16": _mfma("16x16x32.bf16", vector_type(8, "bf16"), 8),
        "f16": _mfma("16x16x32.f16", vector_type(8, "f16"), 8),
    },
    "gfx1100": {
        "bf16": _wmma("bf16", vector_type(16, "i16"), 16),
        "f16": _wmma("f16", vector_type(16, "f16"), 16),
        "i8": _wmma("iu8", vector_type(4, "i32"), 16, "i32", signs=1),
        "ui8": _wmma("iu8", vector_type(4, "i32"), 16, "i32", signs=0),
    },
    "gfx1201": {
        "bf16": _wmma("bf16", vector_type(8, "i16"), 8),
        "f16": _wmma("f16", vector_type(8, "f16"), 8),
        "i8": _wmma("iu8", vector_type(2, "i32"), 8, "i32", signs=1),
        "ui8": _wmma("iu8", vector_type(2, "i32"), 8, "i32", signs=0),
    },
}


def instruction_for(architecture: str, element: str) -> AmdInstruction | None:
    """What multiplies elements of a type; None: the architecture has no matrix unit for it."""
    return _TABLES[architecture].get(element)

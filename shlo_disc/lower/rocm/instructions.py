"""AMD's matrix instructions: sums of 16 x 16 products in the registers of a wave.

    D[i, j] = C[i, j] + sum over k of A[i, k] * B[j, k]

Lane l gives row `l % 16` of A and of B. Its place along K is the number of its group, `l // 16`.
Of D it has column `l % 16`; sum r of group g is row `count * g + r`, or `groups * r + g`.

==========  ================================  =================================================
MFMA        gfx90a, gfx942, gfx950            waves of 64; f16, bf16, f32 and f64
WMMA        gfx1100, gfx1201                  waves of 32; f16 and bf16, with sums in f32
==========  ================================  =================================================

On gfx1100 both groups of a wave give the same elements, all along K.

Sources: AMD's matrix instruction calculator, github.com/ROCm/amd_matrix_instruction_calculator.
AMD's "CDNA 3 Instruction Set Architecture", "Matrix Arithmetic Instructions". The same of RDNA 3
and RDNA 4, "Wave Matrix Multiply Accumulate".
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_disc.lower.gpu.builder import GpuBuilder
from shlo_disc.lower.values.typed import Register, element_type, lanes_of, vector_type

__all__ = ["SIDE", "MatrixInstruction", "instruction_for"]

SIDE = 16
"""Rows and columns of the sums of one instruction."""


@dataclass(frozen=True)
class MatrixInstruction:
    """One instruction; see the module."""

    intrinsic: str
    """LLVM's name. LLVM's "User Guide for AMDGPU Backend" names the instructions."""
    operand: str
    """MLIR's type of the elements that a lane gives."""
    depth: int
    """Products that are added to a sum."""
    wave: int
    """Lanes."""
    sums: str = "f32"
    is_strided: bool = False
    """Sum r of group g is of row `groups * r + g`."""

    @property
    def groups(self) -> int:
        """Groups of 16 lanes."""
        return self.wave // SIDE

    @property
    def count(self) -> int:
        """Sums of a lane."""
        return SIDE // self.groups

    @property
    def each(self) -> int:
        """Elements of a lane."""
        return max(1, lanes_of(self.operand))

    @property
    def is_doubled(self) -> bool:
        """True if each group gives all elements."""
        return self.each == self.depth

    @property
    def sums_type(self) -> str:
        """MLIR's type of the sums of a lane."""
        return vector_type(self.count, self.sums)

    def given(self, b: GpuBuilder, elements: Register) -> list[Register]:
        """`elements` of a lane as operands of instructions, one after the other."""
        found = []
        for first in range(0, elements.lanes, self.each):
            if self.each == 1:
                found.append(b.extract(elements, first))
                continue
            part = elements
            if elements.lanes > self.each:
                part = b.shuffle(elements, elements, range(first, first + self.each))
            is_same = part.element == element_type(self.operand)
            found.append(part if is_same else b.bitcast(part, self.operand))
        return found

    def multiply(self, b: GpuBuilder, a: Register, other: Register, sums: Register) -> Register:
        """`sums` and the products of `a` and `other`."""
        given = [a, other, sums]
        if "mfma" in self.intrinsic:
            given += [b.constant(0, "i32")] * 3  # no operand is broadcast or permuted
        return b.intrinsic(self.intrinsic, *given, type_=self.sums_type)


def _mfma(name: str, operand: str, depth: int) -> MatrixInstruction:
    return MatrixInstruction(f"llvm.amdgcn.mfma.f32.{name}", operand, depth, 64)


def _wmma(name: str, operand: str, *, is_strided: bool) -> MatrixInstruction:
    suffix = f"v8f32.v{lanes_of(operand)}{element_type(operand)}"
    intrinsic = f"llvm.amdgcn.wmma.f32.16x16x16.{name}.{suffix}"
    return MatrixInstruction(intrinsic, operand, 16, 32, is_strided=is_strided)


_CDNA = {
    "bf16": _mfma("16x16x16bf16.1k", "vector<4xi16>", 16),
    "f16": _mfma("16x16x16f16", "vector<4xf16>", 16),
    "f32": _mfma("16x16x4f32", "f32", 4),
    "f64": MatrixInstruction(
        "llvm.amdgcn.mfma.f64.16x16x4f64", "f64", 4, 64, sums="f64", is_strided=True
    ),
}

_TABLES: dict[str, dict[str, MatrixInstruction]] = {
    "gfx90a": _CDNA,
    "gfx942": _CDNA,
    "gfx950": {
        **_CDNA,
        "bf16": _mfma("16x16x32.bf16", "vector<8xbf16>", 32),
        "f16": _mfma("16x16x32.f16", "vector<8xf16>", 32),
    },
    "gfx1100": {
        "bf16": _wmma("bf16", "vector<16xi16>", is_strided=True),
        "f16": _wmma("f16", "vector<16xf16>", is_strided=True),
    },
    "gfx1201": {
        "bf16": _wmma("bf16", "vector<8xi16>", is_strided=False),
        "f16": _wmma("f16", "vector<8xf16>", is_strided=False),
    },
}


def instruction_for(architecture: str, element: str) -> MatrixInstruction | None:
    """What multiplies elements of a type; None: the architecture has no matrix unit for it."""
    return _TABLES[architecture].get(element)

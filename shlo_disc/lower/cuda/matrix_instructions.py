"""NVIDIA's `mma.sync` of f64 and 8-bit integers, as `gpu/matrix_instruction.py` describes it.

Lane l gives row `l // 4` of A, of each block of 8 rows, and of B. Its group is `l % 4`. Of D it has
columns `2 * (l % 4)` and the next.

=========  ===================  ==================================================
sm_75      m8n8k16              i8, ui8
sm_80      m8n8k4, m16n8k32     f64; i8, ui8
sm_90      m16n8k8              f64, at twice the rate
=========  ===================  ==================================================

Source: NVIDIA's PTX ISA 8, section 9.7.14.5, "Matrix Fragments".
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.lower.cuda.instructions import multiply_fragments
from shlo_disc.lower.gpu.builder import GpuBuilder
from shlo_disc.lower.gpu.matrix_instruction import MatrixInstruction
from shlo_disc.lower.values.typed import IndexValue, Register, vector_type


@dataclass(frozen=True, kw_only=True)
class MmaInstruction(MatrixInstruction):
    """One instruction; see the module."""

    kind: str
    """The part of the name behind `mma.sync.aligned`."""

    def place(self, lane: IndexValue) -> tuple[IndexValue, IndexValue]:
        """See `MatrixInstruction.place`."""
        return lane // 4, lane % 4

    def multiply(
        self, b: GpuBuilder, a: Sequence[Register], other: Register, sums: Sequence[Register]
    ) -> list[Register]:
        """See `MatrixInstruction.multiply`."""
        words = [_parts(b, x) for x in a]
        left = [block[k] for k in range(len(words[0])) for block in words]
        before = [x for block in sums for x in _parts(b, block)]
        found = multiply_fragments(b, self.kind, left, _parts(b, other), before)
        return [b.joined(found[at : at + self.count]) for at in range(0, len(found), self.count)]


def _parts(b: GpuBuilder, x: Register) -> list[Register]:
    return [b.extract(x, k) for k in range(x.lanes)] if x.lanes else [x]


def _f64(shape: str, depth: int, blocks: int) -> MmaInstruction:
    each = depth // 4
    return MmaInstruction(
        kind=f"{shape}.row.col.f64.f64.f64.f64",
        operand="f64" if each == 1 else vector_type(each, "f64"),
        each=each, depth=depth, wave=32, side=8, blocks=blocks, sums="f64", spread=64,
    )  # fmt: skip


def _integer(shape: str, element: str, depth: int, blocks: int) -> MmaInstruction:
    each = depth // 4
    return MmaInstruction(
        kind=f"{shape}.row.col.s32.{element}.{element}.s32",
        operand="i32" if each == 4 else vector_type(2, "i32"),
        each=each, depth=depth, wave=32, side=8, blocks=blocks, sums="i32", spread=64,
    )  # fmt: skip


_NAMES = {"i8": "s8", "ui8": "u8"}


def instruction_for(architecture: str, element: str) -> MmaInstruction | None:
    """What multiplies elements of a type; None: none of these does."""
    number = int("".join(filter(str.isdigit, architecture)))
    if element == "f64" and number >= 80:
        return _f64("m16n8k8", 8, 2) if number >= 90 else _f64("m8n8k4", 4, 1)
    if element not in _NAMES:
        return None
    if number < 80:
        return _integer("m8n8k16", _NAMES[element], 16, 1)
    return _integer("m16n8k32", _NAMES[element], 32, 2)

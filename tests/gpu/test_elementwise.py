"""Every element-wise row of the op table as PTX, to the bit what the CPU's kernel computes."""

from __future__ import annotations

import pytest

from shlo_disc.ir.element_types import ELEMENT_TYPES
from shlo_disc.ir.ops import OPS, Role, names
from shlo_disc.lower.cpu.loop import emit
from shlo_disc.lower.cpu.machine import Machine
from tests.gpu.run import gpu_plan, run_cpu, run_gpu
from tests.gpu.values import difference, sample
from tests.lower.helpers import fusion_text, plan_of
from tests.test_ops import BINARY, OPERANDS

ROWS = sorted(names(lambda row: row.role is Role.ELEMENTWISE))
NOT_WRITTEN: dict[str, str] = {}
"""Rows that a target of scalars cannot write, and why: none."""
SLOW = names(lambda row: bool(row.math) and row.name != "stablehlo.power")
SLOW_TYPES = ("f64", "f32", "f16", "bf16", "f8E4M3FN")
"""Functions are computed in f32 for all narrower types: three of these stand for all."""
NARROW = Machine(vector_bytes=16)
"""Narrow vectors compile fast."""
EXACT = {"stablehlo.select", "stablehlo.bitcast_convert"}
"""Ops that move bits, those of NaNs too."""
FROM_SMALL = ("bf16", "f16", "f32", "f64", "f4E2M1FN", "f8E4M3FN", "i1", "i4", "ui64")
"""Floats of 8 bits and fewer are converted as f32 is, which is converted to every type."""
SIZES = (0, 1, 769)

_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
_COMPARE = "comparison_direction = #stablehlo<comparison_direction {}>"
_TOTAL = ", compare_type = #stablehlo<comparison_type TOTALORDER>"
_PRECISIONS = ((5, 2), (5, 10), (8, 7), (2, 0), (8, 23), (11, 30))


def forms(name: str, element: str) -> list[tuple[str, str]]:
    """What an op may be on operands of `element`: (attributes, element type of the result)."""
    if name == "stablehlo.compare":
        plain = [(_COMPARE.format(d), "i1") for d in _DIRECTIONS]
        is_float = ELEMENT_TYPES[element].kind == "f"
        return plain + [(a + _TOTAL, r) for a, r in plain if is_float]
    if name == "stablehlo.reduce_precision":
        return [(f"exponent_bits = {e} : i32, mantissa_bits = {m} : i32", element)
                for e, m in _PRECISIONS]  # fmt: skip
    if name == "stablehlo.convert":
        is_small = ELEMENT_TYPES[element].kind == "f" and ELEMENT_TYPES[element].bits < 16
        return [("", to) for to in (FROM_SMALL if is_small else ELEMENT_TYPES)]
    if name == "stablehlo.bitcast_convert":
        bits = ELEMENT_TYPES[element].bits
        return [("", to) for to, row in ELEMENT_TYPES.items() if row.bits == bits]
    return [("", "i1" if name == "stablehlo.is_finite" else element)]


def operations(element: str, slow: bool) -> list[tuple[str, str, str]]:
    """(op, its text, element type of its result) for all rows that have the element type."""
    found = []
    for name in ROWS:
        has_type = ELEMENT_TYPES[element].kind in OPS[name].types
        if not has_type or (name in SLOW) != slow or name in NOT_WRITTEN:
            continue
        count = OPERANDS.get(name, 2 if name in BINARY else 1)
        operands = ["%x", "%y", "%z"][:count]
        kinds = [f"tensor<?x{element}>"] * count
        if name == "stablehlo.select":
            operands[0], kinds[0] = "%p", "tensor<?xi1>"
        for attributes, result in forms(name, element):
            text = (
                f'"{name}"({", ".join(operands)}) {{{attributes}}} : '
                f"({', '.join(kinds)}) -> tensor<?x{result}>"
            )
            found.append((name, text, result))
    return found


def fusion(element: str, chosen: list[tuple[str, str, str]]) -> str:
    """A fusion of one result for each operation."""
    body = "\n".join(f"%r{k} = {text}" for k, (_, text, _) in enumerate(chosen))
    operands = [f"{v}: n {element}" for v in "xyz"] + ["p: n i1"]
    results = [f"r{k}: n {result}" for k, (_, _, result) in enumerate(chosen)]
    return fusion_text("loop", operands, body, results)


MOST_RESULTS = 56
"""A launch passes at most 64 buffers."""


@pytest.mark.parametrize(
    ("element", "slow"),
    [*((e, False) for e in ELEMENT_TYPES), *((e, True) for e in SLOW_TYPES)],
)
def test_elements_are_those_of_the_cpu_to_the_bit(element: str, slow: bool) -> None:
    every = operations(element, slow)
    wrong = []
    for first in range(0, len(every), MOST_RESULTS):
        chosen = every[first : first + MOST_RESULTS]
        text = fusion(element, chosen)
        ptx, cpu = gpu_plan(text), plan_of(emit, text, NARROW)
        for size in SIZES:
            inputs = [sample(element, size, seed) for seed in range(3)] + [sample("i1", size, 3)]
            pairs = zip(run_gpu(ptx, inputs), run_cpu(cpu, inputs), strict=True)
            for (name, line, result), (got, want) in zip(chosen, pairs, strict=True):
                other = difference(result, got, want, name in EXACT)
                for k in other.nonzero()[0][:1]:
                    values = [array[k] for array in inputs]
                    wrong.append(f"{line} of {values}: {got[k]} is not {want[k]}")
    assert not wrong, "\n".join(wrong)


def test_every_row_is_written_or_says_why_not() -> None:
    written = {name for e in ELEMENT_TYPES for slow in (0, 1) for name, *_ in operations(e, slow)}
    assert written.isdisjoint(NOT_WRITTEN)
    assert written | set(NOT_WRITTEN) == set(ROWS)

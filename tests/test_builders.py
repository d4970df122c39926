"""Numbers that are known while a program is read."""

import itertools

import pytest

from shlo_disc.ir.builders import number_of
from shlo_disc.ir.mlir import ir, new_context, ops_of


@pytest.mark.parametrize(
    ("number", "types", "want"),
    [
        ("5", ["i32"], 5),
        ("5", ["i32", "i64"], 5),
        ("-1", ["i8", "ui32"], 2**32 - 1),
        ("-1", ["i64", "ui64"], 2**64 - 1),
        ("-1", ["i64", "ui8", "i64"], 255),
        ("300", ["i32", "i8"], 44),
        ("200", ["ui8", "i8", "i32"], -56),
        ("4294967296", ["i64", "i32"], 0),
        ("18446744073709551615", ["ui64", "i64"], -1),
        ("18446744073709551615", ["ui64"], 2**64 - 1),
        ("2.5", ["f32", "i32"], None),
        ("2", ["i32", "f32"], None),
        ("2", ["i32", "f32", "i32"], None),
        ("2", ["i32", "i1", "i32"], None),
    ],
)
def test_number_of_applies_conversions(number, types, want):
    text = f"%0 = stablehlo.constant dense<{number}> : tensor<{types[0]}>\n"
    for k, (source, target) in enumerate(itertools.pairwise(types), 1):
        text += f"%{k} = stablehlo.convert %{k - 1} : (tensor<{source}>) -> tensor<{target}>\n"
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(
            f"func.func @main() -> tensor<{types[-1]}> {{\n{text}"
            f"return %{len(types) - 1} : tensor<{types[-1]}>\n}}"
        )
        (last,) = ops_of(module, "func.return")
        assert number_of(last.operands[0]) == want

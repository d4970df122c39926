"""Literals of LLVM's newer spelling, as the older LLVM reads them: the same bits."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from shlo_disc.lower.llvm.llvm_text import for_older_llvm

TYPES = {"half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32, "double": float}


def read_back(line: str, dtype: np.dtype) -> int:
    """The bits that the older LLVM reads: 16-bit types have a form of their own."""
    (form, digits) = re.findall(r"0x([HR]?)([0-9A-F]+)", line)[0]
    if form:
        return int(digits, 16)
    wide = np.array(int(digits, 16), np.uint64).view(np.float64)
    if np.isnan(wide) and dtype.itemsize == 4:
        raw = int(digits, 16)
        return (raw >> 63) << 31 | 0xFF << 23 | (raw >> 29) & 0x7FFFFF
    return int(wide.astype(dtype).view(f"u{dtype.itemsize}"))


@pytest.mark.parametrize("name", TYPES)
def test_every_number_keeps_its_bits(name: str) -> None:
    dtype = np.dtype(TYPES[name])
    size = 8 * dtype.itemsize
    rng = np.random.default_rng(0)
    every = rng.integers(0, 1 << min(size, 63), 400, np.uint64).astype(f"u{dtype.itemsize}")
    for bits in (*every, np.array(0.1).astype(dtype).view(every.dtype)):
        value = np.array(bits).view(dtype)
        if np.isnan(value.astype(float)):
            continue
        shortest = repr(float(value)) if name == "double" else str(value.item())
        with_point = shortest if "." in shortest or "n" in shortest else f"{shortest}.0"
        for text in (with_point, f"f0x{int(bits):0{size // 4}X}"):
            if "inf" in text and not text.startswith("f0x"):
                text = f"{'-' if text[0] == '-' else '+'}inf"
            line = for_older_llvm(f"  %x = fadd {name} %y, {text}")
            assert read_back(line, dtype) == int(bits), (text, line)


def test_what_is_no_literal_stays() -> None:
    for line in (
        '  call void asm "fma.rn 1.0, 2.0", "r"(i32 1)',
        "  %1.5 = add i32 %0, 3",
        "; float 1.0",
        "declare float @f.1.0(float)",
    ):
        assert for_older_llvm(line) == line


def test_newer_attributes_go() -> None:
    line = "attributes #1 = { nocallback nocreateundeforpoison nofree }"
    assert for_older_llvm(line) == "attributes #1 = { nocallback nofree }"
